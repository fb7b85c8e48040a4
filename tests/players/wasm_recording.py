"""Sessions of the CPU player, recorded on wasmtime and replayed by the Worker in real browsers.

``RecordingDevice`` keeps every request with its answer; ``replay_site`` is a folder whose page
sends the same requests to ``app/js/wasm_player_worker.js`` and leaves in ``window.outcome`` which
answers differ.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from daisychain.players.wasm import Region
from daisychain.players.wasm_layout import Layout
from tests.players.wasm_runner import MODULE, WasmtimeDevice

ROOT = Path(__file__).resolve().parents[2]

PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<script type="module">
import { layoutOf, loadModules, openWorkers } from "./wasm_workers.js";

const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const unpack = (key, value) => (value?.base64 === undefined ? value : decode(value.base64));
const modules = await loadModules();

async function replay({ parts, requests }) {
  const worker = await openWorkers(modules, parts);
  const differences = [];
  for (const [index, { request, answers, name }] of requests.entries()) {
    const ready = request.layout ? { ...request, layout: layoutOf(request.layout) } : request;
    if (request.op === "write") {
      worker.tell(ready);
      continue;
    }
    const { contents, failure } = await worker.ask(ready);
    if (failure) differences.push(`${name}: request ${index}: ${failure.message}`);
    for (const [i, answer] of (failure ? [] : answers).entries())
      if (answer.length !== contents[i].length || answer.some((b, j) => b !== contents[i][j]))
        differences.push(`${name}: request ${index} (${request.op})`);
  }
  worker.close();
  return differences;
}

const sessions = JSON.parse(await (await fetch("sessions.json")).text(), unpack);
const canShare = crossOriginIsolated && typeof SharedArrayBuffer === "function";
const outcome = { parts: [], differences: [] };
for (const session of sessions.filter(({ parts }) => parts === 1 || canShare)) {
  outcome.parts.push(session.parts);
  for (const text of await replay(session))
    outcome.differences.push(`${session.parts} Workers: ${text}`);
}
window.outcome = outcome;
</script>
"""


class RecordingDevice(WasmtimeDevice):
    """``WasmtimeDevice`` that keeps its requests; ``name`` marks those that follow."""

    def __init__(self, parts: int = 1) -> None:
        super().__init__(parts)
        self.name = ""
        self.requests: list[dict[str, Any]] = []

    async def load(self, layout: Layout) -> None:
        await super().load(layout)
        self._keep({"op": "load", "layout": packed_layout(layout)}, [])

    def write(self, address: int, data: Any, give: bool = False) -> None:
        super().write(address, data)
        self._keep({"op": "write", "writes": [(address, _packed(bytes(data)))]}, [])

    async def run(self, plans: Sequence[str], read: Region) -> bytes:
        contents = await super().run(plans, read)
        self._keep({"op": "run", "plans": list(plans), "region": read}, [contents])
        return contents

    async def read(self, region: Region) -> bytes:
        contents = await super().read(region)
        self._keep({"op": "read", "regions": [region]}, [contents])
        return contents

    async def read_arrays(self, regions: Sequence[Region]) -> list[Any]:
        contents = await super().read_arrays(regions)
        self._keep({"op": "read", "regions": list(regions)}, contents)
        return contents

    async def run_alone(
        self, layout: Layout, writes: Sequence[tuple[int, bytes]], reads: Sequence[Region]
    ) -> list[bytes]:
        contents = await super().run_alone(layout, writes, reads)
        packed = [(address, _packed(data)) for address, data in writes]
        request = {
            "op": "alone",
            "layout": packed_layout(layout),
            "writes": packed,
            "regions": reads,
        }
        self._keep(request, contents)
        return contents

    def _keep(self, request: dict[str, Any], answers: Sequence[bytes]) -> None:
        kept = {"name": self.name, "request": request, "answers": [_packed(a) for a in answers]}
        self.requests.append(kept)


def replay_site(folder: Path, devices: Sequence[RecordingDevice]) -> None:
    """Writes the page, what it needs and the sessions into ``folder``."""
    (folder / "index.html").write_text(PAGE)
    copy_player(folder)
    sessions = [{"parts": device.parts, "requests": device.requests} for device in devices]
    (folder / "sessions.json").write_text(json.dumps(sessions))


def copy_player(folder: Path) -> None:
    """The Worker, its modules and what drives it from JavaScript."""
    shutil.copy(ROOT / "app/js/wasm_player_worker.js", folder)
    shutil.copytree(ROOT / "app/js/worker", folder / "worker")
    shutil.copy(Path(__file__).with_name("wasm_workers.js"), folder)
    for module in (MODULE, MODULE.with_name("kernels_shared.wasm")):
        shutil.copy(module, folder)


def _packed(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


def packed_layout(layout: Layout) -> dict[str, Any]:
    """A layout under the Worker's names."""
    fields = asdict(layout) | {"image": _packed(layout.image)}
    return {_camel_case(name): value for name, value in fields.items()}


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
