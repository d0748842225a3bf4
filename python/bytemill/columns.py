"""Records that Python reads for Rust: columns of Parquet and Arrow, datasets, iterators.

A reader has `batches(part, row)`: from that row of that row group on, it gives tuples of texts (an
Arrow array, which Rust reads where it lies, or a list), the number of the row group, how many of
its rows come before, whether it ends with these, and about how many bytes of the file they are. In
place of one it may give the name of what is wrong with the rest of the file, to be counted.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from queue import Full, Queue
from typing import TYPE_CHECKING, Any, TypeAlias

from . import _native
from .errors import CorpusError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .places import Entry

__all__ = ["Columns", "Dataset", "Items", "is_dataset"]

Batch: TypeAlias = "tuple[Any, int, int, bool, int] | str"

# Row groups are read ahead up to this many bytes, unpacked, and this many at a time.
AHEAD = 256 << 20
READERS = 4
# Rows, and characters, that are asked for at a time where nothing else says how many.
ROWS = 1000
CHARACTERS = 1 << 20


def _pyarrow(name: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise CorpusError(
            f"{name}: Parquet and Arrow need pyarrow, which is not installed",
            "pip install 'bytemill[parquet]'",
        ) from None
    return pyarrow


class Columns:
    """A column of a Parquet or Arrow file.

    Attributes:
        size: the bytes of the file.
        mtime_ns: when it was last changed.
        version: what else tells one version of it from another, and which row groups are meant.
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
        """Who reads the bytes of the file; None for a local one."""
        return self._entry.reader

    def part(self, start: int, end: int) -> Columns:
        """Some of the row groups."""
        return Columns(self._entry, self._field, self._on_error, (start, end))

    def n_parts(self) -> int:
        """How many row groups there are."""
        try:
            return len(self._open())
        except CorpusError:
            if self._on_error == "stop":
                raise
            return 1

    def batches(self, part: int, row: int) -> Iterator[Batch]:
        try:
            table = self._open()
        except CorpusError:
            if self._on_error == "stop":
                raise
            yield "damaged"
            return
        first, last = self._parts or (0, len(table))
        yield from _ahead(table, range(max(part, first), min(last, len(table))), self.size)
        self._check()

    def _open(self) -> _Table:
        arrow = _pyarrow(self._entry.name)
        self._check()
        kind = _Parquet if self._entry.format == "parquet" else _Arrow
        try:
            return kind(arrow, self._entry, self._field, self._on_error)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, EOFError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> CorpusError:
        return CorpusError(
            f"{self._entry.name}: not a whole {self._entry.format} file: {error}",
            'fetch or make it again; on_error="skip" (--on-error skip) leaves it out',
        )

    def _check(self) -> None:
        """The file must still be what it was."""
        entry = self._entry
        if entry.reader is not None:
            entry.reader.check()  # type: ignore[attr-defined]
            return
        status = os.stat(entry.name)
        if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
            raise CorpusError(
                f"{entry.name}: changed since the work on it began",
                "begin anew: overwrite=True (--overwrite)",
            )


def _ahead(table: _Table, numbers: range, size: int) -> Iterator[Batch]:
    """The row groups in order, several read at a time."""
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[tuple[int, Future[list[Any] | str]]] = deque()
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
                if isinstance(chunks, str):
                    yield chunks
                    return
                weight = size // max(len(table), 1)
                rows = max(sum(map(len, chunks)), 1)
                before = 0
                for chunk in chunks:
                    after = before + len(chunk)
                    share = weight * len(chunk) // rows
                    yield chunk, now, before, after >= rows, share
                    before = after
        finally:
            # Whoever stops in the middle does not wait for what nobody wants.
            pool.shutdown(wait=False, cancel_futures=True)


