"""Piece counts: how often each piece of a corpus occurs, in memory, on disk and in files."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _files, _native, formats
from ._numbers import parse_size
from ._records import read_record, write_record
from ._system import memory_limit as resolve_limit
from .corpus.argument import CorpusLike, as_corpus, batches, has_stdin, refuse_no_text
from .counting import CountJob, count_units, take_array
from .engines import Engine, EngineLike, as_engine
from .engines.units import units
from .errors import ConfigError, CorpusError
from .formats import PatternLike
from .progress import Progress, ProgressCallback, ProgressOption

if TYPE_CHECKING:
    from .corpus.places import Entry

__all__ = [
    "Counts",
    "checked_specials",
    "count_corpus",
    "count_into",
    "count_to_file",
    "partial_directory",
]

DEFAULT_PATTERN = "gpt2"
DEFAULT_SPECIALS = ("<|endoftext|>",)
# Texts of an iterator are passed to Rust in batches of this many characters: large enough to keep
# every thread busy, small enough for memory.
TEXT_BATCH = 8 << 20


class Counts:
    """How often each piece occurs: the result of [`count_corpus`][bytemill.count_corpus].

    Counts of parts of a corpus add up to those of the whole, and a tokenizer can be trained on
    counts instead of the corpus: `train_tokenizer(counts=counts, vocab_size=…)`. Counts that do
    not fit into memory are in temporary files, which are deleted with the object.

    >>> counts = count_corpus(iter(["the cat, the hat"]))
    >>> len(counts), counts.total, counts.top(2)
    (5, 5, [(b' cat', 1), (b' hat', 1)])
    >>> dict(counts)[b' the']
    1
    """

    def __init__(self) -> None:
        raise TypeError("create counts with count_corpus or Counts.load")

    _inner: _native.Counts

    @classmethod
    def _of(cls, native: _native.Counts) -> Counts:
        self = object.__new__(cls)
        self._inner = native
        # Also deletes temporary files when the program exits.
        weakref.finalize(self, native.clear)
        return self

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        memory_limit: int | str | None = None,
        spill_dir: str | os.PathLike[str] | None = None,
        progress: ProgressOption = False,
    ) -> Counts:
        """Opens a counts file and verifies it by reading it once.

        The counts stay in the file: do not move or delete it while they are in use.

        Args:
            path: a file that `save` or `bytemill count` wrote.
            memory_limit: as in [`count_corpus`][bytemill.count_corpus].
            spill_dir: as in [`count_corpus`][bytemill.count_corpus].
            progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
        """
        with Progress(progress) as report:
            native = _native.Counts.open(path, None, report)
        set_limit(native, memory_limit, spill_dir)
        return cls._of(native)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: ProgressOption = False,
    ) -> None:
        """Writes a counts file atomically.

        Equal counts give identical files, regardless of how the corpus was divided.
        """
        if not overwrite and os.path.lexists(path):
            raise FileExistsError(f"{os.fspath(path)} exists already (overwrite=True replaces it)")
        _files.remove_leftovers(Path(path))
        with Progress(progress) as report:
            self._inner.save(path, report)

    def merge(self, other: Counts) -> None:
        """Adds other counts to these; the others are not changed.

        Both must have the same pattern and special tokens (`fingerprint`).
        """
        self._inner.merge(other._inner)

    def top(self, n: int) -> list[tuple[bytes, int]]:
        """The `n` most common pieces; ties are broken by byte order."""
        return self._inner.top(n)

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return self._inner.total

    @property
    def bytes_read(self) -> int:
        """Bytes of text counted."""
        return self._inner.bytes_read

    @property
    def skipped(self) -> dict[str, int]:
        """Number of skipped records by reason."""
        return self._inner.skipped

    @property
    def pattern(self) -> str | list[str]:
        """The split pattern: one stage, or a list of several."""
        stages = self._inner.pattern
        return stages[0] if len(stages) == 1 else stages

    @property
    def special_tokens(self) -> list[str]:
        """The special tokens that separated documents, in byte order."""
        return self._inner.special_tokens

    @property
    def fingerprint(self) -> str:
        """SHA-256 of pattern and special tokens: counts with equal fingerprints can be merged."""
        return self._inner.fingerprint

    def __len__(self) -> int:
        """The number of distinct pieces."""
        return len(self._inner)

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Every piece with its count, in byte order."""
        return iter(self._inner)

    def __repr__(self) -> str:
        return (
            f"<Counts of {self.bytes_read:,} bytes: {len(self):,} different pieces, "
            f"pattern {self.pattern!r}>"
        )


