"""The real page's two files: a run goes on from the checkpoint, in a new tab, in a room and from a
room's save to the bits of the whole run; the inference kit writes the page's text in three engines
without a network."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect

from daisychain.cli import open_oracle
from daisychain.data.byte_pairs import BytePairs
from daisychain.export.archive import MAX_OPENED_BYTES
from daisychain.export.checkpoint import Checkpoint, read_archive
from daisychain.generate import Sampling, generate
from tests.browser.engines import run_firefox, run_webkit
from tests.browser.kit_page import TOKENS, open_offline, written, written_by_kit
from tests.data.reference import run_apart

BOOT_TIMEOUT_MS = 120_000
RUN_TIMEOUT_MS = 180_000
STEPS, PAUSED = 40, 20
LINK = (
    f"?start=solo&width=16&heads=2&layers=1&hidden=32&context=16&batch=2&steps={STEPS}"
    "&seed=5&player=wasm&eval_every=0&sample_every=20&save_every=10"
)
PROMPT = "The sea"


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    made = chromium.new_context()
    yield made
    made.close()


def wait_for(page: Page, condition: str) -> None:
    page.wait_for_function(
        f"() => {{ const state = daisychain.state();"
        f" if (state.phase === 'error') throw new Error(state.error); return {condition}; }}",
        timeout=RUN_TIMEOUT_MS,
    )


def pause_when(page: Page, condition: str) -> None:
    """Taps Pause in the page itself: a tap from outside may come when the last step is done."""
    tap = "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Pause').click()"
    wait_for(page, f"({condition}) && ({tap}, true)")


def finish(page: Page) -> list[str]:
    """The hashes of the weights before each step and after the last."""
    wait_for(page, f"state.phase === 'idle' && state.step === {STEPS}")
    records = [r for r in page.evaluate("daisychain.log()") if "loss" in r]
    assert [r["step"] for r in records] == list(range(1, STEPS + 1))
    return [*(r["hash"] for r in records), page.evaluate("daisychain.state().weights_hash")]


def crash(page: Page) -> None:
    """Ends the tab as the system does when it is out of memory."""
    with contextlib.suppress(Error):  # the renderer dies
        page.goto("chrome://crash", timeout=5_000)
    page.close()


def download(page: Page, button: str, folder: Path) -> Path:
    with page.expect_download() as started:
        page.get_by_role("button", name=button).click()
    path = folder / started.value.suggested_filename
    started.value.save_as(path)
    return path


def greedy_text(page: Page) -> list[int]:
    """Tokens that the page writes after PROMPT."""
    if not page.get_by_label("Temperature").is_visible():
        page.get_by_text("How it chooses").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Tokens", exact=True).fill(str(TOKENS))
    page.get_by_label("Prompt").fill(PROMPT)
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".texts .actions")).to_contain_text(f"{TOKENS} tokens", timeout=30_000)
    expect(page.get_by_role("button", name="Write", exact=True)).to_be_visible()
    pieces: list[str] = page.locator(".written [data-token]").evaluate_all(
        "spans => spans.map((span) => span.dataset.token)"
    )
    return [int(piece) for piece in pieces]


async def oracle_text(checkpoint: Checkpoint) -> list[int]:
    player = await open_oracle(checkpoint)
    config = checkpoint.config
    prompt = [checkpoint.separator[0], *BytePairs(checkpoint.tokenizer).encode(PROMPT)]
    choices = generate(player, config.context, config.vocabulary, prompt, TOKENS, Sampling())
    return [choice.token async for choice in choices]


def test_the_files_of_a_run_go_on_to_the_same_bits_and_write_the_same_text(
    chromium: Browser, context: BrowserContext, server: str, tmp_path: Path
) -> None:
    page = context.new_page()
    page.goto(server + LINK, timeout=BOOT_TIMEOUT_MS)
    page.wait_for_function("window.daisychain?.log().length", timeout=BOOT_TIMEOUT_MS)
    whole = finish(page)
    assert len(set(whole)) == STEPS + 1
    samples = [r for r in page.evaluate("daisychain.log()") if "sample" in r]
    assert [record["step"] for record in samples] == [20, 40]

    page.get_by_role("button", name="New run").click()
    page.get_by_role("button", name="Train solo").click()
    pause_when(page, f"state.step >= {PAUSED}")
    wait_for(page, "state.phase === 'pause' && state.saved_step === state.step")
    step = page.evaluate("daisychain.state().step")
    assert PAUSED <= step < STEPS
    path = download(page, "Download checkpoint", tmp_path)
    checkpoint = run_apart(read_archive(path.read_bytes()))
    assert checkpoint.run is not None
    assert checkpoint.run.step == step
    tokens = greedy_text(page)
    assert tokens == run_apart(oracle_text(checkpoint))
    kit = download(page, "Download inference kit", tmp_path).as_uri()
    with open_offline(chromium, kit) as kit_page:
        answers = [written(kit_page, PROMPT)]
    ask = written_by_kit(PROMPT)
    answers += [json.loads(run(kit, ask)) for run in (run_firefox, run_webkit)]
    for found in answers:
        assert found["tokens"] == tokens
        assert found["checked"].startswith("Checked")
        assert found["requests"] == []
    page.get_by_role("button", name="Resume").click()
    crash(page)

    page = context.new_page()
    page.goto(server + LINK, timeout=BOOT_TIMEOUT_MS)
    button = page.get_by_role("button", name="Go on from step")
    expect(button).to_be_visible(timeout=BOOT_TIMEOUT_MS)
    assert page.evaluate("daisychain.log()") == []
    button.click()
    assert finish(page) == whole

    page.get_by_role("button", name="New run").click()
    page.locator("input[type=file][accept='.zip']").set_input_files(path)
    expect(page.get_by_text(f"{path.name}: nano, step {step} of {STEPS}.")).to_be_visible()
    page.get_by_role("button", name="Go on in a room").click()
    pause_when(page, f"state.step > {step}")
    wait_for(page, "state.phase === 'pause' && state.saved_step === state.step")
    (tmp_path / "room").mkdir()
    of_room = download(page, "Download checkpoint", tmp_path / "room")
    run = run_apart(read_archive(of_room.read_bytes())).run
    assert run is not None
    assert step < run.step == run.slices < STEPS
    crash(page)

    page = context.new_page()
    page.goto(server + LINK, timeout=BOOT_TIMEOUT_MS)
    button = page.get_by_role("button", name=f"Go on in a room from step {run.step}")
    expect(button).to_be_visible(timeout=BOOT_TIMEOUT_MS)
    button.click()
    wait_for(page, f"state.saved_step === {STEPS}")
    assert finish(page) == whole
    assert page.evaluate("daisychain.state().room.stage") == "inside"
    page.get_by_role("button", name="New run").click()
    text = page.get_by_text("Open a checkpoint")
    expect(text).to_be_visible()
    spoilt = tmp_path / "spoilt.zip"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    spoilt.write_bytes(data)
    with spoilt.with_suffix(".html").open("wb") as file:
        file.write(b"<!doctype html>")
        file.truncate(MAX_OPENED_BYTES + 1)  # sparse: it is not read to its end
    for bad, words in (
        (spoilt, "The archive is damaged"),
        (spoilt.with_suffix(".html"), "perhaps an inference kit"),
    ):
        page.locator("input[type=file][accept='.zip']").set_input_files(bad)
        expect(page.get_by_text(words)).to_be_visible()
    assert page.evaluate("daisychain.state().phase") == "idle"


def test_firefox_keeps_saves_too(server: str) -> None:
    link = LINK.replace(f"steps={STEPS}", "steps=6").replace("save_every=10", "save_every=3")
    ended = """(() => {
      const state = window.daisychain?.state();
      const over = ["idle", "error"].includes(state?.phase) && daisychain.log().length;
      return over && state;
    })()"""
    state = run_firefox(server + link, ended, timeout_s=90)
    assert (state["error"], state["notices"]) == (None, [])
    assert (state["step"], state["saved_step"]) == (6, 6)
