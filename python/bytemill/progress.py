"""Progress of long work, measured once and shown in the way that fits where it goes.

The core calls `report(phase, done, total)` some ten times a second. A meter adds rate, time left,
memory and processor use; a display (see `displays`) shows the event, or the caller's own function
gets it.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from . import displays
from ._system import resident_memory

__all__ = ["ProgressEvent", "ProgressOption", "reporter"]

# Rate and processor use are of the last seconds: an average since the beginning would mislead in
# the merge phase, whose first merges are by far the slowest.
WINDOW = 5.0


@dataclass(frozen=True)
class ProgressEvent:
    """How far a phase has come.

    Attributes:
        phase: `"count"` and then `"merge"` when a tokenizer is learnt, `"gather"` in between when
            counts are merged from disk, `"compare"`; `"encode"`, then `"shuffle"` if
            documents are shuffled, then `"write"` if they are or on a cluster, and `"verify"` for
            tokens on disk;
            `"evaluate"`, `"overlap"`, `"sweep"`, `"export"` and `"import"` of language models.
        done: bytes of text in the phases `count`, `encode` and `compare`, merges in `merge`, tokens
            when models are evaluated, steps in sweeps, bytes of files in the others.
        total: the same for the whole phase; None if it is not known. How much text compressed files
            and records hold is estimated from what was read so far, and exact at the end.
        seconds: since the phase began.
        rate: `done` per second, over the last few seconds.
        eta: seconds left at this rate; None if the total is not known or nothing moves.
        memory: resident bytes of this process; 0 if the system does not say.
        cpu: processor use in percent of one core: 195.0 is nearly two cores.
    """

    phase: str
    done: int
    total: int | None
    seconds: float
    rate: float
    eta: float | None
    memory: int
    cpu: float


Report: TypeAlias = "Callable[[str, int, int | None], None]"
ProgressOption: TypeAlias = (
    "bool | Literal['terminal', 'plain', 'json'] | Callable[[ProgressEvent], None] | None"
)


@contextlib.contextmanager
def reporter(option: ProgressOption) -> Iterator[Report]:
    """Gives the function to which long work reports.

    Args:
        option: None shows progress on a terminal or in a notebook, once the work has taken half a
            second; True always shows it, as plain lines elsewhere; False never; `"terminal"`,
            `"plain"` and `"json"` choose the form (all on stderr); a function gets every event,
            and what it raises ends the work.
    """
    display = displays.choose(option)
    meter = _Meter()
    last: ProgressEvent | None = None

    def report(phase: str, done: int, total: int | None) -> None:
        nonlocal last
        if display is None:
            return
        event = meter.measure(phase, done, total)
        if last is not None and last.phase != phase:
            display.end(last)
        last = event
        display.show(event)

    try:
        yield report
    except BaseException:
        if display is not None:
            display.drop()
        raise
    if display is not None and last is not None:
        display.end(last)


class _Meter:
    """Turns counts into events."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._last = time.perf_counter(), time.process_time()
        self._began = self._last[0]
        # (clock, processor time, done), the oldest at the left
        self._samples: deque[tuple[float, float, int]] = deque()

    def measure(self, phase: str, done: int, total: int | None) -> ProgressEvent:
        clock, cpu = time.perf_counter(), time.process_time()
        samples = self._samples
        if phase != self._phase:
            # A phase begins where the one before was last heard of, not at its own first report.
            self._phase, self._began = phase, self._last[0]
            samples.clear()
            samples.append((*self._last, 0))
        self._last = clock, cpu
        while len(samples) > 1 and samples[1][0] <= clock - WINDOW:
            samples.popleft()
        passed = max(clock - samples[0][0], 1e-9)
        rate = (done - samples[0][2]) / passed
        busy = 100 * (cpu - samples[0][1]) / passed
        samples.append((clock, cpu, done))
        eta = (total - done) / rate if total is not None and rate > 0 else None
        return ProgressEvent(
            phase, done, total, clock - self._began, rate, eta, resident_memory(), busy
        )
