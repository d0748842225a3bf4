"""Parts of tokens, and the shards that are made of them: the functions that an engine calls.

    .partial/parts-ID/000012.json           marks unit 12 as encoded
    .partial/parts-ID/000012-00000.npy      ids of a part of it; with .docs.npy, as in a shard
    .partial/parts-ID/000012-00000.json     its ids and documents by split and bucket
    .partial/parts-ID/000012-00000.dealt-0  the part sorted for shuffling, a file for each split,
                                            which that record marks as finished
    .partial/shard-00000.npy                a finished shard
    .partial/shard-00000.json               marks that as finished

A function may be called again, by any process, at any time: work with a record is not repeated, and
files appear whole or not at all. ID is that of the plan, so a cancelled task that is still running
does not interfere with another job in the same directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _files, _native
from .._options import EncodeRange
from .._records import read_record, write_record
from ..errors import ConfigError, TokensError
from .plan import Plan

if TYPE_CHECKING:
    from ..engines.units import Unit
    from ..progress import ProgressCallback
    from ..tokenizer import Tokenizer
    from .recipes import Buckets, Recipe

__all__ = [
    "Part",
    "PartKey",
    "ShardSource",
    "Workshop",
    "assemble_shard",
    "check_unit",
    "deal_part",
    "encode_part",
    "remove_part",
    "sync_shards",
]

# Maximum ids of a part: dealing it needs 48 bytes of memory per document.
PART_TOKENS = 1 << 27


@dataclass(frozen=True)
class Workshop:
    """Where and how parts and shards are made; the same for all calls of a job.

    Attributes:
        partial: the directory of unfinished files, as an absolute path.
        folder: the directory of parts in it.
        threads: of a call; None for every core the process may use.
        block_size: bytes of text that a thread encodes at a time; None for the default.
    """

    partial: Path
    folder: Path
    plan: Plan
    threads: int | None = 1
    block_size: int | None = None

    def check(self) -> None:
        """Raises an error if the job was cancelled: another may use the directory now."""
        if not self.folder.is_dir():
            raise TokensError(f"{self.partial}: this job was cancelled")

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory for unfinished files; each attempt has its own."""
        folder = self.folder / f"{uuid.uuid4().hex}.tmp"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class PartKey:
    """A part: the `index`-th of a unit; `before` documents of the corpus end before it."""

    unit: int
    index: int
    before: int

    @property
    def stem(self) -> str:
        return f"{self.unit:06}-{self.index:05}"


@dataclass(frozen=True)
class Part:
    """A part as Rust reads it.

    Attributes:
        appended: the numbers of its documents whose end-of-text is not in the source.
        before: documents of the corpus that end before it.
    """

    ids: str
    docs: str
    tokens: int
    documents: int
    appended: list[int]
    before: int


@dataclass(frozen=True)
class ShardSource:
    """What a shard is made of, as Rust reads it.

    Attributes:
        before: ids and documents of the split before its content.
        dealt: files of dealt parts instead of `parts`.
        buckets: bits, first and last bucket of its documents, if these are shuffled.
    """

    split: int
    number: int
    before: tuple[int, int]
    parts: list[Part]
    dealt: list[str] | None
    buckets: tuple[int, int, int] | None


def _once(workshop: Workshop, record: Path, make: Callable[[], Any]) -> Any:
    """The value of a record; if there is none, makes and records it."""
    found = read_record(record, TokensError)
    if found is not None:
        return found
    workshop.check()
    try:
        made = make()
        write_record(record, made)
        return made
    except Exception:
        # Another worker, considered lost, may have finished first.
        with contextlib.suppress(TokensError):
            found = read_record(record, TokensError)
        if found is None:
            raise
        return found


def encode_part(
    workshop: Workshop, tokenizer: Tokenizer, progress: ProgressCallback | None, unit: Unit
) -> tuple[int, dict[str, Any]]:
    """Encodes a unit into parts; returns its number and, of its parts, the numbers of ids and
    documents, the bytes of text and the skipped records."""
    record = workshop.folder / f"{unit.number:06}.json"

    def make() -> dict[str, Any]:
        plan = _PartPlan.make(workshop.plan, f"{unit.number:06}")
        with workshop.scratch() as scratch:
            range = EncodeRange(
                unit.inputs(),
                json.dumps(unit.sources),
                threads=workshop.threads,
                block_size=workshop.block_size,
            )
            written = _native.encode_range(tokenizer._core, plan, range, scratch, progress)
            made: dict[str, Any] = json.loads(written)
            _move(scratch, workshop.folder)
        return made | {"unit": unit.name()}

    found = _once(workshop, record, make)
    check_unit(found, unit, record)
    shares = [(shard["tokens"], shard["documents"]) for shard in found["splits"][0]["shards"]]
    facts = {"shares": shares, "text_bytes": found["text_bytes"], "skipped": found["skipped"]}
    return unit.number, facts


