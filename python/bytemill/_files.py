"""Atomic files and directories, and the lock that allows one writer at a time.

Unfinished files are *temporaries*: `.NAME.xxxxxxxx.bytemill`, renamed to NAME when complete. The
process that writes a temporary holds a lock on it, so the next writer of NAME can distinguish the
temporaries of killed processes from those still being written, and removes only the former.

Files that belong together are renamed one after another. The renames are recorded first, in a
*commit*; if a process is killed between two renames, the next reader or writer that calls `settle`
completes them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from .errors import BytemillError, ConfigError

__all__ = [
    "is_locked",
    "is_temporary",
    "naming",
    "refuse_input",
    "refuse_inside",
    "regular",
    "remove",
    "remove_if_empty",
    "remove_leftovers",
    "remove_leftovers_in",
    "remove_tree",
    "replacing",
    "replacing_directory",
    "settle",
    "sync",
    "sync_all",
    "temporary_path",
    "write_atomically",
    "write_together",
    "writer_lock",
]

SUFFIX = ".bytemill"
COMMIT = ".commit" + SUFFIX
# Offset of the lock on Windows: past all content, because locked bytes cannot be read by others.
LOCKED_BYTE = 1 << 30
# Pause before the second attempt at a lock, in seconds; `is_locked` holds one for much less.
LOCK_RETRY = 0.02
# Files that are flushed at the same time.
MAX_SYNCS = 8


# --- what may be read, and what may be written --------------------------------------------------


def regular(path: Path, error: type[BytemillError]) -> Path:
    """The path, if it is a regular file; else raises `error`.

    Opening a pipe blocks until it has a writer, and a device may never end.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise error(f"{path}: not a regular file")
    return path


def refuse_input(output: Path, inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Raises a ConfigError if `output` is one of the inputs, under whatever name."""
    for path in inputs if output.exists() else ():
        with contextlib.suppress(OSError):
            if os.path.samefile(output, path):
                raise ConfigError(
                    f"{output}: is an input and would be overwritten", "choose another output"
                )


def refuse_inside(directory: Path, what: str, inputs: Iterable[str]) -> None:
    """Raises a ConfigError if an input is in `directory`, which the message calls `what`."""
    inside = os.path.join(os.path.realpath(directory), "")
    for path in inputs:
        if os.path.realpath(path).startswith(inside):
            raise ConfigError(f"{path}: this source is in {what}", "choose another output")


# --- one writer at a time -----------------------------------------------------------------------


@contextlib.contextmanager
def writer_lock(path: Path, what: Path, error: type[BytemillError]) -> Iterator[None]:
    """Holds the lock file `path` while `what` is written, or raises `error` if a process has it.

    The operating system releases the lock when the process ends, however it ends. File systems
    without locks give no protection.
    """
    while True:
        # Non-blocking: a pipe of that name is rejected instead of waiting for its other end.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _not_a_lock(path, error)
            if not _try_lock_twice(handle):
                holder = os.read(handle, 32).decode("ascii", "replace").strip()
                raise error(
                    f"{what}: process {holder or '?'} is writing there",
                    "wait until it has finished, or choose another output",
                )
            if not re.fullmatch(rb"\d*", os.read(handle, 64)):
                raise _not_a_lock(path, error)
            os.lseek(handle, 0, os.SEEK_SET)
            # The previous holder may have removed the file between our open and our lock.
            if _is_at(handle, path):
                # For the message above only; the lock works without it, even on a full disk.
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, 0)
                    os.write(handle, str(os.getpid()).encode())
                break
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    try:
        yield
    finally:
        # Removed before it is released, so that no other process locks a file about to be removed.
        # If the directory was exchanged, the file of that name belongs to another writer.
        with contextlib.suppress(OSError):
            if _is_at(handle, path):
                os.unlink(path)
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file `path`. False on file systems without locks."""
    try:
        # Windows demands write access of who locks; nothing is written.
        access = os.O_RDWR if os.name == "nt" else os.O_RDONLY
        handle = os.open(path, access | getattr(os, "O_NONBLOCK", 0))
    except PermissionError:
        return os.name == "nt"
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(handle).st_mode) and not _try_lock(handle)
    finally:
        os.close(handle)


