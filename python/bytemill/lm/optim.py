"""Optimizers and the learning rate.

A run uses torch's fused AdamW, which passes over memory once; `naive.AdamW` has the formulas.
The learning rate is a function of the config and the step, so a resumed run needs no state for it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import ConfigError
from .config import TrainConfig
from .model import TransformerLM
from .naive import SGD, loss_of_closure
from .parallel import like, whole

__all__ = [
    "Muon",
    "Optimizers",
    "clip_gradients",
    "constant_schedule",
    "cosine_schedule",
    "learning_rate",
    "make_optimizers",
    "wsd_schedule",
]

Parameters = Iterable[Any]
Closure = Callable[[], float]
# Weight decay of Muon, whose updates are all of one size.
MUON_WEIGHT_DECAY = 0.01


class Muon(Optimizer):
    """Momentum whose direction is made orthogonal, for the matrices of hidden layers.

    The same update as `torch.optim.Muon` with its default scaling of the rate. That one multiplies
    in bfloat16, which CPUs without such instructions emulate at a fifth of the speed; this one
    uses float32 on a CPU, and updates matrices of equal shape together.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.02,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        iterations: int = 5,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "iterations": iterations,
            },
        )
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ConfigError(
                        f"Muon requires matrices, got a parameter of shape {tuple(p.shape)}",
                        "use AdamW for the others",
                    )

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Updates every matrix that has a gradient."""
        loss = loss_of_closure(closure)
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    alike[p.shape].append(p)
            for same in alike.values():
                self._update(same, group)
        return loss

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        momentum = group["momentum"]
        directions = []
        for p in params:
            state = self.state[p]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(p)
            buffer = state["momentum_buffer"]
            grad = p.grad
            assert grad is not None
            buffer.lerp_(grad, 1 - momentum)
            # Nesterov momentum. With FSDP, every rank gathers the whole matrix.
            directions.append(whole(torch.lerp(grad, buffer, momentum)))
        updates = orthogonalized(torch.stack(directions), group["iterations"])
        rows, columns = params[0].shape
        rate = group["lr"] * math.sqrt(max(1, rows / columns))
        for p, update in zip(params, updates):
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(like(update.to(p.dtype), p), alpha=-rate)


def orthogonalized(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Moves all singular values close to 1, by Newton–Schulz iterations.

    The coefficients are Keller Jordan's: they raise small singular values fast and leave the others
    between 0.7 and 1.2 instead of at 1, which does not hurt training.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x: Tensor = matrices if matrices.device.type == "cpu" else matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(iterations):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scales all gradients so that their global norm is ≤ `max_norm`; returns the old norm."""
    grads = [p.grad for p in parameters if p.grad is not None]
    if not grads:
        return torch.zeros(())
    norms = torch.stack([norm.to(grads[0].device) for norm in torch._foreach_norm(grads)])
    norm: Tensor = torch.linalg.vector_norm(norms)
    # On a GPU, a branch on the value would wait for it.
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    if grads[0].device.type != "cpu" or scale < 1:
        torch._foreach_mul_(grads, scale)
    return norm


# --- the optimizers of a run --------------------------------------------------------------------


