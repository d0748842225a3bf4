"""The plan of a directory of tokens: everything that determines the bytes written.

The manifest starts with it, so existing tokens can be compared with a request.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import ConfigError, TokensError

if TYPE_CHECKING:
    from ..corpus.argument import Corpus
    from ..corpus.places import Entry
    from ..tokenizer import Tokenizer

__all__ = [
    "DTYPES",
    "FORMATS",
    "Plan",
    "SplitName",
    "TokenFormat",
    "check_fingerprint",
    "check_same",
    "make_plan",
]

TokenFormat = Literal["shards", "npy", "bin", "megatron"]
FORMATS: tuple[TokenFormat, ...] = get_args(TokenFormat)
# `all` if the tokens are not split.
SplitName = Literal["all", "train", "val"]
# The largest id of each type.
DTYPES = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "int32": 2**31 - 1}
# Megatron-LM takes uint16 for vocabularies below this size, and has no uint32.
SMALL_VOCAB = 65_500


@dataclass(frozen=True)
class Plan:
    """What is to be written; the fields are those of the manifest.

    Attributes:
        tokenizer: its `fingerprint`, `vocab_size` and `max_id`.
        end_of_text: the id that ends documents.
        shard_tokens: ids per shard; None in single-file formats.
        reading: how records are read; None if the sources are plain text.
        sources: path, size and modification time of each source.
    """

    format: str
    dtype: str
    tokenizer: dict[str, Any]
    end_of_text: int | None
    append_eot: bool
    shard_tokens: int | None
    val_fraction: float | None
    shuffle: bool
    seed: int
    reading: dict[str, Any] | None
    sources: list[dict[str, Any]]

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Plan:
        """The plan in a checked manifest."""
        fields: dict[str, Any] = {
            field.name: manifest.get(field.name) for field in dataclasses.fields(cls)
        }
        return cls(**fields)

    def fields(self) -> dict[str, Any]:
        """The fields in the order of the manifest."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.reading is None:
            del found["reading"]
        return found

    @property
    def id(self) -> str:
        """An identifier of the plan."""
        return hashlib.sha256(json.dumps(self.fields()).encode()).hexdigest()[:16]

    @property
    def max_id(self) -> int:
        return int(self.tokenizer["max_id"])

    @property
    def width(self) -> int:
        """Bytes of an id."""
        return 2 if self.dtype == "uint16" else 4

    @property
    def splits(self) -> list[str]:
        return ["all"] if self.val_fraction is None else ["train", "val"]

    @property
    def stems(self) -> list[str]:
        """The file name prefix of each split."""
        only = "shard" if self.format == "shards" else "tokens"
        return [only] if self.val_fraction is None else self.splits

    def files(self, split: int, number: int) -> dict[str, str]:
        """The names of the files of a shard, by content."""
        stem = self.stems[split]
        if self.shard_tokens is not None:
            stem = f"{stem}-{number:05}"
        names = {"ids": stem + (".npy" if self.has_header else ".bin"), "docs": stem + ".docs.npy"}
        return names | ({"index": stem + ".idx"} if self.format == "megatron" else {})

    @property
    def has_header(self) -> bool:
        return self.format in ("shards", "npy")


def make_plan(
    tokenizer: Tokenizer,
    corpus: Corpus,
    entries: Sequence[Entry],
    *,
    format: str,
    dtype: str | None,
    shard_tokens: int,
    end_of_text: str | None,
    append_eot: bool,
    val_fraction: float | None,
    shuffle: bool,
    seed: int,
) -> Plan:
    """Checks the options and returns their plan."""
    if format not in FORMATS:
        raise ConfigError(f"format must be shards, npy, bin or megatron, got {format!r}")
    if val_fraction is not None and not 0 <= val_fraction <= 1:
        raise ConfigError(f"val_fraction must be between 0 and 1, got {val_fraction}")
    if shard_tokens == 0:
        raise ConfigError("shard_tokens must be ≥ 1, got 0")
    sources = [entry.facts for entry in entries]
    plain = all("format" not in found for found in sources)
    return Plan(
        format=format,
        dtype=_dtype(format, dtype, tokenizer.max_id),
        tokenizer={
            "fingerprint": tokenizer.fingerprint,
            "vocab_size": len(tokenizer),
            "max_id": tokenizer.max_id,
        },
        end_of_text=None if end_of_text is None else tokenizer.special_tokens[end_of_text],
        append_eot=bool(append_eot),
        shard_tokens=shard_tokens if format == "shards" else None,
        val_fraction=None if val_fraction is None else float(val_fraction),
        shuffle=bool(shuffle),
        seed=seed if shuffle or val_fraction is not None else 0,
        reading=None if plain and _is_usual(corpus) else _reading(corpus.settings),
        sources=sources,
    )


def _is_usual(corpus: Corpus) -> bool:
    """Whether plain text is read in the usual way."""
    return corpus.on_error == "stop" and corpus.separator is None


def _reading(settings: Mapping[str, Any]) -> dict[str, Any]:
    names = ["text_field", "on_error", "max_document", "max_ratio", "max_window"]
    names += [name for name in ("null", "separator", "include", "exclude") if settings.get(name)]
    return {name: settings[name] for name in names}


def _dtype(format: str, asked: str | None, max_id: int) -> str:
    if asked is not None and asked not in DTYPES:
        raise ConfigError(f"dtype must be uint16 or uint32, got {asked!r}")
    megatron = format == "megatron"
    large = "int32" if megatron else "uint32"
    is_small = max_id + 1 < SMALL_VOCAB if megatron else max_id <= DTYPES["uint16"]
    dtype = asked or ("uint16" if is_small else large)
    if dtype not in ("uint16", large):
        raise ConfigError(
            f"dtype={dtype!r} is not supported by this format", f'use "uint16" or "{large}"'
        )
    if max_id > DTYPES[dtype]:
        raise ConfigError(
            f"ids up to {max_id} do not fit in dtype={dtype!r}",
            "omit dtype= to use the smallest type that fits",
        )
    return dtype


def check_fingerprint(place: Path, made_with: str, given: str) -> None:
    """Rejects a tokenizer other than the one the tokens were encoded with."""
    if made_with != given:
        raise TokensError(
            f"{place}: encoded with the tokenizer {made_with[:12]}…, not {given[:12]}…",
            "use the tokenizer that the tokens were encoded with, or encode again",
        )


def check_same(place: Path, before: Plan, now: Plan) -> None:
    """Refuses to resume work that had another plan."""
    check_fingerprint(place, before.tokenizer["fingerprint"], now.tokenizer["fingerprint"])
    for what in _differences(before, now):
        raise ConfigError(
            f"{place}: {what}",
            "resume with the same sources and options, or start over: overwrite=True",
        )


def _differences(before: Plan, now: Plan) -> Iterable[str]:
    for old, new in zip(before.sources, now.sources):
        if old["path"] != new["path"]:
            yield f"was started with the source {old['path']}, not {new['path']}"
        if old != new:
            yield f"the source {old['path']} has changed since the run started"
    if len(before.sources) != len(now.sources):
        yield f"was started with {len(before.sources)} sources, not {len(now.sources)}"
    if before != now:
        yield "was started with other options"
