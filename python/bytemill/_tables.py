"""Plain-text tables for the terminal, and the width of text in columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

__all__ = ["columns", "shorten", "table"]


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
