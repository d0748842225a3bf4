"""Remote files, through `fsspec`: read in ranges, retried on failure, never downloaded whole.

It has its own block cache. Those of fsspec (`BlockCache`, `BackgroundBlockCache`, 2026.9.0) belong
to one open file and do not share requests among threads: four threads that read the same 16 blocks
in order, at 20 ms per request, made 64 requests with either and 16 with this one. It also bounds
the memory of all files together, where theirs bound each file.
"""

from __future__ import annotations

import errno
import glob
import http.client
import io
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from ..errors import CorpusError, MissingPackageError, require
from .choosing import Candidate
from .names import redacted

__all__ = ["RemoteFile", "find"]

# Attempts per request, and seconds before the first retry, doubled for each further one.
ATTEMPTS = 6
FIRST_WAIT = 0.25
# Files up to this size are read whole from servers without range requests.
WHOLE = 32 << 20
# Bytes per block, number of blocks cached for all files together, and number of blocks prefetched.
BLOCK = 8 << 20
HELD = 24
AHEAD = 2
# Errors that a retry cannot fix.
FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError)
# HTTP statuses below 500 that are worth a retry.
PASSING = (408, 425, 429)

T = TypeVar("T")


def find(
    url: str, choose: Callable[[list[Candidate], list[str], bool], list[int]] | None = None
) -> Iterator[tuple[str, RemoteFile]]:
    """The files of a URL, which may be a glob or a directory: their URLs and readers.

    Args:
        url: the URL.
        choose: returns the indices of the files to read, given the paths and names of the files
            of a directory or a glob (the last argument).
    """
    system, path = _file_system(url)
    name = redacted(url)
    is_glob = _has_magic(system, path)
    if is_glob:
        paths = _once(name, lambda: sorted(p for p in system.glob(path) if not system.isdir(p)))
        if not paths:
            raise CorpusError(f"{name}: no file matches")
        files = [Candidate(one) for one in paths]
    else:
        info = _with_retries(name, lambda: system.info(path))
        if info.get("type") != "directory":
            yield url, RemoteFile(system, path, url, info)
            return
        start = len(path.rstrip("/"))
        found = _once(name, lambda: system.find(path, detail=True))
        paths = [p for p in sorted(found) if "/." not in p[start:]]
        if not paths:
            raise CorpusError(f"{name}: the directory contains no files")
        files = [Candidate(one[start:].lstrip("/"), found[one].get("size")) for one in paths]
    urls = [str(system.unstrip_protocol(one)) for one in paths]
    numbers = range(len(urls))
    for number in numbers if choose is None else choose(files, list(map(redacted, urls)), is_glob):
        one, full = paths[number], urls[number]
        info = _with_retries(redacted(full), partial(system.info, one))
        yield full, RemoteFile(system, one, full, info)


def _has_magic(system: Any, path: str) -> bool:
    protocols = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    if "http" in protocols or "https" in protocols:
        # In these schemes a question mark starts a query, which may contain anything.
        return any(sign in path.split("?")[0] for sign in "*[")
    return glob.has_magic(path)


def _file_system(url: str) -> tuple[Any, str]:
    name = redacted(url)
    fsspec = require("fsspec.core", f"{name}: a URL", extra="remote")
    try:
        system, path = fsspec.url_to_fs(url)
    except ImportError as error:
        raise MissingPackageError(
            f"{name}: the fsspec driver is not installed: {redacted(str(error))}"
        ) from None
    except ValueError as error:
        raise CorpusError(
            f"{name}: {redacted(str(error))}", "fsspec does not support this kind of URL"
        ) from None
    return system, path


