"""The decode step as one call to Rust: float32 on a CPU.

At batch size 1, a step of a small model is dozens of kernels of a few microseconds each, and torch
takes longer to dispatch them. `NativeStep` lets the model read the prompt, and continues in the
cache that it filled. Weights are not copied: each step reads the memory of torch's tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..._native import LMDecoder
from ...errors import ConfigError
from ..generate import CachedStep
from ..model import KVCache, RMSNorm, SwiGLU, TransformerLM
from ..plan.costs import can_fuse

__all__ = ["NativeStep", "can_run", "decoder_arguments"]


class NativeStep(CachedStep):
    """The decode step in Rust, for models that `can_run` accepts.

    Uses as many threads as torch; the result has the same bits for any number of threads.
    """

    def __init__(self, model: TransformerLM, n_samples: int, capacity: int) -> None:
        super().__init__(model, n_samples, capacity)
        self._decoder = LMDecoder(**decoder_arguments(model, self.cache))
        self._rows = range(n_samples)

    def step(self, ids: Tensor) -> Tensor:
        place = self.cache.length
        if place == self.cache.capacity:
            raise ConfigError(f"the cache is full: its capacity is {place} positions")
        logits = self._decoder.step(ids.tolist(), self._rows, [place] * self.n_samples)
        self.cache.set_length(place + 1)
        return torch.from_numpy(logits)


def decoder_arguments(model: TransformerLM, cache: KVCache) -> dict[str, Any]:
    """The arguments of `LMDecoder`: views of the weights and of the cache."""
    rope = model.layers[0].attention.rope
    return {
        "embedding": _array(model.embedding.weight),
        "layers": [[_array(weight) for weight in weights] for weights in _layers(model)],
        "final_norm": _array(_norm_weight(model.final_norm)),
        "head": _array(model.head_weight),
        "rotation": None if rope is None else (_array(rope.cos), _array(rope.sin)),
        "cache": _array(cache.memory),
        "eps": model.config.norm_eps,
        "threads": torch.get_num_threads(),
    }


def can_run(model: TransformerLM) -> bool:
    """Whether the native step supports this model, and the memory layout of its weights."""
    if not can_fuse(model.config) or torch.is_autocast_enabled("cpu"):
        return False
    tensors: list[Tensor] = list(model.parameters())
    rope = model.layers[0].attention.rope
    if rope is not None:
        tensors += [rope.cos, rope.sin]
    return all(
        # Other classes (distributed, quantized) have no plain memory.
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.dtype == torch.float32
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        for tensor in tensors
    )


def _layers(model: TransformerLM) -> Iterator[tuple[Tensor, ...]]:
    for block in model.layers:
        attention, inner = block.attention, block.feed_forward
        assert isinstance(inner, SwiGLU)
        yield (
            _norm_weight(block.attention_norm),
            attention.query.weight,
            attention.key.weight,
            attention.value.weight,
            attention.output.weight,
            _norm_weight(block.feed_forward_norm),
            inner.w1.weight,
            inner.w3.weight,
            inner.w2.weight,
        )


def _norm_weight(norm: nn.Module) -> Tensor:
    assert isinstance(norm, RMSNorm)
    return norm.weight


def _array(tensor: Tensor) -> npt.NDArray[np.float32]:
    """The memory of a tensor as an array, which keeps it alive."""
    array: npt.NDArray[np.float32] = tensor.detach().numpy()
    return array
