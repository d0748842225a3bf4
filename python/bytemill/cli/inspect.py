"""`bytemill inspect`: what a vocabulary holds, or how a text is cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options, streams

if TYPE_CHECKING:
    from ..inspection import Span, Statistics
    from ..tokenizer import Tokenizer

EXAMPLES = """\b
examples:
  bytemill inspect tokenizer.json
  bytemill inspect tokenizer.json "Hello, world" --ids
  bytemill inspect tokenizer.json --file main.py --html main.html
  git diff | bytemill inspect tokenizer.json - --json
"""


@click.command(short_help="What a vocabulary holds; how a text is cut.", epilog=EXAMPLES)
@click.argument("tokenizer", metavar="TOKENIZER")
@click.argument("text", required=False)
@click.option("--file", metavar="FILE", help="Show this file instead of TEXT.")
@click.option("--ids", is_flag=True, help="Show the id of each token.")
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the view to this HTML file, complete in itself.",
)
@click.option(
    "--longest",
    type=click.IntRange(min=0),
    metavar="N",
    default=20,
    show_default=True,
    help="How many of the longest tokens to list.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="auto: on a terminal, unless NO_COLOR is set.",
)
@options.special_option
@options.load_options
@options.overwrite_option
@streams.json_option
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
    as_json: bool,
) -> None:
    """Show what the vocabulary of TOKENIZER holds or, given TEXT, how it cuts that.

    TEXT may be - for stdin. Spaces are shown as · and newlines as ↵, bytes that are no character
    by themselves as ‹e2›.
    """
    if text is not None and file is not None:
        raise click.UsageError("give TEXT or --file, not both")
    if page is not None and text is None and file is None:
        raise click.UsageError("--html shows a text: give TEXT or --file")
    if page is not None:
        options.check_file(page, overwrite)
        options.check_not_read([page], [tokenizer, *([] if file is None else [str(file)])])
    from .. import inspection

    loaded = options.load(tokenizer, pattern, special_token)
    if text is None and file is None:
        found = inspection.statistics(loaded, n_longest=longest)
        if as_json:
            streams.put_json(_statistics_json(found))
        else:
            streams.put(_statistics(found))
        return
    data = _data(text, file)
    spans = inspection.spans(loaded, data, special=special)
    if page is not None:
        _write_page(loaded, spans, page, file or "text", ids)
    if as_json:
        streams.put_json(_spans_json(spans, len(data)))
    elif page is None:
        shown = color == "always" or (color == "auto" and streams.use_color(sys.stdout))
        _show(spans, shown, ids)
    else:
        streams.say(f"saved   {page}")


def _data(text: str | None, file: str | None) -> bytes:
    if text is not None and text != "-":
        return os.fsencode(text)  # an argument may hold any bytes, and they come back so
    with streams.open_input(file or "-") as source:
        return source.read()


def _show(spans: list[Span], color: bool, ids: bool) -> None:
    from ..rendering import summary, to_terminal

    streams.put(to_terminal(spans, color=color, ids=ids), color=color)
    if spans and not spans[-1].token.endswith(b"\n"):
        click.echo()
    click.echo(summary(spans))


def _write_page(tokenizer: Tokenizer, spans: list[Span], page: Path, title: str, ids: bool) -> None:
    from .._files import write_atomically
    from ..rendering import to_html

    parts = to_html(tokenizer, spans, title=title, ids=ids)
    write_atomically(page, "".join(parts).encode())


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
    from ..inspection import visible

    n_tokens = max(sum(found.lengths.values()), 1)

    def share(n: int) -> str:
        return f"{n:,} ({n / n_tokens:.1%})"

    yield f"vocabulary       {found.vocab_size:,} ids\n"
    yield f"merges           {found.n_merges:,}\n"
    for number, (text, id) in enumerate(found.special_tokens.items()):
        label = "" if number else "special tokens"
        yield f"{label:15}  {visible(text.encode())} = {id}\n"
    for number, stage in enumerate(found.pattern):
        yield f"{'' if number else 'pattern':15}  {stage}\n"
    yield f"fingerprint      {found.fingerprint}\n"
    yield f"mean length      {found.mean_length:.2f} bytes\n"
    yield f"leading space    {share(found.leading_space)}\n"
    yield f"white space      {share(found.white_space)}\n"
    yield f"digits           {share(found.digits)}\n"
    yield f"parts of chars   {share(found.not_utf8)}\n"
    yield f"unreachable      {share(len(found.unreachable))}{_first(found.unreachable)}\n"
    scripts = list(found.scripts.items())
    shown = ", ".join(f"{name} {n:,}" for name, n in scripts[:8])
    yield f"scripts          {shown}{', …' if len(scripts) > 8 else ''}\n"
    yield f"\n{'bytes':>7}  {'tokens':>7}\n"
    most = max(found.lengths.values(), default=1)
    for length, n in _grouped(found.lengths):
        yield f"{length:>7}  {n:>7,}  {'▇' * max(round(40 * n / most), 1)}\n"
    if found.longest:
        yield "\nlongest tokens\n"
        rows = [
            (str(id), str(len(token)), streams.shorten(visible(token), 80))
            for id, token in found.longest
        ]
        yield streams.table("rrl", ("id", "bytes", "token"), rows)


def _first(ids: list[int]) -> str:
    return f": {', '.join(map(str, ids[:8]))}{', …' if len(ids) > 8 else ''}" if ids else ""


def _grouped(lengths: dict[int, int]) -> Iterator[tuple[str, int]]:
    """Lengths up to 16 one by one, longer ones together in doubling ranges."""
    groups: dict[str, int] = {}
    for length, n in lengths.items():
        low = 1 << ((length - 1).bit_length() - 1) if length > 16 else 0
        label = f"{low + 1}–{2 * low}" if length > 16 else str(length)
        groups[label] = groups.get(label, 0) + n
    yield from groups.items()
