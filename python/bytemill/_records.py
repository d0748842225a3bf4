"""Records: JSON values with a CRC-32, written whole or not at all. A damaged or edited record is
refused."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

from . import _files
from .errors import BytemillError

__all__ = ["read_record", "write_record"]


def write_record(path: Path, value: Any, *, flush: bool = True) -> None:
    """Writes a record and, if asked to, flushes it to disk."""
    text = json.dumps(value).encode()
    data = b'["%08x", %s]\n' % (_checksum(path, text), text)
    _files.write_atomically(path, data, flush=flush)


def read_record(path: Path, error: type[BytemillError]) -> Any:
    """The value of a record; None if the file does not exist."""
    try:
        data = _files.regular(path, error).read_bytes()
    except FileNotFoundError:
        return None
    found = re.fullmatch(rb'\["([0-9a-f]{8})", (.*)\]\n', data)
    if found is None or _checksum(path, found[2]) != int(found[1], 16):
        raise error(f"{path}: damaged: the checksum does not match", "start over: overwrite=True")
    return json.loads(found[2])


def _checksum(path: Path, text: bytes) -> int:
    """Includes the file name, so that a record under another name is detected as damage."""
    return zlib.crc32(path.name.encode() + text)
