"""Tensors that are made only when they are written, so that a model need not be in memory whole."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import safetensors
import torch
from torch import Tensor

from ..errors import CheckpointError, ConfigError

__all__ = ["Deferred", "converted", "open_tensors", "raw_bytes", "write_safetensors"]

# Names of types in a safetensors header; no others are ever written or read here.
NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class Deferred(NamedTuple):
    """What a tensor will be, and how to get it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    load: Callable[[], Tensor]

    @property
    def n_bytes(self) -> int:
        """Its size in a file."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def converted(tensor: Deferred, dtype: torch.dtype, change: Callable[[Tensor], Tensor]) -> Deferred:
    """The same tensor after a change that leaves its shape, in another type."""

    def load() -> Tensor:
        before = change(tensor.load())
        after = before.to(dtype)
        if dtype == torch.float16 and not bool((after.isfinite() | ~before.isfinite()).all()):
            raise ConfigError(
                f"a weight of {float(before.abs().max()):g} is beyond float16, which ends at 65504",
                "use bf16 or f32",
            )
        return after

    return Deferred(tensor.shape, dtype, load)


def raw_bytes(tensor: Tensor) -> memoryview:
    """The numbers of a tensor as they stand in memory."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def write_safetensors(
    file: BinaryIO,
    tensors: Mapping[str, Deferred],
    tell: Callable[[int], None] = lambda n_bytes: None,
) -> None:
    """Writes tensors one after another.

    Args:
        file: where to.
        tensors: by name.
        tell: gets the size of each tensor that is written.
    """
    # transformers asks for this word before it reads anything.
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.n_bytes
        kind = NAMES[tensor.dtype]
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in tensors.values():
        file.write(raw_bytes(tensor.load()))
        tell(tensor.n_bytes)


@contextlib.contextmanager
def open_tensors(path: Path) -> Iterator[dict[str, Deferred]]:
    """The tensors of a safetensors file, each read when it is asked for."""
    types = {name: dtype for dtype, name in NAMES.items()}
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            found = {}
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                part = file.get_slice(name)
                if part.get_dtype() not in types:
                    raise CheckpointError(
                        f"{path}: {name} is of type {part.get_dtype()}",
                        "weights must be float32, float16 or bfloat16: not quantized",
                    )
                shape, dtype = tuple(part.get_shape()), types[part.get_dtype()]
                found[name] = Deferred(shape, dtype, partial(file.get_tensor, name))
            yield found
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file, or damaged: {error}") from None
