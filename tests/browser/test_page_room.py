"""Rooms in Chromium over a scripted session: looks, keyboard, codes, camera, files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.page_driver import ScriptedPage
from tests.browser.test_page_run import LAPTOP, PHONE, overflow

CODE = "K7QD-M2XP-9RTW-4HBN"
READ_QR = """async () => {
  const image = document.querySelector(".invitation .qr");
  await image.decode();
  const side = 400;
  const canvas = new OffscreenCanvas(side, side);
  canvas.getContext("2d").drawImage(image, 0, 0, side, side);
  const { readQr } = await import("./js/qr.js");
  return readQr(canvas, side, side);
}"""


def context_of(chromium: Browser, viewport: dict[str, int]) -> BrowserContext:
    """A phone or a laptop; it may use the clipboard."""
    phone = viewport is PHONE
    return chromium.new_context(
        viewport=viewport,
        has_touch=phone,
        is_mobile=phone,
        permissions=["clipboard-read", "clipboard-write"],
    )


@pytest.fixture
def phone(chromium: Browser) -> Iterator[Page]:
    """A page as small as a phone's."""
    context = context_of(chromium, PHONE)
    yield context.new_page()
    context.close()


def began(shown: ScriptedPage) -> None:
    """The page has asked for its session."""
    shown.page.wait_for_function("steer('bool(sessions and sessions[-1]._listeners)') === 'true'")


def open_room(shown: ScriptedPage) -> None:
    """The host's room is open and trains."""
    began(shown)
    shown.steer("session.enter('inside')")
    shown.steer("session.go('train')")


def nameless(page: Page) -> list[str]:
    """Controls and pictures that a screen reader could not call anything."""
    found: list[str] = page.evaluate(
        """[...document.querySelectorAll("button, input, textarea, a, img, video")]
           .filter((e) => e.checkVisibility())
           .filter((e) => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel)
           .filter((e) => e.getAttribute("alt") === null)
           .map((e) => e.outerHTML)"""
    )
    return found


@pytest.mark.parametrize("viewport", [PHONE, LAPTOP], ids=["phone", "laptop"])
def test_a_host_from_the_tap_to_the_halt(
    chromium: Browser, server: str, viewport: dict[str, int]
) -> None:
    screen = context_of(chromium, viewport).new_page()
    shown = ScriptedPage(screen, server, "?preset=tiny")
    assert overflow(screen) == 0
    screen.get_by_role("button", name="Start a room").click()
    open_room(shown)
    code = screen.get_by_role("img", name="Code of the room").inner_text().split()
    assert screen.url.endswith(f"?start=room&preset=tiny#room={'-'.join(code)}")
    link = f"{server}?start=join&preset=tiny#room={'-'.join(code)}"
    screen.wait_for_selector(".invitation .qr[src]")
    assert screen.evaluate(READ_QR) == link
    screen.get_by_role("button", name="Copy the link").click()
    expect(screen.get_by_text("Link copied")).to_be_visible()
    assert screen.evaluate("navigator.clipboard.readText()") == link
    shown.steer("session.knock(PHONE)")
    knock = screen.get_by_role("button", name="Accept Zoë's phone")
    expect(knock).to_be_in_viewport()
    assert overflow(screen) == 0
    knock.focus()
    shown.steer("session.knock(TABLET)")
    expect(screen.get_by_role("button", name="Refuse <b>Tablet</b>")).to_be_visible()
    expect(knock).to_be_focused()
    screen.keyboard.press("Enter")
    expect(screen.get_by_role("row", name="Zoë's phone")).to_be_visible()
    screen.get_by_label("Let everybody in who has the code").check()
    expect(screen.get_by_role("row", name="<b>Tablet</b>")).to_be_visible()
    expect(screen.get_by_text("without being asked")).to_be_visible()
    shown.steer("session.knock(OLD)")
    shown.steer("session.play(60)")
    expect(screen.get_by_text("4 devices")).to_be_visible()
    expect(screen.get_by_role("cell", name="direct, 4 ms")).to_be_visible()
    assert overflow(screen) == 0
    screen.get_by_role("button", name="Remove <b>Tablet</b>").click()
    screen.get_by_text("Remove for good?").click()
    expect(screen.get_by_text("3 devices")).to_be_visible()
    shown.steer("session.halt('The weights of the old one differ in layers.0.gate after step 60.')")
    assert nameless(screen) == []
    alarm = screen.get_by_role("alert").filter(has_text="stopped on every device")
    expect(alarm).to_contain_text("layers.0.gate")
    assert overflow(screen) == 0
    assert shown.errors == []
    screen.context.close()


