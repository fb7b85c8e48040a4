"""A device's copy of the model: what it need not do twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory_room import Maker

from daisychain.cluster import events


def test_initial_weights_are_made_when_they_are_not_there() -> None:
    async def go() -> None:
        maker = Maker(events.Settings(lambda step: 0))
        replica = (await maker.build("")).replica
        made, run = [], replica.player.run

        async def count(plans: Sequence[str], read: str) -> bytes:
            made.extend(plan for plan in plans if plan == "init")
            return await run(plans, read)

        replica.player.run = count  # type: ignore[method-assign]
        first = await replica.initialise()
        assert await replica.initialise() == first
        assert len(made) == 1, "a newcomer makes them before it is let in"
        await replica.add_slice(0, first=True)
        scalars = replica.scalars(1, await replica.own_squares(), replica.model.tokens)
        assert await replica.apply(scalars) != first
        assert await replica.initialise() == first
        await replica.load_state(await replica.state())
        await replica.initialise()
        assert len(made) == 3
        replica.player = await maker.reopen(0)
        assert await replica.initialise() == first, "a fresh player has no weights"

    asyncio.run(go())
