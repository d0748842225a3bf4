"""The processes of a Ray cluster.

Counting: a task counts a unit and puts its counts, as a counts file, into Ray's object store; as
they come, tasks merge eight into one, until one is left, which alone the driver fetches. Encoding:
a task writes the tokens of its unit into a directory of its own below the output, and only numbers
come back; when all are there, the driver joins them and commits the manifest. The output must
therefore be on a file system that all machines share.

A worker that is lost is Ray's affair: its task is run again. Counts of a task exist when it has
succeeded, and a part has its own manifest and lock, so nothing is ever counted or written twice.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _native
from ..errors import ConfigError
from .units import UNIT_SIZE, Unit, units

if TYPE_CHECKING:
    from ..corpus import Corpus
    from ..places import Entry
    from ..progress import Report
    from ..tokenizer import Tokenizer

__all__ = ["PARTS", "Ray"]

Item = TypeVar("Item")

PARTS = ".parts"
# So many counts are merged at a time: less reading than by twos, and still little at once.
FAN_IN = 8
# A task that was lost with its worker is run again so often.
RETRIES = 5
# Tasks that are told to stop get so many seconds for it.
PATIENCE = 30
# Tasks that wait for a processor; more would only fill the driver's memory.
WAITING_PER_CPU = 4


class Ray:
    """Does the work on a Ray cluster.

    Args:
        address: of the cluster, as `ray.init` takes it (`"auto"`, `"ray://host:10001"`); None for
            the one that this process is connected to, the one that `RAY_ADDRESS` names, or a new
            one on this machine.
        unit_size: bytes of the corpus that a task gets, about.
        cpus: processors of a new cluster on this machine; None for all.
    """

    def __init__(
        self, address: str | None = None, *, unit_size: int = UNIT_SIZE, cpus: int | None = None
    ) -> None:
        if unit_size < 1:
            raise ConfigError(f"unit_size={unit_size} cannot be", "use 1 or more")
        self._address, self._unit_size, self._cpus = address, unit_size, cpus

    def _connected(self) -> Any:
        try:
            import ray
        except ImportError:
            raise ConfigError(
                "the engine ray needs Ray, which is not installed", "pip install 'bytemill[ray]'"
            ) from None
        if not ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
            if self._address is not None:
                options["address"] = self._address
            elif "RAY_ADDRESS" not in os.environ:
                options |= {"include_dashboard": False, "num_cpus": self._cpus}
            try:
                ray.init(**options)
            except ConnectionError as error:
                raise ConfigError(
                    f"no Ray cluster at {self._address!r}: {error}",
                    "start one: ray start --head",
                ) from None
        return ray

    # --- counting -----------------------------------------------------------------------------

    def count(self, counts: _native.Counts, corpus: Corpus, report: Report) -> object:
        ray = self._connected()
        work = units(corpus, corpus.entries(), self._unit_size)
        total = sum(unit.size for unit in work)
        cut = (counts.pattern, counts.special_tokens)
        count = ray.remote(num_cpus=1, max_retries=RETRIES)(_count)
        merge = ray.remote(num_cpus=1, max_retries=RETRIES)(_merge)
        ready: list[Any] = []
        merging: list[Any] = []

        def merge_some(least: int) -> None:
            """Merges what is ready, in groups of eight, or of what there is from `least` on."""
            while len(ready) >= least:
                merging.append(merge.remote(*[ready.pop(0) for _ in ready[:FAN_IN]]))

        done = 0
        for reference, unit in _completed(ray, work, lambda unit: count.remote(unit, *cut)):
            done += unit.size
            report("count", done, total)
            ready += [reference, *_finished(ray, merging, 0)]
            merge_some(FAN_IN)
        while merging or len(ready) > 1:
            # The last few wait for those that are being merged, so that there is one more level.
            merge_some(FAN_IN if merging else 2)
            ready += _finished(ray, merging, 1)
            report("gather", 0, None)
        folder = _Folder()
        if ready:
            path = Path(folder.path, "all.counts")
            path.write_bytes(_got(ray, ready[0]))
            counts.merge(_native.Counts.open(path, None, report))
        return folder

    # --- encoding -----------------------------------------------------------------------------

    def encode(
        self,
        tokenizer: Tokenizer,
        corpus: Corpus,
        entries: list[Entry],
        out: str | os.PathLike[str],
        plan: dict[str, Any],
        report: Report,
    ) -> None:
        parts = Path(out) / PARTS
        existing = plan["existing"]
        whole = (Path(out) / "manifest.json").exists()
        if parts.exists() and existing == "refuse":
            raise ConfigError(
                f"{os.fspath(out)}: an interrupted run left its files here",
                "resume=True (--resume) goes on with them, overwrite=True (--overwrite) begins "
                "anew",
            )
        if whole and existing == "refuse":
            raise FileExistsError(f"{os.fspath(out)}: exists already (overwrite=True replaces it)")
        if existing == "overwrite" and parts.exists():
            shutil.rmtree(parts)
        if not (whole and existing == "resume"):
            self._encode_parts(tokenizer, corpus, entries, parts, plan, report)
        numbers = sorted(parts.iterdir()) if parts.exists() else []
        _native.encode_files(
            tokenizer,
            corpus.inputs(entries),
            out,
            progress=report,
            parts=[str(part) for part in numbers],
            **plan,
        )
        shutil.rmtree(parts, ignore_errors=True)

    def _encode_parts(
        self,
        tokenizer: Tokenizer,
        corpus: Corpus,
        entries: list[Entry],
        parts: Path,
        plan: dict[str, Any],
        report: Report,
    ) -> None:
        ray = self._connected()
        work = units(corpus, entries, self._unit_size)
        total = sum(unit.size for unit in work)
        parts.mkdir(parents=True, exist_ok=True)
        for part in parts.iterdir():
            if part.name not in {_name(unit) for unit in work}:
                raise ConfigError(
                    f"{parts}: parts of other units than these",
                    "resume with the same unit_size, or begin anew: overwrite=True (--overwrite)",
                )
        encode = ray.remote(num_cpus=1, max_retries=RETRIES)(_encode)
        shared = ray.put(tokenizer)
        place = os.path.abspath(parts)
        done = 0
        started = _completed(ray, work, lambda unit: encode.remote(shared, unit, place, plan))
        for reference, unit in started:
            _got(ray, reference)
            done += unit.size
            report("encode", done, total)

    # --- anything -----------------------------------------------------------------------------

    def map(
        self, function: Callable[[Any], Any], items: list[Any], *, cpus: int = 1, gpus: int = 0
    ) -> Iterator[Any]:
        ray = self._connected()
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(function)
        numbers = range(len(items))
        for reference, _ in _completed(ray, numbers, lambda n: task.remote(items[n])):
            yield _got(ray, reference)


class _Folder:
    """A temporary directory that goes with the counts that read from it."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="bytemill-counts-")
        weakref.finalize(self, shutil.rmtree, self.path, True)


