"""One tokenizer on a corpus: tokens, time, which tokens came, and how many a smaller vocabulary
would have made of the same text.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .. import _native, formats
from ..counts import set_limit

if TYPE_CHECKING:
    from .._native import Special
    from ..tokenizer import Tokenizer

__all__ = ["Cut", "Measure", "Pieces", "Row"]

# At the end of each token (the index is the byte after it) its length; 0 elsewhere.
Cut = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Row:
    """One tokenizer on the corpus.

    Attributes:
        name: what the caller calls it.
        vocab_size: ids, special tokens included.
        max_id: the largest of them.
        n_bytes: how much text it encoded.
        tokens: how many tokens that has.
        mb_per_second: speed on one thread, as measured here; millions of bytes.
        shared: share of its tokens that the first tokenizer has at the same place.
        unused: how many of its tokens never came; special tokens and single bytes, which any
            vocabulary must have, do not count.
        uses: how often each token came, in the order of ids.
        tokens_by_size: how many tokens the text has with a smaller vocabulary, which holds the
            bytes, the first merges and the special tokens: the last is for `vocab_size`, the one
            before for one merge less, and so on to the first, which is for no merge at all.
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
        """Compression: the greater, the fewer tokens."""
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
        """How long that much text of this kind would take at the measured speed."""
        return n_bytes / 1e6 / self.mb_per_second

    def tokens_for(self, n_bytes: int) -> int:
        """How many tokens that much text of this kind would have."""
        return round(n_bytes / self.bytes_per_token)


class Measure:
    """The sums of one tokenizer."""

    def __init__(self, name: str, tokenizer: Tokenizer) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.tokens, self.shared, self.seconds = 0, 0, 0.0
        vocab = tokenizer.vocab
        self._ids = np.fromiter(vocab, dtype=np.int64, count=len(vocab))
        # Nearly always an id is its own place in the list of ids.
        self._dense = len(vocab) == tokenizer.max_id + 1
        self._lengths = np.fromiter(map(len, vocab.values()), dtype=np.int32, count=len(vocab))
        self._uses = np.zeros(len(vocab), dtype=np.int64)

    def encode(self, data: bytes, special: Special) -> Cut:
        """How the tokenizer cuts this text, which is added to the sums."""
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
        learnt = (self._lengths > 1) & ~np.isin(self._ids, specials)
        return Row(
            name=self.name,
            vocab_size=len(self.tokenizer),
            max_id=self.tokenizer.max_id,
            n_bytes=n_bytes,
            tokens=self.tokens,
            mb_per_second=n_bytes / 1e6 / max(self.seconds, 1e-9),
            shared=self.shared / self.tokens,
            unused=int(np.count_nonzero((self._uses == 0) & learnt)),
            uses=self._uses,
            # Special tokens, which are not among the pieces, stay what they are.
            tokens_by_size=by_size + (self.tokens - by_size[-1]),
        )


class Pieces:
    """The pieces of a corpus, counted once for all tokenizers that cut it alike."""

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
            # Where they are an error, there are none.
            recognised = frozenset(tokenizer.special_tokens if special == "all" else ())
        else:
            recognised = frozenset(special)
        return tuple(formats.stages(tokenizer.pattern)), recognised

    def add(self, data: bytes) -> None:
        """Counts more text, which must begin and end where pieces do."""
        for counts in self._counts.values():
            counts.add_texts([data])

    def of(self, tokenizer: Tokenizer) -> _native.Counts:
        """Those of a tokenizer."""
        return self._counts[self._key(tokenizer)]

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, *error: object) -> None:
        """Frees memory and deletes what is on disk."""
        for counts in self._counts.values():
            counts.clear()
