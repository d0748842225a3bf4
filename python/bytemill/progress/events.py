"""What is reported: events, and the meter that measures them."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from .._system import resident_memory

__all__ = ["Meter", "ProgressEvent", "StepReport"]

# Seconds over which rate and CPU use are measured: an average over the whole phase would be
# misleading for merging, where the first merges are by far the slowest.
WINDOW = 5.0


@dataclass(frozen=True)
class ProgressEvent:
    """Progress of a phase.

    Attributes:
        phase: `"count"` and then `"merge"` when a tokenizer is trained, `"gather"` in between when
            counts are merged from disk; `"compare"`; `"encode"`, `"shuffle"` if documents are
            shuffled, `"write"` if they are shuffled or on a cluster, and `"verify"` for tokens on
            disk; `"train"`, `"evaluate"`, `"overlap"`, `"sweep"`, `"export"` and `"import"` for
            language models; `"download"` for the vocabulary of an encoding.
        done: bytes of text in the phases `count`, `encode` and `compare`, merges in `merge`, tokens
            in `evaluate`, steps in `train` and `sweep`, bytes of files in the others.
        total: the same for the whole phase; None if unknown. The amount of text in compressed files
            and records is an estimate until the end of the phase.
        seconds: since the phase began.
        rate: `done` per second, over the last few seconds.
        eta: seconds left at this rate; None if the total is unknown or the rate is 0.
        memory: resident bytes of this process; 0 if the system does not report it. In training, the
            peak so far, of this process or of the GPU.
        cpu: CPU use in percent of one core: 195.0 is nearly two cores.
    """

    phase: str
    done: int
    total: int | None
    seconds: float
    rate: float
    eta: float | None
    memory: int
    cpu: float

    def to_json(self) -> dict[str, Any]:
        """The fields, with floats rounded to 6 digits after the point."""
        return {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(self).items()}


@dataclass(frozen=True)
class StepReport(ProgressEvent):
    """A training step, as the event of the phase `"train"`.

    Attributes:
        loss: of this step, on its own batch.
        lr: learning rate.
        grad_norm: of all gradients, before clipping.
        tokens_per_s: over the last steps, without evaluation and checkpoints.
        mfu: model FLOPs utilization: share of this machine's matmul rate.
    """

    loss: float
    lr: float
    grad_norm: float
    tokens_per_s: float
    mfu: float

    @property
    def step(self) -> int:
        """Updates done."""
        return self.done

    @property
    def steps(self) -> int:
        """Updates in total."""
        return self.total or 0

    def to_json(self) -> dict[str, Any]:
        # Learning rates are small: rounding would lose digits.
        return super().to_json() | {"step": self.step, "steps": self.steps, "lr": self.lr}


class Meter:
    """Turns counts into events."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._last = time.perf_counter(), time.process_time()
        # (clock, processor time, done), the oldest at the left
        self._samples: deque[tuple[float, float, int]] = deque()

    def begin(self, phase: str, clock: float, cpu: float, done: int) -> None:
        self._phase, self._began = phase, clock
        self._samples.clear()
        self._samples.append((clock, cpu, done))

    def measure(self, phase: str, done: int, total: int | None) -> ProgressEvent:
        clock, cpu = time.perf_counter(), time.process_time()
        samples = self._samples
        if phase != self._phase:
            # A phase starts at the last report of the previous one, not at its own first report.
            self.begin(phase, *self._last, 0)
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
