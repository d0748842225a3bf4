"""Units of work → one counts file, on any engine.

Each call counts a unit into a counts file; as the files arrive, calls merge them as streams, level
by level, until one is left. The files are in a directory that all workers see, or, if there is
none, in the engine's store. This process handles only names.

The name of a file in the directory is derived from what it counts: the sources and ranges, their
sizes and modification times, the reading options and the pattern. So a resumed run finds what an
earlier one finished, and a source that has changed is counted again. A call may run again at any
time: files appear whole or not at all, and existing files are left as they are.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from . import _native
from ._numbers import estimated_text
from ._system import memory_limit as resolve_limit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .engines import Engine, Stored
    from .engines.units import Unit
    from .progress import ProgressCallback

__all__ = ["FAN_IN", "CountJob", "Merge", "Tree", "count_or_merge", "count_units"]

# Files per merge on a cluster: fewer passes than merging pairs, and still spread over machines. One
# process merges all files at once instead, because every level reads and writes all counts.
FAN_IN = 8
# Memory of a merge in bytes; a stream needs only its buffers.
MERGE_MEMORY = 256 << 20


@dataclass(frozen=True)
class CountJob:
    """What all calls of a job have in common.

    Attributes:
        memory_limit: of a call, in bytes; None for its share of the machine.
        n_calls: calls that run on a machine at the same time.
        threads: of a call; None for every core the process may use.
        spill_dir: directory for spilled counts; None for the temporary directory.
    """

    pattern: list[str]
    special_tokens: list[str]
    memory_limit: int | None = None
    n_calls: int = 1
    threads: int | None = 1
    spill_dir: str | None = None

    @contextmanager
    def counts(self) -> Iterator[_native.Counts]:
        """Empty counts within the limit; their files are deleted at the end."""
        counts = _native.Counts(self.pattern, self.special_tokens, self.threads)
        limit = resolve_limit(self.memory_limit, self.n_calls)
        counts.set_limit(limit.available, limit.total, self.place)
        try:
            yield counts
        finally:
            counts.clear()

    @property
    def place(self) -> str | None:
        """The spill directory, if this machine has it."""
        return self.spill_dir if os.path.isdir(self.spill_dir or "") else None


Step: TypeAlias = "Count | Merge"


@dataclass(frozen=True)
class Count:
    """Counts a unit into the file `target`; None for the store."""

    node: Node
    target: str | None
    unit: Unit


@dataclass(frozen=True)
class Merge:
    """Merges counts into the file `target`, and then deletes their files."""

    node: Node
    target: str | None
    parts: Sequence[str | Stored]


def count_or_merge(
    job: CountJob, progress: ProgressCallback | None, step: Step
) -> tuple[npt.NDArray[np.uint8] | None, tuple[Step, int]]:
    """Runs a step. Returns the counts file unless the step has a target; the step; and the bytes of
    text counted, 0 if unknown."""
    file, text_bytes = None, 0
    if step.target is None or not os.path.exists(step.target):
        with job.counts() as counts:
            if isinstance(step, Count):
                counts.add_files(step.unit.inputs(), progress)
                text_bytes = counts.bytes_read
                file = _save(job, counts, step.target)
            else:
                file = _merge(job, counts, step, progress)
    if isinstance(step, Merge):
        for part in step.parts:
            if isinstance(part, str):
                Path(part).unlink(missing_ok=True)
    return file, (step, text_bytes)


def _merge(
    job: CountJob, total: _native.Counts, step: Merge, progress: ProgressCallback | None
) -> npt.NDArray[np.uint8] | None:
    total.set_limit(MERGE_MEMORY, MERGE_MEMORY, job.place)
    for part in step.parts:
        if isinstance(part, str):
            total.merge(_native.Counts.open(part, 1))
        else:
            take_array(total, part.value(), job.place)
    return _save(job, total, step.target, progress)


def _save(
    job: CountJob,
    counts: _native.Counts,
    target: str | None,
    progress: ProgressCallback | None = None,
) -> npt.NDArray[np.uint8] | None:
    if target is not None:
        counts.save(target, progress)
        return None
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="bytemill-", dir=job.place) as folder:
        path = Path(folder, "all.counts")
        counts.save(path)
        # Ray shares arrays without a copy; bytes would be copied by every reader.
        return np.fromfile(path, np.uint8)


def take_array(
    counts: _native.Counts,
    file: npt.NDArray[np.uint8],
    spill_dir: str | os.PathLike[str] | None,
    report: ProgressCallback | None = None,
) -> None:
    """Adds a counts file that is in memory; it moves to the spill directory of the counts."""
    with tempfile.TemporaryDirectory(prefix="bytemill-", dir=spill_dir) as folder:
        path = Path(folder, "all.counts")
        file.tofile(path)
        counts.take_file(path, report)


# --- the tree of merges -------------------------------------------------------------------------

# Level, from the units up, and place in it.
Node: TypeAlias = "tuple[int, int]"


class Tree:
    """The merges of files with these names, `fan_in` to one, level by level. The merge of a single
    file is that file.

    Attributes:
        root: the node of the whole.
    """

    def __init__(self, names: Sequence[str], fan_in: int = FAN_IN) -> None:
        self._levels, self._fan_in = [list(names)], fan_in
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            groups = [below[i : i + fan_in] for i in range(0, len(below), fan_in)]
            self._levels.append([_sum_name(group) for group in groups])
        self.root: Node = (len(self._levels) - 1, 0)
        self._left: dict[Node, int] = {}

    def name(self, node: Node) -> str:
        """The name of a node's file."""
        level, place = node
        return self._levels[level][place]

    def children(self, node: Node) -> list[Node]:
        """The nodes that a node is the sum of."""
        level, place = node
        if level == 0:
            return []
        first, n = place * self._fan_in, len(self._levels[level - 1])
        return [(level - 1, i) for i in range(first, min(first + self._fan_in, n))]

    def existing(self, exists: Callable[[Node], bool]) -> list[Node]:
        """The topmost nodes whose files exist."""
        found: list[Node] = []
        candidates = [self.root]
        while candidates:
            node = candidates.pop()
            if exists(node):
                found.append(node)
            else:
                candidates += self.children(node)
        return found

    def units(self, node: Node) -> range:
        """The numbers of the units that a node counts."""
        level, place = node
        width = self._fan_in**level
        return range(place * width, min((place + 1) * width, len(self._levels[0])))

    def finish(self, node: Node) -> Node | None:
        """Records that a node's file exists; returns the node that can be merged now, if any."""
        level, place = node
        if node == self.root:
            return None
        parent = (level + 1, place // self._fan_in)
        left = self._left.get(parent, len(self.children(parent))) - 1
        self._left[parent] = left
        return parent if left == 0 else None


def _sum_name(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return hashlib.sha256("+".join(names).encode()).hexdigest()[:32]


# --- the whole job ------------------------------------------------------------------------------


def count_units(
    engine: Engine,
    job: CountJob,
    work: list[Unit],
    directory: Path | None,
    report: ProgressCallback,
    *,
    known: bool = True,
) -> str | Stored:
    """Counts units; returns the file with the counts of all, a path or in the store.

    Args:
        engine: runs the calls.
        job: what they have in common.
        work: at least one unit.
        directory: where counts files are, as an absolute path; None for the engine's store.
        report: receives progress.
        known: whether the sizes of all sources are.
    """
    tree = Tree(_names(job, work), max(len(work), 2) if engine.is_local else FAN_IN)
    # The files of finished nodes that are not yet part of a sum.
    files: dict[Node, str | Stored] = {}

    def target(node: Node) -> str | None:
        return None if directory is None else str(directory / f"{tree.name(node)}.counts")

    def finish(node: Node, file: str | Stored) -> list[Step]:
        files[node] = file
        parent = tree.finish(node)
        if parent is None:
            return []
        parts = [files.pop(child) for child in tree.children(parent)]
        if len(parts) == 1:
            return finish(parent, parts[0])
        return [Merge(parent, target(parent), parts)]

    steps: list[Step] = []
    left = dict(enumerate(work))
    for node in tree.existing(lambda node: os.path.exists(target(node) or "")):
        for number in tree.units(node):
            del left[number]
        steps += finish(node, target(node) or "")
    steps += [Count((0, number), target((0, number)), unit) for number, unit in left.items()]
    total = sum(unit.size for unit in work) if known else 0
    sizes = [unit.size for unit in left.values()]
    progress = _Progress(report, total, total - sum(sizes), sizes)

    def done(result: tuple[Stored, tuple[Step, int]]) -> list[Step]:
        stored, (step, text_bytes) = result
        if isinstance(step, Count):
            progress.finish(step.unit.size, text_bytes)
        elif not engine.is_local:
            report("gather", 0, None)
        return finish(step.node, step.target or stored)

    shared = (job, progress.within if engine.is_local else None)
    reserved = job.memory_limit
    engine.each(count_or_merge, steps, done, shared=shared, memory=reserved, store=True)
    return files[tree.root]


def _names(job: CountJob, work: list[Unit]) -> list[str]:
    names, seen = [], Counter[str]()
    for unit in work:
        name = unit.name(repr((job.pattern, job.special_tokens)))
        # A source may occur twice, and its file is deleted when it is in a sum.
        names.append(f"{name}-{seen[name]}")
        seen[name] += 1
    return names


class _Progress:
    """Progress in bytes of text, estimated from bytes of files.

    Args:
        report: receives it.
        total: bytes of all files; 0 if unknown.
        done: bytes of the files that an earlier run counted.
        sizes: of the units to count, in order.
    """

    def __init__(self, report: ProgressCallback, total: int, done: int, sizes: list[int]) -> None:
        self._report, self._total, self._sizes = report, total, sizes
        # Units counted by this run, and bytes of all finished files.
        self._n, self._done = 0, done
        # Bytes of the files whose text is known, and of that text.
        self._known = self._text = 0

    def finish(self, size: int, text_bytes: int) -> None:
        """Records a unit."""
        self._n += 1
        self._done += size
        if text_bytes:
            self._known += size
            self._text += text_bytes
        self._show(0, 0)

    def within(self, phase: str, n: int, of: int | None) -> None:
        """Reports progress of a call in this process: `n` bytes of text, `of` estimated."""
        if self._n == len(self._sizes):
            self._report(phase, n, of)
        elif phase == "count":
            self._show(n, self._sizes[self._n] * n / of if of else 0)

    def _show(self, text: int, read: float) -> None:
        text, known = self._text + text, self._known + read
        done = estimated_text(text, known, self._done + read) or text
        self._report(
            "count", done, estimated_text(text, known, self._total) if self._total else None
        )
