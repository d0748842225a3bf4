"""A report as a page of HTML that needs nothing else: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

import numpy as np

from .._numbers import duration, size
from ..corpus.argument import skips
from . import charts
from .comparing import Comparison
from .compression import Row
from .differences import Difference, Passage
from .inspection import visible
from .reporting import Report, sizes_to_show

__all__ = ["to_html"]

# Points of a curve; more would not be seen.
POINTS = 120
# Lengths in the histogram, of which the last stands for all that are longer.
LENGTHS = 20
# Unused tokens to show.
EXAMPLES = 12
# Of a token, or the beginning of a passage.
TEXT_WIDTH = 64

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --page: #ffffff; --dim: #5f5f66;
  --line: #e2e2e6; --token: #dbe8fb; --other: #fbe9c6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ea; --page: #17181a; --dim: #a3a3aa;
  --line: #33353a; --token: #1d3f6b; --other: #574600; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; background: var(--page);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; margin-bottom: 0.3rem; overflow-wrap: anywhere; }
p { color: var(--dim); max-width: 46rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.5rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.25rem 0.8rem 0.25rem 0; vertical-align: top; }
th { color: var(--dim); font-weight: normal; border-bottom: 1px solid var(--line); }
td { border-bottom: 1px solid var(--line); }
.left { text-align: left; overflow-wrap: anywhere; min-width: 8rem; }
.best { font-weight: bold; }
code { font: 0.9em ui-monospace, Menlo, Consolas, monospace; }
code span { background: var(--token); border-radius: 0.2rem; }
code span:nth-child(even) { background: var(--other); }
.side { display: grid; gap: 1rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); }
"""


def to_html(report: Report, *, title: str = "Tokenizers compared") -> Iterator[str]:
    """The page, part by part. Pointing at a bar or a curve shows its value."""
    name = html.escape(title)
    names = list(report.vocabularies)
    read = ", ".join(f"{name} ({size(one.n_bytes)})" for name, one in report.corpora.items())
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{STYLE}{charts.STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{name}</h1>\n<p>On {html.escape(read)}.</p>\n"
    )
    yield from _compression(report, names)
    yield from _sizes(report, names)
    yield from _speed(report, names)
    yield from _vocabularies(report, names)
    for corpus, comparison in report.corpora.items():
        yield from _corpus(corpus, comparison, names)
    yield "</body>\n</html>\n"


