"""Dry runs: which files would be read, and estimates of time and memory.

The listing is exact. The rest is extrapolated from a sample of a few megabytes of text that is
read and processed. The number of distinct pieces is extrapolated from its growth within the sample
(Heaps' law).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from . import _native
from ._options import LearnOptions
from ._system import memory_limit as resolve_limit
from ._system import resident_memory
from .corpus.argument import Corpus
from .corpus.places import Entry, Listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .tokenizer import Tokenizer

__all__ = ["ComparingWork", "CountingWork", "EncodingWork", "Preview", "preview"]

# Bytes of text sampled from each of a few files of every format; of remote files, from one only.
FILE_SAMPLE = 4_000_000
FILES = 3
BLOCK = 256 << 10
# Bytes of memory: a piece in a thread's table, a byte and a piece while merging (as the core
# estimates them), a chunk waiting to be written.
TABLE_BYTES_PER_PIECE = 80
MERGE_BYTES_PER_BYTE, MERGE_BYTES_PER_PIECE = 12, 28
CHUNK_BYTES = 2_000_000


@dataclass(frozen=True)
class Preview:
    """Estimates for a job.

    Attributes:
        listing: the files to be read and skipped.
        text_bytes: bytes of text; an estimate unless all files are plain text.
        sample_bytes: bytes of text in the sample.
        seconds: estimated time; None if the sample is empty.
        memory: estimated memory in bytes.
    """

    listing: Listing
    text_bytes: int
    sample_bytes: int
    seconds: float | None
    memory: int


@dataclass
class CorpusSample:
    """A sample of a corpus.

    Attributes:
        texts: documents, or chunks of text.
        seconds: time to read them.
        ratios: by format, bytes of text per byte of file.
    """

    texts: list[bytes] = field(default_factory=list)
    seconds: float = 0.0
    ratios: dict[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.texts))


class Work(Protocol):
    """A kind of job whose cost can be estimated."""

    # Number of sources read concurrently.
    readers: int

    def measure(self, texts: list[bytes], whole: int) -> tuple[float, int]:
        """Seconds and memory for `whole` bytes of such text, excluding reading."""


def preview(corpus: Corpus, work: Work, limit: int | None = None) -> Preview:
    """Estimates the cost of `work` on at most `limit` bytes of a corpus."""
    listing = corpus.listing()
    sample = _sample(corpus, listing.entries)
    usual = max(sample.ratios.values(), default=1.0)
    text_bytes = round(
        sum(entry.size * sample.ratios.get(entry.format, usual) for entry in listing.entries)
    )
    whole = text_bytes if limit is None else min(text_bytes, limit)
    if not sample.size:
        return Preview(listing, text_bytes, 0, None, resident_memory())
    seconds, memory = work.measure(sample.texts, whole)
    divisible = all(entry.format in ("text", "jsonl") for entry in listing.entries)
    n_readers = work.readers if divisible else min(work.readers, len(listing.entries))
    reading = sample.seconds * whole / sample.size / max(n_readers, 1)
    return Preview(listing, text_bytes, sample.size, max(seconds, reading), memory)


def _sample(corpus: Corpus, entries: Sequence[Entry]) -> CorpusSample:
    """The beginning of a few sources of every format."""
    sample = CorpusSample()
    by_format: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_format[entry.format].append(entry)
    for format, alike in by_format.items():
        # Spread over the corpus; remote files are expensive to open.
        n = min(FILES if all(entry.path for entry in alike) else 1, len(alike))
        text = read = 0.0
        for entry in (alike[len(alike) * number // n] for number in range(n)):
            some_text, some_read = _read(corpus, entry, sample)
            text, read = text + some_text, read + some_read
        sample.ratios[format] = 1.0 if format == "text" or not read else text / read
    return sample


def _read(corpus: Corpus, entry: Entry, sample: CorpusSample) -> tuple[int, int]:
    """Reads the beginning of a source; returns bytes of text and bytes of the file."""
    text = read = 0
    # Text of a compressed file lags what was read of it, until more has to be read.
    settled = (0, 0)
    began = time.perf_counter()
    blocks = corpus.inputs([entry]).texts([], [FILE_SAMPLE], BLOCK)
    for _, _, texts in blocks:
        if blocks.file_bytes > read > 0:
            settled = (text, read)
        read = blocks.file_bytes
        text += sum(map(len, texts))
        sample.texts += texts
    sample.seconds += time.perf_counter() - began
    whole = read >= entry.size
    return (text, read) if whole or not settled[0] else settled


class CountingWork:
    """Counts pieces and, if `vocab_size` is given, trains a tokenizer on them."""

    def __init__(
        self,
        pattern: list[str],
        special_tokens: list[str],
        threads: int | None,
        memory_limit: int | str | None,
        vocab_size: int | None = None,
    ) -> None:
        self._pattern, self._special_tokens = pattern, special_tokens
        self._limit, self._vocab_size = memory_limit, vocab_size
        self.readers = self._threads = threads or _native.default_threads()

    def measure(self, texts: list[bytes], whole: int) -> tuple[float, int]:
        counts = _native.Counts(self._pattern, self._special_tokens, self._threads)
        base, seconds, grown = resident_memory(), 0.0, []
        for some in (texts[::2], texts[1::2]):
            began = time.perf_counter()
            counts.add_texts(some)
            seconds += time.perf_counter() - began
            grown.append((counts.bytes_read, len(counts)))
        n_bytes, n_pieces = grown[1]
        factor = _growth(grown) if len(texts) > 1 else 1.0
        pieces = n_pieces * max(whole / n_bytes, 1.0) ** factor
        seconds *= whole / n_bytes
        memory = self._threads * pieces * TABLE_BYTES_PER_PIECE
        limit = resolve_limit(self._limit).available
        if self._vocab_size is not None:
            length = sum(len(piece) for piece, _ in counts) / max(n_pieces, 1)
            merging = pieces * (MERGE_BYTES_PER_PIECE + length * MERGE_BYTES_PER_BYTE)
            memory = max(min(memory, limit), merging)
            seconds += self._learn(counts) * pieces / n_pieces
        else:
            # Counts that do not fit are spilled to disk.
            memory = min(memory, limit)
        counts.clear()
        return seconds, base + round(memory)

    def _learn(self, counts: _native.Counts) -> float:
        began = time.perf_counter()
        vocab_size = max(self._vocab_size or 0, 256 + len(self._special_tokens))
        _native.learn(counts, LearnOptions(vocab_size, self._special_tokens))
        return time.perf_counter() - began


def _growth(grown: list[tuple[int, int]]) -> float:
    """The exponent of the growth of distinct pieces."""
    (bytes_before, pieces_before), (bytes_after, pieces_after) = grown
    if not 0 < bytes_before < bytes_after or not pieces_before:
        return 1.0
    found = math.log(pieces_after / pieces_before) / math.log(bytes_after / bytes_before)
    return min(max(found, 0.0), 1.0)


class EncodingWork:
    """Encodes into a directory of tokens."""

    # Sources are read one after the other.
    readers = 1

    def __init__(self, tokenizer: Tokenizer, threads: int | None) -> None:
        self._tokenizer, self._threads = tokenizer, threads or _native.default_threads()

    def measure(self, texts: list[bytes], whole: int) -> tuple[float, int]:
        began = time.perf_counter()
        self._tokenizer.encode_batch(texts, threads=self._threads)
        seconds = (time.perf_counter() - began) * whole / sum(map(len, texts))
        # Memory does not grow with the text, so the sample's is that of the whole job.
        return seconds, resident_memory() + (2 * self._threads + 2) * CHUNK_BYTES


class ComparingWork:
    """Compares tokenizers."""

    readers = 1

    def __init__(self, tokenizers: Mapping[str, Tokenizer]) -> None:
        self._tokenizers = tokenizers

    def measure(self, texts: list[bytes], whole: int) -> tuple[float, int]:
        from .look import compare

        began = time.perf_counter()
        compare(self._tokenizers, iter(texts), limit=FILE_SAMPLE, progress=False)
        some = min(FILE_SAMPLE, sum(map(len, texts)))
        return (time.perf_counter() - began) * whole / some, resident_memory()
