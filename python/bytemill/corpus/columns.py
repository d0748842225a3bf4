"""Records that Python reads for Rust: a column of a Parquet or Arrow file.

A reader has `batches(row_group, row)`, which starts at that row of that row group and yields
tuples: texts (an Arrow array, which Rust reads without a copy, or a list), the number of the row
group, the number of its rows before these, whether it ends with these, and about how many bytes of
the file they occupy. For a damaged row group it may yield instead the reason, the number of the row
group and the number of skipped records.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _native
from ..errors import CorpusError
from .arrow import arrow_table
from .parquet import Parquet, Table, import_pyarrow

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .places import Entry

__all__ = ["Batch", "Columns"]

Batch: TypeAlias = "tuple[Any, int, int, bool, int] | tuple[str, int, int]"

# Row groups are read ahead up to this many decompressed bytes, and this many at a time.
AHEAD = 256 << 20
READERS = 4


class Columns:
    """A column of a Parquet or Arrow file.

    Attributes:
        size: size of the file in bytes.
        mtime_ns: its modification time.
        version: further identification of its version, and the range of row groups.
    """

    def __init__(
        self, entry: Entry, field: str, on_error: str, parts: tuple[int, int] | None = None
    ) -> None:
        self._entry, self._field, self._on_error, self._parts = entry, field, on_error, parts
        self.size, self.mtime_ns, self.version = entry.size, entry.mtime_ns, entry.version
        if parts is not None:
            self.version = f"{entry.version}; row groups {parts[0]} to {parts[1]}"

    @property
    def below(self) -> Any:
        """The reader of the file's bytes; None for a local file."""
        return self._entry.reader

    def part(self, start: int, end: int) -> Columns:
        """Some of the row groups."""
        return Columns(self._entry, self._field, self._on_error, (start, end))

    def n_parts(self) -> int:
        """Number of row groups."""
        try:
            return len(self._open())
        except CorpusError:
            if self._on_error == "stop":
                raise
            return 1

    def batches(self, row_group: int, row: int) -> Iterator[Batch]:
        try:
            table = self._open()
        except CorpusError:
            if self._on_error == "stop":
                raise
            yield "damaged", 0, 1
            return
        first, last = self._parts or (0, len(table))
        yield from _ahead(table, range(max(row_group, first), min(last, len(table))), self.size)
        self._check()

    def _open(self) -> Table:
        arrow = import_pyarrow(self._entry.name)
        self._check()
        kind = Parquet if self._entry.format == "parquet" else arrow_table
        try:
            return kind(arrow, self._entry, self._field, self._on_error)
        # Including a MemoryError, which a damaged length can cause.
        except (arrow.ArrowException, OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> CorpusError:
        return CorpusError(
            f"{self._entry.name}: damaged or incomplete {self._entry.format} file: {error}",
            'download or create it again; on_error="skip" skips it',
        )

    def _check(self) -> None:
        """Raises if the file has changed."""
        entry = self._entry
        if entry.reader is not None:
            entry.reader.check()  # type: ignore[attr-defined]
            return
        status = os.stat(entry.path or entry.name)
        if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
            raise CorpusError(
                f"{entry.name}: changed since the run started",
                "start over: overwrite=True",
            )


def _ahead(table: Table, numbers: range, size: int) -> Iterator[Batch]:
    """The row groups in order, several read at a time."""
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[tuple[int, Future[list[Any] | tuple[str, int]]]] = deque()
    held, left = 0, iter(numbers)
    with ThreadPoolExecutor(min(READERS, _native.default_threads())) as pool:
        try:
            number = next(left, None)
            while number is not None or waiting:
                while number is not None and (
                    not waiting or (held < AHEAD and len(waiting) < 2 * READERS)
                ):
                    waiting.append((number, pool.submit(table.read, number)))
                    held += table.unpacked(number)
                    number = next(left, None)
                now, future = waiting.popleft()
                held -= table.unpacked(now)
                chunks = future.result()
                if isinstance(chunks, tuple):
                    kind, n_records = chunks
                    yield kind, now, n_records
                    continue
                weight = size // max(len(table), 1)
                rows = max(sum(map(len, chunks)), 1)
                before = 0
                for chunk in chunks:
                    after = before + len(chunk)
                    share = weight * len(chunk) // rows
                    yield chunk, now, before, after >= rows, share
                    before = after
        finally:
            # A consumer that stops early does not wait for row groups read ahead.
            pool.shutdown(wait=False, cancel_futures=True)
