"""`bytemill demo`: the whole pipeline on text that every machine has."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import _numbers, _tables
from .._tables import use_color
from ..errors import install_command
from . import options, streams

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

OWN_TEXT = (
    "bytemill train-tokenizer your-text.txt -o tokenizer.json --vocab-size 4096",
    "bytemill encode your-text.txt -t tokenizer.json -o tokens/",
    "bytemill train tokens/ -o run/",
    "bytemill generate run/ 'Once upon a time'",
)

EXAMPLES = """\b
examples:
  bytemill demo
  bytemill demo --out /tmp/demo --seconds 300
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="demo",
    show_default=True,
    help="Output directory; an existing demo is replaced.",
)
@click.option(
    "--vocab-size",
    type=options.WholeNumber(257),
    metavar="N",
    default=4096,
    show_default=True,
    help="Vocabulary size of the tokenizer.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="X",
    default=60,
    show_default=True,
    help="Seconds to train a model; 0 for no model.",
)
@options.quiet_option
def demo(out: Path, vocab_size: int, seconds: float) -> None:
    """Learn a tokenizer from the source of Python's standard library, train a small model on it for
    a minute, and show the results.

    Without torch, no model is trained.
    """
    from .. import demo as show
    from ..look.result import visible
    from ..look.tokenized import to_terminal

    result = show.run(out, vocab_size=vocab_size, progress=options.progress())
    color = use_color(sys.stdout)
    click.echo(
        f"{result.n_files:,} files of Python's standard library, "
        f"{_numbers.size(result.n_bytes)} of text"
    )
    click.echo(
        f"learned    {len(result.tokenizer):,} ids in {_numbers.duration(result.learn_seconds)} "
        f"({_numbers.size(result.n_bytes / result.learn_seconds)}/s)"
    )
    click.echo(
        f"encoded   {result.n_tokens:,} tokens in {_numbers.duration(result.encode_seconds)} "
        f"({_numbers.size(result.n_bytes / result.encode_seconds)}/s), "
        f"{result.n_bytes / result.n_tokens:.2f} bytes per token"
    )
    click.echo("decoded   identical to the original")
    longest = "  ".join(_tables.shorten(visible(token), 40) for token in result.longest)
    click.echo(f"longest   {longest}")
    click.echo("\na few lines, token by token:\n")
    streams.put(to_terminal(result.sample, color=color), color=color)
    written, commands = dict(result.written), list(result.next_commands)
    run = _model(out, result.tokenizer, seconds) if seconds else None
    if run is not None:
        written[run] = "the model: config, checkpoints, metrics"
        commands += [
            shlex.join(["bytemill", "generate", str(run), "import "]),
            shlex.join(["bytemill", "plot", str(run), "-o", str(out / "loss.png")]),
        ]
    click.echo("\nwritten:")
    width = max(len(str(path)) for path in written)
    for path, what in written.items():
        click.echo(f"  {path!s:{width}}  {what}")
    click.echo("\nnext:")
    for command in commands:
        click.echo(f"  {command}")
    click.echo("\nand with your own text:")
    for command in OWN_TEXT:
        click.echo(f"  {command}")
    click.echo("\nand all of the demo in the browser:")
    click.echo(f"  {shlex.join(['bytemill', 'serve', str(out), '--open'])}")


def _model(out: Path, tokenizer: Tokenizer, seconds: float) -> Path | None:
    """Trains the model and prints a sample; None without torch."""
    try:
        from ..demo import run_model
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        streams.say(f"\nno model: {error.name} is not installed ({install_command('lm')})")
        return None
    click.echo(f"\na small model, trained for about {_numbers.duration(seconds)}:\n")
    sys.stdout.flush()
    made = run_model(
        out / "tokens",
        tokenizer,
        out / "run",
        seconds=seconds,
        progress=options.progress(),
    )
    evaluation = made.result.evaluation
    held_out = (
        ""
        if evaluation is None
        else f"; held-out loss {evaluation.loss:.3f}, {evaluation.bits_per_byte:.3f} bits per byte"
    )
    click.echo(
        f"trained   {made.n_parameters:,} parameters, {made.result.step:,} steps, "
        f"{made.result.tokens:,} tokens in {_numbers.duration(made.result.seconds)}{held_out}"
    )
    click.echo("\nsample:\n")
    for line in (made.prompt + made.sample).splitlines():
        click.echo(f"  | {line}")
    return out / "run"
