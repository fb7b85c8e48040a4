"""Training from the Hub stand-in with faults on: the loss falls, on the rows of the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from daisychain.data import open_source, open_tokenizer
from tests.browser.pyodide_page import PyodidePage
from tests.data.http_reference import HttpReferencePort
from tests.data.hub import Fault, running_hub
from tests.data.parquet_files import prose, write_parquet
from tests.data.reference import byte_tokenizer, run_apart

STEPS = 10
TRAIN = """
from daisychain.data import open_source, retry
from daisychain.players.choice import open_player
from daisychain.session import TrainingSession
from daisychain.settings import resolve

retry.FIRST_DELAY_S = 0.05
batches, units, said = [], [], []

class Recorded:
    def __init__(self, source):
        self.source = source
    def __getattr__(self, name):
        return getattr(self.source, name)
    async def batch(self, step, micro_batch, rows):
        units.append([s.unit.rows for s in await self.source.rows_used(step, micro_batch, rows)])
        ids, targets = await self.source.batch(step, micro_batch, rows)
        batches.append([list(ids.to_py()), list(targets.to_py())])
        return ids, targets

async def open_hub(settings, micro_batches, *rest):
    return Recorded(await open_source(
        "fineweb-edu", seed=settings.seed, context=settings.context,
        micro_batches=micro_batches, hub=api, on_wait=said.append))

session = TrainingSession(
    resolve({"preset": "nano", "steps": steps, "seed": 5, "player": "wasm", "eval_every": steps}),
    open_player, open_hub)
await session.run()
state = session.state()
losses = [record["loss"] for record in session.log() if "loss" in record]
[state["error"], losses, state["heldout_bits_per_byte"], batches, units, said]
"""


OTHER_TOKENIZER = """
from daisychain.ui.app import _opener

session = TrainingSession(
    resolve({"preset": "nano", "steps": 2, "player": "wasm", "eval_every": 0, "save_every": 0,
             "data": "fineweb-edu", "tokenizer": "org/bytes", "hub": api}),
    open_player, _opener(None))
await session.run()
state = session.state()
texts = session.tokenizer
missing = TrainingSession(
    resolve({"preset": "nano", "tokenizer": "org/missing", "hub": api}), open_player, _opener(None))
await missing.run()
[state["error"], state["step"], texts.size, texts.decode(await texts.encode("Ωmega")),
 state["parameters"], missing.state()["error"]]
"""


@pytest.mark.slow
def test_nano_learns_from_the_stand_in(data_page: PyodidePage, tmp_path: Path) -> None:
    folder = tmp_path / "HuggingFaceFW/fineweb-edu/main/sample/10BT"
    write_parquet(folder / "000_00000.parquet", prose(400, 1), codec="zstd", row_group_rows=50)
    write_parquet(folder / "001_00000.parquet", prose(400, 2), codec="snappy", row_group_rows=80)
    with running_hub(tmp_path) as hub:
        hub.valid_uses = 2
        hub.faults += [
            Fault("status", origin="api", status=503),
            Fault("status", status=429, retry_after="1"),
            Fault("cut"),
            Fault("slow"),
        ]
        error, losses, bits, batches, units, said = data_page.run(TRAIN, api=hub.api, steps=STEPS)
        assert error is None
        assert all(fault.times == 0 for fault in hub.faults)
        assert len(losses) == STEPS
        assert losses[-1] < losses[0] - 0.5
        assert bits > 0
        assert any("429" in sentence for sentence in said)
        hub.valid_uses = None
        rows = len(batches[0][0]) // 64

        async def reference() -> tuple[list[object], list[object]]:
            tokenizer = await open_tokenizer(port=HttpReferencePort())
            source = await open_source(
                "fineweb-edu", seed=5, context=64, hub=hub.api, tokenizer=tokenizer
            )
            expected, planned = [], []
            for step in range(STEPS):
                parts = await source.rows_used(step, 0, rows)  # type: ignore[attr-defined]
                planned.append([list(part.unit.rows) for part in parts])
                expected.append([list(part) for part in await source.batch(step, 0, rows)])
            return expected, planned

        HttpReferencePort.sparse.clear()
        expected, planned = run_apart(reference())
        assert batches == expected
        assert units == planned

        folder = tmp_path / "org/bytes"
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").write_text(byte_tokenizer(), encoding="utf-8")
        error, step, size, text, parameters, refused = data_page.run(OTHER_TOKENIZER, api=hub.api)
        assert (error, step, size, text) == (None, 2, 258, "Ωmega")
        assert parameters < 200_000
        assert "The tokenizer of org/missing" in refused
        assert "answered 404" in refused
