"""The tokens of a text, in color: `tokenized`.

Backgrounds alternate by position, so that neighbors always differ and the same text looks the
same every time. Without color, a thin line separates tokens.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .._tables import use_color
from .result import Result, page, token_json, visible

if TYPE_CHECKING:
    from .._native import Special
    from ..tokenizer import Tokenizer

__all__ = ["Span", "TokenizedText", "to_terminal", "tokenized"]

# Pale backgrounds of the 256-color table with black letters: legible on light and dark terminals.
BACKGROUNDS = (153, 157, 229, 217, 183)
SPECIAL = "\x1b[1;97;41m"
DIM = "\x1b[2m"
RESET = "\x1b[0m"
# Separates tokens without color; rare in text.
BAR = "│"


class Span(NamedTuple):
    """One token of a text: its id, its byte range (half-open) and its bytes."""

    id: int
    start: int
    end: int
    token: bytes
    special: bool


@dataclass(frozen=True, repr=False)
class TokenizedText(Result):
    """A text as tokens: the result of `Tokenizer.visualize`.

    Its `repr` is the text in color on a terminal, and with lines between tokens elsewhere.

    Attributes:
        spans: the tokens with their positions; their bytes, concatenated, are the text.
        vocab_size: that of the tokenizer.
        fingerprint: that of the tokenizer.
    """

    spans: list[Span]
    vocab_size: int
    fingerprint: str

    @property
    def n_bytes(self) -> int:
        """The length of the text."""
        return self.spans[-1].end if self.spans else 0

    @property
    def summary(self) -> str:
        """Number of tokens and bytes, and bytes per token."""
        n = len(self.spans)
        mean = f"{self.n_bytes / n:.2f}" if n else "–"
        return f"{n:,} tokens, {self.n_bytes:,} bytes, {mean} bytes per token"

    def to_text(self, *, color: bool = False, ids: bool = False) -> str:
        """The tokens, and the summary on a line of its own."""
        text = "".join(to_terminal(self.spans, color=color, ids=ids))
        if self.spans and not self.spans[-1].token.endswith(b"\n"):
            text += "\n"
        return f"{text}{self.summary}\n"

    def to_json(self) -> dict[str, object]:
        return {
            "tokens": len(self.spans),
            "bytes": self.n_bytes,
            "spans": [
                {"id": span.id, "start": span.start, "end": span.end}
                | token_json(span.id, span.token)
                | {"special": span.special}
                for span in self.spans
            ],
        }

    def to_html(self, *, title: str = "text", ids: bool = False) -> str:
        """A page with the tokens; `ids` shows their ids initially.

        Hovering over a token shows its id and bytes; a checkbox shows all ids.
        """
        return page(title, self._html(ids))

    def _html(self, ids: bool) -> Iterator[str]:
        about = f"vocabulary {self.vocab_size:,}, fingerprint {self.fingerprint[:12]}"
        checked = " checked" if ids else ""
        yield (
            f"<p>{html.escape(self.summary)}; {html.escape(about)}</p>\n"
            f'<input type="checkbox" id="ids"{checked}> <label for="ids">ids</label>\n'
            '<div class="text">'
        )
        for number, span in enumerate(self.spans):
            kind = "s" if span.special else f"c{number % len(BACKGROUNDS)}"
            hint = html.escape(f"id {span.id}: {span.token.hex(' ')}")
            # A newline inside the element keeps the lines of the text.
            text = "\n".join(html.escape(line) for line in _lines(span.token))
            yield f'<span class="{kind}" data-id="{span.id}" title="{hint}">{text}</span>'
        yield "</div>\n"

    def __repr__(self) -> str:
        return self.to_text(color=use_color(sys.stdout)).removesuffix("\n")

    def __str__(self) -> str:
        return repr(self)


def tokenized(
    tokenizer: Tokenizer, text: str | bytes, *, special: Special = "all"
) -> TokenizedText:
    """Cuts `text` into tokens.

    >>> import bytemill
    >>> tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [])
    >>> tokenized(tokenizer, "hi").spans
    [Span(id=104, start=0, end=1, token=b'h', special=False), \
Span(id=105, start=1, end=2, token=b'i', special=False)]
    """
    special_ids = set(tokenizer.special_tokens.values())
    known: dict[int, bytes] = {}
    found: list[Span] = []
    start = 0
    for id in tokenizer.encode(text, special=special):
        token = known.get(id)
        if token is None:
            token = known[id] = tokenizer.token_bytes(id)
        end = start + len(token)
        found.append(Span(id, start, end, token, id in special_ids))
        start = end
    return TokenizedText(found, len(tokenizer), tokenizer.fingerprint)


def to_terminal(spans: Iterable[Span], *, color: bool = True, ids: bool = False) -> Iterator[str]:
    """The tokens as pieces of text to print one after another.

    A newline is shown as a sign and also printed, so that the text keeps its lines.
    """
    at_start = True  # the start of a row needs no separator
    for number, span in enumerate(spans):
        rows = _lines(span.token)
        # Nothing follows the last newline: the id is printed before it, with its token.
        ends_row = len(rows) > 1 and not rows[-1]
        if ends_row:
            rows.pop()
        if color:
            style = SPECIAL if span.special else _style(number)
            # The color ends before each newline, or it would fill the rest of the row.
            rows = [f"{style}{row}{RESET}" for row in rows]
        bar = "" if color or at_start else BAR
        id = ""
        if ids:
            id = f"{DIM}{span.id}{RESET} " if color else f"⟨{span.id}⟩"
        yield bar + "\n".join(rows) + id + ("\n" if ends_row else "")
        at_start = ends_row


def _style(number: int) -> str:
    return f"\x1b[38;5;16;48;5;{BACKGROUNDS[number % len(BACKGROUNDS)]}m"


def _lines(token: bytes) -> list[str]:
    """`token` made visible, cut after each newline; the last part may be empty."""
    if b"\n" not in token:
        return [visible(token)]
    *lines, last = token.split(b"\n")
    return [*(visible(line + b"\n") for line in lines), visible(last)]
