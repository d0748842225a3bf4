"""`bytemill demo`: the whole path on text that every machine has."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .. import measures
from . import options, streams

EXAMPLES = """\b
examples:
  bytemill demo
  bytemill demo --out /tmp/demo --vocab-size 32000
"""


@click.command(short_help="All of it on Python's own source.", epilog=EXAMPLES)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="demo",
    show_default=True,
    help="Directory for what it makes; a demo that is there already is replaced.",
)
@click.option(
    "--vocab-size", type=click.IntRange(min=257), metavar="N", default=8192, show_default=True
)
@options.quiet_option
def demo(out: Path, vocab_size: int, quiet: bool) -> None:
    """Learn a tokenizer from the source of Python's own library, and show what came out."""
    from .. import demo as show
    from ..inspection import visible
    from ..rendering import to_terminal

    result = show.run(out, vocab_size=vocab_size, progress=not quiet)
    color = streams.use_color(sys.stdout)
    click.echo(
        f"{result.n_files:,} files of Python's standard library, "
        f"{measures.size(result.n_bytes)} of text"
    )
    click.echo(
        f"learnt    {len(result.tokenizer):,} ids in {measures.duration(result.learn_seconds)} "
        f"({measures.size(result.n_bytes / result.learn_seconds)}/s)"
    )
    click.echo(
        f"encoded   {result.n_tokens:,} tokens in {measures.duration(result.encode_seconds)} "
        f"({measures.size(result.n_bytes / result.encode_seconds)}/s), "
        f"{result.n_bytes / result.n_tokens:.2f} bytes per token"
    )
    click.echo("decoded   every byte is back as it was")
    longest = "  ".join(streams.shorten(visible(token), 40) for token in result.longest)
    click.echo(f"longest   {longest}")
    click.echo("\na few lines of it, token by token:\n")
    streams.put(to_terminal(result.sample, color=color), color=color)
    click.echo("\nwritten:")
    width = max(len(str(path)) for path in result.written)
    for path, what in result.written.items():
        click.echo(f"  {path!s:{width}}  {what}")
    click.echo("\nnext:")
    for command in result.next_commands:
        click.echo(f"  {command}")
