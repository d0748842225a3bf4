"""A bounded sample of a corpus, in chunks: for processing text in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from .. import _native
from .argument import CorpusLike, as_corpus

__all__ = ["TextChunk", "parts"]

PART_SIZE = 1 << 20
# Means "no limit" to Rust.
ENDLESS = 2**63


class TextChunk(NamedTuple):
    """A chunk of text: its source (a file, or the number of a text), its offset, and the bytes."""

    source: str
    offset: int
    data: bytes


def parts(
    corpus: CorpusLike, limit: int | None, special_tokens: Sequence[str] = ()
) -> tuple[int | None, Iterator[TextChunk], Callable[[], dict[str, int]]]:
    """The total number of bytes (None: unknown), the chunks, and a function that returns the number
    of skipped records by reason.

    At most `limit` bytes are read: each file gets an equal share, and the unused share of a short
    file goes to those after it. Records are not split. Text is cut only where that changes no
    token, and never inside one of `special_tokens`.
    """
    resolved = as_corpus(corpus)
    if resolved.texts is not None:
        return None, _of_texts(resolved.texts, limit), dict
    entries = resolved.entries()
    plain = all(entry.format == "text" for entry in entries)
    shares: list[int] = []
    left = limit
    for number, entry in enumerate(entries):
        # The size of a compressed file's content is unknown before it is read.
        share = entry.size if plain else ENDLESS
        if left is not None:
            share = min(share, left // (len(entries) - number))
            left -= share
        shares.append(share)
    names = [entry.name for entry in entries]
    blocks = resolved.inputs(entries).texts(list(special_tokens), shares, PART_SIZE)
    return sum(shares) if plain else None, _of_blocks(names, blocks), lambda: blocks.skipped


def _of_texts(texts: Iterable[str | bytes], limit: int | None) -> Iterator[TextChunk]:
    taken = 0
    for number, text in enumerate(texts):
        if limit is not None and taken >= limit:
            return
        data = text.encode() if isinstance(text, str) else text
        taken += len(data)
        if data:
            yield TextChunk(f"text {number}", 0, data)


def _of_blocks(names: list[str], blocks: _native.Texts) -> Iterator[TextChunk]:
    for number, offset, texts in blocks:
        for data in texts:
            if data:
                yield TextChunk(names[number], offset, data)
            offset += len(data)
