"""`bytemill train`: tokens → a run. The options are the fields of the two configs."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from .. import measures
from ..lm.config import ModelConfig
from ..lm.settings import DEFAULT_PRESET, PRESETS, TrainConfig
from . import options, streams

if TYPE_CHECKING:
    from ..lm.training import TrainResult

Function = TypeVar("Function", bound=Callable[..., Any])

EXAMPLES = """\b
examples:
  bytemill train tokens/ -o run/
  bytemill train tokens/ -o run/ --preset tinystories --steps 5000 --optimizer muon
  bytemill train train.bin -o run/ -t tokenizer.json --config train.toml --lr 1e-3
  bytemill train tokens/ -o run/ --resume
  torchrun --nproc-per-node 2 -m bytemill train tokens/ -o run/
"""

MODEL_HELP = {
    "vocab_size": "Ids.  [default: as many as the tokenizer has]",
    "context_length": "Longest sequence.",
    "d_model": "Width of the residual stream.",
    "num_layers": "Blocks.",
    "num_heads": "Heads of queries.",
    "d_ff": "Inner width of feed-forward layers.",
    "rope_theta": "Base of the rotary frequencies.",
    "num_kv_heads": "Heads of keys and values.  [default: as --num-heads]",
    "norm": "RMSNorm before sublayers, behind them, or nowhere.",
    "positions": "Rotary, or none.",
    "feed_forward": "SwiGLU, or SiLU without a gate.",
    "tie_embeddings": "One matrix for embedding and head.",
    "qk_norm": "RMSNorm on queries and keys.",
    "norm_eps": "What keeps RMSNorm from dividing by zero.",
}


def config_options(function: Function) -> Function:
    """Adds an option for each field of the configs; what is not given stays None."""
    fields: list[tuple[str, Any, str, Any]] = []
    hints = get_type_hints(ModelConfig)
    fields += [(name, hints[name], text, None) for name, text in MODEL_HELP.items()]
    hints = get_type_hints(TrainConfig)
    for field in dataclasses.fields(TrainConfig):
        text = field.metadata["help"]
        # The preset's word comes before that of the class.
        default = PRESETS[DEFAULT_PRESET].get(field.name, field.default)
        fields.append((field.name, hints[field.name], text, default))
    for name, hint, text, default in reversed(fields):
        function = _option(name, hint, text, default)(function)
    return function


def _option(name: str, hint: Any, text: str, default: Any) -> Any:
    flag = f"--{name.replace('_', '-')}"
    if default not in (None, "") and "[default" not in text:
        shown = {True: "yes", False: "no"}.get(default, default) if hint is bool else default
        text += f"  [default: {shown}]"
    if hint is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=text)
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    if get_origin(hint) is Literal:
        return click.option(flag, name, type=click.Choice(get_args(hint)), help=text)
    kind = kinds[0]
    metavar = {int: "N", float: "X", str: "TEXT"}[kind]
    return click.option(flag, name, type=kind, metavar=metavar, help=text)


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
@click.option("--resume", is_flag=True, help="Go on with the run, if there is one.")
@options.overwrite_option
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
    resume: bool,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Train a Llama-style language model on TOKENS: a directory that `bytemill encode -o` made, a
    .npy, or raw ids such as nanoGPT's train.bin.

    The run has the model, its tokenizer, checkpoints and metrics. Interrupted, it goes on with
    --resume as if nothing had happened. Under torchrun, ranks share the work.
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
        resume=resume,
        overwrite=overwrite,
        progress=False if quiet else "json" if as_json else None,
        **given,
    )
    from ..lm.distributed import ranks_of_environment

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
                "loss": result.loss,
                "evaluation": None if evaluation is None else dataclasses.asdict(evaluation),
                "tokens": result.tokens,
                "seconds": round(result.seconds, 3),
            }
        )
    elif not quiet:
        held_out = "" if evaluation is None else f", held-out loss {evaluation.loss:.4f}"
        streams.say(
            f"saved   {output}: {result.step:,} steps, {result.tokens:,} tokens "
            f"in {measures.duration(result.seconds)}{held_out}"
        )
        streams.say(f"next    bytemill generate {shlex.quote(str(output))} 'Once upon a time'")