class Optimizers:
    """Several optimizers, each with its own parameters, used as one.

    Each parameter group keeps the ratio `lr_scale` of its rate to the scheduled rate.
    """

    def __init__(self, *optimizers: Optimizer, base_lr: float) -> None:
        self.optimizers = optimizers
        for group in self.param_groups:
            group["lr_scale"] = group["lr"] / base_lr

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def state(self) -> dict[Any, Any]:
        """All states, by parameter."""
        return {p: s for optimizer in self.optimizers for p, s in optimizer.state.items()}

    def owner(self, parameter: Tensor) -> Optimizer:
        """The optimizer that updates this parameter."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                if any(parameter is p for p in group["params"]):
                    return optimizer
        raise KeyError("no optimizer updates this parameter")

    def set_lr(self, lr: float) -> None:
        for group in self.param_groups:
            group["lr"] = lr * group["lr_scale"]

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)


def make_optimizers(model: TransformerLM, config: TrainConfig) -> Optimizers:
    """The optimizers of a run.

    `"muon"` is Muon for the matrices of the blocks and AdamW, without decay, for the rest. An
    untied embedding may have its own rate: most of its rows get few gradients, and with Muon, 30
    times the rate of the rest gave a loss lower by 0.13 after 400 steps.
    """
    parameters, lr = list(model.parameters()), config.lr
    if config.optimizer == "sgd":
        return Optimizers(SGD(parameters, lr, decay=False), base_lr=lr)
    embedding_lr, weight_decay = config.embedding_lr or lr, config.weight_decay
    hidden: list[nn.Parameter] = []
    if config.optimizer == "muon":
        embedding_lr, weight_decay = config.embedding_lr or 30 * lr, 0.0
        hidden = [p for p in model.blocks.parameters() if p.dim() == 2]
    # Matrices decay; vectors (the weights of norms) do not.
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": weight_decay},
        {"params": [], "weight_decay": 0.0},
        {"params": [], "weight_decay": weight_decay, "lr": embedding_lr},
    ]
    embedding = None if model.head is None else model.embedding.weight
    in_hidden = set(map(id, hidden))
    for p in parameters:
        if p is embedding and embedding_lr != lr:
            groups[2]["params"].append(p)
        elif id(p) not in in_hidden:
            groups[0 if p.dim() == 2 else 1]["params"].append(p)
    groups = [group for group in groups if group["params"]]
    betas = config.beta1, config.beta2
    # Fused AdamW takes a quarter of the time of the foreach version.
    adamw = torch.optim.AdamW(groups, lr=lr, betas=betas, eps=config.eps, fused=True)
    if not hidden:
        return Optimizers(adamw, base_lr=lr)
    return Optimizers(adamw, Muon(hidden, config.muon_lr, MUON_WEIGHT_DECAY), base_lr=lr)


# --- the learning rate: steps count from 0, the first update -------------------------------------


def cosine_schedule(step: int, max_lr: float, min_lr: float, warmup: int, total: int) -> float:
    """Rises linearly over `warmup` steps, falls along half a cosine until `total`, stays constant.

    >>> [cosine_schedule(step, 1.0, 0.0, warmup=2, total=6) for step in (0, 1, 2, 4, 6, 9)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """
    if step < warmup:
        return max_lr * step / warmup
    if step >= total:
        return min_lr
    share = (step - warmup) / (total - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * share)) * (max_lr - min_lr)


def constant_schedule(step: int, max_lr: float, warmup: int = 0) -> float:
    """Rises linearly over `warmup` steps, then is constant."""
    return max_lr * step / warmup if step < warmup else max_lr


def wsd_schedule(
    step: int, max_lr: float, min_lr: float, warmup: int, decay: int, total: int
) -> float:
    """Warmup, stable, decay: constant until `decay` steps before `total`, then falls linearly.

    >>> [wsd_schedule(step, 1.0, 0.0, warmup=2, decay=4, total=10) for step in (1, 2, 6, 8, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return max_lr * step / warmup
    if step >= total:
        return min_lr
    left = total - step
    return max_lr if left >= decay else min_lr + (max_lr - min_lr) * left / decay


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of update number `step` of a run.

    During warmup the schedule is evaluated at `step + 1`: the first update would have a rate of 0.
    """
    warmup, total, last = config.warmup_steps, config.steps, config.last_lr
    at = step + 1 if step < warmup else step
    if config.schedule == "constant":
        return constant_schedule(at, config.lr, warmup)
    if config.schedule == "wsd":
        return wsd_schedule(at, config.lr, last, warmup, config.decay_steps, total)
    return cosine_schedule(at, config.lr, last, warmup, total)
