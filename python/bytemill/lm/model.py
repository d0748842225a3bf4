"""The language model: ids → logits, or the loss.

    ids ─► embedding ─► blocks (attention, feed-forward) ─► norm ─► head ─► logits

Every block adds to the residual stream. There are three ways to compute it, chosen with
`use_kernels`, that give the same numbers up to rounding: `"plain"` is the mathematics, `"torch"`
calls torch's kernels (and is what the compiler gets), `"fused"` runs whole sublayers on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ConfigError
from . import naive
from .cache import KVCache, LayerCache
from .config import ModelConfig
from .fast import fused
from .fast.head import linear_cross_entropy
from .layers import (
    CausalSelfAttention,
    Device,
    Embedding,
    Kernels,
    Linear,
    RMSNorm,
    RotaryEmbedding,
    SwiGLU,
    feed_forward,
)
from .plan.costs import can_fuse

__all__ = ["TransformerBlock", "TransformerLM"]


class TransformerBlock(nn.Module):
    """Attention, then feed-forward, each added to what comes in.

    Makes its own positions: row t of the input is position t, or stands behind what the cache
    holds.
    """

    def __init__(
        self,
        config: ModelConfig,
        rope: RotaryEmbedding | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        if rope is None and config.positions == "rope":
            rope = RotaryEmbedding(config.rope_theta, config.d_head, config.context_length, device)
        self.kernels: Kernels = "torch"
        self.attention = CausalSelfAttention(
            config.d_model,
            config.num_heads,
            config.num_kv_heads,
            rope,
            config.qk_norm,
            config.norm_eps,
            device,
            dtype,
        )
        self.feed_forward = feed_forward(
            config.feed_forward, config.d_model, config.d_ff, device, dtype
        )
        with_norm = config.norm != "none"
        self.attention_norm: nn.Module = (
            RMSNorm(config.d_model, config.norm_eps, device, dtype) if with_norm else nn.Identity()
        )
        self.feed_forward_norm: nn.Module = (
            RMSNorm(config.d_model, config.norm_eps, device, dtype) if with_norm else nn.Identity()
        )

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """`x` is (…, T, d_model)."""
        if cache is None and self._can_fuse(x):
            return self._fused(x)
        positions = None
        if cache is not None:
            positions = torch.arange(cache.length, cache.length + x.shape[-2], device=x.device)
        if self.config.norm == "post":
            x = self.attention_norm(x + self.attention(x, positions, cache))
            return self.feed_forward_norm(x + self.feed_forward(x))  # type: ignore[no-any-return]
        x = x + self.attention(self.attention_norm(x), positions, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]

    def _can_fuse(self, x: Tensor) -> bool:
        return self.kernels == "fused" and x.dim() == 3 and is_plain(x) and can_fuse(self.config)

    def _fused(self, x: Tensor) -> Tensor:
        attention, inner = self.attention, self.feed_forward
        assert isinstance(inner, SwiGLU)
        x = fused.attention_sublayer(
            x,
            norm_weight(self.attention_norm),
            attention.query.weight,
            attention.key.weight,
            attention.value.weight,
            attention.output.weight,
            self._rotation(x.shape[1]),
            attention.d_head,
            self.config.norm_eps,
        )
        return fused.feed_forward_sublayer(
            x,
            norm_weight(self.feed_forward_norm),
            inner.w1.weight,
            inner.w2.weight,
            inner.w3.weight,
            self.config.norm_eps,
        )

    def _rotation(self, n_tokens: int) -> tuple[Tensor, Tensor] | None:
        rope = self.attention.rope
        if rope is None:
            return None
        if n_tokens > rope.max_seq_len:
            raise ConfigError(f"{n_tokens} positions, but only {rope.max_seq_len} are tabled")
        return rope.cos, rope.sin


def norm_weight(norm: nn.Module) -> Tensor:
    """The weight of a norm that is there."""
    assert isinstance(norm, RMSNorm)
    return norm.weight


def is_plain(x: Tensor) -> bool:
    """Whether it is float32 on a CPU, and to be computed as such."""
    return (
        x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    )


class TransformerLM(nn.Module):
    """A Llama-style language model.

    >>> config = ModelConfig(
    ...     vocab_size=300, context_length=16, d_model=32, num_layers=2, num_heads=4
    ... )
    >>> model = TransformerLM(config)
    >>> model(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 300])
    """

    def __init__(
        self, config: ModelConfig, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.kernels: Kernels = "torch"
        # A tied embedding is the head too, whose logits would start out huge with variance 1.
        std = config.d_model**-0.5 if config.tie_embeddings else 1.0
        self.embedding = Embedding(config.vocab_size, config.d_model, device, dtype, std)
        rope = None
        if config.positions == "rope":
            rope = RotaryEmbedding(config.rope_theta, config.d_head, config.context_length, device)
        self.blocks = nn.ModuleList(
            TransformerBlock(config, rope, device, dtype) for _ in range(config.num_layers)
        )
        self.final_norm: nn.Module = (
            RMSNorm(config.d_model, config.norm_eps, device, dtype)
            if config.norm == "pre"
            else nn.Identity()
        )
        self.head = (
            None
            if config.tie_embeddings
            else Linear(config.d_model, config.vocab_size, device, dtype)
        )

    # --- computing ----------------------------------------------------------------------------

    def forward(
        self, ids: Tensor, targets: Tensor | None = None, cache: KVCache | None = None
    ) -> Tensor:
        """Logits (…, T, V) of ids (…, T); with targets (…, T) the mean cross-entropy instead.

        One entry for both: what wraps a model (DDP, FSDP) sees only calls of the module itself.
        """
        x = self.hidden(ids, cache)
        if targets is None:
            return F.linear(x, self.head_weight)
        if self.kernels == "plain":
            return naive.cross_entropy(F.linear(x, self.head_weight), targets)
        return linear_cross_entropy(x, self.head_weight, targets)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy of the targets (…, T), each behind its id (…, T)."""
        return self(ids, targets)  # type: ignore[no-any-return]

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """What the head sees: (…, T, d_model)."""
        seen = 0 if cache is None else cache.length
        if seen + ids.shape[-1] > self.config.context_length:
            raise ConfigError(
                f"{seen + ids.shape[-1]} ids, but context_length={self.config.context_length}",
                "cut the text, or train with a longer context",
            )
        x: Tensor = self.embedding(ids)
        for number, block in enumerate(self.blocks):
            x = block(x) if cache is None else block(x, cache.layers[number])
        if self.kernels == "fused" and self.config.norm == "pre" and cache is None and is_plain(x):
            return fused.normed(x, norm_weight(self.final_norm), self.config.norm_eps)
        return self.final_norm(x)  # type: ignore[no-any-return]

    @property
    def layers(self) -> list[TransformerBlock]:
        """The blocks; `blocks` is torch's list of them, which forgets what they are."""
        return [cast(TransformerBlock, block) for block in self.blocks]

    @property
    def head_weight(self) -> nn.Parameter:
        """(V, d_model)."""
        return self.embedding.weight if self.head is None else self.head.weight

    def use_kernels(self, kernels: Kernels) -> TransformerLM:
        """Chooses how to compute: `"plain"`, `"torch"` or `"fused"`; gives the model back."""
        for module in self.modules():
            if hasattr(module, "kernels"):
                setattr(module, "kernels", kernels)  # noqa: B010 - which modules have it varies
        return self

    # --- generating ---------------------------------------------------------------------------

    def generate(
        self, ids: Sequence[int] | Tensor, max_tokens: int = 256, **options: Any
    ) -> list[list[int]]:
        """Goes on behind `ids`; see [`generate_ids`][bytemill.lm.generate.generate_ids]."""
        from .generate import generate_ids

        return generate_ids(self, ids, max_tokens, **options)

    def new_cache(self, batch_size: int = 1, capacity: int | None = None) -> KVCache:
        """An empty cache for this model."""
        config, weight = self.config, self.embedding.weight
        return KVCache(
            config.num_layers,
            batch_size,
            config.n_kv,
            config.context_length if capacity is None else capacity,
            config.d_head,
            weight.device,
            weight.dtype,
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.weight.device

    @property
    def n_parameters(self) -> int:
        """How many numbers are learnt."""
        return sum(parameter.numel() for parameter in self.parameters())
