"""What a run measures, kept: JSON lines always; TensorBoard and W&B where they are installed."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from .._files import replacing

__all__ = ["METRICS", "Metrics", "read_metrics"]

METRICS = "metrics.jsonl"


class Metrics:
    """Where measures of a run go.

    Args:
        run: its directory.
        first_step: what is there of this step and later ones, of a run that was interrupted, is
            cut off.
        tensorboard: also write event files, if possible.
        wandb: also log to Weights & Biases, offline, if possible.
    """

    def __init__(
        self, run: Path, first_step: int, *, tensorboard: bool = False, wandb: bool = False
    ) -> None:
        self.notes: list[str] = []
        path = run / METRICS
        if path.exists():
            _cut(path, first_step)
        self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._board = self._open_board(run, first_step) if tensorboard else None
        self._wandb = self._open_wandb(run) if wandb else None

    def _open_board(self, run: Path, first_step: int) -> Any:
        try:
            module = importlib.import_module("torch.utils.tensorboard")
        except ImportError:
            self.notes.append("no event files: pip install 'bytemill[tensorboard]'")
            return None
        return module.SummaryWriter(str(run / "events"), purge_step=first_step or None)

    def _open_wandb(self, run: Path) -> Any:
        try:
            wandb = importlib.import_module("wandb")
        except ImportError:
            self.notes.append("nothing for Weights & Biases: pip install wandb")
            return None
        os.environ.setdefault("WANDB_SILENT", "true")
        return wandb.init(project="bytemill", name=run.name, dir=str(run), mode="offline")

    def write(self, **fields: Any) -> None:
        """Adds a line; `step` is among the fields."""
        self._file.write(json.dumps(fields) + "\n")
        # Cheap, and a reader sees how far the run is.
        self._file.flush()
        step = fields["step"]
        numbers = {k: v for k, v in fields.items() if isinstance(v, (int, float)) and k != "step"}
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def read_metrics(run: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run; a last line that a kill left unfinished is left out."""
    with open(run / METRICS, encoding="utf-8") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                fields = json.loads(line)
                if isinstance(fields, dict) and "step" in fields:
                    yield fields


def _cut(path: Path, first_step: int) -> None:
    kept = [fields for fields in read_metrics(path.parent) if fields["step"] <= first_step]
    with replacing(path) as file:
        file.write("".join(json.dumps(fields) + "\n" for fields in kept).encode())
