"""Directories that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import ConfigError

__all__ = ["check_place", "placing", "sync"]


def check_place(target: Path, overwrite: bool, mark: str, what: str) -> None:
    """Raises if `target` may not be put in place.

    Args:
        target: the directory to be.
        overwrite: whether what is there may be replaced.
        mark: a file by which an earlier one of the same kind is known; nothing else is replaced.
        what: the word for that kind.
    """
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(target))
    if not target.exists() or not any(target.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(17, "File exists", str(target))
    if not (target / mark).is_file():
        raise ConfigError(
            f"{target}: the directory holds something that is not {what}",
            f"only {what} is ever replaced; name another directory",
        )


@contextlib.contextmanager
def placing(target: Path) -> Iterator[Path]:
    """A directory that takes the place of `target` when it is filled, and goes if it fails."""
    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.rglob("*"), reverse=True):
            sync(path)
        sync(temporary)
        aside = target.with_name(f".{target.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        if target.exists():
            # No rename replaces a directory that is not empty.
            target.rename(aside)
        temporary.rename(target)
        sync(target.absolute().parent)
        shutil.rmtree(aside, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def sync(path: Path) -> None:
    """Sees to it that a file or directory is on disk."""
    # Windows cannot open directories; there the rename itself must do.
    with contextlib.suppress(PermissionError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
