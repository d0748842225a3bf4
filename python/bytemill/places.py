"""Places → the sources there: files, directories, globs, URLs, datasets."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from . import _native
from .columns import Columns
from .errors import CorpusError
from .iterables import Dataset, Items, is_dataset
from .piped import STDIN, packing, stdin

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
    return [entry for place in places for entry in _of_place(os.fspath(place), corpus)]


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
    if format in FROM_THE_END:
        raise CorpusError(
            f"stdin: {format} is read from its end, which a pipe does not let one do",
            "write it to a file first",
        )
    return Entry("stdin", format, 0, reader=reader)


def _entry(name: str, corpus: Corpus, reader: Reader | None) -> Entry:
    format = _native.input_format(name, corpus.input_format)
    if reader is None:
        # A missing file is told of here; what is no regular file, by whoever opens it.
        status = os.stat(name)
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
        inside = sorted(
            os.path.join(folder, file)
            for folder, _, files in os.walk(name)
            for file in files
            if not file.startswith(".")
        )
        if not inside:
            raise CorpusError(f"{name}: the directory holds no file")
        return inside
    if os.path.exists(name) or not glob.has_magic(name):
        return [name]
    matches = sorted(m for m in glob.glob(name, recursive=True) if os.path.isfile(m))
    if not matches:
        raise CorpusError(f"{name}: no file matches", "quote the glob only if you mean it as such")
    return matches
