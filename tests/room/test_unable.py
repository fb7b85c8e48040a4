"""A device that cannot build the room's run: it tries a few times, says why, and goes."""

from __future__ import annotations

import asyncio

from memory_room import Device, Wire, room_settings

from daisychain.cluster import effects, events
from daisychain.errors import DataError
from daisychain.room.run import Run

SENTENCE = "The Hub cannot be reached."


def test_a_device_without_data_leaves_and_the_room_trains_on() -> None:
    async def scenario() -> None:
        world = Wire(room_settings())
        founder = await world.add("aaaa")
        founder.host.give(events.Run())
        await world.until(lambda: len(founder.steps()) > 2)
        newcomer = Device(world, "bbbb")
        await world.enter(newcomer)
        tries = 0

        async def build(text: str, told: bytes | None = None) -> Run:
            nonlocal tries
            tries += 1
            raise DataError(SENTENCE)

        newcomer.maker.build = build  # type: ignore[method-assign]
        newcomer.host.give(events.Run())
        await world.until(lambda: newcomer.node.core.mode is effects.Mode.LEFT)
        notices = [e.text for e in newcomer.seen if isinstance(e, effects.Notice)]
        assert tries == 3
        assert len(notices) == 4
        assert all(SENTENCE in text for text in notices)
        step = founder.steps()[-1].step
        await world.until(lambda: founder.steps()[-1].step > step + 3)
        world.close()

    asyncio.run(scenario())
