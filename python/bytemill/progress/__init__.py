"""Progress of long work: one event, one meter, and a display for each place where it is shown.

Work reports `(phase, done, total)` about ten times a second, or after each training step. The meter
adds rate, time left, memory and CPU use. The display is a line that is redrawn (terminal), an
output that is updated (notebook), an occasional line (log), JSON lines, or the caller's function.
A phase ends with a line of totals. Notes are printed above the line that is redrawn.

Why not tqdm or rich: both need ipywidgets for a bar in a notebook, where HTML and IPython's
`display_id` are enough; neither has JSON lines or log lines, so most of this module would remain;
and the base package would have one more dependency.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal, TypeAlias

from .displays import choose_display, clear_line
from .events import Meter, ProgressEvent, StepReport

__all__ = [
    "Progress",
    "ProgressCallback",
    "ProgressEvent",
    "ProgressOption",
    "StepOption",
    "StepReport",
    "clear_line",
]

ProgressCallback: TypeAlias = "Callable[[str, int, int | None], None]"
ProgressOption: TypeAlias = (
    "bool | Literal['terminal', 'plain', 'json'] | Callable[[ProgressEvent], None] | None"
)
# The progress option of training, whose function receives steps.
StepOption: TypeAlias = "ProgressOption | Callable[[StepReport], None]"


class Progress:
    """Receives reports of long work, measures rates and passes events to a display.

    Leaving the `with` block ends the last phase; an exception removes an unfinished line.

    Args:
        option: None shows progress of work that takes more than a moment: on a terminal or in a
            notebook after half a second, elsewhere as a line every two seconds (ten, after a
            minute). True shows it from the start. False shows nothing. `"terminal"`, `"plain"` and
            `"json"` choose the display (all on stderr). A function receives every event, nothing
            is printed, and an exception it raises stops the work.
    """

    def __init__(self, option: StepOption) -> None:
        self._display = choose_display(option)
        self._meter = Meter()
        self._last: ProgressEvent | None = None

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        """Reports the progress of a phase."""
        if self._display is not None:
            self._show(self._meter.measure(phase, done, total))

    def begin(self, phase: str, done: int = 0) -> None:
        """Starts the clock of a phase that does not directly follow the previous one."""
        self._meter.begin(phase, time.perf_counter(), time.process_time(), done)

    def step(self, step: int, steps: int, *, eta: float, memory: int, **measures: float) -> None:
        """Reports a training step; `measures` are the fields that `StepReport` adds."""
        if self._display is not None:
            fields = asdict(self._meter.measure("train", step, steps))
            self._show(StepReport(**fields | {"eta": eta, "memory": memory} | measures))

    def say(self, text: str) -> None:
        """Prints a note on a line of its own."""
        self.event("note", text, message=text)

    def event(self, kind: str, text: str, **fields: Any) -> None:
        """Reports something that happened: `text` for people, `fields` as JSON."""
        if self._display is not None:
            self._display.note(text, {"event": kind} | fields)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._display is None:
            return
        if kind is not None:
            self._display.drop()
        elif self._last is not None:
            self._display.end(self._last)

    def _show(self, event: ProgressEvent) -> None:
        assert self._display is not None
        if self._last is not None and self._last.phase != event.phase:
            self._display.end(self._last)
        self._last = event
        self._display.show(event)
