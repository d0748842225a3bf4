"""Counting many files into one counts file, in steps that survive an interruption.

Files are counted in batches of whole files. The counts of each batch go into a directory beside the
output, `NAME.partial`, and then a line into its journal: which files, of what size and when last
changed. In the end the batches are merged into the output and the directory goes. Whenever the work
stops, at most one batch is lost; the output is the same in any case, to the byte.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native, formats
from .corpus import Corpus, CorpusLike, refuse_no_text, resolve
from .counts import DEFAULT_PATTERN, DEFAULT_SPECIALS, Counts, checked_specials, set_limit
from .errors import ConfigError, CorpusError
from .memory import memory_limit as resolve_limit
from .progress import ProgressOption, Report, reporter

if TYPE_CHECKING:
    from .places import Entry

__all__ = ["count_to_file", "partial_directory"]

# A batch ends when it holds this much. The more, the fewer merges; the less, the less is lost.
BATCH_BYTES = 256_000_000
BATCH_FILES = 1000
JOURNAL = "journal.jsonl"
VERSION = 2


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
    progress: ProgressOption = None,
    batch_size: int = BATCH_BYTES,
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
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
        batch_size: a batch ends when its files have this many bytes.
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
            "resume=True (--resume) goes on with them, overwrite=True (--overwrite) begins anew",
        )
    elif not resume:
        _drop(directory)
    sources = resolved.entries()
    known = all(source.size or source.reader is None for source in sources)
    refuse_no_text(sum(source.size for source in sources) if known else 1, corpus)
    journal = _Journal(directory, empty.fingerprint, resolved.settings)
    with reporter(progress) as report:
        _count_batches(
            journal, resolved, sources, stages, specials, threads, memory_limit, report, batch_size
        )
        _gather(journal, empty, output, memory_limit, report)
    _drop(directory)
    return Counts.load(output, memory_limit=memory_limit)


def _drop(directory: Path) -> None:
    """Removes a directory of parts so that no other run sees half of it."""
    old = directory.with_name(directory.name + ".old")
    shutil.rmtree(old, ignore_errors=True)  # of a run that was killed here
    directory.rename(old)
    shutil.rmtree(old)


def _count_batches(
    journal: _Journal,
    corpus: Corpus,
    sources: list[Entry],
    stages: list[str],
    specials: list[str],
    threads: int | None,
    memory_limit: int | str | None,
    report: Report,
    batch_size: int,
) -> None:
    left = journal.left(sources)
    total = sum(source.size for source in sources)
    done = total - sum(source.size for source in left)

    def report_batch(phase: str, n: int, of: int | None) -> None:
        # Ours is the progress of all batches; what a batch gathers is not worth a line.
        if phase == "count":
            report(phase, done + n, total)

    for batch in _batches(left, batch_size):
        counts = _native.Counts(stages, specials, threads)
        set_limit(counts, memory_limit, journal.directory)
        try:
            counts.add_files(corpus.inputs(batch), report_batch)
            journal.add(batch, counts)
        finally:
            counts.clear()
        done += sum(source.size for source in batch)


def _gather(
    journal: _Journal,
    sum: _native.Counts,
    output: Path,
    memory_limit: int | str | None,
    report: Report,
) -> None:
    set_limit(sum, memory_limit, journal.directory)
    try:
        for part in journal.parts():
            sum.merge(_native.Counts.open(part))
        sum.save(output, report)
    finally:
        sum.clear()


def _batches(sources: list[Entry], batch_size: int) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    held = 0
    for source in sources:
        batch.append(source)
        held += source.size
        if held >= batch_size or len(batch) >= BATCH_FILES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


class _Journal:
    """The directory of parts, and the list of what is in them.

    The first line says what is counted; each further one names a part and its files. A part is put
    in place before its line is written, and a line is whole or the last one and torn.
    """

    def __init__(self, directory: Path, fingerprint: str, settings: dict[str, Any]) -> None:
        self.directory = directory
        self._file = directory / JOURNAL
        self._entries: list[dict[str, Any]] = []
        head = {"version": VERSION, "fingerprint": fingerprint, "reading": settings}
        directory.mkdir(exist_ok=True)
        lines = self._lines()
        if not lines:
            formats.write_atomically(self._file, _line(head))
        elif lines[0] != head:
            raise ConfigError(
                f"{directory}: the interrupted run had another pattern, other special tokens, "
                "or another way to read its corpus",
                "resume with the same options, or begin anew: overwrite=True (--overwrite)",
            )
        self._entries = lines[1:]
        self._tidy()

    def _lines(self) -> list[dict[str, Any]]:
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise CorpusError(
                f"{self._file}: damaged: {error}", "begin anew: overwrite=True (--overwrite)"
            ) from None
        if whole != data:
            # A line that was being written when the end came; its batch is counted again.
            formats.write_atomically(self._file, whole)
        return lines

    def _tidy(self) -> None:
        """Removes what a killed process left: unlisted parts, temporary files."""
        known = {JOURNAL, *(entry["part"] for entry in self._entries)}
        for entry in self.directory.iterdir():
            if entry.name not in known:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def left(self, sources: list[Entry]) -> list[Entry]:
        """The files that are still to be counted."""
        done = Counter(tuple(file) for entry in self._entries for file in entry["files"])
        left = []
        for source in sources:
            if done[tuple(source.stamp)] > 0:
                done[tuple(source.stamp)] -= 1
            else:
                left.append(source)
        for path, *_ in done.elements():
            changed = any(path == other.stamp[0] for other in left)
            raise ConfigError(
                f"{path}: "
                + ("changed since it was counted" if changed else "counted, but not in the corpus"),
                "begin anew: overwrite=True (--overwrite)",
            )
        return left

    def add(self, batch: list[Entry], counts: _native.Counts) -> None:
        """Saves the counts of a batch."""
        part = f"part-{len(self._entries):06}.counts"
        counts.save(self.directory / part)
        entry = {"part": part, "files": [source.stamp for source in batch]}
        with open(self._file, "ab") as file:
            file.write(_line(entry))
            file.flush()
            os.fsync(file.fileno())
        self._entries.append(entry)

    def parts(self) -> list[Path]:
        return [self.directory / entry["part"] for entry in self._entries]


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
