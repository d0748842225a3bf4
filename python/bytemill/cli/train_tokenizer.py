"""`bytemill train-tokenizer`: corpus → tokenizer file."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click

from .. import measures
from ..conversion import CARRIES, Format
from ..formats import target_paths
from ..tokenizer import Tokenizer
from ..training import train_tokenizer as learn
from . import options, streams

EXAMPLES = """\b
examples:
  bytemill train-tokenizer corpus.txt -o tokenizer.json --vocab-size 32000
  bytemill train-tokenizer 'data/**/*.txt' -o tokenizer.json --pattern cl100k
  zcat corpus.gz | bytemill train-tokenizer - -o tokenizer.json --vocab-size 8000
  bytemill train-tokenizer --counts 'parts/*.counts' -o tokenizer.json
  bytemill train-tokenizer more.txt -o larger.json --extend-from tokenizer.json --vocab-size 50000
"""


@click.command("train-tokenizer", short_help="Learn a tokenizer from text.", epilog=EXAMPLES)
@click.argument("corpus", nargs=-1, metavar="[CORPUS...]")
@click.option(
    "--counts",
    multiple=True,
    metavar="FILE|GLOB",
    help="Learn from counts files, made by bytemill count, in place of a corpus; may be repeated.",
)
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
@options.special_tokens_option
@options.no_special_tokens_option
@options.pattern_option
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
@options.corpus_options
@options.engine_options
@options.threads_option
@options.memory_limit_option
@click.option(
    "--spill-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Where counts go that do not fit into memory.  [default: beside the output]",
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
    counts: tuple[str, ...],
    output: Path,
    vocab_size: int,
    special_token: tuple[str, ...],
    no_special_tokens: bool,
    pattern: tuple[str, ...],
    extend_from: str | None,
    memory_limit: str | None,
    spill_dir: Path | None,
    format: Format,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **limits: Any,
) -> None:
    """Learn a tokenizer from CORPUS and save it.

    CORPUS is files, directories, globs, URLs, or - for stdin: text, JSONL, CSV, Parquet, Arrow,
    also packed, and archives. The special tokens separate documents of plain text; a record of
    another format is a document.
    """
    if not corpus and not counts:
        raise click.UsageError("give a CORPUS, or --counts")
    if corpus and counts:
        raise click.UsageError("--counts takes the place of CORPUS; give one of them")
    if no_special_tokens and special_token:
        raise click.UsageError("--no-special-tokens contradicts --special-token")
    if extend_from is not None and pattern:
        raise click.UsageError("--extend-from keeps its own pattern; leave --pattern out")
    reading = options.taken(limits)
    limits["engine"] = options.engine_of(limits)
    options.check_output(output, format, overwrite)
    options.check_not_read(target_paths(output, format), corpus or counts)
    base = None if extend_from is None else options.load(extend_from)
    shown = options.progress(quiet, as_json)
    limits |= {
        "vocab_size": vocab_size,
        "special_tokens": special_token or (() if no_special_tokens else None),
        "pattern": options.stages(pattern),
        "extend_from": base,
        "memory_limit": memory_limit,
        "spill_dir": spill_dir or _beside(output),
        "progress": shown,
    }
    if base is not None and not counts and not special_token:
        # A tokenizer to extend brings its special tokens; more only if they are asked for.
        limits["special_tokens"] = ()
    began = time.perf_counter()
    if counts:
        sum = options.load_counts(counts, memory_limit, limits["spill_dir"])
        tokenizer = learn(counts=sum, **limits)
    else:
        with options.corpus_of(corpus, reading) as source:
            tokenizer = learn(source, **limits)
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


def _beside(output: Path) -> Path | None:
    """The directory that the output goes to; for a directory that is yet to be made, any."""
    return output.parent if output.parent.is_dir() else None


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
