"""The parts of the model as modules: each owns its weights, starts them as the course says, and
calls either the plain mathematics or torch's own kernels.

`kernels` of a module is `"plain"` or `"torch"`; both give the same numbers, the second sooner.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ConfigError
from . import naive
from .cache import LayerCache
from .config import FeedForward as FeedForwardKind
from .config import default_d_ff

__all__ = [
    "CausalSelfAttention",
    "Embedding",
    "Kernels",
    "Linear",
    "RMSNorm",
    "RotaryEmbedding",
    "SiLUFeedForward",
    "SwiGLU",
]

Kernels = Literal["plain", "torch", "fused"]
Device = torch.device | str | None


def truncated_normal_(weight: Tensor, std: float) -> Tensor:
    """Fills with a normal distribution that is cut off at three standard deviations."""
    return nn.init.trunc_normal_(weight, 0.0, std, -3 * std, 3 * std)


class Linear(nn.Module):
    """y = x Wᵀ, without a bias. The weight is (out, in)."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(
            torch.empty(out_features, in_features, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight anew: variance 2 / (in + out)."""
        truncated_normal_(self.weight, math.sqrt(2 / (self.in_features + self.out_features)))

    def forward(self, x: Tensor) -> Tensor:
        # The same product as einsum("...i,oi->...o"); there is no plainer way to say it.
        return F.linear(x, self.weight)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class Embedding(nn.Module):
    """The row of each id. The weight is (ids, width)."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        device: Device = None,
        dtype: torch.dtype | None = None,
        std: float = 1.0,
    ) -> None:
        super().__init__()
        self.std = std
        self.weight = nn.Parameter(
            torch.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight anew: variance 1 unless `std` says otherwise."""
        truncated_normal_(self.weight, self.std)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.weight.shape))


class RMSNorm(nn.Module):
    """x over its root mean square, times a weight; computed in float32."""

    def __init__(
        self,
        d_model: int,
        eps: float = 1e-5,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.kernels: Kernels = "torch"
        self.weight = nn.Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Ones."""
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        if self.kernels == "plain":
            return naive.rms_norm(x, self.weight, self.eps)
        # torch sums in float32 by itself; what is left is that types of x and weight may differ.
        if x.dtype == self.weight.dtype:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        y = F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps)
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"


