"""What work on a corpus would read, how long it would take and how much memory it would need.

Listing is exact. The rest is an estimate: a few megabytes of text are read and worked on here and
now, and the whole is taken to be like them. How many different pieces there will be follows from
how their number grew within the sample (Heaps' law).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from . import _native
from ._system import memory_limit as resolve_limit
from ._system import resident_memory
from .corpus.argument import Corpus
from .corpus.places import Entry, Listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .tokenizer import Tokenizer

__all__ = ["Comparing", "Counting", "Encoding", "Preview", "preview"]

# Text that is read of each of a few files of every format; of files elsewhere, of one only.
FILE_SAMPLE = 4_000_000
FILES = 3
BLOCK = 256 << 10
# Bytes of memory: a piece in the table of a thread, a byte and a piece while merging (as the core
# estimates them), a chunk that waits to be written.
TABLE_BYTES_PER_PIECE = 80
MERGE_BYTES_PER_BYTE, MERGE_BYTES_PER_PIECE = 12, 28
CHUNK_BYTES = 2_000_000


@dataclass(frozen=True)
class Preview:
    """What work would be like.

    Attributes:
        listing: what would be read, and what is skipped.
        text_bytes: bytes of text; an estimate unless all is plain text.
        sample_bytes: bytes of text that the estimates are from.
        seconds: how long the work would take, about; None if there is nothing to tell by.
        memory: how many bytes of memory it would take, about.
    """

    listing: Listing
    text_bytes: int
    sample_bytes: int
    seconds: float | None
    memory: int


@dataclass
class Sample:
    """Some text of a corpus.

    Attributes:
        texts: documents, or stretches of text.
        seconds: how long reading them took.
        ratios: by format, bytes of text to bytes of files.
    """

    texts: list[bytes] = field(default_factory=list)
    seconds: float = 0.0
    ratios: dict[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.texts))


class Work(Protocol):
    """What is to be done with the text."""

    # How many sources are read at once.
    readers: int

    def measure(self, texts: list[bytes], whole: int) -> tuple[float, int]:
        """Seconds and memory for `whole` bytes of such text, reading aside."""


def preview(corpus: Corpus, work: Work, limit: int | None = None) -> Preview:
    """Estimates what `work` on a corpus takes, on no more than `limit` bytes of its text."""
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


def _sample(corpus: Corpus, entries: Sequence[Entry]) -> Sample:
    """The first text of a few sources of every format."""
    sample = Sample()
    by_format: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_format[entry.format].append(entry)
    for format, alike in by_format.items():
        # Spread over the corpus; what is elsewhere is expensive to look at.
        n = min(FILES if all(entry.path for entry in alike) else 1, len(alike))
        text = read = 0.0
        for entry in (alike[len(alike) * number // n] for number in range(n)):
            some_text, some_read = _read(corpus, entry, sample)
            text, read = text + some_text, read + some_read
        sample.ratios[format] = 1.0 if format == "text" or not read else text / read
    return sample


def _read(corpus: Corpus, entry: Entry, sample: Sample) -> tuple[int, int]:
    """Reads the first text of a source: how much, and of how many bytes of the file it came."""
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


class Counting:
    """Counts pieces, and learns a tokenizer from them if `vocab_size` says of what size."""

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
            # What does not fit goes to disk.
            memory = min(memory, limit)
        counts.clear()
        return seconds, base + round(memory)

    def _learn(self, counts: _native.Counts) -> float:
        began = time.perf_counter()
        _native.learn(
            counts,
            vocab_size=max(self._vocab_size or 0, 256 + len(self._special_tokens)),
            special_tokens=self._special_tokens,
            tie_break="bytes",
            min_frequency=1,
            min_piece_count=1,
            max_token_length=None,
            extend_from=None,
        )
        return time.perf_counter() - began


def _growth(grown: list[tuple[int, int]]) -> float:
    """The exponent with which the number of different pieces grows."""
    (bytes_before, pieces_before), (bytes_after, pieces_after) = grown
    if not 0 < bytes_before < bytes_after or not pieces_before:
        return 1.0
    found = math.log(pieces_after / pieces_before) / math.log(bytes_after / bytes_before)
    return min(max(found, 0.0), 1.0)


class Encoding:
    """Encodes into a directory of tokens."""

    # Sources are read one after the other.
    readers = 1

    def __init__(self, tokenizer: Tokenizer, threads: int | None) -> None:
        self._tokenizer, self._threads = tokenizer, threads or _native.default_threads()

    def measure(self, texts: list[bytes], whole: int) -> tuple[float, int]:
        began = time.perf_counter()
        self._tokenizer.encode_batch(texts, threads=self._threads)
        seconds = (time.perf_counter() - began) * whole / sum(map(len, texts))
        # Memory does not grow with the text: what the sample took is what it takes.
        return seconds, resident_memory() + (2 * self._threads + 2) * CHUNK_BYTES


class Comparing:
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
