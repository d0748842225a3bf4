"""`bytemill evaluate`: how well a run's model predicts tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from .. import _tables
from . import options, streams

if TYPE_CHECKING:
    from ..lm import Scores
    from ..lm.keywords import StepName

EXAMPLES = """\b
examples:
  bytemill evaluate run/ tokens/
  bytemill evaluate run/ test-tokens/ --stride 16 --json
  bytemill evaluate run/ val.bin --per-document --step last
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("tokens", metavar="TOKENS")
@click.option("--split", metavar="NAME",
              help="Split to evaluate, if TOKENS has several.  "
              "[default: val, or the tokens the run held out, or all]")  # fmt: skip
@click.option("--stride", type=click.IntRange(min=1), metavar="N",
              help="Tokens scored per window; fewer give each more context.  "
              "[default: half the context]")  # fmt: skip
@click.option("--per-document", is_flag=True,
              help="Evaluate each document separately, and list them.")  # fmt: skip
@options.step_option
@click.option("--batch-size", type=click.IntRange(min=1), default=16, show_default=True,
              metavar="N", help="Windows per batch.")  # fmt: skip
@options.token_dtype_option
@options.run_tokenizer_option
@options.device_option
@click.option("--check/--no-check", default=True, show_default=True,
              help="Check for documents that the run was trained on.")  # fmt: skip
@options.report_options
@click.pass_context
def evaluate(
    ctx: click.Context,
    /,
    run: str,
    tokens: str,
    step: StepName,
    per_document: bool,
    **given: Any,
) -> None:
    """Evaluate the model of RUN on TOKENS: a directory that `bytemill encode -o` made, a .npy,
    or raw ids.

    Each token is predicted once, with at least context − stride tokens of context where available.
    Likely mistakes are reported: another tokenizer, documents that the run was trained on, a loss
    worse than guessing.
    """
    from .. import lm

    found = lm.evaluate(
        run,
        tokens,
        step=step,
        per_document=per_document,
        progress=options.progress(),
        **given,
    )
    fields = dataclasses.asdict(found)
    if not ctx.meta["json"]:  # else they are among the fields
        for warning in found.warnings:
            streams.note(ctx, warning)
    streams.emit(fields.pop("evaluation") | fields, text=_report(found))


def _report(found: Scores) -> Iterator[str]:
    if found.documents is not None:
        rows = [
            [
                str(document.number),
                f"{document.evaluation.n_tokens:,}",
                f"{document.evaluation.loss:.4f}",
                _perplexity(document.evaluation.perplexity),
                _bits(document.evaluation.bits_per_byte),
            ]
            for document in found.documents
        ]
        head = ["document", "tokens", "loss", "perplexity", "bits per byte"]
        yield _tables.table("rrrrr", head, rows) + "\n"
    whole = found.evaluation
    rows = [
        ["tokens", f"{whole.n_tokens:,} of {found.tokens}"],
        ["loss", f"{whole.loss:.4f} nats per token"],
        ["perplexity", _perplexity(whole.perplexity)],
        ["bits per byte", _bits(whole.bits_per_byte)],
        ["context", f"{found.context_length} tokens, {found.stride} scored per window"],
    ]
    yield _tables.table("ll", rows[0], rows[1:])


def _perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 1e6 else f"{value:.3g}"


def _bits(value: float | None) -> str:
    return (
        "unknown: the run has no tokenizer (give it with -t)" if value is None else f"{value:.4f}"
    )
