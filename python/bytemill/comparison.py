"""Several tokenizers on the same text: how well they compress, how fast, and where they differ.

The corpus is read in parts of about a megabyte, each encoded by every tokenizer. How a part is cut
is an array that holds, at each byte where a token ends, the length of that token, and 0 elsewhere;
then every comparison is linear in the part. Between two neighbouring ends that all tokenizers
share, either all have one and the same token, or they cut that stretch differently. Memory does
not grow with the corpus.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from . import samples
from .corpus import CorpusLike, refuse_no_text
from .errors import ConfigError
from .progress import ProgressOption, reporter

if TYPE_CHECKING:
    from ._native import Special
    from .tokenizer import Tokenizer

__all__ = ["Comparison", "Difference", "Passage", "Row", "compare"]

# At the end of each token (the index is the byte after it) its length; 0 elsewhere.
Cut = npt.NDArray[np.int32]
# For each tokenizer, whether a token of it ends here.
Ends = npt.NDArray[np.bool_]

# Distinct differences held at once; when there are more, the rarer half is forgotten.
HELD = 50_000
# A passage is lines, together about this long: single lines say too little.
PASSAGE = 400


@dataclass(frozen=True)
class Row:
    """One tokenizer on the corpus.

    Attributes:
        name: what the caller calls it.
        vocab_size: ids, special tokens included.
        tokens: how many tokens the corpus has.
        bytes_per_token: compression: the greater, the fewer tokens.
        mb_per_second: speed on one thread, as measured here; millions of bytes.
        shared: share of its tokens that the first tokenizer has at the same place.
    """

    name: str
    vocab_size: int
    tokens: int
    bytes_per_token: float
    mb_per_second: float
    shared: float


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


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        n_bytes: how much text was compared.
        rows: one per tokenizer, as given.
        agreement: share of all token boundaries that every tokenizer has.
        n_examined: how much of the text was searched for differences, spread over all of it.
        differences: the most frequent of these, the most frequent first.
        worst: for each tokenizer, the passages with the fewest bytes per token.
    """

    n_bytes: int
    rows: list[Row]
    agreement: float
    n_examined: int
    differences: list[Difference]
    worst: list[list[Passage]]


def compare(
    tokenizers: Mapping[str, Tokenizer],
    corpus: CorpusLike,
    *,
    limit: int | None = 100_000_000,
    examine: int = 10_000_000,
    n_differences: int = 20,
    n_worst: int = 3,
    special: Special = "all",
    progress: ProgressOption = None,
) -> Comparison:
    """Compares tokenizers, given by name, on a corpus.

    Args:
        tokenizers: name → tokenizer; at least two.
        corpus: as in `train_tokenizer`.
        limit: how many bytes to read at most; of several files, each gets an equal share.
        examine: how many of these to search for differences, which takes longer than encoding.
        n_differences: how many differences to give.
        n_worst: how many badly compressed passages to give for each tokenizer.
        special: what special tokens in the text are.
        progress: as in `train_tokenizer`.
    """
    if len(tokenizers) < 2:
        raise ConfigError("a comparison needs at least two tokenizers")
    measures = [_Measure(name, tokenizer) for name, tokenizer in tokenizers.items()]
    differences = _Differences()
    worst: list[list[Passage]] = [[] for _ in measures]
    n_bytes = n_common = n_all = n_examined = 0
    specials = {text for one in tokenizers.values() for text in one.special_tokens}
    total, parts = samples.parts(corpus, limit, sorted(specials))
    with reporter(progress) as report:
        for source, offset, data in parts:
            cuts = [measure.encode(data, special) for measure in measures]
            for measure, cut in zip(measures, cuts):
                measure.shared += int(np.count_nonzero((cut == cuts[0]) & (cut > 0)))
            ends = np.stack([cut > 0 for cut in cuts])
            common, every = np.logical_and.reduce(ends), np.logical_or.reduce(ends)
            n_common += int(np.count_nonzero(common))
            n_all += int(np.count_nonzero(every))
            # Evenly over the whole where its size is known, else from the beginning.
            if n_examined <= (examine if total is None else examine * n_bytes / total):
                differences.add(data, ends, common, every)
                n_examined += len(data)
            passages = _passages(source, offset, data, ends)
            for which, kept in enumerate(worst):
                kept[:] = _worst(n_worst, which, kept + passages)
            n_bytes += len(data)
            report("compare", n_bytes, total)
    refuse_no_text(n_bytes, corpus)
    return Comparison(
        n_bytes,
        [measure.row(n_bytes) for measure in measures],
        n_common / n_all,
        n_examined,
        differences.most(n_differences),
        worst,
    )


class _Measure:
    """The sums of one tokenizer."""

    def __init__(self, name: str, tokenizer: Tokenizer) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.tokens, self.shared, self.seconds = 0, 0, 0.0
        self._lengths = np.zeros(tokenizer.max_id + 1, dtype=np.int32)
        for id, token in tokenizer.vocab.items():
            self._lengths[id] = len(token)
        for text, id in tokenizer.special_tokens.items():
            self._lengths[id] = len(text.encode())

    def encode(self, data: bytes, special: Special) -> Cut:
        began = time.perf_counter()
        ids = self.tokenizer.encode_array(data, special)
        self.seconds += time.perf_counter() - began
        self.tokens += len(ids)
        lengths = self._lengths[ids]
        cut = np.zeros(len(data) + 1, dtype=np.int32)
        cut[np.cumsum(lengths)] = lengths
        return cut

    def row(self, n_bytes: int) -> Row:
        return Row(
            self.name,
            len(self.tokenizer),
            self.tokens,
            n_bytes / self.tokens,
            n_bytes / 1e6 / max(self.seconds, 1e-9),
            self.shared / self.tokens,
        )


class _Differences:
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


def _passages(source: str, offset: int, data: bytes, ends: Ends) -> list[Passage]:
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


def _worst(n: int, which: int, passages: Sequence[Passage]) -> list[Passage]:
    return heapq.nsmallest(n, passages, key=lambda p: p.n_bytes / max(p.tokens[which], 1))
