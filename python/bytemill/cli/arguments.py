"""Values of options → arguments of the library: corpora, tokenizers, counts."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .. import _native, encodings
from ..corpus.argument import Corpus, skips
from ..corpus.choosing import warn_of_skipped_files
from ..corpus.places import FROM_THE_END, Listing, expand
from ..corpus.stdin import HEAD, STDIN, compression_suffix
from ..counts import Counts
from ..errors import ConfigError
from ..tokenizer import Tokenizer
from . import streams


def refuse_stdin(flag: str, corpus: Sequence[str]) -> None:
    """Raises a usage error for an option that must read the corpus again."""
    if STDIN in corpus:
        raise click.UsageError(f"{flag} needs files; stdin can be read only once")


def chosen_specials(
    texts: Sequence[str], none: bool, default: Sequence[str] | None = None
) -> Sequence[str] | None:
    """The special tokens for `--special-token` and `--no-special-tokens`."""
    if none and texts:
        raise click.UsageError("--no-special-tokens contradicts --special-token")
    return texts or (() if none else default)


def stages(pattern: Sequence[str]) -> str | list[str] | None:
    """The library's form of a repeatable `--pattern`."""
    return None if not pattern else pattern[0] if len(pattern) == 1 else list(pattern)


def special_tokens(texts: Sequence[str]) -> list[str] | dict[str, int] | None:
    """The library's form of a repeatable `--special-token`."""
    if not texts:
        return None
    # The last "=" counts, and only before a number: "<a=b>" is a token without an id.
    parted = [text.rpartition("=") for text in texts]
    with_id = [bool(text) and id.isascii() and id.isdigit() for text, _, id in parted]
    if not any(with_id):
        return list(texts)
    if not all(with_id):
        raise click.UsageError("--special-token must have an id every time, or never")
    return {text: int(id) for text, _, id in parted}


def load_tokenizer(
    path: str, pattern: Sequence[str] = (), special_token: Sequence[str] = ()
) -> Tokenizer:
    """Loads a tokenizer file with the options, or the encoding of that name."""
    return encodings.load(
        path, pattern=stages(pattern), special_tokens=special_tokens(special_token)
    )


def load_mixed(path: str, pattern: Sequence[str], special_token: Sequence[str]) -> Tokenizer:
    """Loads one of several tokenizers; the options apply only to those that need them."""
    try:
        return load_tokenizer(path, pattern, special_token)
    except ConfigError as error:
        try:
            return load_tokenizer(path)
        except ConfigError:
            raise error from None


def load_counts(names: Sequence[str], memory_limit: str | None, spill_dir: Path | None) -> Counts:
    """The sum of counts files."""
    paths = [path for name in names for path in expand(name)]
    counts = Counts.load(paths[0], memory_limit=memory_limit, spill_dir=spill_dir)
    for other in paths[1:]:
        counts.merge(Counts.load(other))
    return counts


READING = (
    "text_field", "input_format", "on_error", "null", "separator", "max_document", "max_ratio",
    "max_window", "include", "exclude",
)  # fmt: skip


def taken(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the values of `corpus_options` from `options`."""
    return {name: options.pop(name) for name in READING}


@contextlib.contextmanager
def corpus_of(
    names: Sequence[str], reading: dict[str, Any], *, passes: int = 1
) -> Iterator[Corpus]:
    """The corpus arguments as a corpus.

    Stdin (`-`) is streamed. If it must be read from its end, or more than once (`passes`), it is
    copied to a temporary file first.
    """
    if STDIN not in names:
        yield Corpus(tuple(names), **reading)
        return
    streams.tell_of_terminal()
    format = _native.input_format("stdin", reading["input_format"])
    if passes == 1 and format not in FROM_THE_END:
        yield Corpus(tuple(names), **reading)
        return
    with tempfile.TemporaryDirectory(prefix="bytemill-") as directory:
        source = sys.stdin.buffer
        head = source.read(HEAD)
        copy = os.path.join(directory, "stdin" + compression_suffix(head))
        with open(copy, "wb") as target:
            target.write(head)
            shutil.copyfileobj(source, target, streams.BLOCK_SIZE)
        yield Corpus(tuple(copy if name == STDIN else name for name in names), **reading)


def found(corpus: Corpus) -> tuple[Corpus, Listing]:
    """Lists the files of a corpus once; returns the corpus of these files, and the listing.

    Prints a note about skipped files.
    """
    listing = corpus.listing()
    warn_of_skipped_files(listing.skipped)
    return replace(corpus, places=tuple(listing.entries)), listing


def skipped_files(listing: Listing) -> list[dict[str, str]]:
    """The files that are skipped, for JSON."""
    return [{"file": file.name, "reason": file.reason} for file in listing.skipped]


def note_skips(ctx: click.Context, skipped: dict[str, int]) -> None:
    """Prints a note about skipped records."""
    if skipped:
        streams.note(ctx, skips(skipped))
