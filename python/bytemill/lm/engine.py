"""A model with its optimizers, and what one step does to them; on one rank or as one of several."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError
from ..progress import Progress
from . import devices
from .config import ModelConfig
from .data import Windows
from .devices import Plan
from .model import TransformerLM
from .optim import clip_gradients, make_optimizers
from .parallel import World
from .settings import TrainConfig

__all__ = ["Engine", "rows_of"]


class Engine:
    """Model, optimizers and the way to the next gradients.

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
        plan: Plan,
        world: World,
    ) -> None:
        self.config, self.windows, self.plan, self.world = config, windows, plan, world
        self.rows = rows_of(config, world)
        self.micro = min(config.micro_batch_size or len(self.rows), len(self.rows))
        torch.manual_seed(config.seed)
        self.model = TransformerLM(model_config).to(plan.device).use_kernels(plan.kernels)
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
        """Compiles as planned; what cannot be compiled runs as it is."""
        if self.plan.compile == "off":
            return
        try:
            self.model.use_kernels("torch")
            for block in self.model.layers:
                block.compile(dynamic=False)
            self.forward_backward(step, n_parts=1)
        except Exception as error:
            # Whatever the compiler stumbles on, there is a way without it.
            for block in self.model.layers:
                block._compiled_call_impl = None
            self.model.use_kernels(self.plan.kernels)
            report.say(f"note: compiling failed ({type(error).__name__}); training without it")
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
            f"batch_size={config.batch_size} does not divide among {world.size} ranks",
            f"use a multiple of {world.size}; it counts the sequences of all ranks together",
        )
    share = config.batch_size // world.size
    return range(world.rank * share, (world.rank + 1) * share)
