"""The backward pass in pieces gives the bits of the whole, and a device is never left waiting."""

from __future__ import annotations

import asyncio
import struct
from array import array
from contextlib import aclosing

import pytest

from daisychain.cluster.layout import model_layout
from daisychain.kernels.catalog import Step
from daisychain.model.config import ModelConfig
from daisychain.model.llama import Model, build_program
from daisychain.model.pieces import in_pieces
from daisychain.players.oracle import OraclePlayer
from daisychain.players.player import Piece, PieceResult, Player, queue_ahead
from daisychain.players.wasm import WasmPlayer
from tests.players.wasm_runner import WasmtimeDevice

WHOLE = ["begin", "grad", "accumulate_next"]


def model(tied: bool) -> Model:
    config = ModelConfig(16, 3, 2, 2, 32, 8, vocabulary=61, tied=tied)
    groups = model_layout(config, smallest_bucket=2_000).names_by_bucket
    assert len(groups) >= 3
    return in_pieces(build_program(config, 2, 4, seed=3), groups)


def sums(model: Model, i: int) -> list[str]:
    return [f"sum {name}" for name in model.pieces[i]]


async def prepare(player: Player, model: Model) -> None:
    """One micro-batch summed, the next one's tokens there."""
    await player.load(model.program)
    await player.run(["init"], "record")
    for number, plans in enumerate((["begin", "grad", "accumulate_first"], [])):
        ids = array("I", [(7 * t + number) % 61 for t in range(model.tokens)])
        player.write_scalars(Step.MICRO_BATCH, [0])
        player.write("inputs", struct.pack("<2I", 5, number))
        player.write("inputs", ids.tobytes(), 8)
        player.write("inputs", array("I", reversed(ids)).tobytes(), 8 + 4 * model.tokens)
        if plans:
            await player.run(plans, "record")


async def in_one(player: Player, model: Model) -> tuple[list[bytes], bytes]:
    await prepare(player, model)
    record = await player.run(WHOLE, "record")
    names = [name for i in range(len(model.pieces)) for name in sums(model, i)]
    return [record, *await player.read_many(names)], await player.read_scalars()


async def cut(player: Player, model: Model) -> tuple[list[bytes], bytes]:
    await prepare(player, model)
    pieces: list[Piece] = [
        ([f"grad {i}", f"accumulate_next {i}"], sums(model, i)) for i in range(len(model.pieces))
    ]
    pieces[0] = (["begin", *pieces[0][0]], ["record", *pieces[0][1]])
    contents, scalars = [], b""
    async for parts, words in player.run_pieces(pieces):
        contents += parts
        scalars = words
    return contents, scalars


@pytest.mark.parametrize("tied", [True, False])
def test_pieces_give_the_bits_of_the_whole(tied: bool) -> None:
    built = model(tied)
    expected = asyncio.run(in_one(OraclePlayer(), built))
    assert asyncio.run(cut(OraclePlayer(), built)) == expected
    assert asyncio.run(cut(WasmPlayer(WasmtimeDevice()), built)) == expected


def test_pieces_make_the_calls_of_the_whole() -> None:
    built = model(tied=True)
    plans, count = built.program.plans, len(built.pieces)
    assert sum((plans[f"grad {i}"] for i in range(count)), ()) == plans["grad"]
    for i, group in enumerate(built.pieces):
        later = sum((plans[f"grad {k}"] for k in range(i + 1, count)), ())
        names = {f"gradient {name}" for name in group}
        assert not any(names & set(call.buffers) for call in later)


def test_groups_that_do_not_fit_are_refused() -> None:
    plain = model(tied=True)
    first, *rest = plain.pieces
    *others, last = rest
    for groups in ([*rest, first], rest, [first[1:], *others, (*last, first[0])]):
        with pytest.raises(ValueError, match="group"):
            in_pieces(plain, groups)


def test_a_device_has_the_next_piece_before_the_last_one_is_read() -> None:
    """Starts and results as a device sees them; what is not queued when one turns away never is."""
    told: list[str] = []

    async def start(piece: Piece) -> PieceResult:
        told.append(f"start {piece[1][0]}")
        await asyncio.sleep(0)
        return list(piece[1]), b""

    async def take(count: int) -> list[str]:
        told.clear()
        pieces = [([], [name]) for name in "abcd"]
        async with aclosing(queue_ahead(start, pieces)) as results:
            async for contents, _ in results:
                await asyncio.sleep(0)
                told.append(contents[0])
                if len(told) >= 100 or contents[0] == "abcd"[count - 1]:
                    break
        return told

    assert asyncio.run(take(4)) == [
        *("start a", "start b", "start c", "a", "start d", "b", "c", "d")
    ]
    assert asyncio.run(take(1)) == ["start a", "start b", "start c", "a"]
