"""What does a step in a room cost beside a bare data channel?  Chromium processes on this machine.

Two devices train a preset (int8) on WebAssembly; then a third one comes in.  Printed: bytes a step,
the exchange's time beside the time in which a bare RTCDataChannel carries the same bytes (both ways
at once, nobody training), the time from the first link to the first common step, and what the third
device's coming cost the others: steps by the clock, time with no step under way, and steps by the
processor time of the others' browsers.  The clock counts what the third browser itself takes of a
processor that all share, which a device of its own would not; processor time does not.  Beside
these stands what the bytes alone cost: before, the third page fetched as many bytes as a state has
from one of the two over a bare channel, while they trained.

    .venv/bin/python -m bench.rooms [PRESET] [STEPS]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from bench.links import BARE, SHOW_ADDRESSES
from tests.browser.engines import launch_chromium
from tests.browser.pyodide_page import PyodidePage, fresh_site, open_page

CODE = "ABCDEFGHJKMNPQRS"
LONG = 100_000
PATIENCE_S = 400
ROUNDS = 5

START = """
import asyncio
from js import Date
from daisychain.cluster import effects, lobby, mesh_events
from daisychain.data import open_source
from daisychain.platform.exchange_worker import open_exchange
from daisychain.players.choice import open_player
from daisychain.room.session import RoomSession
from daisychain.settings import resolve

times = []
TOLD = (mesh_events.LinkUp, lobby.Admitted, effects.Log, effects.ModeChanged, effects.Notice)

def tell(what):
    if isinstance(what, TOLD):
        detail = getattr(what, "roster", None) or getattr(what, "text", "")
        times.append([type(what).__name__, Date.now(), getattr(what, "step", 0), detail])

class Timed(RoomSession):
    def _mesh_event(self, event):
        tell(event)
        super()._mesh_event(event)

    def _effect(self, effect):
        tell(effect)
        super()._effect(effect)

    def _enter(self, phase):
        times.append([f"phase {phase}", Date.now(), 0, ""])
        super()._enter(phase)

async def source(settings, micro_batches, wait_for):
    return await open_source(
        settings.data, seed=settings.seed, context=settings.context, micro_batches=micro_batches
    )

settings = resolve(
    {"preset": preset, "player": "wasm", "eval_every": 0, "steps": steps}
)
session = Timed(
    settings, open_player, source, role=role, code=code, name=name,
    open_machine=open_exchange, approve_all=True,
)
run = asyncio.ensure_future(session.run())
None
"""


TASKS = "toplevel"
"""The trace category that has a page's tasks."""
LONG_TASK_US = 50_000


class Device:
    """One device in one page."""

    def __init__(self, page: PyodidePage, role: str, name: str, preset: str) -> None:
        self.page = page
        page.run(START, role=role, name=name, code=CODE, steps=LONG, preset=preset)

    def steps(self, members: int) -> list[dict[str, Any]]:
        """Records of the steps of so many members."""
        records = self.page.run("[r for r in session.log() if 'reduced_hash' in r]")
        return [record for record in records if len(record["members"]) == members]

    def times(self) -> list[list[Any]]:
        """What happened when: name, ms, step, detail."""
        return list(self.page.run("times"))


class ProcessorTime:
    """Processor time that some browsers have used, by the clock."""

    def __init__(self, browsers: list[Browser]) -> None:
        self._sessions = [browser.new_browser_cdp_session() for browser in browsers]
        self._samples: list[tuple[float, float]] = []
        self.sample()

    @property
    def begin_ms(self) -> float:
        """When the first sample was taken."""
        return self._samples[0][0]

    def sample(self) -> None:
        told = [session.send("SystemInfo.getProcessInfo") for session in self._sessions]
        used = sum(process["cpuTime"] for one in told for process in one["processInfo"])
        self._samples.append((1000 * time.time(), used))

    def used_s(self, begin: float, end: float) -> float:
        """Seconds between two times in ms, by straight lines between samples."""
        used = 0.0
        for (a, before), (b, after) in pairwise(self._samples):
            inside = min(b, end) - max(a, begin)
            used += (after - before) * max(0.0, inside) / (b - a)
        return used


