"""Text on a terminal: tables, width in columns, whether to use color."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TextIO

__all__ = ["columns", "shorten", "table", "use_color"]


def table(align: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns under a head, each flush as its letter in `align` says: `l` left, `r` right."""
    lines = [head, *rows]
    widths = [max(map(columns, cells)) for cells in zip(*lines)]
    text = ""
    for line in lines:
        cells = []
        for side, cell, width in zip(align, line, widths):
            space = " " * (width - columns(cell))
            cells.append(cell + space if side == "l" else space + cell)
        text += "  ".join(cells).rstrip() + "\n"
    return text


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def shorten(text: str, width: int) -> str:
    """`text`, or its beginning with an ellipsis, in at most `width` columns."""
    if columns(text) <= width:
        return text
    used = 0
    for number, char in enumerate(text):
        used += columns(char)
        if used > width - 1:
            return text[:number] + "…"
    return text


def use_color(stream: TextIO) -> bool:
    """Whether to use color: on a terminal, without NO_COLOR (https://no-color.org)."""
    declined = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not declined and stream.isatty()
