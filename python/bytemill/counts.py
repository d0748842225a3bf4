"""Counts: how often each piece of a corpus occurs, in memory, on disk and in files."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from . import _native, formats
from ._files import sweep
from ._system import memory_limit as resolve_limit
from .corpus.argument import CorpusLike, refuse_no_text, resolve
from .engines import Engine, chosen
from .errors import ConfigError
from .progress import ProgressOption, Report, reporter

__all__ = ["Counts", "checked_specials", "count_corpus", "count_into"]

DEFAULT_PATTERN = "gpt2"
DEFAULT_SPECIALS = ("<|endoftext|>",)


class Counts:
    """How often each piece occurs: what [`count_corpus`][bytemill.count_corpus] gives.

    Counts of parts of a corpus add up to those of the whole, and a tokenizer can be learnt from
    them as from the corpus: `train_tokenizer(counts=counts, vocab_size=…)`. What does not fit into
    memory lies in temporary files, which go with the object.

    >>> counts = count_corpus(iter(["the cat, the hat"]))
    >>> len(counts), counts.total, counts.top(2)
    (5, 5, [(b' cat', 1), (b' hat', 1)])
    >>> dict(counts)[b' the']
    1
    """

    def __init__(self) -> None:
        raise TypeError("counts are made by count_corpus or Counts.load")

    _inner: _native.Counts
    _files: object

    @classmethod
    def _of(cls, native: _native.Counts, files: object = None) -> Counts:
        self = object.__new__(cls)
        self._inner = native
        # What they read from, if that goes with them.
        self._files = files
        # Temporary files must go at the end of the program too.
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
        """Opens a counts file, and reads all of it once to see that it is whole.

        The counts stay in the file, so it must not be moved or deleted while they are in use.

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
        """Writes a counts file, which appears whole or not at all.

        Equal counts give equal files, whatever they were counted from and in how many parts.
        """
        if not overwrite and os.path.exists(path):
            raise FileExistsError(f"{os.fspath(path)} exists already (overwrite=True replaces it)")
        sweep(Path(path))
        with reporter(progress) as report:
            self._inner.save(path, report)

    def merge(self, other: Counts) -> None:
        """Adds other counts to these; the others stay as they are.

        Both must be of the same pattern and special tokens (`fingerprint`).
        """
        self._inner.merge(other._inner)

    def top(self, n: int) -> list[tuple[bytes, int]]:
        """The `n` most common pieces; of equally common ones, the first in byte order."""
        return self._inner.top(n)

    @property
    def total(self) -> int:
        """How many pieces were counted, the same one every time it occurs."""
        return self._inner.total

    @property
    def bytes_read(self) -> int:
        """The bytes of text that were counted."""
        return self._inner.bytes_read

    @property
    def skipped(self) -> dict[str, int]:
        """Records that were left out, by what was wrong with them."""
        return self._inner.skipped

    @property
    def pattern(self) -> str | list[str]:
        """What cut the documents into pieces: one stage, or a list of several."""
        stages = self._inner.pattern
        return stages[0] if len(stages) == 1 else stages

    @property
    def special_tokens(self) -> list[str]:
        """What separated documents, in byte order."""
        return self._inner.special_tokens

    @property
    def fingerprint(self) -> str:
        """SHA-256 of pattern and special tokens: counts of the same fingerprint can be merged."""
        return self._inner.fingerprint

    def __len__(self) -> int:
        """How many different pieces there are."""
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
    engine: str | Engine = "local",
    progress: ProgressOption = None,
) -> Counts:
    """Counts the pieces of a corpus.

    Args:
        corpus: as in [`train_tokenizer`][bytemill.train_tokenizer].
        pattern: what cuts documents into pieces.
        special_tokens: what separates documents.
        threads: how many threads count; None for every core the process may use.
        memory_limit: how much memory this process may use, in bytes or as in `"2GB"`; None for a
            safe share of what the machine or the container allows. What does not fit goes to
            disk; the counts are the same. On a cluster, how much each task may use.
        spill_dir: the directory for that; None for that of temporary files.
        engine: who counts: `"local"`, `"ray"`, or one of [`bytemill.engines`][bytemill.engines].
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
    report: Report,
    engine: str | Engine = "local",
    memory_limit: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> object:
    """Counts a corpus into native counts; if that fails, nothing of them is left on disk.

    What it gives must live as long as the counts.
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
    """Tells native counts how much memory they may use, and where to put the rest."""
    limit = resolve_limit(memory_limit)
    if spill_dir is not None and not Path(spill_dir).is_dir():
        raise ConfigError(f"spill_dir={os.fspath(spill_dir)!r} is not a directory")
    native.set_limit(limit.available, limit.total, spill_dir)


def checked_specials(special_tokens: Iterable[str]) -> list[str]:
    """Special tokens as a list, or a TypeError."""
    # A plain string is iterable too, letter by letter, which nobody means.
    if isinstance(special_tokens, str):
        raise TypeError(
            f"special_tokens must be a list of strings, not the string {special_tokens!r}"
        )
    specials = list(special_tokens)
    for token in specials:
        if not isinstance(token, str):
            raise TypeError(f"a special token is a string, not {type(token).__name__}")
    return specials
