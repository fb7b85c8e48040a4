"""The page in Chromium over a scripted session: looks, keyboard, chart, log, links."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from daisychain.ui.log import ROWS_SHOWN
from tests.browser.page_driver import ScriptedPage

PHONE = {"width": 360, "height": 780}
LAPTOP = {"width": 1280, "height": 800}


@pytest.fixture
def phone(chromium: Browser) -> Iterator[Page]:
    """A page as small as a phone's."""
    context = chromium.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def booted(chromium: Browser, server: str) -> Iterator[ScriptedPage]:
    """One page for all tests of this module that can share it; it may use the clipboard."""
    context = chromium.new_context(
        viewport=LAPTOP, permissions=["clipboard-read", "clipboard-write"]
    )
    yield ScriptedPage(context.new_page(), server)
    context.close()


@pytest.fixture
def idle(booted: ScriptedPage) -> Iterator[ScriptedPage]:
    """The shared page before a run with the default settings; it must not have complained."""
    yield booted
    assert booted.errors == []
    booted.steer("session.stop()")
    booted.page.get_by_role("button", name="New run").click()
    booted.page.get_by_role("radio", name="nano").check(force=True)


def train(shown: ScriptedPage, steps: int) -> None:
    """Start a run in the shared page and train some steps."""
    runs = shown.steer("len(sessions)")
    shown.page.get_by_role("button", name="Train solo").click()
    shown.page.wait_for_function(f"steer('len(sessions)') == {runs + 1}")
    shown.steer("session.go('train')")
    shown.steer(f"session.play({steps})")
    expect(shown.page.locator(".legend")).to_contain_text(f"step {steps:,}")


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the window; a phone's innerWidth grows with it."""
    width: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return width


def painted(page: Page) -> int:
    """How many pixels of the chart are not empty."""
    count: int = page.evaluate(
        """() => {
          const canvas = document.querySelector(".plot canvas");
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          let count = 0;
          for (let i = 3; i < data.length; i += 4) count += data[i] > 0;
          return count;
        }"""
    )
    return count


def test_a_phone_in_every_state(phone: Page, server: str) -> None:
    shown = ScriptedPage(phone, server)
    start = phone.get_by_role("button", name="Train solo")
    expect(start).to_be_in_viewport()
    assert overflow(phone) == 0
    phone.get_by_text("All settings").tap()
    phone.get_by_label("Heads", exact=True).fill("5")
    phone.get_by_label("Layers").focus()
    expect(phone.get_by_text("The width 64 is not divisible by 5 heads.")).to_be_visible()
    expect(start).to_be_disabled()
    assert overflow(phone) == 0
    phone.get_by_label("Heads", exact=True).fill("4")
    phone.get_by_label("Layers").focus()
    start.tap()
    expect(phone.get_by_text("Reading and tokenizing the text")).to_be_visible()
    assert overflow(phone) == 0
    shown.steer("session.go('train')")
    shown.steer("session.play(500)")
    expect(phone.get_by_text("of 1,000")).to_be_visible()
    expect(phone.get_by_role("button", name="Pause")).to_be_in_viewport()
    assert overflow(phone) == 0
    phone.get_by_role("button", name="Pause").tap()
    expect(phone.get_by_role("button", name="Resume")).to_be_in_viewport()
    shown.steer("session.fail(MemoryError('of every kind ' + 'x' * 200))")
    expect(phone.get_by_role("alert").filter(has_text="MemoryError")).to_be_visible()
    assert overflow(phone) == 0
    assert shown.errors == []


def test_keyboard_alone_is_enough(idle: ScriptedPage) -> None:
    page = idle.page
    page.get_by_role("link", name="DaisyChain").focus()
    page.keyboard.press("Tab")
    ways = [page.get_by_role("button", name=name) for name in ("Train solo", "Start a", "Join a")]
    for way in ways:
        expect(way).to_be_focused()
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="tiny 2.92 M")).to_be_checked()
    assert "preset=tiny" in page.url
    for _ in ways:
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("daisychain.state().phase === 'data'")
    idle.steer("session.go('train')")
    idle.steer("session.play(30)")
    page.get_by_role("img", name="Loss over 30 steps").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".legend")).to_contain_text("step 29")


