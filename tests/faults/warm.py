"""Runs commands in processes forked from this one, which has imported everything: milliseconds
instead of seconds each.

This process itself never encodes, trains or starts a thread: a forked process needs thread pools
that were never used.
"""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from . import api, shim

# So that a corpus of a few kilobytes is written in many steps, like a large one.
STEP = 4000


class Outcome(NamedTuple):
    """How a command ended."""

    code: int  # negative: the signal that killed it
    err: str
    calls: int  # that changed files
    seconds: float
    hung: bool
    cpu: float  # seconds
    memory: int  # peak, in bytes


class Injected(NamedTuple):
    """A fault at the n-th call below a directory; without a fault, calls are counted."""

    directory: Path
    n: int = 0
    fault: shim.Fault | None = None


class Signal(NamedTuple):
    """A signal after some seconds."""

    seconds: float
    number: signal.Signals


class Limits(NamedTuple):
    """The time a process may take, and the memory it may allocate beyond that of this one."""

    seconds: float
    memory: int | None = None


# Generous, for a busy machine: a process that only waits is detected sooner.
NO_LIMITS = Limits(300.0)
# Seconds between two checks, and how many in a row must find it idle for it to count as hung.
PATIENCE, MOST_ASLEEP = 3.0, 4


def import_everything(torch: bool = True) -> None:
    """Imports what commands import, before anything is forked."""
    import bytemill.cli  # noqa: F401
    from bytemill.engines import Local

    # Units of work, blocks of text.
    Local.__init__.__kwdefaults__.update(unit_size=STEP, block_size=STEP)
    if torch:
        with contextlib.suppress(ImportError):
            from bytemill.lm import training  # noqa: F401


def call(
    function: Callable[[], int | None],
    *,
    folder: Path,
    log: Path,
    injected: Injected | None = None,
    sent: Signal | None = None,
    limits: Limits = NO_LIMITS,
) -> Outcome:
    """Calls a function in a forked process, in a folder; what it prints goes to `log`."""
    shared = mmap.mmap(-1, 8)
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        _be_child(function, folder, log, injected, limits, shared)
    hung = _wait(child, sent, limits.seconds)
    _, status, used = os.wait4(child, 0)
    seconds = time.perf_counter() - began
    calls = struct.unpack("q", shared[:8])[0]
    err = log.read_text(errors="replace")
    code, cpu = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
    return Outcome(code, err, calls, seconds, hung, cpu, used.ru_maxrss << 10)


def _be_child(
    function: Callable[[], int | None],
    folder: Path,
    log: Path,
    injected: Injected | None,
    limits: Limits,
    shared: mmap.mmap,
) -> None:
    """The process of one command; does not return."""
    code = 1
    # Ctrl-C is handled only while the command runs, neither before nor after.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        # New streams, so that the parent's buffers are not printed again.
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        if injected is not None:
            shim.arm(*injected)
        if limits.memory is not None:
            most = _address_space() + limits.memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = function() or 0
    except KeyboardInterrupt:
        code = 130  # before or after the command itself, as bytemill.__main__ has it
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        if injected is not None:
            shared[:8] = struct.pack("q", shim.seen())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _wait(child: int, sent: Signal | None, seconds: float) -> bool:
    """Waits for a process, sends it a signal on the way; True if it hung and had to be killed."""
    handle = os.pidfd_open(child)
    try:
        if sent is not None and not select.select([handle], [], [], sent.seconds)[0]:
            os.kill(child, sent.number)
        deadline = time.monotonic() + seconds
        n_asleep, before = 0, ""
        while not select.select([handle], [], [], PATIENCE)[0]:
            state, cpu = _progress(child)
            n_asleep = n_asleep + 1 if state == "S" and cpu == before else 0
            before = cpu
            if n_asleep == MOST_ASLEEP or time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                return True
        return False
    finally:
        os.close(handle)


def _progress(process: int) -> tuple[str, str]:
    """Whether a process runs or sleeps, and its processor time."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return fields[0], f"{fields[11]} {fields[12]}"


def command(arguments: Sequence[str]) -> Callable[[], int]:
    """The command line with these arguments, as a function to call."""

    def run() -> int:
        from bytemill.cli import main

        return api.main(*arguments[1:]) if arguments[0] == "api" else main(list(arguments))

    return run
