"""Comparisons and reports as pages of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from .._numbers import duration, size
from ..corpus.argument import skips
from . import charts
from .comparison import Comparison, Report, sizes_to_show
from .measures import Difference, Passage, Row
from .result import html_table, page, visible

__all__ = ["comparison_page", "report_page"]

# Maximum points of a curve; more would not be visible.
POINTS = 120
# Lengths in the histogram; the last includes all longer ones.
LENGTHS = 20
# Unused tokens to show.
EXAMPLES = 12
# Maximum characters of a token or passage.
TEXT_WIDTH = 64


def report_page(report: Report, title: str) -> str:
    """The page of a report. Pointing at a bar or a curve shows its value."""
    names = list(report.vocabularies)
    read = ", ".join(f"{name} ({size(one.n_bytes)})" for name, one in report.corpora.items())

    def parts() -> Iterator[str]:
        yield f"<p>On {escape(read)}.</p>\n"
        yield from _compression(report, names)
        yield from _sizes(report, names)
        yield from _speed(report, names)
        yield from _vocabularies(report, names)
        for corpus, comparison in report.corpora.items():
            yield from _corpus(f"On {corpus}", comparison, names)

    return page(title, parts())


def comparison_page(comparison: Comparison, title: str) -> str:
    """The page of a comparison on one corpus."""
    names = [row.name for row in comparison.rows]
    return page(title, _corpus(f"On {size(comparison.n_bytes)}", comparison, names))


def _compression(report: Report, names: Sequence[str]) -> Iterator[str]:
    corpora = list(report.corpora)
    # By tokenizer, its compression of each corpus.
    values = [
        [one.rows[i].bytes_per_token for one in report.corpora.values()] for i in range(len(names))
    ]
    best = [max(column) for column in zip(*values)]
    yield "<h2>Compression</h2>\n<p>Bytes per token: higher is better.</p>\n"
    yield html_table(
        "lr" + "r" * len(corpora),
        ("tokenizer", "vocabulary", *corpora),
        [
            (
                escape(name),
                f"{report.vocabularies[name].statistics.vocab_size:,}",
                *(
                    f'<span class="best">{value:.3f}</span>'
                    if value == top and len(names) > 1
                    else f"{value:.3f}"
                    for value, top in zip(row, best)
                ),
            )
            for name, row in zip(names, values)
        ],
    )
    yield charts.legend(names)
    yield charts.bars(
        corpora,
        list(zip(names, values)),
        title="bytes per token of each tokenizer on each corpus",
        x_label="corpus",
        y_label="bytes per token",
    )


def _sizes(report: Report, names: Sequence[str]) -> Iterator[str]:
    yield (
        "<h2>Bytes per token by vocabulary size</h2>\n<p>Each tokenizer cut down to the bytes and "
        "its first merges, as if it had been trained with a smaller vocabulary.</p>\n"
        f'{charts.legend(names)}<div class="side">\n'
    )
    for corpus, comparison in report.corpora.items():
        yield f"<div><h3>{escape(corpus)}</h3>\n"
        yield charts.lines(
            [charts.Series(row.name, _curve(row)) for row in comparison.rows],
            title=f"bytes per token by vocabulary size on {corpus}",
            x_label="vocabulary",
            y_label="bytes per token",
        )
        rows = []
        for vocab_size in sizes_to_show(comparison):
            found = [row.bytes_per_token_at(vocab_size) for row in comparison.rows]
            cells = ("" if value is None else f"{value:.3f}" for value in found)
            rows.append((f"{vocab_size:,}", *cells))
        yield html_table("r" * (len(names) + 1), ("vocabulary", *names), rows) + "</div>\n"
    yield "</div>\n"


def _curve(row: Row) -> list[tuple[float, float]]:
    sizes = row.vocab_sizes
    chosen = np.unique(np.geomspace(sizes[0], sizes[-1], POINTS).round().astype(np.int64))
    return [(int(n), row.n_bytes / int(row.tokens_by_size[n - sizes[0]])) for n in chosen]


def _speed(report: Report, names: Sequence[str]) -> Iterator[str]:
    much = size(report.extrapolated)
    yield (
        f"<h2>Speed</h2>\n<p>On one thread, measured while this report was written, with the "
        f"predicted time and tokens for {much} of such text.</p>\n"
    )
    rows = []
    for number, name in enumerate(names):
        for corpus, comparison in report.corpora.items():
            row = comparison.rows[number]
            rows.append(
                (
                    escape(name),
                    escape(corpus),
                    f"{row.mb_per_second:.1f}",
                    duration(row.seconds_for(report.extrapolated)),
                    f"{row.tokens_for(report.extrapolated) / 1e9:,.2f}",
                    _ids_size(row, report.extrapolated),
                )
            )
    head = ("tokenizer", "corpus", "MB/s", f"time for {much}", "10⁹ tokens", "as ids")
    yield html_table("llrrrr", head, rows)


def _ids_size(row: Row, n_bytes: int) -> str:
    """Predicted size of the ids of that much text."""
    width = 2 if row.max_id < 1 << 16 else 4
    return f"{size(row.tokens_for(n_bytes) * width)} (uint{8 * width})"


def _vocabularies(report: Report, names: Sequence[str]) -> Iterator[str]:
    found = list(report.vocabularies.values())
    yield "<h2>Lengths of tokens</h2>\n<p>Share of each vocabulary by length in bytes.</p>\n"
    yield charts.legend(names)
    yield charts.bars(
        [*map(str, range(1, LENGTHS)), f"{LENGTHS}+"],
        [(name, _shares(one.statistics.lengths, one.n_tokens)) for name, one in zip(names, found)],
        title="share of tokens by length",
        x_label="bytes",
        y_label="percent of tokens",
    )
    yield '<h2>Longest tokens</h2>\n<div class="side">\n'
    for name, one in zip(names, found):
        yield f"<div><h3>{escape(name)}</h3>\n"
        longest = one.statistics.longest
        cells = [(str(len(token)), str(id), _code([token])) for id, token in longest]
        yield html_table("rrl", ("bytes", "id", "token"), cells) + "</div>\n"
    yield (
        "</div>\n<h2>Unused tokens</h2>\n<p>Tokens that occur in none of the corpora, single bytes "
        "excluded; lowest ids first.</p>\n"
    )
    rows = []
    for name, one in zip(names, found):
        shown = " ".join(_code([token]) for _, token in one.unused[:EXAMPLES])
        rows.append((escape(name), f"{len(one.unused):,}", f"{one.unused_share:.1%}", shown))
    yield html_table("lrrl", ("tokenizer", "tokens", "share", "such as"), rows)


def _shares(lengths: dict[int, int], n_tokens: int) -> list[float]:
    """Percent by length; the last includes all longer ones."""
    shares = [0.0] * LENGTHS
    for length, n in lengths.items():
        shares[min(length, LENGTHS) - 1] += 100 * n / n_tokens
    return shares


def _corpus(heading: str, comparison: Comparison, names: Sequence[str]) -> Iterator[str]:
    yield f"<h2>{escape(heading)}</h2>\n"
    rows = [
        (
            escape(row.name),
            f"{row.tokens:,}",
            f"{row.bytes_per_token:.3f}",
            f"{row.unused:,}",
            f"{row.shared:.1%}",
        )
        for row in comparison.rows
    ]
    head = ("tokenizer", "tokens", "bytes per token", "unused", "shared")
    yield html_table("lrrrr", head, rows)
    if comparison.skipped:
        yield f"<p>While reading: {skips(comparison.skipped)}.</p>\n"
    if len(names) > 1:
        yield (
            f"<p>Shared: tokens that {escape(names[0])} has at the same place. Of all "
            f"boundaries between tokens, {comparison.agreement:.1%} are common to all.</p>\n"
        )
        yield from _differences(comparison.differences, comparison.n_examined, names)
    for which, found in enumerate(comparison.worst):
        yield f"<h3>Least compressed by {escape(names[which])}</h3>\n"
        yield html_table(
            "rll",
            ("bytes/token", "place", "text"),
            [_passage(passage, which) for passage in found],
        )


def _differences(found: Sequence[Difference], n_bytes: int, names: Sequence[str]) -> Iterator[str]:
    yield f"<h3>Most frequent differences, in a sample of {size(n_bytes)}</h3>\n"
    rows = [(f"{one.count:,}", *map(_code, one.cuts)) for one in found]
    head = ("count", *names)
    yield html_table("r" + "l" * len(names), head, rows) if rows else "<p>None.</p>\n"


def _passage(passage: Passage, which: int) -> tuple[str, ...]:
    rate = passage.n_bytes / max(passage.tokens[which], 1)
    place = f"{passage.source}:{passage.offset}"
    return f"{rate:.2f}", escape(place), f"<code>{_shown(passage.text)}</code>"


def _code(tokens: Sequence[bytes]) -> str:
    return f"<code>{''.join(f'<span>{_shown(token)}</span>' for token in tokens)}</code>"


def _shown(data: bytes) -> str:
    text = visible(data[: 4 * TEXT_WIDTH])
    return escape(text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…")
