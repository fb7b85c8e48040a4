"""Admission and the choice of units on real devices, with shaders that were tampered with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from webgpu_harness import BrowserDevice

from daisychain.errors import AdmissionError
from daisychain.kernels import wgsl
from daisychain.kernels.catalog import CATALOG
from daisychain.plan import ProgramBuilder
from daisychain.players.admission import KernelRefused, golden_sets
from daisychain.players.webgpu import CompileError, WebGPUPlayer
from daisychain.players.webgpu_start import WebGPUStart

pytestmark = pytest.mark.browser

FEW = ("add", "gemm3", "scale")


@pytest.fixture(scope="module")
def chromium(chromium_device: BrowserDevice) -> BrowserDevice:
    """A device that keeps what it compiled; no test of this module loses it."""
    chromium_device.reopen()
    return chromium_device


@pytest.fixture(scope="module")
def firefox(firefox_device: BrowserDevice) -> BrowserDevice:
    """The same in Firefox."""
    firefox_device.reopen()
    return firefox_device


class TimedDevice:
    """A device on whose clock a run takes as long as the test says for its kind of units."""

    def __init__(self, device: BrowserDevice, **call_ms: float) -> None:
        self.device, self.call_ms = device, call_ms
        self.now_ms = 0.0
        self.is_destroyed = False
        self._loaded = ""
        self.language_features = device.language_features
        self.info = "a real GPU"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    async def load(self, program: str) -> None:
        self._loaded = next((name for name in wgsl.VARIANTS if f".{name}" in program), "")
        await self.device.load(program)

    async def run(
        self, plans: Sequence[str], read: str, first: int = 0, last: int | None = None
    ) -> bytes:
        self.now_ms += 1.0 + len(plans) * self.call_ms.get(self._loaded, 1.0)
        return await self.device.run(plans[:1], read, first, last)

    def destroy(self) -> None:
        self.is_destroyed = True


class Memory(dict[str, str]):
    """A device's storage."""

    def set(self, key: str, value: str) -> None:
        self[key] = value


class Start:
    """One opening of the GPU and what it left behind."""

    def __init__(self, device: BrowserDevice, **call_ms: float) -> None:
        self.device = TimedDevice(device, **call_ms)
        self.memory = Memory()
        self.log: list[str] = []

    def open(
        self,
        kernels: Sequence[str] = FEW,
        read_source: Callable[[str], str] = wgsl.read_file,
    ) -> WebGPUPlayer:
        async def open_device() -> TimedDevice:
            return self.device

        start = WebGPUStart(
            open_device,
            kernels,
            golden_sets(),
            self.log.append,
            lambda: self.device.now_ms,
            self.memory,
            read_source,
        )
        return asyncio.run(start.open())


def patched(**changes: tuple[str, str]) -> Callable[[str], str]:
    """The shipped WGSL files with a text replaced in those named."""

    def read(name: str) -> str:
        text = wgsl.read_file(name)
        if name not in changes:
            return text
        old, new = changes[name]
        assert old in text
        return text.replace(old, new)

    return read


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
def test_every_kernel_is_admitted(browser: str, request: pytest.FixtureRequest) -> None:
    start = Start(request.getfixturevalue(browser))
    player = start.open(sorted(CATALOG))
    assert player.kernels == sorted(CATALOG)
    assert player.variant == "packed"
    assert start.log[0] == f"webgpu: {len(CATALOG)} kernels admitted, variant packed"


def test_the_faster_variant_is_used_both_times_are_logged(chromium: BrowserDevice) -> None:
    start = Start(chromium, packed=20.0, unpacked=5.0)
    player = start.open()
    assert player.variant == "unpacked"
    assert player.sample_ms == pytest.approx(5.0)
    assert start.log == [
        "webgpu: 3 kernels admitted, variant packed",
        "webgpu: a sample of work takes 20.00 ms with packed, 5.00 ms with unpacked:"
        " unpacked is used",
        "webgpu: 3 kernels admitted, variant unpacked",
    ]
    again = Start(chromium, packed=1.0, unpacked=5.0)
    again.memory.update(start.memory)
    assert again.open().variant == "unpacked"
    assert again.log == ["webgpu: 3 kernels admitted, variant unpacked"]


