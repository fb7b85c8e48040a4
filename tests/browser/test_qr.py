"""QR codes: what the page draws, the page reads, from a picture and from a camera."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Playwright

from tests.browser.engines import launch_chromium
from tests.browser.pyodide_page import PyodidePage, PyodideSite

pytestmark = pytest.mark.browser

LINK = "https://example.org/daisychain/?start=join#room=K7QD-M2XP-9RTW-4HBN"
DRAW = """async ([svg, size]) => {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([svg], {type: "image/svg+xml"}));
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), {width: size, height: size});
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, size, size);
  context.drawImage(image, 20, 20, size - 40, size - 40);
  return [...context.getImageData(0, 0, size, size).data.filter((_, i) => i % 4 === 1)];
}"""
READ = """async ([pixels, size]) => {
  const {readQr} = await import("/js/qr.js");
  const rgba = new Uint8ClampedArray(4 * size * size).fill(255);
  pixels.forEach((value, i) => rgba.fill(value, 4 * i, 4 * i + 3));
  const picture = await createImageBitmap(new ImageData(rgba, size, size));
  return readQr(picture, size, size);
}"""
SCAN = """async () => {
  const {scanQr} = await import("/js/qr.js");
  const video = document.body.appendChild(document.createElement("video"));
  return new Promise((resolve, reject) => {
    scanQr(video, (text) => { resolve([text, video.srcObject !== null]); return true; })
      .catch((error) => reject(error));
  });
}"""
SIZE = 256


@pytest.fixture(scope="module")
def pixels(data_page: PyodidePage) -> list[int]:
    """Grey values of the picture that Python in the page draws."""
    svg = data_page.run("from daisychain.platform.qr import qr_svg\nawait qr_svg(text)", text=LINK)
    assert svg.startswith("<svg")
    values: list[int] = data_page.page.evaluate(DRAW, [svg, SIZE])
    return values


def test_drawn_code_is_read_again(data_page: PyodidePage, pixels: list[int]) -> None:
    assert data_page.page.evaluate(READ, [pixels, SIZE]) == LINK
    assert data_page.page.evaluate(READ, [[255] * SIZE * SIZE, SIZE]) == ""


def test_camera_finds_the_code_and_is_switched_off(
    playwright_driver: Playwright, pyodide_site: PyodideSite, pixels: list[int], tmp_path: Path
) -> None:
    film = tmp_path / "camera.y4m"
    grey = b"\x80" * (SIZE * SIZE // 4)
    frame = b"FRAME\n" + bytes(pixels) + grey + grey
    film.write_bytes(f"YUV4MPEG2 W{SIZE} H{SIZE} F10:1 Ip A1:1 C420\n".encode() + frame * 3)
    browser = launch_chromium(
        playwright_driver,
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-video-capture={film}",
    )
    try:
        page = browser.new_page()
        page.goto(pyodide_site.url + "js/qr.js")  # any page of the same origin
        assert page.evaluate(SCAN) == [LINK, True]
        page.wait_for_function("document.querySelector('video').srcObject === null")
    finally:
        browser.close()


def test_refused_camera_is_said_in_words(data_page: PyodidePage) -> None:
    sentence = data_page.run(
        "import js\n"
        "from daisychain.errors import DeviceError\n"
        "from daisychain.platform.qr import scan_qr\n"
        "try:\n"
        "    await scan_qr(js.document.createElement('video'), lambda text: True)\n"
        "except DeviceError as error:\n"
        "    said = str(error)\n"
        "said"
    )
    assert "camera" in sentence
    assert "type the code" in sentence
