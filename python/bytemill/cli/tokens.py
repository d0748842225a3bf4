"""Directories of tokens: what `bytemill encode -o` makes, and `bytemill verify`."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from .. import _numbers
from ..corpus.argument import Corpus
from ..errors import BytemillError
from ..preview import Encoding
from ..tokenizer import Tokenizer
from ..tokens.encode import SHARD_TOKENS
from ..tokens.view import Tokens, verify_tokens
from . import dry_run as dry
from . import options, streams

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS = ("shards", "npy", "bin", "megatron")

VERIFY_EXAMPLES = """\b
examples:
  bytemill verify tokens/
  bytemill verify tokens/ --source data/
"""


def _all(*decorators: Callable[[Function], Function]) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


encode_options = _all(
    click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help="Directory for the tokens. The options below are for this.",
    ),
    click.option(
        "--shard-tokens",
        type=options.Count(1),
        default=SHARD_TOKENS,
        show_default=True,
        metavar="N",
        help="Ids of a shard; 100000000 or 100M.",
    ),
    click.option(
        "--append-eot/--no-append-eot",
        default=True,
        show_default=True,
        help="Give an end-of-text to files and records that do not end in one.",
    ),
    click.option(
        "--eot", metavar="TEXT", help="Special token that ends documents.  [default: <|endoftext|>]"
    ),
    click.option(
        "--dtype",
        type=click.Choice(["uint16", "uint32", "int32"]),
        help="Type of an id.  [default: the smallest that fits]",
    ),
    click.option(
        "--val-fraction",
        type=click.FloatRange(0, 1),
        metavar="X",
        help="Share of documents to put apart for validation, such as 0.01.",
    ),
    click.option("--shuffle", is_flag=True, help="Put documents into a random order."),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        default=0,
        show_default=True,
        metavar="N",
        help="What --shuffle and --val-fraction depend on.",
    ),
    options.corpus_options,
    options.engine_options,
    options.threads_option,
    click.option("--resume", is_flag=True, help="Go on where an interrupted run stopped."),
    options.overwrite_option,
    options.dry_run_option,
    options.quiet_option,
    streams.json_option,
)

decode_options = _all(
    click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help="File for the text.  [default: stdout]",
    ),
    click.option("--split", metavar="NAME", help="Which split of TOKENS, if it has several."),
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
    quiet: bool,
    as_json: bool,
    **plan: Any,
) -> None:
    """`bytemill encode -o`."""
    if not corpus:
        raise click.UsageError("-o needs a corpus: files, directories, globs, or - for stdin")
    if resume and overwrite:
        raise click.UsageError("--resume contradicts --overwrite")
    if resume and "-" in corpus:
        raise click.UsageError("--resume needs files; stdin cannot be read again")
    began = time.perf_counter()
    reading = options.taken(plan)
    plan["engine"] = options.engine_of(plan)
    if dry_run:
        dry.refuse_stdin(corpus)
        with options.corpus_of(corpus, reading) as named:
            dry.show(named, Encoding(tokenizer, plan["threads"]), as_json=as_json)
        return
    opened = options.corpus_of(corpus, reading)
    with opened as named, _telling_how_to_go_on(ctx, output, corpus):
        source, listing = options.found(named)
        tokenizer.encode_files(
            source,
            output,
            format=format or "shards",  # type: ignore[arg-type]
            resume=resume,
            overwrite=overwrite,
            progress=options.progress(quiet, as_json),
            **plan,
        )
    seconds = time.perf_counter() - began
    names = [entry["name"] for entry in Tokens(output, _first(plan)).manifest["splits"]]
    splits = [Tokens(output, name) for name in names]
    options.note_skips(ctx, splits[0].skipped)
    if as_json:
        files = {"skipped_files": options.skipped_files(listing)}
        streams.put_json(_facts(splits, seconds) | files)
    elif not quiet:
        _summary(splits, seconds)


def _first(plan: dict[str, Any]) -> str:
    return "all" if plan["val_fraction"] is None else "train"


@contextlib.contextmanager
def _telling_how_to_go_on(
    ctx: click.Context, output: Path, corpus: Sequence[str]
) -> Iterator[None]:
    """Whatever stops the work, what is done of it is not lost, and the user should know."""
    begun_before = (output / ".partial").exists()
    try:
        yield
    except (BytemillError, OSError, KeyboardInterrupt):
        if "-" not in corpus and not begun_before and (output / ".partial").exists():
            streams.note(ctx, f"{output}: what is done is kept, and --resume goes on with it")
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


def _summary(splits: list[Tokens], seconds: float) -> None:
    first = splits[0]
    text = first.text_bytes
    origin = "" if text is None else f" from {_numbers.text_size(text, first.file_bytes)}"
    shown = "; ".join(
        ("" if split.split == "all" else f"{split.split} ")
        + f"{_number(len(split), 'token')} in {_number(len(split.documents), 'document')}"
        for split in splits
    )
    streams.say(
        f"saved   {first.path}: {shown} ({first.dtype.name}){origin} "
        f"in {_numbers.duration(seconds)}"
    )
    streams.say(f"next    bytemill verify {shlex.quote(str(first.path))}")


def _number(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


@click.command(short_help="Check tokens on disk.", epilog=VERIFY_EXAMPLES)
@click.argument("directory", metavar="TOKENS")
@click.option(
    "-t",
    "--tokenizer",
    metavar="FILE",
    help="Tokenizer that the tokens are of: every id must be in its vocabulary.  [default: the one "
    "in TOKENS]",
)
@click.option(
    "--source",
    multiple=True,
    metavar="CORPUS",
    help="The text, in the order in which it was encoded; may be repeated. The tokens must decode "
    "to it, byte for byte.",
)
@options.load_options
@options.choice_options
@options.quiet_option
@streams.json_option
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
    quiet: bool,
    as_json: bool,
) -> None:
    """Check the tokens in the directory TOKENS: files, checksums, range of ids, ends of documents,
    totals, tokenizer.

    What is wrong goes to stdout, a line each; the exit code is then 1.
    """
    loaded = options.load(tokenizer, pattern, special_token) if tokenizer else None
    problems = verify_tokens(
        directory,
        loaded,
        source=Corpus(source, include=include, exclude=exclude) if source else None,
        progress=options.progress(quiet, as_json),
    )
    if as_json:
        streams.put_json({"tokens": directory, "problems": problems})
    else:
        streams.put(f"{problem}\n" for problem in problems)
    if problems:
        ctx.exit(1)
    if not (quiet or as_json):
        against = " and equal to its source" if source else ""
        streams.say(f"whole   {directory}: as its manifest says{against}")
