"""How often each token of a tokenizer occurs in training text: from counts files, or from tokens.

Computed once per tokenizer in a thread, in time proportional to the counts or tokens.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..counts import Counts
from ..errors import BytemillError
from ..tokens.view import Tokens
from .found import Found
from .recent import Stamp, stamp_of
from .vocabulary import VocabularyIndex

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Occurrence", "Occurrences"]

# Larger files would keep the machine busy for minutes.
MAX_COUNTS_BYTES = 2 << 30
MAX_TOKENS = 2_000_000_000
# Pieces encoded, or ids counted, at a time.
BLOCK = 1 << 18
MAX_KEPT = 8


@dataclass(frozen=True)
class Occurrence:
    """How often a token occurs.

    Attributes:
        count: None if there are no counts.
        source: the name of the counts file or tokens.
        pending: whether counting is still under way.
    """

    count: int | None = None
    source: str | None = None
    pending: bool = False


class Occurrences:
    """Counts tokens of vocabularies; usable from many threads."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, "occurrences")
        self._jobs: dict[object, Future[tuple[npt.NDArray[np.int64], str] | None]] = {}

    def close(self) -> None:
        """Ends the thread after its current job."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def of(self, vocabulary: VocabularyIndex, id: int, found: Found) -> Occurrence:
        """How often a token occurs in the counts and tokens of a scan."""
        sources = [
            *((path, name, False) for path, name in found.counts.items()),
            *((path, name, True) for path, name in found.tokens.items()),
        ]
        if not sources:
            return Occurrence()
        stamps = tuple(_stamp(path, of_tokens) for path, _, of_tokens in sources)
        key = (vocabulary.tokenizer.fingerprint, stamps)
        job = self._jobs.get(key)
        if job is None:
            while len(self._jobs) >= MAX_KEPT:
                self._jobs.pop(next(iter(self._jobs)), None)
            job = self._jobs[key] = self._worker.submit(_counted, vocabulary, sources)
        if not job.done():
            return Occurrence(pending=True)
        result = job.result()
        if result is None:
            return Occurrence()
        counts, source = result
        return Occurrence(int(counts[vocabulary.places(np.array([id]))[0]]), source)


def _stamp(path: Path, of_tokens: bool) -> Stamp | None:
    try:
        return stamp_of(path / "manifest.json" if of_tokens else path)
    except OSError:
        return None


def _counted(
    vocabulary: VocabularyIndex, sources: list[tuple[Path, str, bool]]
) -> tuple[npt.NDArray[np.int64], str] | None:
    """The occurrences of every token in the first source that fits the tokenizer."""
    for path, name, of_tokens in sources:
        try:
            counts = _in_tokens(vocabulary, path) if of_tokens else _in_counts(vocabulary, path)
        except (BytemillError, OSError):
            continue  # damaged, or being written
        if counts is not None:
            return counts, name
    return None


def _in_counts(vocabulary: VocabularyIndex, path: Path) -> npt.NDArray[np.int64] | None:
    tokenizer = vocabulary.tokenizer
    if os.stat(path).st_size > MAX_COUNTS_BYTES:
        return None
    pieces = Counts.load(path)
    if pieces.pattern != tokenizer.pattern:
        return None
    totals = np.zeros(len(vocabulary.ids), np.int64)
    each = iter(pieces)
    while block := list(itertools.islice(each, BLOCK)):
        texts, numbers = zip(*block)
        batch = tokenizer.encode_batch(texts, special="none")
        ends = batch.offsets.astype(np.int64)
        n_ids = ends[1:] - ends[:-1]
        weights = np.repeat(np.array(numbers), n_ids)
        _add(totals, vocabulary.places(batch.ids), weights)
    return totals


def _in_tokens(vocabulary: VocabularyIndex, path: Path) -> npt.NDArray[np.int64] | None:
    totals = np.zeros(len(vocabulary.ids), np.int64)
    try:
        splits: list[Any] = [Tokens(path)]
    except BytemillError:
        splits = [Tokens(path, split="train"), Tokens(path, split="val")]
    if splits[0].fingerprint != vocabulary.tokenizer.fingerprint:
        return None
    if sum(map(len, splits)) > MAX_TOKENS:
        return None
    for tokens in splits:
        for start in range(0, len(tokens), BLOCK):
            ids = vocabulary.places(tokens[start : start + BLOCK])
            totals += np.bincount(ids, minlength=len(totals))
    return totals


def _add(
    totals: npt.NDArray[np.int64], places: npt.NDArray[np.int64], weights: npt.NDArray[np.int64]
) -> None:
    # Exact: sums below 2⁵³.
    totals += np.bincount(places, weights, minlength=len(totals)).astype(np.int64)
