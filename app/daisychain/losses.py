"""How often a run's device was lost, and with which one it goes on."""

from __future__ import annotations

from daisychain.errors import DeviceError, DeviceLost

MAX_LOSSES = 3
"""So often a device is opened again."""

FORGIVEN_AFTER_STEPS = 100
"""A loss counts no more after so many good steps: a laptop may lose its GPU whenever it sleeps, and
that says nothing of the GPU."""


class Losses:
    """``total`` of the run; ``recent`` are those that count."""

    def __init__(self) -> None:
        self.total = self.recent = 0
        self._last_step = 0

    def count(self, loss: DeviceLost, step: int) -> None:
        """One more, after ``step``; raises DeviceError if that is too often."""
        if step - self._last_step >= FORGIVEN_AFTER_STEPS:
            self.recent = 0
        self._last_step = step
        self.total += 1
        self.recent += 1
        if self.recent > MAX_LOSSES:
            raise DeviceError(
                f"The player was lost {self.recent} times in a short time.",
                "The driver or the browser keeps withdrawing it, perhaps for want of memory.",
                "Choose a smaller preset, close other tabs and programs, or train on the CPU.",
            ) from loss


def preference_after(losses: int, preference: str) -> str:
    """The player to open after so many recent losses: one may be chance, two are not."""
    return preference if losses <= 1 else "wasm"
