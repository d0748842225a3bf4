"""Tokenizers on one corpus.

The corpus is read in parts of about a megabyte, each encoded by every tokenizer. How a part is cut
is an array that holds, at each byte where a token ends, the length of that token, and 0 elsewhere;
then every comparison is linear in the part. Between two neighbouring ends that all tokenizers
share, either all have one and the same token, or they cut that stretch differently. What is held
does not grow with the corpus, but for its different pieces, which go to disk if they are too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..corpus import samples
from ..corpus.argument import CorpusLike, refuse_no_text
from ..errors import ConfigError
from ..progress import ProgressOption, reporter
from .compression import Measure, Pieces, Row
from .differences import Difference, Differences, Passage, passages, worst_of

if TYPE_CHECKING:
    from .._native import Special
    from ..tokenizer import Tokenizer

__all__ = ["Comparison", "compare"]


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
        skipped: records that were left out, by what was wrong with them.
    """

    n_bytes: int
    rows: list[Row]
    agreement: float
    n_examined: int
    differences: list[Difference]
    worst: list[list[Passage]]
    skipped: dict[str, int]


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
        tokenizers: name → tokenizer; at least one.
        corpus: as in `train_tokenizer`.
        limit: how many bytes to read at most; of several files, each gets an equal share.
        examine: how many of these to search for differences, which takes longer than encoding.
        n_differences: how many differences to give.
        n_worst: how many badly compressed passages to give for each tokenizer.
        special: what special tokens in the text are.
        progress: as in `train_tokenizer`.
    """
    if not tokenizers:
        raise ConfigError("a comparison needs a tokenizer")
    measures = [Measure(name, tokenizer) for name, tokenizer in tokenizers.items()]
    differences = Differences()
    worst: list[list[Passage]] = [[] for _ in measures]
    n_bytes = n_common = n_all = n_examined = 0
    specials = {text for one in tokenizers.values() for text in one.special_tokens}
    total, parts, skipped = samples.parts(corpus, limit, sorted(specials))
    with Pieces(tokenizers.values(), special) as pieces, reporter(progress) as report:
        for source, offset, data in parts:
            cuts = [measure.encode(data, special) for measure in measures]
            pieces.add(data)
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
            found = passages(source, offset, data, ends)
            for which, kept in enumerate(worst):
                kept[:] = worst_of(n_worst, which, kept + found)
            n_bytes += len(data)
            report("compare", n_bytes, total)
        refuse_no_text(n_bytes, corpus, skipped())
        rows = [measure.row(n_bytes, pieces.of(measure.tokenizer)) for measure in measures]
    return Comparison(
        n_bytes,
        rows,
        n_common / n_all,
        n_examined,
        differences.most(n_differences),
        worst,
        skipped(),
    )
