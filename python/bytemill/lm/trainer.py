"""One step of training, and all that a step needs: device, model, optimizers, batches.

`prepare` decides how to compute and checks that it fits into memory, before anything is allocated;
the training loop, the learning-rate test, measuring and evaluating begin with it.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import nn

from ..errors import ConfigError
from ..progress import Progress
from . import devices
from .config import ModelConfig, TrainConfig
from .data import TokenArray, Windows
from .devices import ComputePlan
from .model import TransformerLM
from .optim import clip_gradients, make_optimizers
from .parallel import World, local_rank
from .plan.fitting import Prediction, check_memory

__all__ = ["Clock", "Setup", "Stop", "Trainer", "Watch", "prepare", "rows_of"]


@dataclass(frozen=True)
class Setup:
    """How a model will be trained: decided and checked, nothing allocated yet.

    Attributes:
        model: what the model is.
        train: how it is trained.
        plan: how it is computed.
        memory: how much it will take.
    """

    model: ModelConfig
    train: TrainConfig
    plan: ComputePlan
    memory: Prediction

    def trainer(self, tokens: TokenArray, world: World | None = None) -> Trainer:
        """Model, optimizers and batches of these tokens."""
        windows = Windows(tokens, self.model.context_length, self.train.seed, self.model.vocab_size)
        world = World(0, 1, self.plan.device) if world is None else world
        return Trainer(self.model, self.train, windows, self.plan, world)


def prepare(
    model: ModelConfig,
    train: TrainConfig,
    *,
    n_ranks: int = 1,
    force: bool = False,
    warm: bool = True,
) -> Setup:
    """Chooses device, dtype and kernels, and refuses what would not fit into memory.

    Args:
        model: what the model is.
        train: how it is trained.
        n_ranks: ranks that share each batch.
        force: do not refuse.
        warm: load what libraries load at first use, so that it counts as memory that is taken.
    """
    if train.threads is not None:
        torch.set_num_threads(train.threads)
    plan = devices.choose(model, train, local_rank())
    if warm:
        _warm_up(train, plan)
    return Setup(model, train, plan, check_memory(model, train, plan, n_ranks=n_ranks, force=force))


def _warm_up(train: TrainConfig, plan: ComputePlan) -> None:
    """Trains a tiny model for a step."""
    small = dataclasses.replace(train, batch_size=1, micro_batch_size=None, parallel="ddp")
    windows = Windows(np.zeros(20, np.uint16), 8)
    trainer = Trainer(ModelConfig(64, 8, 16, 1, 2), small, windows, plan, World(0, 1, plan.device))
    trainer.forward_backward(0)
    trainer.update(train.lr)


class Trainer:
    """A model with its optimizers, and what one step does to them, on this rank.

    Args:
        model_config: what the model is; its weights follow from the seed.
        config: how it is trained.
        windows: what it is trained on.
        plan: how to compute.
        world: with whom.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        config: TrainConfig,
        windows: Windows,
        plan: ComputePlan,
        world: World,
    ) -> None:
        self.config, self.windows, self.plan, self.world = config, windows, plan, world
        self.rows = rows_of(config, world)
        self.micro = min(config.micro_batch_size or len(self.rows), len(self.rows))
        torch.manual_seed(config.seed)
        self.model = plan.attach(TransformerLM(model_config).to(plan.device))
        self.shared: nn.Module = world.shared(self.model, config.parallel)
        self.optimizers = make_optimizers(
            self.model,
            config.optimizer,
            lr=config.lr,
            weight_decay=config.weight_decay,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            muon_lr=config.muon_lr,
            embedding_lr=config.embedding_lr,
        )

    def compile(self, step: int, report: Progress) -> None:
        """Compiles the blocks if planned; falls back to uncompiled code on failure."""
        if self.plan.compile == "off":
            return
        try:
            for block in self.model.layers:
                block.compile(dynamic=False)
            self.forward_backward(step, n_parts=1)
        except Exception as error:
            # Whatever the compiler stumbles on, there is a way without it.
            for block in self.model.layers:
                block._compiled_call_impl = None
            self.plan = dataclasses.replace(self.plan, compile="off")
            if self.shared is self.model or self.config.parallel != "fsdp":
                self.plan.attach(self.model)
            report.say(f"note: compiling failed ({type(error).__name__}); training uncompiled")
        self.optimizers.zero_grad()

    def trial(self, step: int) -> float:
        """Seconds of a step, by trying a micro-batch of one that changes nothing."""
        best = math.inf
        for _ in range(2):
            began = time.perf_counter()
            self.forward_backward(step, n_parts=1)
            devices.synchronize(self.plan.device)
            best = min(best, time.perf_counter() - began)
        self.optimizers.zero_grad()
        return best * len(self.rows) / self.micro

    def forward_backward(self, step: int, n_parts: int | None = None) -> float:
        """Adds up the gradients of a step; the mean loss of this rank's rows.

        Args:
            step: whose batch.
            n_parts: only the first micro-batches, to try them; None for all.
        """
        total = 0.0
        starts = range(self.rows.start, self.rows.stop, self.micro)[:n_parts]
        for start in starts:
            rows = range(start, min(start + self.micro, self.rows.stop))
            ids, targets = self.windows.batch(step, self.config.batch_size, self.plan.device, rows)
            share = len(rows) / len(self.rows)
            last = start == starts[-1]
            with self.world.accumulating(self.shared, last):
                with self.plan.autocast():
                    loss = self.shared(ids, targets)
                (loss if share == 1 else loss * share).backward()
            total += float(loss.detach()) * share
        return total

    def update(self, lr: float) -> float:
        """Clips and updates; the norm of the gradients."""
        parameters = list(self.model.parameters())
        limit = self.config.clip or math.inf
        if self.config.parallel == "fsdp" and self.world.size > 1:
            found: Any = nn.utils.clip_grad_norm_(parameters, limit)
            norm = float(found.full_tensor() if hasattr(found, "full_tensor") else found)
        else:
            norm = float(clip_gradients(parameters, limit))
        if math.isfinite(norm):
            self.optimizers.set_lr(lr)
            self.optimizers.step()
        self.optimizers.zero_grad()
        return norm


