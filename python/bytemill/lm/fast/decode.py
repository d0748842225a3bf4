"""The decode step in one call to Rust: float32 on a CPU.

At batch 1 a step of a small model is some dozens of kernels of a few microseconds each, and torch
takes longer to go from one to the next. `NativeStep` leaves reading a prompt to the model and
continues in the cache that it filled. Weights are not copied: it reads what torch's tensors hold at
each step.
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
from ..model import RMSNorm, SwiGLU, TransformerLM
from ..plan.costs import can_fuse

__all__ = ["NativeStep", "can_run"]


class NativeStep(CachedStep):
    """The step in Rust; for models that `can_run` takes.

    Uses as many threads as torch does, and gives the same bits with any number of them.
    """

    def __init__(self, model: TransformerLM, n_samples: int, capacity: int) -> None:
        super().__init__(model, n_samples, capacity)
        self._decoder = LMDecoder(**self.arrays())

    def arrays(self) -> dict[str, Any]:
        """What the native step is given: views of the weights and of the cache."""
        model = self.model
        rope = model.layers[0].attention.rope
        return {
            "embedding": _array(model.embedding.weight),
            "layers": [[_array(weight) for weight in weights] for weights in _layers(model)],
            "final_norm": _array(_norm_weight(model.final_norm)),
            "head": _array(model.head_weight),
            "rotation": None if rope is None else (_array(rope.cos), _array(rope.sin)),
            "cache": _array(self.cache.memory),
            "eps": model.config.norm_eps,
            "threads": torch.get_num_threads(),
        }

    def step(self, ids: Tensor) -> Tensor:
        place = self.cache.length
        if place == self.cache.capacity:
            raise ConfigError(f"the cache is full: its capacity is {place} positions")
        logits = self._decoder.step(ids.tolist(), place)
        self.cache.set_length(place + 1)
        return torch.from_numpy(logits)


def can_run(model: TransformerLM) -> bool:
    """Whether the native step takes this model: its shape, and where and how the weights lie."""
    if not can_fuse(model.config) or torch.is_autocast_enabled("cpu"):
        return False
    tensors: list[Tensor] = list(model.parameters())
    rope = model.layers[0].attention.rope
    if rope is not None:
        tensors += [rope.cos, rope.sin]
    return all(
        # Other classes (of distributed or quantized tensors) have no numbers to look at.
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
    """The same memory as an array, which keeps it alive."""
    array: npt.NDArray[np.float32] = tensor.detach().numpy()
    return array
