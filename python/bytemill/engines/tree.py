"""Counts of many units → counts of all, eight to one, level by level.

Every node has a name that tells what it is the counts of, so what an earlier run left of the tree
is known again: a unit that is as it was, or a sum of such, is not counted again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

__all__ = ["FAN_IN", "Node", "Tree"]

# Counts merged at a time: fewer passes than merging pairs, and still little memory.
FAN_IN = 8
# Level, from the units on, and place in it.
Node: TypeAlias = "tuple[int, int]"


class Tree:
    """The nodes above units of these names; a node over a single one is that one.

    Attributes:
        root: the node of the whole.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._levels = [list(names)]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            groups = [below[i : i + FAN_IN] for i in range(0, len(below), FAN_IN)]
            self._levels.append([_sum_name(group) for group in groups])
        self.root: Node = (len(self._levels) - 1, 0)
        self._left: dict[Node, int] = {}

    def name(self, node: Node) -> str:
        """The name of a node."""
        level, place = node
        return self._levels[level][place]

    def children(self, node: Node) -> list[Node]:
        """What a node is the sum of."""
        level, place = node
        if level == 0:
            return []
        n = len(self._levels[level - 1])
        return [(level - 1, i) for i in range(place * FAN_IN, min((place + 1) * FAN_IN, n))]

    def there(self, exists: Callable[[str], bool]) -> list[Node]:
        """The topmost nodes that exist."""
        found: list[Node] = []
        looked_at = [self.root]
        while looked_at:
            node = looked_at.pop()
            if exists(self.name(node)):
                found.append(node)
            else:
                looked_at += self.children(node)
        return found

    def units(self, node: Node) -> range:
        """The units that a node is the counts of."""
        level, place = node
        width = FAN_IN**level
        return range(place * width, min((place + 1) * width, len(self._levels[0])))

    def finish(self, node: Node) -> Node | None:
        """Notes that a node is there; gives the sum that can be made now, if there is one."""
        level, place = node
        if node == self.root:
            return None
        parent = (level + 1, place // FAN_IN)
        left = self._left.get(parent, len(self.children(parent))) - 1
        self._left[parent] = left
        return parent if left == 0 else None


def _sum_name(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return hashlib.sha256("+".join(names).encode()).hexdigest()[:32]