def until(
    done: Callable[[], bool], *devices: Device, watching: ProcessorTime | None = None
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if watching is not None:
            watching.sample()
        if time.monotonic() > deadline:
            told = [device.page.run("[session.state(), times[-40:]]") for device in devices]
            raise SystemExit(f"the room did not get there in time: {told}")
        time.sleep(0.5)


def connect_bare(one: Page, two: Page) -> None:
    """A bare data channel between the pages."""
    for page in (one, two):
        page.evaluate(BARE)
    offer = one.evaluate("bare.offer()")
    answer = two.evaluate("offer => bare.answer(offer)", offer)
    one.evaluate("answer => bare.connection.setRemoteDescription(answer)", answer)
    one.wait_for_function("bare.channel.readyState === 'open'")


def both_ways_ms(one: Page, two: Page, total: int) -> float:
    """Milliseconds in which each page sends ``total`` bytes to the other."""
    for page in (one, two):
        page.evaluate("total => { bare.left = total; bare.end = 0; bare.begin = 0; }", total)
    for page in (one, two):
        page.evaluate(
            "total => { bare.send(total).then((begin) => { bare.begin = begin; }); }", total
        )
    for page in (one, two):
        page.wait_for_function("bare.end > 0 && bare.begin > 0", polling=5)
    begins, ends = (
        [float(page.evaluate(f"bare.{name}")) for page in (one, two)] for name in ("begin", "end")
    )
    return max(ends) - min(begins)


def median(values: list[float]) -> float:
    return float(statistics.median(values))


def first(times: list[list[Any]], name: str, roster: int = 0) -> float:
    """When something happened first, in ms; for a step, with so many members."""
    return next(t[1] for t in times if t[0] == name and (not roster or len(t[3]) == roster))


def report_exchange(one: Page, two: Page, device: Device, parameters: int) -> None:
    """Bytes and times of the steps of two, beside the bare channel.

    Whoever has computed first waits for the other's gradients, so its exchange has the difference
    of the two in it; that of the last to compute is what the exchange adds to a step.
    """
    records = device.steps(2)[1:]
    rows = [row for record in records for row in record["members"]]
    each_way = max(row["bytes"] for row in rows) / 2
    print(
        f"bytes a step, each way   {each_way / 1e6:.2f} MB, {each_way / parameters:.3f} a parameter"
    )
    raw = [both_ways_ms(one, two, int(each_way)) for _ in range(ROUNDS)][1:]
    compute = [max(row["compute_ms"] for row in r["members"]) for r in records]
    print(f"bare channel             {median(raw):.0f} ms (best {min(raw):.0f})")
    print(f"computing                {median(compute):.0f} ms (best {min(compute):.0f})")
    for whose, chosen in (("first", max), ("last", min)):
        times = [chosen(row["exchange_ms"] for row in r["members"]) for r in records]
        print(
            f"exchange, {whose + ' computed':<14} {median(times):.0f} ms (best {min(times):.0f}), "
            f"{median(times) / median(raw):.2f} of the bare channel"
        )


def report_start(host: Device, guest: Device) -> None:
    """From the first link to the first common step."""
    times = guest.times()
    link = first(times, "LinkUp")
    print(f"link to common step      {(first(times, 'Log', 2) - link) / 1000:.1f} s")
    for name, when, step, detail in times:
        if when >= link - 3000 and when <= first(times, "Log", 2):
            print(f"    {(when - link) / 1000:7.2f} s  {name} {step} {detail}")
    alone = [t for t in host.times() if t[0] == "Log" and len(t[3]) == 1]
    print(f"steps of the host alone  {len(alone)}")


def report_thread(browser: Browser, host: Device, guest: Device, steps: int) -> None:
    """How long the host's own thread was busy at a time, in steps in which nobody asks it anything:
    by the clock, in which it may wait for a processor, and by the time that it was given."""
    at = len(guest.steps(2))
    browser.start_tracing(page=host.page.page, categories=[TASKS])
    until(lambda: len(guest.steps(2)) >= at + steps, guest)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    named = [e for e in events if e.get("ph") == "M" and e["name"] == "thread_name"]
    main = {(e["pid"], e["tid"]) for e in named if e["args"]["name"] == "CrRendererMain"}
    tasks = [e for e in events if e["name"].endswith("RunTask") and (e["pid"], e["tid"]) in main]
    assert tasks, "the trace has no tasks"
    for label, key in (("clock", "dur"), ("processor", "tdur")):
        times = [e.get(key, 0) for e in tasks]
        above = sum(us > LONG_TASK_US for us in times)
        longest = max(times) / 1000
        print(f"tasks above 50 ms        {above} in {steps} steps by the {label}, {longest:.0f} ms")


def log_times(host: Device) -> list[float]:
    """When each step was logged."""
    return [t[1] for t in host.times() if t[0] == "Log"]


def steps_made(host: Device, begin: float, end: float) -> float:
    """The room's steps between two times, partial ones counted."""
    inside = [(min(b, end) - max(a, begin)) / (b - a) for a, b in pairwise(log_times(host))]
    return sum(part for part in inside if part > 0)


def steps_lost(host: Device, begin: float, end: float, usual_ms: float) -> str:
    """What became of the room's steps between two times."""
    made = steps_made(host, begin, end)
    lost = (end - begin) / usual_ms - made
    return f"{made:.1f} made, {lost:.1f} lost (usual {usual_ms:.0f} ms)"


def usual_step_ms(host: Device, before: float) -> float:
    """Median of the last steps that ended before a time."""
    return median([b - a for a, b in pairwise(log_times(host)) if b < before][-8:])


def report_bytes(host: Device, source: Page, third: Page, size: int, steps: int) -> None:
    """What the bytes of a state cost the two on a bare channel to the third page."""
    connect_bare(source, third)
    begin = float(third.evaluate("Date.now()"))
    usual = usual_step_ms(host, begin)
    third.evaluate("total => { bare.left = total; bare.end = 0; }", size)
    source.evaluate("total => { bare.send(total); }", size)
    third.wait_for_function("bare.end > 0", polling=200, timeout=1000 * PATIENCE_S)
    end = float(third.evaluate("bare.end"))
    until(lambda: log_times(host)[-1] > end, host)
    print(f"as many bare bytes       {size / 1e6:.0f} MB in {(end - begin) / 1000:.1f} s")
    print(f"steps of the others      {steps_lost(host, begin, end, usual)}")
    settled = len(host.steps(2)) + steps
    until(lambda: len(host.steps(2)) >= settled, host)


def report_third(host: Device, third: Device, others: ProcessorTime) -> None:
    """What the first two lost while the third came in: until their first common step began."""
    begin = first(third.times(), "LinkUp")
    end = first(third.times(), "Log", 3) - third.steps(3)[0]["ms"]
    usual = usual_step_ms(host, begin)
    print(f"third device came in     {(end - begin) / 1000:.1f} s after its link")
    print(f"steps of the others      {steps_lost(host, begin, end, usual)}")
    told = {t[2]: t[1] for t in host.times() if t[0] == "Log"}
    records = [r for r in host.steps(2) + host.steps(3) if r["step"] in told]
    before = [r for r in records if told[r["step"]] <= begin][-8:]
    meanwhile = [r for r in records if begin < told[r["step"]] <= end]
    for when, chosen in (("before", before), ("meanwhile", meanwhile)):
        compute, exchange = (
            median([max(row[name] for row in r["members"]) for r in chosen])
            for name in ("compute_ms", "exchange_ms")
        )
        step = median([r["ms"] for r in chosen])
        print(f"a step {when:<17} {step:.0f} ms, computing {compute:.0f}, exchange {exchange:.0f}")
    spans = [(told[r["step"]] - r["ms"], told[r["step"]]) for r in records]
    under_way = sum(max(0, min(b, end) - max(a, begin)) for a, b in spans)
    print(f"no step under way        {(end - begin - under_way) / usual:.1f} steps of it")
    since, until_ms = others.begin_ms, told[before[-1]["step"]]
    usual_s = others.used_s(since, until_ms) / steps_made(host, since, until_ms)
    extra_s = others.used_s(begin, end) - usual_s * steps_made(host, begin, end)
    print(
        f"processors of the others {usual_s:.1f} s a step before; the third device cost "
        f"{extra_s:.1f} s, {extra_s / usual_s:.1f} steps"
    )


def main(preset: str, steps: int) -> None:
    """Print the figures."""
    with fresh_site() as site, sync_playwright() as driver:
        browsers = [launch_chromium(driver, SHOW_ADDRESSES) for _ in range(3)]
        with (
            open_page(browsers[0], site) as one,
            open_page(browsers[1], site) as two,
            open_page(browsers[2], site) as three,
        ):
            host, guest = Device(one, "host", "one", preset), Device(two, "member", "two", preset)
            until(lambda: min(len(d.steps(2)) for d in (host, guest)) >= steps, host, guest)
            report_start(host, guest)
            report_thread(browsers[0], host, guest, steps)
            parameters = one.run("session.state()['parameters']")
            state_bytes = one.run("sum(session.host.run.replica.state_sizes())")
            report_bytes(host, two.page, three.page, state_bytes, steps)
            others = ProcessorTime(browsers[:2])
            settled = len(host.steps(2)) + steps
            until(lambda: len(host.steps(2)) >= settled, host, watching=others)
            third = Device(three, "member", "three", preset)
            until(lambda: len(third.steps(3)) >= 2, host, guest, third, watching=others)
            report_third(host, third, others)
            for page in (three, two, one):
                page.run("session.stop(); await run; None")
            connect_bare(one.page, two.page)
            report_exchange(one.page, two.page, host, parameters)
        for browser in browsers:
            browser.close()


if __name__ == "__main__":
    given = [*sys.argv[1:], *("small", "8")[len(sys.argv) - 1 :]]
    main(given[0], int(given[1]))
