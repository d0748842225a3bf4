"""What the server shows: tokenizers, runs, sweeps, counts and tokens found under the paths.

Clients name things by id, which is looked up here: no path of a client ever opens a file. The
paths are scanned again on request, at most once a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from ..tokenizer import Tokenizer
from .found import Found, RunEntry, SweepEntry, TokenizerEntry
from .loading import TokenizerCache
from .replies import Refusal
from .scan import Scan

__all__ = ["Catalog"]

RESCAN_SECONDS = 1.0
# Pause after a scan, as a multiple of its duration: scans take at most a fifth of the time.
RESCAN_PAUSE = 4

Value = TypeVar("Value")


class Catalog:
    """What is found under `paths`; usable from many threads."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._roots = [Path(os.path.abspath(path)) for path in paths]
        self._lock = threading.Lock()
        self._found: Found | None = None
        self._until = 0.0
        self._tokenizer_cache = TokenizerCache()

    def found(self) -> Found:
        """The result of the last scan, usually less than a second old."""
        found = self._found
        if found is not None and time.monotonic() < self._until:
            return found
        # While another thread scans, the previous result is used.
        if not self._lock.acquire(blocking=found is None):
            assert found is not None
            return found
        try:
            if self._found is None or time.monotonic() >= self._until:
                began = time.monotonic()
                self._found = Scan(self._tokenizer_cache).over(self._roots)
                now = time.monotonic()
                self._until = now + max(RESCAN_SECONDS, RESCAN_PAUSE * (now - began))
            return self._found
        finally:
            self._lock.release()

    def tokenizer_entry(self, id: str) -> TokenizerEntry:
        """The tokenizer of this id, or a 404."""
        return _looked_up(self.found().tokenizers, id, "tokenizer")

    def tokenizer(self, id: str) -> Tokenizer:
        """The tokenizer of this id, loaded."""
        entry = self.tokenizer_entry(id)
        try:
            return self._tokenizer_cache.tokenizer(entry.path, entry.name)
        except OSError as error:
            raise Refusal(404, f"{entry.name}: {error.strerror or error}") from None

    def run(self, id: str) -> RunEntry:
        """The run of this id, or a 404."""
        return _looked_up(self.found().runs, id, "run")

    def sweep(self, id: str) -> SweepEntry:
        """The sweep of this id, or a 404."""
        return _looked_up(self.found().sweeps, id, "sweep")


def _looked_up(entries: dict[str, Value], id: str, what: str) -> Value:
    if id not in entries:
        raise Refusal(404, f"no {what} {id[:100]!r}", "GET /api/catalog lists the ids")
    return entries[id]
