"""One training step and everything it needs: device, model, optimizers, batches.

`prepare` chooses device, dtype and kernels, and checks the memory before anything is allocated.
Training, sweeps, the learning-rate test, measurement and evaluation all start with it.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ..errors import ConfigError
from ..progress import Progress
from . import devices, presets
from .config import ModelConfig, TrainConfig
from .data import TokenArray, Windows
from .devices import ComputePlan
from .keywords import TokenDtype
from .model import TransformerLM
from .optim import clip_gradients, make_optimizers
from .parallel import World, local_rank
from .plan.fitting import Prediction, check_memory
from .run.sources import Sources, open_sources

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = ["Setup", "Trainer", "open_data", "prepare", "rows_of"]


def open_data(
    tokens: str | os.PathLike[str],
    keys: Mapping[str, Any],
    *,
    tokenizer: Tokenizer | str | os.PathLike[str] | None,
    val: str | os.PathLike[str] | None,
    token_dtype: TokenDtype,
) -> tuple[Sources, ModelConfig, TrainConfig]:
    """Opens tokens, and builds the configs from merged keys and the vocabulary of the tokens."""
    sources = open_sources(
        tokens,
        tokenizer=tokenizer,
        val=val,
        val_fraction=presets.train_config(keys).val_fraction,
        vocab_size=keys.get("vocab_size"),
        token_dtype=token_dtype,
    )
    return sources, *presets.to_configs(keys, sources.vocab_size)


@dataclass(frozen=True)
class Setup:
    """How a model will be trained; nothing is allocated yet.

    Attributes:
        model: the shape of the model.
        train: how it is trained.
        plan: device, dtype and kernels.
        memory: the predicted memory.
    """

    model: ModelConfig
    train: TrainConfig
    plan: ComputePlan
    memory: Prediction

    def trainer(self, tokens: TokenArray, world: World | None = None) -> Trainer:
        """Model, optimizers and batches for these tokens."""
        model = self.model
        windows = Windows(
            tokens, model.context_length, seed=self.train.seed, vocab_size=model.vocab_size
        )
        world = World(0, 1, self.plan.device) if world is None else world
        return Trainer(model, self.train, windows, self.plan, world)


def prepare(
    model: ModelConfig,
    train: TrainConfig,
    *,
    n_ranks: int = 1,
    force: bool = False,
    warm: bool = True,
) -> Setup:
    """Chooses device, dtype and kernels; raises if training would not fit into memory.

    Args:
        model: the shape of the model.
        train: how it is trained.
        n_ranks: number of ranks that share each batch.
        force: do not raise.
        warm: first train a tiny model for one step, so that memory that libraries allocate at first
            use counts as taken.
    """
    if train.threads is not None:
        torch.set_num_threads(train.threads)
    plan = devices.choose(model, train, local_rank())
    if warm:
        _warm_up(train, plan)
    return Setup(model, train, plan, check_memory(model, train, plan, n_ranks=n_ranks, force=force))


def _warm_up(train: TrainConfig, plan: ComputePlan) -> None:
    small = dataclasses.replace(train, batch_size=1, micro_batch_size=None, parallel="ddp")
    windows = Windows(np.zeros(20, np.uint16), 8)
    model = ModelConfig(vocab_size=64, context_length=8, d_model=16, num_layers=1, num_heads=2)
    trainer = Trainer(model, small, windows, plan, World(0, 1, plan.device))
    trainer.forward_backward(0)
    trainer.update(train.lr)


class Trainer:
    """A model, its optimizers and its batches on this rank.

    Args:
        model_config: the shape of the model; its initial weights follow from the seed.
        config: how it is trained.
        windows: the training tokens.
        plan: device, dtype and kernels.
        world: the ranks.
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
        self.model = plan.attach(TransformerLM(model_config))
        self.shared: nn.Module = world.shared(self.model, config.parallel)
        self.optimizers = make_optimizers(self.model, config)

    def forward_backward(self, step: int, n_parts: int | None = None) -> float:
        """Accumulates the gradients of a step; returns the mean loss of this rank's rows.

        Args:
            step: number of the step, which determines its batch.
            n_parts: number of micro-batches to compute; None for all.
        """
        total = 0.0
        starts = range(self.rows.start, self.rows.stop, self.micro)[:n_parts]
        for start in starts:
            rows = range(start, min(start + self.micro, self.rows.stop))
            ids, targets = self.windows.batch(
                step, self.config.batch_size, device=self.plan.device, rows=rows
            )
            share = len(rows) / len(self.rows)
            last = start == starts[-1]
            with self.world.accumulating(self.shared, last):
                with self.plan.autocast():
                    loss = self.shared(ids, targets)
                (loss if share == 1 else loss * share).backward()
            total += float(loss.detach()) * share
        return total

    def update(self, lr: float) -> float:
        """Clips the gradients and updates the weights; returns the norm of the gradients.

        If the norm is not finite, the weights stay as they are.
        """
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

    # --- before the first step ------------------------------------------------------------------

    def compile(self, step: int, report: Progress) -> None:
        """Compiles the blocks if planned; if that fails, trains without."""
        if self.plan.compile == "off":
            return
        try:
            for block in self.model.layers:
                block.compile(dynamic=False)
            self.forward_backward(step, n_parts=1)
        except Exception as error:
            # Any failure of the compiler: uncompiled blocks always work.
            for block in self.model.layers:
                block._compiled_call_impl = None
            self.plan = dataclasses.replace(self.plan, compile="off")
            if self.shared is self.model or self.config.parallel != "fsdp":
                self.plan.attach(self.model)
            report.say(f"note: compiling failed ({type(error).__name__}); training uncompiled")
        self.optimizers.zero_grad()

    def seconds_per_step(self, step: int) -> float:
        """Estimates the time of a step from one micro-batch; changes nothing."""
        best = math.inf
        for _ in range(2):
            began = time.perf_counter()
            self.forward_backward(step, n_parts=1)
            devices.synchronize(self.plan.device)
            best = min(best, time.perf_counter() - began)
        self.optimizers.zero_grad()
        return best * len(self.rows) / self.micro


def rows_of(config: TrainConfig, world: World) -> range:
    """The rows of every batch that this rank computes."""
    if config.batch_size % world.size:
        raise ConfigError(
            f"batch_size must be a multiple of the {world.size} ranks, got {config.batch_size}",
            "it counts the sequences of all ranks together",
        )
    share = config.batch_size // world.size
    return range(world.rank * share, (world.rank + 1) * share)
