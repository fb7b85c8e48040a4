"""Every WGSL kernel, in every variant, equals its oracle to the bit on two shader compilers.

Chromium compiles with Tint and runs on SwiftShader, Firefox with Naga on lavapipe.
"""

from __future__ import annotations

import asyncio
from functools import cache, partial

import pytest
from webgpu_harness import BrowserDevice

from daisychain.kernels import wgsl
from daisychain.kernels.cases import cases
from daisychain.kernels.catalog import CATALOG
from daisychain.players.golden import PLAN, RECORD, GoldenSet
from daisychain.players.webgpu import WebGPUPlayer
from scripts.make_golden import grouped, merged

pytestmark = pytest.mark.browser


@cache
def golden_sets(kernel: str) -> tuple[GoldenSet, ...]:
    """All cases of a kernel with the oracle's answers, in as few programs as they allow."""
    return tuple(merged(members) for members in grouped(cases(kernel)))


def proved_sources() -> list[tuple[str, str]]:
    """(kernel, variant) pairs; a variant whose source equals the packed one adds nothing.

    Of the variant "unpacked" GEMM3 stands for all: the others are made of files that "packed" and
    "software" use.
    """
    pairs = [(kernel, variant) for kernel in CATALOG for variant in ("packed", "software")]
    return [("gemm3", "unpacked")] + [
        (kernel, variant)
        for kernel, variant in pairs
        if variant == "packed" or wgsl.source(kernel, variant) != wgsl.source(kernel)
    ]


@pytest.fixture(scope="module", params=["chromium", "firefox"])
def device(request: pytest.FixtureRequest) -> BrowserDevice:
    shared: BrowserDevice = request.getfixturevalue(f"{request.param}_device")
    shared.reopen()
    return shared


async def differences(player: WebGPUPlayer, golden: GoldenSet) -> list[str]:
    """The cases that end differently, and where."""
    await player.load(golden.program)
    for name, data in golden.inputs.items():
        player.write(name, data)
    player.write_scalars(0, golden.scalars)
    await player.run([PLAN], RECORD)
    names = [name for case in golden.cases for name in case.outputs]
    found = dict(zip(names, await player.read_many(names), strict=True))
    words = memoryview(await player.read_scalars()).cast("I")
    return [
        f"{case.name}: {name}"
        for case in golden.cases
        for name, expected in case.outputs.items()
        if found[name] != expected
    ] + [
        f"{case.name}: scalar word {word}"
        for case in golden.cases
        for word, expected in case.words.items()
        if words[word] != expected
    ]


@pytest.mark.parametrize(("kernel", "variant"), proved_sources())
def test_kernel_equals_its_oracle(kernel: str, variant: str, device: BrowserDevice) -> None:
    player = WebGPUPlayer(device, partial(wgsl.source, variant=variant), variant)
    for golden in golden_sets(kernel):
        assert asyncio.run(differences(player, golden)) == []
