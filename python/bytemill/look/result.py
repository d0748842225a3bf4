"""The base class of results: text, JSON and HTML.

`inspect`, `compare` and both kinds of `report` return a `Result`. The command line and notebooks
only call `to_text`, `to_json` and `to_html`. Pages share one layout and one style. They are
self-contained: no scripts, nothing loaded from elsewhere.
"""

from __future__ import annotations

import html
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from . import charts

__all__ = ["Result", "html_table", "page", "readable", "token_json", "visible"]


class Result(ABC):
    """A result to print, store or show in a browser."""

    @abstractmethod
    def to_text(self) -> str:
        """For a terminal or a log; ends with a newline."""

    @abstractmethod
    def to_json(self) -> dict[str, object]:
        """As plain data, for `json.dumps`."""

    @abstractmethod
    def to_html(self, *, title: str = "bytemill") -> str:
        """A complete page."""

    def __str__(self) -> str:
        return self.to_text().removesuffix("\n")

    def _repr_html_(self) -> str:
        # A frame isolates the style of the page from that of the notebook.
        return (
            '<iframe style="width: 100%; height: 24rem; border: 0" '
            f'srcdoc="{html.escape(self.to_html())}"></iframe>'
        )


# --- pages ------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --page: #ffffff; --dim: #5f5f66;
  --line: #e2e2e6; --special: #b3261e;
  --c0: #cfe3ff; --c1: #d3f2d3; --c2: #fff0b8; --c3: #ffd9d6; --c4: #e6dbff; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e8e8ea; --page: #17181a;
  --dim: #a3a3aa; --line: #33353a; --special: #c4473d;
  --c0: #1d3f6b; --c1: #1f4d2b; --c2: #574600; --c3: #66302c; --c4: #45306e; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; background: var(--page);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.3rem; }
h3 { font-size: 1rem; margin-bottom: 0.3rem; overflow-wrap: anywhere; }
p, label { color: var(--dim); max-width: 46rem; }
summary { cursor: pointer; }
.scroll { overflow-x: auto; }
.side { display: grid; gap: 1rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); }
table { border-collapse: collapse; margin: 0.5rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.2rem 0.8rem 0.2rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: normal; }
.left { text-align: left; overflow-wrap: anywhere; min-width: 8rem; }
td.code, code { font: 0.9em ui-monospace, Menlo, Consolas, monospace; }
.code { text-align: left; overflow-wrap: anywhere; }
.best { font-weight: bold; }
code span { background: var(--c0); border-radius: 0.2rem; }
code span:nth-child(even) { background: var(--c2); }
.text { margin-top: 1rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 0.95rem/1.9 ui-monospace, Menlo, Consolas, monospace; }
.text span { border-radius: 0.2rem; padding: 0.1rem 0; }
.text span:hover { outline: 2px solid var(--ink); }
.c0 { background: var(--c0); } .c1 { background: var(--c1); } .c2 { background: var(--c2); }
.c3 { background: var(--c3); } .c4 { background: var(--c4); }
.text .s { background: var(--special); color: #fff; font-weight: bold; }
#ids:checked ~ .text span::after { content: attr(data-id); color: var(--dim);
  font-size: 0.7em; margin: 0 0.4em 0 0.15em; vertical-align: sub; }
.figures { display: grid; gap: 0.8rem; margin: 1rem 0; padding: 0;
  grid-template-columns: repeat(auto-fit, minmax(min(10.5rem, 44%), 1fr)); }
.figures div { border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.5rem 0.7rem; }
.figures dt, .figures dd.note { color: var(--dim); font-size: 0.85rem; }
.figures dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
pre { background: color-mix(in srgb, var(--line) 40%, var(--page)); border-radius: 0.4rem;
  margin: 0.4rem 0; padding: 0.5rem 0.7rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 0.85rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
pre i { color: var(--dim); font-style: normal; }
@media print { body { margin: 0; max-width: none; print-color-adjust: exact; }
  h2, h3 { break-after: avoid; } svg, pre, tr, .figures div { break-inside: avoid; } }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """A page with this title and these parts, which are HTML already."""
    name = html.escape(title)
    start = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{STYLE}{charts.STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{name}</h1>\n"
    )
    return "".join([start, *parts, "</body>\n</html>\n"])


_SIDES = {"l": ' class="left"', "c": ' class="code"', "r": ""}


def html_table(align: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of HTML cells below a head of plain text, which may be empty.

    `align` has a letter per column: `l` left, `r` right, `c` code.
    """

    def line(cells: Iterable[str], tag: str) -> str:
        return "".join(f"<{tag}{_SIDES[side]}>{cell}</{tag}>" for cell, side in zip(cells, align))

    top = f"<tr>{line(map(html.escape, head), 'th')}</tr>\n" if head else ""
    body = "".join(f"<tr>{line(row, 'td')}</tr>\n" for row in rows)
    return f'<div class="scroll"><table>{top}{body}</table></div>\n'


# --- tokens -----------------------------------------------------------------------------------


def token_json(id: int, token: bytes) -> dict[str, object]:
    """A token as plain data; its text has U+FFFD for bytes that are not UTF-8."""
    return {"id": id, "hex": token.hex(), "text": token.decode("utf-8", "replace")}


# White space and control characters → a sign one column wide.
SIGNS = {" ": "·", "\t": "→", "\n": "↵", "\r": "␍"}
# Control, format, surrogate, private and unassigned characters, separators: invisible, or
# able to move the cursor or change the writing direction.
HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))


def visible(token: bytes) -> str:
    """`token` as text without invisible characters: safe to print on any terminal.

    Spaces are `·`, tabs `→`, newlines `↵`, bytes that are not UTF-8 `‹e2›`, other invisible
    characters `‹U+200B›`; a leading combining mark is put on `◌`.

    >>> visible(b" caf\\xc3\\xa9\\n"), visible(b"\\xe2\\x80"), visible(b"\\x1b[2J")
    ('·café↵', '‹e2›‹80›', '‹U+001B›[2J')
    """
    signs = "".join(_signs(token))
    if signs and unicodedata.category(signs[0]) in ("Mn", "Me", "Mc"):
        signs = "◌" + signs
    return signs


def readable(text: str) -> str:
    """`text` with its spaces, tabs and newlines; other invisible characters as in `visible`.

    >>> readable("a\\tb\\n\\x1b[2J")
    'a\\tb\\n‹U+001B›[2J'
    """
    return "".join(
        char
        if char in " \t\n" or unicodedata.category(char) not in HIDDEN
        else f"‹U+{ord(char):04X}›"
        for char in text
    )


def _signs(token: bytes) -> Iterator[str]:
    # Invalid bytes decode to lone surrogates U+DC80–U+DCFF, which valid UTF-8 never gives.
    for char in token.decode("utf-8", "surrogateescape"):
        if char in SIGNS:
            yield SIGNS[char]
        elif "\udc80" <= char <= "\udcff":
            yield f"‹{ord(char) - 0xDC00:02x}›"
        elif unicodedata.category(char) in HIDDEN:
            yield f"‹U+{ord(char):04X}›"
        else:
            yield char
