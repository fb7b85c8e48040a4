"""The page as people get it: a link opens it and a language model is trained, for real."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

BOOT_TIMEOUT_MS = 60_000
TRAINING_TIMEOUT_MS = 240_000
STEPS = 20


@pytest.mark.slow
def test_nano_learns_on_the_embedded_corpus(page: Page, server: str) -> None:
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{server}?start=solo&preset=nano&steps={STEPS}&seed=1&player=wasm")
    page.wait_for_function(
        "() => ['idle', 'error'].includes(daisychain.state().phase) && daisychain.log().length",
        timeout=BOOT_TIMEOUT_MS + TRAINING_TIMEOUT_MS,
    )
    state = page.evaluate("daisychain.state()")
    assert state["error"] is None
    assert (state["phase"], state["step"], state["player"]) == ("idle", STEPS, "wasm")
    steps = [record for record in page.evaluate("daisychain.log()") if "loss" in record]
    assert [record["step"] for record in steps] == list(range(1, STEPS + 1))
    first, last = (sum(r["loss"] for r in part) / 3 for part in (steps[:3], steps[-3:]))
    assert 9.5 < first < 9.8
    assert last < first - 1.0
    assert 8.0 < state["heldout_nats"] < first
    assert steps[-1]["heldout_nats"] == state["heldout_nats"]
    assert 2.0 < state["heldout_bits_per_byte"] < 3.5
    assert len(state["weights_hash"]) == 32
    assert "gemm3" in [kernel["name"] for kernel in state["kernels"]]
    expect(page.locator("#phase")).to_have_text("Finished")
    expect(page.get_by_text(f"{len(state['kernels'])} admitted")).to_be_visible()
    expect(page.get_by_role("img", name=f"Loss over {STEPS} steps")).to_be_visible()
    assert faults == []
