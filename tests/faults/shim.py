"""The library that fails system calls: shim.c, loaded with LD_PRELOAD and switched on from here."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("shim.c")

# The actions of shim.c.
FAIL_ONCE, FAIL_FROM_THEN_ON, SHORT_THEN_FAIL, KILL = range(4)


class Fault(NamedTuple):
    """What happens at the n-th call."""

    name: str
    action: int
    error: int = 0


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("kill", KILL),
        Fault("full", FAIL_FROM_THEN_ON, errno.ENOSPC),
        Fault("short", SHORT_THEN_FAIL, errno.ENOSPC),
        Fault("io", FAIL_ONCE, errno.EIO),
        Fault("interrupt", FAIL_ONCE, errno.EINTR),
    )
}


def why_not() -> str | None:
    """Why the shim cannot be used here; None if it can."""
    if not sys.platform.startswith("linux"):
        return "LD_PRELOAD is of Linux"
    if shutil.which("cc") is None:
        return "no C compiler (cc)"
    return None


def build(folder: Path) -> Path:
    """Compiles the shim."""
    library = folder / "shim.so"
    options = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *options, "-o", library, SOURCE, "-ldl"], check=True)
    return library


def loaded() -> ctypes.CDLL | None:
    """The shim of this process, if it was started with it."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "faults_arm") else None


def arm(directory: Path, n: int, fault: Fault | None) -> None:
    """Counts calls below `directory` from now on and injects the fault at the n-th."""
    library = ctypes.CDLL(None)
    action, error = (fault.action, fault.error) if fault else (0, 0)
    library.faults_arm(os.fsencode(directory), ctypes.c_long(n if fault else 0), action, error)


def seen() -> int:
    """The number of calls since then."""
    library = ctypes.CDLL(None)
    library.faults_seen.restype = ctypes.c_long
    return int(library.faults_seen())
