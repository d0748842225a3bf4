"""The threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .. import _native
from ..corpus import batches

if TYPE_CHECKING:
    from ..corpus import Corpus
    from ..places import Entry
    from ..progress import Report
    from ..tokenizer import Tokenizer

__all__ = ["Local"]

# Texts of an iterator go to the counters in groups of this many characters: large enough to keep
# every thread busy, small enough not to matter for memory.
BATCH_SIZE = 8 << 20


class Local:
    """Does the work in this process."""

    def count(self, counts: _native.Counts, corpus: Corpus, report: Report) -> object:
        texts = corpus.texts
        if texts is None:
            counts.add_files(corpus.inputs(), report)
            return None
        # In the thread of the caller, which the iterator may be bound to.
        for batch in batches(texts, BATCH_SIZE):
            counts.add_texts(batch)
            report("count", counts.bytes_read, None)
        return None

    def encode(
        self,
        tokenizer: Tokenizer,
        corpus: Corpus,
        entries: list[Entry],
        out: str | os.PathLike[str],
        plan: dict[str, Any],
        report: Report,
    ) -> None:
        _native.encode_files(tokenizer, corpus.inputs(entries), out, progress=report, **plan)

    def map(
        self, function: Callable[[Any], Any], items: list[Any], *, cpus: int = 1, gpus: int = 0
    ) -> Iterator[Any]:
        return map(function, items)
