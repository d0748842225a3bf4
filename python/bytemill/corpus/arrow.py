"""Arrow files: the strings of a record batch.

Batches are read on demand. Those of an uncompressed local file are memory-mapped; compressed
(Feather) and remote ones would fill memory if all were read at once.

A stream has no index. pyarrow scans it once, message by message, to find the batches: a mapped
file is only walked through, but a remote stream is fetched twice. Convert remote streams to files
or to Parquet where that matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .parquet import Table, encoded_path, nested

if TYPE_CHECKING:
    from .places import Entry

__all__ = ["arrow_table"]

# Assumed compression ratio of a compressed batch.
UNPACKED = 4


def arrow_table(arrow: Any, entry: Entry, field: str, on_error: str) -> Table:
    """Opens an Arrow file with an index, or a stream, which `datasets` writes."""
    is_file = _source(arrow, entry).read(6) == b"ARROW1"
    return (ArrowFile if is_file else ArrowStream)(arrow, entry, field, on_error)


def _source(arrow: Any, entry: Entry) -> Any:
    if entry.reader is None:
        return arrow.memory_map(encoded_path(entry), "r")
    return arrow.PythonFile(entry.reader.open(), "r")  # type: ignore[attr-defined]


class ArrowFile(Table):
    """An Arrow file with an index of its batches."""

    def __init__(self, arrow: Any, entry: Entry, field: str, on_error: str) -> None:
        super().__init__(arrow, entry, field, on_error)
        import pyarrow.ipc as ipc

        reader = ipc.open_file(_source(arrow, entry))
        self._schema, self._n_batches = reader.schema, int(reader.num_record_batches)
        names = self._schema.names
        first = field if field in names else field.split(".")[0]
        # A reader is not thread-safe. Only the text column is decompressed.
        self._there = first in names
        wanted = [names.index(first)] if self._there else []
        self._open: Callable[[], Any] = lambda: ipc.open_file(
            _source(arrow, entry), options=ipc.IpcReadOptions(included_fields=wanted)
        )
        self._spare: list[Any] = []

    def __len__(self) -> int:
        return self._n_batches

    def unpacked(self, number: int) -> int:
        return UNPACKED * self._entry.size // max(self._n_batches, 1)

    def names(self) -> list[str]:
        return list(self._schema.names)

    def rows(self, number: int) -> int:
        return int(self._batch(number).num_rows)

    def column(self, number: int) -> Any:
        if not self._there:
            return None
        return nested(
            self._arrow, self._arrow.Table.from_batches([self._batch(number)]), self._field
        )

    def _batch(self, number: int) -> Any:
        try:
            reader = self._spare.pop()
        except IndexError:
            reader = self._open()
        batch = reader.get_batch(number)
        self._spare.append(reader)
        return batch


class ArrowStream(Table):
    """An Arrow stream, whose batches are found by scanning it once."""

    def __init__(self, arrow: Any, entry: Entry, field: str, on_error: str) -> None:
        super().__init__(arrow, entry, field, on_error)
        import pyarrow.ipc as ipc

        self._ipc: Any = ipc
        self._read: Callable[[int, int], Any]
        self._schema = ipc.open_stream(_source(arrow, entry)).schema
        if entry.reader is None:
            mapped = arrow.memory_map(encoded_path(entry), "r").read_buffer()
            self._read = lambda start, end: mapped.slice(start, end - start)
        else:
            fetch = entry.reader.fetch  # type: ignore[attr-defined]
            self._read = lambda start, end: arrow.py_buffer(fetch(start, end))
        found = _messages(ipc, _source(arrow, entry))
        self._places = [(start, end) for kind, start, end in found if kind == "record batch"]
        self._all: list[Any] | None = None
        if any(kind == "dictionary" for kind, _, _ in found):
            # Dictionary batches are between the record batches, which cannot be read alone.
            self._all = list(ipc.open_stream(_source(arrow, entry)))

    def __len__(self) -> int:
        return len(self._places)

    def unpacked(self, number: int) -> int:
        start, end = self._places[number]
        return UNPACKED * (end - start)

    def names(self) -> list[str]:
        return list(self._schema.names)

    def rows(self, number: int) -> int:
        return int(self._batch(number).num_rows)

    def column(self, number: int) -> Any:
        table = self._arrow.Table.from_batches([self._batch(number)])
        return nested(self._arrow, table, self._field)

    def _batch(self, number: int) -> Any:
        if self._all is not None:
            return self._all[number]
        message = self._ipc.read_message(self._read(*self._places[number]))
        return self._ipc.read_record_batch(message, self._schema)


def _messages(ipc: Any, source: Any) -> list[tuple[str, int, int]]:
    """The messages of a stream: kind, first byte, last byte + 1."""
    reader = ipc.MessageReader.open_stream(source)
    found: list[tuple[str, int, int]] = []
    at = source.tell()
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return found
        end = source.tell()
        found.append((message.type, at, end))
        at = end
