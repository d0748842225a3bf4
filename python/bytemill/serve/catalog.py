"""What the server shows: tokenizers, runs, sweeps, counts and tokens found under the paths.

Clients name things by id, which is looked up here: no path of a client ever opens a file. An id is
a hash of the place, so it stays the same as long as the place does.

A scan is bounded (depth, number of directories and files) and repeated at most once a second. What
it reads of a file is kept until the file changes. A file that cannot be read becomes a note.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .. import lm
from ..errors import BytemillError
from ..tokenizer import Tokenizer
from .replies import Refusal

if TYPE_CHECKING:
    from ..lm import RunState

__all__ = ["Catalog", "Found", "RunEntry", "SweepEntry", "TokenizerEntry"]

MAX_DEPTH = 6
MAX_DIRECTORIES = 5_000
MAX_FILES = 50_000
# Tokenizers and runs listed; each is read when it is first found.
MAX_TOKENIZERS = 100
MAX_RUNS = 1_000
MAX_NOTES = 50
MAX_TOKENIZER_BYTES = 256 << 20
# Bytes in which the kind of a file shows.
HEAD = 4096
RESCAN_SECONDS = 1.0
# Tokenizers in memory: one of 200,000 tokens takes about 50 MB.
MAX_LOADED = 8

Kind = Literal["file", "encoding", "run"]
Value = TypeVar("Value")


@dataclass(frozen=True)
class TokenizerEntry:
    """A tokenizer; `path` is None for a named encoding."""

    id: str
    name: str
    kind: Kind
    path: Path | None
    facts: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "kind": self.kind} | self.facts


@dataclass(frozen=True)
class RunEntry:
    """A run."""

    id: str
    name: str
    path: Path
    state: RunState
    tokenizer: str | None
    sweep: str | None

    def to_json(self) -> dict[str, Any]:
        state = self.state
        return {
            "id": self.id,
            "name": self.name,
            "status": state.status,
            "step": state.step,
            "steps": state.steps,
            "checkpoints": state.checkpoints,
            "best": state.best,
            "tokenizer": self.tokenizer,
            "n_parameters": state.n_parameters,
            "val_loss": state.val_loss,
            "sweep": self.sweep,
        }


@dataclass(frozen=True)
class SweepEntry:
    """A sweep."""

    id: str
    name: str
    path: Path
    n_trials: int
    fields: list[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "name": self.name, "n_trials": self.n_trials, "fields": self.fields
        }  # fmt: skip


@dataclass
class Found:
    """The result of a scan, by id; sources of counts by path, with their names."""

    tokenizers: dict[str, TokenizerEntry] = field(default_factory=dict)
    runs: dict[str, RunEntry] = field(default_factory=dict)
    sweeps: dict[str, SweepEntry] = field(default_factory=dict)
    counts: dict[Path, str] = field(default_factory=dict)
    tokens: dict[Path, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "tokenizers": [entry.to_json() for entry in self.tokenizers.values()],
            "runs": [entry.to_json() for entry in self.runs.values()],
            "sweeps": [entry.to_json() for entry in self.sweeps.values()],
            "notes": self.notes,
        }


class Catalog:
    """What is found under `paths`; usable from many threads."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._roots = [Path(os.path.abspath(path)) for path in paths]
        self._lock = threading.Lock()
        self._found: Found | None = None
        self._scanned = 0.0
        self._facts = _Memory(4 * MAX_TOKENIZERS)
        self._loaded = _Memory(MAX_LOADED)

    def found(self) -> Found:
        """What there is now, not older than a second."""
        with self._lock:
            if self._found is None or time.monotonic() - self._scanned > RESCAN_SECONDS:
                self._found = _Scan(self._roots, self._facts, self._loaded).found
                self._scanned = time.monotonic()
            return self._found

    def tokenizer_entry(self, id: str) -> TokenizerEntry:
        """The tokenizer of this id, or a 404."""
        return _looked_up(self.found().tokenizers, id, "tokenizer")

    def tokenizer(self, id: str) -> Tokenizer:
        """The tokenizer of this id, loaded."""
        entry = self.tokenizer_entry(id)
        return _load(entry.path, entry.name, self._loaded)

    def run(self, id: str) -> RunEntry:
        """The run of this id, or a 404."""
        return _looked_up(self.found().runs, id, "run")

    def sweep(self, id: str) -> SweepEntry:
        """The sweep of this id, or a 404."""
        return _looked_up(self.found().sweeps, id, "sweep")


