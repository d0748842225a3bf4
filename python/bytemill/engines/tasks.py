"""What the workers of a cluster do. Each of these may be done again, by whomever, at any time: what
is there already is left as it is, and what is written appears whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .. import _native
from .._system import memory_limit as resolve_limit

if TYPE_CHECKING:
    import numpy.typing as npt

    from .units import Unit

__all__ = ["Means", "call", "count", "merge"]

# A counts file, if it is not on disk.
CountsFile: TypeAlias = "npt.NDArray[np.uint8] | None"
# What merging in a stream may hold.
MERGING = 256 << 20


class Means:
    """What a task that counts has to do it with.

    Args:
        pattern: what cuts documents into pieces.
        special_tokens: what separates documents.
        memory_limit: of a task; None for its share of the machine.
        n_tasks: how many there are on a machine at a time.
        spill_dir: where what does not fit goes; None for the place of temporary files.
    """

    def __init__(
        self,
        pattern: list[str],
        special_tokens: list[str],
        memory_limit: int | None,
        n_tasks: int,
        spill_dir: str | None,
    ) -> None:
        self.pattern, self.special_tokens = pattern, special_tokens
        self._memory_limit, self._n_tasks, self._spill_dir = memory_limit, n_tasks, spill_dir

    @contextmanager
    def counts(self) -> Iterator[tuple[_native.Counts, Path]]:
        """Empty counts, and a directory for as long as they are used."""
        # Not every machine need have the directory.
        place = self._spill_dir if os.path.isdir(self._spill_dir or "") else None
        with tempfile.TemporaryDirectory(prefix="bytemill-", dir=place) as folder:
            counts = _native.Counts(self.pattern, self.special_tokens, 1)
            limit = resolve_limit(self._memory_limit, self._n_tasks)
            counts.set_limit(limit.available, limit.total, folder)
            try:
                yield counts, Path(folder)
            finally:
                counts.clear()


def begun_before() -> int:
    """How often this task was started by workers that were lost."""
    try:
        from ray._private.worker import global_worker

        # Not a public API; the work does not depend on it.
        return int(global_worker.core_worker.get_current_task_attempt_number())
    except (ImportError, AttributeError):
        return 0


def count(means: Means, target: str | None, unit: Unit) -> tuple[CountsFile, tuple[int, int]]:
    """Counts a unit, into the file `target` unless it is there; without one, gives the file.

    As all of these, it tells how often it was begun before; and the bytes of text, 0 if they are
    not known.
    """
    if target is not None and os.path.exists(target):
        return None, (begun_before(), 0)
    with means.counts() as (counts, folder):
        counts.add_files(unit.inputs())
        return _given(counts, folder, target), (begun_before(), counts.bytes_read)


def merge(
    means: Means, target: str | None, *parts: npt.NDArray[np.uint8] | str
) -> tuple[CountsFile, tuple[int, int]]:
    """Adds up counts files in a stream; those that lie in files go then."""
    if target is None or not os.path.exists(target):
        with means.counts() as (total, folder):
            total.set_limit(MERGING, MERGING, folder)
            for number, part in enumerate(parts):
                path = Path(folder, f"{number}.counts")
                if isinstance(part, str):
                    path = Path(part)
                else:
                    part.tofile(path)
                total.merge(_native.Counts.open(path, 1))
            given = _given(total, folder, target)
            if target is None:
                return given, (begun_before(), 0)
    for part in parts:
        Path(str(part)).unlink(missing_ok=True)
    return None, (begun_before(), 0)


def _given(counts: _native.Counts, folder: Path, target: str | None) -> CountsFile:
    if target is not None:
        counts.save(target)
        return None
    path = folder / "all.counts"
    counts.save(path)
    # Ray shares arrays without a copy; bytes would be copied by every reader.
    return np.fromfile(path, np.uint8)


# --- anything -------------------------------------------------------------------------------------


def call(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """The result of a function, and how often the task was started before."""
    return function(*arguments), begun_before()
