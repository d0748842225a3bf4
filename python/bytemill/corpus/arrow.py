"""Arrow files: the strings of a batch.

A batch is read when it is wanted. Those of a local file that is not packed lie where they are,
mapped; those that are packed, as Feather files are, or come from elsewhere, would fill the memory
if all were read at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .parquet import Table, encoded_path, nested

if TYPE_CHECKING:
    from .places import Entry

__all__ = ["arrow_table"]

# How many times larger than in the file a batch may be, about, if it is packed.
UNPACKED = 4
# What stands before a message, and is read of it at first: its description is mostly shorter.
CONTINUES = 0xFFFFFFFF
HEAD = 4096
# Kinds of messages.
DICTIONARY, RECORDS = 2, 3


def arrow_table(arrow: Any, entry: Entry, field: str, on_error: str) -> Table:
    """The form with an index, or the one that is a stream, which datasets writes."""
    is_file = _source(arrow, entry).read(6) == b"ARROW1"
    return (ArrowFile if is_file else ArrowStream)(arrow, entry, field, on_error)


def _source(arrow: Any, entry: Entry) -> Any:
    if entry.reader is None:
        return arrow.memory_map(encoded_path(entry), "r")
    return arrow.PythonFile(entry.reader.open(), "r")  # type: ignore[attr-defined]


class ArrowFile(Table):
    """Batches that an index leads to."""

    def __init__(self, arrow: Any, entry: Entry, field: str, on_error: str) -> None:
        super().__init__(arrow, entry, field, on_error)
        import pyarrow.ipc as ipc

        reader = ipc.open_file(_source(arrow, entry))
        self._schema, self._n_batches = reader.schema, int(reader.num_record_batches)
        names = self._schema.names
        first = field if field in names else field.split(".")[0]
        # A reader is for one thread at a time. Only the column that is wanted is unpacked.
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
    """Batches one behind the other; where they lie is found by going from head to head."""

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
        found = _messages(self._read, entry.size)
        self._places = [(start, end) for kind, start, end in found if kind == RECORDS]
        self._all: list[Any] | None = None
        if any(kind == DICTIONARY for kind, _, _ in found):
            # Strings that are kept once, between the batches, which cannot be read by themselves.
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


def _messages(read: Callable[[int, int], Any], size: int) -> list[tuple[int, int, int]]:
    """The messages of a stream: of what kind, from where, to where.

    Each is the length of its description, the description, and then what it is of. pyarrow would
    read that too, all of it.
    """
    found = []
    at = 0
    while at + 4 <= size:
        head = bytes(read(at, min(at + HEAD, size)))
        start = 4
        (length,) = struct.unpack_from("<I", head)
        if length == CONTINUES and len(head) >= 8:
            start = 8
            (length,) = struct.unpack_from("<I", head, 4)
        if length == 0:
            break
        if at + start + length > size:
            raise EOFError("it ends within a batch")
        if start + length > len(head):
            head = bytes(read(at, at + start + length))
        kind, body = _described(head[start : start + length])
        end = at + start + length + body
        if end > size:
            raise EOFError("it ends within a batch")
        found.append((kind, at, end))
        at = end
    return found


def _described(description: bytes) -> tuple[int, int]:
    """The kind of a message and how many bytes follow: fields 1 and 3 of a table of FlatBuffers."""
    try:
        (table,) = struct.unpack_from("<I", description)
        (back,) = struct.unpack_from("<i", description, table)
        fields = table - back
        (n_bytes,) = struct.unpack_from("<H", description, fields)

        def field(number: int, form: str) -> int:
            place = 4 + 2 * number
            if place + 2 > n_bytes:
                return 0
            (offset,) = struct.unpack_from("<H", description, fields + place)
            return int(struct.unpack_from(form, description, table + offset)[0]) if offset else 0

        kind, body = field(1, "<B"), field(3, "<q")
    except struct.error:
        raise EOFError("the head of a batch makes no sense") from None
    if body < 0:
        raise EOFError("the head of a batch makes no sense")
    return kind, body
