"""How a run is shown while it goes: one line redrawn on a terminal, lines in a log, JSON lines."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TextIO, TypeAlias

from .. import displays
from .._numbers import duration, size

__all__ = ["Report", "ReportOption", "StepReport"]

REDRAW_EVERY = 0.1
LINE_EVERY = 5.0


@dataclass(frozen=True)
class StepReport:
    """How far a run is.

    Attributes:
        step: updates done.
        steps: updates in all.
        loss: of this step, on its own batch.
        lr: its learning rate.
        grad_norm: of all gradients, before clipping.
        tokens_per_s: over the last steps.
        mfu: share of the rate of matrix products on this machine.
        eta: seconds left.
        memory: the most bytes so far, of this process or of the GPU.
    """

    step: int
    steps: int
    loss: float
    lr: float
    grad_norm: float
    tokens_per_s: float
    mfu: float
    eta: float
    memory: int


ReportOption: TypeAlias = (
    "bool | Literal['terminal', 'plain', 'json'] | Callable[[StepReport], None] | None"
)


class Report:
    """Where a run says what it does; stderr, or the caller's function.

    Args:
        option: None and True show progress in the form that fits; False nothing at all; the
            names choose a form; a function gets every step, and nothing is written.
    """

    def __init__(self, option: ReportOption) -> None:
        self._call = option if callable(option) else None
        stream: TextIO | None = sys.stderr
        self._stream = None if callable(option) or option is False else stream
        form = option if isinstance(option, str) else None
        if form is None and stream is not None:
            redraws = stream.isatty() and os.environ.get("TERM") != "dumb"
            form = "terminal" if redraws else "plain"
        self._form = form
        self._next = 0.0

    def say(self, text: str) -> None:
        """A line of its own."""
        if self._stream is None:
            return
        if self._form == "json":
            self._write(json.dumps({"event": "note", "message": text}) + "\n")
            return
        displays.clear_line(self._stream)
        self._write(text + "\n")

    def event(self, kind: str, text: str, **fields: Any) -> None:
        """Something that happened: words for people, fields for machines."""
        if self._stream is None:
            return
        if self._form == "json":
            self._write(json.dumps({"event": kind} | fields) + "\n")
        else:
            self.say(text)

    def step(self, report: StepReport) -> None:
        """Another step is done."""
        if self._call is not None:
            self._call(report)
        if self._stream is None:
            return
        now = time.perf_counter()
        if now < self._next and report.step != report.steps:
            return
        self._next = now + (REDRAW_EVERY if self._form == "terminal" else LINE_EVERY)
        if self._form == "json":
            self._write(json.dumps({"event": "progress"} | asdict(report)) + "\n")
        elif self._form == "terminal":
            width = shutil.get_terminal_size().columns - 3
            displays.draw_line(self._stream, _line(report)[:width])
        else:
            self._write(_line(report) + "\n")

    def close(self) -> None:
        """Nothing more comes."""
        if self._stream is not None:
            displays.end_line(self._stream)

    def _write(self, text: str) -> None:
        if self._stream is not None:
            displays.write(self._stream, text)


def _line(report: StepReport) -> str:
    return (
        f"train   {report.step / report.steps:4.0%}  {report.step:,} of {report.steps:,}  "
        f"loss {report.loss:.3f}  lr {report.lr:.2g}  {report.tokens_per_s:,.0f} tokens/s  "
        f"mfu {report.mfu:.0%}  {duration(report.eta)} left  memory {size(report.memory)}"
    )