def _name(unit: Unit) -> str:
    return f"{unit.number:06}"


def _completed(
    ray: Any, work: Iterable[Item], start: Callable[[Item], Any]
) -> Iterator[tuple[Any, Item]]:
    """Starts tasks, a few more than there are processors, and gives those that are done."""
    running: dict[Any, Item] = {}
    left = iter(work)
    most = max(int(ray.cluster_resources().get("CPU", 1)) * WAITING_PER_CPU, 2)
    try:
        unit = next(left, None)
        while unit is not None or running:
            while unit is not None and len(running) < most:
                running[start(unit)] = unit
                unit = next(left, None)
            for reference in _finished(ray, running, 1):
                yield reference, running.pop(reference)
    finally:
        # Ctrl-C, or a task that failed: the others need not go on.
        for reference in running:
            ray.cancel(reference, force=False)
        if running:
            # Until then they may still write where the next run would.
            ray.wait(list(running), num_returns=len(running), timeout=PATIENCE)


def _finished(ray: Any, running: Any, at_least: int) -> list[Any]:
    """Tasks that are done, after waiting for so many; from a list, they are taken."""
    done: list[Any] = []
    while running:
        # Short waits: Ctrl-C should not have to wait for a task.
        done, left = ray.wait(
            list(running), num_returns=len(running), timeout=0.1, fetch_local=False
        )
        if len(done) >= at_least:
            if isinstance(running, list):
                running[:] = left
            break
    return done


def _got(ray: Any, reference: Any) -> Any:
    """What a task gave, or what it raised, as itself."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.as_instanceof_cause() from None


# --- tasks: what workers do -----------------------------------------------------------------------


def _count(unit: Unit, pattern: list[str], special_tokens: list[str]) -> bytes:
    """The counts of a unit, as a counts file."""
    counts = _native.Counts(pattern, special_tokens, 1)
    with tempfile.TemporaryDirectory(prefix="bytemill-") as folder:
        path = Path(folder, "part.counts")
        counts.add_files(unit.inputs())
        counts.save(path)
        counts.clear()
        return path.read_bytes()


def _merge(*parts: bytes) -> bytes:
    """Counts files, added up in a stream."""
    with tempfile.TemporaryDirectory(prefix="bytemill-") as folder:
        total: _native.Counts | None = None
        for number, part in enumerate(parts):
            path = Path(folder, f"{number}.counts")
            path.write_bytes(part)
            counts = _native.Counts.open(path, 1)
            if total is None:
                total = _native.Counts(counts.pattern, counts.special_tokens, 1)
                total.set_limit(1 << 30, 1 << 30, folder)
            total.merge(counts)
        assert total is not None
        path = Path(folder, "sum.counts")
        total.save(path)
        total.clear()
        return path.read_bytes()


def _encode(tokenizer: Tokenizer, unit: Unit, place: str, plan: dict[str, Any]) -> int:
    """Writes the tokens of a unit, unless they are there; gives how many."""
    # What splits and shards are made of is decided where all parts are known.
    own = plan | {
        "format": "npy",
        "dtype": "uint32" if plan["dtype"] == "int32" else plan["dtype"],
        "val_fraction": None,
        "shuffle": False,
        "seed": 0,
        "existing": "resume",
        "threads": 1,
    }
    part = os.path.join(place, _name(unit))
    _native.encode_files(tokenizer, unit.inputs(), part, **own)
    return os.path.getsize(os.path.join(part, "tokens.npy"))
