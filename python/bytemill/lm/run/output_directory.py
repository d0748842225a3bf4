"""Output directories: written by one process at a time, and only over files that bytemill wrote.

Runs and sweeps are written file by file, by the process that holds their `.lock`. Exports and
imports are written beside their target and then replace it as a whole, so the target must contain
no other files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ..._files import (
    COMMIT,
    is_temporary,
    remove_leftovers_in,
    replacing_directory,
    settle,
    writer_lock,
)
from ...corpus.names import shown
from ...errors import CheckpointError, ConfigError

__all__ = [
    "check_target",
    "contents",
    "is_leftover",
    "replacing_target",
    "tidy",
    "writing",
]

LOCK = ".lock"


# --- leftovers of killed processes --------------------------------------------------------------


def contents(directory: Path) -> list[Path]:
    """The entries of a directory, without leftovers of killed processes.

    A directory that does not exist is empty; a file is a `NotADirectoryError`.
    """
    try:
        return sorted(path for path in directory.iterdir() if not is_leftover(path))
    except FileNotFoundError:
        return []


def is_leftover(path: Path) -> bool:
    """Whether it is a lock file, a temporary file or a commit file of bytemill."""
    if path.name == LOCK:
        return _is_our_lock(path)
    return path.name == COMMIT or is_temporary(path.name)


def _is_our_lock(path: Path) -> bool:
    """Whether a lock file is empty or holds a process id, as ours do."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with open(path, "rb") as file:
            text = file.read(33)
    except PermissionError:
        return os.name == "nt"  # locked by its writer
    except FileNotFoundError:
        return True  # its writer has just finished
    return len(text) <= 32 and (not text or text.isdigit())


# --- one writer at a time -----------------------------------------------------------------------


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Locks a directory, creates it if necessary, and removes leftovers of killed writers.

    A new directory that stays empty is removed.
    """
    if shown(str(directory)) != str(directory):
        raise ConfigError(
            f"{shown(str(directory))}: this path is not UTF-8, and safetensors reads no such path",
            "choose another directory",
        )
    is_new = not directory.exists()
    if not is_new and not directory.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(directory))
    directory.mkdir(parents=True, exist_ok=True)
    _check_lock(directory)
    try:
        with writer_lock(directory / LOCK, directory, CheckpointError):
            # In this order: a commit names temporaries that it still needs.
            settle(directory)
            remove_leftovers_in(directory)
            yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                directory.rmdir()


def tidy(directory: Path) -> None:
    """Completes or removes what killed writers left; raises if a process is writing there."""
    if directory.is_dir() and any(map(is_leftover, directory.iterdir())):
        with writing(directory):
            pass


def _check_lock(directory: Path) -> None:
    lock = directory / LOCK
    if os.path.lexists(lock) and not _is_our_lock(lock):
        raise ConfigError(
            f"{lock}: not written by bytemill, which needs this name for its lock",
            "choose another directory",
        )


# --- directories that are exchanged as a whole ---------------------------------------------------


def check_target(
    target: Path, overwrite: bool, foreign: Callable[[Path], Path | None], what: str
) -> None:
    """Raises if `target` exists and may not be replaced.

    Args:
        target: the directory to write.
        overwrite: replace an earlier one of the same kind.
        foreign: returns a file of a directory that bytemill did not write; None if there is none.
        what: the name of that kind.
    """
    if not contents(target):
        return
    if not overwrite:
        raise FileExistsError(17, "File exists", str(target))
    found = foreign(target)
    if found is not None:
        raise ConfigError(
            f"{found}: not part of {what}, but all of {target} would be replaced",
            "move it elsewhere, or choose another directory",
        )


@contextlib.contextmanager
def replacing_target(
    target: Path, overwrite: bool, foreign: Callable[[Path], Path | None], what: str
) -> Iterator[Path]:
    """A new directory that replaces `target` on success; other writers are locked out meanwhile.

    Takes the arguments of `check_target`.
    """
    place = Path(os.path.realpath(target))
    check_target(place, overwrite, foreign, what)
    with contextlib.ExitStack() as locks:
        if os.name == "nt":
            # A directory with an open file in it cannot be renamed: the lock is beside it.
            tidy(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = place.with_name(f".{place.name}{LOCK}")
            locks.enter_context(writer_lock(lock, place, CheckpointError))
        else:
            locks.enter_context(writing(place))
        check_target(place, overwrite, foreign, what)
        with replacing_directory(place) as directory:
            yield directory
