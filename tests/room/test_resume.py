"""A room that goes on from checkpoints computes the bits of the uninterrupted room."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest
from memory_room import CONFIG, Device, Maker, Wire, room_settings

from daisychain.cluster import effects, events
from daisychain.cluster.machine import Owed
from daisychain.export import residuals
from daisychain.export.safetensors import decode
from daisychain.room.run import Run

MEMBERS = ("aaaa", "bbbb")
SETTINGS = {"exchange_alone": True, "total_micro_batches": 2}
"""One micro-batch for each member, however fast it is."""


@dataclass(frozen=True)
class Kept:
    """What one device keeps of a run."""

    step: int
    cursor: int
    weights_hash: str
    state: list[bytes]
    owed: Owed | None


class Returning(Device):
    """A device that begins with what it kept."""

    kept: Kept

    async def open(self, founder: bool) -> None:
        await super().open(founder=True)  # a run of its own, and a host
        assert self.host.run is not None
        await self.host.run.replica.load_state(self.kept.state)
        if self.kept.owed:
            await self.host.run.reducer.restore(self.kept.owed)
        layout, step, cursor = self.maker.layout(""), self.kept.step, self.kept.cursor
        if founder:
            began = self.node.found(layout, self.kept.weights_hash, step, cursor)
        else:
            began = self.node.resume(layout, self.kept.weights_hash, step, cursor)
        self.host.carry_out(began)


async def keep(device: Device) -> Kept:
    async def look(run: Run) -> Kept:
        at = device.node.core.committed
        assert at is not None
        state, owed = await run.replica.state(), await run.reducer.owed()
        return Kept(at.step, at.cursor, at.weights_hash, state, owed)

    return await device.host.between(look)


def filed(owed: Owed | None) -> Owed | None:
    """As a checkpoint's file gives it back."""
    if owed is None:
        return None
    data = b"".join(residuals.encode_residuals(owed, CONFIG))
    return residuals.decode_residuals(decode(memoryview(data)), CONFIG)


def hashes(device: Device, first: int) -> dict[int, tuple[str, str]]:
    return {e.step: (e.start_hash, e.reduced_hash) for e in device.steps() if e.step >= first}


@pytest.mark.parametrize("forgets", [False, True])
def test_a_room_goes_on_from_checkpoints_to_the_same_bits(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without what was owed the bits would be others: so much depends on it."""
    layout = Maker(room_settings()).layout("")
    monkeypatch.setattr(residuals, "model_layout", lambda config: layout)

    async def uninterrupted() -> tuple[list[Kept], dict[int, tuple[str, str]]]:
        world = Wire(room_settings(**SETTINGS))
        try:
            devices = [await world.add(name) for name in MEMBERS]
            for device in devices:
                device.host.give(events.Run())
            await world.until(lambda: all(len(d.steps()) >= 5 for d in devices))
            devices[0].host.give(events.Pause())
            idle = lambda: all(  # noqa: E731
                d.node.core.attempt is None and d.node.core.committed.weights_hash for d in devices
            )
            await world.until(idle)
            await asyncio.sleep(0.2)
            assert idle()
            kept = [await keep(device) for device in devices]
            assert kept[0].step == kept[1].step
            devices[0].host.give(events.Run())
            await world.until(lambda: devices[0].steps()[-1].step >= kept[0].step + 3)
            return kept, hashes(devices[0], kept[0].step + 1)
        finally:
            world.close()

    async def resumed(kept: list[Kept]) -> dict[int, tuple[str, str]]:
        world = Wire(room_settings(**SETTINGS))
        try:
            for name, what in zip(MEMBERS, kept, strict=True):
                device = Returning(world, name)
                device.kept = what
                await world.enter(device)
            first, second = (world.devices[name] for name in MEMBERS)
            joiners = lambda: first.node.core.lead and first.node.core.lead.joiners  # noqa: E731
            synced = lambda: [j.synced_step for j in (joiners() or {}).values()]  # noqa: E731
            await world.until(lambda: synced() == [kept[0].step])
            for device in (second, first):
                device.host.give(events.Run())
            await world.until(lambda: len(first.steps()) >= 3)
            assert all(entry.roster == MEMBERS for entry in first.steps())
            loaded = [e for e in second.seen if isinstance(e, effects.Notice)]
            assert not loaded, loaded
            return hashes(first, kept[0].step + 1)
        finally:
            world.close()

    kept, expected = asyncio.run(uninterrupted())
    assert all(what.owed is not None for what in kept)
    owed = [None if forgets else filed(k.owed) for k in kept]
    kept = [replace(k, owed=o) for k, o in zip(kept, owed, strict=True)]
    found = asyncio.run(resumed(kept))
    common = sorted(expected.keys() & found.keys())
    assert len(common) >= 3
    same = [expected[step] == found[step] for step in common]
    assert all(same) is not forgets
