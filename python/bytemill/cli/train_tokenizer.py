"""`bytemill train-tokenizer`: corpus → tokenizer file."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click

from .. import measures
from ..conversion import CARRIES, Format
from ..tokenizer import Tokenizer
from ..training import train_tokenizer as learn
from . import options, streams

EXAMPLES = """\b
examples:
  bytemill train-tokenizer corpus.txt -o tokenizer.json --vocab-size 32000
  bytemill train-tokenizer 'data/**/*.txt' -o tokenizer.json --pattern cl100k
  zcat corpus.gz | bytemill train-tokenizer - -o tokenizer.json --vocab-size 8000
  bytemill train-tokenizer more.txt -o larger.json --extend-from tokenizer.json --vocab-size 50000
"""


@click.command("train-tokenizer", short_help="Learn a tokenizer from text.", epilog=EXAMPLES)
@click.argument("corpus", nargs=-1, required=True, metavar="CORPUS...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Where the tokenizer goes; a directory for --format gpt2.",
)
@click.option(
    "--vocab-size",
    type=click.IntRange(min=1),
    metavar="N",
    default=32_000,
    show_default=True,
    help="How many ids: 256 bytes, the merges, the special tokens.",
)
@click.option(
    "--special-token",
    multiple=True,
    metavar="TEXT",
    help="String with an id of its own that separates documents; may be repeated. "
    "[default: <|endoftext|>]",
)
@click.option("--no-special-tokens", is_flag=True, help="None at all.")
@click.option(
    "--pattern",
    multiple=True,
    metavar="NAME|REGEX",
    help="What cuts documents into pieces: gpt2, cl100k, o200k or a regular expression; repeated "
    "for several stages, each cutting the pieces of the one before.  [default: gpt2]",
)
@click.option(
    "--tie-break",
    type=click.Choice(["bytes", "huggingface"]),
    default="bytes",
    show_default=True,
    help="Of pairs with equal counts: the greatest byte strings, or as the tokenizers library.",
)
@click.option(
    "--min-frequency",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Pairs that occur less often are not merged.",
)
@click.option(
    "--min-piece-count",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Pieces that occur less often are dropped before merging.",
)
@click.option(
    "--max-token-length",
    type=click.IntRange(min=1),
    metavar="N",
    help="No token grows longer than this many bytes.",
)
@click.option(
    "--extend-from",
    metavar="FILE",
    help="Start from this tokenizer's merges, pattern and special tokens, and add to them.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many threads count.  [default: every core allowed]",
)
@click.option(
    "--format",
    type=options.FORMATS,
    default="huggingface",
    show_default=True,
    help="huggingface is tokenizer.json.",
)
@options.overwrite_option
@options.quiet_option
@streams.json_option
def train_tokenizer(
    corpus: tuple[str, ...],
    output: Path,
    vocab_size: int,
    special_token: tuple[str, ...],
    no_special_tokens: bool,
    pattern: tuple[str, ...],
    extend_from: str | None,
    format: Format,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **limits: Any,
) -> None:
    """Learn a tokenizer from CORPUS and save it.

    CORPUS is files, directories, globs, or - for stdin. The special tokens separate documents.
    """
    if no_special_tokens and special_token:
        raise click.UsageError("--no-special-tokens contradicts --special-token")
    if extend_from is not None and pattern:
        raise click.UsageError("--extend-from keeps its own pattern; leave --pattern out")
    options.check_output(output, format, overwrite)
    base = None if extend_from is None else options.load(extend_from)
    # A tokenizer to extend brings its special tokens; more only if they are asked for.
    default = () if no_special_tokens or base is not None else ("<|endoftext|>",)
    began = time.perf_counter()
    with options.corpus_files(corpus) as paths:
        tokenizer = learn(
            tuple(paths),
            vocab_size=vocab_size,
            special_tokens=special_token or default,
            pattern=options.stages(pattern) or "gpt2",
            extend_from=base,
            progress=options.progress(quiet, as_json),
            **limits,
        )
    tokenizer.save(output, format=format, overwrite=overwrite)
    seconds = time.perf_counter() - began
    if as_json:
        streams.put_json(
            {
                "tokenizer": str(output),
                "format": format,
                "vocab_size": len(tokenizer),
                "merges": len(tokenizer.merges),
                "special_tokens": tokenizer.special_tokens,
                "fingerprint": tokenizer.fingerprint,
                "seconds": round(seconds, 3),
            }
        )
    elif not quiet:
        _summary(tokenizer, output, format, seconds)


def _summary(tokenizer: Tokenizer, output: Path, format: Format, seconds: float) -> None:
    n_special = len(tokenizer.special_tokens)
    streams.say(
        f"saved   {output}: {len(tokenizer):,} ids (256 bytes, {len(tokenizer.merges):,} merges, "
        f"{n_special} special token{'' if n_special == 1 else 's'}) "
        f"in {measures.duration(seconds)}"
    )
    streams.say(f"next    {inspect_command(tokenizer, output, format)} 'any text'")


def inspect_command(tokenizer: Tokenizer, path: Path, format: Format) -> str:
    """How to look at a file just written, with what its format does not carry."""
    words = ["bytemill", "inspect", str(path)]
    if "pattern" not in CARRIES[format]:
        stages = tokenizer.pattern
        for stage in [stages] if isinstance(stages, str) else stages:
            words += ["--pattern", stage]
    if "special tokens" not in CARRIES[format]:
        for text, id in tokenizer.special_tokens.items():
            words += ["--special-token", f"{text}={id}"]
    return shlex.join(words)
