"""The learning rate as a function of the step alone, so that a resumed run needs no state for it.

Steps count from 0; step 0 is the first update.
"""

from __future__ import annotations

import math
from typing import Literal

from ..errors import ConfigError

__all__ = ["Schedule", "constant_schedule", "cosine_schedule", "learning_rate", "wsd_schedule"]

Schedule = Literal["cosine", "constant", "wsd"]


def cosine_schedule(step: int, max_lr: float, min_lr: float, warmup: int, total: int) -> float:
    """Up in a straight line over `warmup` steps, down half a cosine until `total`, then flat.

    >>> [cosine_schedule(step, 1.0, 0.0, warmup=2, total=6) for step in (0, 1, 2, 4, 6, 9)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """
    if step < warmup:
        return max_lr * step / warmup
    if step >= total:
        return min_lr
    share = (step - warmup) / (total - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * share)) * (max_lr - min_lr)


def constant_schedule(step: int, max_lr: float, warmup: int = 0) -> float:
    """Up over `warmup` steps, then flat."""
    return max_lr * step / warmup if step < warmup else max_lr


def wsd_schedule(
    step: int, max_lr: float, min_lr: float, warmup: int, decay: int, total: int
) -> float:
    """Warm-up, stable, decay: flat until `decay` steps before `total`, then down in a line.

    >>> [wsd_schedule(step, 1.0, 0.0, warmup=2, decay=4, total=10) for step in (1, 2, 6, 8, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return max_lr * step / warmup
    if step >= total:
        return min_lr
    left = total - step
    return max_lr if left >= decay else min_lr + (max_lr - min_lr) * left / decay


def learning_rate(
    schedule: Schedule,
    step: int,
    *,
    max_lr: float,
    min_lr: float,
    warmup: int,
    decay: int,
    total: int,
) -> float:
    """The rate of update number `step` of a run.

    A run's first update is not wasted on a rate of zero: the functions are asked at `step + 1`
    while warming up, and the last update of a run is the one at `total - 1`.
    """
    at = step + 1 if step < warmup else step
    if schedule == "cosine":
        return cosine_schedule(at, max_lr, min_lr, warmup, total)
    if schedule == "wsd":
        return wsd_schedule(at, max_lr, min_lr, warmup, decay, total)
    if schedule == "constant":
        return constant_schedule(at, max_lr, warmup)
    raise ConfigError(f"schedule={schedule!r} is unknown", "known are cosine, constant and wsd")
