"""A cache of the most recently used values, and stamps that change when a file does."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

__all__ = ["RecentlyUsed", "Stamp", "stamp_of"]

Value = TypeVar("Value")


class RecentlyUsed:
    """A cache of the `size` most recently used values; thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `key`, computed by `make` if it is not in the cache."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                value: Value = self._values[key]
                return value
        # Without the lock: this may take long, and two threads compute the same value.
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        return value


class Stamp(NamedTuple):
    """Identifies the content of a file without reading it."""

    path: str
    inode: int
    mtime_ns: int
    size: int


def stamp_of(path: Path) -> Stamp:
    """The stamp of a file now."""
    found = os.stat(path)
    return Stamp(str(path), found.st_ino, found.st_mtime_ns, found.st_size)
