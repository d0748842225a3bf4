"""A scan of the paths, breadth first: what is close to a given path is found first.

Bounded in depth, directories and files. Links are followed, but no directory is entered twice. A
file that cannot be read becomes a note.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from .. import lm
from ..errors import BytemillError
from .found import Found, Kind, RunEntry, SweepEntry, TokenizerEntry
from .kinds import is_run, is_sweep, is_tokens, may_be_tokenizer
from .loading import TokenizerCache

__all__ = ["Scan"]

MAX_DEPTH = 6
MAX_DIRECTORIES = 2_000
MAX_FILES = 20_000
MAX_TOKENIZERS = 100
MAX_RUNS = 1_000
MAX_NOTES = 50
# Directories of installed packages, with thousands of files.
SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages", "dist-packages"))


class _Place(NamedTuple):
    """A directory to look into.

    Attributes:
        path: the directory.
        name: its name on the pages: from the given path on.
        depth: how far it is below the given path.
        sweep: id of the sweep that it is in.
    """

    path: Path
    name: str
    depth: int
    sweep: str | None


class Scan:
    """One scan; `cache` keeps tokenizers between scans."""

    def __init__(self, cache: TokenizerCache) -> None:
        self.found = Found()
        self._tokenizer_cache = cache
        self._seen: set[tuple[int, int]] = set()
        self._n_directories = self._n_files = 0
        self._places: deque[_Place] = deque()
        self._tokenizers: list[tuple[Path, Kind, str]] = []
        self._runs: list[_Place] = []
        self._diverged: set[Path] = set()

    def over(self, roots: Sequence[Path]) -> Found:
        """What is found under `roots`."""
        for root in roots:
            name = root.name or str(root)
            if root.is_dir():
                self._places.append(_Place(root, name, 0, None))
            else:
                self._file(root, name)
        while self._places:
            self._directory(self._places.popleft())
        # Copies in runs and tokens come last: they are shown only if no other file has them.
        for path, kind, name in sorted(self._tokenizers, key=lambda each: each[1] == "run"):
            self._add_tokenizer(path, kind, name)
        for name, facts in self._tokenizer_cache.encodings().items():
            self.found.tokenizers[name] = TokenizerEntry(name, name, "encoding", None, facts)
        for place in self._runs:
            self._add_run(place)
        self._count_trials()
        return self.found

    def _note(self, name: str, problem: BytemillError | OSError | str) -> None:
        if isinstance(problem, BytemillError):
            problem = problem.message
        elif isinstance(problem, OSError):
            problem = problem.strerror or str(problem)
        note = f"{name}: {problem}"
        if len(self.found.notes) < MAX_NOTES and note not in self.found.notes:
            self.found.notes.append(note)

    # --- directories and files ------------------------------------------------------------------

    def _directory(self, place: _Place) -> None:
        entries = list(self._entries(place))
        names = {entry.name for entry in entries}
        path, sweep = place.path, place.sweep
        if is_run(path, names):
            self._runs.append(place)
        elif is_tokens(path, names):
            self.found.tokens[path] = place.name
        else:
            if is_sweep(path, names):
                sweep = self._add_sweep(place)
            for entry in entries:
                self._entry(place, entry, sweep)
            return
        if "tokenizer.json" in names:
            self._tokenizers.append((path / "tokenizer.json", "run", place.name))

    def _entries(self, place: _Place) -> Iterator[os.DirEntry[str]]:
        """The entries of a directory that was not seen before."""
        try:
            found = os.stat(place.path)
            if (found.st_dev, found.st_ino) in self._seen:
                return
            self._seen.add((found.st_dev, found.st_ino))
            self._n_directories += 1
            with os.scandir(place.path) as listing:
                for entry in sorted(listing, key=lambda entry: entry.name):
                    self._n_files += 1
                    if self._n_files > MAX_FILES or self._n_directories > MAX_DIRECTORIES:
                        self._note(
                            place.name,
                            "too many files to look at all: "
                            "give the directories of your tokenizers and runs instead",
                        )
                        self._places.clear()
                        return
                    yield entry
        except OSError as error:
            self._note(place.name, error)

    def _entry(self, place: _Place, entry: os.DirEntry[str], sweep: str | None) -> None:
        if entry.name.startswith(".") or entry.name in SKIPPED:
            return
        path, name = place.path / entry.name, f"{place.name}/{entry.name}"
        try:
            if entry.is_file():
                self._file(path, name)
            elif entry.is_dir() and place.depth < MAX_DEPTH:
                self._places.append(_Place(path, name, place.depth + 1, sweep))
        except OSError as error:
            self._note(name, error)

    def _file(self, path: Path, name: str) -> None:
        if path.suffix == ".counts":
            self.found.counts[path] = name
        elif may_be_tokenizer(path, self._tokenizer_cache.known):
            self._tokenizers.append((path, "file", name))

    # --- what they are --------------------------------------------------------------------------

    def _add_tokenizer(self, path: Path, kind: Kind, name: str) -> None:
        found = self.found.tokenizers
        if len(found) >= MAX_TOKENIZERS:
            self._note(name, f"not shown: there are more than {MAX_TOKENIZERS} tokenizers")
            return
        facts = self._tokenizer_cache.facts(path, name)
        if not isinstance(facts, dict):
            self._note(name, facts)
            return
        if kind == "run" and _of_fingerprint(self.found, facts["fingerprint"]) is not None:
            return
        id = _id(path)
        found[id] = TokenizerEntry(id, name, kind, path, facts)

    def _add_run(self, place: _Place) -> None:
        if len(self.found.runs) >= MAX_RUNS:
            self._note(place.name, f"not shown: there are more than {MAX_RUNS} runs")
            return
        try:
            state = lm.run_state(place.path)
        except (BytemillError, OSError) as error:
            self._note(place.name, error)
            return
        fingerprint = state.fingerprint
        own = place.path / "tokenizer.json"
        if fingerprint is None and own.is_file():  # imported
            facts = self._tokenizer_cache.facts(own, place.name)
            fingerprint = facts["fingerprint"] if isinstance(facts, dict) else None
        tokenizer = None if fingerprint is None else _of_fingerprint(self.found, fingerprint)
        id = _id(place.path)
        self.found.runs[id] = RunEntry(
            id, place.name, place.path, state, tokenizer, place.sweep, place.path in self._diverged
        )

    def _add_sweep(self, place: _Place) -> str | None:
        try:
            found = lm.read_sweep(place.path)
        except (BytemillError, OSError) as error:
            self._note(place.name, error)
            return None
        self._diverged |= {trial.run for trial in found.trials if trial.status == "diverged"}
        id = _id(place.path)
        self.found.sweeps[id] = SweepEntry(
            id, place.name, place.path, len(found.trials), found.fields
        )
        return id

    def _count_trials(self) -> None:
        """Adds the runs of sweeps that have not ended."""
        for id, entry in self.found.sweeps.items():
            n_runs = sum(run.sweep == id for run in self.found.runs.values())
            self.found.sweeps[id] = replace(entry, n_trials=max(entry.n_trials, n_runs))


def _of_fingerprint(found: Found, fingerprint: str) -> str | None:
    """The id of a tokenizer."""
    entries = found.tokenizers.values()
    return next((each.id for each in entries if each.facts["fingerprint"] == fingerprint), None)


def _id(path: Path) -> str:
    """An id for a URL: the last name, for people, and a hash of the place."""
    digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:12]
    words = "".join(char if char.isascii() and char.isalnum() else "-" for char in path.name)
    return f"{words.strip('-')[:40]}-{digest}".lstrip("-")
