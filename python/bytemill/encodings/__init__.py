"""Encodings by name: `cl100k_base`, `o200k_base` and others, as tiktoken has them.

bytemill contains the definitions but not the vocabularies, which are searched for on this machine
(`sources`) and verified. Only `download` uses the network. Loaded encodings are cached.

>>> import bytemill
>>> bytemill.encodings.encoding_name_for_model("gpt-4o-2024-05-13")
'o200k_base'
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import formats
from .._native import Core
from ..errors import ConfigError, TokenizerError, install_command
from ..formats import PatternLike
from ..tokenizer import Tokenizer
from .downloading import download
from .published import ENCODINGS, MODELS, PREFIXES, RANKS, definition
from .sources import DIRECTORY, find

__all__ = [
    "EncodingStatus",
    "available",
    "download",
    "encoding_for_model",
    "encoding_name_for_model",
    "get_encoding",
    "is_name",
    "list_encoding_names",
    "load",
    "status",
]


@dataclass(frozen=True)
class EncodingStatus:
    """Whether the vocabulary of an encoding is found on this machine, and where.

    Attributes:
        name: of the encoding.
        vocab_size: number of ids, special tokens included.
        ranks: name of its rank file; some encodings share one.
        place: kind of place where that is found; None if it is not found.
        path: the file it is read from.
    """

    name: str
    vocab_size: int
    ranks: str
    place: str | None
    path: Path | None


def get_encoding(name: str) -> Tokenizer:
    """The tokenizer of a named encoding, such as `cl100k_base`.

    Its vocabulary is searched for in the directory `BYTEMILL_ENCODINGS`, in tiktoken's cache, among
    the files stored by `bytemill encodings --download`, in the package bpe-openai and, for GPT-2,
    in the Hugging Face cache. Later calls return the same object.
    """
    return _loaded(definition(name).name)


@functools.cache
def _loaded(name: str) -> Tokenizer:
    encoding = ENCODINGS[name]
    found, rejected = find(RANKS[encoding.ranks])
    if found is None:
        raise _missing(name, rejected)
    specials = formats.special_pairs(encoding.special_tokens)
    files = [(str(found.path), found.data)]
    return Tokenizer._of(Core.read("tiktoken", files, [encoding.pattern], specials))


def _missing(name: str, rejected: list[Path]) -> TokenizerError:
    """The error for a missing vocabulary, with the ways to get it."""
    ranks = RANKS[ENCODINGS[name].ranks]
    others = "".join(f"; {path} is not the published file" for path in rejected)
    package = (
        install_command("encodings")
        if ranks.name in ("cl100k_base", "o200k_base")
        else "have merges.txt of openai-community/gpt2 in the Hugging Face cache"
    )
    return TokenizerError(
        f"{name}: its vocabulary is not on this machine{others}",
        f"one of: {package}; bytemill encodings --download {name}; set {DIRECTORY} to a directory "
        f"with {ranks.file}; set TIKTOKEN_CACHE_DIR to tiktoken's cache",
    )


def encoding_name_for_model(model: str) -> str:
    """The name of the encoding that a model uses, such as `gpt-4o` or `gpt-4o-2024-05-13`."""
    if model in MODELS:
        return MODELS[model]
    prefixes = [prefix for prefix in PREFIXES if str(model).startswith(prefix)]
    if prefixes:
        return PREFIXES[max(prefixes, key=len)]
    near = difflib.get_close_matches(str(model), MODELS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ConfigError(
        f"unknown model {model!r}",
        f"{hint}encodings: {', '.join(ENCODINGS)} (bytemill.get_encoding)",
    )


def encoding_for_model(model: str) -> Tokenizer:
    """The tokenizer of a model of OpenAI, such as `gpt-4o`; see `get_encoding`."""
    return get_encoding(encoding_name_for_model(model))


def list_encoding_names() -> list[str]:
    """The names that `get_encoding` knows, whether or not the vocabulary is on this machine."""
    return list(ENCODINGS)


def status(names: Iterable[str] | None = None) -> list[EncodingStatus]:
    """Where the vocabularies of encodings (None: all) are found. Reads and verifies the files."""
    wanted = [definition(name) for name in (ENCODINGS if names is None else names)]
    found = {name: find(RANKS[name])[0] for name in {each.ranks for each in wanted}}
    return [
        EncodingStatus(
            each.name,
            each.vocab_size,
            each.ranks,
            None if (at := found[each.ranks]) is None else at.place,
            None if at is None else at.path,
        )
        for each in wanted
    ]


def available() -> list[str]:
    """The names of the encodings whose vocabulary is found on this machine."""
    return [each.name for each in status() if each.path is not None]


def is_name(path_or_name: str | os.PathLike[str]) -> bool:
    """Whether this is the name of an encoding, and not a path of a file."""
    return isinstance(path_or_name, str) and (
        path_or_name in ENCODINGS and not os.path.lexists(path_or_name)
    )


def load(
    path_or_name: str | os.PathLike[str],
    *,
    pattern: PatternLike | None = None,
    special_tokens: Iterable[str] | Mapping[str, int] | None = None,
) -> Tokenizer:
    """The tokenizer of a file, as `Tokenizer.load` reads it, or of the encoding of that name."""
    if not is_name(path_or_name):
        try:
            return Tokenizer.load(path_or_name, pattern=pattern, special_tokens=special_tokens)
        except FileNotFoundError as error:
            name = os.fspath(path_or_name)
            near = difflib.get_close_matches(name, ENCODINGS, n=1, cutoff=0.8)
            if not near:
                raise
            raise FileNotFoundError(
                f"{name}: no such file or directory (did you mean the encoding {near[0]}?)"
            ) from error
    for name, value in (("pattern", pattern), ("special_tokens", special_tokens)):
        if value is not None:
            raise ConfigError(
                f"{path_or_name}: {name} was given, but an encoding has its own", f"omit {name}="
            )
    return get_encoding(str(path_or_name))
