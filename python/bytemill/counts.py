"""Piece counts: how often each piece of a corpus occurs, in memory, on disk and in files."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import _files, _native, formats
from ._system import memory_limit as resolve_limit
from .corpus.argument import CorpusLike, has_stdin, refuse_no_text, resolve
from .engines import Engine, EngineLike, Local, chosen
from .errors import ConfigError
from .progress import ProgressCallback, ProgressOption, reporter

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
    _files: object

    @classmethod
    def _of(cls, native: _native.Counts, files: object = None) -> Counts:
        self = object.__new__(cls)
        self._inner = native
        # Keeps the files alive that the counts read from.
        self._files = files
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
        with reporter(progress) as report:
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
        if not overwrite and os.path.exists(path):
            raise FileExistsError(f"{os.fspath(path)} exists already (overwrite=True replaces it)")
        _files.sweep(Path(path))
        with reporter(progress) as report:
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
    pattern: str | Sequence[str] = DEFAULT_PATTERN,
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
    with reporter(progress) as report:
        files = count_into(native, corpus, report, engine, memory_limit, spill_dir)
    return Counts._of(native, files)


def count_into(
    native: _native.Counts,
    corpus: CorpusLike,
    report: ProgressCallback,
    engine: EngineLike = "local",
    memory_limit: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> object:
    """Counts a corpus into native counts; on failure, removes their files.

    The returned object must live as long as the counts.
    """
    try:
        files = chosen(engine).count(native, resolve(corpus), memory_limit, spill_dir, report)
        refuse_no_text(native.bytes_read, corpus, native.skipped)
        return files
    except BaseException:
        native.clear()
        raise


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
# In steps that survive an interruption: the counts of parts are written to a directory beside the
# output, `NAME.partial`; at the end they are merged into the output and the directory is removed.
# The engine decides how to divide the work and recognises its own parts; the output is identical
# either way. `.NAME.lock` keeps other processes out.

# Names that engines use in the directory of parts: journal, counts, temporaries.
OURS = re.compile(r"journal\.jsonl|.+\.counts|\..+\.bytemill|bytemill-spill-[0-9-]+")
HINT_RESTART = "count the same corpus with the same options, or start over: overwrite=True"


def partial_directory(output: Path) -> Path:
    """The directory with the parts of an unfinished counts file."""
    return output.with_name(output.name + ".partial")


def count_to_file(
    corpus: CorpusLike,
    output: str | os.PathLike[str],
    *,
    pattern: str | Sequence[str] = DEFAULT_PATTERN,
    special_tokens: Iterable[str] = DEFAULT_SPECIALS,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    engine: str | Engine = "local",
    progress: ProgressOption = None,
    batch_size: int | None = None,
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
        batch_size: bytes after which the local engine saves counts; None for its default.
    """
    output = Path(output)
    resolved = resolve(corpus)
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
    who = Local(batch_size) if engine == "local" and batch_size else chosen(engine)
    directory = partial_directory(output)
    _refuse_inputs(
        output, directory, [source.path for source in sources if source.path is not None]
    )
    with _files.writer_lock(output.with_name(f".{output.name}.lock"), output, ConfigError):
        _files.sweep(directory)
        if directory.exists():
            _check_parts(directory, resume or overwrite)
            if not resume:
                _files.remove(directory)
        elif resume and output.exists():
            return _finished(output, empty.fingerprint, sources, memory_limit)
        elif output.exists() and not overwrite:
            raise FileExistsError(f"{output} exists already (overwrite=True replaces it)")
        directory.mkdir(exist_ok=True)
        with reporter(progress) as report:
            place = directory.absolute()
            total = who.count_to(empty, resolved, sources, place, threads, memory_limit, report)
        os.replace(total, output)
        _files.sync(output.absolute().parent)
        _files.remove(directory)
    counts = Counts.load(output, memory_limit=memory_limit)
    refuse_no_text(counts.bytes_read, corpus, counts.skipped)
    return counts


def _refuse_inputs(output: Path, directory: Path, paths: list[str]) -> None:
    _files.refuse_input(output, paths)
    inside = os.path.join(os.path.realpath(directory), "")
    for path in paths:
        if os.path.realpath(path).startswith(inside):
            raise ConfigError(
                f"{path}: this source is in the directory of unfinished counts",
                "choose another output",
            )


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


def _finished(
    output: Path, fingerprint: str, sources: list[Entry], memory_limit: int | str | None
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
    n_bytes = sum(source.size for source in sources)
    if all(source.format == "text" and source.size for source in sources) and (
        n_bytes != counts.bytes_read
    ):
        raise ConfigError(
            f"{output}: finished with {counts.bytes_read:,} bytes of text, not {n_bytes:,}",
            HINT_RESTART,
        )
    made = output.stat().st_mtime_ns
    for source in sources:
        if source.path is not None and source.mtime_ns > made:
            raise ConfigError(f"{source.name}: changed since {output} was finished", HINT_RESTART)
    return counts
