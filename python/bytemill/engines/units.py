"""A corpus → units of work of about the same size, in order.

A unit is one or more sources, or ranges of them. Uncompressed text and JSONL are cut into byte
ranges, Parquet into row groups; compressed files, archives and CSV files are not cut. Units for
other processes are small plain data: a worker opens the sources itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..corpus.argument import Corpus
from ..corpus.columns import Columns
from ..corpus.iterables import Dataset, Items
from ..corpus.places import Entry, of_files
from ..corpus.stdin import Piped
from ..errors import ConfigError
from . import UNIT_SIZE

if TYPE_CHECKING:
    from .. import _native

__all__ = ["Unit", "units"]

# Opening a file has a cost too, in bytes.
COST_OF_FILE = 50_000


@dataclass(frozen=True)
class Unit:
    """A unit of work.

    Attributes:
        number: its index in the corpus.
        size: its bytes.
        settings: how the corpus is read.
        entries: sources, or ranges of them; the worker creates readers of columns again.
        row_groups: for each entry, its range of row groups, if it has any.
    """

    number: int
    size: int
    settings: dict[str, Any]
    entries: list[Entry]
    row_groups: list[tuple[int, int] | None]

    def name(self, *also: str) -> str:
        """An identifier that changes if a source changes."""
        sources = [[entry.stamp, entry.format, entry.range] for entry in self.entries]
        content = json.dumps([sources, self.row_groups, self.settings, also])
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    def inputs(self) -> _native.Inputs:
        """The sources for Rust, in any process."""
        corpus = Corpus((), **self.settings)
        opened = []
        for entry, groups in zip(self.entries, self.row_groups):
            if groups is None:
                opened.append(entry)
                continue
            columns = Columns(entry, corpus.text_field, corpus.on_error, groups)
            opened.append(replace(entry, reader=columns))
        return corpus.inputs(opened)

    @property
    def sources(self) -> list[dict[str, Any]]:
        """The sources as they must be when they are read."""
        return [entry.facts for entry in self.entries]


def units(
    corpus: Corpus,
    entries: Sequence[Entry],
    unit_size: int = UNIT_SIZE,
    *,
    here: bool = False,
) -> list[Unit]:
    """The units of a corpus, in order.

    Args:
        corpus: how it is read.
        entries: its sources.
        unit_size: approximate bytes per unit.
        here: whether only this process reads them; then any source is allowed.
    """
    made: list[Unit] = []
    held: list[tuple[Entry, tuple[int, int] | None]] = []
    size = cost = 0
    for entry, groups, n_bytes in _pieces(corpus, entries, unit_size, here):
        held.append((entry, groups))
        size += n_bytes
        cost += n_bytes + COST_OF_FILE
        if cost >= unit_size:
            made.append(_unit(len(made), size, corpus, held))
            held, size, cost = [], 0, 0
    if held:
        made.append(_unit(len(made), size, corpus, held))
    return made


def _unit(
    number: int, size: int, corpus: Corpus, held: list[tuple[Entry, tuple[int, int] | None]]
) -> Unit:
    entries = [entry for entry, _ in held]
    return Unit(number, size, corpus.settings, entries, [groups for _, groups in held])


def _pieces(
    corpus: Corpus, entries: Sequence[Entry], unit_size: int, here: bool
) -> Iterator[tuple[Entry, tuple[int, int] | None, int]]:
    # Workers have other working directories, so paths must be absolute.
    for entry in entries if here else (entry.anywhere() for entry in entries):
        small = entry.size <= unit_size or isinstance(entry.reader, (Dataset, Items, Piped))
        if here and small:
            yield entry, None, entry.size
        elif isinstance(entry.reader, Dataset):
            yield from _pieces(corpus, of_files(_files(entry.reader), corpus), unit_size, here)
        elif isinstance(entry.reader, (Items, Piped)):
            what = "stdin" if isinstance(entry.reader, Piped) else "an iterator"
            raise ConfigError(
                f"{what} cannot be read by other processes",
                'write it to files and pass those, or use engine="local"',
            )
        elif isinstance(entry.reader, Columns):
            yield from _row_groups(entry, entry.reader, unit_size)
        elif entry.format in ("text", "jsonl") and entry.size > unit_size:
            # Equal ranges: the last is not much smaller than the others.
            n = max(round(entry.size / unit_size), 1)
            bounds = [entry.size * i // n for i in range(n + 1)]
            for start, end in zip(bounds, bounds[1:]):
                yield entry.part(start, end), None, end - start
        else:
            yield entry, None, entry.size


def _files(dataset: Dataset) -> list[str]:
    files = dataset.files()
    if files is None:
        raise ConfigError(
            "the dataset is not stored as Arrow files that other processes could read: it is in "
            "memory, streamed, or its rows were selected or reordered",
            'write it to files and pass those: dataset.to_parquet("data.parquet"); or use '
            'engine="local"',
        )
    return files


def _row_groups(
    entry: Entry, columns: Columns, unit_size: int
) -> Iterator[tuple[Entry, tuple[int, int] | None, int]]:
    plain = replace(entry, reader=columns.below)
    n_groups = columns.n_parts()
    n = min(max(round(entry.size / unit_size), 1), max(n_groups, 1))
    bounds = [n_groups * i // n for i in range(n + 1)]
    for start, end in zip(bounds, bounds[1:]):
        yield plain, (start, end), entry.size // n
