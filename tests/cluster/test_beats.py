"""What a device says of itself in its heartbeats is what others show of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cluster_world import World
from toy_device import ONE_BUCKET, hex128, mix

from daisychain.cluster import wire
from daisychain.cluster.identity import Member
from daisychain.cluster.messages import Envelope
from daisychain.cluster.room_messages import Beat
from daisychain.room.table import member_rows
from tests.cluster.test_membership import running


def test_a_beat_names_the_hash_of_the_weights_of_its_step() -> None:
    """Also while steps are applied, and on a device that comes in or is lost."""
    world = World(1, layout=ONE_BUCKET)
    beats: list[Beat] = []

    def hear(source: str, link: str, what: object) -> None:
        if isinstance(what, Envelope) and isinstance(what.message, Beat):
            beats.append(what.message)
            assert len(wire.encode(what)) < 512

    world.on_post = hear
    world.room(3)
    world.run(5_000)
    world.add("d")
    world.run(5_000)
    world.devices["c"].lose_state()
    world.run(10_000)
    told = [beat for beat in beats if beat.weights_hash]
    for beat in told:
        weights = world.decided[beat.step].weights if beat.step else mix(world.seed)
        assert beat.weights_hash == hex128(weights, -1)
    assert len(told) > len(beats) // 2
    assert len({beat.step for beat in told}) > 10


def test_the_table_shows_each_devices_own_hash() -> None:
    world = running(3)
    world.run(2_000)
    other, node = world.devices["c"], world.devices["a"].node
    lie = hex128(5)
    other.give = lambda event: None  # type: ignore[method-assign]
    beat = node.core.peers["c"].beat
    assert beat is not None
    at = node.core.committed
    assert at is not None
    node.core.peers["c"].beat = Beat(
        beat.sequence + 1, beat.epoch, "a", at.step, lie, beat.phase, 0, (), (), "c", "toy"
    )
    members = [Member(me, me, "toy") for me in "abc"]
    mesh: Any = SimpleNamespace(members=members, link_report=list)
    rows = {row["id"]: row for row in member_rows(node, mesh, [])}
    assert (rows["a"]["step"], rows["a"]["hash"]) == (at.step, at.weights_hash)
    assert (rows["c"]["step"], rows["c"]["hash"]) == (at.step, lie)
    known = node.core.peers["b"].beat
    assert known is not None
    assert (rows["b"]["step"], rows["b"]["hash"]) == (known.step, known.weights_hash)
