"""Routes in any graph of links: shortest, without loops, and unmoved by a single liar."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain.cluster.identity import member_id
from daisychain.cluster.roster import distances
from daisychain.cluster.routing import RoutingTable

IDS = sorted(member_id(bytes([n]) * 32) for n in range(9))
edges = st.lists(st.sampled_from(list(combinations(IDS, 2))), max_size=20, unique=True)


def tables_of(links: list[tuple[str, str]]) -> dict[str, RoutingTable]:
    """Everybody's table once all link states have reached everybody."""
    tables = {me: RoutingTable(me) for me in IDS}
    for me, table in tables.items():
        table.set_neighbours({a if b == me else b for a, b in links if me in (a, b)}, 1)
    for table in tables.values():
        for other in tables.values():
            for member, revision, neighbours in other.states():
                table.hear(member, revision, neighbours)
    return tables


@given(edges)
@settings(max_examples=200, deadline=None)
def test_every_reachable_member_is_reached_by_a_shortest_way(links: list[tuple[str, str]]) -> None:
    tables = tables_of(links)
    graph = {me: table.neighbours for me, table in tables.items()}
    for target in IDS:
        hops = distances(graph, target)
        for source in IDS:
            way, here = 0, source
            while here != target and (nearer := tables[here].next_hop(target)) is not None:
                here, way = nearer, way + 1
            assert (here == target) is (source in hops)
            assert source not in hops or way == hops[source]


def test_a_link_counts_when_both_ends_list_it() -> None:
    me, honest, liar, target = IDS[:4]
    table = RoutingTable(me)
    table.set_neighbours({honest, liar}, 1)
    table.hear(liar, 1, [me, target])
    table.hear(honest, 1, [me])
    table.hear(target, 1, [])
    assert table.next_hop(target) is None
    table.hear(target, 2, [honest])
    assert table.next_hop(target) is None
    table.hear(honest, 2, [me, target])
    assert table.next_hop(target) == honest


def test_old_lists_and_lists_in_our_name_are_no_news() -> None:
    table = RoutingTable(IDS[0])
    table.set_neighbours({IDS[1]}, 5)
    assert table.hear(IDS[1], 3, [IDS[0]])
    assert not table.hear(IDS[1], 3, [])
    assert not table.hear(IDS[1], 2, [])
    assert not table.hear(IDS[0], 99, [])
    assert table.neighbours == {IDS[1]}
    table.set_neighbours(set(), 0)
    assert table.revision == 6


def test_newcomers_are_answered_the_way_they_came() -> None:
    table = RoutingTable(IDS[0])
    table.set_neighbours({IDS[1]}, 1)
    table.learn(IDS[8], IDS[1])
    assert table.next_hop(IDS[8]) == IDS[1]
    table.forget(IDS[8])
    assert table.next_hop(IDS[8]) is None
    table.learn(IDS[8], IDS[1])
    table.set_neighbours({IDS[2]}, 2)
    assert table.next_hop(IDS[8]) is None


def test_memory_is_bounded() -> None:
    table = RoutingTable(IDS[0])
    for number in range(1000):
        table.hear(member_id(number.to_bytes(32, "big")), 1, [])
        table.learn(member_id(number.to_bytes(32, "big")), IDS[1])
    assert len(table.states()) <= 64
    assert len(table._learned) <= 128
