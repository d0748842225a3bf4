"""Names and shapes of the weights of a config, compared with those of a file.

The comparison comes before any model is allocated, so that a config without matching weights
allocates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch

from ...errors import CheckpointError
from ..config import ModelConfig

__all__ = ["check_weights", "weight_shapes"]


class Described(Protocol):
    """A tensor, or its description before it is read."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> torch.dtype: ...


def weight_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every weight. (Importing torch's meta device takes seconds.)"""
    d, keys = config.d_model, config.n_kv * config.d_head
    yield "embedding.weight", (config.vocab_size, d)
    block: dict[str, tuple[int, ...]] = {
        "attention.query": (d, d),
        "attention.key": (keys, d),
        "attention.value": (keys, d),
        "attention.output": (d, d),
        "feed_forward.w1": (config.width, d),
        "feed_forward.w2": (d, config.width),
    }
    if config.feed_forward == "swiglu":
        block["feed_forward.w3"] = (config.width, d)
    if config.norm != "none":
        block |= {"attention_norm": (d,), "feed_forward_norm": (d,)}
    if config.qk_norm:
        block |= {"attention.query_norm": (config.d_head,), "attention.key_norm": (config.d_head,)}
    for number in range(config.num_layers):
        for name, shape in block.items():
            yield f"blocks.{number}.{name}.weight", shape
    if config.norm == "pre":
        yield "final_norm.weight", (d,)
    if not config.tie_embeddings:
        yield "head.weight", (config.vocab_size, d)


def check_weights(config: ModelConfig, found: Mapping[str, Described], name: str) -> None:
    """Raises if a file does not have exactly the weights of a config.

    Args:
        config: the model.
        found: the tensors of the file by our names.
        name: the file, for errors.
    """
    known = set()
    for key, shape in weight_shapes(config):
        if key not in found:
            raise CheckpointError(f"{name}: belongs to another model: it lacks {key}", OTHER_CONFIG)
        if tuple(found[key].shape) != shape:
            raise wrong_shape(name, key, tuple(found[key].shape), shape)
        if not found[key].dtype.is_floating_point:
            raise wrong_type(name, key, found[key].dtype)
        known.add(key)
    if len(known) < len(found):
        extra = next(key for key in found if key not in known)
        raise CheckpointError(
            f"{name}: belongs to another model: it has an unexpected {extra}", OTHER_CONFIG
        )


OTHER_CONFIG = "use the config it was saved with"


def wrong_shape(
    name: str, key: str, found: tuple[int, ...], expected: tuple[int, ...]
) -> CheckpointError:
    return CheckpointError(
        f"{name}: {key} has shape {found}, but {expected} in this model", OTHER_CONFIG
    )


def wrong_type(name: str, key: str, dtype: torch.dtype) -> CheckpointError:
    return CheckpointError(
        f"{name}: {key} has type {str(dtype).removeprefix('torch.')}",
        "weights must be floating-point numbers",
    )
