"""`bytemill train`: tokens → a run. The options are the fields of the two configs."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import _numbers
from . import options, streams
from .fields import config_options

if TYPE_CHECKING:
    from ..lm.keywords import PresetName, TokenDtype
    from ..lm.training import TrainResult

EXAMPLES = """\b
examples:
  bytemill train tokens/ -o run/
  bytemill train tokens/ -o run/ --preset tinystories --steps 5000 --optimizer muon
  bytemill train train.bin -o run/ -t tokenizer.json --config train.toml --lr 1e-3
  bytemill train tokens/ -o run/ --resume
  torchrun --nproc-per-node 2 -m bytemill train tokens/ -o run/
"""


@click.command(epilog=EXAMPLES)
@click.argument("tokens", metavar="TOKENS")
@options.output_option("Directory for the run.")
@options.training_options
@click.option(
    "--start-from",
    metavar="RUN",
    help="Start from the weights and shape of this run, trained or imported (fine-tuning).",
)
@options.resume_option
@options.overwrite_option
@options.force_option
@options.report_options
@config_options
def train(
    tokens: str,
    output: Path,
    tokenizer: str | None,
    val: str | None,
    token_dtype: TokenDtype,
    preset: PresetName | None,
    config: str | None,
    start_from: str | None,
    resume: bool,
    overwrite: bool,
    force: bool,
    **fields: Any,
) -> None:
    """Train a Llama-style language model on TOKENS: a directory that `bytemill encode -o` made, a
    .npy, or raw ids such as nanoGPT's train.bin.

    The run holds the model, its tokenizer, checkpoints and metrics. --resume continues an
    interrupted run, bit for bit. Under torchrun, ranks share the work. A run that is predicted
    not to fit into memory is refused before it starts, with the micro-batch size that would fit.
    """
    from .. import lm

    given = {name: value for name, value in fields.items() if value is not None}
    result = lm.train(
        tokens,
        output,
        tokenizer=tokenizer,
        val=val,
        token_dtype=token_dtype,
        model=preset,
        config=config,
        start_from=start_from,
        resume=resume,
        overwrite=overwrite,
        force=force,
        progress=options.progress(),
        **given,
    )
    from ..lm.parallel import ranks_of_environment

    rank, n_ranks = ranks_of_environment()
    if rank == 0:
        _emit(result, output)
    if n_ranks > 1:
        # Everything is saved and reported. Threads left by torch's process groups sometimes abort
        # the process during normal exit, and torchrun would report a failed run.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _emit(result: TrainResult, output: Path) -> None:
    evaluation = result.evaluation
    held_out = "" if evaluation is None else f", held-out loss {evaluation.loss:.4f}"
    resumed = ""
    if result.tokens < result.total_tokens:
        resumed = f" this session ({result.total_tokens:,} tokens in all)"
    summary = (
        f"saved   {output}: step {result.step:,} of {result.steps:,}, "
        f"{result.tokens:,} tokens in {_numbers.duration(result.seconds)}{resumed}{held_out}"
    )
    if not result.tokens:
        summary = (
            f"done    {output}: complete already at step {result.step:,}; "
            "train it further with more --steps"
        )
    streams.emit(
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
        },
        summary=summary,
        next=["generate", output, "Once upon a time"],
    )
