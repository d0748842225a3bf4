"""The tokens of a run: files on disk → training tokens, held-out tokens and their tokenizer."""

from __future__ import annotations

import codecs
import os
import shlex
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import _native, encodings
from ..._files import regular
from ...errors import ConfigError, TokensError
from ...tokenizer import Tokenizer
from ...tokens.manifest import open_manifest
from ...tokens.plan import SplitName
from ...tokens.view import Tokens
from ..data import TokenArray
from ..keywords import TokenDtype

__all__ = ["Sources", "TokenSlice", "open_sources", "open_tokens", "splits_of"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sources:
    """The tokens of a run and their tokenizer.

    Attributes:
        train: tokens to train on.
        held_out: tokens to evaluate on; None if there are none.
        tokenizer: the tokenizer of both; None if unknown.
        vocab_size: the vocabulary size.
        facts: the description that the run's config stores.
    """

    train: TokenArray
    held_out: TokenArray | None
    tokenizer: Tokenizer | None
    vocab_size: int
    facts: dict[str, Any]


def open_sources(
    tokens: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    val: str | os.PathLike[str] | None = None,
    val_fraction: float = 0.02,
    vocab_size: int | None = None,
    token_dtype: TokenDtype = "uint16",
) -> Sources:
    """Opens tokens and finds their tokenizer.

    Args:
        tokens: a directory of tokens, a `.npy`, or raw ids.
        tokenizer: the tokenizer of the tokens; None for the one in their directory or beside it, if
            its fingerprint matches.
        val: tokens to evaluate on; None for the directory's split `val`, nanoGPT's `val.bin`
            beside `train.bin`, or the last share of the tokens.
        val_fraction: that share; 0 for none.
        vocab_size: vocabulary size, if neither tokens nor tokenizer define it.
        token_dtype: type of raw ids.
    """
    place = Path(tokens)
    split: SplitName | None = None
    if place.is_dir():
        names = splits_of(place)
        split = "train" if "train" in names else None
        if val is None and "val" in names:
            val = place
    elif val is None and place.name == "train.bin" and (place.parent / "val.bin").exists():
        val = place.parent / "val.bin"
    train: Any = open_tokens(place, split=split, dtype=token_dtype)
    if isinstance(train, Tokens):
        fingerprint = train.fingerprint
    else:
        fingerprint = (_manifest_beside(place) or {}).get("tokenizer", {}).get("fingerprint")
    found = _tokenizer(place, tokenizer, fingerprint)
    held_out: Any = None
    if val is not None:
        other = Path(val)
        named: SplitName | None = "val" if other.is_dir() and "val" in splits_of(other) else None
        held_out = open_tokens(other, split=named, dtype=token_dtype)
        if isinstance(held_out, Tokens) and fingerprint not in (None, held_out.fingerprint):
            raise TokensError(
                f"{other}: encoded with another tokenizer than {place}",
                "encode both with the same one",
            )
    elif val_fraction > 0:
        cut = len(train) - int(len(train) * val_fraction)
        held_out, train = TokenSlice(train, cut, len(train)), TokenSlice(train, 0, cut)
    facts = {
        "path": os.path.abspath(place),
        "val": None if val is None else os.path.abspath(val),
        "tokens": len(train),
        "held_out": 0 if held_out is None else len(held_out),
        "fingerprint": fingerprint,
        "tokenizer": None if found is None else found.fingerprint,
        "dtype": token_dtype,
    }
    size = _vocab_size(place, train, found, vocab_size)
    return Sources(train, held_out, found, size, facts)


class TokenSlice:
    """A slice of tokens, without a copy."""

    def __init__(self, tokens: TokenArray, start: int, stop: int) -> None:
        self.tokens, self.start, self.stop = tokens, start, stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: slice, /) -> Array:
        start, stop, step = index.indices(len(self))
        return self.tokens[slice(self.start + start, self.start + stop, step)]


def splits_of(directory: Path) -> list[str]:
    """The names of the splits of a directory of tokens."""
    entries = open_manifest(directory)["splits"]
    return [entry["name"] for entry in entries]


