"""A vocabulary as a page of HTML: statistics, the longest tokens, and every token.

`facts` and `lengths` are the statistics as text, for the terminal too.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .inspection import Statistics, visible
from .rendering import page_end, page_start

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = ["facts", "lengths", "to_html"]

# Ids in one part of the list of tokens. Parts are closed at first: a browser lays out 200,000 rows
# only as they are opened.
PART = 1000
BAR_WIDTH = 40


def facts(found: Statistics) -> Iterator[tuple[str, str]]:
    """What a vocabulary holds, as labels and values; a label that is empty goes on the last one."""
    n_tokens = max(sum(found.lengths.values()), 1)

    def share(n: int) -> str:
        return f"{n:,} ({n / n_tokens:.1%})"

    yield "vocabulary", f"{found.vocab_size:,} ids"
    yield "merges", f"{found.n_merges:,}"
    for number, (text, id) in enumerate(found.special_tokens.items()):
        yield "" if number else "special tokens", f"{visible(text.encode())} = {id}"
    for number, stage in enumerate(found.pattern):
        yield "" if number else "pattern", stage
    yield "fingerprint", found.fingerprint
    yield "mean length", f"{found.mean_length:.2f} bytes"
    yield "leading space", share(found.leading_space)
    yield "white space", share(found.white_space)
    yield "digits", share(found.digits)
    yield "parts of chars", share(found.not_utf8)
    ids = found.unreachable
    first = f": {', '.join(map(str, ids[:8]))}{', …' if len(ids) > 8 else ''}" if ids else ""
    yield "unreachable", share(len(ids)) + first
    scripts = list(found.scripts.items())
    shown = ", ".join(f"{name} {n:,}" for name, n in scripts[:8])
    yield "scripts", f"{shown}{', …' if len(scripts) > 8 else ''}"


def lengths(found: Statistics) -> Iterator[tuple[str, str, str]]:
    """Length in bytes, number of tokens, bar: up to 16 one by one, then in doubling ranges."""
    groups: dict[str, int] = {}
    for length, n in found.lengths.items():
        low = 1 << ((length - 1).bit_length() - 1) if length > 16 else 0
        label = f"{low + 1}–{2 * low}" if length > 16 else str(length)
        groups[label] = groups.get(label, 0) + n
    most = max(found.lengths.values(), default=1)
    for label, n in groups.items():
        yield label, f"{n:,}", "▇" * max(round(BAR_WIDTH * n / most), 1)


def to_html(tokenizer: Tokenizer, found: Statistics, *, title: str = "bytemill") -> Iterator[str]:
    """A page that shows the vocabulary, part by part: no scripts, nothing loaded from elsewhere."""
    yield page_start(title)
    yield _table("facts", (), facts(found))
    yield "<h2>Lengths</h2>\n"
    yield _table("numbers", ("bytes", "tokens", ""), lengths(found))
    if found.longest:
        yield "<h2>Longest tokens</h2>\n"
        rows = ((str(id), str(len(token)), visible(token)) for id, token in found.longest)
        yield _table("tokens", ("id", "bytes", "token"), rows)
    yield "<h2>All tokens</h2>\n"
    special, unreachable = set(found.special_tokens.values()), set(found.unreachable)
    tokens = list(tokenizer.vocab.items())
    for start in range(0, len(tokens), PART):
        part = tokens[start : start + PART]
        rows_of_part = (
            (
                str(id),
                str(len(token)),
                visible(token),
                token.hex(" "),
                "special" if id in special else "unreachable" if id in unreachable else "",
            )
            for id, token in part
        )
        yield f"<details>\n<summary>{part[0][0]:,}–{part[-1][0]:,}</summary>\n"
        yield _table("tokens", ("id", "bytes", "token", "hex", ""), rows_of_part)
        yield "</details>\n"
    yield page_end()


def _table(kind: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Rows of text as a table; the classes of the style say which columns are numbers."""
    lines = [
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
        for tag, cells in [("th", head), *(("td", row) for row in rows)]
    ]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines if line)
    return f'<table class="{kind}">\n{body}</table>\n'