class SwiGLU(nn.Module):
    """W2 (silu(W1 x) · W3 x)."""

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        d_ff = default_d_ff(d_model) if d_ff is None else d_ff
        self.kernels: Kernels = "torch"
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)
        self.w3 = Linear(d_model, d_ff, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.w1(x), self.w3(x)
        if self.kernels == "plain":
            return self.w2(naive.swiglu(gate, up))  # type: ignore[no-any-return]
        return self.w2(F.silu(gate) * up)  # type: ignore[no-any-return]


class SiLUFeedForward(nn.Module):
    """W2 silu(W1 x): the feed-forward layer without a gate, for comparison."""

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        d_ff = default_d_ff(d_model, "silu") if d_ff is None else d_ff
        self.kernels: Kernels = "torch"
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        silu = naive.silu if self.kernels == "plain" else F.silu
        return self.w2(silu(self.w1(x)))  # type: ignore[no-any-return]


def feed_forward(
    kind: FeedForwardKind,
    d_model: int,
    d_ff: int | None,
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> SwiGLU | SiLUFeedForward:
    """The feed-forward layer of that kind."""
    cls = SwiGLU if kind == "swiglu" else SiLUFeedForward
    return cls(d_model, d_ff, device, dtype)


class RotaryEmbedding(nn.Module):
    """Turns pairs (x[2i], x[2i+1]) by the angle position · theta^(-2i/d).

    Args:
        theta: base of the frequencies.
        d_k: width of what is turned.
        max_seq_len: positions that are tabled; later ones are an error.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, theta: float, d_k: int, max_seq_len: int, device: Device = None) -> None:
        super().__init__()
        if d_k % 2:
            raise ConfigError(f"d_k={d_k} is odd, and rotary embedding turns pairs")
        self.theta, self.d_k, self.max_seq_len = theta, d_k, max_seq_len
        cos, sin = self._tables(device)
        # Not saved: they follow from the arguments.
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def _tables(self, device: Device) -> tuple[Tensor, Tensor]:
        # In float64: at position 10,000 a float32 angle is off in its fourth digit.
        powers = torch.arange(0, self.d_k, 2, device=device, dtype=torch.float64) / self.d_k
        positions = torch.arange(self.max_seq_len, device=device, dtype=torch.float64)
        angles = torch.outer(positions, self.theta**-powers)
        return angles.cos().float(), angles.sin().float()

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """`x` is (…, T, d_k); `positions` (…, T) or, if None, 0 … T-1."""
        if positions is None:
            n = x.shape[-2]
            if n > self.max_seq_len:
                raise ConfigError(f"{n} positions, but only {self.max_seq_len} are tabled")
            cos, sin = self.cos[:n], self.sin[:n]
        else:
            cos, sin = self.cos[positions], self.sin[positions]
        return naive.rotate(x, cos, sin)

    def extra_repr(self) -> str:
        return f"theta={self.theta}, d_k={self.d_k}, max_seq_len={self.max_seq_len}"


class CausalSelfAttention(nn.Module):
    """Attention of each position to itself and those before it.

    Args:
        d_model: width of input and output.
        num_heads: heads of queries.
        num_kv_heads: heads of keys and values, each shared by as many heads of queries.
        rope: turns queries and keys; None for no positions.
        qk_norm: RMSNorm on queries and keys before that.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        rope: RotaryEmbedding | None = None,
        qk_norm: bool = False,
        eps: float = 1e-5,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.d_head = d_model // num_heads
        d_kv = self.num_kv_heads * self.d_head
        self.kernels: Kernels = "torch"
        self.rope = rope
        self.query = Linear(d_model, d_model, device, dtype)
        self.key = Linear(d_model, d_kv, device, dtype)
        self.value = Linear(d_model, d_kv, device, dtype)
        self.output = Linear(d_model, d_model, device, dtype)
        self.query_norm = RMSNorm(self.d_head, eps, device, dtype) if qk_norm else None
        self.key_norm = RMSNorm(self.d_head, eps, device, dtype) if qk_norm else None

    def forward(
        self, x: Tensor, positions: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """`x` is (…, T, d_model); with a cache, what it holds comes before x and x is added."""
        # (…, T, heads · d_head) -> (…, heads, T, d_head)
        query, key, value = (
            layer(x).unflatten(-1, (-1, self.d_head)).transpose(-2, -3)
            for layer in (self.query, self.key, self.value)
        )
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.rope is not None:
            if positions is not None:
                positions = positions.unsqueeze(-2)  # the same for all heads
            query, key = self.rope(query, positions), self.rope(key, positions)
        if cache is not None:
            key, value = cache.append(key, value)
        mixed = self._attend(query, key, value)
        return self.output(mixed.transpose(-2, -3).flatten(-2))  # type: ignore[no-any-return]

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        n_new, n_all = query.shape[-2], key.shape[-2]
        shared = self.num_heads // self.num_kv_heads
        if self.kernels == "plain":
            if shared > 1:
                key = key.repeat_interleave(shared, dim=-3)
                value = value.repeat_interleave(shared, dim=-3)
            return naive.scaled_dot_product_attention(
                query, key, value, causal_mask(n_new, n_all, query.device)
            )
        # torch's `is_causal` counts from the first key, so it fits only where all are new; one
        # new query may look everywhere.
        mask = None if n_new in (1, n_all) else causal_mask(n_new, n_all, query.device)
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=n_new == n_all and n_new > 1,
            enable_gqa=shared > 1,
        )


def causal_mask(n_queries: int, n_keys: int, device: Device = None) -> Tensor:
    """(queries, keys), true where a query may look; the last query sees every key."""
    mask = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return mask.tril(n_keys - n_queries)
