"""Keys and values of what was read already, in memory that is there from the beginning."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["KVCache", "LayerCache"]


class LayerCache:
    """The part of one layer: (B, heads, capacity, d_head) twice."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values
        self.length = 0

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds (B, heads, T, d_head) and gives all there is, as views."""
        end = self.length + key.shape[-2]
        # No gradient goes through a cache: it is for generating.
        self.keys[..., self.length : end, :] = key.detach()
        self.values[..., self.length : end, :] = value.detach()
        self.length = end
        return self.keys[..., :end, :], self.values[..., :end, :]


class KVCache:
    """The cache of all layers.

    Args:
        num_layers: how many layers.
        batch_size: how many sequences, all of the same length.
        num_heads: heads of keys and values.
        capacity: the longest that the sequences may get.
        d_head: width of a head.
    """

    def __init__(
        self,
        num_layers: int,
        batch_size: int,
        num_heads: int,
        capacity: int,
        d_head: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        # One block of memory: a layer's keys, then its values.
        shape = (num_layers, 2, batch_size, num_heads, capacity, d_head)
        self.memory = torch.zeros(shape, device=device, dtype=dtype)
        self.capacity = capacity
        self.layers = [LayerCache(self.memory[n, 0], self.memory[n, 1]) for n in range(num_layers)]

    @property
    def length(self) -> int:
        """How much was read."""
        return self.layers[0].length

    def set_length(self, length: int) -> None:
        """Forgets what comes behind the first `length`."""
        for layer in self.layers:
            layer.length = length
