"""Records of Python objects: Hugging Face datasets and iterators. See `columns` for how Rust reads
them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

from ..errors import CorpusError
from .parquet import nested, strings

if TYPE_CHECKING:
    from .columns import Batch

__all__ = ["Dataset", "Items", "is_dataset"]

# Default batch size in rows and in characters.
ROWS = 1000
CHARACTERS = 1 << 20


def is_dataset(places: object) -> bool:
    """Whether this is a Hugging Face dataset, without importing the library."""
    ours = type(places).__module__.split(".")[0] == "datasets" and hasattr(places, "with_format")
    # A dictionary of splits is not a dataset: the caller must choose one.
    return ours and not isinstance(places, Mapping)


class Dataset:
    """A Hugging Face dataset, in memory, on disk or streamed.

    Attributes:
        size: always 0: unknown before it is read.
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
                "name the column that holds the text: text_field=",
            )

    def files(self) -> list[str] | None:
        """The Arrow files whose rows are exactly those of the dataset; None if there are none."""
        # The tables of the library are not public. Without them, assume that there are no files;
        # selected or renamed rows are "replays".
        data = getattr(self._dataset, "_data", None)
        if data is None or getattr(self._dataset, "_indices", None) is not None:
            return None
        rows = getattr(data, "blocks", [[data]])
        tables = [row[0] for row in rows if len(row) == 1]
        paths = [getattr(table, "path", None) for table in tables]
        if len(tables) < len(rows) or any(getattr(table, "replays", None) for table in tables):
            return None
        return [str(path) for path in paths] if all(paths) else None

    def batches(self, row_group: int, row: int) -> Iterator[Batch]:
        return _in_one_thread(self._batches(row_group))

    def _batches(self, row_group: int) -> Iterator[Batch]:
        import pyarrow as arrow

        dataset = self._dataset
        if dataset.column_names is not None:
            name = self._field if self._field in dataset.column_names else self._field.split(".")[0]
            dataset = dataset.select_columns([name])
        tables = dataset.with_format("arrow").iter(batch_size=ROWS)
        for number, table in enumerate(tables):
            if number < row_group:
                continue
            if isinstance(table, dict):
                table = arrow.table(table)
            column = nested(arrow, table, self._field)
            if column is None:
                yield [None] * len(table), number, 0, True, 0
                continue
            before = 0
            for chunk in column.chunks:
                texts = strings(arrow, chunk)
                if texts is None:
                    raise CorpusError(
                        f"the column {self._field!r} of the dataset has type {column.type}, "
                        "not string"
                    )
                yield texts, number, before, before + len(chunk) == len(column), 0
                before += len(chunk)


class Items:
    """The texts of an iterator, which can be read only once.

    Attributes:
        size: always 0.
        mtime_ns: always 0.
        version: always empty.
    """

    def __init__(self, texts: Iterable[str | bytes]) -> None:
        self._texts = texts
        self.size = self.mtime_ns = 0
        self.version = ""

    def batches(self, row_group: int, row: int) -> Iterator[Batch]:
        return _in_one_thread(self._batches())

    def _batches(self) -> Iterator[Batch]:
        from .argument import batches

        before = 0
        for batch in batches(self._texts, CHARACTERS):
            yield batch, 0, before, False, 0
            before += len(batch)


def _in_one_thread(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Consumes an iterator in a single Python thread.

    Rust calls from changing threads, which would break iterators with thread-local state.
    """
    # One batch waiting, and one being produced.
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
