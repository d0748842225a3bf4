"""What comes by stdin: once, from front to back, of a length that nobody knows."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from queue import Empty, Queue
from typing import BinaryIO

from ..errors import ConfigError, CorpusError

__all__ = ["HEAD", "STDIN", "Piped", "packing", "stdin"]

# What stands for it among places.
STDIN = "-"
# Read at a time, and so many blocks ahead.
BLOCK = 1 << 20
AHEAD = 4
# How packed bytes begin.
MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\0": ".xz", b"BZh": ".bz2"}
HEAD = max(map(len, MAGIC))


class Piped:
    """Bytes for Rust to take as they come.

    A thread of its own reads ahead, so that reading and work overlap, and so that whoever waits
    for bytes that do not come can be stopped.

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
        # What Python has in its buffer comes first, and is all in that then.
        first = getattr(file, "read1", file.read)
        while len(self.head) < HEAD and (some := first(BLOCK)):
            self.head += some

    def _read(self) -> bytes:
        # Below the buffer, whose lock a thread that waits must not hold when the program ends.
        # What is no file of the system (in tests, in notebooks) has no such number.
        with contextlib.suppress(io.UnsupportedOperation, AttributeError):
            return os.read(self._file.fileno(), BLOCK)
        return self._file.read(BLOCK)

    def begin(self) -> None:
        """Begins to read; a second time is an error."""
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
        """The next bytes, none at the end; None if there are none after so many seconds."""
        try:
            block = self._queue.get(timeout=patience)
        except Empty:
            return None
        if isinstance(block, BaseException):
            raise block
        return block


def stdin() -> Piped:
    """What comes by stdin."""
    found = Piped(sys.stdin.buffer)
    if not found.head:
        raise CorpusError("stdin contains no text", "is anything piped into it?")
    return found


def packing(head: bytes) -> str:
    """The ending that a file with these first bytes should have; for text, none."""
    return next((ending for magic, ending in MAGIC.items() if head.startswith(magic)), "")
