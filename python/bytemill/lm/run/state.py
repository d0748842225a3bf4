"""The state of a run, from its files: whether it is being trained, its steps, its best loss.

Reads a few small files, regardless of the length of the run; safe during training. No torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..._files import is_locked
from ...errors import CheckpointError, ConfigError
from ..config import TrainConfig
from ..plan.costs import n_parameters
from .config_file import CONFIG, model_config, read_config, tokenizer_fingerprint
from .metrics import last_step
from .output_directory import LOCK
from .steps import best_step, step_directories, step_number

__all__ = ["RunState", "RunStatus", "run_state", "run_status"]

RunStatus = Literal["training", "finished", "interrupted"]


@dataclass(frozen=True)
class RunState:
    """The state of a run.

    Attributes:
        run: its directory.
        config: the contents of its `config.json`.
        status: `"training"` while a process writes to it, `"finished"` after its last step, else
            `"interrupted"`.
        step: updates done.
        steps: updates of the whole run.
        checkpoints: the steps with a checkpoint.
        best: the step with the best evaluation; None if there is none.
        val_loss: the loss of that evaluation.
        n_parameters: number of parameters of the model.
        tokens_per_step: tokens of a batch; 0 if the run was not trained here.
        fingerprint: that of the tokenizer; None if it is not known.
    """

    run: Path
    config: dict[str, Any]
    status: RunStatus
    step: int
    steps: int
    checkpoints: list[int]
    best: int | None
    val_loss: float | None
    n_parameters: int
    tokens_per_step: int
    fingerprint: str | None


def run_status(run: Path, step: int, steps: int) -> RunStatus:
    """The status of a run that has done `step` of `steps` updates."""
    if is_locked(run / LOCK):
        return "training"
    return "finished" if step >= steps else "interrupted"


def run_state(run: str | os.PathLike[str]) -> RunState:
    """Reads the state of a run."""
    place = Path(run)
    fields = read_config(place)
    model = model_config(fields, str(place / CONFIG))
    try:
        # An imported run has no training config.
        train = TrainConfig.from_json(fields["train"]) if "train" in fields else None
    except ConfigError as error:
        raise CheckpointError(f"{place / CONFIG}: {error.message}", error.hint) from None
    checkpoints = [step_number(path) for path in step_directories(place)]
    best = best_step(place)
    step = max([last_step(place), *checkpoints])
    steps = step if train is None else train.steps
    return RunState(
        run=place,
        config=fields,
        status=run_status(place, step, steps),
        step=step,
        steps=steps,
        checkpoints=checkpoints,
        best=None if best is None else step_number(best[0]),
        val_loss=None if best is None else best[1],
        n_parameters=n_parameters(model),
        tokens_per_step=0 if train is None else train.batch_size * model.context_length,
        fingerprint=tokenizer_fingerprint(fields.get("tokens", {})),
    )
