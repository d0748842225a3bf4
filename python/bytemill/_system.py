"""The system: memory of the process, limits of machine and container, CPU features."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ._numbers import parse_size, size
from .errors import ConfigError

__all__ = [
    "MemoryLimit",
    "address_space",
    "allowed_memory",
    "available_memory",
    "cpu_flags",
    "cpu_name",
    "memory_limit",
    "resident_memory",
]

# Share of the allowed memory to use if no limit is given: the rest is for other programs, the page
# cache and Python itself.
SHARE = 0.7
# Minimum beyond the memory already in use, for tables and buffers.
LEAST = 64_000_000


@dataclass(frozen=True)
class MemoryLimit:
    """A limit on the resident memory of this process.

    Attributes:
        total: the limit itself.
        available: the part not yet used.
    """

    total: int
    available: int


def memory_limit(asked: int | str | None, n_processes: int = 1) -> MemoryLimit:
    """The memory limit for an option.

    Args:
        asked: bytes, a size such as `"2GB"`, or None for a safe share of what is allowed.
        n_processes: processes that divide that share among them.
    """
    used = resident_memory()
    if asked is None:
        total = int(SHARE * allowed_memory() / n_processes)
        # The user did not set this limit, so it is raised instead of rejected.
        return MemoryLimit(max(total, used + LEAST), max(total - used, LEAST))
    if isinstance(asked, bool) or not isinstance(asked, (int, str)):
        raise TypeError(
            f"memory_limit must be a number of bytes or a size such as '2GB', not {asked!r}"
        )
    total = parse_size(asked) if isinstance(asked, str) else asked
    if total < used + LEAST:
        raise ConfigError(
            f"memory_limit={size(max(total, 0))} is too small: this process already uses "
            f"{size(used)} and needs at least {size(LEAST)} more",
            f"use at least {size((used + LEAST) * 1.01)}",
        )
    return MemoryLimit(total, total - used)


def allowed_memory(root: Path = Path("/")) -> int:
    """The bytes that this process may use: the least of machine, container and process limits.

    Args:
        root: the directory with `/proc` and `/sys`.
    """
    return min(_limits(root), default=sys.maxsize)


def available_memory(n_processes: int = 1, root: Path = Path("/")) -> int:
    """The bytes that this process may hold in total: what is allowed minus what others hold.

    Args:
        n_processes: processes that divide the available memory among them.
        root: the directory with `/proc` and `/sys`.
    """
    own = resident_memory()
    left = [limit - _used(file) for file in _control_groups(root) for limit in _limit(file)]
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            left.append(int(line.split()[1]) * 1024)
    most = [own + max(0, n) // n_processes for n in left]
    return min([allowed_memory(root) // n_processes, *most])


def _limits(root: Path) -> Iterator[int]:
    physical = _physical()
    if physical:
        yield physical
    for file in _control_groups(root):
        yield from _limit(file)
    own = address_space()
    if own:
        # This limit also counts memory that is mapped but not resident.
        yield max(own - _mapped_only(root), 0)


def _physical() -> int:
    if sys.platform == "win32":
        import ctypes

        # MEMORYSTATUSEX: its own size and the load in percent, then seven 64-bit numbers, of
        # which the first is the physical memory.
        class Status(ctypes.Structure):
            _fields_ = [
                ("length", ctypes.c_uint32),
                ("load", ctypes.c_uint32),
                ("fields", ctypes.c_uint64 * 7),
            ]

        status = Status(length=ctypes.sizeof(Status))
        if not ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status)):
            return 0
        return int(status.fields[0])
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def address_space() -> int:
    """The limit on this process's address space (`ulimit -v`), 0 if there is none."""
    if sys.platform == "win32":
        return 0
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 0 if soft == resource.RLIM_INFINITY else soft


def _mapped_only(root: Path) -> int:
    fields = _read(root / "proc/self/statm").split()
    if len(fields) < 2:
        return 0
    return (int(fields[0]) - int(fields[1])) * os.sysconf("SC_PAGE_SIZE")


