"""Files elsewhere, by way of `fsspec`: read in ranges, again if that fails, and never whole."""

from __future__ import annotations

import glob
import io
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from .errors import CorpusError

__all__ = ["RemoteFile", "find"]

# How often a range is asked for, and how many seconds the first wait is; each is twice the last.
ATTEMPTS = 6
FIRST_WAIT = 0.25
# A server that gives whole files only is borne with up to this size.
WHOLE = 32 << 20
# Files are fetched in blocks of this many bytes, of which so many are held, in all files together,
# and so many are fetched before anybody asks for them.
BLOCK = 8 << 20
HELD = 24
AHEAD = 2
# What will not be otherwise the next time.
FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError)


def find(url: str) -> Iterator[tuple[str, RemoteFile]]:
    """The files that a URL means, a glob or a directory among them: their URLs and readers."""
    system, path = _file_system(url)
    if glob.has_magic(path):
        names = sorted(name for name in system.glob(path) if not system.isdir(name))
        if not names:
            raise CorpusError(f"{url}: no file matches")
    else:
        info = _again(lambda: system.info(path))
        if info.get("type") != "directory":
            yield url, RemoteFile(system, path, url, info)
            return
        names = [n for n in sorted(system.find(path)) if "/." not in n[len(path.rstrip("/")) :]]
        if not names:
            raise CorpusError(f"{url}: the directory holds no file")
    for name in names:
        full = str(system.unstrip_protocol(name))
        yield full, RemoteFile(system, name, full, _again(lambda name=name: system.info(name)))


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise CorpusError(
            f"{url}: a URL needs fsspec, which is not installed", "pip install 'bytemill[remote]'"
        ) from None
    try:
        system, path = url_to_fs(url)
    except ImportError as error:
        raise CorpusError(f"{url}: its driver is not installed: {error}") from None
    except ValueError as error:
        raise CorpusError(f"{url}: {error}", "fsspec does not know this kind of URL") from None
    return system, path


class RemoteFile:
    """A file elsewhere, for Rust to read in ranges.

    Attributes:
        size: its bytes.
        mtime_ns: always 0: what it is now, `version` tells.
        version: what its server says to tell one version from another.
    """

    def __init__(self, system: Any, path: str, url: str, info: dict[str, Any]) -> None:
        self._system, self._path, self.url = system, path, url
        if info.get("size") is None:
            raise CorpusError(
                f"{url}: its server does not say how large it is", "fetch the file first"
            )
        self.size = int(info["size"])
        self.mtime_ns = 0
        self.version = _version(info)
        self._whole: bytes | None = None

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, by way of the blocks that they lie in.

        Whoever asks goes forward through the file, in smaller steps than are worth a request.
        """
        first, last = start // BLOCK, max(end - 1, start) // BLOCK
        parts = [_blocks.get(self, number) for number in range(first, last + 1)]
        joined = parts[0] if len(parts) == 1 else b"".join(parts)
        return joined[start - first * BLOCK : end - first * BLOCK]

    def fetch(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, as they are now."""
        if self._whole is None:
            data: bytes = _again(lambda: self._system.cat_file(self._path, start=start, end=end))
            if len(data) == end - start:
                return data
            # Not every web server knows of ranges.
            if len(data) != self.size or self.size > WHOLE:
                raise CorpusError(
                    f"{self.url}: asked for bytes {start} to {end}, its server gave {len(data)}",
                    "it may not know of ranges: fetch the file first",
                )
            self._whole = data
        return self._whole[start:end]

    def check(self) -> None:
        """Raises a `CorpusError` if the file is not what it was."""
        info = _again(lambda: self._system.info(self._path))
        if info.get("size") != self.size or _version(info) != self.version:
            raise CorpusError(
                f"{self.url}: changed since the work on it began",
                "begin anew: overwrite=True",
            )

    def open(self) -> RangeFile:
        """As a file of Python's, with a place of its own: those of `fsspec` may share theirs."""
        return RangeFile(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, (self.url, self.size, self.version)


class _Blocks:
    """Blocks of files that were fetched last, or are on their way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: Any = None
        self._found: OrderedDict[tuple[str, str, int], Any] = OrderedDict()

    def get(self, file: RemoteFile, number: int) -> bytes:
        with self._lock:
            wanted = self._ask(file, number)
            for ahead in range(number + 1, number + 1 + AHEAD):
                if ahead * BLOCK < file.size:
                    self._ask(file, ahead)
            while len(self._found) > HELD:
                self._found.popitem(last=False)
        try:
            data: bytes = wanted.result()
        except BaseException:
            # The next one who asks may have more luck.
            with self._lock:
                self._found.pop((file.url, file.version, number), None)
            raise
        return data

    def _ask(self, file: RemoteFile, number: int) -> Any:
        key = (file.url, file.version, number)
        if key not in self._found:
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(2 + 2 * AHEAD, "bytemill-remote")
            start, end = number * BLOCK, min((number + 1) * BLOCK, file.size)
            self._found[key] = self._pool.submit(file.fetch, start, end)
        self._found.move_to_end(key)
        return self._found[key]


_blocks = _Blocks()


class RangeFile(io.RawIOBase):
    """A file elsewhere as one of Python's."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._file.size if size is None or size < 0 else min(self._at + size, self._file.size)
        if end <= self._at:
            return b""
        data = self._file.fetch(self._at, end)
        self._at = end
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _found(url: str, size: int, version: str) -> RemoteFile:
    """The same file in another process."""
    system, path = _file_system(url)
    file = RemoteFile(system, path, url, {"size": size})
    file.version = version
    return file


def _version(info: dict[str, Any]) -> str:
    # The first that is there: of the others, a server that lists a folder may say less than one
    # that is asked for a file.
    known = ("ETag", "etag", "blob_id", "md5Hash", "generation", "VersionId", "last_commit",
             "LastModified", "last_modified", "mtime", "updated", "created")  # fmt: skip
    return next((f"{key}={info[key]}" for key in known if info.get(key) not in (None, "")), "")


def _again(request: Any) -> Any:
    """Asks, and asks again after a while if there was no answer."""
    wait = FIRST_WAIT
    for attempt in range(ATTEMPTS):
        try:
            return request()
        except FINAL:
            raise
        except Exception:
            # Drivers raise whatever their libraries do; what they cannot do at all they repeat.
            if attempt + 1 == ATTEMPTS:
                raise
            time.sleep(wait)
            wait *= 2
