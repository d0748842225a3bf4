"""Where progress is shown: a terminal, a notebook, a log, JSON lines, the caller's function.

On a terminal and in a notebook one line is redrawn, a log gets a line now and then, a machine
gets JSON lines. Every phase ends with a line of totals. Only the standard library is needed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from ._numbers import duration, size

if TYPE_CHECKING:
    from .progress import ProgressEvent, ProgressOption

__all__ = ["Display", "choose"]

# What is over sooner than this is not worth a line that nobody asked for.
PATIENCE = 0.5
LINE_EVERY = 2.0
JSON_EVERY = 1.0
# The eye needs no more; a terminal over a slow connection would suffer.
REDRAW_EVERY = 0.08


def choose(option: ProgressOption) -> Display | None:
    """The display that `option` means here and now; None if nothing is shown."""
    if callable(option):
        return Display(option)
    if option not in (None, True, False, "terminal", "plain", "json"):
        raise TypeError(
            "progress is None, True, False, 'terminal', 'plain', 'json' or a function, "
            f"not {option!r}"
        )
    # Programs without a console have no stderr at all; the stub of `sys` does not know them.
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
    return None if option is None else _Plain(stream)


def _in_notebook() -> bool:
    # Never imported, only asked if someone else did: a notebook has, and its shell has a kernel.
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if hasattr(module, "get_ipython") else None  # type: ignore[union-attr]
    return getattr(shell, "kernel", None) is not None


# --- displays ---------------------------------------------------------------------------------


# How much of the terminal's last line is a progress line that will be redrawn. There is one
# stderr, so this is one number for all that write to it.
_drawn = 0


def draw_line(stream: TextIO, line: str) -> None:
    """Draws `line` over the progress line; a carriage return and spaces suit any terminal."""
    global _drawn
    write(stream, "\r" + line.ljust(_drawn))
    _drawn = len(line)


def clear_line(stream: TextIO) -> None:
    """Makes room for lines of another kind: progress is drawn again below them."""
    global _drawn
    if _drawn:
        # Two more for a "^C" that the terminal itself wrote.
        write(stream, "\r" + " " * (_drawn + 2) + "\r")
        _drawn = 0


def end_line(stream: TextIO) -> None:
    """Leaves the progress line as it is and starts a new one."""
    global _drawn
    if _drawn:
        write(stream, "\n")
        _drawn = 0


def write(stream: TextIO, text: str) -> None:
    """Writes what must not end hours of work if it fails: a terminal may be closed meanwhile."""
    with contextlib.suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()


class Display:
    """Where events go; by itself, to the caller's function."""

    def __init__(self, call: Callable[[ProgressEvent], None]) -> None:
        self._call = call

    def show(self, event: ProgressEvent) -> None:
        self._call(event)

    def end(self, event: ProgressEvent) -> None:
        """The phase of `event` is over."""

    def drop(self) -> None:
        """The work failed or was interrupted."""


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

    def _draw(self, event: ProgressEvent) -> None:
        write(self._stream, _line(event, width=0) + "\n")

    def _close(self, event: ProgressEvent) -> None:
        write(self._stream, _totals(event) + "\n")


class _Plain(_Written):
    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, LINE_EVERY, LINE_EVERY)
        self._shown = True  # a log gets the totals of short phases too


class _Json(_Written):
    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream, 0.0, JSON_EVERY)

    def _draw(self, event: ProgressEvent, kind: str = "progress") -> None:
        # Microseconds are enough, and shorter to read.
        fields = {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(event).items()}
        write(self._stream, json.dumps({"event": kind} | fields) + "\n")

    def _close(self, event: ProgressEvent) -> None:
        self._draw(event, "finished")
        self._next = 0.0  # the first event of the next phase is shown at once


class _Terminal(_Written):
    """One line that is redrawn."""

    def __init__(self, stream: TextIO, wait: float) -> None:
        super().__init__(stream, wait, REDRAW_EVERY)
        self._bar = _bar_characters(stream)

    def _draw(self, event: ProgressEvent) -> None:
        # Room at the end for the "^C" that the terminal itself writes.
        width = shutil.get_terminal_size().columns - 3
        draw_line(self._stream, _line(event, width, self._bar)[:width])

    def _close(self, event: ProgressEvent) -> None:
        draw_line(self._stream, _totals(event))
        end_line(self._stream)

    def drop(self) -> None:
        clear_line(self._stream)


class _Notebook(_Written):
    """One output that is updated: a notebook shows stderr on red, as if something were wrong."""

    def __init__(self, stream: TextIO, wait: float) -> None:
        super().__init__(stream, wait, 4 * REDRAW_EVERY)
        self._handle: Any = None

    def _draw(self, event: ProgressEvent) -> None:
        self._put(_line(event, 100, "█░"))

    def _close(self, event: ProgressEvent) -> None:
        self._put(_totals(event))
        self._handle = None

    def _put(self, line: str) -> None:
        data = {"text/plain": line}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


# --- lines ------------------------------------------------------------------------------------


# What phases count that do not count bytes.
UNITS = {"merge": "merges", "evaluate": "tokens", "overlap": "tokens", "sweep": "steps"}


def _amount(event: ProgressEvent, n: float) -> str:
    return f"{n:,.0f}" if event.phase in UNITS else size(n)


def _rate(event: ProgressEvent, rate: float) -> str:
    """An amount per second; steps can take longer than that."""
    slow = event.phase in UNITS and rate < 9.95
    return f"{rate:.2g}/s" if slow else f"{_amount(event, rate)}/s"


def _line(event: ProgressEvent, width: int = 0, bar: str = "") -> str:
    """Phase, how much, how fast, how long still; the bar takes what is left of `width`."""
    head = f"{event.phase:6}"
    fields = [_amount(event, event.done)]
    share = None
    if event.total:
        share = min(event.done / event.total, 1.0)
        fields[0] = f"{share:4.0%}  {fields[0]} of {_amount(event, event.total)}"
    fields.append(_rate(event, event.rate))
    if event.eta is not None:
        fields.append(f"{duration(event.eta)} left")
    if event.memory:
        fields.append(f"memory {size(event.memory)}")
    fields.append(f"cpu {event.cpu:.0f}%")
    # On a narrow terminal the last fields give way first.
    while width and len(fields) > 1 and len(head) + 2 + len("  ".join(fields)) > width:
        fields.pop()
    text = "  ".join(fields)
    room = min(width - len(head) - len(text) - 4, 30)
    if bar and share is not None and room >= 8:
        full = round(share * room)
        text = f"{bar[0] * full}{bar[1] * (room - full)}  {text}"
    return f"{head}  {text}"


def _totals(event: ProgressEvent) -> str:
    unit = f" {UNITS[event.phase]}" if event.phase in UNITS else ""
    rate = _rate(event, event.done / max(event.seconds, 1e-9))
    memory = f", memory {size(event.memory)}" if event.memory else ""
    return (
        f"{event.phase:6}  {_amount(event, event.done)}{unit} in {duration(event.seconds)}, "
        f"{rate}{memory}"
    )


def _bar_characters(stream: TextIO) -> str:
    try:
        "█░".encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "#-"
    return "█░"
