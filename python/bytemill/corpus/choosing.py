"""Which files of a directory are read.

Hidden files (names that start with a dot) are never listed. For the others, in this order:

1. Files that match an `exclude` glob are skipped. With `include` globs, matches are read, whatever
   they are, and everything else is skipped.
2. Empty files of unknown format are skipped.
3. In a directory with records (JSONL, CSV, Parquet, Arrow, archives, anything compressed), these
   and `.txt` files are read. Other files are skipped, and folders whose names start with `_`.
4. In a directory without records, every text file is read.
5. Files about the corpus (README, LICENSE, `_SUCCESS`, checksums) are skipped if there are records
   or `.txt` files in the directory. A directory of source code keeps its README.

If `input_format` is set, all files except those of 2 and 5 are read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import _native

__all__ = ["Candidate", "SkippedFile", "chosen", "describe", "warn_of_skipped_files"]

# Bytes at the start of a file that are checked for being text.
HEAD = 8192
# Number of skipped files that a message names.
NAMED = 5
EXCLUDED, NOT_INCLUDED = "excluded", "not included"


@dataclass(frozen=True)
class Candidate:
    """A file of a directory.

    Attributes:
        path: its path below the directory, with slashes.
        size: its size in bytes; None if unknown.
        head: returns its first bytes; None if they are too expensive to read.
    """

    path: str
    size: int | None = None
    head: Callable[[int], bytes] | None = None


@dataclass(frozen=True)
class SkippedFile:
    """A file of a directory that is not read.

    Attributes:
        name: its path.
        reason: why it is skipped.
    """

    name: str
    reason: str


def chosen(
    files: Sequence[Candidate],
    include: Sequence[str],
    exclude: Sequence[str],
    *,
    format_is_set: bool = False,
    by_globs_alone: bool = False,
) -> list[str | None]:
    """For each file the reason for skipping it; None if it is read.

    Args:
        files: all files of the directory.
        include: globs of files to read.
        exclude: globs of files to skip.
        format_is_set: whether the caller set the format of the files.
        by_globs_alone: apply only the globs, because the files were named explicitly.
    """
    globs = list(include), list(exclude)
    said = [_native.chosen_by(file.path, *globs) for file in files]
    if include or by_globs_alone:
        return [word if word in (EXCLUDED, NOT_INCLUDED) else None for word in said]
    named = [_native.named_format(file.path) for file in files]
    reasons: list[str | None] = [
        word or ("empty" if file.size == 0 and format is None else None)
        for word, file, format in zip(said, files, named)
    ]
    left = [number for number, reason in enumerate(reasons) if reason is None]
    about = {number for number in left if _native.is_about(files[number].path)}
    data = {number for number in left if not (number in about or _is_marked(files[number].path))}
    has_records = format_is_set or any(named[number] not in (None, "text") for number in data)
    has_texts = any(named[number] == "text" for number in data)
    for number in left:
        file = files[number]
        if number in about and (has_records or has_texts):
            reasons[number] = "about the corpus"
        elif has_records and _is_marked(file.path):
            reasons[number] = "in a folder whose name begins with _"
        elif format_is_set or named[number] is not None:
            continue
        elif has_records:
            reasons[number] = "unknown format"
        elif file.head is not None:
            reasons[number] = _native.not_text(file.head(HEAD))
    return reasons


def _is_marked(path: str) -> bool:
    """Whether a file is in a folder such as `_delta_log` or `_temporary`."""
    return any(folder.startswith("_") for folder in path.split("/")[:-1])


def describe(skipped: Sequence[SkippedFile]) -> str:
    """A phrase about skipped files.

    >>> describe([SkippedFile("README.md", "about the corpus"), SkippedFile("a", "empty")])
    'skipped 2 files: README.md (about the corpus), a (empty)'
    """
    named = ", ".join(f"{file.name} ({file.reason})" for file in skipped[:NAMED])
    more = f" and {len(skipped) - NAMED:,} more" if len(skipped) > NAMED else ""
    return f"skipped {len(skipped):,} file{'' if len(skipped) == 1 else 's'}: {named}{more}"


def warn_of_skipped_files(skipped: Sequence[SkippedFile]) -> None:
    """Warns about skipped files, except those skipped by the caller's globs."""
    unexpected = [file for file in skipped if file.reason not in (EXCLUDED, NOT_INCLUDED)]
    if unexpected:
        warnings.warn(
            f"{describe(unexpected)}; include= and exclude= select by name",
            UserWarning,
            stacklevel=4,
        )