def _compression(report: Report, names: Sequence[str]) -> Iterator[str]:
    corpora = list(report.corpora)
    # By tokenizer, its compression of each corpus.
    values = [
        [one.rows[i].bytes_per_token for one in report.corpora.values()] for i in range(len(names))
    ]
    best = [max(column) for column in zip(*values)]
    yield "<h2>Compression</h2>\n<p>Bytes per token: the more, the fewer tokens.</p>\n"
    yield _table(
        "lr" + "r" * len(corpora),
        ("tokenizer", "vocabulary", *corpora),
        [
            (
                _escape(name),
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
        "<h2>Bytes per token by vocabulary size</h2>\n<p>Of each tokenizer, the bytes and the "
        "first merges alone: what it would have been if fewer had been learnt.</p>\n"
        f'{charts.legend(names)}<div class="side">\n'
    )
    for corpus, comparison in report.corpora.items():
        yield f"<div><h3>{_escape(corpus)}</h3>\n"
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
        yield _table("r" * (len(names) + 1), ("vocabulary", *names), rows) + "</div>\n"
    yield "</div>\n"


def _curve(row: Row) -> list[tuple[float, float]]:
    sizes = row.vocab_sizes
    chosen = np.unique(np.geomspace(sizes[0], sizes[-1], POINTS).round().astype(np.int64))
    return [(int(n), row.n_bytes / int(row.tokens_by_size[n - sizes[0]])) for n in chosen]


def _speed(report: Report, names: Sequence[str]) -> Iterator[str]:
    much = size(report.extrapolated)
    yield (
        f"<h2>Speed</h2>\n<p>On one thread, as measured while this page was made, and what "
        f"{much} of such text would take and give.</p>\n"
    )
    rows = []
    for number, name in enumerate(names):
        for corpus, comparison in report.corpora.items():
            row = comparison.rows[number]
            rows.append(
                (
                    _escape(name),
                    _escape(corpus),
                    f"{row.mb_per_second:.1f}",
                    duration(row.seconds_for(report.extrapolated)),
                    f"{row.tokens_for(report.extrapolated) / 1e9:,.2f}",
                    _ids_size(row, report.extrapolated),
                )
            )
    head = ("tokenizer", "corpus", "MB/s", f"time for {much}", "10⁹ tokens", "as ids")
    yield _table("llrrrr", head, rows)


def _ids_size(row: Row, n_bytes: int) -> str:
    """How much room the ids take that so much text becomes."""
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
        yield f"<div><h3>{_escape(name)}</h3>\n"
        longest = one.statistics.longest
        cells = [(str(len(token)), str(id), _code([token])) for id, token in longest]
        yield _table("rrl", ("bytes", "id", "token"), cells) + "</div>\n"
    yield (
        "</div>\n<h2>Tokens never used</h2>\n<p>By no text of any corpus above, single bytes left "
        "out; the first ids of each.</p>\n"
    )
    rows = []
    for name, one in zip(names, found):
        shown = " ".join(_code([token]) for _, token in one.unused[:EXAMPLES])
        rows.append((_escape(name), f"{len(one.unused):,}", f"{one.unused_share:.1%}", shown))
    yield _table("lrrl", ("tokenizer", "tokens", "share", "such as"), rows)


def _shares(lengths: dict[int, int], n_tokens: int) -> list[float]:
    """In percent, by length; the last is for all that are longer too."""
    shares = [0.0] * LENGTHS
    for length, n in lengths.items():
        shares[min(length, LENGTHS) - 1] += 100 * n / n_tokens
    return shares


def _corpus(name: str, comparison: Comparison, names: Sequence[str]) -> Iterator[str]:
    yield f"<h2>On {_escape(name)}</h2>\n"
    rows = [
        (
            _escape(row.name),
            f"{row.tokens:,}",
            f"{row.bytes_per_token:.3f}",
            f"{row.unused:,}",
            f"{row.shared:.1%}",
        )
        for row in comparison.rows
    ]
    head = ("tokenizer", "tokens", "bytes per token", "never used", "shared")
    yield _table("lrrrr", head, rows)
    if comparison.skipped:
        yield f"<p>While reading: {skips(comparison.skipped)}.</p>\n"
    if len(names) > 1:
        yield (
            f"<p>Shared: tokens that {_escape(names[0])} has at the same place. Of all "
            f"boundaries between tokens, {comparison.agreement:.1%} are in all.</p>\n"
        )
        yield from _differences(comparison.differences, comparison.n_examined, names)
    for which, found in enumerate(comparison.worst):
        yield f"<h3>Least compressed by {_escape(names[which])}</h3>\n"
        yield _table(
            "rll",
            ("bytes/token", "place", "text"),
            [_passage(passage, which) for passage in found],
        )


def _differences(found: Sequence[Difference], n_bytes: int, names: Sequence[str]) -> Iterator[str]:
    yield f"<h3>Most frequent differences, in {size(n_bytes)} of it</h3>\n"
    rows = [(f"{one.count:,}", *map(_code, one.cuts)) for one in found]
    head = ("count", *names)
    yield _table("r" + "l" * len(names), head, rows) if rows else "<p>None.</p>\n"


def _passage(passage: Passage, which: int) -> tuple[str, ...]:
    rate = passage.n_bytes / max(passage.tokens[which], 1)
    place = f"{passage.source}:{passage.offset}"
    return f"{rate:.2f}", _escape(place), f"<code>{_shown(passage.text)}</code>"


def _code(tokens: Sequence[bytes]) -> str:
    return f"<code>{''.join(f'<span>{_shown(token)}</span>' for token in tokens)}</code>"


def _shown(data: bytes) -> str:
    text = visible(data[: 4 * TEXT_WIDTH])
    return _escape(text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…")


def _escape(text: str) -> str:
    return html.escape(text)


def _table(align: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells that are HTML already under heads that are not, flush as the letters of `align` say."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} class="left">{cell}</{tag}>' if side == "l" else f"<{tag}>{cell}</{tag}>"
            for cell, side in zip(cells, align)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>\n" for row in rows)
    top = line([_escape(cell) for cell in head], "th")
    return f'<div class="scroll"><table><tr>{top}</tr>\n{body}</table></div>\n'
