"""Footers that one member tells another: by real nodes and messages, with the Hub's stand-in."""

from __future__ import annotations

import asyncio
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from memory_room import room_settings
from toy_device import ONE_BUCKET, hex128

from daisychain.cluster import effects, events, wire
from daisychain.cluster.messages import Envelope, Message
from daisychain.cluster.protocol import Node
from daisychain.cluster.room_messages import FetchFooter, FooterIs
from daisychain.data import StreamSource, open_source, open_tokenizer
from daisychain.data.port import DataFile
from daisychain.data.sharing import MAX_FOOTER_BYTES, footer_text, read_footer_text
from daisychain.data.slices import Footer, RowGroup
from daisychain.errors import DataError
from daisychain.room import footers
from daisychain.room.footers import Footers
from tests.data.http_reference import HttpReferencePort
from tests.data.hub import Hub, running_hub
from tests.data.parquet_files import prose, write_parquet
from tests.data.reference import byte_tokenizer

FOLDER = "owner/told/refs%2Fconvert%2Fparquet/default/train"
FILES, ROWS, STEPS = 6, 2, 60


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("hub")
    for number in range(FILES):
        write_parquet(root / FOLDER / f"000{number}.parquet", prose(4, number, 8), row_group_rows=2)
    (root / "tokenizer.json").write_text(byte_tokenizer(), encoding="utf-8")
    with running_hub(root) as hub:
        yield hub


@pytest.fixture
def hub(served: Hub) -> Hub:
    served.log.clear()
    return served


async def opened(hub: Hub, shared: Any = None) -> StreamSource:
    source = await open_source(
        "owner/told",
        seed=3,
        context=16,
        tokenizer=await open_tokenizer(
            "bytes", port=HttpReferencePort(), file=DataFile(str(hub.root / "tokenizer.json"))
        ),
        hub=hub.api,
        shared=shared,
        fallback=False,
    )
    assert isinstance(source, StreamSource)
    return source


def footers_read(hub: Hub) -> int:
    """How often the Hub was asked for a footer: of files this small it is the whole file."""
    return len([r for r in hub.requests("api") if r.range.startswith("bytes=0-")])


class Member:
    """A node, its text, and what passes between them; ``post`` is the way to the others."""

    def __init__(self, me: str, post: Callable[[str, Envelope], None]) -> None:
        self.node, self._post = Node(me, me, "test", room_settings()), post
        self.footers = Footers(self.node, self.give)

    def give(self, event: events.Event) -> None:
        for effect in self.node.handle(event, 0):
            match effect:
                case effects.Send():
                    data = wire.encode(effect.envelope)
                    self._post(effect.link, wire.decode(data))
                case effects.ServeFooter() | effects.FooterCame():
                    self.footers.carry_out(effect)

    def count(self, what: str) -> int:
        return self.node.core.dropped[what]


class Pair:
    """A leader "a" and a member "b" that has the room's data plan; ``tamper`` sees their talk."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.tamper: Callable[[Message], Message | None] = lambda message: message
        self.said: list[Message] = []
        self.ends = {me: Member(me, self.post) for me in "ab"}
        self.leader, self.member = self.ends["a"], self.ends["b"]

    def post(self, target: str, envelope: Envelope) -> None:
        message = envelope.message
        if not isinstance(message, FetchFooter | FooterIs):
            return
        self.said.append(message)
        changed = self.tamper(message)
        if changed is not None:
            event = events.Received(envelope.source, replace(envelope, message=changed))
            asyncio.get_running_loop().call_soon(self.ends[target].give, event)

    async def open(self) -> tuple[StreamSource, StreamSource]:
        """Both sources; the leader's has read what the plan holds."""
        first = await opened(self.hub)
        second = await opened(self.hub, await first.shared())
        self.hub.log.clear()
        self.leader.node.found(ONE_BUCKET, hex128(1))
        self.leader.node.core.known.add("b")
        self.leader.give(events.LinkUp("b"))
        self.member.give(events.LinkUp("a"))
        self.member.node.core.leader = "a"
        self.leader.footers.use(first)
        self.member.footers.use(second)
        return first, second

    def close(self) -> None:
        for end in self.ends.values():
            end.footers.close()


