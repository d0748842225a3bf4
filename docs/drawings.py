"""The drawings of inside.md: `python docs/drawings.py` writes them beside it.

Every drawing is rows of cells with labels. The cells are computed from the example where they can
be, so that a drawing shows what the code does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

CELL, HEIGHT, LABEL, GAP = 30, 26, 150, 10
STYLE = """
rect.page { fill: #ffffff; } text { fill: #24292f; font: 13px ui-monospace, monospace; }
text.label { font: 13px system-ui, sans-serif; fill: #57606a; }
.cell { fill: #f6f8fa; stroke: #afb8c1; } .on { fill: #ddf4ff; stroke: #0969da; }
.new { fill: #dafbe1; stroke: #1a7f37; } .old { fill: #fff8c5; stroke: #bf8700; }
.none { fill: none; stroke: none; }
"""


class Drawing:
    """Rows of cells below each other, as SVG."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.width = 0
        self.y = GAP

    def row(
        self, label: str, cells: Sequence[str], kinds: Iterable[str] = (), size: int = CELL
    ) -> None:
        """One row; `kinds` are the classes of the cells, `cell` if there are no more."""
        middle = self.y + HEIGHT / 2 + 5
        self.parts.append(f'<text class="label" x="{GAP}" y="{middle}">{escape(label)}</text>')
        every = [*kinds, *["cell"] * len(cells)]
        for i, (text, kind) in enumerate(zip(cells, every)):
            x = LABEL + i * size
            box = f'x="{x}" y="{self.y}" width="{size - 2}" height="{HEIGHT}" rx="3"'
            place = f'x="{x + size / 2 - 1}" y="{middle}" text-anchor="middle"'
            self.parts.append(f'<rect class="{kind}" {box}/><text {place}>{escape(text)}</text>')
        self.width = max(self.width, LABEL + len(cells) * size + GAP)
        self.y += HEIGHT + 4

    def space(self) -> None:
        self.y += GAP

    def save(self, name: str, about: str) -> None:
        size = f'width="{self.width}" height="{self.y + GAP}"'
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
            f"<title>{escape(about)}</title><style>{STYLE}</style>"
            f'<rect class="page" width="100%" height="100%" rx="6"/>{"".join(self.parts)}</svg>\n'
        )
        (Path(__file__).parent / name).write_text(svg, encoding="utf-8")


def masks() -> None:
    """Class masks of a text, and the starts of its pieces."""
    text = "The cat's 12 mats"
    letters = [c.isalpha() for c in text]
    digits = [c.isdigit() for c in text]
    spaces = [c == " " for c in text]
    others = [not (a or b or c) for a, b, c in zip(letters, digits, spaces)]
    drawing = Drawing()

    def bits(label: str, mask: Sequence[bool], kind: str = "on") -> None:
        drawing.row(
            label, [str(int(bit)) for bit in mask], [kind if bit else "cell" for bit in mask]
        )

    drawing.row("text", ["␣" if c == " " else c for c in text])
    drawing.space()
    for label, mask in (
        ("letters", letters),
        ("digits", digits),
        ("spaces", spaces),
        ("others", others),
    ):
        bits(label, mask)
    drawing.space()
    same = [
        i > 0 and any(mask[i] and mask[i - 1] for mask in (letters, digits, others))
        for i in range(len(text))
    ]
    after_space = [i > 0 and spaces[i - 1] for i in range(len(text))]
    starts = [not (same[i] or after_space[i]) for i in range(len(text))]
    bits("same class as left", same)
    bits("after a space", after_space)
    bits("neither: a start", starts, "new")
    at = text.index("'")
    starts[at + 1] = False
    bits("and contractions", starts, "new")
    drawing.save(
        "inside-masks.svg", "Bit masks of the classes of characters, and where pieces start"
    )


def slots() -> None:
    """The flat array of pieces before and after a merge."""
    drawing = Drawing()
    drawing.row("pieces and counts", ["newest 6", "widest 3"], ["none", "none"], size=8 * CELL)
    before = [*"|newest|widest|"]
    kinds = ["old" if c in "st" else "cell" for c in before]
    drawing.row("one slot per byte", before, kinds)
    after = [*"|newe", "st", "st", *"|wide", "st", "st", "|"]
    drawing.row("s + t merged", after, ["new" if len(c) == 2 else "cell" for c in after])
    after = [*"|new", "est", "·", "est", *"|wid", "est", "·", "est", "|"]
    drawing.row("e + st merged", after, ["new" if len(c) == 3 else "cell" for c in after])
    drawing.save("inside-slots.svg", "Pieces in one flat array, in which merges replace pairs")


def queue() -> None:
    """Buckets by count, visited from the top down."""
    drawing = Drawing()
    drawing.row("bucket 9", ["es", "st"], ["old", "new"], size=3 * CELL)
    drawing.row("bucket 8", ["we"], size=3 * CELL)
    drawing.row("bucket 7", ["lo", "ow"], size=3 * CELL)
    drawing.row("bucket 6", ["ne", "ew"], size=3 * CELL)
    drawing.space()
    drawing.row("st is merged", ["es: 0, stale"], ["old"], size=5 * CELL)
    drawing.row("a new pair", ["e + st: 9"], ["new"], size=5 * CELL)
    drawing.save("inside-queue.svg", "Pairs in buckets by their count")


def encoder() -> None:
    """The paths of a piece through the encoder."""
    drawing = Drawing()
    wide = 5 * CELL
    drawing.row("text", ["␣the␣tokenizer␣Wörterbücher"], ["cell"], size=3 * wide)
    drawing.row("pieces", ["␣the", "␣tokenizer", "␣Wörterbücher"], size=wide)
    drawing.row("single tokens", ["hit: 1 load", "miss", "miss"], ["new"], size=wide)
    drawing.row("cache of pieces", ["", "hit: its ids", "miss"], ["none", "new"], size=wide)
    drawing.row("merging", ["", "", "16 side by side"], ["none", "none", "old"], size=wide)
    drawing.row("ids", ["262", "11241 7509", "…"], ["on", "on", "on"], size=wide)
    drawing.save("inside-encoder.svg", "A piece is looked up in two tables before it is merged")


if __name__ == "__main__":
    for draw in (masks, slots, queue, encoder):
        draw()
