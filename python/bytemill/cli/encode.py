"""`bytemill encode` and `bytemill decode`: text ↔ ids, in constant memory.

This module handles streams; `tokens` handles directories of tokens.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from .. import _native
from .._files import refuse_input, replacing
from ..corpus.names import shown
from ..errors import ConfigError, TokenizerError
from ..tokenizer import Tokenizer
from ..tokens.plan import FORMATS, SplitName
from ..tokens.view import Tokens
from . import arguments, options, outputs, streams, tokens

ENCODE_EXAMPLES = """\b
examples:
  echo "Hello, world" | bytemill encode -t tokenizer.json
  bytemill encode -t tokenizer.json corpus.txt --format u16 > corpus.bin
  bytemill encode -t cl100k_base --special none comment.txt
  bytemill encode data/ -t tokenizer.json -o tokens/
  bytemill encode 'data/*.txt' -t tokenizer.json -o tokens/ --val-fraction 0.01 --shuffle
  bytemill encode data/ -t tokenizer.json -o tokens/ --resume
"""
DECODE_EXAMPLES = """\b
examples:
  echo 72 101 108 108 111 | bytemill decode -t tokenizer.json
  bytemill decode -t tokenizer.json corpus.bin --format u16 > corpus.txt
  bytemill decode tokens/ -o corpus.txt
