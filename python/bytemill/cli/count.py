"""`bytemill count`: corpus → counts file."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click

from .. import _numbers
from ..counts import Counts, count_to_file
from ..formats import stages
from ..preview import Counting
from . import dry_run as dry
from . import options, streams

EXAMPLES = """\b
examples:
  bytemill count 'part1/*.txt' -o part1.counts
  bytemill count data/ -o data.counts --memory-limit 2GB
  bytemill count data/ -o data.counts --resume
  bytemill train-tokenizer --counts '*.counts' -o tokenizer.json
"""


@click.command(
    "count", short_help="Count the pieces of text, to learn from later.", epilog=EXAMPLES
)
@click.argument("corpus", nargs=-1, required=True, metavar="CORPUS...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Where the counts go; meanwhile, into a directory with .partial behind this name.",
)
@options.special_tokens_option
@options.no_special_tokens_option
@options.pattern_option
@options.corpus_options
@options.engine_options
@options.threads_option
@options.memory_limit_option
@click.option("--resume", is_flag=True, help="Go on where an interrupted run stopped.")
@options.overwrite_option
@options.dry_run_option
@options.quiet_option
@streams.json_option
@click.pass_context
def count(
    ctx: click.Context,
    /,
    corpus: tuple[str, ...],
    output: Path,
    special_token: tuple[str, ...],
    no_special_tokens: bool,
    pattern: tuple[str, ...],
    threads: int | None,
    memory_limit: str | None,
    resume: bool,
    overwrite: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Count the pieces of CORPUS and save the counts.

    CORPUS is files, directories, globs, URLs, or - for stdin: text, JSONL, CSV, Parquet, Arrow,
    also compressed, and archives. Counts of several parts of a corpus, made
    on one machine or many, are what train-tokenizer --counts learns from.
    """
    if no_special_tokens and special_token:
        raise click.UsageError("--no-special-tokens contradicts --special-token")
    if resume and overwrite:
        raise click.UsageError("--resume contradicts --overwrite")
    if resume and "-" in corpus:
        raise click.UsageError("--resume needs files; stdin cannot be read again")
    options.check_file(output, overwrite or resume)
    began = time.perf_counter()
    engine = options.engine_of(reading)
    how: dict[str, Any] = {
        "pattern": options.stages(pattern) or "gpt2",
        "special_tokens": special_token or (() if no_special_tokens else ("<|endoftext|>",)),
        "threads": threads,
        "memory_limit": memory_limit,
        "progress": options.progress(quiet, as_json),
    }
    if dry_run:
        dry.refuse_stdin(corpus)
    with options.corpus_of(corpus, reading) as named:
        if dry_run:
            work = Counting(
                stages(how["pattern"]), list(how["special_tokens"]), threads, memory_limit
            )
            dry.show(named, work, as_json=as_json)
            return
        source, listing = options.found(named)
        counts = count_to_file(
            source, output, engine=engine, overwrite=overwrite, resume=resume, **how
        )
    seconds = time.perf_counter() - began
    options.note_skips(ctx, counts.skipped)
    if as_json:
        streams.put_json(
            {
                "counts": str(output),
                "bytes": counts.bytes_read,
                "file_bytes": listing.file_bytes,
                "pieces": len(counts),
                "total": counts.total,
                "skipped": counts.skipped,
                "skipped_files": options.skipped_files(listing),
                "pattern": counts.pattern,
                "special_tokens": counts.special_tokens,
                "fingerprint": counts.fingerprint,
                "seconds": round(seconds, 3),
            }
        )
    elif not quiet:
        _summary(counts, output, listing.file_bytes, seconds)


def _summary(counts: Counts, output: Path, file_bytes: int, seconds: float) -> None:
    text = _numbers.text_size(counts.bytes_read, file_bytes)
    streams.say(
        f"saved   {output}: {len(counts):,} different pieces of {text} "
        f"in {_numbers.duration(seconds)}"
    )
    name = shlex.quote(str(output))
    streams.say(f"next    bytemill train-tokenizer --counts {name} -o tokenizer.json")