def test_everything_has_a_name_for_screen_readers(idle: ScriptedPage) -> None:
    page = idle.page
    train(idle, 60)
    nameless = page.evaluate(
        """[...document.querySelectorAll("button, input, a, progress, [role=progressbar]")]
           .filter((e) => e.checkVisibility())
           .filter((e) => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel)
           .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    expect(page.get_by_role("status").filter(has_text="Training")).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(page.get_by_role("progressbar", name="Step 60 of 1,000")).to_be_visible()
    expect(page.get_by_role("region", name="Log")).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "en"


def test_chart_draws_zooms_and_changes_its_unit(idle: ScriptedPage) -> None:
    page = idle.page
    train(idle, 400)
    assert painted(page) > 500
    legend = page.locator(".legend")
    before = legend.inner_text()
    page.get_by_text("bits a byte", exact=True).click()
    assert legend.inner_text() != before
    page.get_by_text("nats a token", exact=True).last.click()
    assert legend.inner_text() == before
    area = page.locator(".plot .u-over").bounding_box()
    assert area is not None
    middle = area["y"] + area["height"] / 2
    page.mouse.move(area["x"] + area["width"] * 0.25, middle)
    expect(legend).not_to_contain_text("step 400")
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.5, middle, steps=4)
    page.mouse.up()
    reset = page.get_by_role("button", name="Reset zoom")
    expect(reset).to_be_visible()
    idle.steer("session.play(5)")
    expect(page.get_by_text("405", exact=True).first).to_be_visible()
    expect(reset).to_be_visible()
    reset.click()
    expect(reset).to_be_hidden()
    page.get_by_role("radio", name="100", exact=True).check(force=True)
    page.get_by_role("radio", name="All", exact=True).check(force=True)


def test_a_window_that_gets_narrower(idle: ScriptedPage) -> None:
    page = idle.page
    train(idle, 60)
    page.set_viewport_size(PHONE)
    page.wait_for_function("document.querySelector('.plot canvas').clientWidth <= innerWidth - 40")
    assert overflow(page) == 0
    page.set_viewport_size(LAPTOP)
    page.wait_for_function("document.querySelector('.plot canvas').clientWidth > 600")


def test_ten_thousand_steps_stay_cheap(idle: ScriptedPage) -> None:
    page = idle.page
    train(idle, 500)
    elements = page.evaluate("document.querySelectorAll('*').length")
    writes = idle.steer("dom.writes")
    draws = 19
    for _ in range(draws):
        idle.steer("session.play(500, told=False)")
    expect(page.locator(".legend")).to_contain_text("step 10,000")
    assert idle.steer("dom.writes") - writes <= 60 * draws
    assert page.evaluate("document.querySelectorAll('*').length") - elements < 20
    assert page.locator(".log tbody tr").count() == ROWS_SHOWN
    assert page.evaluate("daisychain.log().length") == 10_000
    assert idle.state()["step"] == 10_000


def test_log_is_copied_and_downloaded(idle: ScriptedPage) -> None:
    page = idle.page
    train(idle, 250)
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_text("250 lines copied")).to_be_visible()
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert [json.loads(line) for line in lines] == page.evaluate("daisychain.log()")
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 251))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download", exact=True).click()
    assert download.value.suggested_filename == "daisychain-nano-seed1.jsonl"
    assert download.value.path().read_text().splitlines() == lines


def test_light_and_dark(idle: ScriptedPage) -> None:
    page = idle.page
    train(idle, 5)
    paper = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(paper) != light


def test_without_the_plotting_library_training_goes_on(page: Page, server: str) -> None:
    page.route("**/js/chart.js", lambda route: route.abort())
    shown = ScriptedPage(page, server, "?start=solo")
    expect(page.get_by_text("The loss curve could not be loaded")).to_be_visible()
    shown.steer("session.go('train')")
    shown.steer("session.play(30)")
    expect(page.locator(".log tbody tr").first).to_contain_text("30")
