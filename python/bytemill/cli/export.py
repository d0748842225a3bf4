"""`bytemill export` and `bytemill import`: a run ↔ the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .._numbers import size
from . import options, streams

if TYPE_CHECKING:
    from ..lm.exchange.exporting import Target, WeightType
    from ..lm.keywords import StepName

EXPORT_EXAMPLES = """\b
examples:
  bytemill export run/ -o model/
  bytemill export run/ --to huggingface --dtype bf16 -o model/
  bytemill export run/ --to gguf -o model.gguf
"""
IMPORT_EXAMPLES = """\b
examples:
  bytemill import SmolLM2-135M/ -o run/
  bytemill generate run/ "Once upon a time"
  bytemill train tokens/ -o tuned/ --start-from run/ --lr 1e-5
"""


@click.command(epilog=EXPORT_EXAMPLES)
@click.argument("run", metavar="RUN")
@click.option(
    "--to",
    "target",
    type=click.Choice(["huggingface", "gguf"]),
    default="huggingface",
    show_default=True,
    help="Target: transformers and programs that read its format, or llama.cpp.",
)
@options.output_option("Output: a directory for huggingface, a file (.gguf) for gguf.")
@click.option(
    "--dtype",
    type=click.Choice(["f32", "f16", "bf16"]),
    default="f32",
    show_default=True,
    help="Type of the weights; f16 and bf16 round them.",
)
@options.step_option
@options.run_tokenizer_option
@click.option(
    "--pre-tokenizer",
    metavar="NAME",
    help="For gguf: llama.cpp's name for the split pattern.  [default: derived from the pattern]",
)
@options.overwrite_option
@options.report_options
@click.pass_context
def export(
    ctx: click.Context,
    /,
    run: str,
    target: Target,
    output: Path,
    dtype: WeightType,
    step: StepName,
    tokenizer: str | None,
    pre_tokenizer: str | None,
    overwrite: bool,
) -> None:
    """Export the model of RUN, with its tokenizer, for other programs.

    They compute the same numbers up to rounding. Models and tokenizers that the target
    format cannot represent exactly are refused, with the reason.
    """
    from .. import lm

    done = lm.export_run(
        run,
        output,
        to=target,
        step=step,
        dtype=dtype,
        tokenizer=tokenizer,
        pre_tokenizer=pre_tokenizer,
        overwrite=overwrite,
        progress=options.progress(),
    )
    named = "" if done.pre_tokenizer is None else f", pre-tokenizer {done.pre_tokenizer}"
    streams.emit(
        {
            "path": str(done.path),
            "to": done.to,
            "architecture": done.architecture,
            "step": done.step,
            "bytes": done.n_bytes,
            "tokenizer": done.tokenizer,
            "pre_tokenizer": done.pre_tokenizer,
        },
        summary=f"saved   {output}: {done.architecture}, step {done.step:,}, "
        f"{size(done.n_bytes)} of weights ({dtype}){named}",
    )
    if not done.tokenizer:
        streams.note(
            ctx, "the run has no tokenizer, so none was exported; give one with -t tokenizer.json"
        )


@click.command("import", epilog=IMPORT_EXAMPLES)
@click.argument("directory", metavar="DIRECTORY")
@options.output_option("Directory for the run.")
@click.option(
    "--tokenizer/--no-tokenizer",
    default=True,
    show_default=True,
    help="Import tokenizer.json too; without it, the run cannot read or write text.",
)
@options.overwrite_option
@options.report_options
def import_(directory: str, output: Path, tokenizer: bool, overwrite: bool) -> None:
    """Import DIRECTORY as a run: a Llama or Qwen3 model as transformers saves it, with config.json,
    safetensors and tokenizer.json.

    Nothing is downloaded or unpickled. Models that bytemill cannot compute exactly are refused,
    with the reason.
    """
    from .. import lm

    done = lm.import_run(
        directory,
        output,
        tokenizer=tokenizer,
        overwrite=overwrite,
        progress=options.progress(),
    )
    streams.emit(
        {
            "run": str(done.run),
            "architecture": done.architecture,
            "parameters": done.parameters,
            "tokenizer": done.tokenizer,
        },
        summary=f"saved   {output}: {done.architecture}, {done.parameters:,} parameters",
        next=["generate", output, "Once upon a time"] if done.tokenizer else (),
    )
