"""Counting a corpus into one counts file, in steps that survive an interruption.

The counts of parts go into a directory beside the output, `NAME.partial`; in the end they are
merged into the output and the directory goes. How they are parted and known again is the engine's
affair; the output is the same in any case, to the byte.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import _native, formats
from .corpus import CorpusLike, has_stdin, refuse_no_text, resolve
from .counts import DEFAULT_PATTERN, DEFAULT_SPECIALS, Counts, checked_specials
from .engines import Engine, Local, chosen
from .errors import ConfigError
from .memory import memory_limit as resolve_limit
from .progress import ProgressOption, reporter

__all__ = ["count_to_file", "partial_directory"]


def partial_directory(output: Path) -> Path:
    """Where the parts of an unfinished counts file are."""
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
    """Counts the files of a corpus into a counts file, and gives the counts in it.

    Args:
        corpus: as in [`train_tokenizer`][bytemill.train_tokenizer], but for an iterator.
        output: the file; meanwhile, a directory with `.partial` behind its name.
        pattern: what cuts documents into pieces.
        special_tokens: what separates documents.
        threads: how many threads count; None for every core the process may use.
        memory_limit: as in [`count_corpus`][bytemill.count_corpus].
        overwrite: replace the file, and drop what an interrupted run left.
        resume: go on where an interrupted run stopped.
        engine: as in [`count_corpus`][bytemill.count_corpus]; on a cluster, all machines must see
            the directory of the output.
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
        batch_size: the local engine saves counts after so many bytes; None for its own choice.
    """
    output = Path(output)
    resolved = resolve(corpus)
    if resolved.texts is not None:
        raise TypeError("only files can be counted in steps; for texts there is count_corpus")
    stages, specials = formats.stages(pattern), checked_specials(special_tokens)
    empty = _native.Counts(stages, specials, threads)  # refuses what cannot be
    resolve_limit(memory_limit)
    directory = partial_directory(output)
    if not directory.exists():
        if output.exists() and not overwrite:
            raise FileExistsError(f"{output} exists already (overwrite=True replaces it)")
    elif not (resume or overwrite):
        raise ConfigError(
            f"{directory}: an interrupted run left its parts here",
            "resume=True continues with them, overwrite=True begins anew",
        )
    elif not resume:
        _drop(directory)
    if resume and has_stdin(resolved):
        raise ConfigError("stdin cannot be read again", "resume with files")
    sources = resolved.entries()
    known = all(source.size or source.reader is None for source in sources)
    refuse_no_text(sum(source.size for source in sources) if known else 1, corpus)
    who = Local(batch_size) if engine == "local" and batch_size else chosen(engine)
    directory.mkdir(exist_ok=True)
    with reporter(progress) as report:
        place = directory.absolute()
        total = who.count_to(empty, resolved, sources, place, threads, memory_limit, report)
    os.replace(total, output)
    _drop(directory)
    counts = Counts.load(output, memory_limit=memory_limit)
    refuse_no_text(counts.bytes_read, corpus, counts.skipped)
    return counts


def _drop(directory: Path) -> None:
    """Removes a directory of parts so that no other run sees half of it."""
    old = directory.with_name(directory.name + ".old")
    shutil.rmtree(old, ignore_errors=True)  # of a run that was killed here
    directory.rename(old)
    shutil.rmtree(old)