def play(hub: Hub, go: Callable[[Pair, StreamSource, StreamSource], Awaitable[None]]) -> None:
    async def run() -> None:
        pair = Pair(hub)
        sources = await pair.open()
        try:
            async with asyncio.timeout(60):
                await go(pair, *sources)
        finally:
            pair.close()
            for source in sources:
                source.close()

    asyncio.run(run())


async def train(*sources: StreamSource) -> list[list[Any]]:
    """What each source feeds to the same steps, which go through all files."""
    fed: list[list[Any]] = [[] for _ in sources]
    for step in range(STEPS):
        for source, batches in zip(sources, fed, strict=True):
            batches.append(await source.batch(step, 0, ROWS))
    assert all(len(source.plan.footers) == FILES for source in sources)
    return fed


async def reference(hub: Hub) -> list[Any]:
    source = await opened(hub)
    (fed,) = await train(source)
    source.close()
    return fed


def test_one_device_reads_each_footer(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the member is the first that needs it, and if it comes in many parts."""
    monkeypatch.setattr(footers, "FOOTER_PART_CHARACTERS", 40)

    async def go(pair: Pair, first: StreamSource, second: StreamSource) -> None:
        read = len(first.plan.footers)
        told, own = await train(second, first)
        assert footers_read(hub) == FILES - read
        assert told == own == await reference(hub)
        answers = [message for message in pair.said if isinstance(message, FooterIs)]
        assert all(1 < answer.parts <= 8 for answer in answers)
        assert len({(answer.file, answer.part) for answer in answers}) == len(answers)
        assert second.status().notice == ""

    play(hub, go)


def told_as(
    change: Callable[[dict[str, Any]], object], padding: bytes = b""
) -> Callable[[FooterIs], FooterIs]:
    """The answer with another footer in it."""

    def lie(message: FooterIs) -> FooterIs:
        record = json.loads(zlib.decompress(b64decode(message.text)))
        change(record)
        packed = zlib.compress(json.dumps(record).encode() + padding)
        return replace(message, text=b64encode(packed).decode())

    return lie


def _shift(record: dict[str, Any]) -> None:
    for group in record["groups"]:
        group[1] += 1


def _miscount(record: dict[str, Any]) -> None:
    for group in record["groups"]:
        group[0], group[3] = group[0] + 1, 3 * group[3]


LIES: dict[str, Callable[[FooterIs], FooterIs | None]] = {
    "silence": lambda message: None,
    "of another file": lambda message: replace(message, file=message.file + 1),
    "another part": lambda message: replace(message, part=1),
    "more parts": lambda message: replace(message, parts=8),
    "nothing": lambda message: replace(message, parts=0, text=""),
    "empty": lambda message: replace(message, text=""),
    "no base64": lambda message: replace(message, text=message.text[:-3]),
    "cut": lambda message: replace(message, text=message.text[: len(message.text) // 8 * 4]),
    "a bomb": told_as(lambda record: None, padding=b" " * MAX_FOOTER_BYTES),
    "a list": lambda message: replace(message, text=b64encode(zlib.compress(b"[1]")).decode()),
    "outside the file": told_as(lambda record: record["groups"][0].__setitem__(2, 2**40)),
    "too much text": told_as(lambda record: record.update(groups=[[9, 4, 9, 2**28, ""]] * 600)),
    "no groups": told_as(lambda record: record.pop("groups")),
    "other rows": told_as(_miscount),
    "shifted": told_as(_shift),
}
LEADS_NOWHERE = {"other rows", "shifted"}
"""These can be true, until the file's own bytes show that they are not."""


@pytest.mark.parametrize("lie", LIES)
def test_a_leader_that_lies_or_is_silent_changes_no_slice(
    hub: Hub, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footers, "ANSWER_WITHIN_MS", 200)

    async def go(pair: Pair, first: StreamSource, second: StreamSource) -> None:
        pair.tamper = lambda m: LIES[lie](m) if isinstance(m, FooterIs) else m
        told, own = await train(second, first)
        assert told == own == await reference(hub)
        asked = [message for message in pair.said if isinstance(message, FetchFooter)]
        if lie in LEADS_NOWHERE:
            assert "that a device told is wrong" in second.status().notice
        elif lie != "nothing":
            assert pair.member.count("footer not told") == 1
            assert {message.file for message in asked} == {asked[0].file}, "asked once too often"

    play(hub, go)


def test_what_the_leader_tells_is_bounded(hub: Hub) -> None:
    """Not beyond the files that it will soon need itself, each part once, to members only."""

    async def go(pair: Pair, first: StreamSource, second: StreamSource) -> None:
        async def ask(message: FetchFooter, source: str = "b") -> FooterIs | None:
            del pair.said[:]
            pair.leader.give(events.Received(source, Envelope(source, "a", 0, message)))
            async with asyncio.timeout(5):
                while not pair.said and not pair.leader.count("footer for a stranger"):
                    await asyncio.sleep(0.01)
            return pair.said[0] if pair.said else None  # type: ignore[return-value]

        order = [first.plan.file_at(0, position) for position in range(FILES)]
        held = set(first.plan.footers)
        unread = [file for file in order if file not in held]
        for file in (FILES, 2**32 - 1, unread[-1]):
            assert await ask(FetchFooter(file, 0)) == FooterIs(file, 0, 0, "")
        assert await ask(FetchFooter(unread[0], 1)) == FooterIs(unread[0], 1, 0, "")
        assert footers_read(hub) == 0
        answer = await ask(FetchFooter(unread[0], 0))
        assert answer
        facts = first.listing.files[unread[0]]
        footer = read_footer_text(answer.text, facts.path, facts.bytes)
        assert footer == first.plan.footers[unread[0]]
        assert await ask(FetchFooter(unread[0], 0)) == FooterIs(unread[0], 0, 0, "")
        assert footers_read(hub) == 1
        for file in unread:
            await ask(FetchFooter(file, 0))
        assert footers_read(hub) <= 2, "it reads ahead no further than two files"
        pair.leader.give(events.LinkUp("c"))
        assert await ask(FetchFooter(order[0], 0), "c") is None

    play(hub, go)


def test_answers_count_once_and_from_the_device_that_was_asked(hub: Hub) -> None:
    async def go(pair: Pair, first: StreamSource, second: StreamSource) -> None:
        member, text = pair.member, footer_text(first.plan.footers[0])
        forged = FooterIs(1, 0, 1, text)

        def say(source: str) -> None:
            member.give(events.Received(source, Envelope(source, "b", 0, forged)))

        say("a")
        assert member.count("footer unasked") == 1
        member.give(events.FooterWanted(1, 0))
        member.give(events.LinkUp("c"))
        say("c")
        assert member.count("footer unasked") == 2
        say("a")
        assert member.count("footer unasked") == 2
        say("a")
        assert member.count("footer unasked") == 3
        member.node.core.leader = "b"
        (came,) = member.node.handle(events.FooterWanted(2, 0), 0)
        assert came == effects.FooterCame(2, 0, 0, ""), "nobody else to ask"

    play(hub, go)


def test_a_source_that_leaves_its_room_reads_for_itself(hub: Hub) -> None:
    async def go(pair: Pair, first: StreamSource, second: StreamSource) -> None:
        read = len(second.plan.footers)
        pair.member.footers.close()
        assert (await train(second)) == [await reference(hub)]
        assert not pair.said
        assert footers_read(hub) >= FILES - read

    play(hub, go)


def test_a_footer_as_text_is_small_and_bounded() -> None:
    def footer(groups: int) -> Footer:
        at = range(4, 4 + 3 * groups, 3)
        sizes = [2_400_000 + (n * 7919) % 600_000 for n in range(groups)]
        told = [RowGroup(1000, n, n + 2, size, "ZSTD") for n, size in zip(at, sizes, strict=True)]
        return Footer("text", True, tuple(told))

    usual = footer(750)
    assert 0 < len(footer_text(usual)) < 24_000
    assert read_footer_text(footer_text(usual), "x.parquet", 1 << 32) == usual
    assert footer_text(footer(40_000)) == "", "too large to be told"
    with pytest.raises(DataError, match=r"x\.parquet that a device sent is none"):
        read_footer_text("A" * (1 << 20), "x.parquet", 100)
