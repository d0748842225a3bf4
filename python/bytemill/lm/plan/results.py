"""The results of a sweep, also of one that is still running. No torch."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ..._json import read_object
from ...errors import CheckpointError

__all__ = ["Sweep", "Trial", "is_run_name", "is_trial", "read_sweep"]

SUMMARY = "sweep.json"
KIND = "bytemill sweep"

Status = Literal["done", "diverged", "failed"]


@dataclass(frozen=True)
class Trial:
    """A run of a sweep.

    Attributes:
        settings: the settings that vary in the sweep.
        run: its directory.
        status: `"done"`, `"diverged"` (stopped early), or `"failed"` (could not start).
        step: updates done.
        loss: mean training loss of its last steps.
        val_loss: held-out loss at the end; None without held-out tokens.
        val_bits_per_byte: the same in bits per byte.
        seconds: duration of its steps.
        message: the reason, if it is not done.
    """

    settings: dict[str, Any]
    run: Path
    status: Status
    step: int = 0
    loss: float | None = None
    val_loss: float | None = None
    val_bits_per_byte: float | None = None
    seconds: float = 0.0
    message: str | None = None

    @property
    def score(self) -> float:
        """The held-out loss, or that of the last steps; lower is better."""
        found = self.loss if self.val_loss is None else self.val_loss
        if self.status != "done" or found is None or not math.isfinite(found):
            return math.inf
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"run": self.run.name}


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Attributes:
        out: its directory.
        fields: the settings that vary.
        trials: the runs, best first.
        notes: notes for the user.
    """

    out: Path
    fields: list[str]
    trials: list[Trial]
    notes: list[str]

    @property
    def best(self) -> Trial | None:
        """The run with the lowest loss; None if none finished."""
        return self.trials[0] if math.isfinite(self.trials[0].score) else None


def read_sweep(out: str | os.PathLike[str]) -> Sweep:
    """The results of a sweep so far, from its directory, best first.

    Runs that have not ended are not among the trials.
    """
    place = Path(out)
    path = place / SUMMARY
    found = read_object(path, CheckpointError)
    listed = found.get("trials")
    if found.get("kind") != KIND or not isinstance(listed, list):
        raise CheckpointError(f"{path}: not the table of a bytemill sweep")
    trials = []
    for fields in listed:
        if not (
            isinstance(fields, dict)
            and is_trial(fields)
            and isinstance(fields["settings"], dict)
            and is_run_name(fields["run"])
        ):
            raise CheckpointError(f"{path}: damaged: {str(fields)[:60]}")
        trials.append(Trial(**fields | {"run": place / fields["run"]}))
    varied = found.get("fields")
    if varied is None:  # of an earlier version
        varied = list({name: None for trial in trials for name in trial.settings})
    if not isinstance(varied, list) or not all(isinstance(name, str) for name in varied):
        raise CheckpointError(f"{path}: damaged: fields is {str(varied)[:60]}")
    return Sweep(place, varied, sorted(trials, key=lambda trial: trial.score), [])


def is_trial(fields: Mapping[str, Any]) -> bool:
    """Whether these are the fields of a `Trial`, each of its type."""
    names = {field.name for field in dataclasses.fields(Trial)}
    numbers = ("loss", "val_loss", "val_bits_per_byte")
    return (
        set(fields) == names
        and fields["status"] in get_args(Status)
        and type(fields["step"]) is int
        and all(fields[name] is None or type(fields[name]) in (int, float) for name in numbers)
        and type(fields["seconds"]) in (int, float)
        and isinstance(fields["message"], (str, type(None)))
    )


def is_run_name(name: object) -> bool:
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name