def _tokenizer(
    place: Path, given: Tokenizer | str | os.PathLike[str] | None, fingerprint: str | None
) -> Tokenizer | None:
    if given is not None:
        found = given if isinstance(given, Tokenizer) else encodings.load(given)
        if fingerprint not in (None, found.fingerprint):
            raise TokensError(
                f"{place}: encoded with the tokenizer {str(fingerprint)[:12]}…, "
                f"not {found.fingerprint[:12]}…",
                "use the tokenizer that the tokens were encoded with, or encode again",
            )
        return found
    # Without a fingerprint, a tokenizer file nearby could be any tokenizer.
    if fingerprint is None:
        return None
    for path in (place / "tokenizer.json", place.absolute().parent / "tokenizer.json"):
        if path.is_file():
            found = Tokenizer.load(path)
            if found.fingerprint == fingerprint:
                return found
    return None


def _vocab_size(
    place: Path, train: TokenArray, tokenizer: Tokenizer | None, asked: int | None
) -> int:
    if tokenizer is not None:
        return tokenizer.max_id + 1
    inner = train.tokens if isinstance(train, TokenSlice) else train
    if isinstance(inner, Tokens):
        return int(inner.manifest["tokenizer"]["max_id"]) + 1
    if asked is None:
        raise ConfigError(
            f"{place}: the vocabulary size of raw ids is unknown",
            "give tokenizer= or vocab_size=",
        )
    return asked


# --- files ---------------------------------------------------------------------------------------


def open_tokens(
    path: str | os.PathLike[str],
    *,
    split: SplitName | None = None,
    dtype: TokenDtype = "uint16",
) -> Tokens | Array:
    """Opens tokens: a directory of `encode_files`, a `.npy`, or raw ids such as nanoGPT's `.bin`.

    Args:
        path: the file or directory.
        split: the split of a directory that has several.
        dtype: type of raw ids, which have no header.
    """
    place = Path(path)
    if place.is_dir():
        return Tokens(place, split=split)
    regular(place, TokensError)
    if place.suffix == ".npy":
        try:
            ids = np.load(place, mmap_mode="r", allow_pickle=False)
        except OSError:
            raise
        except Exception as error:  # numpy's header parser raises many types
            raise TokensError(f"{place}: not a numpy array: {error}") from None
        if ids.ndim != 1 or ids.dtype.kind not in "ui":
            raise TokensError(
                f"{place}: must be a one-dimensional array of integers, is {ids.dtype} with "
                f"{ids.ndim} dimensions",
            )
        return ids  # type: ignore[no-any-return]
    if not place.is_file():
        raise TokensError(f"{place}: neither a file nor a directory")
    if _is_text(place):
        raise TokensError(
            f"{place}: a corpus of text, not tokens",
            f"encode it first: bytemill encode {shlex.quote(str(place))} -t tokenizer.json "
            "-o tokens/",
        )
    kind = np.dtype(dtype).newbyteorder("<")
    if kind.kind not in "ui":
        raise ConfigError(f"token_dtype must be an integer type, got {dtype}")
    said = (_manifest_beside(place) or {}).get("dtype", kind.name)
    if said != kind.name:
        raise TokensError(
            f"{place}: the ids are {said} according to the manifest beside it, not {kind.name}",
            f"use token_dtype={said!r}, or give the directory",
        )
    size = place.stat().st_size
    if size == 0 or size % kind.itemsize:
        raise TokensError(
            f"{place}: {size} bytes is not a multiple of the id size, {kind.itemsize} ({dtype})",
            "give the type of the ids: token_dtype='uint32'",
        )
    return np.memmap(place, kind, "r")


def _manifest_beside(file: Path) -> dict[str, Any] | None:
    """The manifest of the directory of tokens that a file of ids belongs to; None if to none."""
    try:
        manifest = open_manifest(file.absolute().parent)
    except (OSError, TokensError):
        return None
    shards = (shard for split in manifest["splits"] for shard in split["shards"])
    return manifest if any(shard["file"] == file.name for shard in shards) else None


def _is_text(file: Path) -> bool:
    """Whether a file is a corpus, by its name or its first bytes.

    Two- or four-byte ids are hardly ever valid UTF-8 without control characters.
    """
    if file.suffix in (".txt", ".md") or _native.input_format(str(file), None) != "text":
        return True
    with open(file, "rb") as opened:
        head = opened.read(4096)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return len(text) >= 16 and not any(
        c not in "\t\n\f\r\x1b" and unicodedata.category(c) in ("Cc", "Cn") for c in text
    )
