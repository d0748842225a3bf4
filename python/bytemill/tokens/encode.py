"""A corpus → tokens on disk: plan → parts → shards → manifest.

One machine is a cluster of one: the corpus is divided into units, each unit is encoded, and its
record in `.partial` marks it as finished. An interrupted job resumes after the last recorded unit.

    neither shuffled nor on a cluster   units in order, directly into shards: a record has the
                                        state of the open shards, which the next unit continues
    otherwise                           units into parts; when all sizes are known, parts into
                                        shards, in any order

Both ways give the same bytes. The loops over text and ids are in Rust; the engine decides which
processes run them.
"""

from __future__ import annotations

import json
import os
import warnings
import zlib
from array import array
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import _files, _native
from .._numbers import check_integer, estimated_text
from .._options import EncodeRange
from .._records import read_record, write_record
from ..corpus.argument import CorpusLike, as_corpus, has_stdin, refuse_no_text
from ..engines import Engine, EngineLike, as_engine
from ..engines.units import Unit, units
from ..errors import ConfigError, TokenizerError, TokensError
from ..progress import Progress, ProgressCallback, ProgressOption
from . import manifest as manifests
from . import parts
from .directory import Existing, TokenDirectory, writing
from .parts import PartKey, Workshop
from .plan import Plan, TokenFormat, make_plan
from .recipes import Buckets, Recipe, recipes
from .view import Tokens

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..tokenizer import Tokenizer

__all__ = ["SHARD_TOKENS", "encode_files", "end_of_text"]

SHARD_TOKENS = 100_000_000
# Names of the end-of-text token in common vocabularies.
END_OF_TEXTS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>")


def encode_files(
    tokenizer: Tokenizer,
    corpus: CorpusLike,
    out: str | os.PathLike[str],
    *,
    shard_tokens: int = SHARD_TOKENS,
    append_eot: bool = True,
    eot: str | None = None,
    dtype: Literal["uint16", "uint32"] | npt.DTypeLike | None = None,
    format: TokenFormat = "shards",
    val_fraction: float | None = None,
    shuffle: bool = False,
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    engine: EngineLike = "local",
    progress: ProgressOption = None,
) -> Tokens:
    """Encodes files into a token directory, in constant memory, and opens it.

    The ids of a text or record equal those of `encode` applied to all of it. A document ends
    after every end-of-text token and at the end of its file or record. The output does not
    depend on `threads` or on interruptions. [docs/formats.md] describes the files.

    Args:
        tokenizer: the tokenizer; for the method `Tokenizer.encode_files`, its object.
        corpus: as in [`train_tokenizer`][bytemill.train_tokenizer].
        out: the output directory; the result appears there only when it is complete.
        shard_tokens: ids per file.
        append_eot: append an end-of-text token to files and records that do not end in one.
        eot: the special token that ends documents; None for `<|endoftext|>` or an equivalent.
        dtype: `"uint16"` or `"uint32"`; None for the smallest that holds all ids.
        format: `"shards"`; in one file: `"npy"`, `"bin"` (raw ids, as in nanoGPT) or
            `"megatron"` (`.bin` and `.idx`).
        val_fraction: share of documents, chosen by `seed`, to hold out for validation; None
            for no split.
        shuffle: shuffle the documents by `seed`.
        seed: random seed of `shuffle` and `val_fraction`.
        threads: number of threads; None for every core the process may use.
        resume: resume an interrupted run; finished work is kept.
        overwrite: replace existing tokens once the new ones are complete.
        engine: where to run: `"local"`, `"ray"`, or one of [`bytemill.engines`][bytemill.engines].
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].

    Returns:
        The tokens; with `val_fraction`, the training split.
    """
    resolved = as_corpus(corpus)
    if resume and overwrite:
        raise ConfigError("resume=True contradicts overwrite=True", "give one of them")
    if resume and resolved.texts is not None:
        raise ConfigError("an iterator cannot be read again", "resume with files or a dataset")
    if resume and has_stdin(resolved):
        raise ConfigError("stdin cannot be read again", "resume with files")
    if threads is not None:
        check_integer("threads", threads)
        if threads < 1:
            raise ConfigError(f"threads must be ≥ 1, got {threads}")
    entries = resolved.entries()
    _check_place(Path(out), [entry.path for entry in entries if entry.path is not None])
    # Python objects that yield records have no known size.
    known = all(entry.size or entry.reader is None for entry in entries)
    refuse_no_text(sum(entry.size for entry in entries) if known else 1, corpus)
    plan = make_plan(
        tokenizer,
        resolved,
        entries,
        format=format,
        dtype=_dtype_name(dtype),
        shard_tokens=_whole("shard_tokens", shard_tokens),
        end_of_text=end_of_text(tokenizer, eot, append_eot),
        append_eot=append_eot,
        val_fraction=val_fraction,
        shuffle=shuffle,
        seed=_whole("seed", seed),
    )
    existing: Existing = "resume" if resume else "overwrite" if overwrite else "refuse"
    executor = as_engine(engine)
    work = units(resolved, entries, executor.unit_size, here=executor.is_local)
    with writing(Path(out)), Progress(progress) as report:
        directory = TokenDirectory(Path(out))
        if directory.begin(plan, existing):
            job = _Job(tokenizer, plan, directory, work, executor, threads, known, report)
            with ThreadPoolExecutor(1, "bytemill-save") as saver:
                saved = saver.submit(_save_tokenizer, tokenizer, directory)
                splits, text_bytes, skipped = job.run()
                outcome = saved.result()
            file = None if isinstance(outcome, TokenizerError) else outcome
            if isinstance(outcome, TokenizerError):
                warnings.warn(
                    "the tokens directory has no tokenizer.json, which cannot represent this "
                    f"tokenizer: {outcome.message}",
                    UserWarning,
                    stacklevel=3,
                )
            n_documents = sum(shard["documents"] for split in splits for shard in split["shards"])
            if n_documents == 0 and directory.has_tokens:
                # `overwrite` does not replace tokens by nothing.
                directory.discard()
                refuse_no_text(0, corpus, skipped)
            manifest = manifests.new_manifest(plan, text_bytes, skipped, file, splits)
            directory.commit(manifest)
    return Tokens(out, split="all" if val_fraction is None else "train")


