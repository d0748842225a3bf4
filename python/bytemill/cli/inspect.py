"""`bytemill inspect`: statistics of a vocabulary, or the tokens of a text."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .._tables import use_color
from . import arguments, options, outputs, streams

if TYPE_CHECKING:
    from ..look import Result

EXAMPLES = """\b
examples:
  bytemill inspect tokenizer.json
  bytemill inspect tokenizer.json --html vocabulary.html
  bytemill inspect o200k_base "Hello, world"
  bytemill inspect tokenizer.json "Hello, world" --ids
  bytemill inspect tokenizer.json --file main.py --html main.html
  git diff | bytemill inspect tokenizer.json - --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("tokenizer", metavar="TOKENIZER")
@click.argument("text", required=False)
@click.option("--file", metavar="FILE", help="Show this file instead of TEXT.")
@click.option("--ids", is_flag=True, help="Show the id of each token.")
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the text or vocabulary view to this self-contained HTML file.",
)
@click.option(
    "--longest",
    type=click.IntRange(min=0),
    metavar="N",
    default=20,
    show_default=True,
    help="Number of longest tokens to list.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="When to use colors; auto: on a terminal, unless NO_COLOR is set.",
)
@options.special_option
@options.load_options
@options.overwrite_option
@options.json_option
def inspect(
    tokenizer: str,
    text: str | None,
    file: str | None,
    ids: bool,
    page: Path | None,
    longest: int,
    color: str,
    special: str,
    pattern: tuple[str, ...],
    special_token: tuple[str, ...],
    overwrite: bool,
) -> None:
    """Show the vocabulary of TOKENIZER or, given TEXT, its tokens.

    TOKENIZER is a file, or the name of an encoding such as cl100k_base. TEXT may be - for stdin.
    Spaces are shown as · and newlines as ↵, bytes that are not a whole character as ‹e2›.
    """
    if text is not None and file is not None:
        raise click.UsageError("give TEXT or --file, not both")
    if page is not None:
        outputs.check_file(page, overwrite)
        outputs.check_not_read([page], [tokenizer, *([] if file is None else [str(file)])])
    from ..look import statistics, tokenized

    loaded = arguments.load_tokenizer(tokenizer, pattern, special_token)
    shown = color == "always" or (color == "auto" and use_color(sys.stdout))
    if text is None and file is None:
        found: Result = statistics(loaded, n_longest=longest)
        to_text, to_html = found.to_text, partial(found.to_html, title=tokenizer)
    else:
        found = cut = tokenized(loaded, _data(text, file), special=special)
        to_text = partial(cut.to_text, color=shown, ids=ids)
        to_html = partial(cut.to_html, title="text" if file is None else file, ids=ids)
    if page is not None:
        outputs.write_page(page, to_html())
    streams.emit(
        found.to_json(),
        text=[to_text()] if page is None else (),
        color=shown,
        summary="" if page is None else f"saved   {page}",
    )


def _data(text: str | None, file: str | None) -> bytes:
    if text is not None and text != "-":
        return os.fsencode(text)  # an argument may contain any bytes; this restores them
    with streams.open_input("-" if file is None else file) as source:
        return source.read()
