"""The simulator of bench/ runs the real protocol, and its bytes are those that were promised."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import cluster_sim


@pytest.mark.parametrize("devices", [1, 2, 5])
def test_bytes_of_a_simulated_step(devices: int) -> None:
    """Everything that the busiest device sends: exchange, frames, messages and heartbeats."""
    layout = cluster_sim.preset_layout("nano")
    ms, megabytes = cluster_sim.ours(layout, devices, compute_ms=1000, mbit=50, delay_ms=5)
    assert megabytes * 1e6 <= 2.1 * layout.elements
    assert megabytes * 1e6 >= 2 * (devices - 1) / devices * layout.elements
    assert 1000 <= ms < 2500


def test_int8_is_faster_than_f32_on_every_link() -> None:
    layout = cluster_sim.preset_layout("nano")
    for mbit, delay_ms in ((10, 40), (500, 5)):
        ours, ring, mesh = (
            exchange(layout, 4, 200, mbit, delay_ms)[0]
            for exchange in (cluster_sim.ours, cluster_sim.ring, cluster_sim.mesh)
        )
        assert ours < ring < mesh


@pytest.mark.parametrize(("compute_ms", "mbit"), [(2_000, 500), (8_000, 50)])
def test_a_third_device_costs_the_others_less_than_a_step(compute_ms: int, mbit: float) -> None:
    """They train on while its state, 109 MB, and their steps come to it over a link of theirs."""
    layout = cluster_sim.preset_layout("small")
    ms, lost = cluster_sim.third(layout, compute_ms, mbit, delay_ms=5)
    assert ms >= 12 * layout.elements / (mbit * 125)
    assert lost <= 1


def test_a_third_device_comes_in_over_a_slow_link() -> None:
    """The state alone takes 87 s, each step of the others 7 s there and 7 s to catch up with."""
    layout = cluster_sim.preset_layout("small")
    ms, lost = cluster_sim.third(layout, 2_000, mbit=10, delay_ms=40)
    assert ms < 600_000
    assert lost < 30
