"""`bytemill inspect`: what a vocabulary holds, or how a text is cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options, streams

if TYPE_CHECKING:
    from ..look.inspection import Span, Statistics

EXAMPLES = """\b
examples:
  bytemill inspect tokenizer.json
  bytemill inspect tokenizer.json --html vocabulary.html
  bytemill inspect tokenizer.json "Hello, world" --ids
  bytemill inspect tokenizer.json --file main.py --html main.html
  git diff | bytemill inspect tokenizer.json - --json
"""


@click.command(short_help="Show a vocabulary, or the tokens of a text.", epilog=EXAMPLES)
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

    TEXT may be - for stdin. Spaces are shown as · and newlines as ↵, bytes that are not a whole
    character as ‹e2›.
    """
    if text is not None and file is not None:
        raise click.UsageError("give TEXT or --file, not both")
    if page is not None:
        options.check_file(page, overwrite)
        options.check_not_read([page], [tokenizer, *([] if file is None else [str(file)])])
    from ..look import inspection

    loaded = options.load(tokenizer, pattern, special_token)
    if text is None and file is None:
        found = inspection.statistics(loaded, n_longest=longest)
        if page is not None:
            from ..look.vocabulary_page import to_html as vocabulary_html

            _write_page(vocabulary_html(loaded, found, title=tokenizer), page)
        streams.emit(_statistics_json(found), text=_statistics(found) if page is None else ())
        return
    data = _data(text, file)
    spans = inspection.spans(loaded, data, special=special)
    if page is not None:
        from ..look.rendering import to_html

        _write_page(to_html(loaded, spans, title=file or "text", ids=ids), page)
    shown = color == "always" or (color == "auto" and streams.use_color(sys.stdout))
    streams.emit(
        _spans_json(spans, len(data)),
        text=_shown(spans, shown, ids) if page is None else (),
        color=shown,
    )


def _data(text: str | None, file: str | None) -> bytes:
    if text is not None and text != "-":
        return os.fsencode(text)  # an argument may hold any bytes, and they come back so
    with streams.open_input(file or "-") as source:
        return source.read()


def _shown(spans: list[Span], color: bool, ids: bool) -> Iterator[str]:
    from ..look.rendering import summary, to_terminal

    yield from to_terminal(spans, color=color, ids=ids)
    if spans and not spans[-1].token.endswith(b"\n"):
        yield "\n"
    yield summary(spans) + "\n"


def _write_page(parts: Iterable[str], page: Path) -> None:
    from .._files import write_atomically

    write_atomically(page, "".join(parts).encode())
    streams.inform(f"saved   {page}")


def _spans_json(spans: list[Span], n_bytes: int) -> dict[str, object]:
    return {
        "tokens": len(spans),
        "bytes": n_bytes,
        "spans": [
            {
                "id": span.id,
                "start": span.start,
                "end": span.end,
                "hex": span.token.hex(),
                "text": span.token.decode("utf-8", "replace"),
                "special": span.special,
            }
            for span in spans
        ],
    }


def _statistics_json(found: Statistics) -> dict[str, object]:
    return vars(found) | {
        "longest": [
            {"id": id, "hex": token.hex(), "text": token.decode("utf-8", "replace")}
            for id, token in found.longest
        ]
    }


def _statistics(found: Statistics) -> Iterator[str]:
    from ..look.inspection import visible
    from ..look.vocabulary_page import facts, lengths

    for label, value in facts(found):
        yield f"{label:15}  {value}\n"
    yield f"\n{'bytes':>7}  {'tokens':>7}\n"
    for length, n, bar in lengths(found):
        yield f"{length:>7}  {n:>7}  {bar}\n"
    if found.longest:
        yield "\nlongest tokens\n"
        rows = [
            (str(id), str(len(token)), streams.shorten(visible(token), 80))
            for id, token in found.longest
        ]
        yield streams.table("rrl", ("id", "bytes", "token"), rows)