def test_a_member_by_a_typed_code(phone: Page, server: str) -> None:
    shown = ScriptedPage(phone, server)
    phone.get_by_role("button", name="Join a room").click()
    code = phone.get_by_label("Code of the room")
    expect(code).to_be_focused()
    phone.keyboard.type("k7qd m2x")
    phone.keyboard.press("Enter")
    expect(phone.get_by_role("alert")).to_contain_text("A room code has 10 to 64")
    expect(code).to_be_focused()
    assert overflow(phone) == 0
    phone.keyboard.press("End")
    phone.keyboard.type("p-9rtw-4hbn")
    phone.get_by_label("Name of this device").fill("Ann's phone")
    phone.get_by_role("button", name="Join", exact=True).click()
    began(shown)
    assert phone.url == f"{server}?start=join#room={CODE}"
    phone.wait_for_function("daisychain.state().room?.stage === 'looking'")
    expect(phone.get_by_role("status").filter(has_text="Looking for the room")).to_have_count(1)
    shown.steer("session.enter('knocking')")
    expect(phone.get_by_text("Waiting until the host lets this device in")).to_be_visible()
    shown.steer("session.others.append(PHONE)")
    open_room(shown)
    expect(phone.get_by_role("row", name="Ann's phone this device")).to_be_visible()
    expect(phone.get_by_role("button", name="Remove")).to_have_count(0)
    shown.steer("session.enter('removed')")
    expect(phone.get_by_role("alert")).to_contain_text("The host removed this device")
    assert overflow(phone) == 0
    phone.get_by_role("button", name="Leave").click()
    expect(phone.get_by_role("button", name="Join a room")).to_be_focused()
    assert phone.url == server
    assert shown.errors == []


def test_by_hand_where_there_is_no_relay(phone: Page, server: str) -> None:
    shown = ScriptedPage(phone, server, "?start=join&relay=none")
    phone.get_by_role("button", name="Pair by hand").click()
    began(shown)
    phone.get_by_label("Offer of the first device").fill(shown.steer("OFFER"))
    phone.get_by_role("button", name="Make the answer").click()
    assert nameless(phone) == []
    answer = phone.get_by_label("Answer", exact=True)
    expect(answer).to_have_value(shown.steer("ANSWER"))
    expect(phone.get_by_role("img", name="QR code: Answer")).to_be_visible()
    assert overflow(phone) == 0
    phone.get_by_role("button", name="Scan").click()
    expect(phone.get_by_text("Hold the picture before the camera.")).to_be_visible()
    phone.get_by_role("button", name="Stop the camera").click()
    assert shown.steer("camera.ended") == 1
    assert shown.errors == []


def test_a_file_of_ones_own_is_picked_and_dropped(page: Page, server: str) -> None:
    shown = ScriptedPage(page, server)
    page.get_by_role("radio", name="My file").check(force=True)
    expect(page.get_by_role("button", name="Train solo")).to_be_disabled()
    notes = {"name": "notes.md", "mimeType": "text/markdown", "buffer": b"# Notes\n" * 100}
    page.get_by_label("Choose a file").set_input_files([notes])
    expect(page.get_by_text("notes.md, 800 B")).to_be_visible()
    page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["one two three"], "other.txt"));
          const event = new DragEvent("drop", { dataTransfer: data, bubbles: true });
          document.querySelector(".welcome h1").dispatchEvent(event);
        }"""
    )
    expect(page.get_by_text("other.txt, 13 B")).to_be_visible()
    page.get_by_role("button", name="Train solo").click()
    began(shown)
    assert shown.steer("[session.file.name, session.file.bytes]") == ["other.txt", 13]
    assert shown.errors == []
