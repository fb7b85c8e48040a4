"""Whole exchanges on the WebAssembly arithmetic against the definition, row by row."""

from __future__ import annotations

import asyncio
import random
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from exchange_machine import WasmtimeMachine

from daisychain.cluster.exchange import (
    Exchange,
    Row,
    add,
    align,
    quantise,
    reduce_row,
    row_exponent,
)
from daisychain.cluster.machine import agree_bytes
from daisychain.cluster.reduce_plan import Layout, ReducePlan, Rows, make_plan
from daisychain.cluster.reducer import Reducer

LAYOUT = Layout(
    ((Rows("head", 7, 64), Rows("norm", 1, 72)), (Rows("deep", 3, 200), Rows("wide", 11, 64)))
)
MEMBERS = ("a", "b", "c")


class Reference:
    """The same exchange by `exchange.py`, with all residuals."""

    def __init__(self) -> None:
        rows = [t.columns for bucket in LAYOUT.buckets for t in bucket for _ in range(t.rows)]
        self.residuals = [[Row.zeros(n) for n in rows] for _ in MEMBERS]
        self.owed = [Row.zeros(n) for n in rows]

    def step(self, gradients: list[list[Row]], mode: Exchange, commit: bool) -> list[tuple]:
        limit = mode.up_limit(len(MEMBERS))
        aligned = [
            [align(g, r) for g, r in zip(rows, rest, strict=True)]
            for rows, rest in zip(gradients, self.residuals, strict=True)
        ]
        agreed = [
            max(row_exponent(r, limit) for r in column) for column in zip(*aligned, strict=True)
        ]
        sent = [
            [quantise(row, e, limit) for row, e in zip(rows, agreed, strict=True)]
            for rows in aligned
        ]
        reduced = [
            reduce_row(mode, add(member[row][0] for member in sent), agreed[row], self.owed[row])
            for row in range(len(agreed))
        ]
        if commit:
            self.residuals = [[rest for _, rest in member] for member in sent]
            self.owed = [rest for *_, rest in reduced]
        return [(q, e) for q, e, _ in reduced]


async def exchange(reducers: list[Reducer], plan: ReducePlan, gradients: list[list]) -> None:
    """What the links do, with everybody in one process."""
    everybody = range(len(reducers))
    for bucket in range(len(LAYOUT.buckets)):
        proposed = [
            await r.load(bucket, g[bucket]) for r, g in zip(reducers, gradients, strict=True)
        ]
        agreed = agree_bytes(proposed)
        sent = [await r.quantise(bucket, agreed) for r in reducers]
        for place, owner in enumerate(plan.owners):
            others = [sent[other][place] for other in everybody if other != owner]
            shard = await reducers[owner].reduce(bucket, others)
            assert len(shard) == plan.mode.down_bytes(
                plan.shard(bucket, owner).elements, plan.shard(bucket, owner).rows
            )
            for other in everybody:
                if other != owner:
                    await reducers[other].store(bucket, owner, shard)


def random_gradient(rng: random.Random) -> tuple[list[Row], list[list[tuple[bytes, int]]]]:
    """As rows for the reference, and as tensors for a reducer."""
    rows, buckets = [], []
    for bucket in LAYOUT.buckets:
        tensors = []
        for tensor in bucket:
            e, bits = rng.randint(-50, -30), rng.randint(1, 30)
            values = np.array(
                [
                    rng.randint(-(1 << bits), 1 << bits) >> rng.choice((0, 5, 29))
                    for _ in range(tensor.elements)
                ]
            ).reshape(tensor.rows, tensor.columns)
            rows += [Row(tuple(int(v) for v in row), e) for row in values]
            tensors.append((values.astype(np.int32).tobytes(), e))
        buckets.append(tensors)
    return rows, buckets


@pytest.mark.parametrize("mode", [Exchange.INT8, Exchange.INT4, Exchange.INT16])
@pytest.mark.parametrize("hub", [False, True], ids=["mesh", "hub"])
def test_steps_and_aborts_follow_the_definition(mode: Exchange, hub: bool) -> None:
    links: dict[str, Any] = {m: [o for o in MEMBERS if o != m] for m in MEMBERS}
    if hub:  # b and c are not linked
        links = {"a": ["b", "c"], "b": ["a"], "c": ["a"]}
    plan = make_plan(LAYOUT, MEMBERS, links, mode)
    rng, reference = random.Random(3), Reference()
    reducers = [Reducer(WasmtimeMachine(), LAYOUT) for _ in MEMBERS]

    async def go() -> None:
        for commit in (True, False, True, True):
            made = [random_gradient(rng) for _ in MEMBERS]
            for me, reducer in enumerate(reducers):
                await reducer.begin(plan, me)
            await exchange(reducers, plan, [tensors for _, tensors in made])
            expected = reference.step([rows for rows, _ in made], mode, commit)
            wholes = [await r.whole(mode) for r in reducers]
            assert wholes[0] == wholes[1] == wholes[2]
            assert wholes[0] == travelling(expected, mode)
            digests = {await r.digest(mode) for r in reducers}
            assert len(digests) == 1
            assert len(digests.pop()) == 32
            if commit:
                for reducer in reducers:
                    reducer.commit()

    asyncio.run(go())


