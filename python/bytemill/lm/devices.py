"""The choice of device, dtype, kernels and compilation for this machine, with reasons."""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from .. import _system
from ..errors import ConfigError
from . import fast, naive
from .config import Kernels, ModelConfig, TrainConfig, check_device_name
from .model import TransformerLM
from .plan import costs

__all__ = ["ComputePlan", "choose", "find_device", "free_memory", "matmul_rate", "peak_memory"]

# Seconds that a run must take for compilation to pay: it takes some twenty seconds on a CPU.
COMPILE_PAYS_AFTER = 400.0


@dataclass(frozen=True)
class ComputePlan:
    """How a run computes.

    Attributes:
        device: the device.
        dtype: matmul dtype.
        kernels: which kernels.
        compile: whether the blocks are compiled.
        reasons: the reason for each choice, as lines of text.
    """

    device: torch.device
    dtype: torch.dtype
    kernels: Kernels
    compile: Literal["off", "body"]
    reasons: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, str]:
        return {
            "device": self.device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
            "kernels": self.kernels,
            "compile": self.compile,
        }

    def attach(self, model: TransformerLM) -> TransformerLM:
        """Moves a model to the device and attaches the kernels; returns it."""
        model.to(self.device)
        if self.kernels == "plain":
            return naive.attach(model)
        return fast.attach(model, blocks=self.kernels == "fused" and self.compile == "off")

    def autocast(self) -> Any:
        """The context of a forward pass: autocast to the matmul dtype."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)


def choose(model: ModelConfig, train: TrainConfig, local_rank: int = 0) -> ComputePlan:
    """The plan for this model on this machine; raises if a requested device does not exist."""
    device, why_device = _device(train, local_rank)
    dtype, why_dtype = _dtype(model, train, device)
    kernels, why_kernels = _kernels(model, train, device, dtype)
    compiled, why_compile = _compile(model, train, device, kernels)
    reasons = [
        f"device  {device}: {why_device}",
        f"dtype   {str(dtype).removeprefix('torch.')}: {why_dtype}",
        f"kernels {kernels}: {why_kernels}",
        f"compile {compiled}: {why_compile}",
    ]
    return ComputePlan(device, dtype, kernels, compiled, reasons)


def find_device(name: str | None = None, local_rank: int = 0) -> torch.device:
    """The device of that name; raises if it is not available.

    Args:
        name: `cpu`, `cuda`, `cuda:1` and so on, `mps`; None or `auto` for a GPU, or the CPU.
        local_rank: the GPU that `cuda` and `auto` mean, if there are several.
    """
    check_device_name(name or "auto")
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    has_mps = torch.backends.mps.is_available()
    if name is None or name == "auto":
        name = "cuda" if n_gpus else "mps" if has_mps else "cpu"
    kind, _, number = name.partition(":")
    index = int(number) if number else local_rank
    if index >= n_gpus if kind == "cuda" else kind == "mps" and not has_mps:
        there = ["cpu", *(f"cuda:{n}" for n in range(n_gpus)), *["mps"] * has_mps]
        build = "" if kind != "cuda" or torch.version.cuda else " (this build of torch has no CUDA)"
        raise ConfigError(
            f"device {name!r} is not available to torch{build}",
            f"available: {', '.join(there)}",
        )
    return torch.device("cuda", index) if kind == "cuda" else torch.device(kind)


def _device(train: TrainConfig, local_rank: int) -> tuple[torch.device, str]:
    if local_rank and ":" in train.device:
        raise ConfigError(
            f"device {train.device!r} is one GPU, but several ranks run on this machine",
            "use device='cuda': each rank uses its own GPU",
        )
    device = find_device(train.device, local_rank)
    if train.device != "auto":
        return device, "as requested"
    if device.type == "cuda":
        return device, torch.cuda.get_device_name(device)
    if device.type == "mps":
        return device, "an Apple GPU"
    n = torch.get_num_threads()
    return device, f"no GPU; {n} thread{'s' if n > 1 else ''}"


def _dtype(model: ModelConfig, train: TrainConfig, device: torch.device) -> tuple[torch.dtype, str]:
    if train.dtype == "float32":
        return torch.float32, "as requested"
    can, why = has_bfloat16(device)
    if train.dtype == "bfloat16":
        return torch.bfloat16, "as requested" if can else f"as requested, though {why}"
    if can and device.type == "cpu" and not costs.bfloat16_pays_on_cpu(model):
        return torch.float32, f"{why}, but the matmuls of this model are too small to benefit"
    return (torch.bfloat16 if can else torch.float32), why


def has_bfloat16(device: torch.device) -> tuple[bool, str]:
    """Whether this hardware multiplies bfloat16, and how that is known."""
    if device.type == "cuda":
        can = torch.cuda.get_device_capability(device)[0] >= 8
        return can, "the GPU has bfloat16" if can else "the GPU has no bfloat16"
    if device.type == "mps":
        return False, "float32 is the safe choice on this GPU"
    flags = _system.cpu_flags()
    found = sorted(flags & {"avx512_bf16", "amx_bf16", "bf16"})
    if found:
        return True, f"the CPU has {found[0]}"
    return False, "the CPU has no bfloat16 instructions; emulation is several times slower"


def _kernels(
    model: ModelConfig, train: TrainConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Kernels, str]:
    if train.kernels != "auto":
        return train.kernels, "as requested"
    reason = fast.why_not(model, device, dtype)
    if reason is not None:
        return "torch", reason
    return "fused", "fused sublayers use less memory and fewer passes over it"


def _compile(
    model: ModelConfig, train: TrainConfig, device: torch.device, kernels: Kernels
) -> tuple[Literal["off", "body"], str]:
    if train.compile != "auto":
        return train.compile, "as requested"
    if device.type == "mps" or kernels == "plain":
        return "off", "no benefit"
    if device.type == "cuda":
        if train.steps < 200:
            return "off", f"{train.steps} steps are too few to recover the compile time"
        return "body", "faster on a GPU"
    if kernels == "fused":
        return "off", "the fused sublayers are faster than compiled code"
    if not any(shutil.which(name) for name in ("g++", "clang++", "cl")):
        return "off", "no C++ compiler found"
    seconds = train.steps * costs.training_flops(model, train.batch_size) / 150e9
    if seconds < COMPILE_PAYS_AFTER:
        return "off", "the run is too short to recover the compile time"
    return "body", "the run is long enough to recover the compile time"


# --- rate and memory ----------------------------------------------------------------------------


def matmul_rate(device: torch.device, dtype: torch.dtype, seconds: float = 0.15) -> float:
    """Measured FLOP/s of a large matrix product; utilization is relative to it."""
    n = 1024 if device.type == "cpu" else 4096
    a = torch.randn(n, n, device=device, dtype=dtype)
    b = torch.randn(n, n, device=device, dtype=dtype)
    a @ b
    synchronize(device)
    best, end = 0.0, time.perf_counter() + seconds
    # At least one is measured, however long the first took: a busy machine, a slow library to load.
    while not best or time.perf_counter() < end:
        began = time.perf_counter()
        a @ b
        synchronize(device)
        best = max(best, 2 * n**3 / (time.perf_counter() - began))
    return best


def synchronize(device: torch.device) -> None:
    """Waits until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of torch's allocator on a GPU, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps":
        # Not a peak, but the driver keeps what it has allocated.
        return torch.mps.driver_allocated_memory()
    return _system.resident_memory(peak=True)


def free_memory(device: torch.device) -> int:
    """Bytes of a GPU that torch's allocator can hand out in total."""
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    # What the allocator has reserved already counts as used, but is available to it.
    return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
