"""The settings of the way between devices, in real pages: from the form to a relayed link."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, Locator, Page, Playwright, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.browser.engines import launch_chromium
from tests.browser.page_driver import ScriptedPage
from tests.browser.test_page_room import context_of, nameless
from tests.browser.test_page_run import LAPTOP, PHONE, overflow
from tests.cluster.coturn import coturn

USER, PASSWORD = "dc", "secret"
RUN = "preset=nano&batch=1&context=8&steps=1000&player=wasm&eval_every=0&sample_every=0&approve=all"
TRAINS_TIMEOUT_MS = 120_000
LINK = "daisychain.state().members?.find((row) => !row.me)?.link"
COMMON = "daisychain.log().filter((record) => record.members?.length === 2).length >= 2"

ACCEPTED_BY_BROWSERS = """urls => {
  const configuration = { iceServers: [{ urls, username: "u", credential: "p" }] };
  new RTCPeerConnection(configuration).close();
  return true;
}"""


class Device:
    """A browser's page and everything that it said."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.page: Page = browser.new_context().new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.said.append(request.url))
        self.page.goto(address)

    def told(self) -> str:
        """Whatever scripts, links and logs may show of this page."""
        told = self.page.evaluate("[daisychain.state(), daisychain.log(), location.href]")
        return json.dumps([told, self.said])


@pytest.fixture
def browsers(playwright_driver: Playwright) -> Iterator[list[Browser]]:
    """A browser process for each device."""
    with ExitStack() as stack:
        started = [launch_chromium(playwright_driver) for _ in range(2)]
        for browser in started:
            stack.callback(browser.close)
        yield started


def relay_fields(page: Page) -> Locator:
    """The one fieldset of a TURN relay that is shown now."""
    shown = page.get_by_role("group", name="TURN relay").locator("visible=true")
    expect(shown).to_have_count(1)
    return shown


def enter_relay(page: Page, fold: str, address: str) -> None:
    """Types a TURN relay into the form and allows no other way."""
    page.get_by_text(fold, exact=True).click()
    relay = relay_fields(page)
    relay.get_by_label("Address", exact=True).fill(address)
    relay.get_by_label("User name").fill(USER)
    relay.get_by_label("Password").fill(PASSWORD)
    relay.get_by_label("Password").press("Tab")
    expect(relay.get_by_text("Kept.")).to_be_visible()
    relay.get_by_label("Connect through it alone").check()


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_from_the_form_to_a_relayed_link(browsers: list[Browser], server: str) -> None:
    with coturn() as address:
        host = Device(browsers[0], f"{server}?{RUN}")
        enter_relay(host.page, "All settings", address)
        host.page.get_by_role("button", name="Start a room").click()
        code = host.page.get_by_role("img", name="Code of the room").inner_text()
        guest = Device(browsers[1], f"{server}?player=wasm")
        guest.page.get_by_role("button", name="Join a room").click()
        enter_relay(guest.page, "When devices cannot connect", address)
        guest.page.get_by_label("Code of the room").fill(code)
        guest.page.get_by_role("button", name="Join", exact=True).click()
        for device in (host, guest):
            device.page.wait_for_function(f"{LINK} === 'relayed'", timeout=TRAINS_TIMEOUT_MS)
            device.page.wait_for_function(COMMON, timeout=TRAINS_TIMEOUT_MS)
            assert PASSWORD not in device.told()
            assert f"{USER}:" not in device.told()
            assert address not in device.told()
            kept = device.page.evaluate("Object.entries(localStorage)")
            assert [name for name, text in kept if PASSWORD in text] == ["daisychain.turn"]
        # It is still there after a reload, and used: with the relay gone nobody is reached.
    guest.page.reload()
    guest.page.wait_for_function("window.daisychain?.state().room?.stage === 'looking'")
    with pytest.raises(PlaywrightTimeout):
        guest.page.wait_for_function(f"{LINK} === 'direct'", timeout=6_000)


@pytest.mark.parametrize("viewport", [PHONE, LAPTOP], ids=["phone", "laptop"])
def test_the_fields_on_a_phone_and_a_laptop(
    chromium: Browser, server: str, viewport: dict[str, int]
) -> None:
    screen = context_of(chromium, viewport).new_page()
    shown = ScriptedPage(screen, server)
    expect(screen.get_by_label("STUN servers")).to_be_hidden()
    enter_relay(screen, "All settings", "turn:relay.example:3478")
    screen.get_by_label("STUN servers").fill("stun:h:70000")
    screen.get_by_label("STUN servers").press("Tab")
    expect(screen.get_by_role("alert").filter(has_text="STUN server must be none")).to_be_visible()
    screen.get_by_label("STUN servers").fill("stun:stun.example:3478")
    screen.get_by_label("STUN servers").press("Tab")
    assert screen.url == f"{server}?stun=stun:stun.example:3478"
    assert nameless(screen) == []
    assert overflow(screen) == 0
    screen.get_by_role("button", name="Join a room").click()
    screen.get_by_text("When devices cannot connect").click()
    relay = relay_fields(screen)
    expect(relay.get_by_label("User name")).to_have_value(USER)
    relay.get_by_label("Address", exact=True).fill("turn:somebody@relay.example")
    relay.get_by_label("Address", exact=True).press("Tab")
    expect(relay.get_by_role("alert")).to_contain_text("must be turn:host:port")
    expect(relay.get_by_text("What was kept before stays in use.")).to_be_visible()
    assert nameless(screen) == []
    assert overflow(screen) == 0
    assert shown.errors == []
    screen.context.close()


def test_browsers_take_every_address_that_is_not_refused(page: Page, server: str) -> None:
    page.goto(server, wait_until="commit")
    for address in (
        "stun:stun.example",
        "stuns:a-b.example:65535",
        "stun:[::1]:1",
        "stun:[2001:db8::1]",
        "turn:1.2.3.4:3478?transport=tcp",
        f"turns:{'a' * 63}.example:5349?transport=udp",
        "turn:xn--bcher-kva.example",
        "turn:0x7f.example",
        "turn:localhost",
    ):
        assert page.evaluate(ACCEPTED_BY_BROWSERS, address)