def travelling(rows: list[tuple], mode: Exchange) -> bytes:
    """Exponents, then mantissas, bucket after bucket."""
    dtype = np.int16 if mode is Exchange.INT16 else np.int8
    out, at = b"", 0
    for bucket in LAYOUT.buckets:
        part = rows[at : at + sum(t.rows for t in bucket)]
        at += len(part)
        out += np.array([e for _, e in part], np.int8).tobytes()
        out += b"".join(np.array(q, dtype).tobytes() for q, _ in part)
    return out


def test_what_is_left_for_the_end_of_a_step() -> None:
    """Requests to the machine, each a way to a Worker and back: one a piece of work, two last."""
    plan = make_plan(LAYOUT, ("a", "b"), {"a": ["b"], "b": ["a"]}, Exchange.INT8)
    rng = random.Random(4)

    async def go() -> None:
        reducers = [Reducer(WasmtimeMachine(), LAYOUT) for _ in range(2)]
        for me, reducer in enumerate(reducers):
            await reducer.begin(plan, me)
        machine, requests, given = reducers[0].machine, [], list[bytes]()
        execute = machine.execute

        async def count(operations: Any, give: Any = ()) -> Any:
            requests.append([kind for kind, *_ in operations])
            given.extend(give)
            return await execute(operations, give)

        machine.execute = count
        gradients = [random_gradient(rng)[1] for _ in reducers]
        await exchange(reducers, plan, gradients)
        buckets = len(LAYOUT.buckets)
        assert len(requests) == 5 * buckets, "write and hash, align, quantise, reduce, store"
        own = [data for tensors in gradients[0] for data, _ in tensors]
        assert [data for data in given if data in own] == own, "not copied"
        assert len(given) == len(own) + 2 * buckets, "nor contributions and shards of the other"
        for bucket in range(buckets):
            await reducers[0].expand(bucket)
        assert len(requests) == 6 * buckets
        del requests[:]
        await reducers[0].digest(Exchange.INT8)
        squares = await reducers[0].squares(Exchange.INT8)
        wide = await reducers[0].wide(Exchange.INT8)
        assert [set(kinds) for kinds in requests] == [{"hash"}, {"read"}], "nothing is done twice"
        assert squares == [tensor.squares for tensor in wide]
        assert wide == await reducers[1].wide(Exchange.INT8), "also where nothing was expanded"

    asyncio.run(go())


def test_the_raw_digest_is_that_of_the_gradients_alone() -> None:
    """Of the step's own gradients, whatever error feedback owes; one bit makes it another one."""
    plan = make_plan(LAYOUT, ("a",), {}, Exchange.INT8)
    rng = random.Random(6)
    first, second = random_gradient(rng)[1], random_gradient(rng)[1]
    data, exponent = second[-1][-1]
    flipped = [*second[:-1], [*second[-1][:-1], (data[:-1] + bytes([data[-1] ^ 1]), exponent)]]

    async def go() -> None:
        reducer = Reducer(WasmtimeMachine(), LAYOUT)
        found = []
        for gradient in (first, second, second, flipped):
            await reducer.begin(plan, 0)
            await exchange([reducer], plan, [gradient])
            reducer.commit()
            found.append(await reducer.raw_digest())
        buckets = [sha256(b"".join(data for data, _ in tensors)).hexdigest() for tensors in first]
        assert found[0] == sha256("".join(buckets).encode()).hexdigest()[:32]
        assert found[1] == found[2]
        assert len(set(found)) == 3

    asyncio.run(go())


def test_a_joiner_gets_the_same_wide_gradient() -> None:
    plan = make_plan(LAYOUT, ("a",), {}, Exchange.INT8)
    rng = random.Random(8)

    async def go() -> None:
        owner, joiner = (Reducer(WasmtimeMachine(), LAYOUT) for _ in range(2))
        await owner.begin(plan, 0)
        await exchange([owner], plan, [random_gradient(rng)[1]])
        await joiner.store_whole(await owner.whole(Exchange.INT8), Exchange.INT8)
        ours, theirs = await owner.wide(Exchange.INT8), await joiner.wide(Exchange.INT8)
        assert ours == theirs
        assert [t.name for t in ours] == ["head", "norm", "deep", "wide"]
        assert all(t.maximum < 1 << 30 and t.squares[0] > 0 for t in ours)

    asyncio.run(go())


def test_agreed_bytes_are_the_signed_maximum() -> None:
    columns = [bytes((128, 255, 3)), bytes((129, 0, 200))]
    assert agree_bytes(columns) == bytes((129, 0, 3))
    assert agree_bytes(columns[:1]) == columns[0]
