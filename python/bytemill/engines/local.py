"""The threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _native
from ..corpus.argument import batches
from .steps import BATCH_BYTES, count_in_steps

if TYPE_CHECKING:
    from ..corpus.argument import Corpus
    from ..corpus.places import Entry
    from ..progress import ProgressCallback

__all__ = ["Local"]

# Texts of an iterator go to the counters in groups of this many characters: large enough to keep
# every thread busy, small enough not to matter for memory.
BATCH_SIZE = 8 << 20
# Encoding repeats at most two units after a kill: one that is encoded, one that is being flushed.
UNIT_BYTES = 128_000_000


class Local:
    """Does the work in this process.

    Args:
        batch_size: bytes after which a count that can be resumed is saved.
        unit_size: bytes after which encoding is saved.
        block_size: bytes of text that a thread encodes at a time; None for the usual.

    Attributes:
        is_local: calls are made in this process, in order.
    """

    is_local = True

    def __init__(
        self,
        batch_size: int = BATCH_BYTES,
        unit_size: int = UNIT_BYTES,
        block_size: int | None = None,
    ) -> None:
        self._batch_size, self.unit_size, self.block_size = batch_size, unit_size, block_size

    def count(
        self,
        counts: _native.Counts,
        corpus: Corpus,
        memory_limit: int | str | None,
        spill_dir: str | os.PathLike[str] | None,
        report: ProgressCallback,
    ) -> object:
        texts = corpus.texts
        if texts is None:
            counts.add_files(corpus.inputs(), report)
            return None
        # In the thread of the caller, which the iterator may be bound to.
        for batch in batches(texts, BATCH_SIZE):
            counts.add_texts(batch)
            report("count", counts.bytes_read, None)
        return None

    def count_to(
        self,
        counts: _native.Counts,
        corpus: Corpus,
        entries: list[Entry],
        directory: Path,
        threads: int | None,
        memory_limit: int | str | None,
        report: ProgressCallback,
    ) -> Path:
        return count_in_steps(
            counts, corpus, entries, directory, threads, memory_limit, report, self._batch_size
        )

    def each(
        self,
        function: Callable[..., Any],
        items: list[Any],
        done: Callable[[Any], None],
        *,
        shared: tuple[Any, ...] = (),
        cpus: int = 1,
        gpus: int = 0,
    ) -> None:
        for item in items:
            done(function(*shared, item))
