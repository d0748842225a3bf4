"""Reading JSON files that may be damaged or hostile: every problem raises one kind of error.

Cost is proportional to the size of the file, which is limited. Numbers are finite and of bounded
length, so callers need to check only types and ranges.
"""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from .errors import BytemillError

__all__ = ["parse_object", "read_object"]

MAX_BYTES = 16 << 20
# More digits than any valid number has, and few enough to parse quickly.
MAX_DIGITS = 64


def read_object(
    path: Path, error: type[BytemillError], hint: str | None = None, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        path: the file; if it is missing, Python's `FileNotFoundError` is raised.
        error: raised for all other problems.
        hint: the remedy to report with it.
        max_bytes: larger files are refused without reading them.
    """
    found = os.stat(path)
    # Opening a FIFO blocks until it has a writer; a device may never end.
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{path}: not a regular file", hint)
    if found.st_size > max_bytes:
        raise error(f"{path}: must be ≤ {max_bytes:,} bytes, is {found.st_size:,}", hint)
    with open(path, "rb") as file:
        return parse_object(file.read(max_bytes), str(path), error, hint)


def parse_object(
    data: bytes | str,
    name: str,
    error: type[BytemillError],
    hint: str | None = None,
    *,
    surrogates: bool = False,
) -> dict[str, Any]:
    """Parses a JSON object; `name` identifies its origin in errors.

    Strings may contain half of a surrogate pair only with `surrogates`.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        found = json.loads(
            text, parse_constant=_refused, parse_float=_finite, parse_int=_whole_number
        )
        if not surrogates and ("\\ud" in text or "\\uD" in text):
            json.dumps(found, ensure_ascii=False).encode()  # raises if half of a surrogate pair
    except RecursionError:
        raise error(f"{name}: damaged, or not JSON: nested too deeply", hint) from None
    except ValueError as failed:
        raise error(f"{name}: damaged, or not JSON: {str(failed)[:200]}", hint) from None
    if not isinstance(found, dict):
        raise error(f"{name}: must be a JSON object, is {type(found).__name__}", hint)
    return found


def _refused(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:MAX_DIGITS]} is out of range")
    return number


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)