def count_corpus(
    corpus: CorpusLike,
    *,
    pattern: PatternLike = DEFAULT_PATTERN,
    special_tokens: Iterable[str] = DEFAULT_SPECIALS,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    engine: EngineLike = "local",
    progress: ProgressOption = None,
) -> Counts:
    """Counts the pieces of a corpus.

    Args:
        corpus: as in [`train_tokenizer`][bytemill.train_tokenizer].
        pattern: the split pattern.
        special_tokens: strings that separate documents.
        threads: number of threads; None for every core the process may use.
        memory_limit: how much memory this process may use, in bytes or as in `"2GB"`; None for a
            safe share of what the machine or the container allows. Counts that do not fit are
            spilled to disk; the result is the same. On a cluster, the limit of each task.
        spill_dir: directory for spilled counts; None for the system's temporary directory.
        engine: where to run: `"local"`, `"ray"`, or one of [`bytemill.engines`][bytemill.engines].
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
    """
    native = _native.Counts(formats.stages(pattern), checked_specials(special_tokens), threads)
    set_limit(native, memory_limit, spill_dir)
    with Progress(progress) as report:
        count_into(native, corpus, report, engine, memory_limit, spill_dir)
    return Counts._of(native)


def count_into(
    native: _native.Counts,
    corpus: CorpusLike,
    report: ProgressCallback,
    engine: EngineLike = "local",
    memory_limit: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Counts a corpus into native counts; on failure, removes their files."""
    try:
        resolved, executor = as_corpus(corpus), as_engine(engine)
        if not executor.is_local:
            sources = resolved.entries()
            work = units(resolved, sources, executor.unit_size)
            job = _job(executor, native, 1, memory_limit, spill_dir)
            total = count_units(executor, job, work, None, report)
            _warn_of_changes(sources)
            if not isinstance(total, str):
                take_array(native, total.value(), spill_dir, report)
        elif resolved.texts is None:
            sources = resolved.entries()
            native.add_files(resolved.inputs(sources), report)
            _warn_of_changes(sources)
        else:
            # In the thread of the caller, which the iterator may be bound to.
            for batch in batches(resolved.texts, TEXT_BATCH):
                native.add_texts(batch)
                report("count", native.bytes_read, None)
        refuse_no_text(native.bytes_read, corpus, native.skipped)
    except BaseException:
        native.clear()
        raise


def _warn_of_changes(sources: Sequence[Entry]) -> None:
    """Warns of local files that are no longer as they were listed, before they were counted."""
    for source in sources:
        if source.path is None:
            continue
        with contextlib.suppress(OSError):
            status = os.stat(source.path)
            if (status.st_size, status.st_mtime_ns) != (source.size, source.mtime_ns):
                warnings.warn(
                    f"{source.name}: changed while it was counted, so its counts may be of parts "
                    "of several versions",
                    UserWarning,
                    stacklevel=4,
                )


def _job(
    executor: Engine,
    native: _native.Counts,
    threads: int | None,
    memory_limit: int | str | None,
    spill_dir: str | os.PathLike[str] | None,
) -> CountJob:
    return CountJob(
        pattern=native.pattern,
        special_tokens=native.special_tokens,
        memory_limit=parse_size(memory_limit) if isinstance(memory_limit, str) else memory_limit,
        n_calls=executor.calls_per_machine,
        threads=threads,
        spill_dir=None if spill_dir is None else os.path.abspath(spill_dir),
    )


def set_limit(
    native: _native.Counts,
    memory_limit: int | str | None,
    spill_dir: str | os.PathLike[str] | None,
) -> None:
    """Sets the memory limit and the spill directory of native counts."""
    limit = resolve_limit(memory_limit)
    if spill_dir is not None and not Path(spill_dir).is_dir():
        raise ConfigError(f"spill_dir={os.fspath(spill_dir)!r} is not a directory")
    native.set_limit(limit.available, limit.total, spill_dir)


def checked_specials(special_tokens: Iterable[str]) -> list[str]:
    """Special tokens as a list, or a TypeError."""
    # A plain string is iterable too, by character, which is never intended.
    if isinstance(special_tokens, str):
        raise TypeError(
            f"special_tokens must be a list of strings, not the string {special_tokens!r}"
        )
    specials = list(special_tokens)
    for token in specials:
        if not isinstance(token, str):
            raise TypeError(f"a special token must be a string, not {type(token).__name__}")
    return specials


# --- into a file ------------------------------------------------------------------------------
#
# Every unit of work is counted into a file in a directory beside the output, `NAME.partial`, so an
# interrupted run can resume. At the end the sum becomes the output and the directory is removed.
# `.NAME.lock` keeps other processes out.

# Names in the directory: the options, counts, temporaries.
OPTIONS = "options.json"
OURS = re.compile(r"options\.json|.+\.counts|\..+\.bytemill|bytemill-spill-[0-9-]+")
HINT_RESTART = "count the same corpus with the same options, or start over: overwrite=True"


def partial_directory(output: Path) -> Path:
    """The directory with the parts of an unfinished counts file."""
    return output.with_name(output.name + ".partial")


def count_to_file(
    corpus: CorpusLike,
    output: str | os.PathLike[str],
    *,
    pattern: PatternLike = DEFAULT_PATTERN,
    special_tokens: Iterable[str] = DEFAULT_SPECIALS,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    engine: EngineLike = "local",
    progress: ProgressOption = None,
) -> Counts:
    """Counts the files of a corpus into a counts file, and opens it.

    Args:
        corpus: as in [`train_tokenizer`][bytemill.train_tokenizer], except an iterator.
        output: the file; unfinished work is in a directory of this name with `.partial` appended.
        pattern: the split pattern.
        special_tokens: strings that separate documents.
        threads: number of threads; None for every core the process may use.
        memory_limit: as in [`count_corpus`][bytemill.count_corpus].
        overwrite: replace the file, and discard the parts of an interrupted run.
        resume: resume an interrupted run; finished work is kept.
        engine: as in [`count_corpus`][bytemill.count_corpus]; on a cluster, all nodes must share
            the directory of the output.
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
    """
    output = Path(output)
    resolved = as_corpus(corpus)
    if resolved.texts is not None:
        raise TypeError("count_to_file reads files only; for texts, use count_corpus")
    stages, specials = formats.stages(pattern), checked_specials(special_tokens)
    empty = _native.Counts(stages, specials, threads)  # validates the options
    resolve_limit(memory_limit)
    if resume and has_stdin(resolved):
        raise ConfigError("stdin cannot be read again", "resume with files")
    sources = resolved.entries()
    known = all(source.size or source.reader is None for source in sources)
    refuse_no_text(sum(source.size for source in sources) if known else 1, corpus)
    executor = as_engine(engine)
    work = units(resolved, sources, executor.unit_size, here=executor.is_local)
    directory = partial_directory(output)
    paths = [source.path for source in sources if source.path is not None]
    _files.refuse_input(output, paths)
    _files.refuse_inside(directory, "the directory of unfinished counts", paths)
    with _files.writer_lock(output.with_name(f".{output.name}.lock"), output, ConfigError):
        _files.remove_leftovers(directory)
        if directory.exists():
            _check_parts(directory, resume or overwrite)
            if not resume:
                _files.remove(directory)
        elif resume and output.exists():
            # Separators are in the files, but not in the text.
            n_bytes = _text_bytes(sources) if resolved.separator is None else None
            return _finished(output, empty.fingerprint, sources, n_bytes, memory_limit)
        elif os.path.lexists(output) and not overwrite:
            raise FileExistsError(f"{output} exists already (overwrite=True replaces it)")
        directory.mkdir(exist_ok=True)
        _check_options(directory, {"fingerprint": empty.fingerprint, "reading": resolved.settings})
        local = executor.is_local
        spill_dir = directory if local else None
        job = _job(executor, empty, threads if local else 1, memory_limit, spill_dir)
        try:
            with Progress(progress) as report:
                total = count_units(executor, job, work, directory.absolute(), report, known=known)
            _warn_of_changes(sources)
            # Before an existing file is replaced.
            counted = _native.Counts.open(str(total))
            if counted.bytes_read == 0:
                os.unlink(str(total))
            refuse_no_text(counted.bytes_read, corpus, counted.skipped)
        except CorpusError:
            if not any(directory.glob("*.counts")):
                _files.remove(directory)  # nothing to resume
            raise
        os.replace(str(total), output)
        _files.sync(output.absolute().parent)
        _files.remove(directory)
    return Counts.load(output, memory_limit=memory_limit)


def _check_parts(directory: Path, allowed: bool) -> None:
    """Rejects a directory of parts with foreign files, or that may not be resumed or removed."""
    for entry in sorted(directory.iterdir()):
        if not OURS.fullmatch(entry.name):
            raise ConfigError(
                f"{directory}: contains files that are not counts, such as {entry.name}",
                "move it away, or choose another output",
            )
    if not allowed:
        raise ConfigError(
            f"{directory}: contains the parts of an interrupted run",
            "resume=True continues it, overwrite=True starts over",
        )


def _check_options(directory: Path, options: dict[str, Any]) -> None:
    """Records the options of a run; rejects a run with other options than the interrupted one."""
    before = read_record(directory / OPTIONS, CorpusError)
    if before is None:
        write_record(directory / OPTIONS, options)
    elif before != options:
        raise ConfigError(
            f"{directory}: the interrupted run had a different pattern, special tokens, "
            "or options for reading the corpus",
            "resume with the same options, or start over: overwrite=True",
        )


def _text_bytes(sources: list[Entry]) -> int | None:
    """The bytes of text, if all sources are plain text of known size."""
    if all(source.format == "text" and source.size for source in sources):
        return sum(source.size for source in sources)
    return None


def _finished(
    output: Path,
    fingerprint: str,
    sources: list[Entry],
    n_bytes: int | None,
    memory_limit: int | str | None,
) -> Counts:
    """The counts in a finished file, if they match the request as far as can be checked.

    A counts file does not store its sources: only the pattern, the special tokens, the bytes of
    text and the file's modification time can be compared.
    """
    counts = Counts.load(output, memory_limit=memory_limit)
    if counts.fingerprint != fingerprint:
        raise ConfigError(
            f"{output}: finished with a different pattern or special tokens", HINT_RESTART
        )
    if n_bytes not in (None, counts.bytes_read):
        raise ConfigError(
            f"{output}: finished with {counts.bytes_read:,} bytes of text, not {n_bytes:,}",
            HINT_RESTART,
        )
    made = output.stat().st_mtime_ns
    for source in sources:
        if source.path is not None and source.mtime_ns > made:
            raise ConfigError(f"{source.name}: changed since {output} was finished", HINT_RESTART)
    return counts
