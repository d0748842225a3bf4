"""Sizes of parts → which of them each shard is made of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

__all__ = ["Recipe", "bucket_bits", "recipes"]

Part = TypeVar("Part")

# Ids of a bucket of shuffled documents, about: making a shard holds one bucket in memory.
BUCKET_TOKENS = 1 << 24
MOST_BITS = 16


@dataclass(frozen=True)
class Recipe:
    """What a shard is made of.

    Attributes:
        split: the split that it is of.
        number: its number in that.
        first: the first part or bucket that has some of it.
        last: the last one.
        before: ids and documents of the split before the first.
        tokens: its ids.
    """

    split: int
    number: int
    first: int
    last: int
    before: tuple[int, int]
    tokens: int

    def parts(self, all_parts: Sequence[Part]) -> Sequence[Part]:
        """The parts that have some of it, if documents are not shuffled."""
        return all_parts[self.first : self.last + 1]


def recipes(split: int, shares: Sequence[tuple[int, int]], room: int | None) -> list[Recipe]:
    """The shards of a split.

    Args:
        split: its number.
        shares: ids and documents of it in every part or bucket, in order.
        room: ids of a shard; None if all go into one.
    """
    tokens = [0, *accumulate(share[0] for share in shares)]
    documents = [0, *accumulate(share[1] for share in shares)]
    total = tokens[-1]
    room = max(total, 1) if room is None else room
    made = []
    for number in range(max(-(-total // room), 1)):
        start, end = number * room, (number + 1) * room
        # The end of a document belongs to the shard of the id before it: what ends exactly where
        # the shard begins is of the one before, what ends where it ends is its own.
        first = 0 if number == 0 else bisect_right(tokens, start) - 1
        last = min(bisect_right(tokens, end), len(shares)) - 1
        size = min(end, total) - start
        before = (tokens[first], documents[first])
        made.append(Recipe(split, number, first, last, before, size))
    return made


def bucket_bits(tokens: int) -> int:
    """Bits of a key that make a bucket, if this number of ids is shuffled."""
    return min(max((tokens - 1) // BUCKET_TOKENS, 0).bit_length(), MOST_BITS)
