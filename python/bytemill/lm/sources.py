"""What a run learns from: tokens to train on, tokens held out, and the tokenizer of both."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError, TokensError
from ..tokenizer import Tokenizer
from ..tokens.manifest import open_manifest
from ..tokens.view import Tokens
from .data import Array, TokenArray, manifest_beside, open_tokens

__all__ = ["Part", "Sources", "open_sources", "splits_of"]


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
    token_dtype: str = "uint16",
) -> Sources:
    """Opens tokens and finds out what they are of.

    Args:
        tokens: a directory of tokens, a `.npy`, or raw ids.
        tokenizer: of the tokens; None for the one in their directory, or beside it if that one
            is theirs.
        val: tokens to evaluate on; None for the directory's split `val`, nanoGPT's `val.bin`
            beside `train.bin`, or the last share of the tokens.
        val_fraction: that share; 0 for none.
        vocab_size: where neither tokens nor tokenizer tell.
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
                f"{other}: made with another tokenizer than {place}",
                "encode both with the same one",
            )
    elif val_fraction > 0:
        cut = len(train) - int(len(train) * val_fraction)
        held_out, train = Part(train, cut, len(train)), Part(train, 0, cut)
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


class Part:
    """A stretch of tokens, without a copy."""

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
                f"{place}: made with the tokenizer {str(fingerprint)[:12]}…, "
                f"not with {found.fingerprint[:12]}…",
                "use the tokenizer that the tokens were made with, or encode again",
            )
        return found
    # Without a fingerprint a file that lies about may be any tokenizer's.
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
    inner = train.tokens if isinstance(train, Part) else train
    if isinstance(inner, Tokens):
        return int(inner.manifest["tokenizer"]["max_id"]) + 1
    if asked is None:
        raise ConfigError(
            f"{place}: the vocabulary size of raw ids is unknown",
            "give tokenizer= or vocab_size=",
        )
    return asked
