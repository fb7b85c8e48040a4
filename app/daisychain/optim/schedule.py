"""The scalars of one optimizer step: learning rate, bias corrections, clipping.

The leader of a room computes them once, in binary64, and sends them as binary32 bits.  ``cos`` and
powers come from exact rational arithmetic, not from libm, so every leader gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ldexp, sqrt

from daisychain.numbers.tables import half_cosine

BETA_1, BETA_2 = Fraction(9, 10), Fraction(19, 20)
CLIP_NORM = 1.0


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up over ``warmup`` steps, then a cosine from ``lr`` to a tenth of it."""

    lr: float
    steps: int
    warmup: int

    def learning_rate(self, step: int) -> float:
        """For the update after ``step`` (counted from 0)."""
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return self.lr * rise * (0.1 + 0.9 * half_cosine(min(step, self.steps), self.steps))


@dataclass(frozen=True)
class OptimizerScalars:
    """What kernel ``adamw`` reads from the step words, before rounding to binary32."""

    lr: float
    bias_1: float
    bias_2: float
    clip: float


def optimizer_scalars(
    schedule: Schedule, step: int, gradient_norm: float, tokens: int
) -> OptimizerScalars:
    """For the update after ``step``.

    ``gradient_norm`` is that of the gradient of the SUM of losses over ``tokens``; the division
    by the tokens rides in ``clip``.
    """
    return OptimizerScalars(
        schedule.learning_rate(step),
        _bias_correction(BETA_1, step + 1),
        _bias_correction(BETA_2, step + 1),
        min(1.0, CLIP_NORM / (gradient_norm / tokens + 1e-9)) / tokens,
    )


def _bias_correction(beta: Fraction, t: int) -> float:
    """1 / (1 - beta^t), correctly rounded; 1 once beta^t is below 2^-60."""
    return 1.0 if t > 2000 else float(1 / (1 - beta**t))


def gradient_norm(squares: list[tuple[int, int]]) -> float:
    """From exact (sum of squares, exponent) a tensor: sqrt(sum of n * 2^e)."""
    present = [(n, e) for n, e in squares if n]
    if not present:
        return 0.0
    low = min(e for _, e in present)
    total = sum(n << (e - low) for n, e in present)
    if low & 1:
        total, low = total << 1, low - 1
    return ldexp(sqrt(total), low // 2)
