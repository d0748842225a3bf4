"""The kind of a file or directory, by its name and first bytes.

A scan checks every file, and most are of no kind that is shown: only a few are opened.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from .recent import RecentlyUsed, stamp_of

__all__ = ["is_run", "is_sweep", "is_tokens", "may_be_tokenizer"]

MAX_TOKENIZER_BYTES = 256 << 20
# Bytes that are read to find out the kind of a file.
HEAD = 4096


def is_run(place: Path, names: Collection[str]) -> bool:
    """Whether a directory with these entries is a run."""
    return "config.json" in names and b'"bytemill run"' in _start(place / "config.json")


def is_sweep(place: Path, names: Collection[str]) -> bool:
    """Whether a directory with these entries is a sweep."""
    return "sweep.json" in names and b'"bytemill sweep"' in _start(place / "sweep.json")


def is_tokens(place: Path, names: Collection[str]) -> bool:
    """Whether a directory with these entries has tokens."""
    return "manifest.json" in names and b'"bytemill tokens"' in _start(place / "manifest.json")


def may_be_tokenizer(path: Path, known: RecentlyUsed) -> bool:
    """Whether a file is worth reading as a tokenizer; `known` caches answers by file."""
    name = path.name
    if not name.endswith((".json", ".model", ".tiktoken")):
        return False
    try:
        stamp = stamp_of(path)
    except OSError:
        return False
    if stamp.size > MAX_TOKENIZER_BYTES:
        return False
    if name == "tokenizer.json" or name.endswith(".tiktoken"):
        return True
    if name.endswith("vocab.json"):
        merges = path.with_name(name.removesuffix("vocab.json") + "merges.txt")
        return merges.is_file() or path.with_name("merges.txt").is_file()
    return known.get(stamp, lambda: _starts_like_tokenizer(path))


def _starts_like_tokenizer(path: Path) -> bool:
    start = _start(path)
    is_minbpe = path.suffix == ".model"
    return start.startswith(b"minbpe v") if is_minbpe else b'"added_tokens"' in start


def _start(path: Path) -> bytes:
    try:
        if not path.is_file():
            return b""
        with open(path, "rb") as file:
            return file.read(HEAD)
    except OSError:
        return b""
