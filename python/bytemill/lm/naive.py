"""The mathematics of the model, written plainly once: oracles for everything that is faster.

Any leading dimensions are allowed everywhere; what is worked on is at the end. Sums over many
numbers are taken in float32 even if the numbers have fewer bits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = [
    "cross_entropy",
    "perplexity",
    "rms_norm",
    "rotate",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "swiglu",
]


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
    """Turns each pair (x[2i], x[2i+1]) by the angle whose cosine and sine are given.

    `cos` and `sin` are of shape (…, T, D/2) and broadcast against x of shape (…, T, D).
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)


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
