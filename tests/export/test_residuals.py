"""What error feedback owes, as a file: what is written is read, anything else is refused."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from daisychain import cli
from daisychain.cluster.layout import model_layout
from daisychain.cluster.machine import Owed
from daisychain.cluster.reduce_plan import shards_of
from daisychain.errors import DataError
from daisychain.export.checkpoint import Checkpoint, read_archive, write_checkpoint
from daisychain.export.residuals import MAX_EXPONENT, RESIDUALS_FILE
from tests.export.models import resumed_hash, trained
from tests.export.test_checkpoint import archived, opened, unzipped, zipped

OWNERS = (0, 2, 3)
ME = 2


def some(elements: int, rows: int) -> bytes:
    rng = np.random.default_rng(elements)
    mantissas = rng.integers(-32_767, 32_768, elements).astype("<i2")
    return mantissas.tobytes() + rng.integers(-99, 99, rows).astype("<i4").tobytes()


def owed(of_others: bool = True) -> Owed:
    layout = model_layout(trained().config)
    own = some(layout.elements, layout.rows)
    if not of_others:
        return Owed(own)
    shards = [cut[OWNERS.index(ME)] for cut in shards_of(layout, len(OWNERS))]
    reduced = some(sum(s.elements for s in shards), sum(s.rows for s in shards))
    return Owed(own, reduced, OWNERS, ME)


@cache
def in_room(of_others: bool = True) -> Checkpoint:
    run = trained().run
    assert run is not None
    return replace(trained(), run=replace(run, slices=7, owed=owed(of_others)))


@cache
def files() -> dict[str, bytes]:
    return unzipped(archived(in_room()))


def sealed(data: bytes) -> bytes:
    """The checkpoint with another file of residuals, by somebody who changed the manifest too."""
    manifest = json.loads(files()["manifest.json"])
    manifest["files"][RESIDUALS_FILE]["sha256"] = hashlib.sha256(data).hexdigest()
    return zipped(files() | {RESIDUALS_FILE: data, "manifest.json": json.dumps(manifest).encode()})


@pytest.mark.parametrize("of_others", [True, False])
def test_what_was_written_is_read(of_others: bool) -> None:
    assert opened(archived(in_room(of_others))) == in_room(of_others)


def test_a_file_without_residuals_owes_nothing() -> None:
    """And one of a run alone has no slices."""
    owing = in_room().run
    assert owing is not None
    run = opened(archived(replace(in_room(), run=replace(owing, owed=None)))).run
    assert run is not None
    assert (run.slices, run.owed) == (7, None)
    run = opened(archived(trained())).run
    assert run is not None
    assert (run.slices, run.owed) == (None, None)


def test_the_rest_of_the_checkpoint_is_what_it_was() -> None:
    whole = trained(6).run
    assert whole is not None
    assert resumed_hash(opened(archived(in_room())), 6) == whole.weights_hash
    found = opened(b"".join(asyncio.run(write_checkpoint(in_room(), "BF16"))))
    assert found.run is None


def test_the_command_tells_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "room.zip"
    path.write_bytes(archived(in_room()))
    assert cli.main(["info", str(path)]) == 0
    assert "7 slices, with what error feedback owes" in capsys.readouterr().out


def test_others_can_read_it() -> None:
    tensors = safetensors.numpy.load(files()[RESIDUALS_FILE])
    assert tensors["own mantissas"].tobytes() == owed().own[: tensors["own mantissas"].nbytes]
    assert tensors["reduced exponents"].dtype == np.int32


Change = Callable[[dict[str, Any], dict[str, str]], object]
HOSTILE: dict[str, tuple[Change, str]] = {
    "short": (lambda t, m: t.update({"own mantissas": t["own mantissas"][:-1]}), "own mantissas"),
    "long": (
        lambda t, m: t.update({"own exponents": np.zeros(9_999, np.int32)}),
        "own exponents|may have",
    ),
    "type": (
        lambda t, m: t.update({"own mantissas": t["own mantissas"].view(np.uint16)}),
        "own mantissas",
    ),
    "wide": (
        lambda t, m: t.update({"own mantissas": t["own mantissas"].astype(np.int32)}),
        "own mantissas|may have",
    ),
    "shape": (
        lambda t, m: t.update({"own exponents": t["own exponents"].reshape(-1, 1)}),
        "own exponents",
    ),
    "missing": (lambda t, m: t.pop("reduced exponents"), "reduced exponents"),
    "superfluous": (lambda t, m: t.update(more=t["own exponents"]), "more than belongs"),
    "of nobody": (lambda t, m: m.clear(), "more than belongs"),
    "absurd": (lambda t, m: t["own exponents"].fill(MAX_EXPONENT + 1), "absurd"),
    "most negative": (lambda t, m: t["reduced exponents"].fill(-(2**31)), "absurd"),
    "owner twice": (lambda t, m: m.update(owners="0,2,2"), "owners are malformed"),
    "no owner": (lambda t, m: m.update(me="1"), "owners are malformed"),
    "too many owners": (
        lambda t, m: m.update(owners=",".join(map(str, range(9_000)))),
        "owners are malformed",
    ),
    "owner out of range": (lambda t, m: m.update(owners="0,2,32"), "owners are malformed"),
    "owner in words": (lambda t, m: m.update(owners="0,2,three"), "owners are malformed"),
    "others' shard": (lambda t, m: m.update(owners="2"), "reduced mantissas"),
    "other metadata": (lambda t, m: m.update(owners="", me=""), "owners are malformed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_residuals_are_refused(name: str) -> None:
    change, reason = HOSTILE[name]
    tensors = {n: t.copy() for n, t in safetensors.numpy.load(files()[RESIDUALS_FILE]).items()}
    metadata = {"owners": "0,2,3", "me": "2"}
    change(tensors, metadata)
    with pytest.raises(DataError, match=reason):
        opened(sealed(safetensors.numpy.save(tensors, metadata)))


def test_changed_residuals_are_refused_before_they_are_looked_at() -> None:
    data = bytearray(files()[RESIDUALS_FILE])
    data[len(data) // 2] ^= 1
    with pytest.raises(DataError, match="hash differs"):
        opened(zipped(files() | {RESIDUALS_FILE: bytes(data)}))


@given(st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6)), min_size=1, max_size=3))
@settings(max_examples=50, deadline=None)
def test_damage_never_raises_anything_else(changes: list[tuple[float, bytes]]) -> None:
    data = bytearray(files()[RESIDUALS_FILE])
    for place, noise in changes:
        at = int(place * 600)
        data[at : at + len(noise)] = noise
    archive = sealed(bytes(data))
    with contextlib.suppress(DataError):
        asyncio.run(read_archive(archive))
