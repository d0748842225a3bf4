"""Places → the sources there: files, directories, globs, URLs, datasets."""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from . import _native
from .columns import Columns
from .errors import CorpusError
from .iterables import Dataset, Items, is_dataset
from .piped import HEAD, STDIN, packing, stdin

if TYPE_CHECKING:
    from .corpus import Corpus

__all__ = ["FROM_THE_END", "Entry", "Reader", "entries", "expand", "is_url", "of_files"]

# What a pipe cannot give: they have their directory, or may have it, at the end.
FROM_THE_END = ("zip", "parquet", "arrow")

# A scheme of one letter would be a drive.
URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:(?://|:)")


class Reader(Protocol):
    """What Rust asks of Python: ranges of bytes (`read_range`, `check`), bytes as they come
    (`begin`, `next_bytes`), or records (`batches`)."""

    size: int
    mtime_ns: int
    version: str


@dataclass(frozen=True)
class Entry:
    """A source of a corpus, as it was when it was listed.

    Attributes:
        name: where it is, as the user said it.
        format: what it holds, such as `"jsonl.gz"`.
        size: its bytes, packed as they are; 0 if that is not known.
        mtime_ns: when it was last changed; 0 if that is not known.
        version: what else tells one version of it from another.
        reader: who reads it; None for a local file.
        range: the bytes or row groups that are meant; None for all.
    """

    name: str
    format: str
    size: int
    mtime_ns: int = 0
    version: str = ""
    reader: Reader | None = None
    range: tuple[int, int] | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is a file of this machine."""
        return self.mtime_ns != 0 and not is_url(self.name)

    @property
    def stamp(self) -> list[str | int]:
        """What tells whether it is still the same."""
        name = os.path.abspath(self.name) if self.is_local else self.name
        return [name, self.size, self.mtime_ns, self.version]

    def part(self, start: int, end: int) -> Entry:
        """Some of it: bytes of a file, row groups of a table."""
        if isinstance(self.reader, Columns):
            # Which row groups are meant, its reader knows.
            reader = self.reader.part(start, end)
            return replace(self, reader=reader, version=reader.version)
        return replace(self, range=(start, end))


def is_url(name: str) -> bool:
    """Whether a place is for `fsspec` to find."""
    return URL.match(name) is not None and not name.startswith("file:")


def entries(corpus: Corpus) -> list[Entry]:
    """The sources of a corpus, in order.

    A string is a path, a glob, a URL, or `-` for stdin; a directory is every file below it but
    hidden ones.
    """
    places = corpus.places
    if is_dataset(places):
        dataset = Dataset(places, corpus.text_field)
        name = f"dataset {dataset.version}"
        return [Entry(name, "arrow", 0, version=dataset.version, reader=dataset)]
    texts = corpus.texts
    if texts is not None:
        return [Entry("texts", "arrow", 0, reader=Items(texts))]
    if isinstance(places, (str, os.PathLike)):
        return list(_of_place(os.fspath(places), corpus))
    if not places:
        raise CorpusError("the corpus is an empty list", "give at least one file")
    for place in places:
        if not isinstance(place, (str, os.PathLike)):
            raise TypeError(
                f"a list as corpus holds paths, not {type(place).__name__}; "
                "for texts, pass an iterator: iter(texts)"
            )
    return [entry for place in places for entry in _of_item(os.fspath(place), corpus)]


def _of_item(name: str, corpus: Corpus) -> Iterator[Entry]:
    """The sources at a place of a list, which may be meant as a text."""
    try:
        yield from _of_place(name, corpus)
    except (OSError, ValueError) as error:
        unheard_of = isinstance(error, FileNotFoundError) or (
            # What is no name at all: a zero byte in it, too long.
            type(error) is ValueError or getattr(error, "errno", None) == errno.ENAMETOOLONG
        )
        if not unheard_of or isinstance(corpus.places, tuple):
            raise
        what = f"{os.strerror(errno.ENOENT)} (a list holds paths; for texts, pass iter(texts))"
        shown = name if len(name) <= 100 else name[:100] + "…"
        raise FileNotFoundError(errno.ENOENT, what, shown) from None


def _of_place(name: str, corpus: Corpus) -> Iterator[Entry]:
    if name == STDIN:
        yield _of_stdin(corpus)
        return
    if is_url(name):
        from . import remote

        for url, reader in remote.find(name):
            yield _entry(url, corpus, reader)
        return
    if name.startswith("file:"):
        from urllib.parse import unquote

        # As RFC 8089 has it; a host is always this one.
        name = unquote(re.sub(r"^file:(//[^/]*)?", "", name))
    for path in expand(name):
        yield _entry(path, corpus, None)


def of_files(paths: Iterable[str], corpus: Corpus) -> list[Entry]:
    """Arrow files, to be read as the corpus says."""
    arrow = replace(corpus, places=(), input_format="arrow")
    return [_entry(path, arrow, None) for path in paths]


def _of_stdin(corpus: Corpus) -> Entry:
    reader = stdin()
    format = _native.input_format("stdin" + packing(reader.head), corpus.input_format)
    if "." not in format and format not in FROM_THE_END:
        format += packing(reader.head)
    if format in FROM_THE_END:
        raise CorpusError(
            f"stdin: {format} is read from its end, which a pipe does not let one do",
            "write it to a file first",
        )
    return Entry("stdin", format, 0, reader=reader)


def _format(name: str, corpus: Corpus, reader: Reader | None) -> str:
    """What a source holds, by its name or as the corpus says."""
    told, named = corpus.input_format, _native.input_format(name)
    format = _native.input_format(name, told)
    ending = os.path.splitext(named)[1]
    if told is None or not ending or "." in format or format in FROM_THE_END:
        return format
    # What it holds was said, but not whether that is packed, as its name says.
    if reader is None:
        with open(name, "rb") as file:
            head = file.read(HEAD)
    else:
        head = reader.fetch(0, min(HEAD, reader.size))  # type: ignore[attr-defined]
    return format + packing(head)


def _entry(name: str, corpus: Corpus, reader: Reader | None) -> Entry:
    format = _format(name, corpus, reader)
    if reader is None:
        status = os.stat(name)
        if not stat.S_ISREG(status.st_mode):
            # It has no size, and opening it may wait for ever.
            raise CorpusError(f"{name}: not a regular file", "a pipe is given as - and by stdin")
        size, mtime_ns, version = status.st_size, status.st_mtime_ns, ""
    else:
        size, mtime_ns, version = reader.size, reader.mtime_ns, reader.version
    entry = Entry(name, format, size, mtime_ns, version, reader)
    if format in ("parquet", "arrow"):
        columns = Columns(entry, corpus.text_field, corpus.on_error)
        return replace(entry, reader=columns)
    return entry


def expand(name: str) -> list[str]:
    """The files that a local path, glob or directory means."""
    if os.path.isdir(name):
        inside = sorted(_below(name))
        if not inside:
            raise CorpusError(f"{name}: the directory holds no file")
        return inside
    if os.path.exists(name) or not glob.has_magic(name):
        return [name]
    matches = sorted(m for m in glob.glob(name, recursive=True) if os.path.isfile(m))
    if not matches:
        raise CorpusError(f"{name}: no file matches", "quote the glob only if you mean it as such")
    return matches


def _below(directory: str) -> Iterator[str]:
    """The files below a directory, links followed, but for what is hidden."""

    def fail(error: OSError) -> None:
        raise error  # a directory that may not be read is not an empty one

    above: dict[str, tuple[str, ...]] = {directory: ()}
    for folder, folders, files in os.walk(directory, onerror=fail, followlinks=True):
        # A link to a directory that it lies in has no end.
        path = (*above.pop(folder), os.path.realpath(folder))
        folders[:] = [
            inner
            for inner in folders
            if not inner.startswith(".")
            and os.path.realpath(os.path.join(folder, inner)) not in path
        ]
        above.update((os.path.join(folder, inner), path) for inner in folders)
        for file in files:
            if not file.startswith("."):
                yield os.path.join(folder, file)
