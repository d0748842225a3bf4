"""What the workers of a cluster do. Each of these may be done again, by whomever, at any time: what
is there already is left as it is, and what is written appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .. import _native
from ..errors import ConfigError
from ..memory import memory_limit as resolve_limit

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..tokenizer import Tokenizer
    from .units import Unit

__all__ = ["Facts", "Means", "Place", "assemble", "count", "deal", "encode", "merge"]

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
    """How often this task was begun by workers that were lost."""
    try:
        from ray._private.worker import global_worker

        # Not public; without it, the work is done all the same.
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
    # An array lies in Ray's memory as it is; bytes would be copied by everybody who gets them.
    return np.fromfile(path, np.uint8)


# --- tokens ---------------------------------------------------------------------------------------

# Ids, documents, bytes of text, and what was skipped.
Facts = tuple[int, int, int, dict[str, int]]


@dataclass(frozen=True)
class Place:
    """Where a directory of tokens is made.

    Attributes:
        partial: the directory of what is unfinished.
        id: what tells this work from other that is done there before or after: a task that is told
            to stop, and does not at once, must not meddle with that.
    """

    partial: str
    id: str

    def part(self, unit: int) -> str:
        """Where the tokens of a unit are until they are in shards."""
        return os.path.join(self.partial, f"parts-{self.id}", f"{unit:06}")


def encode(
    tokenizer: Tokenizer, place: Place, unit: Unit, plan: dict[str, Any]
) -> tuple[Facts, int]:
    """Writes the tokens of a unit, unless they are there, and tells how many."""
    # What splits and shards are made of is decided where all parts are known.
    own = plan | {
        "format": "npy",
        "dtype": "uint32" if plan["dtype"] == "int32" else plan["dtype"],
        "val_fraction": None,
        "shuffle": False,
        "seed": 0,
        "threads": 1,
        # It is whole or made anew: no journal is needed on the way.
        "journal_every": 1 << 62,
    }
    part = place.part(unit.number)
    if not os.path.exists(part):
        # Under a name of its own: a worker that is thought lost may be at it still.
        new = f"{part}.{uuid.uuid4().hex}"
        _native.encode_files(tokenizer, unit.inputs(), new, **own | {"existing": "overwrite"})
        try:
            os.rename(new, part)
        except OSError:
            if not os.path.exists(part):
                raise
            shutil.rmtree(new)
    try:
        # Nothing is left to do, but it must be of this unit.
        _native.encode_files(tokenizer, unit.inputs(), part, **own | {"existing": "resume"})
    except ConfigError:
        raise ConfigError(
            f"{part}: the tokens of another part of the corpus, or made otherwise",
            "resume with the same unit_size, or begin anew: overwrite=True",
        ) from None
    return _native.part_facts(part), begun_before()


def deal(place: Place, unit: int, first: int, bits: int) -> tuple[list[list[tuple[int, int]]], int]:
    """Ids and documents of each split in each bucket of a part, which is dealt out into them."""
    dealt = _native.deal_part(place.partial, place.id, place.part(unit), first, bits)
    return dealt, begun_before()


def assemble(
    place: Place,
    split: int,
    number: int,
    units: list[tuple[int, int]],
    buckets: tuple[int, int, int] | None,
    before: tuple[int, int],
) -> tuple[None, int]:
    """Makes a shard of the parts of units, each with the documents that end before it."""
    parts = [(place.part(unit), first) for unit, first in units]
    _native.assemble_shard(place.partial, place.id, split, number, parts, buckets, before)
    return None, begun_before()
