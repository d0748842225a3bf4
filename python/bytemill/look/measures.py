"""Sums over a corpus that tokenizers encode.

`Measure` holds the sums of one tokenizer: tokens, time, uses of each token, and the number of
tokens with every smaller vocabulary. `Differences` counts the spans that the tokenizers cut
differently, `passages` finds text that they compress badly.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .. import _native, formats
from ..counts import set_limit

if TYPE_CHECKING:
    from .._native import Special
    from ..tokenizer import Tokenizer

__all__ = [
    "Cut",
    "Difference",
    "Differences",
    "Ends",
    "Measure",
    "Passage",
    "Pieces",
    "Row",
    "passages",
    "worst_of",
]

# The length of each token at its end (the index of the byte after it); 0 elsewhere.
Cut = npt.NDArray[np.int32]
# Whether a token ends here, for each tokenizer.
Ends = npt.NDArray[np.bool_]

# Maximum distinct differences in memory; beyond it, the rarer half is dropped.
HELD = 50_000
# Approximate bytes of a passage, in whole lines; single lines are too short to compare.
PASSAGE = 400


@dataclass(frozen=True)
class Row:
    """One tokenizer on the corpus.

    Attributes:
        name: its name, from the caller.
        vocab_size: ids, special tokens included.
        max_id: the largest of them.
        n_bytes: bytes of text encoded.
        tokens: number of tokens.
        mb_per_second: measured speed on one thread, in millions of bytes per second.
        shared: share of its tokens that the first tokenizer has at the same position.
        unused: number of its tokens that do not occur, without special tokens and single bytes.
        uses: occurrences of each token, in the order of ids.
        tokens_by_size: number of tokens with 0, 1, 2, … merges; the last is for `vocab_size`.
    """

    name: str
    vocab_size: int
    max_id: int
    n_bytes: int
    tokens: int
    mb_per_second: float
    shared: float
    unused: int
    uses: npt.NDArray[np.int64] = field(repr=False, compare=False)
    tokens_by_size: npt.NDArray[np.int64] = field(repr=False, compare=False)

    @property
    def bytes_per_token(self) -> float:
        """Compression; higher means fewer tokens."""
        return self.n_bytes / self.tokens

    @property
    def vocab_sizes(self) -> npt.NDArray[np.int64]:
        """The vocabulary size of each of `tokens_by_size`."""
        n = len(self.tokens_by_size)
        return np.arange(self.vocab_size - n + 1, self.vocab_size + 1)

    def bytes_per_token_at(self, vocab_size: int) -> float | None:
        """Compression with a smaller vocabulary of this size; None if there is none."""
        at = vocab_size - self.vocab_size + len(self.tokens_by_size) - 1
        if not 0 <= at < len(self.tokens_by_size):
            return None
        return self.n_bytes / int(self.tokens_by_size[at])

    def seconds_for(self, n_bytes: int) -> float:
        """Predicted seconds for that many bytes of similar text, at the measured speed."""
        return n_bytes / 1e6 / self.mb_per_second

    def tokens_for(self, n_bytes: int) -> int:
        """Predicted tokens of that many bytes of similar text."""
        return round(n_bytes / self.bytes_per_token)


class Measure:
    """The sums of one tokenizer."""

    def __init__(self, name: str, tokenizer: Tokenizer) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.tokens, self.shared, self.seconds = 0, 0, 0.0
        vocab = tokenizer.vocab
        self._ids = np.fromiter(vocab, dtype=np.int64, count=len(vocab))
        # Nearly always, ids equal their index in the list of ids.
        self._dense = len(vocab) == tokenizer.max_id + 1
        self._lengths = np.fromiter(map(len, vocab.values()), dtype=np.int32, count=len(vocab))
        self._uses = np.zeros(len(vocab), dtype=np.int64)

    def encode(self, data: bytes, special: Special) -> Cut:
        """Encodes a text and adds it to the sums; returns its token ends."""
        began = time.perf_counter()
        ids = self.tokenizer.encode_array(data, special=special, threads=1)
        self.seconds += time.perf_counter() - began
        self.tokens += len(ids)
        places = ids if self._dense else np.searchsorted(self._ids, ids)
        self._uses += np.bincount(places, minlength=len(self._uses))
        lengths = self._lengths[places]
        cut = np.zeros(len(data) + 1, dtype=np.int32)
        cut[np.cumsum(lengths)] = lengths
        return cut

    def row(self, n_bytes: int, pieces: _native.Counts) -> Row:
        """The sums, with the pieces of the same text."""
        by_size = _native.tokens_by_size(self.tokenizer._core, pieces).astype(np.int64)
        specials = np.array(list(self.tokenizer.special_tokens.values()), dtype=np.int64)
        learned = (self._lengths > 1) & ~np.isin(self._ids, specials)
        return Row(
            name=self.name,
            vocab_size=len(self.tokenizer),
            max_id=self.tokenizer.max_id,
            n_bytes=n_bytes,
            tokens=self.tokens,
            mb_per_second=n_bytes / 1e6 / max(self.seconds, 1e-9),
            shared=self.shared / self.tokens,
            unused=int(np.count_nonzero((self._uses == 0) & learned)),
            uses=self._uses,
            # Special tokens are not pieces; their number does not depend on the merges.
            tokens_by_size=by_size + (self.tokens - by_size[-1]),
        )


class Pieces:
    """The pieces of a corpus, counted once for all tokenizers with the same pattern."""

    def __init__(self, tokenizers: Iterable[Tokenizer], special: Special) -> None:
        self._special = special
        self._counts: dict[tuple[tuple[str, ...], frozenset[str]], _native.Counts] = {}
        for tokenizer in tokenizers:
            key = self._key(tokenizer)
            if key not in self._counts:
                self._counts[key] = _native.Counts(key[0], sorted(key[1]), 1)
                set_limit(self._counts[key], None, None)

    def _key(self, tokenizer: Tokenizer) -> tuple[tuple[str, ...], frozenset[str]]:
        special = self._special
        if isinstance(special, str):
            # With "error", the text has none.
            recognized = frozenset(tokenizer.special_tokens if special == "all" else ())
        else:
            recognized = frozenset(special)
        return tuple(formats.stages(tokenizer.pattern)), recognized

    def add(self, data: bytes) -> None:
        """Counts more text, which must begin and end at piece boundaries."""
        for counts in self._counts.values():
            counts.add_texts([data])

    def of(self, tokenizer: Tokenizer) -> _native.Counts:
        """The counts for a tokenizer."""
        return self._counts[self._key(tokenizer)]

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, *error: object) -> None:
        """Frees memory and deletes what is on disk."""
        for counts in self._counts.values():
            counts.clear()


# --- where they differ ------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """A span of text that the tokenizers cut differently.

    Attributes:
        text: the span, from one common boundary to the next, in whole characters.
        count: occurrences in the examined text; a lower bound if there are very many differences.
        cuts: the tokens of each tokenizer, at the first occurrence.
    """

    text: bytes
    count: int
    cuts: tuple[tuple[bytes, ...], ...]


@dataclass(frozen=True)
class Passage:
    """Lines of the corpus that a tokenizer compresses badly.

    Attributes:
        source: the file, or the number of the text.
        offset: its position in the source, in bytes.
        n_bytes: its length.
        tokens: tokens of each tokenizer.
        text: its beginning.
    """

    source: str
    offset: int
    n_bytes: int
    tokens: tuple[int, ...]
    text: bytes


class Differences:
    """Counts the spans that are cut differently."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[int, tuple[tuple[bytes, ...], ...]]] = {}

    def add(self, data: bytes, ends: Ends, common: Ends, every: Ends) -> None:
        # A common end inside a character is ignored: partial characters are not readable.
        whole = np.append(np.frombuffer(data, np.uint8) & 0xC0 != 0x80, True)
        bounds = np.concatenate(([0], np.flatnonzero(common & whole)))
        # An end that not all have lies inside exactly one span.
        inside = np.unique(np.searchsorted(bounds, np.flatnonzero(every & ~common)))
        for start, end in zip(bounds[inside - 1].tolist(), bounds[inside].tolist()):
            text = data[start:end]
            count, cuts = self._found.get(text) or (0, _tokens(data, ends, start, end))
            self._found[text] = (count + 1, cuts)
        if len(self._found) > HELD:
            by_count = sorted(self._found.items(), key=lambda item: -item[1][0])
            self._found = dict(by_count[: HELD // 2])

    def most(self, n: int) -> list[Difference]:
        # Ties are broken by text, so that the order is deterministic.
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
    """`data` in passages of whole lines; an incomplete passage at the end is dropped."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    wanted = np.searchsorted(newlines, np.arange(PASSAGE, len(data), PASSAGE))
    bounds = np.unique(newlines[wanted[wanted < len(newlines)]])
    bounds = np.concatenate(([0], bounds)) if len(bounds) else np.array([0, len(data)])
    # A token that spans two passages counts for the one in which it ends.
    sums = np.cumsum(ends, axis=1)
    counts = np.diff(sums[:, bounds], axis=1).T.tolist()
    places = bounds.tolist()
    return [
        Passage(source, offset + a, b - a, tuple(n), data[a : min(b, a + PASSAGE)])
        for a, b, n in zip(places, places[1:], counts)
        # Next to a very long line, a passage may be too short to compare.
        if b - a >= PASSAGE // 2 or len(places) == 2
    ]


def worst_of(n: int, which: int, passages: Sequence[Passage]) -> list[Passage]:
    return heapq.nsmallest(n, passages, key=lambda p: p.n_bytes / max(p.tokens[which], 1))
