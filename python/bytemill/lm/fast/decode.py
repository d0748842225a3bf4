"""One decode step: ids → logits of the next, with what was read before in a cache.

`DecodeStep` is what generation needs; who has a faster one puts it into `STEPS`. The model's own
modules would do (`ModuleStep`, which takes every shape of model), but between their kernels more
time passes in Python than in the kernels: `TorchStep` joins the matrices that are multiplied with
the same vector and leaves out all that one new token does not need. In float32 on a CPU even that
is mostly Python; there the whole step is one call to Rust (`native.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cache import KVCache, LayerCache
from ..layers import SwiGLU
from ..model import TransformerLM, norm_weight
from ..plan.costs import can_fuse

__all__ = ["STEPS", "DecodeStep", "ModuleStep", "TorchStep", "new_step"]


class DecodeStep(Protocol):
    """Reads ids and tells what comes next."""

    def read(self, ids: Tensor) -> Tensor:
        """Forgets all, reads ids (B, T), or (1, T) for every sample; logits (B, V) behind them."""

    def step(self, ids: Tensor) -> Tensor:
        """Reads one id for every sample, (B,); logits (B, V) behind them."""


class ModuleStep:
    """The step by way of the model's modules.

    Args:
        model: the model.
        n_samples: B.
        capacity: the most that can be read.
    """

    def __init__(self, model: TransformerLM, n_samples: int, capacity: int) -> None:
        self.model, self.n_samples = model, n_samples
        self.cache = model.new_cache(n_samples, capacity)

    def read(self, ids: Tensor) -> Tensor:
        n_rows, n = ids.shape
        cache = self.cache if n_rows == self.n_samples else _first_sample(self.cache)
        cache.set_length(0)
        hidden = self.model.hidden(ids, cache)
        if cache is not self.cache:
            # All samples begin alike: read once, then copied.
            memory = self.cache.memory
            memory[:, :, 1:, :, :n] = memory[:, :, :1, :, :n]
            self.cache.set_length(n)
        logits = F.linear(hidden[:, -1], self.model.head_weight)
        return logits.expand(self.n_samples, -1)

    def step(self, ids: Tensor) -> Tensor:
        hidden = self.model.hidden(ids.unsqueeze(-1), self.cache)
        return F.linear(hidden[:, -1], self.model.head_weight)


class TorchStep(ModuleStep):
    """The step with few and large operations; for models that `can_fuse`."""

    def __init__(self, model: TransformerLM, n_samples: int, capacity: int) -> None:
        super().__init__(model, n_samples, capacity)
        config = model.config
        self._layers = []
        for block, cache in zip(model.layers, self.cache.layers):
            attention, inner = block.attention, block.feed_forward
            assert isinstance(inner, SwiGLU)
            # Queries and keys side by side, so that one product turns both; the weights of norms
            # go into the matrices behind them.
            joined = (attention.query.weight, attention.key.weight, attention.value.weight)
            gate_up = (inner.w1.weight, inner.w3.weight)
            self._layers.append(
                (
                    torch.cat(joined) * norm_weight(block.attention_norm),
                    attention.output.weight.t(),
                    torch.cat(gate_up) * norm_weight(block.feed_forward_norm),
                    inner.w2.weight.t(),
                    cache,
                )
            )
        self._eps = torch.tensor(config.norm_eps, device=model.device)
        self._table = None
        rope = model.layers[0].attention.rope
        if rope is not None:
            self._table = torch.complex(rope.cos, rope.sin).unsqueeze(1)
        self._n_turned = config.num_heads + config.n_kv
        self._shared = config.num_heads > config.n_kv

    def step(self, ids: Tensor) -> Tensor:
        config, n = self.model.config, len(ids)
        d_head, n_heads, n_turned = config.d_head, config.num_heads, self._n_turned
        width = config.width
        place = self.cache.length
        table = None if self._table is None else self._table[place]
        x = F.embedding(ids, self.model.embedding.weight)
        for joined, output, gate_up, down, cache in self._layers:
            parts = F.linear(self._normed(x), joined).view(n, -1, d_head)
            turned = parts[:, :n_turned]
            if table is not None:
                pairs = torch.view_as_complex(turned.reshape(n, n_turned, -1, 2))
                turned = torch.view_as_real(pairs * table).flatten(-2)
            cache.keys[:, :, place] = turned[:, n_heads:]
            cache.values[:, :, place] = parts[:, n_turned:]
            cache.length = place + 1
            mixed = F.scaled_dot_product_attention(
                turned[:, :n_heads].unsqueeze(2),
                cache.keys[:, :, : place + 1],
                cache.values[:, :, : place + 1],
                enable_gqa=self._shared,
            )
            x = torch.addmm(x, mixed.view(n, -1), output)
            both = F.linear(self._normed(x), gate_up)
            x = torch.addmm(x, F.silu(both[:, :width]).mul_(both[:, width:]), down)
        final = self._normed(x).mul_(norm_weight(self.model.final_norm))
        return F.linear(final, self.model.head_weight)

    def _normed(self, x: Tensor) -> Tensor:
        """RMSNorm without its weight, in half the time that torch's takes for one row."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * torch.addcmul(self._eps, length, length, value=1 / x.shape[-1]).rsqrt_()


def _first_sample(cache: KVCache) -> KVCache:
    """A cache over the memory of the first sample, empty."""
    view = object.__new__(KVCache)
    view.memory, view.capacity = cache.memory[:, :, :1], cache.capacity
    view.layers = [LayerCache(layer.keys[:1], layer.values[:1]) for layer in cache.layers]
    return view


Maker = Callable[[TransformerLM, int, int], "DecodeStep | None"]


def _native_step(model: TransformerLM, n_samples: int, capacity: int) -> DecodeStep | None:
    from .native import NativeStep, can_run  # which needs this module

    return NativeStep(model, n_samples, capacity) if can_run(model) else None


def _torch_step(model: TransformerLM, n_samples: int, capacity: int) -> DecodeStep | None:
    wide = model.embedding.weight.dtype == torch.float32  # norms need that, and have nothing else
    return TorchStep(model, n_samples, capacity) if can_fuse(model.config) and wide else None


# The first that takes the model is used.
STEPS: list[Maker] = [_native_step, _torch_step, ModuleStep]


def new_step(model: TransformerLM, n_samples: int, capacity: int) -> DecodeStep:
    """The best step for this model."""
    for make in STEPS:
        step = make(model, n_samples, capacity)
        if step is not None:
            return step
    raise AssertionError("ModuleStep takes every model")
