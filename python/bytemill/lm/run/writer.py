"""The files that training writes to a run: config, checkpoints, the best step, metrics.

All ranks call the same methods; the first one writes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ... import __version__
from ...progress import Progress
from . import checkpoint
from .config_file import CONFIG, TOKENIZER, tokenizer_fingerprint, write_config
from .directory import clear_run
from .metrics import Metrics
from .resuming import Start
from .sources import Sources
from .steps import best_step, write_best

if TYPE_CHECKING:
    from ..trainer import Trainer

__all__ = ["RunWriter"]


class RunWriter:
    """Writes a run while it is trained.

    Args:
        start: how the run starts.
        trainer: the model and its optimizers; `open` loads their state.
        sources: the tokens.
    """

    def __init__(self, start: Start, trainer: Trainer, sources: Sources) -> None:
        self.run, self.start, self.trainer, self.sources = start.run, start, trainer, sources
        self.best_loss = math.inf
        self._metrics: Metrics | None = None

    def open(self, report: Progress) -> int:
        """Writes the config, loads weights if there are any, and returns the steps done so far."""
        start, world, config = self.start, self.trainer.world, self.trainer.config
        steps = [] if start.stored is None else checkpoint.step_directories(self.run)
        if start.weights is not None and not steps:
            checkpoint.load_checkpoint(start.weights, self.trainer.model)
        if world.first:
            self._write_config()
        world.wait()
        step = self._resume(report) if start.stored is not None else 0
        if world.first:
            self._metrics = Metrics(
                self.run, step, tensorboard=config.tensorboard, wandb=config.wandb
            )
            for note in self._metrics.notes:
                report.say(f"note: {note}")
        return step

    def _write_config(self) -> None:
        if self.start.overwrite and (self.run / CONFIG).exists():
            clear_run(self.run)
        weights = self.start.weights
        write_config(
            self.run,
            {
                "bytemill": __version__,
                "torch": torch.__version__,
                "model": self.trainer.model.config.to_json(),
                "train": self.trainer.config.to_json(),
                "tokens": self.sources.facts,
                "plan": self.trainer.plan.to_json(),
                "ranks": self.trainer.world.size,
                "start_from": None if weights is None else str(weights),
            },
            None if (self.run / TOKENIZER).exists() else self.sources.tokenizer,
        )

    def _resume(self, report: Progress) -> int:
        steps = checkpoint.step_directories(self.run)
        if not steps:
            report.say("resume  no checkpoint yet: starting at step 0")
            return 0
        step = checkpoint.load_checkpoint(steps[-1], self.trainer.model, self.trainer.optimizers)
        best = best_step(self.run)
        if best is not None:
            self.best_loss = best[1]
        # A process killed after it wrote this checkpoint may not have compared its loss.
        loss = checkpoint.read_step(steps[-1]).get("val_loss")
        if loss is not None and loss < self.best_loss:
            self.set_best(step, loss)
        report.say(f"resume  from step {step:,} ({steps[-1].name})")
        return step

    def record(self, step: int, **fields: Any) -> None:
        """Adds a line to the metrics."""
        if self._metrics is not None:
            self._metrics.write(step=step, **fields)

    def save(self, step: int, val_loss: float | None = None) -> None:
        """Writes a checkpoint, with the loss of its evaluation if there was one."""
        # All ranks gather the shards.
        weights = checkpoint.weights_of(self.trainer.model)
        moments, optimizer = checkpoint.optimizer_state(self.trainer.model, self.trainer.optimizers)
        if not self.trainer.world.first:
            return
        facts = {
            "model": self.trainer.model.config.to_json(),
            "optimizer": optimizer,
            "tokenizer": tokenizer_fingerprint(self.sources.facts),
            "seed": self.trainer.config.seed,
            "ranks": self.trainer.world.size,
            "val_loss": val_loss if val_loss is not None and math.isfinite(val_loss) else None,
        }
        checkpoint.write_step(self.run, step, weights, moments, facts)
        self._prune()

    def set_best(self, step: int, loss: float) -> None:
        """Records that this step, which is saved, evaluated best."""
        self.best_loss = loss
        if self.trainer.world.first:
            write_best(self.run, step, loss)
            self._prune()

    def _prune(self) -> None:
        best = best_step(self.run)
        keep = self.trainer.config.keep
        checkpoint.prune_steps(self.run, keep, None if best is None else best[0])

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