class RemoteFile:
    """A remote file, for Rust to read in ranges.

    Attributes:
        name: its URL without credentials, for messages.
        size: its size in bytes.
        mtime_ns: always 0; `version` is used instead.
        version: the server's identification of the version (ETag and the like).
    """

    def __init__(self, system: Any, path: str, url: str, info: dict[str, Any]) -> None:
        self._system, self._path, self._url = system, path, url
        self.name = redacted(url)
        if info.get("size") is None:
            raise CorpusError(
                f"{self.name}: the server does not report its size", "download the file first"
            )
        self.size = int(info["size"])
        self.mtime_ns = 0
        self.version = _version(info)
        self._whole: bytes | None = None

    def read_range(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, through the block cache.

        Readers go forward through the file in steps too small for a request each.
        """
        first, last = start // BLOCK, max(end - 1, start) // BLOCK
        parts = [_blocks.get(self, number) for number in range(first, last + 1)]
        joined = parts[0] if len(parts) == 1 else b"".join(parts)
        return joined[start - first * BLOCK : end - first * BLOCK]

    def fetch(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, bypassing the cache."""
        if self._whole is None:
            data: bytes = _with_retries(
                self.name, lambda: self._system.cat_file(self._path, start=start, end=end)
            )
            if len(data) == end - start:
                return data
            # Not every web server supports range requests.
            if len(data) != self.size or self.size > WHOLE:
                raise CorpusError(
                    f"{self.name}: requested bytes {start} to {end}, the server sent {len(data)}",
                    "it may not support range requests: download the file first",
                )
            self._whole = data
        return self._whole[start:end]

    def fetch_head(self, n: int) -> bytes:
        """The first bytes, at most `n`."""
        return self.fetch(0, min(n, self.size))

    def check(self) -> None:
        """Raises a `CorpusError` if the file has changed."""
        info = _with_retries(self.name, lambda: self._system.info(self._path))
        if info.get("size") != self.size or _version(info) != self.version:
            raise CorpusError(
                f"{self.name}: changed since the run started",
                "start over: overwrite=True",
            )

    def key(self, number: int) -> tuple[str, str, int]:
        """The cache key of a block."""
        return self._url, self.version, number

    def open(self) -> RangeFile:
        """A Python file object with its own position; those of `fsspec` may share one."""
        return RangeFile(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, (self._url, self.size, self.version)


class _Blocks:
    """A cache of blocks, including those being fetched."""

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
            # Not cached, so that the next reader tries again.
            with self._lock:
                self._found.pop(file.key(number), None)
            raise
        return data

    def _ask(self, file: RemoteFile, number: int) -> Any:
        key = file.key(number)
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
    """A remote file as a Python file object."""

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
    # Only the first that exists: listing a folder may return fewer fields than a single file.
    known = ("ETag", "etag", "blob_id", "md5Hash", "generation", "VersionId", "last_commit",
             "LastModified", "last_modified", "mtime", "updated", "created")  # fmt: skip
    return next((f"{key}={info[key]}" for key in known if info.get(key) not in (None, "")), "")


def _with_retries(name: str, request: Callable[[], T]) -> T:
    """Makes a request, with retries."""
    wait = FIRST_WAIT
    for _ in range(ATTEMPTS - 1):
        try:
            return request()
        except Exception as error:
            # Drivers raise the errors of their libraries, so all errors that may be temporary
            # are retried.
            if _is_final(error):
                raise _translated(name, error) from None
        time.sleep(wait)
        wait *= 2
    return _once(name, request)


def _once(name: str, request: Callable[[], T]) -> T:
    """Makes a request once; translates its errors and removes credentials from them."""
    try:
        return request()
    except Exception as error:
        raise _translated(name, error) from None


def _is_final(error: Exception) -> bool:
    status = _status(error)
    if status is not None:
        return 400 <= status < 500 and status not in PASSING
    return isinstance(error, (*FINAL, CorpusError))


def _status(error: BaseException | None) -> int | None:
    """The HTTP status that caused an error; some drivers raise FileNotFoundError for everything."""
    while error is not None:
        status = getattr(error, "status", None)
        if isinstance(status, int):
            return status
        error = error.__cause__ or error.__context__
    return None


def _translated(name: str, error: Exception) -> Exception:
    """A driver's error as a `CorpusError` or a built-in exception."""
    if isinstance(error, (CorpusError, MemoryError)):
        return error
    kinds = {
        FileNotFoundError: errno.ENOENT,
        PermissionError: errno.EACCES,
        IsADirectoryError: errno.EISDIR,
    }
    status, words = _status(error), redacted(str(error))
    for kind, number in kinds.items():
        if isinstance(error, kind) and status in (None, 404, 410):
            return OSError(number, os.strerror(number), name)
    if status is not None:
        words = f"the server answered {status} {http.client.responses.get(status, '')}".strip()
    hint = "check the credentials; a signed URL may have expired" if status in (401, 403) else None
    return CorpusError(f"{name}: {words or type(error).__name__}", hint)
