"""A bounded share of a corpus, read part by part: for looking at text from Python.

Training and encoding read files in Rust; what only samples a corpus can do with less.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from .corpus import Corpus, files

__all__ = ["Part", "parts"]

PART_SIZE = 1 << 20
# Where all named patterns end a piece, and would if the text ended there, so that cutting changes
# no token: before a single space, or after a single newline, with surely no other white space
# beside it. (Left out are the bytes that may end or begin a character of Unicode white space.)
_BEFORE, _AFTER = rb"[!-~\x8b-\x9e\xa1-\xa7\xaa-\xae\xb0-\xbf]", rb"[!-~\xc3-\xe0\xe4-\xf4]"
SAFE = re.compile(rb"(?<=%b)(?:(?= %b)|\n(?=%b))" % (_BEFORE, _AFTER, _AFTER))
# How far back to look for such a place; text without one is cut anyway, between characters.
LOOK_BACK = 1 << 16


class Part(NamedTuple):
    """A stretch of text: the file or the number of the text, where in it, and the bytes."""

    source: str
    offset: int
    data: bytes


def parts(corpus: Corpus, limit: int | None) -> tuple[int | None, Iterator[Part]]:
    """How many bytes there will be (None: not known), and the parts.

    No more than `limit` bytes are read: of several files, each gets an equal share, and what a
    short one leaves over goes to those after it. Of an iterator, the first texts are taken whole.
    """
    paths = files(corpus)
    if paths is None:
        return None, _of_texts(cast("Iterable[str | bytes]", corpus), limit)
    shares: list[int] = []
    left = limit
    for number, path in enumerate(paths):
        size = os.path.getsize(path)
        if left is not None:
            size = min(size, left // (len(paths) - number))
            left -= size
        shares.append(size)
    return sum(shares), _of_files(zip(paths, shares))


def _of_texts(texts: Iterable[str | bytes], limit: int | None) -> Iterator[Part]:
    taken = 0
    for number, text in enumerate(texts):
        if limit is not None and taken >= limit:
            return
        data = text.encode() if isinstance(text, str) else text
        taken += len(data)
        if data:
            yield Part(f"text {number}", 0, data)


def _of_files(shares: Iterable[tuple[str, int]]) -> Iterator[Part]:
    for path, left in shares:
        offset, rest = 0, b""
        with open(path, "rb") as file:
            while block := file.read(min(PART_SIZE, left)):
                left -= len(block)
                data = rest + block
                end = _safe_end(data) if left else len(data)
                yield Part(path, offset, data[:end])
                offset, rest = offset + end, data[end:]
        if rest:  # the file became shorter while it was read
            yield Part(path, offset, rest)


def _safe_end(data: bytes) -> int:
    safe = [found.end() for found in SAFE.finditer(data, max(len(data) - LOOK_BACK, 0))]
    if safe:
        return safe[-1]
    # The last character may be unfinished: leave it, from its first byte, for the next part.
    for end in range(len(data) - 1, max(len(data) - 4, 0), -1):
        if data[end] & 0xC0 != 0x80:
            return end
    return len(data)
