"""Sizes of parts → the parts that make up each shard."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

__all__ = ["Buckets", "Recipe", "bucket_bits", "recipes"]

Part = TypeVar("Part")

# Approximate ids per bucket of shuffled documents; making a shard needs one bucket in memory.
BUCKET_TOKENS = 1 << 24
MOST_BITS = 16
# Up to this many ids in this many parts, documents are read one by one from parts that are open
# together, spread over no more bytes than when a single part is dealt.
MAX_UNDEALT_TOKENS = 1 << 27
MAX_UNDEALT_PARTS = 128


@dataclass(frozen=True)
class Buckets:
    """The division of shuffled documents.

    Attributes:
        bits: leading bits of a key that number its bucket.
        dealt: whether parts are rewritten in the order of the keys before shards are made of them.
    """

    bits: int
    dealt: bool

    @classmethod
    def of(cls, part_tokens: Sequence[int]) -> Buckets:
        """The buckets for parts with these numbers of ids."""
        total = sum(part_tokens)
        dealt = total > MAX_UNDEALT_TOKENS or len(part_tokens) > MAX_UNDEALT_PARTS
        return cls(bucket_bits(total), dealt)


@dataclass(frozen=True)
class Recipe:
    """The parts or buckets of a shard.

    Attributes:
        split: the number of its split.
        number: its number in the split.
        first: its first part or bucket.
        last: its last part or bucket.
        before: ids and documents of the split before `first`.
        tokens: number of ids.
    """

    split: int
    number: int
    first: int
    last: int
    before: tuple[int, int]
    tokens: int

    def parts(self, all_parts: Sequence[Part]) -> Sequence[Part]:
        """Its parts, if documents are not shuffled."""
        return all_parts[self.first : self.last + 1]


def recipes(split: int, shares: Sequence[tuple[int, int]], room: int | None) -> list[Recipe]:
    """The shards of a split.

    Args:
        split: its number.
        shares: numbers of its ids and documents in every part or bucket, in order.
        room: ids per shard; None for a single shard.
    """
    tokens = [0, *accumulate(share[0] for share in shares)]
    documents = [0, *accumulate(share[1] for share in shares)]
    total = tokens[-1]
    room = max(total, 1) if room is None else room
    made = []
    for number in range(max(-(-total // room), 1)):
        start, end = number * room, (number + 1) * room
        # The end of a document belongs to the shard of the id before it: an end exactly at the
        # start of a shard belongs to the previous one, an end at its end to itself.
        first = 0 if number == 0 else bisect_right(tokens, start) - 1
        last = min(bisect_right(tokens, end), len(shares)) - 1
        size = min(end, total) - start
        before = (tokens[first], documents[first])
        made.append(Recipe(split, number, first, last, before, size))
    return made


def bucket_bits(tokens: int) -> int:
    """Leading bits of a key that number its bucket, when shuffling `tokens` ids."""
    return min(max((tokens - 1) // BUCKET_TOKENS, 0).bit_length(), MOST_BITS)
