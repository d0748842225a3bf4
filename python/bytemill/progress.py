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

import contextlib
import html
import importlib
import json
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TextIO, TypeAlias

from ._numbers import duration, size
from ._system import resident_memory

__all__ = ["Progress", "ProgressEvent", "ProgressOption", "StepOption", "StepReport", "reporter"]

# Rate and CPU use are measured over the last seconds: an average over the whole phase would be
# misleading for merging, where the first merges are by far the slowest.
WINDOW = 5.0
# Seconds before the first line if progress was not requested, and between lines.
PATIENCE = 0.5
REDRAW_EVERY = 0.08  # fast enough for the eye, and bearable on a slow connection
JSON_EVERY = 1.0
LINE_EVERY = 2.0
# After a minute, a log gets a line every 10 s.
LONG_WORK = 60.0
LONG_WORK_LINE_EVERY = 10.0

# Units of phases that do not count bytes.
UNITS = {
    "merge": "merges", "evaluate": "tokens", "overlap": "tokens", "sweep": "steps",
    "train": "steps",
}  # fmt: skip


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProgressEvent:
    """Progress of a phase.

    Attributes:
        phase: `"count"` and then `"merge"` when a tokenizer is trained, `"gather"` in between when
            counts are merged from disk; `"compare"`; `"encode"`, `"shuffle"` if documents are
            shuffled, `"write"` if they are shuffled or on a cluster, and `"verify"` for tokens on
            disk; `"train"`, `"evaluate"`, `"overlap"`, `"sweep"`, `"export"` and `"import"` for
            language models.
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


# --- reporting --------------------------------------------------------------------------------


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
        self._display = _choose(option)
        self._meter = _Meter()
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


reporter = Progress


class _Meter:
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


# --- displays ---------------------------------------------------------------------------------


def _choose(option: StepOption) -> _Display | None:
    """The display for `option`; None if nothing is shown."""
    if callable(option):
        return _Display(option)
    if option not in (None, True, False, "terminal", "plain", "json"):
        raise TypeError(
            "progress must be None, True, False, 'terminal', 'plain', 'json' or a function, "
            f"got {option!r}"
        )
    # Programs without a console have no stderr at all, which the type stub of `sys` ignores.
    stream: TextIO | None = sys.stderr
    if option is False or stream is None:
        return None
    if option == "json":
        return _Json(stream)
    wait = PATIENCE if option is None else 0.0
    if option in (None, True) and _in_notebook():
        return _Notebook(stream, wait)
    redraws = stream.isatty() and os.environ.get("TERM") != "dumb"
    if option == "terminal" or (option != "plain" and redraws):
        return _Terminal(stream, wait)
    return _Log(stream, asked=option is not None)


def _in_notebook() -> bool:
    # Not imported here: in a notebook IPython is loaded already, and its shell has a kernel.
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if hasattr(module, "get_ipython") else None  # type: ignore[union-attr]
    return getattr(shell, "kernel", None) is not None


# How much of the terminal's last line is a progress line that will be redrawn. There is one
# stderr, so this is one number for all that write to it.
_drawn = 0


def _draw_line(stream: TextIO, line: str) -> None:
    """Draws `line` over the progress line; a carriage return and spaces suit any terminal."""
    global _drawn
    _write(stream, "\r" + line.ljust(_drawn))
    _drawn = len(line)


def clear_line(stream: TextIO) -> None:
    """Makes room for lines of another kind: progress is drawn again below them."""
    global _drawn
    if _drawn:
        # Two more for a "^C" that the terminal itself wrote.
        _write(stream, "\r" + " " * (_drawn + 2) + "\r")
        _drawn = 0


def _write(stream: TextIO, text: str) -> None:
    """Writes, ignoring errors: a closed terminal must not end hours of work."""
    with contextlib.suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()


class _Display:
    """Receives events; this base class passes them to the caller's function."""

    def __init__(self, call: Callable[[Any], None]) -> None:
        self._call = call

    def show(self, event: ProgressEvent) -> None:
        self._call(event)

    def end(self, event: ProgressEvent) -> None:
        """The phase of `event` is over."""

    def drop(self) -> None:
        """The work failed or was interrupted."""

    def note(self, text: str, fields: dict[str, Any]) -> None:
        """A line between events; `fields` is the same as JSON."""


class _Written(_Display):
    """A display that writes to a stream, first after `wait` seconds, then every `pause`."""

    def __init__(self, stream: TextIO, wait: float, pause: float) -> None:
        self._stream = stream
        self._pause = pause
        self._next = time.perf_counter() + wait
        self._shown = False

    def show(self, event: ProgressEvent) -> None:
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + self._pause
            self._shown = True
            self._draw(event)

    def end(self, event: ProgressEvent) -> None:
        if self._shown:
            self._close(event)

    def note(self, text: str, fields: dict[str, Any]) -> None:
        clear_line(self._stream)
        _write(self._stream, text + "\n")

    def _draw(self, event: ProgressEvent) -> None:
        _write(self._stream, _line(event) + "\n")

    def _close(self, event: ProgressEvent) -> None:
        _write(self._stream, _totals(event) + "\n")


class _Log(_Written):
    def __init__(self, stream: TextIO, asked: bool) -> None:
        super().__init__(stream, LINE_EVERY, LINE_EVERY)
        self._shown = asked  # the totals of short phases only if the caller asked for progress

    def _draw(self, event: ProgressEvent) -> None:
        super()._draw(event)
        if event.seconds > LONG_WORK:
            self._pause = LONG_WORK_LINE_EVERY


