"""The processes of a Ray cluster.

A worker that is lost is Ray's affair: its task is run again. What a task writes gets its name when
it is whole, so nothing is ever counted or written twice.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _native
from ..errors import ConfigError, require
from . import tasks
from .ray_counts import RayCounting
from .running import RETRIES, complete, got, tell_of_losses
from .units import UNIT_SIZE, units

if TYPE_CHECKING:
    from ..corpus.argument import Corpus
    from ..corpus.places import Entry
    from ..progress import ProgressCallback

__all__ = ["Ray"]


class Ray:
    """Does the work on a Ray cluster.

    Args:
        address: of the cluster, as `ray.init` takes it (`"auto"`, `"ray://host:10001"`); None for
            the one that this process is connected to, the one that `RAY_ADDRESS` names, or a new
            one on this machine.
        unit_size: bytes of the corpus that a task gets, about.
        cpus: processors of a new cluster on this machine; None for all.
    """

    is_local = False

    def __init__(
        self, address: str | None = None, *, unit_size: int = UNIT_SIZE, cpus: int | None = None
    ) -> None:
        if unit_size < 1:
            raise ConfigError(f"unit_size must be ≥ 1, got {unit_size}")
        self._address, self.unit_size, self._cpus = address, unit_size, cpus
        self.block_size: int | None = None

    def _connected(self) -> Any:
        ray = require("ray", "the engine ray", extra="ray")
        if not ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
            if self._address is not None:
                options["address"] = self._address
            elif "RAY_ADDRESS" not in os.environ:
                # Without "local", Ray would connect to a cluster already running on this machine.
                options |= {"address": "local", "include_dashboard": False, "num_cpus": self._cpus}
            try:
                ray.init(**options)
            except ConnectionError as error:
                raise ConfigError(
                    f"no Ray cluster at {self._address!r}: {error}",
                    "start one: ray start --head",
                ) from None
        return ray

    # --- counting -----------------------------------------------------------------------------

    def count(
        self,
        counts: _native.Counts,
        corpus: Corpus,
        memory_limit: int | str | None,
        spill_dir: str | os.PathLike[str] | None,
        report: ProgressCallback,
    ) -> object:
        work = units(corpus, corpus.entries(), self.unit_size)
        ray = self._connected()
        counting = RayCounting(ray, counts, memory_limit, spill_dir, None)
        total = counting.run(work, report)
        folder = _Folder(spill_dir)
        path = Path(folder.path, "all.counts")
        # Out of Ray's memory, where it lies, into the file: never as a whole in this process.
        got(ray, total).tofile(path)
        counts.merge(_native.Counts.open(path, None, report))
        return folder

    def count_to(
        self,
        counts: _native.Counts,
        corpus: Corpus,
        entries: list[Entry],
        directory: Path,
        threads: int | None,
        memory_limit: int | str | None,
        report: ProgressCallback,
    ) -> Path:
        """Counts a corpus into a file in a directory, resuming work there; returns its path.

        Args:
            counts: empty ones, of the right pattern and special tokens.
            corpus: how the sources are read.
            entries: the sources.
            directory: for unfinished counts; all nodes must share it.
            threads: ignored: a task has one thread.
            memory_limit: how much memory each task may use.
            report: receives progress.
        """
        work = units(corpus, entries, self.unit_size)
        counting = RayCounting(self._connected(), counts, memory_limit, None, directory)
        return Path(counting.run(work, report))

    # --- anything -----------------------------------------------------------------------------

    def each(
        self,
        function: Callable[..., Any],
        items: list[Any],
        done: Callable[[Any], None],
        *,
        shared: tuple[Any, ...] = (),
        cpus: int = 1,
        gpus: int = 0,
    ) -> None:
        ray = self._connected()
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(tasks.call)
        task = task.options(name=function.__name__)
        references = [ray.put(value) for value in shared]
        n_lost = 0

        def finish(reference: Any, _: Any) -> None:
            nonlocal n_lost
            result, begun_before = got(ray, reference)
            n_lost += begun_before
            done(result)

        complete(ray, items, lambda item: task.remote(function, *references, item), finish)
        tell_of_losses(n_lost)


class _Folder:
    """A temporary directory that is deleted with the counts that read from it."""

    def __init__(self, place: str | os.PathLike[str] | None) -> None:
        self.path = tempfile.mkdtemp(prefix="bytemill-counts-", dir=place)
        weakref.finalize(self, shutil.rmtree, self.path, True)
