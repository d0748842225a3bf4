"""Counting a corpus into one counts file, in steps that survive an interruption.

The counts of parts go into a directory beside the output, `NAME.partial`; in the end they are
merged into the output and the directory goes. How they are parted and known again is the engine's
affair; the output is the same in any case, to the byte. `.NAME.lock` keeps a second process away.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import _files, _native, formats
from ._system import memory_limit as resolve_limit
from .corpus.argument import CorpusLike, has_stdin, refuse_no_text, resolve
from .counts import DEFAULT_PATTERN, DEFAULT_SPECIALS, Counts, checked_specials
from .engines import Engine, Local, chosen
from .errors import ConfigError
from .progress import ProgressOption, reporter

if TYPE_CHECKING:
    from .corpus.places import Entry

__all__ = ["count_to_file", "partial_directory"]

# What the engines put into the directory of parts: journal, counts, temporaries.
OURS = re.compile(r"journal\.jsonl|.+\.counts|\..+\.bytemill|bytemill-spill-[0-9-]+")
ANEW = "count the same corpus with the same options, or begin anew: overwrite=True"


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
        resume: go on where an interrupted run stopped; what is finished stays as it is.
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
                f"{path}: this source lies in the directory of unfinished counts",
                "choose another output",
            )


def _check_parts(directory: Path, allowed: bool) -> None:
    """Refuses a directory of parts that is not ours, or that may be neither used nor dropped."""
    for entry in sorted(directory.iterdir()):
        if not OURS.fullmatch(entry.name):
            raise ConfigError(
                f"{directory}: holds other files than counts, such as {entry.name}",
                "move it away, or choose another output",
            )
    if not allowed:
        raise ConfigError(
            f"{directory}: an interrupted run left its parts here",
            "resume=True continues with them, overwrite=True begins anew",
        )


def _finished(
    output: Path, fingerprint: str, sources: list[Entry], memory_limit: int | str | None
) -> Counts:
    """The counts in a finished file, if they are what is asked for as far as can be known.

    A counts file does not name its sources: what it tells is the pattern, the special tokens and,
    with the time of its last change, the bytes of text.
    """
    counts = Counts.load(output, memory_limit=memory_limit)
    if counts.fingerprint != fingerprint:
        raise ConfigError(f"{output}: finished with another pattern or other special tokens", ANEW)
    n_bytes = sum(source.size for source in sources)
    if all(source.format == "text" and source.size for source in sources) and (
        n_bytes != counts.bytes_read
    ):
        raise ConfigError(
            f"{output}: finished, of {counts.bytes_read:,} bytes of text, not of {n_bytes:,}", ANEW
        )
    made = output.stat().st_mtime_ns
    for source in sources:
        if source.path is not None and source.mtime_ns > made:
            raise ConfigError(f"{source.name}: changed since {output} was finished", ANEW)
    return counts
