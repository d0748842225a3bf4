"""`bytemill compare`: several tokenizers on one corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .. import measures
from . import options, streams

if TYPE_CHECKING:
    from ..comparison import Comparison
    from ..tokenizer import Tokenizer

EXAMPLES = """\b
examples:
  bytemill compare small.json large.json corpus.txt
  bytemill compare a.json b.json c.json 'data/*.txt' --limit 1GB
  bytemill compare mine.json cl100k_base.tiktoken corpus.txt --pattern cl100k
"""

# Of a stretch of text, and of the tokens in it.
TEXT_WIDTH = 36


@click.command(short_help="Compression, speed, where they differ.", epilog=EXAMPLES)
@click.argument("tokenizers", nargs=-1, required=True, metavar="TOKENIZER TOKENIZER... CORPUS")
@click.option("--corpus", multiple=True, metavar="CORPUS", help="More text; may be repeated.")
@click.option(
    "--limit",
    default="100MB",
    show_default=True,
    metavar="SIZE",
    help="Read no more than this, in equal shares of the files; 0 for no limit.",
)
@click.option(
    "-n",
    "--differences",
    type=click.IntRange(min=0),
    metavar="N",
    default=20,
    show_default=True,
    help="How many differences to list, the most frequent first.",
)
@options.special_option
@options.corpus_options
@options.load_options
@options.quiet_option
@streams.json_option
def compare(
    tokenizers: tuple[str, ...],
    corpus: tuple[str, ...],
    limit: str,
    differences: int,
    special: str,
    pattern: tuple[str, ...],
    special_token: tuple[str, ...],
    quiet: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Compare tokenizers on a corpus: compression, speed, and where they differ.

    The last argument is the CORPUS (a file, a directory, a glob, or - for stdin). --pattern and
    --special-token are for those TOKENIZERs whose files do not carry them.
    """
    *paths, last = tokenizers
    if len(paths) < 2:
        raise click.UsageError("give at least two tokenizers and then the corpus")
    n_bytes = measures.parse_size(limit) or None
    loaded: dict[str, Tokenizer] = {}
    for path in paths:
        # The same file twice is allowed, if pointless; names must differ all the same.
        name = path if path not in loaded else f"{path} ({len(loaded) + 1})"
        loaded[name] = options.load_mixed(path, pattern, special_token)
    from ..comparison import compare as compare_tokenizers

    with options.corpus_of([last, *corpus], reading, passes=2) as source:
        found = compare_tokenizers(
            loaded,
            source,
            limit=n_bytes,
            n_differences=differences,
            special=special,
            progress=options.progress(quiet, as_json),
        )
    if as_json:
        streams.put_json(_json(found))
    else:
        streams.put(_report(found))


def _json(found: Comparison) -> dict[str, object]:
    def text(data: bytes) -> str:
        return data.decode("utf-8", "replace")

    names = [row.name for row in found.rows]
    return {
        "bytes": found.n_bytes,
        "tokenizers": [asdict(row) for row in found.rows],
        "agreement": found.agreement,
        "bytes_examined": found.n_examined,
        "differences": [
            {
                "text": text(one.text),
                "count": one.count,
                "cuts": {n: list(map(text, cut)) for n, cut in zip(names, one.cuts)},
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
                    "text": text(passage.text),
                }
                for passage in passages
            ]
            for name, passages in zip(names, found.worst)
        },
    }


def _report(found: Comparison) -> Iterator[str]:
    names = [row.name for row in found.rows]
    yield f"{measures.size(found.n_bytes)} of text, speed on one thread\n\n"
    yield streams.table(
        "lrrrrr",
        ("tokenizer", "vocabulary", "tokens", "bytes/token", "MB/s", "shared"),
        [
            (
                row.name,
                f"{row.vocab_size:,}",
                f"{row.tokens:,}",
                f"{row.bytes_per_token:.3f}",
                f"{row.mb_per_second:.1f}",
                f"{row.shared:.1%}",
            )
            for row in found.rows
        ],
    )
    yield (
        f"\nshared: tokens that {names[0]} has at the same place. Of all boundaries between "
        f"tokens, {found.agreement:.1%} are in all.\n"
    )
    if not found.differences:
        yield "\nno difference found\n"
        return
    yield f"\nmost frequent differences, in {measures.size(found.n_examined)} of it\n"
    yield streams.table(
        "r" + "l" * len(names),
        ("count", *(streams.shorten(name, TEXT_WIDTH) for name in names)),
        [(f"{one.count:,}", *map(_tokens, one.cuts)) for one in found.differences],
    )
    yield from _worst(found, names)


def _worst(found: Comparison, names: Sequence[str]) -> Iterator[str]:
    from ..inspection import visible

    for which, passages in enumerate(found.worst):
        yield f"\nleast compressed by {names[which]}\n"
        yield streams.table(
            "rll",
            ("bytes/token", "place", "text"),
            [
                (
                    f"{passage.n_bytes / max(passage.tokens[which], 1):.2f}",
                    f"{passage.source}:{passage.offset}",
                    streams.shorten(visible(passage.text), TEXT_WIDTH),
                )
                for passage in passages
            ],
        )


def _tokens(cut: Sequence[bytes]) -> str:
    from ..inspection import visible
    from ..rendering import BAR

    return streams.shorten(BAR.join(map(visible, cut)), TEXT_WIDTH)