def _control_groups(root: Path) -> Iterator[Path]:
    """The limit files of the control groups of this process and of their ancestors."""
    v1, v2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        # number:controllers:path, the second empty in version 2
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            yield from _upwards(root / v2, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _upwards(root / v1, path, "memory.limit_in_bytes")
    # In a container the path is often that of the host, and only the root group is visible.
    yield root / v2 / "memory.max"
    yield root / v1 / "memory.limit_in_bytes"


def _upwards(top: Path, path: str, name: str) -> Iterator[Path]:
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), 0, -1):
        yield top.joinpath(*parts[:depth], name)


def _used(file: Path) -> int:
    """The bytes that a control group holds, without the reclaimable page cache."""
    v2 = file.name == "memory.max"
    text = _read(file.with_name("memory.current" if v2 else "memory.usage_in_bytes")).strip()
    if not text.isdecimal():
        return 0
    cached = (
        ("inactive_file", "active_file") if v2 else ("total_inactive_file", "total_active_file")
    )
    pairs = [line.split() for line in _read(file.with_name("memory.stat")).splitlines()]
    return int(text) - sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in cached)


def _limit(file: Path) -> Iterator[int]:
    text = _read(file).strip()
    # "max" is no limit; version 1 writes a number near 2^63 instead, which is harmless.
    if text.isdecimal() and int(text) > 0:
        yield int(text)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""


# --- what this process holds ------------------------------------------------------------------


def resident_memory(*, peak: bool = False) -> int:
    """The bytes of memory that this process holds, or 0 if the system does not report it.

    On macOS it is always the peak: the current size would need another library.

    Args:
        peak: return the peak instead of the current size.
    """
    # Progress reports must never fail, whatever a sandbox or a rare system does.
    try:
        return _system_memory(peak)
    except Exception:
        return 0


if sys.platform != "win32":

    def _system_memory(peak: bool) -> int:
        if peak and os.path.exists("/proc/self/status"):
            # Not getrusage: its maximum starts with that of the parent process.
            with open("/proc/self/status", "rb") as file:
                for line in file:
                    if line.startswith(b"VmHWM:"):
                        return int(line.split()[1]) * 1024
        elif os.path.exists("/proc/self/statm"):
            with open("/proc/self/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # macOS counts bytes here, the other systems kilobytes.
        return most * (1 if sys.platform == "darwin" else 1024)

else:

    def _system_memory(peak: bool) -> int:
        import ctypes
        from ctypes import wintypes

        # PROCESS_MEMORY_COUNTERS: two 32-bit fields, then eight of pointer size, of which the
        # first is the peak of the working set and the second the working set.
        class Counters(ctypes.Structure):
            _fields_ = [
                ("size", wintypes.DWORD),
                ("page_faults", wintypes.DWORD),
                ("fields", ctypes.c_size_t * 8),
            ]

        counters = Counters()
        counters.size = ctypes.sizeof(counters)
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        process = kernel.GetCurrentProcess
        process.restype = wintypes.HANDLE
        query = kernel.K32GetProcessMemoryInfo
        query.argtypes = [wintypes.HANDLE, ctypes.POINTER(Counters), wintypes.DWORD]
        if not query(process(), ctypes.byref(counters), counters.size):
            return 0
        return int(counters.fields[0 if peak else 1])


# --- the CPU ----------------------------------------------------------------------------------


def cpu_flags() -> set[str]:
    """CPU feature flags from `/proc/cpuinfo`; empty on other systems."""
    return set(_cpu_info("flags", "Features").split())


def cpu_name() -> str:
    """The model of the CPU; its architecture where the system does not name it."""
    import platform

    return _cpu_info("model name") or platform.processor() or platform.machine()


def _cpu_info(*names: str) -> str:
    """The first value of any of these keys in `/proc/cpuinfo`; empty if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return ""
