"""`bytemill train`: tokens → a run. The options are the fields of the two configs."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import _numbers
from ..lm.settings import DEFAULT_PRESET, PRESETS
from . import options, streams
from .fields import config_options

if TYPE_CHECKING:
    from ..lm.training import TrainResult

EXAMPLES = """\b
examples:
  bytemill train tokens/ -o run/
  bytemill train tokens/ -o run/ --preset tinystories --steps 5000 --optimizer muon
  bytemill train train.bin -o run/ -t tokenizer.json --config train.toml --lr 1e-3
  bytemill train tokens/ -o run/ --resume
  torchrun --nproc-per-node 2 -m bytemill train tokens/ -o run/
"""


@click.command(short_help="Train a language model on tokens.", epilog=EXAMPLES)
@click.argument("tokens", metavar="TOKENS")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Directory for the run."
)
@click.option(
    "-t",
    "--tokenizer",
    metavar="FILE",
    help="Tokenizer of the tokens.  [default: tokenizer.json in their directory or beside it]",
)
@click.option(
    "--val",
    metavar="TOKENS",
    help="Tokens to evaluate on.  [default: a split of that name, or the last of TOKENS]",
)
@click.option(
    "--token-dtype",
    type=click.Choice(["uint16", "uint32", "int32"]),
    default="uint16",
    show_default=True,
    help="Type of raw ids (.bin).",
)
@click.option(
    "--preset",
    metavar="NAME",
    help=f"Shape by name: {', '.join(PRESETS)}.  [default: {DEFAULT_PRESET}]",
)
@click.option(
    "--config",
    metavar="FILE",
    help="TOML file with any of the options below, such as d_model = 256; options go over it.",
)
@click.option(
    "--start-from",
    metavar="RUN",
    help="Start with the weights and the shape of this run, trained or imported (fine-tuning).",
)
@click.option("--resume", is_flag=True, help="Resume the run, if there is one.")
@options.overwrite_option
@options.force_option
@options.quiet_option
@streams.json_option
@config_options
def train(
    tokens: str,
    output: Path,
    tokenizer: str | None,
    val: str | None,
    token_dtype: str,
    preset: str | None,
    config: str | None,
    start_from: str | None,
    resume: bool,
    overwrite: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Train a Llama-style language model on TOKENS: a directory that `bytemill encode -o` made, a
    .npy, or raw ids such as nanoGPT's train.bin.

    The run has the model, its tokenizer, checkpoints and metrics. An interrupted run continues
    with --resume, to the same bits. Under torchrun, ranks share the work. A run that is predicted
    not to fit into memory is refused before it starts, with the micro-batch size that would fit.
    """
    from .. import lm

    if resume and overwrite:
        raise click.UsageError("--resume contradicts --overwrite")
    given = {name: value for name, value in fields.items() if value is not None}
    result = lm.train(
        tokens,
        output,
        tokenizer=tokenizer,
        val=val,
        token_dtype=token_dtype,
        preset=preset,
        config=config,
        start_from=start_from,
        resume=resume,
        overwrite=overwrite,
        force=force,
        progress=options.progress(quiet, as_json),
        **given,
    )
    from ..lm.parallel import ranks_of_environment

    rank, n_ranks = ranks_of_environment()
    if rank == 0:
        _tell(result, output, quiet=quiet, as_json=as_json)
    if n_ranks > 1:
        # All is saved and said. Threads that torch's groups of processes leave behind abort the
        # process now and then on the usual way out, and torchrun would call the run failed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _tell(result: TrainResult, output: Path, *, quiet: bool, as_json: bool) -> None:
    evaluation = result.evaluation
    if as_json:
        streams.put_json(
            {
                "run": str(output),
                "step": result.step,
                "steps": result.steps,
                # A run that was complete already has trained on nothing.
                "loss": result.loss if math.isfinite(result.loss) else None,
                "evaluation": None if evaluation is None else dataclasses.asdict(evaluation),
                "tokens": result.tokens,
                "total_tokens": result.total_tokens,
                "seconds": round(result.seconds, 3),
            }
        )
    elif not quiet:
        held_out = "" if evaluation is None else f", held-out loss {evaluation.loss:.4f}"
        resumed = ""
        if result.tokens < result.total_tokens:
            resumed = f" this session ({result.total_tokens:,} tokens in all)"
        if result.tokens:
            streams.say(
                f"saved   {output}: step {result.step:,} of {result.steps:,}, "
                f"{result.tokens:,} tokens in {_numbers.duration(result.seconds)}"
                f"{resumed}{held_out}"
            )
        else:
            streams.say(
                f"done    {output}: complete already at step {result.step:,}; "
                "more --steps train it further"
            )
        streams.say(f"next    bytemill generate {shlex.quote(str(output))} 'Once upon a time'")