def _looked_up(entries: dict[str, Value], id: str, what: str) -> Value:
    if id not in entries:
        raise Refusal(404, f"no {what} {id[:100]!r}", "GET /api/catalog lists what there is")
    return entries[id]


class _Memory:
    """What was read from files, the most recently used."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[object, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object, read: Callable[[], Value]) -> Value:
        """The value of `key`, read if it is not here."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                value: Value = self._values[key]
                return value
        value = read()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        return value


def _stamp(path: Path) -> tuple[str, int, int, int]:
    """Changes when the file does."""
    found = os.stat(path)
    return str(path), found.st_ino, found.st_mtime_ns, found.st_size


def _load(path: Path | None, name: str, loaded: _Memory) -> Tokenizer:
    if path is None:
        return loaded.get(name, lambda: _encoding(name))
    try:
        return loaded.get(_stamp(path), lambda: Tokenizer.from_pretrained(path))
    except OSError as error:
        raise Refusal(404, f"{name}: {error.strerror or error}") from None


def _encodings() -> Any:
    """Encodings by name, in versions that have them."""
    import importlib

    return importlib.import_module("..encodings", __package__)


def _encoding(name: str) -> Tokenizer:
    found: Tokenizer = _encodings().get_encoding(name)
    return found


# --- one scan -------------------------------------------------------------------------------------


class _Scan:
    def __init__(self, roots: Sequence[Path], facts: _Memory, loaded: _Memory) -> None:
        self.found = Found()
        self._facts, self._loaded = facts, loaded
        self._seen: set[tuple[int, int]] = set()
        self._n_directories = self._n_files = 0
        tokenizers: list[tuple[Path, Kind, str]] = []
        runs: list[tuple[Path, str, str | None]] = []
        self._tokenizers, self._runs = tokenizers, runs
        for root in roots:
            if root.is_dir():
                self._directory(root, root.name or str(root), 0, None)
            else:
                self._file(root, root.name)
        for path, kind, name in sorted(tokenizers, key=lambda each: each[1] == "run"):
            self._add_tokenizer(path, kind, name)
        self._add_encodings()
        for path, name, sweep in runs:
            self._add_run(path, name, sweep)

    def _note(self, text: str) -> None:
        if len(self.found.notes) < MAX_NOTES and text not in self.found.notes:
            self.found.notes.append(text)

    # --- directories ----------------------------------------------------------------------------

    def _directory(self, place: Path, name: str, depth: int, sweep: str | None) -> None:
        entries = self._entries(place, name)
        if entries is None:
            return
        names = {entry.name: entry for entry in entries}
        if "config.json" in names and _head(place / "config.json", b'"bytemill run"'):
            self._runs.append((place, name, sweep))
            if "tokenizer.json" in names:
                self._tokenizers.append((place / "tokenizer.json", "run", name))
            return
        if "manifest.json" in names and _head(place / "manifest.json", b'"bytemill'):
            self.found.tokens[place] = name
            if "tokenizer.json" in names:
                self._tokenizers.append((place / "tokenizer.json", "run", name))
            return
        if "sweep.json" in names and _head(place / "sweep.json", b'"bytemill sweep"'):
            sweep = self._add_sweep(place, name)
        for entry in entries:
            path, below = place / entry.name, f"{name}/{entry.name}"
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_file():
                    self._file(path, below)
                elif entry.is_dir() and depth < MAX_DEPTH:
                    self._directory(path, below, depth + 1, sweep)
            except OSError:
                continue

    def _entries(self, place: Path, name: str) -> list[os.DirEntry[str]] | None:
        """The entries of a directory that was not seen before; None if there are too many."""
        try:
            found = os.stat(place)
            # Links may lead in circles.
            if (found.st_dev, found.st_ino) in self._seen:
                return None
            self._seen.add((found.st_dev, found.st_ino))
            self._n_directories += 1
            entries = []
            with os.scandir(place) as listing:
                for entry in listing:
                    self._n_files += 1
                    if self._n_files > MAX_FILES or self._n_directories > MAX_DIRECTORIES:
                        self._note(
                            "there are too many files: some were not looked at; "
                            "give the directories of your tokenizers and runs instead"
                        )
                        return None
                    entries.append(entry)
        except OSError as error:
            self._note(f"{name}: {error.strerror or error}")
            return None
        return sorted(entries, key=lambda entry: entry.name)

    # --- files ----------------------------------------------------------------------------------

    def _file(self, path: Path, name: str) -> None:
        if path.suffix == ".counts":
            self.found.counts[path] = name
        elif _may_be_tokenizer(path):
            self._tokenizers.append((path, "file", name))

    def _add_tokenizer(self, path: Path, kind: Kind, name: str) -> None:
        found = self.found.tokenizers
        if len(found) >= MAX_TOKENIZERS:
            self._note(f"there are more than {MAX_TOKENIZERS} tokenizers: the others are not shown")
            return
        facts = self._read(path, name, lambda: _facts(_load(path, name, self._loaded)))
        if facts is None:
            return
        known = {entry.facts["fingerprint"] for entry in found.values()}
        # The copy in a run or in tokens is of interest only if it is the only one.
        if kind == "file" or facts["fingerprint"] not in known:
            id = _id(name, path)
            found[id] = TokenizerEntry(id, name, kind, path, facts)

    def _add_encodings(self) -> None:
        try:
            names = _encodings().available()
        except ModuleNotFoundError:
            return
        for name in names:
            read = functools.partial(_load, None, name, self._loaded)
            facts = self._facts.get(name, lambda read=read: _facts(read()))  # type: ignore[misc]
            self.found.tokenizers[name] = TokenizerEntry(name, name, "encoding", None, facts)

    def _add_run(self, path: Path, name: str, sweep: str | None) -> None:
        if len(self.found.runs) >= MAX_RUNS:
            self._note(f"there are more than {MAX_RUNS} runs: the others are not shown")
            return
        try:
            state = lm.run_state(path)
        except (BytemillError, OSError) as error:
            self._note(_said(name, error))
            return
        fitting = (
            entry.id
            for entry in self.found.tokenizers.values()
            if entry.facts["fingerprint"] == state.fingerprint
        )
        id = _id(name, path)
        self.found.runs[id] = RunEntry(id, name, path, state, next(fitting, None), sweep)

    def _add_sweep(self, path: Path, name: str) -> str:
        id = _id(name, path)
        try:
            found = lm.read_sweep(path)
        except (BytemillError, OSError) as error:
            self._note(_said(name, error))
            return id
        self.found.sweeps[id] = SweepEntry(id, name, path, len(found.trials), found.fields)
        return id

    def _read(self, path: Path, name: str, read: Callable[[], Value]) -> Value | None:
        """What `read` returns, kept until the file changes; None and a note if it fails."""

        def attempt() -> Value | BytemillError | OSError:
            try:
                return read()
            except (BytemillError, OSError) as error:
                return error

        try:
            value = self._facts.get(_stamp(path), attempt)
        except OSError as error:
            value = error
        if isinstance(value, (BytemillError, OSError)):
            self._note(_said(name, value))
            return None
        return value


