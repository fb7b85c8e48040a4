"""A stand-in for the Hugging Face Hub: an API origin and a storage origin on two loopback ports.

The API lists a dataset's tree and redirects file addresses to signed ones of the storage host,
which answers ranges (never suffix ranges) until they expire.  ``log`` has every request;
``faults`` are used up one by one by the requests that they are for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from tests.servers import running_app

CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Content-Range, Link, Retry-After",
}


FAULT = web.RequestKey("fault", str)


@dataclass
class Request:
    """One line of the log."""

    origin: str
    method: str
    path: str
    range: str
    status: int


@dataclass
class Fault:
    """What happens to the next request for ``origin`` whose path contains ``path``, and whose
    range is ``range`` if one is named.

    kind: ``status``, ``cut`` (half the body), ``whole`` (200 for a range), ``shifted`` (another
    range), ``size`` (another total), ``slow`` (body in small pieces), ``garbage`` (right length,
    wrong bytes), ``drop`` (no answer), ``no-cors`` (ranges are kept from pages of other origins).
    """

    kind: str
    origin: str = "storage"
    path: str = ""
    range: str = ""
    times: int = 1
    status: int = 503
    retry_after: str = ""


@dataclass
class Hub:
    """The state of both origins.  ``root/OWNER/NAME/REVISION/...`` holds the files."""

    root: Path
    api: str = ""
    storage: str = ""
    faults: list[Fault] = field(default_factory=list)
    log: list[Request] = field(default_factory=list)
    allow_preflight: bool = True
    page_entries: int = 1000
    valid_uses: int | None = None
    """How many times a signed address can be used; None is for ever."""
    signatures: dict[str, int] = field(default_factory=dict)

    def requests(self, origin: str = "", method: str = "GET") -> list[Request]:
        return [r for r in self.log if r.method == method and origin in ("", r.origin)]

    def ranges(self) -> list[str]:
        """The ranges that storage served."""
        return [r.range for r in self.requests("storage") if r.status == 206]

    def take_fault(self, line: Request) -> Fault | None:
        for fault in self.faults:
            here = fault.origin == line.origin and fault.path in line.path
            if here and fault.range in ("", line.range) and fault.times > 0:
                fault.times -= 1
                return fault
        return None


def _middleware(hub: Hub, origin: str):  # type: ignore[no-untyped-def]
    @web.middleware
    async def handle(request: web.Request, handler):  # type: ignore[no-untyped-def]
        line = Request(origin, request.method, request.path, request.headers.get("Range", ""), 0)
        hub.log.append(line)
        if request.method == "OPTIONS":
            line.status = 204 if hub.allow_preflight else 403
            headers = {"Access-Control-Allow-Headers": "Range", **CORS}
            return web.Response(status=line.status, headers=headers if hub.allow_preflight else {})
        fault = hub.take_fault(line)
        if fault is not None and fault.kind == "status":
            line.status = fault.status
            after = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            return web.Response(status=fault.status, headers={**CORS, **after})
        if fault is not None and fault.kind == "drop":
            if request.transport is not None:
                request.transport.close()
            return web.Response()
        request[FAULT] = fault.kind if fault else ""
        try:
            response = await handler(request)
        except web.HTTPException as error:
            line.status = error.status
            error.headers.update(CORS)
            raise
        line.status = response.status
        return response

    return handle


def _api(hub: Hub) -> web.Application:
    async def tree(request: web.Request) -> web.Response:
        owner, name, revision = (request.match_info[k] for k in ("owner", "name", "revision"))
        top = hub.root / owner / name / revision.replace("/", "%2F")
        folder = top / request.match_info.get("path", "")
        if not folder.is_dir():
            raise web.HTTPNotFound
        entries = []
        for path in sorted(folder.rglob("*")):
            entry = {"type": "directory", "path": path.relative_to(top).as_posix(), "size": 0}
            if path.is_file():
                entry |= {"type": "file", "size": path.stat().st_size, "oid": "a" * 40}
                entry["lfs"] = {"oid": f"{path.stat().st_mtime_ns:064x}", "size": entry["size"]}
            entries.append(entry)
        start = int(request.query.get("cursor", "0"))
        headers = dict(CORS)
        if start + hub.page_entries < len(entries):
            following = request.url.update_query(cursor=start + hub.page_entries)
            headers["Link"] = f'<{following}>; rel="next"'
        body = json.dumps(entries[start : start + hub.page_entries])
        return web.Response(text=body, content_type="application/json", headers=headers)

    async def resolve(request: web.Request) -> web.Response:
        owner, name, revision, path = (
            request.match_info[k] for k in ("owner", "name", "revision", "path")
        )
        file = Path(owner, name, revision.replace("/", "%2F"), path)
        if not (hub.root / file).is_file():
            raise web.HTTPNotFound
        signature = f"s{len(hub.signatures)}"
        hub.signatures[signature] = 0
        location = f"{hub.storage}blob/{file.as_posix().replace('%', '%25')}?signature={signature}"
        return web.Response(status=302, headers={**CORS, "Location": location})

    async def tokenizer(request: web.Request) -> web.StreamResponse:
        path = hub.root / request.match_info["owner"] / request.match_info["name"]
        if not (path / "tokenizer.json").is_file():
            raise web.HTTPNotFound
        return web.FileResponse(path / "tokenizer.json", headers=CORS)

    app = web.Application(middlewares=[_middleware(hub, "api")])
    listing = "/api/datasets/{owner}/{name}/tree/{revision:main|refs%2Fconvert%2Fparquet}"
    app.router.add_get(listing, tree)
    app.router.add_get(listing + "/{path:.+}", tree)
    revision = "{revision:main|refs%2Fconvert%2Fparquet}"
    app.router.add_get(f"/datasets/{{owner}}/{{name}}/resolve/{revision}/{{path:.+}}", resolve)
    app.router.add_get("/{owner}/{name}/resolve/main/tokenizer.json", tokenizer)
    app.router.add_route("OPTIONS", "/{any:.*}", tree)
    return app


def _storage(hub: Hub) -> web.Application:
    async def blob(request: web.Request) -> web.StreamResponse:
        signature = request.query.get("signature", "")
        if signature not in hub.signatures:
            raise web.HTTPForbidden
        hub.signatures[signature] += 1
        if hub.valid_uses is not None and hub.signatures[signature] > hub.valid_uses:
            raise web.HTTPForbidden
        data = (hub.root / request.match_info["path"]).read_bytes()
        wanted = request.headers.get("Range", "")
        fault = request[FAULT]
        if not wanted or fault == "whole":
            return web.Response(body=data, headers=CORS)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        if not first or not last or int(last) >= len(data):
            raise web.HTTPRequestRangeNotSatisfiable
        start, end = int(first), int(last) + 1
        body = data[start:end]
        if fault == "garbage":
            body = bytes(b ^ 0x5A for b in body)
        shift, total = (-1 if fault == "shifted" else 0), len(data) + (fault == "size")
        cors = {} if fault == "no-cors" else CORS
        headers = {**cors, "Content-Range": f"bytes {start - shift}-{end - 1 - shift}/{total}"}
        if fault not in ("cut", "slow"):
            return web.Response(status=206, body=body, headers=headers)
        headers["Content-Length"] = str(len(body))
        response = web.StreamResponse(status=206, headers=headers)
        await response.prepare(request)
        if fault == "cut":
            await response.write(body[: len(body) // 2])
            if request.transport is not None:
                request.transport.close()
            return response
        for at in range(0, len(body), 4096):
            await response.write(body[at : at + 4096])
            await asyncio.sleep(0.005)
        return response

    app = web.Application(middlewares=[_middleware(hub, "storage")])
    app.router.add_get("/blob/{path:.+}", blob)
    app.router.add_route("OPTIONS", "/{any:.*}", blob)
    return app


@contextmanager
def running_hub(root: Path) -> Iterator[Hub]:
    """Both origins, ended with the ``with`` block."""
    hub = Hub(root)
    with running_app(_api(hub)) as api, running_app(_storage(hub)) as storage:
        hub.api, hub.storage = api.rstrip("/"), storage
        yield hub
