"""Where tokenizers differ, and where they do badly: stretches of text, and passages."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Difference", "Differences", "Ends", "Passage", "passages", "worst_of"]

# For each tokenizer, whether a token of it ends here.
Ends = npt.NDArray[np.bool_]

# Distinct differences held at once; when there are more, the rarer half is forgotten.
HELD = 50_000
# A passage is lines, together about this long: single lines say too little.
PASSAGE = 400


@dataclass(frozen=True)
class Difference:
    """A stretch of text that the tokenizers cut differently.

    Attributes:
        text: the stretch, from one common boundary to the next, in whole characters.
        count: how often it came in what was examined (at least, where very many differ).
        cuts: the tokens of each tokenizer where it came first.
    """

    text: bytes
    count: int
    cuts: tuple[tuple[bytes, ...], ...]


@dataclass(frozen=True)
class Passage:
    """Some lines of the corpus on which a tokenizer does badly.

    Attributes:
        source: the file, or the number of the text.
        offset: where in it, in bytes.
        n_bytes: how long it is.
        tokens: tokens of each tokenizer.
        text: its beginning.
    """

    source: str
    offset: int
    n_bytes: int
    tokens: tuple[int, ...]
    text: bytes


class Differences:
    """Counts the stretches that are cut differently."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[int, tuple[tuple[bytes, ...], ...]]] = {}

    def add(self, data: bytes, ends: Ends, common: Ends, every: Ends) -> None:
        # A common end within a character is no bound: half characters would tell nobody anything.
        whole = np.append(np.frombuffer(data, np.uint8) & 0xC0 != 0x80, True)
        bounds = np.concatenate(([0], np.flatnonzero(common & whole)))
        # An end that not all have lies inside exactly one stretch.
        inside = np.unique(np.searchsorted(bounds, np.flatnonzero(every & ~common)))
        for start, end in zip(bounds[inside - 1].tolist(), bounds[inside].tolist()):
            text = data[start:end]
            count, cuts = self._found.get(text) or (0, _tokens(data, ends, start, end))
            self._found[text] = (count + 1, cuts)
        if len(self._found) > HELD:
            by_count = sorted(self._found.items(), key=lambda item: -item[1][0])
            self._found = dict(by_count[: HELD // 2])

    def most(self, n: int) -> list[Difference]:
        # Of equal counts the lesser text, so that the order does not depend on chance.
        items = heapq.nsmallest(n, self._found.items(), key=lambda item: (-item[1][0], item[0]))
        return [Difference(text, count, cuts) for text, (count, cuts) in items]


def _tokens(data: bytes, ends: Ends, start: int, end: int) -> tuple[tuple[bytes, ...], ...]:
    """The tokens of each tokenizer between two common ends."""
    found = []
    for row in ends[:, start + 1 : end + 1]:
        bounds = [start, *(start + 1 + np.flatnonzero(row)).tolist()]
        found.append(tuple(data[a:b] for a, b in zip(bounds, bounds[1:])))
    return tuple(found)


def passages(source: str, offset: int, data: bytes, ends: Ends) -> list[Passage]:
    """`data` in passages that end with a line; a rest at the end is left out."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    wanted = np.searchsorted(newlines, np.arange(PASSAGE, len(data), PASSAGE))
    bounds = np.unique(newlines[wanted[wanted < len(newlines)]])
    bounds = np.concatenate(([0], bounds)) if len(bounds) else np.array([0, len(data)])
    # A token that straddles two passages counts where it ends.
    sums = np.cumsum(ends, axis=1)
    counts = np.diff(sums[:, bounds], axis=1).T.tolist()
    places = bounds.tolist()
    return [
        Passage(source, offset + a, b - a, tuple(n), data[a : min(b, a + PASSAGE)])
        for a, b, n in zip(places, places[1:], counts)
        # Beside a very long line there may be a very short passage, which says nothing.
        if b - a >= PASSAGE // 2 or len(places) == 2
    ]


def worst_of(n: int, which: int, passages: Sequence[Passage]) -> list[Passage]:
    return heapq.nsmallest(n, passages, key=lambda p: p.n_bytes / max(p.tokens[which], 1))
