"""`bytemill encode -o` and `bytemill verify`: directories of tokens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from .. import _numbers
from ..corpus.argument import Corpus
from ..errors import BytemillError
from ..preview import EncodingWork
from ..tokenizer import Tokenizer
from ..tokens.encode import SHARD_TOKENS
from ..tokens.plan import DTYPES
from ..tokens.view import Tokens, verify_tokens
from . import arguments, options, streams
from . import dry_run as dry

VERIFY_EXAMPLES = """\b
examples:
  bytemill verify tokens/
  bytemill verify tokens/ --source data/
"""


encode_options = options.all_of(
    click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help="Directory for the tokens; the options below require it.",
    ),
    click.option(
        "--shard-tokens",
        type=options.WholeNumber(1),
        default=SHARD_TOKENS,
        show_default=True,
        metavar="N",
        help="Ids per shard; 100000000 or 100M.",
    ),
    click.option(
        "--append-eot/--no-append-eot",
        default=True,
        show_default=True,
        help="Append an end-of-text token to files and records that do not end in one.",
    ),
    click.option(
        "--eot", metavar="TEXT", help="Special token that ends documents.  [default: <|endoftext|>]"
    ),
    click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        help="Integer type of the ids.  [default: the smallest that fits]",
    ),
    click.option(
        "--val-fraction",
        type=click.FloatRange(0, 1),
        metavar="X",
        help="Share of documents to hold out for validation, such as 0.01.",
    ),
    click.option("--shuffle", is_flag=True, help="Shuffle the documents."),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        default=0,
        show_default=True,
        metavar="N",
        help="Random seed of --shuffle and --val-fraction.",
    ),
    options.corpus_options,
    options.engine_options,
    options.threads_option,
    options.resume_option,
    options.overwrite_option,
    options.dry_run_option,
    options.report_options,
)

decode_options = options.all_of(
    click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help="File for the text.  [default: stdout]",
    ),
    click.option("--split", metavar="NAME", help="Split of TOKENS, if it has several."),
    options.overwrite_option,
)


def encode_to_directory(
    ctx: click.Context,
    tokenizer: Tokenizer,
    corpus: Sequence[str],
    output: Path,
    format: str | None,
    *,
    resume: bool,
    overwrite: bool,
    dry_run: bool,
    **plan: Any,
) -> None:
    """`bytemill encode -o`."""
    if not corpus:
        raise click.UsageError("-o needs a corpus: files, directories, globs, or - for stdin")
    if resume:
        arguments.refuse_stdin("--resume", corpus)
    began = time.perf_counter()
    reading = arguments.taken(plan)
    plan["engine"] = options.engine_of(plan)
    if dry_run:
        arguments.refuse_stdin("--dry-run", corpus)
        with arguments.corpus_of(corpus, reading) as named:
            dry.show(named, EncodingWork(tokenizer, plan["threads"]))
        return
    opened = arguments.corpus_of(corpus, reading)
    with opened as named, _noting_resume(ctx, output, corpus):
        source, listing = arguments.found(named)
        made = tokenizer.encode_files(
            source,
            output,
            format=format or "shards",  # type: ignore[arg-type]
            resume=resume,
            overwrite=overwrite,
            progress=options.progress(),
            **plan,
        )
    seconds = time.perf_counter() - began
    splits = [Tokens(output, split=entry["name"]) for entry in made.manifest["splits"]]
    arguments.note_skips(ctx, splits[0].skipped)
    streams.emit(
        _facts(splits, seconds) | {"skipped_files": arguments.skipped_files(listing)},
        summary=_summary(splits, seconds),
        next=["verify", output],
    )


@contextlib.contextmanager
def _noting_resume(ctx: click.Context, output: Path, corpus: Sequence[str]) -> Iterator[None]:
    """Notes that the work can be resumed, if it stops early."""
    existed = (output / ".partial").exists()
    try:
        yield
    except (BytemillError, OSError, KeyboardInterrupt):
        if "-" not in corpus and not existed and (output / ".partial").exists():
            streams.note(ctx, f"{output}: finished work is kept; --resume continues it")
        raise


def _facts(splits: list[Tokens], seconds: float) -> dict[str, Any]:
    first = splits[0]
    return {
        "tokens": str(first.path),
        "format": first.manifest["format"],
        "dtype": first.dtype.name,
        "bytes": first.text_bytes,
        "file_bytes": first.file_bytes,
        "splits": {
            split.split: {"tokens": len(split), "documents": len(split.documents)}
            for split in splits
        },
        "skipped": first.skipped,
        "fingerprint": first.fingerprint,
        "seconds": round(seconds, 3),
    }


def _summary(splits: list[Tokens], seconds: float) -> str:
    first = splits[0]
    text = first.text_bytes
    origin = "" if text is None else f" from {_numbers.text_size(text, first.file_bytes)}"
    shown = "; ".join(
        ("" if split.split == "all" else f"{split.split} ")
        + f"{_number(len(split), 'token')} in {_number(len(split.documents), 'document')}"
        for split in splits
    )
    return (
        f"saved   {first.path}: {shown} ({first.dtype.name}){origin} "
        f"in {_numbers.duration(seconds)}"
    )


def _number(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


@click.command(epilog=VERIFY_EXAMPLES)
@click.argument("directory", metavar="TOKENS")
@click.option(
    "-t",
    "--tokenizer",
    metavar="FILE|NAME",
    help="Tokenizer of the tokens: every id must be in its vocabulary.  [default: the one "
    "in TOKENS]",
)
@click.option(
    "--source",
    multiple=True,
    metavar="CORPUS",
    help="Original text, in the order it was encoded; may be repeated. The tokens must decode "
    "to it, byte for byte.",
)
@options.load_options
@options.choice_options
@options.report_options
@click.pass_context
def verify(
    ctx: click.Context,
    directory: str,
    tokenizer: str | None,
    source: tuple[str, ...],
    pattern: tuple[str, ...],
    special_token: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
) -> None:
    """Check the tokens in the directory TOKENS: files, checksums, range of ids, ends of documents,
    totals, tokenizer.

    Problems are printed to stdout, one per line, and the exit code is 1.
    """
    loaded = (
        None if tokenizer is None else arguments.load_tokenizer(tokenizer, pattern, special_token)
    )
    problems = verify_tokens(
        directory,
        loaded,
        source=Corpus(source, include=include, exclude=exclude) if source else None,
        progress=options.progress(),
    )
    against = " and its source" if source else ""
    streams.emit(
        {"tokens": directory, "problems": problems},
        text=[f"{problem}\n" for problem in problems],
        summary="" if problems else f"valid   {directory}: matches its manifest{against}",
    )
    if problems:
        ctx.exit(1)