def _facts(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "pattern": tokenizer.pattern,
        "special_tokens": list(tokenizer.special_tokens),
        "fingerprint": tokenizer.fingerprint,
    }


def _said(name: str, error: BytemillError | OSError) -> str:
    """What to show of an error."""
    if isinstance(error, BytemillError):
        return f"{name}: {error.message}"
    return f"{name}: {error.strerror or error}"


def _id(name: str, path: Path) -> str:
    """An id for a URL: the end of the name, for people, and a hash of the place."""
    digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:10]
    words = "".join(
        char if char.isascii() and char.isalnum() else "-" for char in name.rpartition("/")[2]
    )
    return f"{words.strip('-')[:40]}-{digest}".lstrip("-")


# --- what a file is -------------------------------------------------------------------------------


def _head(path: Path, mark: bytes) -> bool:
    return mark in _start(path)


def _start(path: Path) -> bytes:
    try:
        if not path.is_file():
            return b""
        with open(path, "rb") as file:
            return file.read(HEAD)
    except OSError:
        return b""


def _may_be_tokenizer(path: Path) -> bool:
    """Whether a file is worth reading as a tokenizer; cheap, as most files are something else."""
    name = path.name
    if not name.endswith((".json", ".model", ".tiktoken")):
        return False
    try:
        if path.stat().st_size > MAX_TOKENIZER_BYTES:
            return False
    except OSError:
        return False
    if name == "tokenizer.json" or name.endswith(".tiktoken"):
        return True
    start = _start(path)
    if name.endswith(".model"):
        return start.startswith(b"minbpe v")
    if name.endswith("vocab.json"):
        merges = path.with_name(name.removesuffix("vocab.json") + "merges.txt")
        return merges.is_file() or path.with_name("merges.txt").is_file()
    return b'"added_tokens"' in start
