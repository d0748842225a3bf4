"""Counting on Ray: a task counts a unit; as they come, tasks merge eight counts files into one, in
a stream, until one is left.

The files are in Ray's object store, or, where the counts go to a file, beside that, so that they
outlive this process. What this process sees of them is their names.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._numbers import estimated_text, parse_size, size
from ..errors import ConfigError
from . import tasks
from .running import RETRIES, complete, finished, forget, got, stop, tell_of_losses
from .tree import Node, Tree

if TYPE_CHECKING:
    from .. import _native
    from ..progress import ProgressCallback
    from .units import Unit

__all__ = ["RayCounting"]


class RayCounting:
    """Counts units, and adds the counts up in a tree.

    Args:
        ray: the module, connected.
        counts: of the pattern and special tokens that are meant.
        memory_limit: of a task.
        spill_dir: where tasks put what does not fit.
        directory: where counts files are; None for Ray's object store.
    """

    def __init__(
        self,
        ray: Any,
        counts: _native.Counts,
        memory_limit: int | str | None,
        spill_dir: str | os.PathLike[str] | None,
        directory: Path | None,
    ) -> None:
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        limit = parse_size(memory_limit) if isinstance(memory_limit, str) else memory_limit
        asked: dict[str, Any] = {}
        if limit is not None:
            most = max(int(machine.get("memory", 0)) for machine in machines)
            if limit > most:
                raise ConfigError(
                    f"memory_limit={size(limit)} applies to each task, and no node of the cluster "
                    f"has more than {size(most)} for tasks",
                    "use less; without a limit, each task gets its share of its node",
                )
            # Ray puts no more tasks on a machine than it has of what they ask for.
            asked["memory"] = limit
        # The second of what they give tells that they are done, and how often they were begun
        # before, without fetching the first.
        task = {"num_cpus": 1, "max_retries": RETRIES, "num_returns": 2}
        self._ray, self._directory = ray, directory
        self._count = ray.remote(**task, **asked)(tasks.count)
        self._merge = ray.remote(**task)(tasks.merge)
        self._given: dict[Any, Any] = {}
        self._lost = 0
        self._fingerprint = counts.fingerprint
        place = None if spill_dir is None else os.path.abspath(spill_dir)
        n_tasks = max(int(machine.get("CPU", 1)) for machine in machines)
        means = tasks.Means(counts.pattern, counts.special_tokens, limit, n_tasks, place)
        self._means = ray.put(means)

    def run(self, work: list[Unit], report: ProgressCallback) -> Any:
        """Gives the sum: a path, or a reference to a counts file."""
        tree = Tree(self._names(work))
        # What is known of every node that is there and not yet in a sum.
        results: dict[Node, Any] = {}
        merging: dict[Any, Node] = {}
        n_bytes = sum(unit.size for unit in work)
        # Bytes of files that are done, those of them whose text is known, and that text.
        done = known = text = 0

        def finish(node: Node, result: Any) -> None:
            results[node] = result
            parent = tree.finish(node)
            if parent is None:
                return
            parts = [results.pop(child) for child in tree.children(parent)]
            if len(parts) == 1:
                finish(parent, parts[0])
            else:
                merging[self._start(self._merge, tree.name(parent), *parts)] = parent

        def finish_merged(at_least: int) -> None:
            for reference in finished(self._ray, merging, at_least):
                node = merging.pop(reference)
                finish(node, self._result(reference, tree.name(node))[0])

        def finish_unit(reference: Any, item: tuple[int, Unit]) -> None:
            nonlocal done, known, text
            number, unit = item
            result, of_unit = self._result(reference, tree.name((0, number)))
            done += unit.size
            known += unit.size if of_unit else 0
            text += of_unit
            total = estimated_text(text, known, n_bytes)
            report("count", estimated_text(text, known, done) or 0, total)
            finish((0, number), result)
            finish_merged(0)

        left = dict(enumerate(work))
        for node in tree.there(self._is_there):
            for number in tree.units(node):
                done += left.pop(number).size
            finish(node, self._target(tree.name(node)))
        try:
            complete(
                self._ray,
                left.items(),
                lambda item: self._start(self._count, tree.name((0, item[0])), item[1]),
                finish_unit,
            )
            while tree.root not in results:
                finish_merged(1)
                report("gather", 0, None)
        except BaseException:
            stop(self._ray, list(merging))
            forget(self._ray, self._given.values())
            raise
        tell_of_losses(self._lost)
        return results[tree.root]

    def _names(self, work: list[Unit]) -> list[str]:
        names, seen = [], Counter[str]()
        for unit in work:
            name = unit.name(self._fingerprint)
            # A source may be there twice, and what is counted of it is removed once it is in a sum.
            names.append(f"{name}-{seen[name]}")
            seen[name] += 1
        return names

    def _start(self, task: Any, name: str, *work: Any) -> Any:
        given, done = task.remote(self._means, self._target(name), *work)
        self._given[done] = given
        return done

    def _target(self, name: str) -> str | None:
        return None if self._directory is None else str(self._directory / f"{name}.counts")

    def _is_there(self, name: str) -> bool:
        target = self._target(name)
        return target is not None and os.path.exists(target)

    def _result(self, reference: Any, name: str) -> tuple[Any, int]:
        """What stands for the counts of a task that is done, and the bytes of text; or what it
        raised."""
        lost, text_bytes = got(self._ray, reference)
        self._lost += lost
        given = self._given.pop(reference)
        return given if self._directory is None else self._target(name), text_bytes
