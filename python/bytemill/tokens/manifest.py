"""`manifest.json`: the content of a token directory, and what it was made from.

It does not depend on the time, the machine, the number of threads or interruptions. Reading checks
it: file names are those that the writer uses, so none points outside the directory, and sizes and
sums are consistent.
"""

from __future__ import annotations

import json
import operator
import re
import secrets
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _files
from ..errors import TokensError
from .plan import DTYPES, FORMATS, Plan

__all__ = [
    "NAME",
    "PARTIAL",
    "TOKENIZER",
    "files",
    "is_possible",
    "named_files",
    "new_manifest",
    "open_manifest",
    "parse",
    "read_manifest",
    "shard_files",
    "to_json",
    "whole_manifest",
]

NAME = "manifest.json"
TOKENIZER = "tokenizer.json"
# The directory of unfinished work.
PARTIAL = ".partial"
KIND = "bytemill tokens"
VERSION = 1
# Larger than any manifest; protects memory from other files.
MAX_BYTES = 2 << 30
# Bytes of the header of our .npy files.
NPY_HEADER = 128
HINT_ENCODE = "bytemill encode -o creates token directories"
HINT_VERIFY = "run bytemill verify to list all problems"


# --- writing ------------------------------------------------------------------------------------


def new_manifest(
    plan: Plan,
    text_bytes: int,
    skipped: Mapping[str, int],
    tokenizer_file: Mapping[str, Any] | None,
    splits: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The manifest of finished work; `splits` has `shards` and `appended` of each."""
    manifest = {"kind": KIND, "version": VERSION, **plan.fields(), "text_bytes": text_bytes}
    if tokenizer_file is not None:
        manifest["tokenizer_file"] = tokenizer_file
    if skipped:
        manifest["skipped"] = dict(sorted(skipped.items()))
    manifest["splits"] = [
        {
            "name": name,
            "tokens": sum(shard["tokens"] for shard in split["shards"]),
            "documents": sum(shard["documents"] for shard in split["shards"]),
            "appended": split["appended"],
            "shards": split["shards"],
        }
        for name, split in zip(plan.splits, splits)
    ]
    return manifest


def to_json(manifest: Mapping[str, Any]) -> bytes:
    """The file. Lists of millions of numbers are inserted as text, which is faster."""
    mark = secrets.token_hex(16)
    splits = [split | {"appended": mark} for split in manifest["splits"]]
    text = json.dumps({**manifest, "splits": splits}, indent=2, ensure_ascii=False)
    pieces = text.split(f'"{mark}"')
    written = [pieces[0]]
    for split, after in zip(manifest["splits"], pieces[1:]):
        numbers = ",\n        ".join(map(str, split["appended"]))
        written += [f"[\n        {numbers}\n      ]" if numbers else "[]", after]
    return ("".join(written) + "\n").encode()


# --- reading ------------------------------------------------------------------------------------


def open_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of finished tokens; checks the sizes of the id files."""
    manifest = whole_manifest(directory)
    for name, size in shard_files(manifest):
        path = directory / name
        try:
            found = path.stat()
        except FileNotFoundError:
            raise TokensError(f"{path}: missing", HINT_VERIFY) from None
        if not stat.S_ISREG(found.st_mode):
            raise TokensError(f"{path}: not a regular file", HINT_VERIFY)
        if found.st_size != size:
            raise TokensError(f"{path}: {found.st_size} bytes, not {size}", HINT_VERIFY)
    return manifest


def whole_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a directory that must have one."""
    try:
        return read_manifest(directory)
    except FileNotFoundError:
        if not directory.exists():
            raise FileNotFoundError(2, "No such file or directory", str(directory)) from None
        if (directory / PARTIAL).exists():
            raise TokensError(
                f"{directory}: encoding was not finished", "continue it with resume=True"
            ) from None
        raise TokensError(
            f"{directory}: not a token directory: it has no {NAME}",
            f"if it contains text, encode it first: bytemill encode {shlex.quote(str(directory))} "
            "-t tokenizer.json -o tokens/",
        ) from None


def read_manifest(directory: Path) -> dict[str, Any]:
    path = directory / NAME
    return parse(_read(path), path)


def parse(data: bytes, path: Path) -> dict[str, Any]:
    """The manifest in a file, checked."""
    manifest = _object(data, path)
    version = manifest.get("version")
    if manifest.get("kind") != KIND or type(version) is not int or version < 0:
        raise _foreign(path)
    if version != VERSION:
        raise TokensError(
            f"{path}: format version {version}, not {VERSION}",
            "use the bytemill that wrote it, or encode again",
        )
    try:
        _check(manifest)
    except _Damage as damage:
        raise _damaged(path, str(damage)) from None
    return manifest


def _read(path: Path) -> bytes:
    _files.regular(path, TokensError)
    if path.stat().st_size > MAX_BYTES:
        raise _damaged(path, "too large for a manifest")
    return path.read_bytes()


def _object(data: bytes, path: Path) -> dict[str, Any]:
    def refuse(word: str) -> float:
        raise ValueError(word)

    try:
        text = data.decode()
        found = json.loads(text, parse_constant=refuse)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()  # raises if half of a surrogate pair
    except (ValueError, RecursionError):
        raise _foreign(path) from None
    if not isinstance(found, dict):
        raise _foreign(path)
    return found


def _foreign(path: Path) -> TokensError:
    return TokensError(f"{path}: not a token manifest", HINT_ENCODE)


def _damaged(path: Path, what: str) -> TokensError:
    return TokensError(f"{path}: damaged: {what}", "encode again with overwrite=True")


# --- what it names ------------------------------------------------------------------------------


def shard_files(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Name and size of the files of ids and of those beside them."""
    for split in manifest["splits"]:
        for shard in split["shards"]:
            for file in (shard, shard["docs"], shard.get("index")):
                if file is not None:
                    yield file["file"], file["bytes"]


def files(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Name and size of all files but the manifest."""
    yield from shard_files(manifest)
    tokenizer = manifest.get("tokenizer_file")
    if tokenizer is not None:
        yield tokenizer["file"], tokenizer["bytes"]


def is_possible(name: str) -> bool:
    """Whether a manifest could contain this file name."""
    stem = r"(tokens|train|val|(shard|train|val)-[0-9]{5,})"
    return name == TOKENIZER or re.fullmatch(rf"{stem}\.(docs\.npy|npy|bin|idx)", name) is not None


def named_files(path: Path) -> set[str]:
    """The files that a manifest of any version names, however damaged it is otherwise: those that
    may be deleted if the tokens are replaced. Other files are refused."""
    found = _object(_read(path), path)
    if found.get("kind") != KIND:
        raise _foreign(path)

    def get(value: Any, key: str) -> Any:
        return value.get(key) if isinstance(value, dict) else None

    def items(value: Any) -> list[Any]:
        return value if isinstance(value, list) else []

    shards = [
        shard for split in items(found.get("splits")) for shard in items(get(split, "shards"))
    ]
    entries = [part for one in shards for part in (one, get(one, "docs"), get(one, "index"))]
    names = [get(entry, "file") for entry in [*entries, found.get("tokenizer_file")]]
    return {name for name in names if isinstance(name, str) and is_possible(name)}


# --- checking -----------------------------------------------------------------------------------


class _Damage(Exception):
    """An inconsistency in a manifest."""


def _require(condition: object, what: str) -> None:
    if not condition:
        raise _Damage(what)


def _object_at(value: Any, what: str) -> dict[str, Any]:
    _require(isinstance(value, dict), f"{what} is not an object")
    return dict(value)


def _list_at(value: Any, what: str) -> list[Any]:
    _require(isinstance(value, list), f"{what} is not a list")
    return list(value)


def _whole(values: Mapping[str, Any], name: str, below: int = 2**64) -> int:
    value = values.get(name)
    _require(type(value) is int and 0 <= value < below, f"{name} is not a number in range")
    return int(value)  # type: ignore[arg-type]


def _text(values: Mapping[str, Any], *names: str) -> None:
    for name in names:
        _require(isinstance(values.get(name), str), f"{name} is not a string")


def _check(manifest: Mapping[str, Any]) -> None:
    """Raises a `_Damage` if types are wrong or values contradict each other."""
    _check_plan(manifest)
    plan = Plan.of(manifest)
    if manifest.get("text_bytes") is not None:
        _whole(manifest, "text_bytes")
    if manifest.get("tokenizer_file") is not None:
        file = _object_at(manifest["tokenizer_file"], "tokenizer_file")
        _check_file(file, TOKENIZER)
    skipped = _object_at(manifest.get("skipped", {}), "skipped")
    for name in skipped:
        _whole(skipped, name)
    splits = [_object_at(split, "a split") for split in _list_at(manifest.get("splits"), "splits")]
    names = [split.get("name") for split in splits]
    _require(names == plan.splits, "the splits do not match val_fraction")
    for number, split in enumerate(splits):
        _check_split(plan, number, split)


def _check_plan(manifest: Mapping[str, Any]) -> None:
    format, dtype = manifest.get("format"), manifest.get("dtype")
    _require(isinstance(format, str) and format in FORMATS, "format is unknown")
    _require(isinstance(dtype, str) and dtype in DTYPES, "dtype is unknown")
    tokenizer = _object_at(manifest.get("tokenizer"), "tokenizer")
    _text(tokenizer, "fingerprint")
    _whole(tokenizer, "vocab_size")
    max_id = _whole(tokenizer, "max_id", 2**32)
    if manifest.get("end_of_text") is not None:
        _whole(manifest, "end_of_text", 2**32)
    for name in ("append_eot", "shuffle"):
        _require(isinstance(manifest.get(name), bool), f"{name} is neither true nor false")
    sharded = manifest.get("shard_tokens") is not None
    _require(
        sharded == (format == "shards") and (not sharded or _whole(manifest, "shard_tokens") > 0),
        "shard_tokens does not match the format",
    )
    allowed = ("uint16", "int32") if format == "megatron" else ("uint16", "uint32")
    _require(dtype in allowed, "dtype does not match the format")
    _require(max_id <= DTYPES[str(dtype)], "the ids of the tokenizer do not fit in dtype")
    share = manifest.get("val_fraction")
    is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
    _require(share is None or (is_number and 0 <= share <= 1), "val_fraction is not from 0 to 1")
    _whole(manifest, "seed")
    if manifest.get("reading") is not None:
        _check_reading(_object_at(manifest["reading"], "reading"))
    for entry in _list_at(manifest.get("sources"), "sources"):
        _check_source(_object_at(entry, "a source"))


def _check_reading(reading: Mapping[str, Any]) -> None:
    _text(reading, "text_field")
    _require(reading.get("on_error") in ("stop", "skip"), "on_error is unknown")
    _require(reading.get("null", "error") in ("keep", "skip", "error"), "null is unknown")
    separator = reading.get("separator", "x")
    _require(isinstance(separator, str) and separator != "", "separator is not a string")
    for name in ("max_document", "max_ratio", "max_window"):
        _whole(reading, name)
    for name in ("include", "exclude"):
        globs = _list_at(reading.get(name, []), name)
        _require(all(isinstance(glob, str) for glob in globs), f"{name} is not a list of globs")


def _check_source(entry: Mapping[str, Any]) -> None:
    _text(entry, "path")
    _whole(entry, "size")
    changed = entry.get("mtime_ns")
    _require(type(changed) is int and -(2**63) <= changed < 2**63, "mtime_ns is not a time")
    _text({"version": "", "format": ""} | dict(entry), "version", "format")
    if entry.get("range") is not None:
        bounds = _list_at(entry["range"], "range")
        _require(len(bounds) == 2, "range is not two numbers")
        for bound in bounds:
            _whole({"range": bound}, "range")


def _check_file(entry: Mapping[str, Any], name: str) -> None:
    _require(entry.get("file") == name, f"{name} has an invalid name")
    _whole(entry, "bytes")
    _text(entry, "crc32")


def _check_split(plan: Plan, split: int, entry: Mapping[str, Any]) -> None:
    name = plan.splits[split]
    shards = _list_at(entry.get("shards"), "shards")
    _require(shards, f"{name} has no file")
    room = plan.shard_tokens or 2**64
    tokens = documents = 0
    for number, shard in enumerate(shards):
        shard = _object_at(shard, "a shard")
        n_tokens, n_documents = _whole(shard, "tokens"), _whole(shard, "documents")
        names = plan.files(split, number)
        docs = _object_at(shard.get("docs"), "docs")
        _check_file(shard, names["ids"])
        _check_file(docs, names["docs"])
        _require(
            (shard.get("index") is not None) == ("index" in names),
            f"the index of {name} is missing or unexpected",
        )
        if "index" in names:
            _check_file(_object_at(shard["index"], "index"), names["index"])
        header = NPY_HEADER if plan.has_header else 0
        is_full = n_tokens == room or (number + 1 == len(shards) and n_tokens < room)
        _require(
            is_full
            and shard["bytes"] == n_tokens * plan.width + header
            and docs["bytes"] == n_documents * 8 + NPY_HEADER,
            f"{names['ids']}: tokens, documents and bytes do not agree",
        )
        tokens += n_tokens
        documents += n_documents
    _require(
        (_whole(entry, "tokens"), _whole(entry, "documents")) == (tokens, documents),
        f"the totals of {name} are not the sums of its shards",
    )
    appended = _list_at(entry.get("appended"), "appended")
    # Runs in C, for lists of millions.
    _require(
        set(map(type, appended)) <= {int}
        and all(map(operator.lt, appended, appended[1:]))
        and (not appended or 0 <= appended[0] <= appended[-1] < documents),
        f"the list appended of {name} is not ascending document numbers",
    )
