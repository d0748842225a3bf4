"""The situations in which commands are disturbed: no output, an old output to replace, an
interrupted run to resume.
"""

from __future__ import annotations

import contextlib
import fnmatch
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import checks, shim, warm
from .checks import Scenario, Tree, tree
from .commands import Command, commands, write_inputs
from .warm import NO_LIMITS, Injected, Limits, Outcome, Signal


class Folder:
    """A folder with `inputs` and `area`, in which commands are run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.area = path / "area"
        self._log = path / "log"

    def run(
        self,
        line: str,
        injected: Injected | None = None,
        sent: Signal | None = None,
        limits: Limits = NO_LIMITS,
    ) -> Outcome:
        """Runs a command line in a process of its own, disturbed or not."""
        run = warm.command(line.split())
        return warm.call(
            run, folder=self.path, log=self._log, injected=injected, sent=sent, limits=limits
        )

    def must(self, line: str, injected: Injected | None = None) -> Outcome:
        outcome = self.run(line, injected)
        if outcome.code != 0:
            raise RuntimeError(f"{line} failed undisturbed:\n{outcome.err}")
        return outcome

    def empty(self) -> None:
        """Empties the area."""
        shutil.rmtree(self.area, ignore_errors=True)
        self.area.mkdir()


@contextlib.contextmanager
def folder(learns: bool) -> Iterator[Folder]:
    """A folder with all inputs, removed at the end."""
    # Not a TemporaryDirectory: a forked process would remove it at its exit.
    made = Folder(Path(tempfile.mkdtemp(prefix="bytemill-faults-")).resolve())
    try:
        write_inputs(made.path, made.must, learns)
        yield made
    finally:
        shutil.rmtree(made.path)


def chosen(only: list[str], learns: bool) -> list[Command]:
    """The commands whose names match one of these patterns; all without patterns."""
    return [c for c in commands() if is_wanted(c.name, only) and (learns or not c.learns)]


def is_wanted(name: str, only: list[str]) -> bool:
    return not only or any(fnmatch.fnmatch(name, pattern) for pattern in only)


def scenarios(place: Folder, command: Command, names: Sequence[str] = ()) -> Iterator[Scenario]:
    """Yields the situations of a command; each is set up and run undisturbed first."""
    prepare = {"fresh": (_nothing, ""), "overwrite": (_old_output, "--overwrite")}
    if command.resumes:
        prepare["resume"] = (_interrupted, "--resume")
    for name, (make, option) in prepare.items():
        if not names or name in names:
            make(place, command)
            yield _prepared(place, command, name, command.line(option))


def _nothing(place: Folder, command: Command) -> None:
    place.empty()


def _old_output(place: Folder, command: Command) -> None:
    place.empty()
    place.must(command.old)


def _interrupted(place: Folder, command: Command) -> None:
    """Kills the command at a call near the middle after which there is work to resume."""
    place.empty()
    n_calls = place.must(command.line(), Injected(place.area)).calls
    for n in range(n_calls * 2 // 3, 0, -1):
        place.empty()
        place.run(command.line(), Injected(place.area, n, shim.FAULTS["kill"]))
        copy = place.path / "copy"
        shutil.copytree(place.area, copy)
        resumed = place.run(command.line("--resume"))
        shutil.rmtree(place.area)
        copy.rename(place.area)
        if resumed.code == 0:
            return
    raise RuntimeError(f"{command.name}: no kill that can be resumed")


def _prepared(place: Folder, command: Command, name: str, line: str) -> Scenario:
    """A situation with the area as it is now."""
    decoys = checks.place_decoys(place.area, command, with_output=name == "overwrite")
    before = place.path / "before"
    shutil.rmtree(before, ignore_errors=True)
    shutil.copytree(place.area, before)
    old: Tree = tree(place.area)
    undisturbed = place.must(line, Injected(place.area))
    new = tree(place.area)
    calls, seconds = undisturbed.calls, undisturbed.seconds
    return Scenario(command, name, line, before, old, new, decoys, calls, seconds)
