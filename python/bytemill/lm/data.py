"""Tokens → batches, in an order that depends on the seed and the step and on nothing else.

The tokens are cut into windows of one context and a token. An epoch goes through all windows in
an order given by a keyed permutation that is computed, not stored: any place in it is found at
once, so a run resumes at any step, on any number of ranks, and memory does not grow with the
corpus. Each epoch has an order of its own, and cuts at other places.
"""

from __future__ import annotations

import codecs
import os
import shlex
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import _native
from .._files import regular
from ..errors import ConfigError, TokensError
from ..tokenizer import Tokenizer
from ..tokens.manifest import open_manifest
from ..tokens.view import Tokens
from .config_checks import check_seed
from .keywords import TokenDtype

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Sources",
    "TokenSlice",
    "Windows",
    "check_ids",
    "check_length",
    "fixed_windows",
    "get_batch",
    "manifest_beside",
    "open_sources",
    "open_tokens",
    "permuted",
    "splits_of",
    "take_windows",
]

Array = npt.NDArray[Any]


class TokenArray(Protocol):
    """What batches are cut from: a numpy array, a memory map, or `bytemill.Tokens`."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> Array: ...


def open_tokens(
    path: str | os.PathLike[str], split: str | None = None, dtype: TokenDtype = "uint16"
) -> Tokens | Array:
    """Tokens on disk: a directory of `encode_files`, a `.npy`, or raw ids such as nanoGPT's `.bin`.

    Args:
        path: where they are.
        split: of a directory with several, which.
        dtype: type of raw ids, which have no header.
    """
    place = Path(path)
    if place.is_dir():
        return Tokens(place, split)
    regular(place, TokensError)
    if place.suffix == ".npy":
        try:
            ids = np.load(place, mmap_mode="r", allow_pickle=False)
        except OSError:
            raise
        except Exception as error:  # of numpy's header parser, which raises whatever it meets
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
    said = (manifest_beside(place) or {}).get("dtype", kind.name)
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


def manifest_beside(file: Path) -> dict[str, Any] | None:
    """The manifest of the directory of tokens that a file of ids is of; None if it is of none."""
    try:
        manifest = open_manifest(file.absolute().parent)
    except (OSError, TokensError):
        return None
    shards = (shard for split in manifest["splits"] for shard in split["shards"])
    return manifest if any(shard["file"] == file.name for shard in shards) else None


def _is_text(file: Path) -> bool:
    """Whether a file is a corpus by its name, or by its first bytes.

    Ids of two or four bytes are no UTF-8 without control characters: not for long.
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