"""

# struct's letter for a little-endian id, and its size.
BINARY = {"u16": ("H", 2), "u32": ("I", 4)}
# Longer than any id: a longer word is an error, and must not fill the memory.
LONGEST_WORD = 100

STREAMS = ("ids", "json", "u16", "u32")


@click.command(epilog=ENCODE_EXAMPLES)
@click.argument("corpus", nargs=-1, metavar="[CORPUS]...")
@options.tokenizer_option
@click.option(
    "--format",
    type=click.Choice([*STREAMS, *FORMATS]),
    help="On stdout: ids (numbers and spaces), json (an array), u16, u32 (binary, little-endian). "
    "With -o: shards, npy (one file), bin (one file of ids alone), megatron (.bin and .idx).  "
    "[default: ids, or shards]",
)
@options.special_option
@options.load_options
@tokens.encode_options
@click.pass_context
def encode(
    ctx: click.Context,
    /,
    corpus: tuple[str, ...],
    tokenizer: str,
    format: str | None,
    special: str,
    pattern: tuple[str, ...],
    special_token: tuple[str, ...],
    output: Path | None,
    **files_only: Any,
) -> None:
    """Encode a file (default: stdin) as one text and write its ids to stdout; with -o, encode
    CORPUS into a directory of tokens.

    For -o, CORPUS is files, directories, globs, URLs, or - for stdin: text, JSONL, CSV, Parquet,
    Arrow, also compressed, and archives.
    """
    loaded = arguments.load_tokenizer(tokenizer, pattern, special_token)
    to_stdout = format in STREAMS if format else output is None
    if to_stdout != (output is None):
        raise click.UsageError(
            f"--format {format} {'writes to stdout: omit' if to_stdout else 'needs'} -o"
        )
    if output is not None:
        if special != "all":
            raise click.UsageError(
                "--special applies to stdout; with -o, special tokens are encoded as such"
            )
        tokens.encode_to_directory(ctx, loaded, corpus, output, format, **files_only)
        return
    file = corpus[0] if corpus else "-"
    kind = _native.input_format(shown(file), files_only.pop("input_format"))
    if kind != "text":
        raise click.UsageError(
            f"{file}: {kind} is encoded into a directory of tokens, with -o; stdout takes one text "
            "(--input-format text reads the bytes as text)"
        )
    for name in (*files_only, "quiet", "json"):
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} needs -o")
    if len(corpus) > 1:
        raise click.UsageError("stdout takes one text; use -o for several files")
    _encode_to_stdout(loaded, file, format or "ids", special)


def _encode_to_stdout(tokenizer: Tokenizer, file: str, format: str, special: str) -> None:
    if format == "u16" and tokenizer.max_id > 0xFFFF:
        raise ConfigError(f"ids up to {tokenizer.max_id} do not fit in u16", "use --format u32")
    if format in BINARY and sys.stdout.isatty():
        raise click.UsageError(f"--format {format} is binary: redirect it to a file or a pipe")
    write = sys.stdout.buffer.write
    with streams.open_input(file) as source:
        for part in _written(_encoded(tokenizer, source, special), format):
            write(part)


def _encoded(tokenizer: Tokenizer, source: BinaryIO, special: str) -> Iterator[list[int]]:
    stream = tokenizer._core.stream(special)
    for block in streams.blocks(source):
        yield stream.push(block)
    yield stream.finish()


def _written(groups: Iterator[list[int]], format: str) -> Iterator[bytes]:
    """Ids in the given format."""
    if format in BINARY:
        letter, _ = BINARY[format]
        for ids in groups:
            yield struct.pack(f"<{len(ids)}{letter}", *ids)
        return
    before, between, after = ("[", ", ", "]\n") if format == "json" else ("", " ", "\n")
    yield before.encode()
    first = True
    for ids in groups:
        if ids:
            yield (("" if first else between) + between.join(map(str, ids))).encode()
            first = False
    yield after.encode()


@click.command(epilog=DECODE_EXAMPLES)
@click.argument("file", default="-", metavar="[FILE|TOKENS]")
@click.option(
    "-t",
    "--tokenizer",
    metavar="FILE|NAME",
    help="Tokenizer file of any known format, a directory with one, or an encoding by name, such "
    "as cl100k_base.  [default: the one in TOKENS]",
)
@click.option(
    "--format",
    type=click.Choice(STREAMS),
    default="ids",
    show_default=True,
    help="Format of FILE: ids (numbers and spaces), json (an array), u16, u32 (binary, "
    "little-endian).",
)
@options.load_options
@tokens.decode_options
def decode(
    file: str,
    tokenizer: str | None,
    format: str,
    pattern: tuple[str, ...],
    special_token: tuple[str, ...],
    output: Path | None,
    split: SplitName | None,
    overwrite: bool,
) -> None:
    """Decode the ids in FILE (default: stdin), or in the directory TOKENS; write their exact bytes
    to stdout or to a file."""
    is_directory = os.path.isdir(file)
    loaded = (
        None if tokenizer is None else arguments.load_tokenizer(tokenizer, pattern, special_token)
    )
    if output is not None:
        outputs.check_file(output, overwrite)
        refuse_input(output, Path(file).iterdir() if is_directory else [file])
    if is_directory:
        parts = Tokens(file, split=split).decode(loaded)
    elif split is not None:
        raise click.UsageError("--split applies to a directory of tokens")
    elif loaded is None:
        raise click.UsageError("-t is required to decode ids from a file")
    else:
        parts = _decoded(loaded, file, format)
    with replacing(output) if output else contextlib.nullcontext(sys.stdout.buffer) as target:
        for part in parts:
            target.write(part)


def _decoded(tokenizer: Tokenizer, file: str, format: str) -> Iterator[bytes]:
    name = "stdin" if file == "-" else file
    n_before = 0
    with streams.open_input(file) as source:
        for ids in _read(source, name, format):
            try:
                yield tokenizer.decode_bytes(ids)
            except (TokenizerError, OverflowError):
                raise _unknown_id(tokenizer, ids, name, n_before) from None
            n_before += len(ids)


def _unknown_id(tokenizer: Tokenizer, ids: list[int], name: str, n_before: int) -> TokenizerError:
    """The invalid id, and its index in the input."""
    known = tokenizer.vocab.keys() | set(tokenizer.special_tokens.values())
    number, id = next((n, id) for n, id in enumerate(ids) if id not in known)
    return TokenizerError(
        f"{name}: id {id} at index {n_before + number} is not in the vocabulary",
        f"ids of this tokenizer go up to {tokenizer.max_id}; was another one used to encode?",
    )


def _read(source: BinaryIO, name: str, format: str) -> Iterator[list[int]]:
    if format == "json":
        return _read_json(source, name)
    if format in BINARY:
        return _read_binary(source, name, *BINARY[format])
    return _read_words(source, name)


def _read_words(source: BinaryIO, name: str) -> Iterator[list[int]]:
    offset, rest = 0, b""
    for block in streams.blocks(source):
        data = rest + block
        # The last word may continue in the next block.
        end = max(data.rfind(bytes([space])) for space in b" \n\t\r\v\f") + 1
        if len(data) - end > LONGEST_WORD:
            raise _not_an_id(data[end:], name, offset + end)
        yield _numbers(data[:end], name, offset)
        offset, rest = offset + end, data[end:]
    yield _numbers(rest, name, offset)


def _numbers(data: bytes, name: str, offset: int) -> list[int]:
    # int() also accepts "-1", "+1" and "1_000".
    if data.translate(None, b"0123456789 \n\t\r\v\f"):
        place = 0
        for word in data.split():
            place = data.index(word, place)
            if not word.isdigit():
                raise _not_an_id(word, name, offset + place)
            place += len(word)
    words = data.split()
    longest = max(words, key=len, default=b"")
    if len(longest) > LONGEST_WORD:
        raise _not_an_id(longest, name, offset + data.index(longest))
    return list(map(int, words))


def _not_an_id(word: bytes, name: str, offset: int) -> TokenizerError:
    shown = word[:20].decode("utf-8", "replace") + ("…" if len(word) > 20 else "")
    return TokenizerError(
        f"{name}: {shown!r} at byte {offset} is not an id",
        "ids are whole numbers between white space; binary files need --format u16 or u32",
    )


def _read_json(source: BinaryIO, name: str) -> Iterator[list[int]]:
    """Unlike the other formats, a JSON array must be read whole."""
    try:
        ids = json.load(source)
    except ValueError as error:
        raise TokenizerError(f"{name}: not JSON: {error}") from None
    if not isinstance(ids, list):
        raise TokenizerError(f"{name}: the JSON is not an array of ids")
    for number, id in enumerate(ids):
        if type(id) is not int or id < 0:
            raise TokenizerError(f"{name}: element {number} of the array, {id!r}, is not an id")
    yield ids


def _read_binary(source: BinaryIO, name: str, letter: str, width: int) -> Iterator[list[int]]:
    offset, rest = 0, b""
    for block in streams.blocks(source):
        data = rest + block
        n = len(data) // width
        yield list(struct.unpack(f"<{n}{letter}", data[: n * width]))
        offset, rest = offset + n * width, data[n * width :]
    if rest:
        raise TokenizerError(
            f"{name}: ends inside an id, at byte {offset}: {len(rest)} of {width} bytes",
            "the file is truncated, or its ids have another width",
        )
