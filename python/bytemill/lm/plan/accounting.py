"""Accounts: the estimated cost of storing, training and serving a model.

The formulas are those of `costs`, combined here with hardware and a number of tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import ConfigError
from ..config import ModelConfig, OptimizerName
from ..keywords import PresetName
from ..presets import preset_model
from . import costs
from .costs import Memory

__all__ = ["HARDWARE", "WAYS", "Account", "Hardware", "account"]

Dtype = Literal["float32", "bfloat16"]

# Tokens per parameter that give about the lowest loss for a given compute budget: Hoffmann et al.,
# "Training Compute-Optimal Large Language Models", 2022.
TOKENS_PER_PARAMETER = 20
# The share of the peak rate that efficient code reaches.
MFU = 0.4
# Ways to keep activations: kernels, and whether blocks are recomputed.
WAYS: dict[str, tuple[str, bool]] = {
    "plain attention": ("plain", False),
    "fused attention": ("torch", False),
    "fused sublayers": ("fused", False),
    "plain, recomputed": ("plain", True),
    "fused, recomputed": ("torch", True),
}


@dataclass(frozen=True)
class Hardware:
    """A device to train on.

    Attributes:
        name: its name.
        flops: peak FLOP/s of matmuls by dtype.
        memory: memory in bytes.
        device: `"cuda"` or `"cpu"`.
    """

    name: str
    flops: dict[str, float]
    memory: int
    device: str = "cuda"


# From the makers' data sheets: dense matmuls, without the doubling for sparse matrices; float32
# without tensor cores.
HARDWARE = {
    "a100": Hardware(
        "NVIDIA A100 SXM 80 GB", {"bfloat16": 312e12, "float32": 19.5e12}, 80_000_000_000
    ),
    "h100": Hardware(
        "NVIDIA H100 SXM 80 GB", {"bfloat16": 989.4e12, "float32": 66.9e12}, 80_000_000_000
    ),
}


@dataclass(frozen=True)
class Account:
    """The cost of a model.

    Attributes:
        config: the model.
        batch_size: sequences per batch.
        dtype: matmul dtype.
        optimizer: the optimizer.
        parameters: number of parameters by component.
        forward: FLOPs of the forward pass on one full context, by component.
        update: FLOPs of an update on the batch, by component.
        training: FLOPs of an update on the batch.
        recomputed: the same if blocks are recomputed in backward.
        memory: bytes of training on the batch, by the way activations are kept (`WAYS`).
        kv_cache: bytes of the KV cache of one sequence.
        inference: bytes of the weights and that cache, in `dtype`.
        hardware: the hardware; None if not given.
        limit: available memory in bytes; None if not given.
        largest_batch: sequences that fit into it, by way; 0 if not even one fits.
        optimal_tokens: the number of tokens that gives about the lowest loss for the compute.
        tokens: tokens to train on; the optimal number unless given.
        total_flops: FLOPs of training on them.
        mfu: the assumed share of the hardware's peak rate.
        seconds: time to train on them; None without hardware.
    """

    config: ModelConfig
    batch_size: int
    dtype: Dtype
    optimizer: OptimizerName
    parameters: dict[str, int]
    forward: dict[str, int]
    update: dict[str, int]
    training: int
    recomputed: int
    memory: dict[str, Memory]
    kv_cache: int
    inference: int
    hardware: Hardware | None
    limit: int | None
    largest_batch: dict[str, int]
    optimal_tokens: int
    tokens: int
    total_flops: int
    mfu: float
    seconds: float | None

    @property
    def n_parameters(self) -> int:
        return sum(self.parameters.values())

    @property
    def forward_flops(self) -> int:
        """FLOPs of the forward pass on one full context."""
        return sum(self.forward.values())

    def shares(self, *, head: bool = True) -> dict[str, float]:
        """The share of each component in the forward FLOPs, with or without the output head."""
        return shares(self.config, self.config.context_length, head=head)

    def to_json(self) -> dict[str, Any]:
        """All fields, for a file."""
        fields = dataclasses.asdict(self)
        fields["memory"] = {
            way: dataclasses.asdict(memory) | {"total": memory.total}
            for way, memory in self.memory.items()
        }
        return fields | {
            "n_parameters": self.n_parameters,
            "forward_flops": self.forward_flops,
            "shares": self.shares(),
            "shares_without_head": self.shares(head=False),
        }


def account(
    config: ModelConfig | PresetName,
    *,
    batch_size: int = 1,
    dtype: Dtype | None = None,
    optimizer: OptimizerName = "adamw",
    hardware: Literal["a100", "h100", "this"] | Hardware | None = None,
    memory: int | None = None,
    tokens: int | None = None,
    mfu: float = MFU,
) -> Account:
    """Estimates the cost of a model.

    Args:
        config: the model, or the name of a preset, such as `"gpt2-xl"`.
        batch_size: sequences per batch, for memory and the FLOPs of an update.
        dtype: matmul dtype; None for the one that `bytemill train` would choose there, float32
            without hardware. Weights and optimizer state are always float32.
        optimizer: `"adamw"`, `"muon"` or `"sgd"`.
        hardware: `"a100"`, `"h100"`, `"this"` (which measures this machine), or your own.
        memory: available memory in bytes; None for the hardware's.
        tokens: tokens to train on; None for the compute-optimal number.
        mfu: share of the hardware's peak rate that is reached.

    >>> xl = account("gpt2-xl", hardware="a100")
    >>> xl.n_parameters, xl.forward_flops, f"{xl.shares()['feed-forward']:.2%}"
    (2127057600, 4513336524800, '66.91%')
    """
    if isinstance(config, str):
        config = preset_model(config)
    if batch_size < 1:
        raise ConfigError(f"batch_size must be ≥ 1, got {batch_size}")
    if not 0 < mfu <= 1:
        raise ConfigError(f"mfu must be > 0 and ≤ 1, got {mfu}", "it is a share of the peak")
    if tokens is not None and tokens < 1:
        raise ConfigError(f"tokens must be ≥ 1, got {tokens}")
    if optimizer not in ("adamw", "muon", "sgd"):
        raise ConfigError(f"optimizer must be adamw, muon or sgd, got {optimizer!r}")
    found = _hardware(hardware)
    if dtype is None:
        has = found is not None and "bfloat16" in found.flops
        on_cpu = found is not None and found.device == "cpu"
        pays = has and (not on_cpu or costs.bfloat16_pays_on_cpu(config))
        dtype = "bfloat16" if pays else "float32"
    if dtype not in costs.WIDTHS:
        raise ConfigError(f"dtype must be float32 or bfloat16, got {dtype!r}")
    limit = memory if memory is not None else None if found is None else found.memory
    way: dict[str, Any] = {"dtype": dtype, "optimizer": optimizer}
    if found is not None:
        way["device"] = found.device
    # The fused sublayers are for float32, and for some models only.
    ways = [name for name in WAYS if name != "fused sublayers" or _has_fused(config, dtype)]
    optimal = TOKENS_PER_PARAMETER * costs.n_parameters(config)
    total = (tokens or optimal) * costs.training_flops(config, 1) // config.context_length
    seconds = None
    if found is not None:
        if dtype not in found.flops:
            raise ConfigError(
                f"{found.name}: the matmul rate in {dtype} is unknown",
                f"use {' or '.join(found.flops)}",
            )
        seconds = total / (mfu * found.flops[dtype])
    weights = costs.n_parameters(config) * costs.WIDTHS[dtype]
    cache = costs.kv_cache(config, 1, dtype)
    return Account(
        config=config,
        batch_size=batch_size,
        dtype=dtype,
        optimizer=optimizer,
        parameters=costs.parameters_of(config),
        forward=costs.flops_of(config, config.context_length),
        update=costs.update_flops_of(config, batch_size),
        training=costs.training_flops(config, batch_size),
        recomputed=costs.training_flops(config, batch_size, recompute=True),
        memory={
            name: costs.training_memory(
                config, batch_size, kernels=WAYS[name][0], recompute=WAYS[name][1], **way
            )
            for name in ways
        },
        kv_cache=cache,
        inference=weights + cache,
        hardware=found,
        limit=limit,
        largest_batch={}
        if limit is None
        else {name: largest_batch(config, limit, name, **way) for name in ways},
        optimal_tokens=optimal,
        tokens=tokens or optimal,
        total_flops=total,
        mfu=mfu,
        seconds=seconds,
    )


def shares(config: ModelConfig, n_tokens: int, *, head: bool = True) -> dict[str, float]:
    """The share of each component in the FLOPs of the forward pass on `n_tokens`."""
    parts = costs.flops_of(config, n_tokens)
    if not head:
        del parts["output head"]
    total = sum(parts.values())
    return {name: n / total for name, n in parts.items()}


def largest_batch(config: ModelConfig, limit: int, way: str, **given: Any) -> int:
    """The largest batch whose training fits into `limit` bytes.

    `given` is passed to `training_memory`."""
    kernels, recompute = WAYS[way]

    def fits(n: int) -> bool:
        memory = costs.training_memory(config, n, kernels=kernels, recompute=recompute, **given)
        return memory.peak <= limit

    return largest_that(fits)


def largest_that(fits: Callable[[int], bool], below: int | None = None) -> int:
    """The largest number of sequences that fits, by bisection; 0 if not even one does.

    Args:
        fits: whether n sequences fit; must be monotonic.
        below: a number that does not; None to look for one.

    >>> largest_that(lambda n: n <= 100), largest_that(lambda n: n <= 5, 7)
    (100, 5)
    """
    low, high = 0, below or 1
    while below is None and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _has_fused(config: ModelConfig, dtype: str) -> bool:
    return dtype == "float32" and costs.can_fuse(config)


def _hardware(hardware: str | Hardware | None) -> Hardware | None:
    if hardware is None or isinstance(hardware, Hardware):
        return hardware
    if hardware == "this":
        # Through the package, which reports a missing torch.
        from ... import lm

        return lm.this_machine()
    if hardware not in HARDWARE:
        raise ConfigError(f"hardware must be {', '.join(HARDWARE)} or this, got {hardware!r}")
    return HARDWARE[hardware]
