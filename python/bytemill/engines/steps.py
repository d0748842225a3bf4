"""Counting in this process, in steps: what is done of it survives.

Files are counted in batches of whole files. The counts of each batch go into a directory, and then
a line into its journal: which files, of what size and when last changed. Whenever the work stops,
at most one batch is lost.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _files, _native
from .._numbers import estimated_text
from .._system import memory_limit as resolve_limit
from ..errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from ..corpus.argument import Corpus
    from ..corpus.places import Entry
    from ..progress import ProgressCallback

__all__ = ["BATCH_BYTES", "count_in_steps"]

# A batch ends when it holds this much. The more, the fewer merges; the less, the less is lost.
BATCH_BYTES = 256_000_000
BATCH_FILES = 1000
JOURNAL = "journal.jsonl"
SUM = "sum.counts"
VERSION = 3


def count_in_steps(
    counts: _native.Counts,
    corpus: Corpus,
    sources: list[Entry],
    directory: Path,
    threads: int | None,
    memory_limit: int | str | None,
    report: ProgressCallback,
    batch_size: int,
) -> Path:
    """Counts what the directory has no counts of yet; gives the file with the sum."""
    journal = _Journal(directory, counts.fingerprint, corpus.settings)
    left = journal.left(sources)
    total = sum(source.size for source in sources)
    # Bytes of files, and the bytes of text that came of them.
    read = total - sum(source.size for source in left)
    text = journal.text_bytes
    in_batch = 0

    # What comes by stdin, or is given by others, has no size beforehand.
    known = all(source.size or source.reader is None for source in sources)

    def report_batch(phase: str, n: int, of: int | None) -> None:
        # Ours is the progress of all batches; what a batch gathers is not worth a line.
        if phase == "count":
            so_far = read + (in_batch * n / of if of else 0)
            report(phase, text + n, estimated_text(text + n, so_far, total) if known else None)

    def limit(some: _native.Counts) -> None:
        found = resolve_limit(memory_limit)
        some.set_limit(found.available, found.total, directory)

    for batch in _batches(left, batch_size):
        in_batch = sum(source.size for source in batch)
        some = _native.Counts(counts.pattern, counts.special_tokens, threads)
        limit(some)
        try:
            some.add_files(corpus.inputs(batch), report_batch)
            journal.add(batch, some)
            text += some.bytes_read
        finally:
            some.clear()
        read += in_batch
    limit(counts)
    try:
        for part in journal.parts():
            counts.merge(_native.Counts.open(part))
        counts.save(directory / SUM, report)
    finally:
        counts.clear()
    return directory / SUM


def _batches(sources: list[Entry], batch_size: int) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    held = 0
    for source in sources:
        batch.append(source)
        held += source.size
        if held >= batch_size or len(batch) >= BATCH_FILES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


class _Journal:
    """The directory of parts, and the list of what is in them.

    The first line says what is counted; each further one names a part and its files. A part is put
    in place before its line is written, and a line is whole or the last one and torn. A line is an
    array of the CRC-32 of all entries so far, and the entry.
    """

    def __init__(self, directory: Path, fingerprint: str, settings: dict[str, Any]) -> None:
        self.directory = directory
        self._file = directory / JOURNAL
        self._entries: list[dict[str, Any]] = []
        self._crc = 0
        head = {"version": VERSION, "fingerprint": fingerprint, "reading": settings}
        directory.mkdir(exist_ok=True)
        lines = self._lines()
        if not lines:
            _files.write_atomically(self._file, self._line(head))
        elif lines[0] != head:
            raise ConfigError(
                f"{directory}: the interrupted run had a different pattern, special tokens, "
                "or options for reading the corpus",
                "resume with the same options, or start over: overwrite=True",
            )
        self._entries = lines[1:]
        self._tidy()

    def _lines(self) -> list[dict[str, Any]]:
        try:
            data = _files.regular(self._file, CorpusError).read_bytes()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        lines = []
        for line in whole.splitlines(keepends=True):
            found = re.fullmatch(rb'\["[0-9a-f]{8}", (.*)\]\n', line)
            try:
                lines.append(json.loads(found[1] if found else b""))
                known = self._line(lines[-1]) == line
            except ValueError:
                known = False
            if not known:
                raise CorpusError(
                    f"{self._file}: line {len(lines)} is damaged or from another version",
                    "start over: overwrite=True",
                )
        if whole != data:
            # A line that was being written when the end came; its batch is counted again.
            _files.write_atomically(self._file, whole)
        return lines

    def _tidy(self) -> None:
        """Removes what a killed process left: unlisted parts, temporary files."""
        known = {JOURNAL, *(entry["part"] for entry in self._entries)}
        for entry in self.directory.iterdir():
            if entry.name not in known:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def left(self, sources: list[Entry]) -> list[Entry]:
        """The files that are still to be counted."""
        done = Counter(tuple(file) for entry in self._entries for file in entry["files"])
        left = []
        for source in sources:
            if done[tuple(source.stamp)] > 0:
                done[tuple(source.stamp)] -= 1
            else:
                left.append(source)
        for path, *_ in done.elements():
            changed = any(path == other.stamp[0] for other in left)
            raise ConfigError(
                f"{path}: "
                + ("changed since it was counted" if changed else "counted, but not in the corpus"),
                "start over: overwrite=True",
            )
        return left

    def add(self, batch: list[Entry], counts: _native.Counts) -> None:
        """Saves the counts of a batch."""
        part = f"part-{len(self._entries):06}.counts"
        counts.save(self.directory / part)
        files = [source.stamp for source in batch]
        entry = {"part": part, "files": files, "text_bytes": counts.bytes_read}
        with _files.naming(self._file), open(self._file, "ab") as file:
            file.write(self._line(entry))
            file.flush()
            os.fsync(file.fileno())
        self._entries.append(entry)

    @property
    def text_bytes(self) -> int:
        """Bytes of text that were counted."""
        return sum(int(entry.get("text_bytes", 0)) for entry in self._entries)

    def parts(self) -> list[Path]:
        return [self.directory / entry["part"] for entry in self._entries]

    def _line(self, value: dict[str, Any]) -> bytes:
        text = json.dumps(value).encode()
        self._crc = zlib.crc32(text, self._crc)
        return b'["%08x", %s]\n' % (self._crc, text)