class _Job:
    """Encodes units into the shards of a directory.

    Args:
        known: whether the sizes of all sources are known.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        plan: Plan,
        directory: TokenDirectory,
        work: list[Unit],
        engine: Engine,
        threads: int | None,
        known: bool,
        report: ProgressCallback,
    ) -> None:
        self._tokenizer, self._plan, self._directory = tokenizer, plan, directory
        self._units, self._engine, self._report = work, engine, report
        self._directly = engine.is_local and not plan.shuffle
        folder = directory.records("shards" if self._directly else "parts", plan)
        self._workshop = Workshop(
            directory.partial.absolute(),
            folder.absolute(),
            plan,
            threads if engine.is_local else 1,
            engine.block_size,
        )
        self._splits: list[dict[str, Any]] = [
            {"shards": [], "appended": array("Q")} for _ in plan.splits
        ]
        self._skipped: Counter[str] = Counter()
        # Number of encoded units, their bytes of text and of files; bytes of all files.
        self._done = self._text = self._read = 0
        self._total = sum(unit.size for unit in work) if known else 0

    def run(self) -> tuple[list[dict[str, Any]], int, Counter[str]]:
        """Returns the shards of each split, the bytes of text, and skipped records."""
        if self._directly:
            self._write_shards()
        else:
            self._assemble(self._encode_parts())
        return self._splits, self._text, self._skipped

    # --- directly into shards -------------------------------------------------------------------

    def _write_shards(self) -> None:
        open_shards: list[Any] = []
        done = 0
        for unit in self._units:
            record = read_record(self._unit_record(unit), TokensError)
            if record is None:
                break
            parts.check_unit(record, unit, self._unit_record(unit))
            self._check_files(record)
            self._add(record, unit)
            open_shards = record["open"]
            done += 1
        # Files are flushed and the record is written while the next unit is encoded.
        with ThreadPoolExecutor(1, "bytemill-record") as recorder:
            recorded: Future[None] | None = None
            for unit in self._units[done:]:
                written = json.loads(
                    _native.encode_range(
                        self._tokenizer._core,
                        self._plan,
                        EncodeRange(
                            unit.inputs(),
                            json.dumps(unit.sources),
                            open=json.dumps(open_shards),
                            is_last=unit is self._units[-1],
                            threads=self._workshop.threads,
                            block_size=self._workshop.block_size,
                        ),
                        self._workshop.partial,
                        self._watch,
                    )
                )
                if recorded is not None:
                    recorded.result()
                recorded = recorder.submit(self._record, unit, written)
                open_shards = written["open"]
                self._add(written, unit)
            if recorded is not None:
                recorded.result()

    def _unit_record(self, unit: Unit) -> Path:
        return self._workshop.folder / f"{unit.number:06}.json"

    def _record(self, unit: Unit, written: dict[str, Any]) -> None:
        parts.sync_shards(self._workshop, written)
        # After the last unit the manifest is written, so no record is needed.
        if unit is not self._units[-1]:
            write_record(self._unit_record(unit), written | {"unit": unit.name()})

    def _check_files(self, record: Mapping[str, Any]) -> None:
        """Checks that complete shards still have their size."""
        for name, size in manifests.shard_files(record):
            path = self._directory.partial / name
            found = path.stat().st_size
            if found != size:
                raise TokensError(
                    f"{path}: {found} bytes, not {size}", "start over: overwrite=True"
                )

    def _add(self, written: Mapping[str, Any], unit: Unit) -> None:
        for split, made in zip(self._splits, written["splits"]):
            split["shards"] += made["shards"]
            split["appended"].extend(made["appended"])
        self._advance(written, unit)

    # --- through parts --------------------------------------------------------------------------

    def _encode_parts(self) -> list[list[tuple[int, int]]]:
        """Encodes every unit; returns the numbers of ids and documents of its parts."""
        shares: list[list[tuple[int, int]]] = [[] for _ in self._units]

        def finish(result: tuple[int, dict[str, Any]]) -> None:
            number, facts = result
            shares[number] = facts["shares"]
            self._advance(facts, self._units[number])

        watch = self._watch if self._engine.is_local else None
        shared = (self._workshop, self._tokenizer, watch)
        self._engine.each(parts.encode_part, self._units, finish, shared=shared)
        return shares

    def _assemble(self, of_units: list[list[tuple[int, int]]]) -> None:
        """Makes the shards; `of_units` has the numbers of ids and documents of each part."""
        shares = [share for parts in of_units for share in parts]
        before = accumulate((documents for _, documents in shares), initial=0)
        places = [(unit, i) for unit, parts in enumerate(of_units) for i in range(len(parts))]
        keys = [PartKey(unit, i, n) for (unit, i), n in zip(places, before)]
        sizes = [tokens for tokens, _ in shares]
        buckets = Buckets.of(sizes) if self._plan.shuffle else None
        of_splits = self._deal(keys, shares, buckets)
        room = self._plan.shard_tokens
        work = [r for n, split in enumerate(of_splits) for r in recipes(n, split, room)]
        # In the order of the parts, so that parts can be deleted early.
        work.sort(key=lambda recipe: recipe.last)
        made = self._make_shards(work, keys, buckets)
        for recipe in sorted(made, key=lambda recipe: (recipe.split, recipe.number)):
            self._splits[recipe.split]["shards"] += made[recipe]["shards"]
            self._splits[recipe.split]["appended"].extend(made[recipe]["appended"])

    def _deal(
        self, keys: list[PartKey], shares: list[tuple[int, int]], buckets: Buckets | None
    ) -> list[list[tuple[int, int]]]:
        """Numbers of ids and documents of each split in every part or, if shuffled, bucket."""
        if buckets is None and len(self._splits) == 1:
            return [shares]
        n_places = len(keys) if buckets is None else 1 << buckets.bits
        sums = [[(0, 0)] * n_places for _ in self._splits]
        numbers = {key: number for number, key in enumerate(keys)}
        count = self._counter("shuffle", sum(tokens for tokens, _ in shares))

        def finish(result: tuple[PartKey, list[list[tuple[int, int]]]]) -> None:
            key, dealt = result
            for split, of_split in enumerate(dealt):
                for bucket, (tokens, documents) in enumerate(of_split):
                    place = numbers[key] if buckets is None else bucket
                    old = sums[split][place]
                    sums[split][place] = (old[0] + tokens, old[1] + documents)
            count.finish(shares[numbers[key]][0])

        shared = (self._workshop, buckets, count.watch)
        self._engine.each(parts.deal_part, keys, finish, shared=shared)
        return sums

    def _make_shards(
        self, work: list[Recipe], keys: list[PartKey], buckets: Buckets | None
    ) -> dict[Recipe, dict[str, Any]]:
        made: dict[Recipe, dict[str, Any]] = {}
        # Number of unfinished shards that need each part; if shuffled, all are needed to the end.
        needed: Counter[PartKey] = Counter()
        for recipe in work if buckets is None else ():
            needed.update(recipe.parts(keys))
        count = self._counter("write", sum(recipe.tokens for recipe in work))

        def finish(result: tuple[Recipe, dict[str, Any]]) -> None:
            recipe, record = result
            made[recipe] = record
            count.finish(recipe.tokens)
            for key in recipe.parts(keys) if buckets is None else ():
                needed[key] -= 1
                if needed[key] == 0:
                    parts.remove_part(self._workshop, key)

        shared = (self._workshop, keys, buckets, count.watch)
        self._engine.each(parts.assemble_shard, work, finish, shared=shared)
        return made

    # --- progress -------------------------------------------------------------------------------

    def _advance(self, facts: Mapping[str, Any], unit: Unit) -> None:
        """Records that a unit is encoded."""
        self._text += facts["text_bytes"]
        self._read += unit.size
        self._done += 1
        self._skipped.update(facts["skipped"])
        self._watch("encode", 0, None)

    def _watch(self, phase: str, n: int, of: int | None) -> None:
        """Reports progress, also within the unit that is being encoded in this process."""
        within = self._units[self._done].size * n / of if of else 0
        text, read = self._text + n, self._read + within
        estimate = estimated_text(text, read, self._total) if self._total else None
        self._report("encode", text, estimate)

    def _counter(self, phase: str, tokens: int) -> _ByteCount:
        """The progress of a phase that processes `tokens` ids."""
        return _ByteCount(self._report, phase, self._plan.width, tokens, self._engine.is_local)


class _ByteCount:
    """The progress of a phase in bytes of ids.

    Attributes:
        watch: reports progress within a call in this process; None if calls are elsewhere.
    """

    def __init__(
        self, report: ProgressCallback, phase: str, width: int, tokens: int, here: bool
    ) -> None:
        self._report, self._phase, self._width = report, phase, width
        self._done, self._total = 0, tokens * width
        self.watch = self._within if here else None

    def finish(self, tokens: int) -> None:
        """Records that `tokens` more ids are done."""
        self._done += tokens * self._width
        self._report(self._phase, self._done, self._total)

    def _within(self, phase: str, n: int, of: int | None) -> None:
        self._report(self._phase, min(self._done + n, self._total), self._total)


def _save_tokenizer(
    tokenizer: Tokenizer, directory: TokenDirectory
) -> dict[str, Any] | TokenizerError:
    """Writes the tokenizer file of a directory.

    Returns:
        Its line in the manifest, or why the format cannot represent the tokenizer.
    """
    try:
        data = tokenizer.write("huggingface")[0]
    except TokenizerError as error:
        directory.save(None)
        return error
    directory.save(data)
    crc32 = f"{zlib.crc32(data):08x}"
    return {"file": manifests.TOKENIZER, "bytes": len(data), "crc32": crc32}


def end_of_text(tokenizer: Tokenizer, eot: str | None, append_eot: bool) -> str | None:
    """The special token that ends documents."""
    known = tokenizer.special_tokens
    if eot is not None:
        if eot not in known:
            raise ConfigError(
                f"eot={eot!r} is not a special token of the tokenizer",
                f"its special tokens are {', '.join(map(repr, known)) or 'none'}",
            )
        return eot
    usual = [text for text in END_OF_TEXTS if text in known] or list(known)
    if len(usual) == 1 or usual[:1] == [END_OF_TEXTS[0]]:
        return usual[0]
    if not append_eot:
        return None
    if not usual:
        raise ConfigError(
            "the tokenizer has no special token to end documents with",
            "use append_eot=False",
        )
    raise ConfigError(
        f"several special tokens could end documents: {', '.join(map(repr, usual))}",
        "choose one with eot=, or use append_eot=False",
    )


def _check_place(out: Path, paths: list[str]) -> None:
    if out.suffix in (".npy", ".bin", ".idx", ".json"):
        raise ConfigError(
            f"{out}: the output must be a directory, and this looks like a file",
            "give a directory; the files in it are named automatically",
        )
    _files.refuse_inside(out, "the output directory", paths)


def _dtype_name(dtype: npt.DTypeLike | None) -> str | None:
    if dtype is None:
        return None
    if isinstance(dtype, str):
        return dtype
    import numpy as np

    return str(np.dtype(dtype).name)


def _whole(name: str, value: int) -> int:
    check_integer(name, value)
    if not 0 <= value < 2**64:
        raise ConfigError(f"{name} must be from 0 to 2**64 - 1, got {str(value)[:40]}")
    return value