def _not_a_lock(path: Path, error: type[BytemillError]) -> BytemillError:
    return error(f"{path}: not a bytemill lock file", "move it, or choose another output")


def _try_lock(handle: int) -> bool:
    """Whether the lock on an open file was acquired. True on file systems without locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(handle, LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            finally:
                os.lseek(handle, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failed:
        return failed.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True


def _try_lock_twice(handle: int) -> bool:
    """The same, unless it is held longer than `is_locked` holds one."""
    if _try_lock(handle):
        return True
    time.sleep(LOCK_RETRY)
    return _try_lock(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


# --- one file -----------------------------------------------------------------------------------


def write_atomically(target: Path, data: bytes, *, flush: bool = True) -> None:
    """Writes `data` to `target` atomically: readers see all of it, or the previous content.

    Without `flush`, that holds when processes are killed, but not when the machine fails before the
    caller has flushed the file and its directory.
    """
    with replacing(target, flush=flush) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(target: Path, *, flush: bool = True) -> Iterator[BinaryIO]:
    """A new file that replaces `target` on success and is removed on failure."""
    remove_leftovers(target)
    with naming(target), _temporary(target) as (temporary, file):
        yield file
        file.flush()
        if flush:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    if flush:
        sync(target.absolute().parent)


@contextlib.contextmanager
def _temporary(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A locked temporary of `target`, removed on failure."""
    while True:
        path = temporary_path(target)
        try:
            file = open(path, "xb")  # noqa: SIM115
        except FileExistsError:
            continue
        # A concurrent sweep may have removed it between creation and lock.
        if _try_lock(file.fileno()) and _is_at(file.fileno(), path):
            break
        file.close()
    try:
        yield path, file
        file.close()
    except BaseException:
        # On a full disk, closing fails again: report the first error.
        for clean_up in (file.close, path.unlink):
            with contextlib.suppress(OSError):
                clean_up()
        raise


def temporary_path(target: Path) -> Path:
    """A new name for a temporary of `target`."""
    return target.with_name(f".{target.name}.{os.urandom(4).hex()}{SUFFIX}")


@contextlib.contextmanager
def naming(name: str | Path) -> Iterator[None]:
    """Adds this name to an `OSError` without a file name, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(name)) from None
        raise


def remove_leftovers(target: Path) -> None:
    """Removes the temporaries of `target` whose writers are dead."""
    _sweep(target.absolute().parent, target.name)


def remove_leftovers_in(directory: Path) -> None:
    """Removes all temporaries in `directory` whose writers are dead."""
    _sweep(directory, None)


def _sweep(directory: Path, of: str | None) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if is_temporary(name, of):
                _remove_if_dead(directory / name)


def is_temporary(name: str, of: str | None = None) -> bool:
    """Whether this is the name of a temporary: of the file `of`, or of any file."""
    target = ".+" if of is None else re.escape(of)
    return re.fullmatch(rf"\.{target}\.[0-9a-f]{{8}}{re.escape(SUFFIX)}", name) is not None


def _remove_if_dead(path: Path) -> None:
    with contextlib.suppress(OSError):
        # Windows cannot open directories or remove open files, which protects both.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            if _try_lock(handle):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        finally:
            os.close(handle)


def remove_tree(path: Path) -> None:
    """Removes a directory tree; errors name the directory, unlike those of `rmtree`."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None


def remove_if_empty(directory: Path) -> None:
    """Removes a directory, unless there is something in it."""
    try:
        directory.rmdir()
    except OSError as error:
        # Any other failure must not pass for that: what is left may not be recognized later.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


# --- files that belong together -----------------------------------------------------------------


