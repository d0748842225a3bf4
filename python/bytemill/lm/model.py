"""The model: ids → logits. One forward pass, from top to bottom, with torch's kernels.

    ids ─► embedding ─► blocks (attention, feed-forward) ─► norm ─► head ─► logits

Shapes in comments: B sequences of T ids; V is the vocabulary size. B may be any leading dimensions.
`naive` has the same mathematics written out, and `fast` has what is faster on CPUs; both attach to
a model from outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ConfigError
from .config import ModelConfig, default_d_ff

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .keywords import IdOptions

__all__ = [
    "CausalSelfAttention",
    "Embedding",
    "KVCache",
    "LayerCache",
    "Linear",
    "RMSNorm",
    "RotaryEmbedding",
    "SiLUFeedForward",
    "SwiGLU",
    "TransformerBlock",
    "TransformerLM",
    "causal_mask",
]

Device = torch.device | str | None


def truncated_normal_(weight: Tensor, std: float) -> Tensor:
    """Fills with a normal distribution, truncated at three standard deviations."""
    return nn.init.trunc_normal_(weight, 0.0, std, -3 * std, 3 * std)


# --- layers -------------------------------------------------------------------------------------


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
        """Initializes the weight: variance 2 / (in + out)."""
        truncated_normal_(self.weight, math.sqrt(2 / (self.in_features + self.out_features)))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class Embedding(nn.Module):
    """One row of the weight (V, d_model) per id."""

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
        truncated_normal_(self.weight, self.std)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.weight.shape))


class RMSNorm(nn.Module):
    """x divided by its root mean square, times a weight; computed in float32."""

    def __init__(
        self,
        d_model: int,
        eps: float = 1e-5,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
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
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)
        self.w3 = Linear(d_model, d_ff, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # type: ignore[no-any-return]


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
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)))  # type: ignore[no-any-return]


class RotaryEmbedding(nn.Module):
    """Rotates pairs (x[2i], x[2i+1]) by the angle position · theta^(-2i/d).

    Args:
        theta: base of the frequencies.
        d_k: width of a head.
        max_seq_len: positions in the tables; later positions are an error.
    """

    cos: Tensor  # (max_seq_len, d_k / 2)
    sin: Tensor

    def __init__(self, theta: float, d_k: int, max_seq_len: int, device: Device = None) -> None:
        super().__init__()
        if d_k % 2:
            raise ConfigError(f"d_k must be even, got {d_k}", "rotary embedding rotates pairs")
        self.theta, self.d_k, self.max_seq_len = theta, d_k, max_seq_len
        # In float64: at position 10,000 a float32 angle is wrong in its fourth digit.
        powers = torch.arange(0, d_k, 2, device=device, dtype=torch.float64) / d_k
        positions = torch.arange(max_seq_len, device=device, dtype=torch.float64)
        angles = torch.outer(positions, theta**-powers)
        # Not saved in checkpoints: they follow from the arguments.
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """`x` is (…, T, d_k); `positions` (…, T), or 0 … T-1 if None."""
        if positions is None:
            self.check_length(x.shape[-2])
            cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        else:
            cos, sin = self.cos[positions], self.sin[positions]
        even, odd = x[..., 0::2], x[..., 1::2]
        rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return rotated.flatten(-2).to(x.dtype)

    def check_length(self, n_positions: int) -> None:
        """Raises if the tables have fewer positions."""
        if n_positions > self.max_seq_len:
            raise ConfigError(
                f"positions must be < {self.max_seq_len}, the size of the tables, got "
                f"{n_positions - 1}"
            )

    def extra_repr(self) -> str:
        return f"theta={self.theta}, d_k={self.d_k}, max_seq_len={self.max_seq_len}"


class CausalSelfAttention(nn.Module):
    """Each position attends to itself and to earlier positions.

    Args:
        d_model: width of input and output.
        num_heads: number of query heads.
        num_kv_heads: number of key and value heads; num_heads / num_kv_heads query heads share one.
        rope: rotates queries and keys; None for no positions.
        qk_norm: RMSNorm on queries and keys, before the rotation.
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
        """`x` is (…, T, d_model); with a cache, it follows the cached positions and is added."""
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
        n_new, mask = x.shape[-2], None
        if cache is not None:
            key, value = cache.append(key, value)
            mask = cache.mask(n_new)
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=mask is None and n_new > 1,
            enable_gqa=self.num_heads > self.num_kv_heads,
        )
        return self.output(mixed.transpose(-2, -3).flatten(-2))  # type: ignore[no-any-return]


def causal_mask(n_queries: int, n_keys: int, device: Device = None) -> Tensor:
    """(queries, keys), true where a query may attend; the last query sees every key."""
    mask = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return mask.tril(n_keys - n_queries)


# --- the cache of keys and values ---------------------------------------------------------------


class LayerCache:
    """Keys and values of one layer: (B, heads, capacity, d_head) each."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values
        self.length = 0

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds (B, heads, T, d_head) of each; returns all keys and values so far, as views.

        A single sequence is stored for all B, which continue it separately.
        """
        start, self.length = self.length, self.length + key.shape[-2]
        # Detached: the cache is for generation only.
        self.keys[:, :, start : self.length] = key.detach()
        self.values[:, :, start : self.length] = value.detach()
        n = len(key)
        return self.keys[:n, :, : self.length], self.values[:n, :, : self.length]

    def positions(self, n_new: int) -> Tensor:
        """The positions (…, n_new) of what is appended next."""
        return torch.arange(self.length, self.length + n_new, device=self.keys.device)

    def mask(self, n_new: int) -> Tensor | None:
        """Which positions the queries of the last `append` may attend to.

        None if all keys are new, where torch's `is_causal` is right, or for a single query, which
        sees every key.
        """
        if n_new in (1, self.length):
            return None
        return causal_mask(n_new, self.length, self.keys.device)