class _Table:
    """Row groups of a file, to be read by several threads."""

    def __init__(self, arrow: Any, entry: Entry, field: str, on_error: str) -> None:
        self._arrow, self._entry, self._field, self._on_error = arrow, entry, field, on_error

    def __len__(self) -> int:
        raise NotImplementedError

    def unpacked(self, number: int) -> int:
        """About how many bytes a row group takes."""
        raise NotImplementedError

    def column(self, number: int) -> Any:
        """The texts of a row group, as a chunked array; None if there is no such column."""
        raise NotImplementedError

    def rows(self, number: int) -> int:
        raise NotImplementedError

    def names(self) -> list[str]:
        raise NotImplementedError

    def read(self, number: int) -> list[Any] | str:
        arrow = self._arrow
        try:
            column = self.column(number)
        except (arrow.ArrowInvalid, OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if self._on_error == "skip":
                return "damaged"
            raise CorpusError(
                f"{self._entry.name}: row group {number}: {error}",
                'it is damaged: fetch or make it again; on_error="skip" (--on-error skip) '
                "takes what comes before",
            ) from None
        if column is None:
            if self._on_error == "skip":
                return [[None] * self.rows(number)]
            raise CorpusError(
                f"{self._entry.name}: no column {self._field!r}; columns are "
                f"{', '.join(self.names())}",
                "name the column that holds the text: text_field= (--text-field)",
            )
        chunks = [_strings(arrow, chunk) for chunk in column.chunks if len(chunk)]
        if any(chunk is None for chunk in chunks):
            if self._on_error == "skip":
                return "wrong_type"
            raise CorpusError(
                f"{self._entry.name}: the column {self._field!r} is of type {column.type}, "
                "not of strings",
                "name the column that holds the text: text_field= (--text-field)",
            )
        return chunks


def _strings(arrow: Any, chunk: Any) -> Any:
    """An array of strings, or None if it is of something else."""
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


def _nested(arrow: Any, table: Any, field: str) -> Any:
    """The column of that name, or inside one if it is dotted; None if there is none."""
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


class _Parquet(_Table):
    def __init__(self, arrow: Any, entry: Entry, field: str, on_error: str) -> None:
        super().__init__(arrow, entry, field, on_error)
        import pyarrow.parquet as parquet

        self._parquet = parquet
        # A reader is for one thread at a time; what it knows of the file is for all. (Not kept by
        # thread: what belongs to a thread of Rust's goes when that thread leaves Python.)
        file = parquet.ParquetFile(self._source())
        self._spare = [file]
        self._metadata = file.metadata
        self._schema = file.schema_arrow

    def _source(self) -> Any:
        entry = self._entry
        return entry.name if entry.reader is None else entry.reader.open()  # type: ignore[attr-defined]

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
        return _nested(self._arrow, table, self._field)


class _Arrow(_Table):
    def __init__(self, arrow: Any, entry: Entry, field: str, on_error: str) -> None:
        super().__init__(arrow, entry, field, on_error)
        import pyarrow.ipc as ipc

        if entry.reader is None:
            source = arrow.memory_map(entry.name, "r")
        else:
            source = arrow.PythonFile(entry.reader.open(), "r")  # type: ignore[attr-defined]
        # The form with an index, or the one that is a stream, which datasets writes; mapped, going
        # through all of it reads only the heads of batches.
        if source.read(6) == b"ARROW1":
            reader = ipc.open_file(source)
            self._batches = [reader.get_batch(n) for n in range(reader.num_record_batches)]
        else:
            source.seek(0)
            reader = ipc.open_stream(source)
            self._batches = list(reader)
        self._schema = reader.schema

    def __len__(self) -> int:
        return len(self._batches)

    def unpacked(self, number: int) -> int:
        return int(self._batches[number].nbytes)

    def rows(self, number: int) -> int:
        return int(self._batches[number].num_rows)

    def names(self) -> list[str]:
        return list(self._schema.names)

    def column(self, number: int) -> Any:
        table = self._arrow.Table.from_batches([self._batches[number]])
        return _nested(self._arrow, table, self._field)


# --- datasets and iterators -----------------------------------------------------------------------


def is_dataset(places: object) -> bool:
    """Whether this is a dataset of Hugging Face's library, told without importing it."""
    ours = type(places).__module__.split(".")[0] == "datasets" and hasattr(places, "with_format")
    # Of a dictionary of splits, one has to be chosen.
    return ours and not isinstance(places, Mapping)


class Dataset:
    """A Hugging Face dataset, in memory, on disk or streamed.

    Attributes:
        size: always 0: how large it is, nobody knows before it was read.
        mtime_ns: always 0.
        version: its fingerprint, if it has one.
    """

    def __init__(self, dataset: Any, field: str) -> None:
        self._dataset, self._field = dataset, field
        self.size = self.mtime_ns = 0
        self.version = str(getattr(dataset, "_fingerprint", "") or "")
        names = dataset.column_names
        if names is not None and field.split(".")[0] not in names and field not in names:
            raise CorpusError(
                f"the dataset has no column {field!r}; columns are {', '.join(names)}",
                "name the column that holds the text: text_field= (--text-field)",
            )

    def batches(self, part: int, row: int) -> Iterator[Batch]:
        return _in_one_thread(self._batches(part))

    def _batches(self, part: int) -> Iterator[Batch]:
        import pyarrow as arrow

        dataset = self._dataset
        if dataset.column_names is not None:
            name = self._field if self._field in dataset.column_names else self._field.split(".")[0]
            dataset = dataset.select_columns([name])
        tables = dataset.with_format("arrow").iter(batch_size=ROWS)
        for number, table in enumerate(tables):
            if number < part:
                continue
            if isinstance(table, dict):
                table = arrow.table(table)
            column = _nested(arrow, table, self._field)
            if column is None:
                yield [None] * len(table), number, 0, True, 0
                continue
            before = 0
            for chunk in column.chunks:
                texts = _strings(arrow, chunk)
                if texts is None:
                    raise CorpusError(
                        f"the column {self._field!r} of the dataset is of type {column.type}, "
                        "not of strings"
                    )
                yield texts, number, before, before + len(chunk) == len(column), 0
                before += len(chunk)


class Items:
    """The texts of an iterator, which can be gone through once.

    Attributes:
        size: always 0.
        mtime_ns: always 0.
        version: always empty.
    """

    def __init__(self, texts: Iterable[str | bytes]) -> None:
        self._texts = texts
        self.size = self.mtime_ns = 0
        self.version = ""

    def batches(self, part: int, row: int) -> Iterator[Batch]:
        return _in_one_thread(self._batches())

    def _batches(self) -> Iterator[Batch]:
        from .corpus import batches

        before = 0
        for batch in batches(self._texts, CHARACTERS):
            yield batch, 0, before, False, 0
            before += len(batch)


def _in_one_thread(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Goes through an iterator in a thread of Python's own.

    Rust asks from one thread and another, none of which Python knows for long; code of others may
    keep things by thread.
    """
    # One that waits, and one that is being made.
    queue: Queue[Batch | BaseException | None] = Queue(1)
    over = threading.Event()

    def put(item: Batch | BaseException | None) -> None:
        while not over.is_set():
            with contextlib.suppress(Full):
                queue.put(item, timeout=0.1)
                return

    def run() -> None:
        try:
            for batch in batches:
                put(batch)
                if over.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    threading.Thread(target=run, name="bytemill-batches", daemon=True).start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        over.set()
