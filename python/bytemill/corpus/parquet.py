"""Columnar files: the strings of a row group. `Table` is the base class, here for Parquet and in
`arrow` for Arrow files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..errors import CorpusError, require

if TYPE_CHECKING:
    from .places import Entry

__all__ = ["Parquet", "Table", "encoded_path", "import_pyarrow", "nested", "strings"]


def import_pyarrow(name: str) -> Any:
    return require("pyarrow", f"{name}: reading Parquet and Arrow", extra="parquet")


def encoded_path(entry: Entry) -> bytes:
    """The path of a local file as bytes, because pyarrow requires strings to be UTF-8."""
    return os.fsencode(entry.path or entry.name)


class Table:
    """The row groups of a file; may be read by several threads."""

    def __init__(self, arrow: Any, entry: Entry, field: str, on_error: str) -> None:
        self._arrow, self._entry, self._field, self._on_error = arrow, entry, field, on_error

    def __len__(self) -> int:
        raise NotImplementedError

    def unpacked(self, number: int) -> int:
        """Approximate decompressed size of a row group in bytes."""
        raise NotImplementedError

    def column(self, number: int) -> Any:
        """The texts of a row group, as a chunked array; None if there is no such column."""
        raise NotImplementedError

    def rows(self, number: int) -> int:
        raise NotImplementedError

    def names(self) -> list[str]:
        raise NotImplementedError

    def read(self, number: int) -> list[Any] | tuple[str, int]:
        """The texts of a row group; or the reason for skipping it and its number of records."""
        arrow = self._arrow
        try:
            column = self.column(number)
        except (arrow.ArrowException, OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if self._on_error == "skip":
                return "damaged", 1
            raise CorpusError(
                f"{self._entry.name}: row group {number}: {error}",
                'it is damaged: download or create it again; on_error="skip" skips it',
            ) from None
        if column is None:
            if self._on_error == "skip":
                return "missing_field", self.rows(number)
            raise CorpusError(
                f"{self._entry.name}: no column {self._field!r}; columns are "
                f"{', '.join(self.names())}",
                "name the column that holds the text: text_field=",
            )
        chunks = [strings(arrow, chunk) for chunk in column.chunks if len(chunk)]
        if any(chunk is None for chunk in chunks):
            if self._on_error == "skip":
                return "wrong_type", len(column)
            raise CorpusError(
                f"{self._entry.name}: the column {self._field!r} has type {column.type}, "
                "not string",
                "name the column that holds the text: text_field=",
            )
        return chunks


def strings(arrow: Any, chunk: Any) -> Any:
    """The array as strings; None if it has another type."""
    types = arrow.types
    kind = chunk.type
    if types.is_string(kind) or types.is_large_string(kind):
        return chunk
    if types.is_binary(kind) or types.is_large_binary(kind):
        return chunk
    if types.is_null(kind):
        return [None] * len(chunk)
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return chunk.cast(arrow.large_string())
    return None


def nested(arrow: Any, table: Any, field: str) -> Any:
    """The column of that name, nested if it is dotted; None if there is none."""
    if field in table.column_names:
        return table.column(field)
    first, *inner = field.split(".")
    if first not in table.column_names:
        return None
    column = table.column(first)
    for name in inner:
        if not arrow.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        import pyarrow.compute as compute

        column = compute.struct_field(column, name)
    return column


class Parquet(Table):
    def __init__(self, arrow: Any, entry: Entry, field: str, on_error: str) -> None:
        super().__init__(arrow, entry, field, on_error)
        import pyarrow.parquet as parquet

        self._parquet = parquet
        # A reader is not thread-safe, but its metadata is shared. (Thread-local readers do not
        # work: those of a Rust thread are dropped whenever it leaves Python.)
        file = parquet.ParquetFile(self._source())
        self._spare = [file]
        self._metadata = file.metadata
        self._schema = file.schema_arrow

    def _source(self) -> Any:
        entry = self._entry
        if entry.reader is None:
            return self._arrow.OSFile(encoded_path(entry), "r")
        return entry.reader.open()  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return int(self._metadata.num_row_groups)

    def unpacked(self, number: int) -> int:
        return int(self._metadata.row_group(number).total_byte_size)

    def rows(self, number: int) -> int:
        return int(self._metadata.row_group(number).num_rows)

    def names(self) -> list[str]:
        return list(self._schema.names)

    def column(self, number: int) -> Any:
        names = self._schema.names
        first = self._field if self._field in names else self._field.split(".")[0]
        if first not in names:
            return None
        try:
            file = self._spare.pop()
        except IndexError:
            file = self._parquet.ParquetFile(self._source(), metadata=self._metadata)
        table = file.read_row_group(number, columns=[self._field], use_threads=False)
        self._spare.append(file)
        return nested(self._arrow, table, self._field)