def write_together(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Writes several files of a directory; once settled, all are new or none is."""
    settle(directory)
    with naming(directory), contextlib.ExitStack() as temporaries:
        renames: dict[str, str] = {}
        for name, data in contents.items():
            remove_leftovers(directory / name)
            with naming(directory / name):
                temporary, file = temporaries.enter_context(_temporary(directory / name))
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            renames[temporary.name] = name
        write_atomically(directory / COMMIT, json.dumps(renames).encode())
    # From here on the new files are committed: the next `settle` completes the renames.
    settle(directory)


def settle(directory: Path) -> None:
    """Completes the renames of a `write_together` that was interrupted after its commit."""
    try:
        renames = json.loads((directory / COMMIT).read_bytes())
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError):
        renames = None
    if not isinstance(renames, dict) or not all(map(_is_rename, renames, renames.values())):
        raise BytemillError(
            f"{directory / COMMIT}: damaged",
            "delete it, and write the files in its directory again",
        )
    for temporary, name in renames.items():
        # Missing: already renamed, by the interrupted process or a concurrent `settle`.
        with contextlib.suppress(FileNotFoundError):
            os.replace(directory / temporary, directory / name)
    sync(directory)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(directory / COMMIT)


def _is_rename(temporary: object, name: object) -> bool:
    """Whether an entry of a commit stays within its directory and renames a temporary."""
    return (
        isinstance(temporary, str)
        and isinstance(name, str)
        and os.path.basename(name) == name
        and is_temporary(temporary, name)
    )


# --- a directory --------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing_directory(target: Path) -> Iterator[Path]:
    """A new directory that replaces `target` on success and is removed on failure.

    All of an existing `target` is replaced: the caller must check that bytemill wrote every file.
    """
    parent = target.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target)
    temporary = temporary_path(target)
    temporary.mkdir()
    with _held(temporary):
        try:
            with naming(target):
                yield temporary
                for path in sorted(temporary.rglob("*"), reverse=True):
                    sync(path)
                sync(temporary)
                if target.exists():
                    _exchange(temporary, target)
                else:
                    temporary.rename(target)
                sync(parent)
        finally:
            # The temporary name now holds an unfinished directory, or the old one.
            shutil.rmtree(temporary, ignore_errors=True)


def remove(directory: Path) -> None:
    """Removes a directory tree; if killed half-way, only a temporary remains."""
    if directory.is_symlink():
        directory.unlink()
        return
    aside = temporary_path(directory)
    directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Locks a directory, if the system supports it."""
    handle = None if os.name == "nt" else os.open(directory, os.O_RDONLY)
    try:
        if handle is not None:
            _try_lock(handle)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _exchange(new: Path, old: Path) -> None:
    """Swaps two directories, atomically if the system supports it.

    Otherwise `old` is missing for a moment; a process killed then leaves both under temporary
    names.
    """
    swap = _system_swap()
    if swap is not None and swap(os.fsencode(new), os.fsencode(old)) == 0:
        return
    aside = temporary_path(old)
    old.rename(aside)
    new.rename(old)
    aside.rename(new)


def _system_swap() -> Callable[[bytes, bytes], int] | None:
    """`renameat2` of Linux or `renamex_np` of macOS, with the flag that swaps; None elsewhere."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        library = ctypes.CDLL(None)
        if sys.platform.startswith("linux"):
            here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
            return lambda a, b: int(library.renameat2(here, a, here, b, exchange))
        if sys.platform == "darwin":
            return lambda a, b: int(library.renamex_np(a, b, 2))  # RENAME_SWAP
    return None


def sync_all(paths: Iterable[Path]) -> None:
    """Flushes files and directories to disk at the same time.

    A file system writes at once what several of them wait for; in turns, each would wait for its
    own.
    """
    places = list(paths)
    with ThreadPoolExecutor(max(1, min(len(places), MAX_SYNCS)), "bytemill-sync") as pool:
        for done in [pool.submit(sync, path) for path in places]:
            done.result()


def sync(path: Path) -> None:
    """Flushes a file or directory to disk."""
    # Windows cannot open directories; there the rename alone must suffice.
    with contextlib.suppress(PermissionError), naming(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