def rows_of(config: TrainConfig, world: World) -> range:
    """The rows of every batch that this rank computes."""
    if config.batch_size % world.size:
        raise ConfigError(
            f"batch_size must be a multiple of the {world.size} ranks, got {config.batch_size}",
            "it counts the sequences of all ranks together",
        )
    share = config.batch_size // world.size
    return range(world.rank * share, (world.rank + 1) * share)


# --- while it runs ------------------------------------------------------------------------------


# A loss this far above its best, for this many steps, does not come back by itself.
DIVERGED_BY = 1.5
DIVERGED_FOR = 50


class Watch:
    """Detects a loss that has diverged.

    Args:
        patience: steps that it may be far above its best.
    """

    def __init__(self, patience: int = DIVERGED_FOR) -> None:
        self.patience = patience
        self.mean: float | None = None
        self.lowest = math.inf
        self.above = 0

    def __call__(self, loss: float) -> str | None:
        if not math.isfinite(loss):
            return None
        self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss
        self.lowest = min(self.lowest, self.mean)
        self.above = self.above + 1 if self.mean > self.lowest + DIVERGED_BY else 0
        if self.above < self.patience:
            return None
        return (
            f"the loss diverged: about {self.mean:.2f} for {self.above} steps, "
            f"after a minimum of {self.lowest:.2f}"
        )


class Clock:
    """Seconds of a step, smoothed; a pause of the whole machine counts once."""

    def __init__(self) -> None:
        self._began = self.last = 0.0
        self._mean: float | None = None

    def begin(self) -> None:
        self._began = time.perf_counter()

    def end(self) -> float:
        self.last = passed = time.perf_counter() - self._began
        self._mean = passed if self._mean is None else 0.8 * self._mean + 0.2 * passed
        return max(self._mean, 1e-9)


class Stop:
    """Ctrl-C ends a run at the end of a step, with a checkpoint; a second time, at once."""

    def __init__(self, enabled: bool) -> None:
        self.enabled, self.asked = enabled, False
        self._before: Any = None

    def __enter__(self) -> Stop:
        # Only the main thread may set handlers, and a caller's SIG_IGN is respected.
        with suppress(ValueError):
            if self.enabled and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
