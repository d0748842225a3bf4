"""Tokenizers on one corpus (`compare`), or on several together with their vocabularies (`report`).

A corpus is read in parts of about a megabyte, each encoded by every tokenizer. The tokens of
a part are an array: the length of a token at the byte where it ends, 0 elsewhere. So every
comparison is linear in the part. Between two consecutive ends that all tokenizers share, either all
have the same single token, or they cut the text differently. Memory does not grow with the corpus,
except for its distinct pieces, which are spilled to disk if they do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..corpus import samples
from ..corpus.argument import CorpusLike, refuse_no_text
from ..errors import ConfigError
from ..progress import Progress, ProgressOption
from .measures import Difference, Differences, Measure, Passage, Pieces, Row, passages, worst_of
from .result import Result
from .vocabulary import Statistics, statistics

if TYPE_CHECKING:
    from .._native import Special
    from ..tokenizer import Tokenizer

__all__ = ["PILE", "Comparison", "Report", "Vocabulary", "compare", "report", "sizes_to_show"]

# Size of the Pile in bytes, a common yardstick for tokenizer speed.
PILE = 825_000_000_000


@dataclass(frozen=True)
class Comparison(Result):
    """The result of `compare`.

    Attributes:
        n_bytes: bytes of text compared.
        rows: one per tokenizer, in the order given.
        agreement: share of all token boundaries that all tokenizers have in common.
        n_examined: bytes of text searched for differences, spread over the corpus.
        differences: the most frequent differences, in descending order.
        worst: for each tokenizer, the passages with the fewest bytes per token.
        skipped: number of skipped records by reason.
    """

    n_bytes: int
    rows: list[Row]
    agreement: float
    n_examined: int
    differences: list[Difference]
    worst: list[list[Passage]]
    skipped: dict[str, int]

    def to_text(self) -> str:
        from . import report_text

        return "".join(report_text.comparison_text(self, PILE))

    def to_json(self) -> dict[str, object]:
        from . import report_text

        return report_text.comparison_json(self, PILE)

    def to_html(self, *, title: str = "Tokenizers compared") -> str:
        from . import report_html

        return report_html.comparison_page(self, title)


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
        limit: maximum bytes to read; several files get equal shares.
        examine: bytes to search for differences, which takes longer than encoding.
        n_differences: maximum number of differences.
        n_worst: number of badly compressed passages per tokenizer.
        special: how special tokens in the text are encoded, as in `Tokenizer.encode`.
        progress: as in `train_tokenizer`.
    """
    if not tokenizers:
        raise ConfigError("tokenizers must not be empty")
    measures = [Measure(name, tokenizer) for name, tokenizer in tokenizers.items()]
    differences = Differences()
    worst: list[list[Passage]] = [[] for _ in measures]
    n_bytes = n_common = n_all = n_examined = 0
    specials = {text for one in tokenizers.values() for text in one.special_tokens}
    total, parts, skipped = samples.parts(corpus, limit, sorted(specials))
    with Pieces(tokenizers.values(), special) as pieces, Progress(progress) as report:
        for source, offset, data in parts:
            cuts = [measure.encode(data, special) for measure in measures]
            pieces.add(data)
            for measure, cut in zip(measures, cuts):
                measure.shared += int(np.count_nonzero((cut == cuts[0]) & (cut > 0)))
            ends = np.stack([cut > 0 for cut in cuts])
            common, every = np.logical_and.reduce(ends), np.logical_or.reduce(ends)
            n_common += int(np.count_nonzero(common))
            n_all += int(np.count_nonzero(every))
            # Spread evenly if the size of the corpus is known, else from its beginning.
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


# --- several corpora --------------------------------------------------------------------------


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of one tokenizer.

    Attributes:
        statistics: lengths, the longest tokens and more.
        n_tokens: number of tokens without special tokens.
        n_learned: number of these that are longer than a byte.
        unused: (id, token) of tokens longer than a byte that occur in no corpus, in the order of
            ids.
    """

    statistics: Statistics
    n_tokens: int
    n_learned: int
    unused: list[tuple[int, bytes]]

    @property
    def unused_share(self) -> float:
        """Share of the tokens longer than a byte that occur in no corpus."""
        return len(self.unused) / max(self.n_learned, 1)


@dataclass(frozen=True)
class Report(Result):
    """The result of `report`.

    Attributes:
        corpora: name → tokenizers on that corpus.
        vocabularies: name of a tokenizer → its vocabulary.
        extrapolated: bytes of text for which time and tokens are predicted.
    """

    corpora: dict[str, Comparison]
    vocabularies: dict[str, Vocabulary]
    extrapolated: int

    def to_text(self) -> str:
        from . import report_text

        return "".join(report_text.report_text(self))

    def to_json(self) -> dict[str, object]:
        from . import report_text

        return report_text.report_json(self)

    def to_html(self, *, title: str = "Tokenizers compared") -> str:
        from . import report_html

        return report_html.report_page(self, title)


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
        extrapolate: bytes of such text for which time and tokens are predicted.
        n_longest: number of longest tokens.
        limit: maximum bytes to read of each corpus.
        examine: as in `compare`.
        n_differences: maximum number of differences per corpus.
        n_worst: number of badly compressed passages per tokenizer and corpus.
        special: how special tokens in the text are encoded, as in `Tokenizer.encode`.
        progress: as in `train_tokenizer`.

    >>> import bytemill
    >>> tokenizer = bytemill.train_tokenizer(iter(["see the sea " * 9]), vocab_size=260)
    >>> found = report({"mine": tokenizer}, {"a": iter(["the sea"]), "b": iter(["a tea"])})
    >>> {name: one.rows[0].bytes_per_token for name, one in found.corpora.items()}
    {'a': 1.75, 'b': 1.0}
    """
    if not corpora:
        raise ConfigError("corpora must not be empty")
    if extrapolate <= 0:
        raise ConfigError(f"extrapolate must be ≥ 1, got {extrapolate}")
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
    """Vocabulary sizes for a table: powers of two, and those of the tokenizers."""
    largest = max(row.vocab_size for row in comparison.rows)
    sizes = {2**power for power in range(9, largest.bit_length())}
    return sorted(sizes | {row.vocab_size for row in comparison.rows})
