"""What keeps an eye on a run: its loss, its clock, and the person at the terminal."""

from __future__ import annotations

import math
import signal
import time
from contextlib import suppress
from types import FrameType
from typing import Any

__all__ = ["Clock", "Stop", "Watch"]

# A loss this far above its best, for this many steps, does not come back by itself.
DIVERGED_BY = 1.5
DIVERGED_FOR = 50


class Watch:
    """Tells when a loss has left for good.

    Args:
        patience: steps that it may be far above its best.
    """

    def __init__(self, patience: int = DIVERGED_FOR) -> None:
        self.patience = patience
        self.mean: float | None = None
        self.lowest = math.inf
        self.above = 0

    def __call__(self, loss: float) -> str | None:
        if not math.isfinite(loss):
            return None
        self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss
        self.lowest = min(self.lowest, self.mean)
        self.above = self.above + 1 if self.mean > self.lowest + DIVERGED_BY else 0
        if self.above < self.patience:
            return None
        return (
            f"the loss diverges: about {self.mean:.2f} for {self.above} steps, "
            f"after {self.lowest:.2f}"
        )


class Clock:
    """Seconds of a step, smoothed; a pause of the whole machine counts once."""

    def __init__(self) -> None:
        self._began = self.last = 0.0
        self._mean: float | None = None

    def begin(self) -> None:
        self._began = time.perf_counter()

    def end(self) -> float:
        self.last = passed = time.perf_counter() - self._began
        self._mean = passed if self._mean is None else 0.8 * self._mean + 0.2 * passed
        return max(self._mean, 1e-9)


class Stop:
    """Ctrl-C ends a run at the end of a step, with a checkpoint; a second time, at once."""

    def __init__(self, enabled: bool) -> None:
        self.enabled, self.asked = enabled, False
        self._before: Any = None

    def __enter__(self) -> Stop:
        # Only the main thread may, and a caller who ignores Ctrl-C shall go on doing so.
        with suppress(ValueError):
            if self.enabled and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
