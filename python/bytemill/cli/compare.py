"""`bytemill compare`: tokenizers on one corpus or several."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import _numbers
from ..corpus.names import redacted
from . import arguments, options, outputs, streams

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

EXAMPLES = """\b
examples:
  bytemill compare small.json large.json corpus.txt
  bytemill compare a.json b.json c.json 'data/*.txt' --limit 1GB
  bytemill compare a.json b.json --corpus english=en.txt --corpus code='src/**/*.py'
  bytemill compare tokenizer.json corpus.txt --html report.html
  bytemill compare mine.json cl100k_base o200k_base corpus.txt
"""


@click.command(epilog=EXAMPLES)
@click.argument("tokenizers", nargs=-1, required=True, metavar="TOKENIZER... [CORPUS]")
@click.option(
    "--corpus",
    "corpora",
    multiple=True,
    metavar="[NAME=]CORPUS",
    help="Corpus with a column of its own, instead of the last argument; may be repeated. The "
    "same NAME again adds to that corpus.",
)
@click.option(
    "--limit",
    default="100MB",
    show_default=True,
    metavar="SIZE",
    help="Read at most this much of each corpus, in equal shares of its files; 0 for no limit.",
)
@click.option(
    "-n",
    "--differences",
    type=click.IntRange(min=0),
    metavar="N",
    default=20,
    show_default=True,
    help="Number of differences to list, the most frequent first.",
)
@click.option(
    "--longest",
    type=click.IntRange(min=0),
    metavar="N",
    default=10,
    show_default=True,
    help="Number of longest tokens to list.",
)
@click.option(
    "--extrapolate",
    default="825GB",
    show_default=True,
    metavar="SIZE",
    help="Estimate the time to encode this much text; the default is the size of the Pile.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report, with charts, to this self-contained HTML file.",
)
@options.special_option
@options.corpus_options
@options.load_options
@options.overwrite_option
@options.dry_run_option
@options.report_options
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    tokenizers: tuple[str, ...],
    corpora: tuple[str, ...],
    limit: str,
    differences: int,
    longest: int,
    extrapolate: str,
    page: Path | None,
    special: str,
    pattern: tuple[str, ...],
    special_token: tuple[str, ...],
    overwrite: bool,
    dry_run: bool,
    **reading: Any,
) -> None:
    """Compare tokenizers on text: compression, speed, vocabularies, and where they differ.

    The last argument is the CORPUS (a file, a directory, a glob, or - for stdin), unless --corpus
    names one. One TOKENIZER is enough: a file, or the name of an encoding such as cl100k_base.
    --pattern and --special-token apply to tokenizer files that do not contain them.
    """
    *paths, last = tokenizers
    if corpora:
        paths.append(last)
    named = _named(corpora or (last,))
    if not paths:
        raise click.UsageError("give a tokenizer and then the corpus")
    if sum(place == "-" for places in named.values() for place in places) > 1:
        raise click.UsageError("stdin (-) can be read only once")
    n_bytes, extrapolated = _numbers.parse_size(limit) or None, _numbers.parse_size(extrapolate)
    if page is not None:
        outputs.check_file(page, overwrite)
        outputs.check_not_read([page], [*paths, *(p for places in named.values() for p in places)])
    loaded: dict[str, Tokenizer] = {}
    for path in paths:
        # The same file may be given twice; names must differ.
        name = path if path not in loaded else f"{path} ({len(loaded) + 1})"
        loaded[name] = arguments.load_mixed(path, pattern, special_token)
    if dry_run:
        _dry_run(loaded, named, reading, n_bytes)
        return
    from ..look import report

    with contextlib.ExitStack() as stack:
        found = report(
            loaded,
            {
                name: stack.enter_context(arguments.corpus_of(places, reading, passes=2))
                for name, places in named.items()
            },
            limit=n_bytes,
            n_differences=differences,
            n_longest=longest,
            extrapolate=extrapolated,
            special=special,
            progress=options.progress(),
        )
    for one in found.corpora.values():
        arguments.note_skips(ctx, one.skipped)
    if page is not None:
        outputs.write_page(page, found.to_html())
    streams.emit(
        found.to_json(),
        text=[found.to_text()] if page is None else (),
        summary="" if page is None else f"saved   {page}",
    )


def _named(corpora: Sequence[str]) -> dict[str, list[str]]:
    """Name → places; a corpus without a name is named after its place."""
    named: dict[str, list[str]] = {}
    for corpus in corpora:
        name, equals, place = corpus.partition("=")
        # A path or URL may contain "=", as in "date=2024/part.parquet".
        if not (equals and name and place) or "/" in name or os.path.exists(corpus):
            name, place = redacted(corpus), corpus
        named.setdefault(name, []).append(place)
    return named


def _dry_run(
    tokenizers: dict[str, Tokenizer],
    corpora: dict[str, list[str]],
    reading: dict[str, Any],
    limit: int | None,
) -> None:
    from ..preview import ComparingWork, preview
    from . import dry_run

    previews = []
    for places in corpora.values():
        arguments.refuse_stdin("--dry-run", places)
        with arguments.corpus_of(places, reading) as corpus:
            previews.append(preview(corpus, ComparingWork(tokenizers), limit))
    dry_run.print_previews(previews)
