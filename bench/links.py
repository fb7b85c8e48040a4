"""How near do our links come to a bare data channel?  Two Chromium processes on this machine.

Prints MB/s (median and best of the rounds) for a bare RTCDataChannel and for ``Mesh.send_bulk``
filled to the same marks, and the longest time that a page was kept from other work by a transfer.

    .venv/bin/python -m bench.links [MEGABYTES] [ROUNDS]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from playwright.sync_api import Page, sync_playwright

from tests.browser.engines import launch_chromium
from tests.browser.mesh_pages import MeshPage
from tests.browser.pyodide_page import fresh_site, open_page

SHOW_ADDRESSES = "--disable-features=WebRtcHideLocalIpsWithMdns"
"""The bare channel has no help against addresses that only multicast DNS resolves."""

BARE = """
window.bare = {
  async make() {
    this.connection = new RTCPeerConnection({ iceServers: [] });
    this.channel = this.connection.createDataChannel("bare", { negotiated: true, id: 0 });
    this.channel.binaryType = "arraybuffer";
    this.channel.bufferedAmountLowThreshold = 1 << 18;
    this.channel.onmessage = ({ data }) => {
      this.left -= data.byteLength;
      if (this.left <= 0) this.end = Date.now();
    };
  },
  async described() {
    await new Promise((resolve) => {
      this.connection.onicecandidate = ({ candidate }) => candidate ?? resolve();
      setTimeout(resolve, 3000);
    });
    return this.connection.localDescription.toJSON();
  },
  async offer() {
    await this.make();
    await this.connection.setLocalDescription(await this.connection.createOffer());
    return this.described();
  },
  async answer(offer) {
    await this.make();
    await this.connection.setRemoteDescription(offer);
    await this.connection.setLocalDescription(await this.connection.createAnswer());
    return this.described();
  },
  async send(total) {
    const begin = Date.now();
    const frame = new Uint8Array(65536);
    for (let sent = 0; sent < total; sent += frame.length) {
      if (this.channel.bufferedAmount >= 1 << 20) {
        await new Promise((resolve) => { this.channel.onbufferedamountlow = resolve; });
      }
      this.channel.send(frame);
    }
    return begin;
  },
};
window.watch = () => {
  const turns = new MessageChannel();
  let last = performance.now();
  window.longest = 0;
  turns.port1.onmessage = () => {
    const now = performance.now();
    window.longest = Math.max(window.longest, now - last);
    last = now;
    setTimeout(() => { last = performance.now(); turns.port2.postMessage(0); }, 1);
  };
  turns.port2.postMessage(0);
};
"""
SETTINGS = "approve_all=True, links=LinkSettings(max_connections=1)"


def bare_transfer(sender: Page, receiver: Page, total: int) -> float:
    """Milliseconds for ``total`` bytes over the bare channel."""
    receiver.evaluate("total => { bare.left = total; bare.end = 0; }", total)
    begin = sender.evaluate("total => bare.send(total)", total)
    receiver.wait_for_function("bare.end > 0", polling=5)
    return float(receiver.evaluate("bare.end") - begin)


def mesh_transfer(sender: MeshPage, receiver: MeshPage, ids: tuple[str, str], total: int) -> float:
    """Milliseconds for one flow of ``total`` bytes over the mesh."""
    await_flow = "events.clear()\nmesh.bulk.expect(peer, [header(size)])"
    receiver.run(await_flow, peer=ids[0], size=total)
    begin = sender.run(
        "import js\nbegin = js.Date.now()\nawait mesh.send_bulk(peer, header(size), data)\nbegin",
        peer=ids[1],
        size=total,
    )
    end = receiver.run("import js\nawait until(lambda: seen(Bulk))\njs.Date.now()")
    return float(end - begin)


def speeds(transfer: Callable[[], float], total: int, rounds: int) -> str:
    """Median and best MB/s."""
    transfer()  # the first one on a fresh channel is slow
    found = [total / 1000.0 / transfer() for _ in range(rounds)]
    return f"{statistics.median(found):8.1f} {max(found):8.1f}"


def longest_pause_ms(host: MeshPage, guest: MeshPage, ids: tuple[str, str], total: int) -> float:
    """Longest time that a page was kept from other work by a transfer, nothing else running."""
    guest.run("events.clear()\nmesh.bulk.expect(peer, [header(size)])", peer=ids[0], size=total)
    host.run("head = header(size)", size=total)
    pages = [host.page.page, guest.page.page]
    for page in pages:
        page.evaluate("watch()")
    host.page.start("await mesh.send_bulk(peer, head, data)", peer=ids[1])
    time.sleep(total / 1e6)
    longest_ms = max(float(page.evaluate("longest")) for page in pages)
    guest.until("seen(Bulk)")
    return longest_ms


def main(megabytes: int, rounds: int) -> None:
    """Print the table."""
    total = megabytes << 20
    with fresh_site() as site, sync_playwright() as driver:
        browsers = [launch_chromium(driver, SHOW_ADDRESSES) for _ in range(2)]
        with open_page(browsers[0], site) as one, open_page(browsers[1], site) as two:
            pages = [one.page, two.page]
            for page in pages:
                page.evaluate(BARE)
            offer = one.page.evaluate("bare.offer()")
            answer = two.page.evaluate("offer => bare.answer(offer)", offer)
            one.page.evaluate("answer => bare.connection.setRemoteDescription(answer)", answer)
            one.page.wait_for_function("bare.channel.readyState === 'open'")
            host, guest = MeshPage(one), MeshPage(two)
            ids = (
                host.open_room("one", settings=SETTINGS),
                guest.join_room("two", settings=SETTINGS),
            )
            host.until_linked(ids[1])
            guest.until_linked(ids[0])
            host.run("data = noise(size, 1)", size=total)
            print(f"{megabytes} MiB, {rounds} rounds      median     best")
            bare = speeds(lambda: bare_transfer(one.page, two.page, total), total, rounds)
            print(f"bare channel      MB/s {bare}")
            mesh = speeds(lambda: mesh_transfer(host, guest, ids, total), total, rounds)
            print(f"Mesh.send_bulk    MB/s {mesh}")
            pauses = [longest_pause_ms(host, guest, ids, total) for _ in range(3)]
            print(f"longest pause of a page, ms: {', '.join(f'{pause:.0f}' for pause in pauses)}")
        for browser in browsers:
            browser.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in [*sys.argv[1:], *("8", "9")[len(sys.argv) - 1 :]]))