@dataclass(frozen=True)
class _PartPlan(Plan):
    """The plan of the parts of a unit: splits and shards are decided when all parts are known."""

    stem: str

    @classmethod
    def make(cls, plan: Plan, stem: str) -> _PartPlan:
        fields = vars(plan) | {"format": "npy", "shard_tokens": PART_TOKENS}
        return cls(**fields | {"val_fraction": None, "shuffle": False, "stem": stem})

    @property
    def stems(self) -> list[str]:
        return [self.stem]


def check_unit(record: dict[str, Any], unit: Unit, path: Path) -> None:
    """Refuses a record of another unit."""
    if record["unit"] != unit.name():
        raise ConfigError(
            f"{path}: belongs to another part of the corpus, or was written with other options",
            "resume with the same unit_size, or start over: overwrite=True",
        )


def _move(scratch: Path, folder: Path) -> None:
    """Moves finished files to their names."""
    paths = list(scratch.iterdir())
    _files.sync_all(paths)
    for path in paths:
        os.replace(path, folder / path.name)
    _files.sync(folder)


def _part(workshop: Workshop, key: PartKey) -> Part:
    [split] = read_record(workshop.folder / f"{key.unit:06}.json", TokensError)["splits"]
    shard = split["shards"][key.index]
    # The range of its documents among those of the unit.
    first = sum(other["documents"] for other in split["shards"][: key.index])
    last = first + shard["documents"]
    numbers = split["appended"]
    numbers = numbers[bisect_left(numbers, first) : bisect_left(numbers, last)]
    return Part(
        ids=str(workshop.folder / shard["file"]),
        docs=str(workshop.folder / shard["docs"]["file"]),
        tokens=shard["tokens"],
        documents=shard["documents"],
        appended=[number - first for number in numbers],
        before=key.before,
    )


def remove_part(workshop: Workshop, key: PartKey) -> None:
    """Removes the ids of a part; its record stays, for a resumed job."""
    for name in (".npy", ".docs.npy"):
        (workshop.folder / (key.stem + name)).unlink(missing_ok=True)


def deal_part(
    workshop: Workshop, buckets: Buckets | None, progress: ProgressCallback | None, key: PartKey
) -> tuple[PartKey, list[list[tuple[int, int]]]]:
    """Numbers of ids and documents of each split in each bucket of a part (None: one bucket); deals
    the part if `buckets` says so."""
    record = workshop.folder / f"{key.stem}.json"
    bits, dealt = (0, False) if buckets is None else (buckets.bits, buckets.dealt)
    asked = {"before": key.before, "bits": bits, "dealt": dealt}

    def make() -> dict[str, Any]:
        plan = workshop.plan
        with workshop.scratch() as scratch:
            outputs = [
                str(scratch / f"{key.stem}.dealt-{split}")
                for split in range(len(plan.splits) if dealt else 0)
            ]
            part = _part(workshop, key)
            shares = _native.deal_part(plan, part, outputs, bits, progress)
            _move(scratch, workshop.folder)
        return asked | {"shares": shares}

    found = _once(workshop, record, make)
    if {name: found.get(name) for name in asked} != asked:
        raise TokensError(f"{record}: belongs to another job", "start over: overwrite=True")
    if dealt:
        remove_part(workshop, key)
    return key, found["shares"]


def assemble_shard(
    workshop: Workshop,
    keys: list[PartKey],
    buckets: Buckets | None,
    progress: ProgressCallback | None,
    recipe: Recipe,
) -> tuple[Recipe, dict[str, Any]]:
    """Makes a shard from parts, shuffled if there are `buckets`; returns the record of files."""
    plan = workshop.plan
    names = plan.files(recipe.split, recipe.number)
    record = workshop.partial / names["docs"].replace(".docs.npy", ".json")

    def make() -> dict[str, Any]:
        needed = recipe.parts(keys) if buckets is None else keys
        dealt = buckets is not None and buckets.dealt
        files = [workshop.folder / f"{key.stem}.dealt-{recipe.split}" for key in needed]
        source = ShardSource(
            recipe.split,
            recipe.number,
            recipe.before,
            parts=[] if dealt else [_part(workshop, key) for key in needed],
            dealt=[str(file) for file in files] if dealt else None,
            buckets=None if buckets is None else (buckets.bits, recipe.first, recipe.last),
        )
        with workshop.scratch() as scratch:
            made: dict[str, Any] = json.loads(
                _native.assemble_shard(plan, source, scratch, progress)
            )
            _move(scratch, workshop.partial)
        return made

    return recipe, _once(workshop, record, make)


def sync_shards(workshop: Workshop, written: dict[str, Any]) -> None:
    """Flushes the shards that were written or continued to disk."""
    plan, changed = workshop.plan, [workshop.partial]
    for split, made in enumerate(written["splits"]):
        names = [
            file["file"]
            for shard in made["shards"]
            for file in (shard, shard["docs"], shard.get("index"))
            if file is not None
        ]
        for still_open in written["open"][split : split + 1]:
            files = plan.files(split, still_open["number"])
            names += [files["ids"], files["docs"]]
        changed += [workshop.partial / name for name in names]
    _files.sync_all(changed)
