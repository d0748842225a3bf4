"""How progress is shown: on a terminal, in a notebook, in a log, as JSON lines."""

from __future__ import annotations

import contextlib
import html
import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from .._numbers import duration, size
from .events import ProgressEvent, StepReport

__all__ = ["Display", "choose_display", "clear_line"]

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


def choose_display(option: object) -> Display | None:
    """The display for `option`; None if nothing is shown."""
    if callable(option):
        return Display(option)
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


class Display:
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


class _Written(Display):
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
