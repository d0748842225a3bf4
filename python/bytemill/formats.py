"""Tokenizer files: which one it is, where its parts lie, and how it is put in place.

Rust parses and prints the formats; this module finds the files, names them in errors and makes
sure that a file appears whole or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from . import _native
from ._files import regular, settle, write_atomically, write_together
from ._native import Core
from .errors import ConfigError, TokenizerError

TokenizerFormat: TypeAlias = Literal["huggingface", "gpt2", "tiktoken", "minbpe"]
KINDS: tuple[TokenizerFormat, ...] = get_args(TokenizerFormat)
# In a directory, the first of these that is there is read.
NAMES = ("tokenizer.json", "vocab.json", "tokenizer.model", "merges.txt")


def pattern_names() -> str:
    """The names of patterns, for a help text."""
    return ", ".join(_native.PATTERNS)


def stages(pattern: str | Sequence[str]) -> list[str]:
    """A pattern as the core wants it."""
    return [pattern] if isinstance(pattern, str) else list(pattern)


def special_pairs(
    special_tokens: Iterable[str] | Mapping[str, int] | None,
) -> list[tuple[str, int | None]]:
    """Special tokens as (text, id or None for the next free one)."""
    if special_tokens is None:
        return []
    if isinstance(special_tokens, str):
        raise TypeError(
            f"special_tokens must be a list of strings, not the string {special_tokens!r}"
        )
    if isinstance(special_tokens, Mapping):
        return list(special_tokens.items())
    return [(text, None) for text in special_tokens]


@contextlib.contextmanager
def blaming(source: str) -> Iterator[None]:
    """Turns an option that cannot be, though no option was given, into a fault of `source`."""
    try:
        yield
    except ConfigError as error:
        raise TokenizerError(f"{source}: {error.message}", error.hint) from None


def read(
    path: Path,
    pattern: str | Sequence[str] | None,
    special_tokens: Iterable[str] | Mapping[str, int] | None,
) -> Core:
    """Reads a tokenizer file of any kind."""
    settle(path if path.is_dir() else path.parent)
    if path.is_dir():
        path = in_directory(path)
    data = regular(path, TokenizerError).read_bytes()
    kind = _native.recognise(data)
    files = [(str(path), data)]
    if kind is None:
        raise TokenizerError(
            f"{path}: not a tokenizer file of a known kind",
            "known are tokenizer.json, GPT-2's vocab.json and merges.txt, tiktoken ranks, "
            "minbpe .model",
        )
    if kind in ("gpt2-vocab", "gpt2-merges"):
        wanted = "merges.txt" if kind == "gpt2-vocab" else "vocab.json"
        pair = [path, _sibling(path, wanted)]
        files = _read_together(pair if kind == "gpt2-vocab" else pair[::-1])
        kind = "gpt2"
    if kind in ("huggingface", "minbpe"):
        for name, value in (("pattern", pattern), ("special_tokens", special_tokens)):
            if value is not None:
                raise ConfigError(
                    f"{path}: {name} was given, but this format carries its own",
                    f"leave {name}= out",
                )
    if kind == "tiktoken" and pattern is None:
        raise ConfigError(
            f"{path}: a tiktoken rank file does not say which pattern goes with it",
            f"give a pattern: {pattern_names()}, or a regular expression",
        )
    return Core.read(
        kind, files, stages("gpt2" if pattern is None else pattern), special_pairs(special_tokens)
    )


def in_directory(directory: Path) -> Path:
    """The tokenizer file of a directory."""
    for name in NAMES:
        if (directory / name).is_file():
            return directory / name
    candidates = [p for end in ("*.tiktoken", "*.model") for p in sorted(directory.glob(end))]
    if len(candidates) == 1:
        return candidates[0]
    raise TokenizerError(
        f"{directory}: no tokenizer file in this directory",
        f"looked for {', '.join(NAMES)}, one *.tiktoken or one *.model",
    )


def _sibling(path: Path, wanted: str) -> Path:
    """`merges.txt` beside `vocab.json`, or `gpt2_merges.txt` beside `gpt2_vocab.json`."""
    here = "vocab" if wanted == "merges.txt" else "merges"
    there, suffix = wanted.split(".")
    names = [wanted]
    if here in path.stem:
        names.insert(0, path.stem.replace(here, there) + "." + suffix)
    for name in names:
        if (path.parent / name).is_file():
            return path.parent / name
    raise TokenizerError(
        f"{path}: {wanted} is missing beside it",
        "the GPT-2 format is two files, vocab.json and merges.txt, in one directory",
    )


def _read_together(paths: list[Path]) -> list[tuple[str, bytes]]:
    """Names and contents of files of one directory, all from the same `write_together`."""

    def stamps() -> list[tuple[int, int, int]]:
        settle(paths[0].parent)
        stats = [path.stat() for path in paths]
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]

    while True:
        before = stamps()
        files = [(str(path), regular(path, TokenizerError).read_bytes()) for path in paths]
        if stamps() == before:
            return files


def target_paths(path: Path, kind: str) -> list[Path]:
    """The files that writing a tokenizer of this kind to `path` makes."""
    return [path / "vocab.json", path / "merges.txt"] if kind == "gpt2" else [path]


def write(core: Core, path: Path, kind: str, overwrite: bool) -> None:
    """Writes a tokenizer file of the given kind."""
    if kind not in KINDS:
        raise ConfigError(f"unknown tokenizer format {kind!r}", f"known are {', '.join(KINDS)}")
    parts = core.write(kind)
    targets = target_paths(path, kind)
    if not overwrite:
        for target in targets:
            if target.exists():
                raise FileExistsError(f"{target} exists already (overwrite=True replaces it)")
    if kind == "gpt2":
        path.mkdir(parents=True, exist_ok=True)
        write_together(path, {target.name: data for target, data in zip(targets, parts)})
    else:
        write_atomically(path, parts[0])


def from_tiktoken(encoding: Any) -> Core:
    """The core of a live `tiktoken.Encoding`."""
    # tiktoken has no public way to its ranks and pattern; its own pickling uses these names.
    ranks: dict[bytes, int] = encoding._mergeable_ranks
    with blaming(type(encoding).__name__):
        return Core.build(
            ((rank, token) for token, rank in ranks.items()),
            None,
            list(encoding._special_tokens.items()),
            [_native.regex_stage(encoding._pat_str)],
            True,
        )


def huggingface_json(tokenizer: Any) -> bytes:
    """The tokenizer.json of a live `tokenizers.Tokenizer` or `transformers` fast tokenizer."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        raise TypeError(
            f"expected a tokenizers.Tokenizer or a fast transformers tokenizer, "
            f"not {type(tokenizer).__name__}"
        )
    data: bytes = backend.to_str().encode()
    return data


def from_huggingface(tokenizer: Any) -> Core:
    """The core of a live `tokenizers.Tokenizer` or `transformers` fast tokenizer."""
    data = huggingface_json(tokenizer)
    return Core.read("huggingface", [(type(tokenizer).__name__, data)], [], [])
