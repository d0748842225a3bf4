"""Tensors that are loaded only when they are written, so that a model need not fit into memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import safetensors
import torch
from torch import Tensor

from ... import __version__
from ...errors import CheckpointError, ConfigError

__all__ = [
    "Deferred",
    "check_finite",
    "converted",
    "is_written_by_us",
    "open_tensors",
    "raw_bytes",
    "write_safetensors",
]

# A key in the header's metadata that marks files written by bytemill.
MARK = "bytemill"

# Names of types in a safetensors header.
FLOATS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}
# Buffers of modules and optimizers may have these too.
NAMES = FLOATS | {
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Deferred(NamedTuple):
    """Shape and type of a tensor, and a function that loads it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    load: Callable[[], Tensor]

    @property
    def n_bytes(self) -> int:
        """Its size in a file."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def converted(tensor: Deferred, dtype: torch.dtype, change: Callable[[Tensor], Tensor]) -> Deferred:
    """The tensor after a change that keeps its shape, in another type."""

    def load() -> Tensor:
        before = change(tensor.load())
        after = before.to(dtype)
        if dtype == torch.float16 and not bool(after.isfinite().all()):
            raise ConfigError(
                "weights must be ≤ 65504 in magnitude for float16, got "
                f"{float(before.abs().max()):g}",
                "use bf16 or f32",
            )
        return after

    return Deferred(tensor.shape, dtype, load)


def raw_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def write_safetensors(
    file: BinaryIO,
    tensors: Mapping[str, Deferred] | Mapping[str, Tensor],
    tell: Callable[[int], None] = lambda n_bytes: None,
) -> None:
    """Writes tensors one after another. A full disk is an `OSError`, as for any file.

    Args:
        file: the output.
        tensors: by name.
        tell: called with the size of each tensor that is written.
    """
    deferred = {
        name: t if isinstance(t, Deferred) else Deferred(tuple(t.shape), t.dtype, partial(_same, t))
        for name, t in tensors.items()
    }
    # Wide types first, so that each tensor is aligned; otherwise in the order given.
    tensors = dict(sorted(deferred.items(), key=lambda item: -item[1].dtype.itemsize))
    # transformers requires the format "pt".
    header: dict[str, object] = {"__metadata__": {"format": "pt", MARK: __version__}}
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


def _same(tensor: Tensor) -> Tensor:
    return tensor


def is_written_by_us(path: Path) -> bool:
    """Whether `write_safetensors` wrote the file."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return MARK in (file.metadata() or {})
    except (safetensors.SafetensorError, OSError):
        return False


def check_finite(name: str, key: str, tensor: Tensor) -> None:
    """Raises if the weight `key` of the file `name` has values that are not finite."""
    if not tensor.is_floating_point():
        return
    n_wrong = tensor.numel() - int(tensor.isfinite().sum())
    if n_wrong:
        raise CheckpointError(
            f"{name}: {n_wrong:,} of {tensor.numel():,} values of {key} are NaN or infinite",
            "training diverged, or the file is damaged: use an earlier checkpoint",
        )


def _read(file: Any, name: str, path: Path) -> Tensor:
    tensor: Tensor = file.get_tensor(name)
    check_finite(str(path), name, tensor)
    return tensor


@contextlib.contextmanager
def open_tensors(path: Path) -> Iterator[dict[str, Deferred]]:
    """The tensors of a safetensors file, each read when it is loaded.

    safetensors compares the offsets in the header with the size of the file first, so the shapes
    are those of bytes that exist.
    """
    types = {name: dtype for dtype, name in FLOATS.items()}
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            found = {}
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                part = file.get_slice(name)
                if part.get_dtype() not in types:
                    raise CheckpointError(
                        f"{path}: {name} has type {part.get_dtype()}",
                        "weights must be floating-point numbers, not quantized",
                    )
                shape, dtype = tuple(part.get_shape()), types[part.get_dtype()]
                found[name] = Deferred(shape, dtype, partial(_read, file, name, path))
            yield found
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file, or damaged: {error}") from None