class KVCache:
    """Keys and values of all layers for B sequences of equal length.

    Args:
        memory: (layers, 2, B, heads, capacity, d_head): the keys of a layer, then its values.
    """

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self.capacity = memory.shape[-2]
        self.layers = [LayerCache(keys, values) for keys, values in memory]

    @property
    def length(self) -> int:
        """Number of positions stored."""
        return self.layers[0].length

    def set_length(self, length: int) -> None:
        """Drops the positions from `length` on."""
        for layer in self.layers:
            layer.length = length


# --- the model ----------------------------------------------------------------------------------


class TransformerBlock(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)).

    Row t of the input is position t, or follows the cached positions.
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
        layer = SwiGLU if config.feed_forward == "swiglu" else SiLUFeedForward
        self.feed_forward = layer(config.d_model, config.d_ff, device, dtype)
        self.attention_norm = _norm(config, config.norm != "none", device, dtype)
        self.feed_forward_norm = _norm(config, config.norm != "none", device, dtype)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """`x` is (…, T, d_model)."""
        positions = None
        if cache is not None:
            positions = cache.positions(x.shape[-2])
        if self.config.norm == "post":
            x = self.attention_norm(x + self.attention(x, positions, cache))
            return self.feed_forward_norm(x + self.feed_forward(x))  # type: ignore[no-any-return]
        x = x + self.attention(self.attention_norm(x), positions, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


def _norm(
    config: ModelConfig, present: bool, device: Device, dtype: torch.dtype | None
) -> RMSNorm | nn.Identity:
    return RMSNorm(config.d_model, config.norm_eps, device, dtype) if present else nn.Identity()


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
        # A tied embedding is also the head: with variance 1, the initial logits would be huge.
        std = config.d_model**-0.5 if config.tie_embeddings else 1.0
        self.embedding = Embedding(config.vocab_size, config.d_model, device, dtype, std)
        rope = None
        if config.positions == "rope":
            rope = RotaryEmbedding(config.rope_theta, config.d_head, config.context_length, device)
        self.blocks = nn.ModuleList(
            TransformerBlock(config, rope, device, dtype) for _ in range(config.num_layers)
        )
        self.final_norm = _norm(config, config.norm == "pre", device, dtype)
        self.head = (
            None
            if config.tie_embeddings
            else Linear(config.d_model, config.vocab_size, device, dtype)
        )

    def forward(
        self, ids: Tensor, targets: Tensor | None = None, cache: KVCache | None = None
    ) -> Tensor:
        """Logits (…, T, V) of ids (…, T); with targets (…, T), the mean cross-entropy instead.

        One entry point for both, because DDP and FSDP wrap only calls of the module itself.
        """
        x = self.hidden(ids, cache)
        return self.logits(x) if targets is None else self.loss_of(x, targets)

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """The input of the head: (…, T, d_model)."""
        self.check_length(ids, cache)
        x: Tensor = self.embedding(ids)
        for number, block in enumerate(self.blocks):
            x = block(x) if cache is None else block(x, cache.layers[number])
        return self.final_norm(x)  # type: ignore[no-any-return]

    def logits(self, x: Tensor) -> Tensor:
        """(…, V) of (…, d_model)."""
        return F.linear(x, self.head_weight)

    def loss_of(self, x: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy of targets (…), predicted from (…, d_model)."""
        return F.cross_entropy(self.logits(x).flatten(0, -2), targets.flatten())

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy of targets (…, T), each the id that follows in `ids` (…, T)."""
        return self(ids, targets)  # type: ignore[no-any-return]

    def check_length(self, ids: Tensor, cache: KVCache | None) -> None:
        """Raises if the cached positions and ids (…, T) do not fit into the context."""
        n = ids.shape[-1] + (0 if cache is None else cache.length)
        if n > self.config.context_length:
            raise ConfigError(
                f"the sequence must have ≤ {self.config.context_length} ids, the context length, "
                f"got {n}",
                "shorten the text, or train with a longer context",
            )

    @property
    def layers(self) -> list[TransformerBlock]:
        """The blocks, typed: torch's list of modules has no element type."""
        return [cast(TransformerBlock, block) for block in self.blocks]

    @property
    def head_weight(self) -> nn.Parameter:
        """(V, d_model)."""
        return self.embedding.weight if self.head is None else self.head.weight

    def generate(
        self, ids: Sequence[int] | Tensor, *, max_tokens: int = 256, **options: Unpack[IdOptions]
    ) -> list[list[int]]:
        """Continues `ids`; see [`generate_ids`][bytemill.lm.generate.generate_ids]."""
        from .generate import generate_ids

        return generate_ids(self, ids, max_tokens=max_tokens, **options)

    def new_cache(self, batch_size: int = 1, capacity: int | None = None) -> KVCache:
        """An empty cache for this model."""
        capacity = self.config.context_length if capacity is None else capacity
        config, weight = self.config, self.embedding.weight
        shape = (config.num_layers, 2, batch_size, config.n_kv, capacity, config.d_head)
        return KVCache(torch.zeros(shape, device=weight.device, dtype=weight.dtype))

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())
