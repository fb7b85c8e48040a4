"""The local server: the built site as static files, and the pairing relay at ``/relay``.

``python -m tools.server FOLDER PORT`` serves until Ctrl+C.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from aiohttp import web

from tools.relay import add_relay

HOST = "127.0.0.1"

CONTENT_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".py": "text/x-python",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}


def make_app(dist: Path) -> web.Application:
    """An application that hands out the files of ``dist`` and runs the relay."""
    app = web.Application()
    add_relay(app)

    async def send_file(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"] or "index.html"
        path = (dist / name).resolve()
        if not path.is_relative_to(dist.resolve()) or not path.is_file():
            raise web.HTTPNotFound(text=f"No such file: {name}\n")
        # The machine's own table may lack .wasm or .mjs, and a module needs the right type.
        content_type = CONTENT_TYPES.get(path.suffix, "application/octet-stream")
        headers = {"Content-Type": content_type, "Cache-Control": "no-cache"}
        return web.FileResponse(path, headers=headers)

    app.router.add_get("/{name:.*}", send_file)
    return app


def main(dist: Path, port: int) -> None:
    """Serve ``dist`` on this machine; one sentence when the port is taken."""

    def announce(*_: object) -> None:
        print(f"DaisyChain is at http://localhost:{port}/ - stop it with Ctrl+C.", flush=True)

    try:
        web.run_app(make_app(dist), host=HOST, port=port, print=announce, access_log=None)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise SystemExit(
            f"Port {port} is in use: choose another one with build.py serve --port N."
        ) from error


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
