"""Tokenizers on several corpora, and what their vocabularies hold: all that a report shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..corpus.argument import CorpusLike
from ..errors import ConfigError
from ..progress import ProgressOption
from .comparing import Comparison, compare
from .inspection import Statistics, statistics

if TYPE_CHECKING:
    from .._native import Special
    from ..tokenizer import Tokenizer

__all__ = ["PILE", "Report", "Vocabulary", "report", "sizes_to_show"]

# The bytes of the Pile, the corpus by whose time people measure tokenizers.
PILE = 825_000_000_000


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of one tokenizer.

    Attributes:
        statistics: what it holds: lengths, the longest tokens and more.
        n_tokens: how many tokens it has, special ones left out.
        n_learnt: how many of these are longer than a byte.
        unused: (id, token) of those longer than a byte that came in no corpus, in the order of
            ids: of a tokenizer that was learnt, the earliest merges first.
    """

    statistics: Statistics
    n_tokens: int
    n_learnt: int
    unused: list[tuple[int, bytes]]

    @property
    def unused_share(self) -> float:
        """The share of those longer than a byte that came in no corpus."""
        return len(self.unused) / max(self.n_learnt, 1)


@dataclass(frozen=True)
class Report:
    """What `report` found.

    Attributes:
        corpora: name → tokenizers on that corpus.
        vocabularies: name of a tokenizer → its vocabulary.
        extrapolated: for how many bytes time and tokens are to be foretold.
    """

    corpora: dict[str, Comparison]
    vocabularies: dict[str, Vocabulary]
    extrapolated: int


def report(
    tokenizers: Mapping[str, Tokenizer],
    corpora: Mapping[str, CorpusLike],
    *,
    extrapolate: int = PILE,
    n_longest: int = 10,
    limit: int | None = 100_000_000,
    examine: int = 10_000_000,
    n_differences: int = 20,
    n_worst: int = 3,
    special: Special = "all",
    progress: ProgressOption = None,
) -> Report:
    """Compares tokenizers on each of several corpora.

    Args:
        tokenizers: name → tokenizer; at least one.
        corpora: name → corpus, as in `train_tokenizer`; at least one.
        extrapolate: for how many bytes of such text time and tokens are to be foretold.
        n_longest: how many of the longest tokens to give.
        limit: how many bytes to read at most of each corpus.
        examine: as in `compare`, like all that follow.
        n_differences: how many differences to give on each corpus.
        n_worst: how many badly compressed passages to give.
        special: what special tokens in the text are.
        progress: as in `train_tokenizer`.

    >>> import bytemill
    >>> tokenizer = bytemill.train_tokenizer(iter(["see the sea " * 9]), vocab_size=260)
    >>> found = report({"mine": tokenizer}, {"a": iter(["the sea"]), "b": iter(["a tea"])})
    >>> {name: one.rows[0].bytes_per_token for name, one in found.corpora.items()}
    {'a': 1.75, 'b': 1.0}
    """
    if not corpora:
        raise ConfigError("a report needs a corpus")
    if extrapolate <= 0:
        raise ConfigError(f"extrapolate={extrapolate} cannot be", "use 1 or more")
    found = {
        name: compare(
            tokenizers,
            corpus,
            limit=limit,
            examine=examine,
            n_differences=n_differences,
            n_worst=n_worst,
            special=special,
            progress=progress,
        )
        for name, corpus in corpora.items()
    }
    vocabularies = {
        name: _vocabulary(tokenizer, number, list(found.values()), n_longest)
        for number, (name, tokenizer) in enumerate(tokenizers.items())
    }
    return Report(found, vocabularies, extrapolate)


def _vocabulary(
    tokenizer: Tokenizer, number: int, comparisons: list[Comparison], n_longest: int
) -> Vocabulary:
    uses = sum((one.rows[number].uses for one in comparisons), np.int64(0))
    specials = set(tokenizer.special_tokens.values())
    unused = [
        (id, token)
        for (id, token), n in zip(tokenizer.vocab.items(), np.asarray(uses).tolist())
        if n == 0 and len(token) > 1 and id not in specials
    ]
    about = statistics(tokenizer, n_longest=n_longest)
    n_tokens = sum(about.lengths.values())
    return Vocabulary(about, n_tokens, n_tokens - about.lengths.get(1, 0), unused)


def sizes_to_show(comparison: Comparison) -> list[int]:
    """Vocabulary sizes that say enough in a table: powers of two, and those of the tokenizers."""
    largest = max(row.vocab_size for row in comparison.rows)
    sizes = {2**power for power in range(9, largest.bit_length())}
    return sorted(sizes | {row.vocab_size for row in comparison.rows})
