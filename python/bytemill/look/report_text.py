"""Comparisons and reports for the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .. import _numbers, _tables
from .comparison import Comparison, Report, Vocabulary, sizes_to_show
from .measures import Row
from .result import token_json, visible
from .tokenized import BAR
from .vocabulary import longest_tokens

__all__ = ["comparison_json", "comparison_text", "report_json", "report_text"]

# Maximum characters of a span of text, and of its tokens.
TEXT_WIDTH = 36
# Unused tokens to show.
EXAMPLES = 12


# --- JSON -------------------------------------------------------------------------------------


def report_json(report: Report) -> dict[str, object]:
    """The report as plain data."""
    return {
        "extrapolated_bytes": report.extrapolated,
        "corpora": {
            name: comparison_json(one, report.extrapolated) for name, one in report.corpora.items()
        },
        "tokenizers": {name: _vocabulary(one) for name, one in report.vocabularies.items()},
    }


def comparison_json(found: Comparison, extrapolated: int) -> dict[str, object]:
    names = [row.name for row in found.rows]
    sizes = sizes_to_show(found)
    return {
        "bytes": found.n_bytes,
        "skipped": found.skipped,
        "tokenizers": {row.name: _row(row, sizes, extrapolated) for row in found.rows},
        "agreement": found.agreement,
        "bytes_examined": found.n_examined,
        "differences": [
            {
                "text": _text(one.text),
                "count": one.count,
                "cuts": {n: list(map(_text, cut)) for n, cut in zip(names, one.cuts)},
            }
            for one in found.differences
        ],
        "worst": {
            name: [
                {
                    "source": passage.source,
                    "offset": passage.offset,
                    "bytes": passage.n_bytes,
                    "tokens": dict(zip(names, passage.tokens)),
                    "text": _text(passage.text),
                }
                for passage in passages
            ]
            for name, passages in zip(names, found.worst)
        },
    }


def _row(row: Row, sizes: Sequence[int], extrapolated: int) -> dict[str, object]:
    by_size = {size: row.bytes_per_token_at(size) for size in sizes}
    return {
        "vocab_size": row.vocab_size,
        "tokens": row.tokens,
        "bytes_per_token": row.bytes_per_token,
        "mb_per_second": row.mb_per_second,
        "shared": row.shared,
        "unused": row.unused,
        "extrapolated": {
            "seconds": row.seconds_for(extrapolated),
            "tokens": row.tokens_for(extrapolated),
        },
        "bytes_per_token_by_vocab_size": {
            size: value for size, value in by_size.items() if value is not None
        },
    }


def _vocabulary(found: Vocabulary) -> dict[str, object]:
    statistics = found.statistics
    return {
        "vocab_size": statistics.vocab_size,
        "fingerprint": statistics.fingerprint,
        "mean_length": statistics.mean_length,
        "lengths": statistics.lengths,
        "longest": [token_json(*one) for one in statistics.longest],
        "unused": {
            "number": len(found.unused),
            "share": found.unused_share,
            "examples": [token_json(*one) for one in found.unused[:EXAMPLES]],
        },
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# --- the terminal -----------------------------------------------------------------------------


def report_text(report: Report) -> Iterator[str]:
    """The report as tables, part by part."""
    several = len(report.corpora) > 1
    if several:
        yield from _matrix(report)
    for name, found in report.corpora.items():
        if several:
            yield f"\n── {name} ──\n"
        yield from comparison_text(found, report.extrapolated)
    yield from _lengths(report.vocabularies)
    for name, one in report.vocabularies.items():
        yield from _of_vocabulary(name, one)


def _matrix(report: Report) -> Iterator[str]:
    """Every tokenizer on every corpus."""
    rows = []
    for number, (name, one) in enumerate(report.vocabularies.items()):
        found = (each.rows[number].bytes_per_token for each in report.corpora.values())
        rows.append((name, f"{one.statistics.vocab_size:,}", *(f"{rate:.3f}" for rate in found)))
    yield "bytes per token\n"
    head = ("tokenizer", "vocabulary", *report.corpora)
    yield _tables.table("lr" + "r" * len(report.corpora), head, rows)


def comparison_text(found: Comparison, extrapolated: int) -> Iterator[str]:
    names = [row.name for row in found.rows]
    much = _numbers.size(extrapolated)
    yield f"{_numbers.size(found.n_bytes)} of text, speed on one thread\n\n"
    several = len(names) > 1
    columns = ("tokenizer", "vocabulary", "tokens", "bytes/token", "unused", "MB/s", much, "shared")
    shown = slice(None) if several else slice(-1)
    yield _tables.table(
        "lrrrrrrr"[shown],
        columns[shown],
        [
            (
                row.name,
                f"{row.vocab_size:,}",
                f"{row.tokens:,}",
                f"{row.bytes_per_token:.3f}",
                f"{row.unused:,}",
                f"{row.mb_per_second:.1f}",
                _numbers.duration(row.seconds_for(extrapolated)),
                f"{row.shared:.1%}",
            )[shown]
            for row in found.rows
        ],
    )
    yield (
        "\nunused: tokens that never occurred, single bytes excluded. "
        f"{much}: the time to encode that much at this speed.\n"
    )
    if several:
        yield (
            f"shared: tokens that {names[0]} has at the same place. Of all boundaries between "
            f"tokens, {found.agreement:.1%} are common to all.\n"
        )
        yield from _differences(found, names)
    yield from _worst(found, names)
    yield from _by_size(found, names)


def _differences(found: Comparison, names: Sequence[str]) -> Iterator[str]:
    if not found.differences:
        yield "\nno differences found\n"
        return
    yield f"\nmost frequent differences, in a sample of {_numbers.size(found.n_examined)}\n"
    yield _tables.table(
        "r" + "l" * len(names),
        ("count", *(_tables.shorten(name, TEXT_WIDTH) for name in names)),
        [(f"{one.count:,}", *map(_tokens, one.cuts)) for one in found.differences],
    )


def _worst(found: Comparison, names: Sequence[str]) -> Iterator[str]:
    for which, passages in enumerate(found.worst):
        yield f"\nleast compressed by {names[which]}\n"
        yield _tables.table(
            "rll",
            ("bytes/token", "place", "text"),
            [
                (
                    f"{passage.n_bytes / max(passage.tokens[which], 1):.2f}",
                    f"{passage.source}:{passage.offset}",
                    _tables.shorten(visible(passage.text), TEXT_WIDTH),
                )
                for passage in passages
            ],
        )


def _by_size(found: Comparison, names: Sequence[str]) -> Iterator[str]:
    yield "\nbytes per token by vocabulary size (first merges only)\n"
    rows = []
    for size in sizes_to_show(found):
        rates = (row.bytes_per_token_at(size) for row in found.rows)
        rows.append((f"{size:,}", *("–" if rate is None else f"{rate:.3f}" for rate in rates)))
    yield _tables.table("r" * (len(names) + 1), ("vocabulary", *names), rows)


def _lengths(vocabularies: Mapping[str, Vocabulary]) -> Iterator[str]:
    """Percent of tokens by length."""
    yield "\nlengths of tokens in bytes\n"
    bounds = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 8), (9, 12), (13, 16), (17, None)]
    labels = [f"{a}" if a == b else f"{a}–{b}" if b else f"{a}+" for a, b in bounds]
    rows = []
    for name, one in vocabularies.items():
        lengths = one.statistics.lengths
        sums = [sum(n for k, n in lengths.items() if a <= k <= (b or k)) for a, b in bounds]
        shares = (f"{n / one.n_tokens:.1%}" for n in sums)
        rows.append((name, f"{one.statistics.mean_length:.2f}", *shares))
    yield _tables.table("lr" + "r" * len(bounds), ("tokenizer", "mean", *labels), rows)


def _of_vocabulary(name: str, found: Vocabulary) -> Iterator[str]:
    if found.statistics.longest:
        yield f"\nlongest tokens of {name}\n"
        yield longest_tokens(found.statistics.longest)
    yield f"\n{len(found.unused):,} tokens of {name} never occurred ({found.unused_share:.1%})"
    examples = [_tables.shorten(visible(token), 20) for _, token in found.unused[:EXAMPLES]]
    yield f", such as {'  '.join(examples)}\n" if examples else "\n"


def _tokens(cut: Sequence[bytes]) -> str:
    return _tables.shorten(BAR.join(map(visible, cut)), TEXT_WIDTH)
