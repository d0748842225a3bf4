"""`bytemill convert`: a tokenizer file into another format."""

from __future__ import annotations

from pathlib import Path

import click

from ..convert import CARRIES, Format
from ..convert import convert as convert_tokenizer
from ..formats import target_paths
from . import arguments, options, outputs, streams
from .train_tokenizer import inspect_command

EXAMPLES = """\b
examples:
  bytemill convert tokenizer.json --to tiktoken -o mine.tiktoken
  bytemill convert tokenizer.json --to gpt2 -o gpt2/
  bytemill convert cl100k_base --to huggingface -o cl100k.json
"""


@click.command(epilog=EXAMPLES)
@click.argument("tokenizer", metavar="TOKENIZER")
@click.option("--to", "format", type=options.FORMATS, required=True, help="Target format.")
@options.output_option(
    "File for the converted tokenizer; a directory for gpt2 (vocab.json and merges.txt)."
)
@options.load_options
@options.overwrite_option
@options.report_options
def convert(
    tokenizer: str,
    format: Format,
    output: Path,
    pattern: tuple[str, ...],
    special_token: tuple[str, ...],
    overwrite: bool,
) -> None:
    """Convert TOKENIZER, a file or the name of an encoding such as cl100k_base, to another format
    and check that its ids stay the same."""
    outputs.check_output(output, format, overwrite)
    # What the new format does not store would be lost with the old file.
    if len(CARRIES[format]) < 2:
        outputs.check_not_read(target_paths(output, format), [tokenizer])
    loaded = arguments.load_tokenizer(tokenizer, pattern, special_token)
    done = convert_tokenizer(loaded, output, format=format, overwrite=overwrite)
    summary = f"saved   {output} ({format}); {done.n_ids:,} ids compared, all equal"
    if done.to_give:
        summary += f"\nnote: this format does not store the {' or the '.join(done.to_give)}"
    streams.emit(
        {
            "tokenizer": str(done.path),
            "format": done.format,
            "ids_compared": done.n_ids,
            "to_give": done.to_give,
        },
        summary=summary,
        next=inspect_command(loaded, output, format),
    )
