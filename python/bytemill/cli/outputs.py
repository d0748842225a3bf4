"""Checks of output paths before the work starts, so that an invalid one costs no work."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from .. import _files
from ..convert import Format
from ..corpus.places import expand, is_url
from ..corpus.stdin import STDIN
from ..formats import target_paths


def check_output(path: Path, format: Format, overwrite: bool) -> None:
    """Raises now the errors that writing the tokenizer would raise later."""
    if format != "gpt2":
        check_file(path, overwrite)
        return
    # This format creates its directory, so check the nearest existing parent.
    above = next(p for p in (path, *path.absolute().parents) if p.exists())
    if above != path:
        check_file(above / path.name, overwrite)
        return
    for target in target_paths(path, format):
        check_file(target, overwrite)


def write_page(path: Path, html: str) -> None:
    """Writes an HTML page. Bytes of file names that are not UTF-8 become question marks."""
    _files.write_atomically(path, html.encode(errors="replace"))


def check_file(path: Path, overwrite: bool) -> None:
    """Raises now the errors that writing this file would raise later."""
    if path.is_dir():
        raise _os_error(errno.EISDIR, path)
    if os.path.lexists(path) and not overwrite:
        raise _os_error(errno.EEXIST, path)
    if not path.parent.is_dir():
        raise _os_error(errno.ENOTDIR if path.parent.exists() else errno.ENOENT, path.parent)
    if not os.access(path.parent, os.W_OK):
        raise _os_error(errno.EROFS if _is_read_only(path.parent) else errno.EACCES, path.parent)
    try:
        # The name under which the file is written first is longer than its own.
        os.lstat(_files.temporary_path(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _os_error(error.errno or 0, path) from None


def _is_read_only(directory: Path) -> bool:
    """Whether the file system is mounted read-only."""
    return hasattr(os, "statvfs") and bool(os.statvfs(directory).f_flag & os.ST_RDONLY)


def check_not_read(outputs: Sequence[Path], names: Sequence[str]) -> None:
    """Refuses outputs that are also inputs: files, directories or globs."""
    there = [output for output in outputs if output.exists()]
    local = [name for name in names if name != STDIN and not is_url(name)] if there else []
    read = [path for name in local for path in expand(name)]
    for output in there:
        _files.refuse_input(output, read)


def _os_error(code: int, path: Path) -> OSError:
    # OSError picks its own subclass by the code: FileExistsError and so on.
    return OSError(code, os.strerror(code), str(path))
