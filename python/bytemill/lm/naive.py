"""The mathematics of the model, written out: the oracle that everything faster is tested against.

Functions of tensors and of weights by name; no torch kernel for anything that a formula can spell
out. Any leading dimensions are allowed. Sums over many numbers are taken in float32 even if the
numbers have fewer bits.
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
from .model import KVCache, TransformerLM

__all__ = [
    "SGD",
    "AdamW",
    "attach",
    "cross_entropy",
    "hidden",
    "perplexity",
    "rms_norm",
    "rotate",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "swiglu",
]

# Weights by their names in a checkpoint: `blocks.0.attention.query.weight` and so on.
Weights = Mapping[str, Tensor]
Parameters = Iterable[Any]
Closure = Callable[[], float]


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x) over its sum along `dim`; the greatest is taken off first, so nothing overflows.

    >>> softmax(torch.tensor([1000.0, 1000.0]))
    tensor([0.5000, 0.5000])
    """
    powers = torch.exp(x - x.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


def silu(x: Tensor) -> Tensor:
    """x times its logistic sigmoid."""
    return x * torch.sigmoid(x)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """What SwiGLU does between its matrices."""
    return silu(gate) * up


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """x over its root mean square along the last dimension, times `weight`; in float32."""
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
        mask: (…, T, S), true where a query may look. A query that may look nowhere gives zeros.
    """
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is None:
        return softmax(scores) @ value
    scores = scores.masked_fill(~mask, -math.inf)
    # A row without any true is -inf throughout; its softmax would be 0/0.
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
    """exp of a mean cross-entropy: how many equally likely ids would be as hard to guess."""
    value = float(loss.detach() if isinstance(loss, Tensor) else loss)
    return math.exp(value) if value < 700 else math.inf


# --- the whole model ----------------------------------------------------------------------------


def hidden(weights: Weights, config: ModelConfig, ids: Tensor) -> Tensor:
    """The input of the head, (…, T, d_model), for ids (…, T)."""
    x = weights["embedding.weight"][ids]
    for number in range(config.num_layers):
        of_block = f"blocks.{number}."
        block = {
            name.removeprefix(of_block).removesuffix(".weight"): weight
            for name, weight in weights.items()
            if name.startswith(of_block)
        }
        if config.norm == "post":
            x = _norm(block, "attention_norm", config, x + _attention(block, config, x))
            x = _norm(block, "feed_forward_norm", config, x + _feed_forward(block, config, x))
        else:
            x = x + _attention(block, config, _norm(block, "attention_norm", config, x))
            x = x + _feed_forward(block, config, _norm(block, "feed_forward_norm", config, x))
    return rms_norm(x, weights["final_norm.weight"], config.norm_eps) if config.norm == "pre" else x


def _norm(block: Weights, name: str, config: ModelConfig, x: Tensor) -> Tensor:
    return x if config.norm == "none" else rms_norm(x, block[name], config.norm_eps)


def _feed_forward(block: Weights, config: ModelConfig, x: Tensor) -> Tensor:
    gate = x @ block["feed_forward.w1"].T
    if config.feed_forward == "silu":
        return silu(gate) @ block["feed_forward.w2"].T
    return swiglu(gate, x @ block["feed_forward.w3"].T) @ block["feed_forward.w2"].T


def _attention(block: Weights, config: ModelConfig, x: Tensor) -> Tensor:
    # (…, T, heads · d_head) -> (…, heads, T, d_head)
    query, key, value = (
        (x @ block[f"attention.{name}"].T)
        .reshape(*x.shape[:-1], -1, config.d_head)
        .transpose(-2, -3)
        for name in ("query", "key", "value")
    )
    if config.qk_norm:
        query = rms_norm(query, block["attention.query_norm"], config.norm_eps)
        key = rms_norm(key, block["attention.key_norm"], config.norm_eps)
    n = x.shape[-2]
    if config.positions == "rope":
        cos, sin = rotary_tables(config.rope_theta, config.d_head, n, x.device)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
    # Each head of keys and values serves several heads of queries.
    key, value = (x.repeat_interleave(config.num_heads // config.n_kv, -3) for x in (key, value))
    causal = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
    mixed = scaled_dot_product_attention(query, key, value, causal)
    return mixed.transpose(-2, -3).flatten(-2) @ block["attention.output"].T


class _NaiveLM(TransformerLM):
    """A model whose forward pass is this module's; with a cache, the model's own."""

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        if cache is not None:
            return super().hidden(ids, cache)
        self.check_length(ids, None)
        return hidden(dict(self.named_parameters()), self.config, ids)

    def loss_of(self, x: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(x @ self.head_weight.T, targets)


def attach(model: TransformerLM) -> TransformerLM:
    """Makes a model compute by this module; returns it. Parameters and their names stay."""
    model.__class__ = _NaiveLM
    return model


# --- optimizers ---------------------------------------------------------------------------------


class SGD(Optimizer):
    """p ← p - lr / √(t + 1) · gradient, as the course's exercise has it.

    `decay=False` keeps the rate as it is, which is textbook gradient descent.
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