class _Json(_Written):
    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, 0.0, JSON_EVERY)

    def note(self, text: str, fields: dict[str, Any]) -> None:
        _write(self._stream, json.dumps(fields) + "\n")

    def _draw(self, event: ProgressEvent) -> None:
        self.note("", {"event": "progress"} | event.to_json())

    def _close(self, event: ProgressEvent) -> None:
        self.note("", {"event": "finished"} | event.to_json())
        self._next = 0.0  # the first event of the next phase is shown at once


class _Terminal(_Written):
    """One line that is redrawn."""

    def __init__(self, stream: TextIO, wait: float) -> None:
        super().__init__(stream, wait, REDRAW_EVERY)
        self._bar = _bar_characters(stream)

    def _draw(self, event: ProgressEvent) -> None:
        # Room at the end for the "^C" that the terminal itself writes.
        width = shutil.get_terminal_size().columns - 3
        _draw_line(self._stream, _line(event, width, self._bar)[:width])

    def _close(self, event: ProgressEvent) -> None:
        global _drawn
        _draw_line(self._stream, _totals(event))
        _write(self._stream, "\n")
        _drawn = 0

    def drop(self) -> None:
        clear_line(self._stream)


class _Notebook(_Written):
    """One HTML output per phase, updated in place: notebooks show stderr in red, like an error."""

    def __init__(self, stream: TextIO, wait: float) -> None:
        super().__init__(stream, wait, 4 * REDRAW_EVERY)
        self._handle: Any = None
        self._notes: list[str] = []
        self._bar: tuple[str, str] | None = None  # the line as text and as HTML

    def note(self, text: str, fields: dict[str, Any]) -> None:
        self._notes.append(text)
        self._put()

    def _draw(self, event: ProgressEvent) -> None:
        share = _share(event)
        bar = "" if share is None else f'<progress max="1" value="{share:.4f}"></progress> '
        self._bar = _line(event, 100, "█░"), bar + html.escape(_line(event))
        self._put()

    def _close(self, event: ProgressEvent) -> None:
        self._notes.append(_totals(event))
        self._bar = None
        self._put()
        self._handle, self._notes = None, []

    def _put(self) -> None:
        lines, marked = list(self._notes), [html.escape(note) for note in self._notes]
        if self._bar is not None:
            lines.append(self._bar[0])
            marked.append(self._bar[1])
        data = {"text/plain": "\n".join(lines), "text/html": f"<pre>{'<br>'.join(marked)}</pre>"}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


# --- lines ------------------------------------------------------------------------------------


def _amount(event: ProgressEvent, n: float) -> str:
    return f"{n:,.0f}" if event.phase in UNITS else size(n)


def _rate(event: ProgressEvent, rate: float) -> str:
    """An amount per second; steps can take longer than that."""
    slow = event.phase in UNITS and rate < 9.95
    return f"{rate:.2g}/s" if slow else f"{_amount(event, rate)}/s"


def _share(event: ProgressEvent) -> float | None:
    return min(event.done / event.total, 1.0) if event.total else None


def _line(event: ProgressEvent, width: int = 0, bar: str = "") -> str:
    """Phase, amount, rate, time left; the bar fills the rest of `width`."""
    head = f"{event.phase:6}"
    fields = [_amount(event, event.done)]
    share = _share(event)
    if share is not None:
        fields[0] = f"{share:4.0%}  {fields[0]} of {_amount(event, event.total or 0)}"
    if isinstance(event, StepReport):
        fields += [f"loss {event.loss:.3f}", f"lr {event.lr:.2g}"]
        fields += [f"{event.tokens_per_s:,.0f} tokens/s", f"mfu {event.mfu:.0%}"]
    else:
        fields.append(_rate(event, event.rate))
    if event.eta is not None:
        fields.append(f"{duration(event.eta)} left")
    if event.memory:
        fields.append(f"memory {size(event.memory)}")
    if not isinstance(event, StepReport):
        fields.append(f"cpu {event.cpu:.0f}%")
    # On a narrow terminal the last fields are dropped first.
    while width and len(fields) > 1 and len(head) + 2 + len("  ".join(fields)) > width:
        fields.pop()
    text = "  ".join(fields)
    room = min(width - len(head) - len(text) - 4, 30)
    if bar and share is not None and room >= 8:
        full = round(share * room)
        text = f"{bar[0] * full}{bar[1] * (room - full)}  {text}"
    return f"{head}  {text}"


def _totals(event: ProgressEvent) -> str:
    seconds, memory = event.seconds, f", memory {size(event.memory)}" if event.memory else ""
    if isinstance(event, StepReport):  # not "n steps": a resumed run did some of them before
        done = f"step {event.step:,} of {event.steps:,}"
        rate = f"loss {event.loss:.3f}, {event.tokens_per_s:,.0f} tokens/s"
    else:
        done = f"{_amount(event, event.done)} {UNITS.get(event.phase, '')}".rstrip()
        rate = _rate(event, event.done / max(seconds, 1e-9))
    return f"{event.phase:6}  {done} in {duration(seconds)}, {rate}{memory}"


def _bar_characters(stream: TextIO) -> str:
    try:
        "█░".encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "#-"
    return "█░"
