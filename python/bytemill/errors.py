"""All exceptions that bytemill raises.

    BytemillError
    ├── ConfigError(ValueError)      an invalid option
    ├── CorpusError                  unreadable, empty, not text, wrong format
    ├── TokenizerError(ValueError)   malformed file, invalid vocabulary, unknown id,
    │                                special token refused
    ├── TokensError                  damaged, incomplete, or made with another tokenizer
    ├── CheckpointError              missing, damaged, or of another model
    ├── TrainingError                a run that cannot continue
    └── MissingPackageError(ImportError)   an extra that is not installed

``FileNotFoundError``, ``PermissionError`` and ``TypeError`` stay Python's own.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

__all__ = [
    "BytemillError",
    "CheckpointError",
    "ConfigError",
    "CorpusError",
    "MissingPackageError",
    "TokenizerError",
    "TokensError",
    "TrainingError",
    "install_command",
    "require",
]


class BytemillError(Exception):
    """Base class of all expected failures.

    ``str(error)`` is the message and, on a line of its own, ``hint: …`` with the remedy where
    there is one; ``error.hint`` is the remedy alone.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class ConfigError(BytemillError, ValueError):
    """An invalid option or combination of options."""


class CorpusError(BytemillError):
    """A corpus that is unreadable, empty, not text or in the wrong format."""


class TokenizerError(BytemillError, ValueError):
    """A malformed tokenizer file, an invalid vocabulary, an unknown id, a refused special token."""


class TokensError(BytemillError):
    """Tokens on disk that are damaged, incomplete, or made with another tokenizer."""


class CheckpointError(BytemillError):
    """A checkpoint that is missing, damaged, or of another model."""


class TrainingError(BytemillError):
    """A training run that cannot continue: the loss is not finite, or a rank is lost."""


class MissingPackageError(BytemillError, ImportError):
    """An optional package that is not installed."""


def require(module: str, purpose: str, *, extra: str | None = None) -> Any:
    """Imports a module of an optional package, or raises a `MissingPackageError`.

    Args:
        module: such as `"fsspec.core"`; the package is its first part.
        purpose: the subject of the message: `"the engine ray"` gives "the engine ray needs ray,
            which is not installed".
        extra: the extra of bytemill that installs the package; None if there is none.
    """
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A module that the package itself fails to import is a bug and keeps its traceback.
        if error.name is None or error.name.split(".")[0] != package:
            raise
    raise MissingPackageError(
        f"{purpose} needs {package}, which is not installed",
        f"pip install {package}" if extra is None else install_command(extra),
    )


def install_command(extra: str) -> str:
    """The command that installs an extra where this copy of bytemill came from.

    Installed from a package index or a wheel: `pip install 'bytemill[lm]'`. Installed from a clone:
    `pip install '.[lm]'` in the clone, and with its path elsewhere; with `-e` if the installation
    is editable.
    """
    clone, editable = _clone()
    if clone is None:
        return f"pip install 'bytemill[{extra}]'"
    try:
        here = os.path.samefile(".", clone)
    except OSError:  # the current directory was deleted
        here = False
    return f"pip install {'-e ' if editable else ''}'{'.' if here else clone}[{extra}]'"


def _clone() -> tuple[Path | None, bool]:
    """The directory that bytemill was installed from, if it still exists; whether it is editable.

    pip and uv record the origin in `direct_url.json`, unless it was a package index.
    """
    # Slow to import, and rarely needed.
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        record = metadata.distribution("bytemill").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        # Not installed: imported from the clone itself.
        found = Path(__file__).resolve().parents[2]
        return (found if (found / "pyproject.toml").is_file() else None), True
    try:
        origin = json.loads(record or "{}")
        directory = origin.get("dir_info")
        if directory is None:
            return None, False
        found = Path(url2pathname(urlsplit(origin["url"]).path))
        editable = bool(directory.get("editable", False))
    except (ValueError, KeyError, AttributeError, TypeError):
        return None, False
    return (found if (found / "pyproject.toml").is_file() else None), editable
