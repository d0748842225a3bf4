"""What must hold after a fault: no old file is lost, the message is clear, and the next run has
the result of an undisturbed one, without leftovers.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .commands import Command
from .warm import Outcome

# Fields of JSON files that change from run to run.
TIMES = {"tokens_per_s", "mfu", "memory", "seconds"}

# Foreign files beside the output and in it, some with names like ours.
BESIDE = (
    "notes.txt",
    ".hidden",
    "other.tmp",
    ".tokenizer.json.0-1.tmp",
    ".run.12345678.bytemill.txt",
    "tokens.partial/keep",
    "options.json",
)
WITHIN = ("notes.txt", "README.md", ".keep", "shard-1.npy", "vocab.json.orig", "sub/manifest.json")

Run = Callable[[str], Outcome]
Tree = dict[str, str]


@dataclass(frozen=True)
class Scenario:
    """A command, the folder before it runs, and the folder after it ran undisturbed."""

    command: Command
    name: str
    line: str
    # The folder before, and the trees before and after.
    before: Path
    old: Tree
    new: Tree
    decoys: Tree
    n_calls: int
    seconds: float


@dataclass
class Findings:
    """Problems, each with the command that reproduces it."""

    n_faults: int = 0
    found: list[dict[str, str]] = field(default_factory=list)

    def check(self, problem: str | None, reproduce: str, detail: str) -> None:
        """Records a problem, if there is one."""
        if problem is not None:
            self.found.append({"what": problem, "reproduce": reproduce, "detail": detail[-600:]})


def tree(folder: Path) -> Tree:
    """Every path below a folder with a digest of its content, without the times in JSON."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = "directory" if path.is_dir() else _digest(path)
    return found


def _digest(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        try:
            lines = data.splitlines() if path.suffix == ".jsonl" else [data]
            values = [_timeless(json.loads(line)) for line in lines]
        except ValueError:
            pass  # as it is
        else:
            data = json.dumps(values).encode()
    if path.suffix == ".png":
        data = b"a picture"
    return hashlib.sha256(data).hexdigest()[:16]


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {key: _timeless(v) for key, v in value.items() if key not in TIMES}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def place_decoys(area: Path, command: Command, with_output: bool) -> Tree:
    """Puts foreign files beside the output, and into it where allowed; returns their tree."""
    places = [area / name for name in BESIDE]
    if with_output and command.shares:
        places += [area / command.out / name for name in WITHIN]
    for place in places:
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"not bytemill's: {place.name}")
    whole = tree(area)
    names = {str(place.relative_to(area)) for place in places}
    return {name: digest for name, digest in whole.items() if name in names}


def restore(scenario: Scenario, area: Path) -> None:
    """Restores the folder to its state before the command."""
    shutil.rmtree(area, ignore_errors=True)
    shutil.copytree(scenario.before, area)


# --- after a fault ----------------------------------------------------------------------------


def message_problem(outcome: Outcome, killed: bool, full: bool) -> str | None:
    """What is wrong with the end of a disturbed command."""
    if outcome.hung:
        return "hangs"
    if "Traceback" in outcome.err or "panicked" in outcome.err:
        return "traceback"
    if killed and outcome.code == -signal.SIGKILL:
        return None
    if outcome.code < 0:
        return f"ended by {signal.Signals(-outcome.code).name}"
    if outcome.code not in (0, 1):
        return f"exit code {outcome.code}"
    if outcome.code == 1 and "error:" not in outcome.err:
        return "no error message"
    if full and outcome.code == 1 and "area" not in outcome.err:
        return "the error names no file"
    return None


def output_problem(scenario: Scenario, area: Path, run: Run) -> str | None:
    """What is wrong with the files of a disturbed command: the output must be old, new, absent, or
    marked as unfinished."""
    now = tree(area)
    if any(now.get(name) != digest for name, digest in scenario.decoys.items()):
        return "a file of others was touched"
    command = scenario.command
    if command.resumes and command.learns:
        return None  # a run grows in place; what is in it is checked by resuming it
    states = [_of_output(state, command) for state in (now, scenario.old, scenario.new)]
    present, *allowed = states
    if present in allowed or not present:
        return None
    if command.reader and run(command.reader).code == 1:
        return None
    # A reader may finish a commit that a killed writer had recorded.
    if _of_output(tree(area), command) in allowed:
        return None
    return "the output is neither old nor new nor unfinished"


def _of_output(whole: Tree, command: Command) -> Tree:
    """The output in a tree without hidden files; empty if there is none."""
    inside = {n: d for n, d in whole.items() if n == command.out or n.startswith(command.out + "/")}
    shown = {n: d for n, d in inside.items() if not any(p.startswith(".") for p in n.split("/"))}
    return {n: d for n, d in shown.items() if d != "directory"}


def recovery_problem(scenario: Scenario, area: Path, run: Run) -> str | None:
    """What is wrong with the runs after a disturbed one, which follow the hints of its messages."""
    outcome = run(scenario.line)
    for option in ("--resume", "--overwrite"):
        if outcome.code == 1 and option in outcome.err and option not in scenario.line:
            outcome = run(scenario.command.line(option))
    if outcome.code != 0:
        return f"locked out: {outcome.err.strip()[-300:]}"
    now = tree(area)
    if now == scenario.new:
        return None
    more = sorted(now.keys() - scenario.new.keys())
    less = sorted(scenario.new.keys() - now.keys())
    other = sorted(n for n in now.keys() & scenario.new.keys() if now[n] != scenario.new[n])
    kinds = {"left over": more, "missing": less, "differs": other}
    return "; ".join(f"{kind}: {', '.join(names[:4])}" for kind, names in kinds.items() if names)
