"""The mathematics of the model, written out: the oracle that tests hold everything faster to.

Functions of tensors, and of weights by name; no torch kernel where a formula will do. Any leading
dimensions are allowed. Sums over many numbers are in float32 even if the numbers have fewer bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import ConfigError
from .config import ModelConfig
from .model import KVCache, LayerCache, RMSNorm, TransformerBlock, TransformerLM

__all__ = [
    "SGD",
    "AdamW",
    "attach",
    "block",
    "cross_entropy",
    "perplexity",
    "rms_norm",
    "rotate",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "swiglu",
]

# The weights of a block by name: `attention.query.weight` and so on.
Weights = Mapping[str, Tensor]
Parameters = Iterable[Any]
Closure = Callable[[], float]


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x) divided by its sum along `dim`; the maximum is subtracted first to avoid overflow.

    >>> softmax(torch.tensor([1000.0, 1000.0]))
    tensor([0.5000, 0.5000])
    """
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


def silu(x: Tensor) -> Tensor:
    """x times its logistic sigmoid."""
    return x * torch.sigmoid(x)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """The part of SwiGLU between its matrices."""
    return silu(gate) * up


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """x divided by its root mean square along the last dimension, times `weight`; in float32."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates each pair (x[2i], x[2i+1]) by the angle whose cosine and sine are given.

    `cos` and `sin` are of shape (…, T, D/2) and broadcast against x of shape (…, T, D).
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)


@functools.lru_cache(maxsize=4)
def rotary_tables(theta: float, d_head: int, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of position · theta^(-2i/d) for n positions: (n, d / 2) each."""
    pairs = torch.arange(0, d_head, 2, dtype=torch.float64, device=device)
    positions = torch.arange(n, dtype=torch.float64, device=device)
    angles = positions[:, None] * theta ** -(pairs / d_head)
    return angles.cos().float(), angles.sin().float()


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    """softmax(Q Kᵀ / √d) V.

    Args:
        query: (…, T, D).
        key: (…, S, D).
        value: (…, S, D).
        mask: (…, T, S), true where a query may attend. A query without keys gives zeros.
    """
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is None:
        return softmax(scores) @ value
    scores = scores.masked_fill(~mask, -math.inf)
    # A row without keys is all -inf; its softmax would be 0/0.
    blind = ~mask.any(-1, keepdim=True)
    weights = softmax(scores.masked_fill(blind, 0.0)).masked_fill(blind, 0.0)
    return weights @ value


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log softmax(logits)[target] over all targets.

    Args:
        logits: (…, V).
        targets: (…), ids below V.
    """
    wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    wide = wide - wide.amax(-1, keepdim=True)  # the difference cancels below
    of_target = wide.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return (wide.exp().sum(-1).log() - of_target).mean()


def perplexity(loss: Tensor | float) -> float:
    """exp of a mean cross-entropy: as hard to guess as this number of equally likely ids."""
    value = float(loss.detach() if isinstance(loss, Tensor) else loss)
    return math.exp(value) if value < 700 else math.inf


# --- the whole model ----------------------------------------------------------------------------


def block(weights: Weights, config: ModelConfig, x: Tensor) -> Tensor:
    """One block: (…, T, d_model) → (…, T, d_model)."""
    if config.norm == "post":
        x = _norm(weights, "attention_norm", config, x + _attention(weights, config, x))
        return _norm(weights, "feed_forward_norm", config, x + _feed_forward(weights, config, x))
    x = x + _attention(weights, config, _norm(weights, "attention_norm", config, x))
    return x + _feed_forward(weights, config, _norm(weights, "feed_forward_norm", config, x))


def _norm(weights: Weights, name: str, config: ModelConfig, x: Tensor) -> Tensor:
    return x if config.norm == "none" else rms_norm(x, weights[f"{name}.weight"], config.norm_eps)


def _feed_forward(weights: Weights, config: ModelConfig, x: Tensor) -> Tensor:
    gate = x @ weights["feed_forward.w1.weight"].T
    if config.feed_forward == "silu":
        return silu(gate) @ weights["feed_forward.w2.weight"].T
    return (
        swiglu(gate, x @ weights["feed_forward.w3.weight"].T) @ weights["feed_forward.w2.weight"].T
    )


def _attention(weights: Weights, config: ModelConfig, x: Tensor) -> Tensor:
    # (…, T, heads · d_head) -> (…, heads, T, d_head)
    query, key, value = (
        (x @ weights[f"attention.{name}.weight"].T)
        .reshape(*x.shape[:-1], -1, config.d_head)
        .transpose(-2, -3)
        for name in ("query", "key", "value")
    )
    if config.qk_norm:
        query = rms_norm(query, weights["attention.query_norm.weight"], config.norm_eps)
        key = rms_norm(key, weights["attention.key_norm.weight"], config.norm_eps)
    n = x.shape[-2]
    if config.positions == "rope":
        cos, sin = rotary_tables(config.rope_theta, config.d_head, n, x.device)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
    # Several query heads share a key and value head.
    key, value = (x.repeat_interleave(config.num_heads // config.n_kv, -3) for x in (key, value))
    causal = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
    mixed = scaled_dot_product_attention(query, key, value, causal)
    return mixed.transpose(-2, -3).flatten(-2) @ weights["attention.output.weight"].T


class _NaiveBlock(TransformerBlock):
    """A block whose forward pass is this module's; with a cache, its own."""

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        if cache is not None:
            return super().forward(x, cache)
        return block(dict(self.named_parameters()), self.config, x)


class _NaiveLM(TransformerLM):
    """A model whose forward pass is this module's; with a cache, its own.

    Blocks are called as modules, so that FSDP gathers their weights.
    """

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        if cache is not None:
            return super().hidden(ids, cache)
        self.check_length(ids, None)
        x = self.embedding.weight[ids]
        for layer in self.layers:
            x = layer(x)
        if isinstance(self.final_norm, RMSNorm):
            x = rms_norm(x, self.final_norm.weight, self.config.norm_eps)
        return x

    def loss_of(self, x: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(x @ self.head_weight.T, targets)


def attach(model: TransformerLM) -> TransformerLM:
    """Makes a model compute with this module; returns it. Parameters keep their names."""
    model.__class__ = _NaiveLM
    for layer in model.layers:
        layer.__class__ = _NaiveBlock
    return model


# --- optimizers ---------------------------------------------------------------------------------


class SGD(Optimizer):
    """p ← p - lr / √(t + 1) · gradient, as in the CS336 course.

    `decay=False` keeps the rate constant: textbook gradient descent.
    """

    def __init__(self, params: Parameters, lr: float = 1e-3, decay: bool = True) -> None:
        if lr < 0:
            raise ConfigError(f"lr must be ≥ 0, got {lr}")
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Updates every parameter that has a gradient."""
        loss = loss_of_closure(closure)
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
    """Adam with decoupled weight decay."""

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
                raise ConfigError(f"{name} must be ≥ 0, got {value}")
        for beta in betas:
            if not 0 <= beta < 1:
                raise ConfigError(f"betas must be ≥ 0 and < 1, got {betas}")
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Updates every parameter that has a gradient."""
        loss = loss_of_closure(closure)
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


def loss_of_closure(closure: Closure | None) -> float | None:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
