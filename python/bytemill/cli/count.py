"""`bytemill count`: corpus → counts file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from .. import _numbers
from ..counts import DEFAULT_PATTERN, DEFAULT_SPECIALS, count_to_file
from ..formats import stages
from ..preview import CountingWork
from . import arguments, options, outputs, streams
from . import dry_run as dry

EXAMPLES = """\b
examples:
  bytemill count 'part1/*.txt' -o part1.counts
  bytemill count data/ -o data.counts --memory-limit 2GB
  bytemill count data/ -o data.counts --resume
  bytemill train-tokenizer --counts '*.counts' -o tokenizer.json
"""


@click.command("count", epilog=EXAMPLES)
@click.argument("corpus", nargs=-1, required=True, metavar="CORPUS...")
@options.output_option(
    "File for the counts; unfinished work is in a directory of this name with .partial added."
)
@options.special_tokens_option
@options.no_special_tokens_option
@options.pattern_option
@options.corpus_options
@options.engine_options
@options.threads_option
@options.memory_limit_option
@options.resume_option
@options.overwrite_option
@options.dry_run_option
@options.report_options
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
    **reading: Any,
) -> None:
    """Count the pieces of CORPUS and save the counts.

    CORPUS is files, directories, globs, URLs, or - for stdin: text, JSONL, CSV, Parquet, Arrow,
    also compressed, and archives. `train-tokenizer --counts` learns from the counts of several
    parts of a corpus, made on one machine or many.
    """
    specials = arguments.chosen_specials(special_token, no_special_tokens, DEFAULT_SPECIALS)
    if resume:
        arguments.refuse_stdin("--resume", corpus)
    outputs.check_file(output, overwrite or resume)
    began = time.perf_counter()
    engine = options.engine_of(reading)
    how: dict[str, Any] = {
        "pattern": arguments.stages(pattern) or DEFAULT_PATTERN,
        "special_tokens": specials,
        "threads": threads,
        "memory_limit": memory_limit,
        "progress": options.progress(),
    }
    if dry_run:
        arguments.refuse_stdin("--dry-run", corpus)
    with arguments.corpus_of(corpus, reading) as named:
        if dry_run:
            work = CountingWork(
                stages(how["pattern"]), list(how["special_tokens"]), threads, memory_limit
            )
            dry.show(named, work)
            return
        source, listing = arguments.found(named)
        counts = count_to_file(
            source, output, engine=engine, overwrite=overwrite, resume=resume, **how
        )
    seconds = time.perf_counter() - began
    arguments.note_skips(ctx, counts.skipped)
    text = _numbers.text_size(counts.bytes_read, listing.file_bytes)
    streams.emit(
        {
            "counts": str(output),
            "bytes": counts.bytes_read,
            "file_bytes": listing.file_bytes,
            "pieces": len(counts),
            "total": counts.total,
            "skipped": counts.skipped,
            "skipped_files": arguments.skipped_files(listing),
            "pattern": counts.pattern,
            "special_tokens": counts.special_tokens,
            "fingerprint": counts.fingerprint,
            "seconds": round(seconds, 3),
        },
        summary=f"saved   {output}: {len(counts):,} different pieces of {text} "
        f"in {_numbers.duration(seconds)}",
        next=["train-tokenizer", "--counts", output, "-o", "tokenizer.json"],
    )