def test_the_packed_variant_stays_when_it_is_faster(chromium: BrowserDevice) -> None:
    start = Start(chromium, packed=5.0, unpacked=4.9)
    assert start.open().variant == "packed"
    assert start.log[1:] == [
        "webgpu: a sample of work takes 5.00 ms with packed, 4.90 ms with unpacked: packed is used"
    ]


def test_an_adapter_on_the_cpu_has_a_variant_of_its_own(chromium: BrowserDevice) -> None:
    start = Start(chromium, packed=5.0, unpacked=5.0, software=1.0)
    start.device.info = chromium.info
    assert "swiftshader" in chromium.info.lower()
    assert start.open().variant == "software"


def test_without_the_packed_dot_product_the_unpacked_variant_is_used(
    chromium: BrowserDevice,
) -> None:
    start = Start(chromium)
    start.device.language_features = chromium.language_features - {wgsl.PACKED_FEATURE}
    assert start.open().variant == "unpacked"
    assert start.log == [
        "webgpu: this browser has no packed dot product",
        "webgpu: 3 kernels admitted, variant unpacked",
    ]


def test_a_packed_variant_that_does_not_compile_gives_way(chromium: BrowserDevice) -> None:
    start = Start(chromium)
    broken = patched(units=("return dot4I8Packed(", "return dot4I8Unheard("))
    assert start.open(read_source=broken).variant == "unpacked"
    assert start.log[0].startswith("webgpu: variant packed is refused: The kernel ")
    assert "does not compile on this GPU" in start.log[0]
    assert len(start.log) == 2


def test_a_packed_variant_that_computes_wrong_gives_way(chromium: BrowserDevice) -> None:
    """As if a driver's dot product saturated at the one place where int8 * int8 overflows int16."""
    start = Start(chromium)
    wrong = patched(units=("return dot4I8Packed(a, b);", "return min(dot4I8Packed(a, b), 16383);"))
    assert start.open(read_source=wrong).variant == "unpacked"
    assert start.log[0] == (
        "webgpu: variant packed is refused: The kernel unit_products was refused on this device"
        " (all inputs: out, element 0 is 16383, not 16384)."
    )


def test_a_wrong_kernel_refuses_the_gpu(firefox: BrowserDevice) -> None:
    start = Start(firefox)
    truncating = ("(mid + (1i << (7u - params.g)))", "mid")
    wrong = patched(gemm_store=truncating)
    with pytest.raises(KernelRefused, match=r"The kernel gemm3 was refused .*element \d+ is"):
        start.open(read_source=wrong)
    assert start.device.is_destroyed
    assert len(start.log) == 1
    assert start.log[0].startswith(
        "webgpu: variant packed is refused: The kernel gemm3 was refused"
    )


UP = "rest > 128u || (rest == 128u && (kept & 1u) == 1u)"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(UP, "false", id="toward zero"),
        pytest.param(UP, "rest >= 128u", id="ties away from zero"),
        pytest.param("if (biased < 1) {", "if (biased < 1) { return sign;", id="flush denormals"),
    ],
)
def test_float_arithmetic_that_is_not_ieee_is_refused(
    chromium: BrowserDevice, old: str, new: str
) -> None:
    start = Start(chromium)
    with pytest.raises(AdmissionError, match="The kernel adamw was refused"):
        start.open(["adamw"], patched(softfloat=(old, new)))


def test_no_program_may_use_a_kernel_that_was_not_admitted(chromium: BrowserDevice) -> None:
    player = Start(chromium, packed=1.0, unpacked=2.0).open()
    builder = ProgramBuilder()
    builder.begin("main")
    builder.call("fill", builder.buffer("x", "u32", 8), count=8, bits=0)
    with pytest.raises(AdmissionError, match="The kernel fill was not admitted"):
        asyncio.run(player.load(builder.build()))


def test_an_unpacked_variant_that_does_not_compile_leaves_no_gpu(chromium: BrowserDevice) -> None:
    start = Start(chromium)
    start.device.language_features = frozenset()
    with pytest.raises(CompileError, match="does not compile on this GPU"):
        start.open(read_source=patched(units_unpacked=("fn mul24", "fn mul24 twice")))
    assert start.device.is_destroyed
