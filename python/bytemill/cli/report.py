"""`bytemill report`: the report card of a run."""

from __future__ import annotations

from pathlib import Path

import click

from .._files import refuse_input
from . import options, outputs, streams

EXAMPLES = """\b
examples:
  bytemill report run/
  bytemill report run/ -o report.html
  bytemill report run/ --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the whole report to this self-contained HTML file.",
)
@options.overwrite_option
@options.report_options
def report(run: str, output: Path | None, overwrite: bool) -> None:
    """Describe RUN: the model, its losses and samples, predicted and measured costs, the
    tokenizer, the configuration, and the commands that made it.

    Without -o, prints a summary. Works while the run is being trained, and does not need torch.
    """
    from .. import lm
    from ..lm.run.config_file import CONFIG, TOKENIZER
    from ..lm.run.metrics import METRICS

    if output is not None:
        outputs.check_file(output, overwrite)
        refuse_input(output, [Path(run, name) for name in (CONFIG, METRICS, TOKENIZER)])
    found = lm.report_run(run)
    if output is not None:
        outputs.write_page(output, found.to_html())
    streams.emit(
        found.to_json(),
        text=[found.to_text()] if output is None else (),
        summary="" if output is None else f"saved   {output}",
    )
