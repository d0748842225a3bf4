"""`bytemill generate`: a run → text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError
from . import options, streams

if TYPE_CHECKING:
    from ..lm import TransformerLM
    from ..lm.keywords import StepName
    from ..tokenizer import Tokenizer

EXAMPLES = """\b
examples:
  bytemill generate run/ "Once upon a time"
  bytemill generate run/ "def main" --samples 3 --temperature 0.6 --top-k 50
  bytemill generate run/ "Name:" --stop "\\n" --seed 1
  bytemill generate run/ --interactive
  cat prompts.txt | bytemill generate run/ -
"""


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("prompt", required=False)
@click.option("--max-tokens", type=click.IntRange(min=1), default=256, show_default=True,
              metavar="N", help="Maximum number of new tokens.")  # fmt: skip
@click.option("--temperature", type=click.FloatRange(min=0), default=0.8, show_default=True,
              metavar="X", help="0 takes the likeliest token; higher is more random.")  # fmt: skip
@click.option(
    "--top-k", type=click.IntRange(min=1), metavar="N", help="Sample from the N likeliest tokens."
)
@click.option("--top-p", type=click.FloatRange(0, 1), default=0.95, show_default=True,
              metavar="X", help="Sample from the likeliest tokens that sum to X.")  # fmt: skip
@click.option("--min-p", type=click.FloatRange(0, 1), metavar="X",
              help="Drop tokens less than X times as likely as the likeliest.")  # fmt: skip
@click.option("--repetition-penalty", type=click.FloatRange(min=0, min_open=True), default=1.0,
              show_default=True, metavar="X",
              help="Above 1, make tokens already used less likely.")  # fmt: skip
@click.option("--stop", multiple=True, metavar="TEXT",
              help="Stop before this text; may be repeated. \\n and \\t are escapes.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="N",
              help="Seed; the same one gives the same text.  [default: random]")  # fmt: skip
@click.option("-n", "--samples", type=click.IntRange(min=1), default=1, show_default=True,
              metavar="N", help="Number of samples, generated as a batch.")  # fmt: skip
@options.step_option
@options.run_tokenizer_option
@options.device_option
@click.option("--special", is_flag=True,
              help="Encode special tokens in the prompt as such, not as plain text.")  # fmt: skip
@click.option("--echo/--no-echo", default=True, show_default=True, help="Print the prompt too.")
@click.option("-i", "--interactive", is_flag=True, help="Ask for prompts, one at a time.")
@options.json_option
def generate(
    run: str,
    prompt: str | None,
    max_tokens: int,
    stop: tuple[str, ...],
    samples: int,
    step: StepName,
    tokenizer: str | None,
    device: str,
    special: bool,
    echo: bool,
    interactive: bool,
    **sampling: Any,
) -> None:
    """Continue PROMPT with tokens sampled from the model of RUN; print text as it is generated.

    Without PROMPT, start a new text. With -, each line of stdin is a prompt.
    """
    from .. import lm

    if interactive and prompt is not None:
        raise click.UsageError("--interactive asks for prompts: omit PROMPT")
    model, found = lm.load(run, step=step, device=device, tokenizer=tokenizer)
    if found is None:
        raise ConfigError(
            f"{run}: the run has no tokenizer, so it cannot read or write text",
            "give the tokenizer that the tokens were encoded with: -t tokenizer.json; copied to "
            f"{Path(run) / 'tokenizer.json'}, it is used by default",
        )
    chosen: dict[str, Any] = {
        "max_tokens": max_tokens,
        "n_samples": samples,
        "stop": [text.replace("\\n", "\n").replace("\\t", "\t") for text in stop],
        "special": "all" if special else "none",
    }
    chosen |= sampling
    prompts = _prompts(prompt, interactive)
    for number, text in enumerate(prompts):
        if click.get_current_context().meta["json"]:
            _put_json(model, found, text, chosen)
        elif samples == 1:
            if number and not interactive:
                click.echo()
            _stream(model, found, text, chosen, echo and not interactive)
        else:
            _put_samples(model, found, text, chosen, echo)


def _prompts(prompt: str | None, interactive: bool) -> Iterator[str]:
    if interactive:
        while True:
            click.echo("> ", nl=False, err=True)
            line = sys.stdin.readline()
            if not line:
                return
            if line.strip():
                yield line.rstrip("\n")
    elif prompt == "-":
        with streams.open_input("-") as source:
            for raw in source:
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if line:
                    yield line
    else:
        yield prompt or ""


def _stream(
    model: TransformerLM, tokenizer: Tokenizer, prompt: str, options: dict[str, Any], echo: bool
) -> None:
    from ..lm import stream_text

    pieces = stream_text(model, tokenizer, prompt, **options)
    first = True
    for piece in pieces:
        # Not before the prompt is known to be possible.
        if first and echo:
            click.echo(prompt, nl=False)
        first = False
        click.echo(piece.text, nl=False)
        sys.stdout.flush()
    click.echo()


def _put_samples(
    model: TransformerLM, tokenizer: Tokenizer, prompt: str, options: dict[str, Any], echo: bool
) -> None:
    from ..lm import generate_text

    for number, text in enumerate(generate_text(model, tokenizer, prompt, **options)):
        click.echo(f"--- {number + 1} ---")
        click.echo((prompt if echo else "") + text)


def _put_json(
    model: TransformerLM, tokenizer: Tokenizer, prompt: str, options: dict[str, Any]
) -> None:
    from ..lm import stream_text

    texts, reasons = [""] * options["n_samples"], [""] * options["n_samples"]
    for piece in stream_text(model, tokenizer, prompt, **options):
        texts[piece.sample] += piece.text
        reasons[piece.sample] = piece.done or ""
    streams.put_json(
        {
            "prompt": prompt,
            "samples": [{"text": text, "ended": reason} for text, reason in zip(texts, reasons)],
        }
    )
