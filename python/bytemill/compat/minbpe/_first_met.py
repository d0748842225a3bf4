"""Learning merges by minbpe's rule: of equally common pairs, the one met first in the text.

The order of pieces decides, so counts of pieces are not enough, and this is a learner of its own.
Only the first of equal pieces can hold the first of equal pairs: the others are weight. The pieces
that are left lie end to end, and a place among them is a number that no merge changes.

A pair appears where its younger half is made, all over the text at once, and from then on its
places can only go. So its count never grows and its first place never moves to the left: what a
heap remembers of a pair is a bound, corrected when it comes to the top. All in all this takes
O(n log n) steps for n bytes of different pieces, in plain Python: some seconds a megabyte.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

Pair = tuple[int, int]
NONE = -1


def learn(pieces: Iterable[bytes], min_count: int = 1) -> Iterator[tuple[Pair, int]]:
    """The pairs to merge, best first, each with its count; the first makes token 256.

    Pieces that occur fewer than `min_count` times are as if they were not there.
    """
    text = _Text(pieces, min_count)
    heap = [(-text.counts[pair], text.first(pair), pair) for pair in text.counts]
    heapify(heap)
    new = 256
    while heap:
        count, first, pair = heappop(heap)
        now = -text.counts[pair], text.first(pair)
        if now != (count, first):
            if now[0]:
                heappush(heap, (*now, pair))
            continue
        yield pair, -count
        for made in text.merge(pair, new):
            if text.counts[made]:
                heappush(heap, (-text.counts[made], text.first(made), made))
        new += 1


class _Text:
    """Different pieces end to end, as tokens linked to their neighbors within a piece."""

    def __init__(self, pieces: Iterable[bytes], min_count: int) -> None:
        # A Counter keeps the order in which its keys were met.
        weights = {piece: n for piece, n in Counter(pieces).items() if n >= min_count}
        self.tokens: list[int] = []
        self.weight: list[int] = []
        for piece, weight in weights.items():
            self.tokens += piece
            self.weight += [weight] * len(piece)
        self.before = list(range(-1, len(self.tokens) - 1))
        self.after = list(range(1, len(self.tokens) + 1))
        end = 0
        for piece in weights:
            if piece:
                self.before[end] = NONE
                end += len(piece)
                self.after[end - 1] = NONE
        self.counts: dict[Pair, int] = defaultdict(int)
        # Where a pair is or was, from the left, and how many of these places are known to be past.
        self.places: dict[Pair, list[int]] = defaultdict(list)
        self.past: dict[Pair, int] = defaultdict(int)
        for at, after in enumerate(self.after):
            if after != NONE:
                self._add((self.tokens[at], self.tokens[after]), at)

    def _add(self, pair: Pair, at: int) -> None:
        self.counts[pair] += self.weight[at]
        self.places[pair].append(at)

    def _holds(self, pair: Pair, at: int) -> bool:
        after = self.after[at]
        return after != NONE and (self.tokens[at], self.tokens[after]) == pair

    def first(self, pair: Pair) -> int:
        """Where the pair stands first, or past the end."""
        places = self.places[pair]
        past = self.past[pair]
        while past < len(places) and not self._holds(pair, places[past]):
            past += 1
        self.past[pair] = past
        return places[past] if past < len(places) else len(self.tokens)

    def merge(self, pair: Pair, new: int) -> set[Pair]:
        """Joins the pair wherever it stands, from the left; gives the pairs that this makes."""
        tokens, counts = self.tokens, self.counts
        made: set[Pair] = set()
        for at in self.places.pop(pair):
            if not self._holds(pair, at):
                continue
            weight, right = self.weight[at], self.after[at]
            before, after = self.before[at], self.after[right]
            tokens[at] = new
            # No token: what began here is gone.
            tokens[right] = NONE
            self.after[at], self.after[right] = after, NONE
            if before != NONE:
                counts[tokens[before], pair[0]] -= weight
                made.add((tokens[before], new))
                self._add((tokens[before], new), before)
            if after != NONE:
                self.before[after] = at
                counts[pair[1], tokens[after]] -= weight
                made.add((new, tokens[after]))
                self._add((new, tokens[after]), at)
        del counts[pair]
        return made
