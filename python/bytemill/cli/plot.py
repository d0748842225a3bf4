"""`bytemill plot`: loss curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options, outputs, streams

if TYPE_CHECKING:
    from ..lm.plan.plot import XAxis

EXAMPLES = """\b
examples:
  bytemill plot run/ -o loss.png
  bytemill plot run-a/ run-b/ -o loss.svg --x seconds
"""


@click.command(epilog=EXAMPLES)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="loss.png",
    show_default=True,
    help="Picture to write: .png, .svg or .pdf.",
)
@click.option(
    "--x",
    type=click.Choice(["step", "seconds"]),
    default="step",
    show_default=True,
    help="Quantity on the x axis.",
)
@click.option("--title", metavar="TEXT", help="Title of the plot.")
@options.overwrite_option
@options.quiet_option
def plot(runs: tuple[str, ...], output: Path, x: XAxis, title: str | None, overwrite: bool) -> None:
    """Plot the training and held-out loss of each RUN in one picture."""
    from ..lm.plan.plot import plot_runs

    outputs.check_file(output, overwrite)
    plot_runs(runs, output, x=x, title=title)
    streams.inform(f"saved   {output}")
