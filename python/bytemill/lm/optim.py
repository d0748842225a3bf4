"""Optimizers: SGD and AdamW as the books write them, Muon, and what a run uses of them.

The plain ones are for reading and for tests; a run takes torch's fused AdamW, which goes over
memory once and gives the same numbers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import ConfigError
from .sharding import like, whole

__all__ = [
    "SGD",
    "AdamW",
    "Muon",
    "OptimizerName",
    "Optimizers",
    "clip_gradients",
    "make_optimizers",
    "weight_decay_groups",
]

Parameters = Iterable[Any]
Closure = Callable[[], float]
OptimizerName = Literal["adamw", "muon", "sgd"]


class SGD(Optimizer):
    """p ← p - lr / √(t + 1) · gradient, as the course's exercise has it.

    `decay=False` keeps the rate as it is, which is textbook gradient descent.
    """

    def __init__(self, params: Parameters, lr: float = 1e-3, decay: bool = True) -> None:
        if lr < 0:
            raise ConfigError(f"lr={lr} cannot be", "use a learning rate of 0 or more")
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Updates every parameter that has a gradient."""
        loss = _loss_of(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                t = self.state[p].get("t", 0)
                rate = group["lr"] / math.sqrt(t + 1) if group["decay"] else group["lr"]
                p -= rate * p.grad
                self.state[p]["t"] = t + 1
        return loss


class AdamW(Optimizer):
    """Adam with weight decay apart from the gradient."""

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if value < 0:
                raise ConfigError(f"{name}={value} cannot be", "use 0 or more")
        for beta in betas:
            if not 0 <= beta < 1:
                raise ConfigError(f"betas={betas} cannot be", "each must be at least 0, below 1")
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Updates every parameter that has a gradient."""
        loss = _loss_of(closure)
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                m, v = state["exp_avg"], state["exp_avg_sq"]
                state["step"] += 1
                t = state["step"].item()
                p *= 1 - lr * group["weight_decay"]
                m.copy_(beta1 * m + (1 - beta1) * p.grad)
                v.copy_(beta2 * v + (1 - beta2) * p.grad**2)
                m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
                p -= lr * m_hat / (v_hat.sqrt() + group["eps"])
        return loss


class Muon(Optimizer):
    """Momentum whose direction is made orthogonal, for the matrices of hidden layers.

    The same update as `torch.optim.Muon` with its default learning rates, which multiplies in
    bfloat16; processors without that arithmetic emulate it at a fifth of the speed. Here it is
    float32 on a CPU, and matrices of one shape go through the iteration together.
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
                        f"Muon is for matrices, not for a parameter of shape {tuple(p.shape)}",
                        "give the others to AdamW",
                    )

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Updates every matrix that has a gradient."""
        loss = _loss_of(closure)
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
            # Nesterov's look ahead. Of shards, every rank gets the whole matrix.
            directions.append(whole(torch.lerp(grad, buffer, momentum)))
        updates = orthogonalized(torch.stack(directions), group["iterations"])
        rows, columns = params[0].shape
        rate = group["lr"] * math.sqrt(max(1, rows / columns))
        for p, update in zip(params, updates):
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(like(update.to(p.dtype), p), alpha=-rate)


def orthogonalized(matrices: Tensor, iterations: int = 5) -> Tensor:
    """About the nearest matrices with all singular values near 1, by Newton and Schulz.

    The polynomial's coefficients are Keller Jordan's: they lift small singular values fast, and
    leave the others between 0.7 and 1.2 instead of at 1, which does no harm to training.
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


def _loss_of(closure: Closure | None) -> float | None:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scales all gradients together so that their global norm is at most `max_norm`.

    Gives the norm as it was.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    if not grads:
        return torch.zeros(())
    norms = torch.stack([norm.to(grads[0].device) for norm in torch._foreach_norm(grads)])
    norm: Tensor = torch.linalg.vector_norm(norms)
    # No branch on the value: on a GPU that would wait for it.
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    if grads[0].device.type != "cpu" or scale < 1:
        torch._foreach_mul_(grads, scale)
    return norm


# --- what a run uses ---------------------------------------------------------------------------


def weight_decay_groups(
    parameters: Iterable[nn.Parameter], weight_decay: float
) -> list[dict[str, Any]]:
    """Matrices decay; vectors (the weights of norms) do not."""
    kept = [p for p in parameters if p.requires_grad]
    matrices, vectors = [p for p in kept if p.dim() >= 2], [p for p in kept if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class Optimizers:
    """Several optimizers, each with its own share of the parameters, as one.

    A group's learning rate is its share `lr_scale` of the rate that the schedule gives.
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
        raise KeyError("a parameter that no optimizer has")

    def set_lr(self, lr: float) -> None:
        for group in self.param_groups:
            group["lr"] = lr * group["lr_scale"]

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)


def make_optimizers(
    model: nn.Module,
    name: OptimizerName,
    *,
    lr: float,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    muon_lr: float = 0.02,
    muon_weight_decay: float = 0.01,
    embedding_lr: float | None = None,
) -> Optimizers:
    """The optimizers of a run.

    `"muon"` is Muon for the matrices of the blocks and AdamW for the rest, without decay there. The
    embedding, if it is not the head too, may have a rate of its own: most of its rows see few
    gradients, and beside Muon 30 times the rate of the rest was better by 0.13 after 400 steps.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if name == "sgd":
        return Optimizers(SGD(parameters, lr, decay=False), base_lr=lr)
    hidden: list[nn.Parameter] = []
    if name == "muon":
        blocks: Any = getattr(model, "blocks", None)
        hidden = [p for p in blocks.parameters() if p.dim() == 2] if blocks is not None else []
        chosen = {id(p) for p in hidden}
        parameters = [p for p in parameters if id(p) not in chosen]
        weight_decay = 0.0
    if embedding_lr is None:
        embedding_lr = 30 * lr if name == "muon" else lr
    embedding = _own_embedding(model) if embedding_lr != lr else None
    groups = weight_decay_groups((p for p in parameters if p is not embedding), weight_decay)
    if embedding is not None:
        groups.append({"params": [embedding], "weight_decay": weight_decay, "lr": embedding_lr})
    # One pass over memory instead of a dozen: measured at a quarter of the time of foreach.
    fused = all(p.device.type in ("cpu", "cuda", "mps") for p in parameters)
    adamw = torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=fused)
    if not hidden:
        return Optimizers(adamw, base_lr=lr)
    return Optimizers(adamw, Muon(hidden, muon_lr, muon_weight_decay), base_lr=lr)


def _own_embedding(model: nn.Module) -> nn.Parameter | None:
    """The embedding, if it is not the head too."""
    weight: Any = getattr(getattr(model, "embedding", None), "weight", None)
    return None if weight is getattr(model, "head_weight", None) else weight
