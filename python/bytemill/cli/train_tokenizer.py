"""`bytemill train-tokenizer`: corpus → tokenizer file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, get_args

import click

from .. import _numbers
from ..convert import CARRIES, Format
from ..counts import DEFAULT_PATTERN, DEFAULT_SPECIALS
from ..formats import stages, target_paths
from ..learn import TieBreak, learn
from ..preview import CountingWork
from ..tokenizer import Tokenizer
from . import arguments, options, outputs, streams
from . import dry_run as dry

EXAMPLES = """\b
examples:
  bytemill train-tokenizer corpus.txt -o tokenizer.json --vocab-size 32000
  bytemill train-tokenizer 'data/**/*.txt' -o tokenizer.json --pattern cl100k
  zcat corpus.gz | bytemill train-tokenizer - -o tokenizer.json --vocab-size 8000
  bytemill train-tokenizer --counts 'parts/*.counts' -o tokenizer.json
  bytemill train-tokenizer more.txt -o larger.json --extend-from tokenizer.json --vocab-size 50000
"""


@click.command("train-tokenizer", epilog=EXAMPLES)
@click.argument("corpus", nargs=-1, metavar="[CORPUS...]")
@click.option(
    "--counts",
    multiple=True,
    metavar="FILE|GLOB",
    help="Learn from counts files made by bytemill count, instead of a corpus; may be repeated.",
)
@options.output_option("File for the tokenizer; a directory for --format gpt2.")
@click.option(
    "--vocab-size",
    type=options.WholeNumber(1),
    metavar="N",
    default=32_000,
    show_default=True,
    help="Number of ids: 256 bytes, merges and special tokens; 32000 or 32k.",
)
@options.special_tokens_option
@options.no_special_tokens_option
@options.pattern_option
@click.option(
    "--tie-break",
    type=click.Choice(get_args(TieBreak)),
    default="bytes",
    show_default=True,
    help="Order of equally frequent pairs: the greatest byte strings first, or as in tokenizers, "
    "or as in rustbpe (the smallest ids first).",
)
@click.option(
    "--min-frequency",
    type=options.WholeNumber(1),
    metavar="N",
    default=1,
    show_default=True,
    help="Do not merge pairs that occur less often.",
)
@click.option(
    "--min-piece-count",
    type=options.WholeNumber(1),
    metavar="N",
    default=1,
    show_default=True,
    help="Drop pieces that occur less often before merging.",
)
@click.option(
    "--max-token-length",
    type=options.WholeNumber(1),
    metavar="N",
    help="Maximum length of a token in bytes.",
)
@click.option(
    "--extend-from",
    metavar="FILE|NAME",
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
    help="Directory for counts that do not fit into memory.  [default: beside the output]",
)
@click.option(
    "--format",
    type=options.FORMATS,
    default="huggingface",
    show_default=True,
    help="File format; huggingface is tokenizer.json.",
)
@options.overwrite_option
@options.dry_run_option
@options.report_options
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
    dry_run: bool,
    **limits: Any,
) -> None:
    """Learn a tokenizer from CORPUS and save it.

    CORPUS is files, directories, globs, URLs, or - for stdin: text, JSONL, CSV, Parquet, Arrow,
    also compressed, and archives. The special tokens separate documents of plain text; a record of
    another format is a document.
    """
    if not corpus and not counts:
        raise click.UsageError("give CORPUS or --counts")
    if corpus and counts:
        raise click.UsageError("give CORPUS or --counts, not both")
    specials = arguments.chosen_specials(special_token, no_special_tokens)
    if extend_from is not None and pattern:
        raise click.UsageError("--extend-from keeps its own pattern: omit --pattern")
    reading = arguments.taken(limits)
    limits["engine"] = options.engine_of(limits)
    outputs.check_output(output, format, overwrite)
    outputs.check_not_read(target_paths(output, format), corpus or counts)
    base = None if extend_from is None else arguments.load_tokenizer(extend_from)
    limits |= {
        "vocab_size": vocab_size,
        "special_tokens": specials,
        "pattern": arguments.stages(pattern),
        "extend_from": base,
        "memory_limit": memory_limit,
        "spill_dir": spill_dir or _beside(output),
        "progress": options.progress(),
    }
    if base is not None and not counts and not special_token:
        # A tokenizer to extend has its special tokens; others are added only if given.
        limits["special_tokens"] = ()
    if dry_run:
        _dry_run(corpus, reading, limits)
        return
    began = time.perf_counter()
    files: dict[str, Any] = {}
    file_bytes = 0
    if counts:
        sum = arguments.load_counts(counts, memory_limit, limits["spill_dir"])
        learned = learn(None, counts=sum, **limits)
    else:
        with arguments.corpus_of(corpus, reading) as named:
            source, listing = arguments.found(named)
            learned = learn(source, counts=None, **limits)
        file_bytes = listing.file_bytes
        files = {"file_bytes": file_bytes, "skipped_files": arguments.skipped_files(listing)}
    tokenizer = learned.tokenizer
    tokenizer.save(output, format=format, overwrite=overwrite)
    seconds = time.perf_counter() - began
    text = _numbers.text_size(learned.text_bytes, file_bytes)
    # The progress line has the size of the text; print it only if the size of the files differs.
    origin = f"from {text} " if file_bytes not in (0, learned.text_bytes) else ""
    n_special = len(tokenizer.special_tokens)
    streams.emit(
        {
            "tokenizer": str(output),
            "format": format,
            "vocab_size": len(tokenizer),
            "merges": len(tokenizer.merges),
            "special_tokens": tokenizer.special_tokens,
            "fingerprint": tokenizer.fingerprint,
            "bytes": learned.text_bytes,
            "skipped": learned.skipped,
            **files,
            "seconds": round(seconds, 3),
        },
        summary=f"saved   {output}: {len(tokenizer):,} ids (256 bytes, "
        f"{len(tokenizer.merges):,} merges, "
        f"{n_special} special token{'' if n_special == 1 else 's'}) "
        f"{origin}in {_numbers.duration(seconds)}",
        next=inspect_command(tokenizer, output, format),
    )


def _dry_run(corpus: tuple[str, ...], reading: dict[str, Any], limits: dict[str, Any]) -> None:
    if not corpus:
        raise click.UsageError("--dry-run needs a CORPUS")
    arguments.refuse_stdin("--dry-run", corpus)
    base, special_tokens = limits["extend_from"], limits["special_tokens"]
    work = CountingWork(
        stages(DEFAULT_PATTERN if base is None else base.pattern)
        if limits["pattern"] is None
        else stages(limits["pattern"]),
        list(DEFAULT_SPECIALS if special_tokens is None else special_tokens),
        limits["threads"],
        limits["memory_limit"],
        limits["vocab_size"],
    )
    with arguments.corpus_of(corpus, reading) as named:
        dry.show(named, work)


def _beside(output: Path) -> Path | None:
    """The directory of the output; for a directory that does not exist yet, any."""
    return output.parent if output.parent.is_dir() else None


def inspect_command(tokenizer: Tokenizer, path: Path, format: Format) -> list[str]:
    """The command that inspects the file, with options for what its format does not store."""
    words = ["inspect", str(path)]
    if "pattern" not in CARRIES[format]:
        stages = tokenizer.pattern
        for stage in [stages] if isinstance(stages, str) else stages:
            words += ["--pattern", stage]
    if "special tokens" not in CARRIES[format]:
        for text, id in tokenizer.special_tokens.items():
            words += ["--special-token", f"{text}={id}"]
    return [*words, "any text"]
