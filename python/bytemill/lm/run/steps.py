"""The steps of a run: their directories, and which of them is best. No torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ..._files import remove, write_atomically
from ..._json import read_object
from ...errors import CheckpointError, ConfigError
from ..keywords import StepName
from .output_directory import contents

__all__ = [
    "best_step",
    "find_step",
    "foreign_in_step",
    "prune_steps",
    "remove_step",
    "step_directories",
    "step_number",
    "write_best",
]

BEST = "best.json"
STATE = "state.json"
WEIGHTS = "model.safetensors"
MOMENTS = "optimizer.safetensors"
# The files of a step directory.
NAMES = (STATE, WEIGHTS, MOMENTS)
STEP = re.compile(r"step-[0-9]{8,}")


def step_directories(run: Path) -> list[Path]:
    """The finished steps of a run, in order."""
    named = [p for p in run.glob("step-*") if STEP.fullmatch(p.name)]
    return sorted((p for p in named if (p / STATE).exists()), key=step_number)


def foreign_in_step(directory: Path) -> Path | None:
    """A file in a step directory that bytemill did not write; None if there is none."""
    found = (path for path in contents(directory) if path.name not in NAMES)
    return next(found, None)


def prune_steps(run: Path, keep: int, also: Path | None = None) -> None:
    """Removes all but the last `keep` steps, and `also`."""
    steps = step_directories(run)
    for old in steps[:-keep] if keep > 0 else []:
        if also is None or old.name != also.name:
            remove_step(old)


def remove_step(directory: Path) -> None:
    """Removes a checkpoint; files of others in its directory stay."""
    if directory.is_symlink() or foreign_in_step(directory) is None:
        remove(directory)
        return
    # state.json first: without it, the directory is no checkpoint.
    for name in NAMES:
        (directory / name).unlink(missing_ok=True)


def step_number(directory: Path) -> int:
    """The number of a step, from the name of its directory."""
    return int(directory.name.removeprefix("step-"))


# --- which of them ------------------------------------------------------------------------------


def write_best(run: Path, step: int, loss: float) -> None:
    """Records the step with the best evaluation."""
    write_atomically(run / BEST, json.dumps({"step": step, "loss": loss}).encode() + b"\n")


def best_step(run: Path) -> tuple[Path, float] | None:
    """The step with the best evaluation, and its loss; None if there is none."""
    hint = "delete it to use the last step"
    try:
        fields = read_object(run / BEST, CheckpointError, hint)
    except FileNotFoundError:
        return None
    step, loss = fields.get("step"), fields.get("loss")
    if type(step) is not int or step < 0 or not isinstance(loss, (int, float)):
        raise CheckpointError(f"{run / BEST}: damaged: step {step!r:.40}, loss {loss!r:.40}", hint)
    place = run / f"step-{step:08}"
    # The best step may have been removed since.
    return (place, float(loss)) if (place / STATE).is_file() else None


def find_step(run: Path, which: StepName = "best") -> Path:
    """The checkpoint of a run: `"best"` (else the last), `"last"`, or the number of its step."""
    steps = step_directories(run)
    if not steps:
        raise CheckpointError(f"{run}: no checkpoint yet", "resume training with resume=True")
    if which == "last":
        return steps[-1]
    if which == "best":
        best = best_step(run)
        return best[0] if best is not None else steps[-1]
    if not str(which).isdecimal():
        raise ConfigError(f"step must be 'best', 'last' or the number of a step, got {which!r}")
    place = run / f"step-{int(which):08}"
    if place not in steps:
        there = ", ".join(str(int(p.name.removeprefix("step-"))) for p in steps)
        raise CheckpointError(f"{run}: no checkpoint of step {which}", f"available steps: {there}")
    return place
