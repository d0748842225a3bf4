"""Which files of a directory belong to a corpus.

Hidden files (names that begin with a dot) were never listed. Of the others, in this order:

1. What an `exclude` glob names is skipped. With `include` globs, what they name is read, whatever
   it is, and everything else is skipped.
2. Empty files whose names say nothing of a format are skipped.
3. A directory with records (JSONL, CSV, Parquet, Arrow, archives, anything compressed) gives these
   and `.txt` files. Files of other names are skipped, and folders whose names begin with `_`.
4. A directory without records gives every file that is text.
5. Files about the corpus (README, LICENSE, `_SUCCESS`, checksums) are skipped where there are
   records or `.txt` files beside them. A directory of source code keeps its README.

If `input_format` says what files hold, all but those of 2 and 5 are read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import _native

__all__ = ["Candidate", "SkippedFile", "chosen", "describe", "warn_of_skipped_files"]

# Bytes of a file that tell whether it is text.
HEAD = 8192
# Files that a note names.
NAMED = 5
EXCLUDED, NOT_INCLUDED = "excluded", "not included"


@dataclass(frozen=True)
class Candidate:
    """A file of a directory.

    Attributes:
        path: where it is below the directory, with slashes.
        size: its bytes; None if they are not known.
        head: gives its first bytes; None if these are too expensive to look at.
    """

    path: str
    size: int | None = None
    head: Callable[[int], bytes] | None = None


@dataclass(frozen=True)
class SkippedFile:
    """A file of a directory that is not read.

    Attributes:
        name: where it is.
        reason: why it is not read.
    """

    name: str
    reason: str


def chosen(
    files: Sequence[Candidate],
    include: Sequence[str],
    exclude: Sequence[str],
    *,
    told: bool = False,
    by_globs_alone: bool = False,
) -> list[str | None]:
    """For each file why it is skipped; None if it is read.

    Args:
        files: all files of the directory.
        include: globs of files to read.
        exclude: globs of files to skip.
        told: whether the caller says what the files hold.
        by_globs_alone: whether the files were named, so that nothing else counts.
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
    has_records = told or any(named[number] not in (None, "text") for number in data)
    has_texts = any(named[number] == "text" for number in data)
    for number in left:
        file = files[number]
        if number in about and (has_records or has_texts):
            reasons[number] = "about the corpus"
        elif has_records and _is_marked(file.path):
            reasons[number] = "in a folder whose name begins with _"
        elif told or named[number] is not None:
            continue
        elif has_records:
            reasons[number] = "unknown format"
        elif file.head is not None:
            reasons[number] = _native.not_text(file.head(HEAD))
    return reasons


def _is_marked(path: str) -> bool:
    """Whether a file lies in a folder such as `_delta_log` or `_temporary`."""
    return any(folder.startswith("_") for folder in path.split("/")[:-1])


def describe(skipped: Sequence[SkippedFile]) -> str:
    """Skipped files in a phrase.

    >>> describe([SkippedFile("README.md", "about the corpus"), SkippedFile("a", "empty")])
    'skipped 2 files: README.md (about the corpus), a (empty)'
    """
    named = ", ".join(f"{file.name} ({file.reason})" for file in skipped[:NAMED])
    more = f" and {len(skipped) - NAMED:,} more" if len(skipped) > NAMED else ""
    return f"skipped {len(skipped):,} file{'' if len(skipped) == 1 else 's'}: {named}{more}"


def warn_of_skipped_files(skipped: Sequence[SkippedFile]) -> None:
    """Reports what is skipped, unless globs of the caller say so."""
    told = [file for file in skipped if file.reason not in (EXCLUDED, NOT_INCLUDED)]
    if told:
        warnings.warn(
            f"{describe(told)}; include= and exclude= select by name",
            UserWarning,
            stacklevel=4,
        )
