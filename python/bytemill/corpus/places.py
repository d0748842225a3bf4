"""Finding the sources of a corpus: files, directories, globs, URLs, datasets."""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from .. import _native
from ..errors import CorpusError
from .choosing import Candidate, SkippedFile, chosen, describe, warn_of_skipped_files
from .columns import Columns
from .iterables import Dataset, Items, is_dataset
from .names import local_path, redacted, shown
from .stdin import HEAD, STDIN, compression_suffix, stdin

if TYPE_CHECKING:
    from .argument import Corpus

__all__ = [
    "FROM_THE_END",
    "Entry",
    "Listing",
    "Reader",
    "entries",
    "expand",
    "is_url",
    "listing",
    "of_files",
]

# Formats that a pipe cannot provide: their directory is, or may be, at the end of the file.
FROM_THE_END = ("zip", "parquet", "arrow")

# A scheme of one letter is a Windows drive.
URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:(?://|:)")
# The first "**" of a glob that is a whole component, with the separators around it.
RECURSIVE = re.compile(r"(^|{0})\*\*(?:{0}|$)".format(f"[{re.escape(os.sep + (os.altsep or ''))}]"))


class Reader(Protocol):
    """What Rust calls in Python: byte ranges (`read_range`, `check`), a byte stream (`begin`,
    `next_bytes`), or records (`batches`)."""

    size: int
    mtime_ns: int
    version: str


@dataclass(frozen=True)
class Entry:
    """A source of a corpus, as it was when it was listed.

    Attributes:
        name: its path or URL as given by the user, without credentials: valid text, to be stored
            and displayed.
        format: its format, such as `"jsonl.gz"`.
        size: its size in bytes, compressed as it is; 0 if unknown.
        mtime_ns: its modification time; 0 if unknown.
        version: further identification of its version.
        reader: the Python object that reads it; None for a local file.
        range: the bytes or row groups to read; None for all.
        path: the path of a local file.
    """

    name: str
    format: str
    size: int
    mtime_ns: int = 0
    version: str = ""
    reader: Reader | None = None
    range: tuple[int, int] | None = None
    path: str | None = None

    @property
    def stamp(self) -> list[str | int]:
        """Values that change if the source changes."""
        return [self.anywhere().name, self.size, self.mtime_ns, self.version]

    @property
    def facts(self) -> dict[str, Any]:
        """The source as stored in a manifest, to detect changes."""
        of: Any = self if self.reader is None else self.reader
        further = {
            "version": of.version,
            "format": self.format if self.format != "text" else "",
            "range": self.range and list(self.range),
        }
        return {"path": self.name, "size": of.size, "mtime_ns": of.mtime_ns} | {
            name: value for name, value in further.items() if value
        }

    def anywhere(self) -> Entry:
        """The same source with an absolute path."""
        if self.path is None:
            return self
        path = os.path.abspath(self.path)
        return replace(self, name=shown(path), path=path)

    def part(self, start: int, end: int) -> Entry:
        """A part of it: bytes of a file, row groups of a table."""
        if isinstance(self.reader, Columns):
            # The reader knows the range of row groups.
            reader = self.reader.part(start, end)
            return replace(self, reader=reader, version=reader.version)
        return replace(self, range=(start, end))


@dataclass(frozen=True)
class Listing:
    """The sources of a corpus.

    Attributes:
        entries: the sources, in order.
        skipped: skipped files of its directories.
    """

    entries: list[Entry]
    skipped: list[SkippedFile]

    @property
    def file_bytes(self) -> int:
        """Total size of the sources on disk in bytes; unknown sizes count as 0."""
        return sum(entry.size for entry in self.entries)


def is_url(name: str) -> bool:
    """Whether a place is a URL for `fsspec`."""
    return URL.match(name) is not None and not name.startswith("file:")


def entries(corpus: Corpus) -> list[Entry]:
    """The sources of a corpus, in order; warns about skipped files."""
    found = listing(corpus)
    warn_of_skipped_files(found.skipped)
    return found.entries


def listing(corpus: Corpus) -> Listing:
    """The sources of a corpus, in order, and the skipped files.

    A string is a path, a glob, a URL, or `-` for stdin; `choosing` decides which files of a
    directory are read.
    """
    places = corpus.places
    found = Listing([], [])
    if is_dataset(places):
        dataset = Dataset(places, corpus.text_field)
        name = f"dataset {dataset.version}"
        found.entries.append(Entry(name, "arrow", 0, version=dataset.version, reader=dataset))
        return found
    texts = corpus.texts
    if texts is not None:
        found.entries.append(Entry("texts", "arrow", 0, reader=Items(texts)))
        return found
    if isinstance(places, (str, os.PathLike)):
        found.entries.extend(_of_place(os.fspath(places), corpus, found.skipped))
        return found
    given = cast("Sequence[str | os.PathLike[str] | Entry]", places)
    if not given:
        raise CorpusError("the corpus is an empty list", "give at least one file")
    for place in given:
        if not isinstance(place, (str, os.PathLike, Entry)):
            raise TypeError(
                f"a corpus list must contain paths, not {type(place).__name__}; "
                "for texts, pass an iterator: iter(texts)"
            )
    for place in given:
        if isinstance(place, Entry):
            found.entries.append(place)
        else:
            found.entries.extend(_of_item(os.fspath(place), corpus, found.skipped))
    return found


def _of_item(name: str, corpus: Corpus, skipped: list[SkippedFile]) -> Iterator[Entry]:
    """The sources of a list item, which the caller may have meant as a text."""
    try:
        yield from _of_place(name, corpus, skipped)
    except (OSError, ValueError) as error:
        unheard_of = isinstance(error, FileNotFoundError) or (
            # Not a valid path: it contains a zero byte, or is too long.
            type(error) is ValueError or getattr(error, "errno", None) == errno.ENAMETOOLONG
        )
        if not unheard_of or isinstance(corpus.places, tuple):
            raise
        what = f"{os.strerror(errno.ENOENT)} (a list contains paths; for texts, pass iter(texts))"
        name = redacted(name)
        raise FileNotFoundError(
            errno.ENOENT, what, name if len(name) <= 100 else name[:100] + "…"
        ) from None


def _of_place(name: str, corpus: Corpus, skipped: list[SkippedFile]) -> Iterator[Entry]:
    if name == STDIN:
        yield _of_stdin(corpus)
        return
    if is_url(name):
        from . import remote

        def choose(files: list[Candidate], names: list[str], by_globs_alone: bool) -> list[int]:
            return _chosen(redacted(name), files, names, corpus, skipped, by_globs_alone)

        for url, reader in remote.find(name, choose):
            yield _entry(url, corpus, reader)
        return
    if name.startswith("file:"):
        name = local_path(name)
    for path in _local_files(name, corpus, skipped):
        yield _entry(path, corpus, None)


def of_files(paths: Iterable[str], corpus: Corpus) -> list[Entry]:
    """Arrow files as sources, with the options of the corpus."""
    arrow = replace(corpus, places=(), input_format="arrow")
    return [_entry(path, arrow, None) for path in paths]


def _of_stdin(corpus: Corpus) -> Entry:
    reader = stdin()
    format = _native.input_format("stdin" + compression_suffix(reader.head), corpus.input_format)
    if "." not in format and format not in FROM_THE_END:
        format += compression_suffix(reader.head)
    if format in FROM_THE_END:
        raise CorpusError(
            f"stdin: {format} must be read from its end, which a pipe does not allow",
            "write it to a file first",
        )
    return Entry("stdin", format, 0, reader=reader)


def _format(name: str, corpus: Corpus, reader: Reader | None) -> str:
    """The format of a source, by its name or set by the corpus."""
    telling = shown(name) if reader is None else _telling_part(name)
    given, named = corpus.input_format, _native.input_format(telling)
    format = _native.input_format(telling, given)
    ending = os.path.splitext(named)[1]
    if given is None or not ending or "." in format or format in FROM_THE_END:
        return format
    # The format was set without a compression, but the name has one.
    fetch = (lambda n: _head(name, n)) if reader is None else reader.fetch_head  # type: ignore[attr-defined]
    return format + compression_suffix(fetch(HEAD))


def _telling_part(url: str) -> str:
    """The part of a URL that names a file: the first link of a chain, without the query."""
    first = next((link for link in url.split("::") if "://" in link), url)
    return re.split(r"[?#]", first)[0] if first.lower().startswith("http") else first


def _head(path: str, n: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(n)


def _entry(name: str, corpus: Corpus, reader: Reader | None) -> Entry:
    """The source at a local path, or at a URL with its reader."""
    if reader is None:
        status = os.stat(name)
        if not stat.S_ISREG(status.st_mode):
            # It has no size, and opening it may block forever.
            raise CorpusError(f"{shown(name)}: not a regular file", "pass a pipe as stdin: -")
        format, size, mtime_ns = _format(name, corpus, None), status.st_size, status.st_mtime_ns
        entry = Entry(shown(name), format, size, mtime_ns, path=name)
    else:
        format = _format(name, corpus, reader)
        size, mtime_ns, version = reader.size, reader.mtime_ns, reader.version
        entry = Entry(redacted(name), format, size, mtime_ns, version, reader)
    if format in ("parquet", "arrow"):
        columns = Columns(entry, corpus.text_field, corpus.on_error)
        return replace(entry, reader=columns)
    return entry


def expand(name: str) -> list[str]:
    """All files of a local path, glob or directory, whatever their format."""
    if os.path.isdir(name):
        inside = sorted(_below(name))
        if not inside:
            raise CorpusError(f"{shown(name)}: the directory contains no files")
        return inside
    if os.path.exists(name) or not glob.has_magic(name):
        return [name]
    matches = sorted({match for match in _matches(name) if os.path.isfile(match)})
    if not matches:
        raise CorpusError(f"{shown(name)}: no file matches", "check the path and the glob")
    return matches


def _local_files(name: str, corpus: Corpus, skipped: list[SkippedFile]) -> list[str]:
    """The files of a local place that are read."""
    paths = expand(name)
    is_directory = os.path.isdir(name)
    if paths == [name] or not (is_directory or corpus.include or corpus.exclude):
        return paths
    start = name if is_directory else ""
    files = [_candidate(path, start) for path in paths]
    names = [shown(path) for path in paths]
    numbers = _chosen(shown(name), files, names, corpus, skipped, not is_directory)
    return [paths[number] for number in numbers]


def _candidate(path: str, start: str) -> Candidate:
    below = shown(os.path.relpath(path, start) if start else path).replace(os.sep, "/")
    status = os.stat(path)
    # A file that is not regular has no size, and opening it may block forever.
    head = (lambda n: _head(path, n)) if stat.S_ISREG(status.st_mode) else None
    return Candidate(below, status.st_size if head else None, head)


def _chosen(
    place: str,
    files: Sequence[Candidate],
    names: Sequence[str],
    corpus: Corpus,
    skipped: list[SkippedFile],
    by_globs_alone: bool,
) -> list[int]:
    """The indices of the files of a place that are read; the others are added to `skipped`."""
    reasons = chosen(
        files,
        corpus.include,
        corpus.exclude,
        format_is_set=corpus.input_format is not None,
        by_globs_alone=by_globs_alone,
    )
    here = [SkippedFile(name, reason) for name, reason in zip(names, reasons) if reason is not None]
    if len(here) == len(files):
        raise CorpusError(
            f"{place}: all of its files are skipped: {describe(here)}",
            "include= and exclude= select files by name",
        )
    skipped += here
    return [number for number, reason in enumerate(reasons) if reason is None]


def _matches(pattern: str) -> Iterator[str]:
    """The paths that match a glob. `glob` itself would follow links that lead back, in `**`."""
    found = RECURSIVE.search(pattern)
    if found is None:
        yield from glob.iglob(pattern)
        return
    head, tail = pattern[: found.start()] + found[1], pattern[found.end() :]
    for start in glob.glob(head) if head else ["."]:
        for folder, _ in _folders(start):
            inside = folder if head else os.path.relpath(folder).removeprefix(".")
            yield from _matches(os.path.join(glob.escape(inside), tail or "*"))


def _below(directory: str) -> Iterator[str]:
    """The files below a directory, following links, without hidden ones."""
    for folder, files in _folders(directory):
        for file in files:
            if not file.startswith("."):
                yield os.path.join(folder, file)


def _folders(directory: str) -> Iterator[tuple[str, list[str]]]:
    """A directory and those below it, following links, without hidden ones; and their files."""

    def fail(error: OSError) -> None:
        raise error  # an unreadable directory must not count as empty

    above: dict[str, tuple[str, ...]] = {directory: ()}
    for folder, folders, files in os.walk(directory, onerror=fail, followlinks=True):
        # A link to a directory that contains it would recurse forever.
        path = (*above.pop(folder), os.path.realpath(folder))
        folders[:] = [
            inner
            for inner in folders
            if not inner.startswith(".")
            and os.path.realpath(os.path.join(folder, inner)) not in path
        ]
        above.update((os.path.join(folder, inner), path) for inner in folders)
        yield folder, files
