"""Whether a directory may be replaced."""

from __future__ import annotations

from pathlib import Path

from ..errors import ConfigError

__all__ = ["check_place"]


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
