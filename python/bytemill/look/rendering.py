"""Tokens in colour: for the terminal, and as a page of HTML that needs nothing else.

Backgrounds alternate by position, so that neighbours always differ and the same text looks the
same every time. Without colour a thin line stands between tokens.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from .inspection import Span, visible

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = ["page_end", "page_start", "summary", "to_html", "to_terminal"]

# Pale backgrounds of the 256-colour table with black letters: legible on light and dark terminals.
BACKGROUNDS = (153, 157, 229, 217, 183)
SPECIAL = "\x1b[1;97;41m"
DIM = "\x1b[2m"
RESET = "\x1b[0m"
# Between tokens where there is no colour; not a character that text often holds.
BAR = "│"


def summary(spans: Sequence[Span]) -> str:
    """How many tokens and bytes, and how many bytes a token holds."""
    n_bytes = spans[-1].end if spans else 0
    mean = f"{n_bytes / len(spans):.2f}" if spans else "–"
    return f"{len(spans):,} tokens, {n_bytes:,} bytes, {mean} bytes per token"


def to_terminal(spans: Iterable[Span], *, color: bool = True, ids: bool = False) -> Iterator[str]:
    """The tokens as pieces of text to print one after another.

    A newline is shown and also made, so that the text keeps its lines.
    """
    at_start = True  # of a row, where no bar belongs
    for number, span in enumerate(spans):
        rows = _lines(span.token)
        # Nothing after the last newline: the id stands before that, with its token.
        ends_row = len(rows) > 1 and not rows[-1]
        if ends_row:
            rows.pop()
        if color:
            style = SPECIAL if span.special else _style(number)
            # The colour ends before each newline, or it would fill the rest of the row.
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


STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --page: #ffffff; --dim: #6b6b70;
  --c0: #cfe3ff; --c1: #d3f2d3; --c2: #fff0b8; --c3: #ffd9d6; --c4: #e6dbff; --special: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ea; --page: #17181a; --dim: #9a9aa0;
  --c0: #1d3f6b; --c1: #1f4d2b; --c2: #574600; --c3: #66302c; --c4: #45306e; --special: #c4473d; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--page);
  color: var(--ink); font: 1rem/1.6 system-ui, sans-serif; }
h1 { font-size: 1.2rem; margin: 0; overflow-wrap: anywhere; }
p, label { color: var(--dim); }
.text { margin-top: 1rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 0.95rem/1.9 ui-monospace, Menlo, Consolas, monospace; }
.text span { border-radius: 0.2rem; padding: 0.1rem 0; }
.text span:hover { outline: 2px solid var(--ink); }
.c0 { background: var(--c0); } .c1 { background: var(--c1); } .c2 { background: var(--c2); }
.c3 { background: var(--c3); } .c4 { background: var(--c4); }
.text .s { background: var(--special); color: #fff; font-weight: bold; }
h2 { font-size: 1rem; margin: 1.5rem 0 0.3rem; }
table { border-collapse: collapse; font-size: 0.9rem; }
th { color: var(--dim); font-weight: normal; text-align: left; }
th, td { padding: 0.1rem 1rem 0.1rem 0; vertical-align: top; overflow-wrap: anywhere; }
.facts td:first-child { white-space: nowrap; }
.facts td:first-child, .tokens td:nth-child(n+4) { color: var(--dim); }
.tokens td:nth-child(-n+2), .numbers td:nth-child(-n+2), .tokens th:nth-child(-n+2),
.numbers th:nth-child(-n+2) { text-align: right; white-space: nowrap; }
.tokens td:nth-child(n+3) { font-family: ui-monospace, Menlo, Consolas, monospace; }
.numbers td:last-child { color: var(--c4); }
summary { cursor: pointer; }
#ids:checked ~ .text span::after { content: attr(data-id); color: var(--dim);
  font-size: 0.7em; margin: 0 0.4em 0 0.15em; vertical-align: sub; }
"""


def to_html(
    tokenizer: Tokenizer, spans: Sequence[Span], *, title: str = "bytemill", ids: bool = False
) -> Iterator[str]:
    """A page that shows the tokens, part by part: no scripts, nothing loaded from elsewhere.

    Pointing at a token shows its id and its bytes; a box switches the ids on for all.
    """
    about = f"vocabulary {len(tokenizer):,}, fingerprint {tokenizer.fingerprint[:12]}"
    checked = " checked" if ids else ""
    yield (
        f"{page_start(title)}<p>{html.escape(summary(spans))}; {html.escape(about)}</p>\n"
        f'<input type="checkbox" id="ids"{checked}> <label for="ids">ids</label>\n'
        '<div class="text">'
    )
    for number, span in enumerate(spans):
        kind = "s" if span.special else f"c{number % len(BACKGROUNDS)}"
        hint = html.escape(f"id {span.id}: {span.token.hex(' ')}")
        # A newline inside the element keeps the lines of the text.
        text = "\n".join(html.escape(line) for line in _lines(span.token))
        yield f'<span class="{kind}" data-id="{span.id}" title="{hint}">{text}</span>'
    yield "</div>\n" + page_end()


def page_start(title: str) -> str:
    """A page up to and including its title."""
    name = html.escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
    )


def page_end() -> str:
    """What `page_start` opened, closed."""
    return "</body>\n</html>\n"
