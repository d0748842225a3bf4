"""Learning merges by minbpe's rule: of equally frequent pairs, the first in the text.

The order of the pieces breaks ties, so counts of pieces are not enough, and this learner is
separate. Equal pieces are stored once, at the place of the first one, which is where a pair can
occur first; their number is the weight. The distinct pieces are stored end to end: the position of
a token is a number that no merge changes.

New occurrences of a pair appear only during the merge that creates the newer of its two tokens.
After that, they only disappear: its count never grows, and its first position never moves to the
left. So an entry of the heap is a bound, which is corrected when it reaches the top. Learning takes
O(n log n) steps for n bytes of distinct pieces, in plain Python: some seconds per megabyte.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

Pair = tuple[int, int]
NONE = -1


def learn(pieces: Iterable[bytes], min_count: int = 1) -> Iterator[tuple[Pair, int]]:
    """Yields the pairs to merge, in order, with their counts; the first becomes token 256.

    Pieces that occur fewer than `min_count` times are ignored.
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
    """The distinct pieces end to end, as tokens linked to their neighbors within a piece."""

    def __init__(self, pieces: Iterable[bytes], min_count: int) -> None:
        # A Counter keeps its keys in the order of their first occurrence.
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
        # The positions of a pair, ascending, including former ones; and how many of the first are
        # known to be former.
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
        """The first position of the pair; the end of the text if there is none."""
        places = self.places[pair]
        past = self.past[pair]
        while past < len(places) and not self._holds(pair, places[past]):
            past += 1
        self.past[pair] = past
        return places[past] if past < len(places) else len(self.tokens)

    def merge(self, pair: Pair, new: int) -> set[Pair]:
        """Merges all occurrences of the pair, from the left; returns the new pairs."""
        tokens, counts = self.tokens, self.counts
        made: set[Pair] = set()
        for at in self.places.pop(pair):
            if not self._holds(pair, at):
                continue
            weight, right = self.weight[at], self.after[at]
            before, after = self.before[at], self.after[right]
            tokens[at] = new
            # The right token no longer exists.
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
