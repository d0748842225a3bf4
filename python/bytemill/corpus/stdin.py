"""Reading a corpus from stdin: once, in order, of unknown length."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from queue import Empty, Queue
from typing import BinaryIO

from ..errors import ConfigError, CorpusError

__all__ = ["HEAD", "STDIN", "Piped", "compression_suffix", "stdin"]

# The place that means stdin.
STDIN = "-"
# Bytes per block, and number of blocks read ahead.
BLOCK = 1 << 20
AHEAD = 4
# Magic bytes of compression formats.
MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\0": ".xz", b"BZh": ".bz2"}
HEAD = max(map(len, MAGIC))


class Piped:
    """A byte stream for Rust.

    A separate thread reads ahead, so that reading and work overlap, and so that a caller waiting
    for input can be interrupted.

    Attributes:
        size: always 0.
        mtime_ns: always 0.
        version: always empty.
        head: the first few bytes.
    """

    def __init__(self, file: BinaryIO, name: str = "stdin") -> None:
        self._file, self._name, self._begun = file, name, False
        self._queue: Queue[bytes | BaseException] = Queue(AHEAD)
        self.size = self.mtime_ns = 0
        self.version = ""
        self.head = b""
        # The content of Python's buffer comes first, and empties it.
        first = getattr(file, "read1", file.read)
        while len(self.head) < HEAD and (some := first(BLOCK)):
            self.head += some

    def _read(self) -> bytes:
        # Unbuffered: a waiting thread must not hold the buffer's lock when the program exits.
        # Objects that are not system files (in tests and notebooks) have no descriptor.
        with contextlib.suppress(io.UnsupportedOperation, AttributeError):
            return os.read(self._file.fileno(), BLOCK)
        return self._file.read(BLOCK)

    def begin(self) -> None:
        """Starts reading; a second call is an error."""
        if self._begun:
            raise ConfigError(
                f"{self._name} has been read and cannot be read again", "write it to a file"
            )
        self._begun = True
        threading.Thread(target=self._run, name="bytemill-stdin", daemon=True).start()

    def _run(self) -> None:
        try:
            block = self.head
            while block:
                self._queue.put(block)
                block = self._read()
            self._queue.put(b"")
        except BaseException as error:
            self._queue.put(error)

    def next_bytes(self, patience: float) -> bytes | None:
        """The next bytes, empty at the end; None if none arrive within `patience` seconds."""
        try:
            block = self._queue.get(timeout=patience)
        except Empty:
            return None
        if isinstance(block, BaseException):
            raise block
        return block


def stdin() -> Piped:
    """Standard input as a byte stream."""
    found = Piped(sys.stdin.buffer)
    if not found.head:
        raise CorpusError("stdin contains no text", "is anything piped into it?")
    return found


def compression_suffix(head: bytes) -> str:
    """The file extension for compressed data with these first bytes; empty for text."""
    return next((ending for magic, ending in MAGIC.items() if head.startswith(magic)), "")