def get_batch(
    tokens: TokenArray | Iterable[int],
    batch_size: int,
    context_length: int,
    device: torch.device | str | None = None,
    *,
    generator: np.random.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Random windows: ids (B, T), and the ids that follow each, (B, T)."""
    array: Any = tokens if hasattr(tokens, "__getitem__") else np.fromiter(tokens, np.int64)
    n_places = len(array) - context_length
    check_length(len(array), context_length)
    draws = generator or np.random.default_rng()
    return _pairs(
        take_windows(array, draws.integers(0, n_places, batch_size), context_length), device
    )


class Windows:
    """The windows of tokens in their order.

    Args:
        tokens: the ids.
        context_length: T.
        seed: what the order depends on.
        vocab_size: ids from this on are refused; None for any.
    """

    def __init__(
        self,
        tokens: TokenArray,
        context_length: int,
        seed: int = 0,
        vocab_size: int | None = None,
    ) -> None:
        check_length(len(tokens), context_length)
        self.tokens, self.context_length, self.seed = tokens, context_length, check_seed(seed)
        self.vocab_size = vocab_size
        # One window fewer than would fit, if there are any to spare, so that each epoch may begin
        # at another place.
        self.per_epoch = max(1, (len(tokens) - 1) // context_length - 1)
        self._slack = len(tokens) - 1 - self.per_epoch * context_length

    def starts(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Where the windows number `first` to `first + count` of the run begin."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        epochs, places = np.divmod(numbers, self.per_epoch)
        starts = np.empty(count, np.int64)
        for epoch in np.unique(epochs).tolist():
            these = epochs == epoch
            key = mixed(np.uint64(self.seed), np.uint64(epoch))
            shift = int(mixed(key, np.uint64(1))) % (self._slack + 1)
            order = permuted(places[these], self.per_epoch, int(key))
            starts[these] = order * self.context_length + shift
        return starts

    def batch(
        self,
        step: int,
        batch_size: int,
        device: torch.device | str | None = None,
        rows: range | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The batch of a step, or some rows of it: ids and targets, (B, T) each."""
        rows = range(batch_size) if rows is None else rows
        starts = self.starts(step * batch_size + rows.start, len(rows))
        windows = take_windows(self.tokens, starts, self.context_length, self.vocab_size)
        return _pairs(windows, device)


def fixed_windows(tokens: TokenArray, context_length: int, count: int) -> npt.NDArray[np.int64]:
    """Where at most `count` windows begin that are spread evenly and never overlap."""
    check_length(len(tokens), context_length)
    fitting = (len(tokens) - 1) // context_length
    return (
        np.linspace(0, fitting - 1, min(count, fitting)).round().astype(np.int64) * context_length
    )


def take_windows(
    tokens: TokenArray, starts: Array, context_length: int, vocab_size: int | None = None
) -> npt.NDArray[np.int64]:
    """The windows that begin there, each of a context and one id more: (B, T + 1)."""
    windows = np.empty((len(starts), context_length + 1), np.int64)
    for window, start in zip(windows, starts.tolist()):
        window[:] = tokens[start : start + context_length + 1]
    check_ids(windows, starts, vocab_size)
    return windows


def check_ids(windows: npt.NDArray[np.int64], starts: Array, vocab_size: int | None) -> None:
    """Raises a TokensError unless all ids, in windows that begin at these tokens, are in range.

    Unsigned ids of 64 bits that do not fit are negative here.
    """
    limit = np.iinfo(np.int64).max if vocab_size is None else vocab_size
    if windows.size and (int(windows.min()) < 0 or int(windows.max()) >= limit):
        row, column = np.argwhere((windows < 0) | (windows >= limit))[0]
        id, place = int(windows[row, column]), int(starts[row]) + int(column)
        rule = "is negative" if id < 0 else f"is not below vocab_size={vocab_size}"
        raise TokensError(
            f"id {id} at token {place} {rule}",
            "the tokens are labels with padding (-100), from another tokenizer, of another dtype, "
            "or damaged"
            if id < 0
            else "the tokens are from another tokenizer, of another dtype, or damaged",
        )


def _pairs(
    windows: npt.NDArray[np.int64], device: torch.device | str | None
) -> tuple[Tensor, Tensor]:
    ids = torch.from_numpy(windows)
    if device is not None and torch.device(device).type == "cuda":
        ids = ids.pin_memory().to(device, non_blocking=True)
    elif device is not None:
        ids = ids.to(device)
    return ids[:, :-1], ids[:, 1:]


def check_length(n_tokens: int, context_length: int) -> None:
    """Raises unless there are tokens for a context and the one after it."""
    if context_length < 1:
        raise ConfigError(f"context_length must be ≥ 1, got {context_length}")
    if n_tokens <= context_length:
        raise TokensError(
            f"a context of {context_length:,} needs at least {context_length + 1:,} tokens, "
            f"got {n_tokens:,}",
            "encode more text, or use a shorter context_length=",
        )


# --- the order ---------------------------------------------------------------------------------


def mixed(x: Any, y: Any) -> Any:
    """A number of 64 bits that depends on every bit of both (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        z = (x ^ (y * np.uint64(0x9E3779B97F4A7C15))) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def permuted(places: Array, n: int, key: int) -> npt.NDArray[np.int64]:
    """Where a permutation of 0 … n-1, chosen by `key`, takes these places.

    A Feistel network over the next power of four, walked until it lands below n: at most four
    rounds of it on average, and no table.

    >>> sorted(permuted(np.arange(10), 10, key=7).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = [mixed(np.uint64(key), np.uint64(round_ + 2)) for round_ in range(4)]
    result = np.asarray(places).astype(np.uint64)
    outside = np.ones(result.shape, bool)
    while outside.any():
        left, right = result[outside] >> half, result[outside] & mask
        for round_key in keys:
            left, right = right, left ^ (mixed(right, round_key) & mask)
        result[outside] = (left << half) | right
        outside = result >= n
    return result.astype(np.int64)


# --- what a run is trained on -------------------------------------------------------------------


@dataclass(frozen=True)
class Sources:
    """Tokens and tokenizer.

    Attributes:
        train: to train on.
        held_out: to evaluate on; None if there are none.
        tokenizer: of both; None if it is not known.
        vocab_size: how many ids there may be.
        facts: what the run's config keeps of this.
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
    """Opens tokens and finds out what they are of.

    Args:
        tokens: a directory of tokens, a `.npy`, or raw ids.
        tokenizer: of the tokens; None for the one in their directory, or beside it if that one
            is theirs.
        val: tokens to evaluate on; None for the directory's split `val`, nanoGPT's `val.bin`
            beside `train.bin`, or the last share of the tokens.
        val_fraction: that share; 0 for none.
        vocab_size: vocabulary size, if neither tokens nor tokenizer define it.
        token_dtype: of raw ids.
    """
    place = Path(tokens)
    split = None
    if place.is_dir():
        names = splits_of(place)
        split = "train" if "train" in names else None
        if val is None and "val" in names:
            val = place
    elif val is None and place.name == "train.bin" and (place.parent / "val.bin").exists():
        val = place.parent / "val.bin"
    train: Any = open_tokens(place, split, token_dtype)
    if isinstance(train, Tokens):
        fingerprint = train.fingerprint
    else:
        fingerprint = (manifest_beside(place) or {}).get("tokenizer", {}).get("fingerprint")
    found = _tokenizer(place, tokenizer, fingerprint)
    held_out: Any = None
    if val is not None:
        other = Path(val)
        named = "val" if other.is_dir() and "val" in splits_of(other) else None
        held_out = open_tokens(other, named, token_dtype)
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
        found = given if isinstance(given, Tokenizer) else Tokenizer.load(given)
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
