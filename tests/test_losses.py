"""Losses of a device: few are borne, those of long ago are forgiven."""

from __future__ import annotations

import pytest

from daisychain.errors import DeviceError, DeviceLost
from daisychain.losses import FORGIVEN_AFTER_STEPS, MAX_LOSSES, Losses, preference_after

LOSS = DeviceLost("The GPU is gone.")


def test_the_second_loss_in_a_short_time_leads_to_the_cpu_and_many_end_the_run() -> None:
    losses, preferences = Losses(), []
    for _ in range(MAX_LOSSES):
        losses.count(LOSS, 7)
        preferences.append(preference_after(losses.recent, "webgpu"))
    assert preferences == ["webgpu", "wasm", "wasm"]
    with pytest.raises(DeviceError, match="lost 4 times") as told:
        losses.count(LOSS, 7 + FORGIVEN_AFTER_STEPS - 1)
    assert told.value.__cause__ is LOSS


def test_a_loss_is_forgiven_after_many_good_steps() -> None:
    losses = Losses()
    for loss in range(2 * MAX_LOSSES):
        losses.count(LOSS, loss * FORGIVEN_AFTER_STEPS)
        assert preference_after(losses.recent, "webgpu") == "webgpu"
    assert losses.total == 2 * MAX_LOSSES
