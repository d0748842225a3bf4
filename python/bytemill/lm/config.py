"""The configs of a model and of its training: plain data, without torch."""

# `_field` is dataclasses.field with a description.
# ruff: noqa: RUF009

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ConfigError
from .config_checks import check_ranges, check_seed, check_types, from_mapping

__all__ = ["ModelConfig", "TrainConfig", "check_device_name", "default_d_ff"]

Norm = Literal["pre", "post", "none"]
Positions = Literal["rope", "none"]
FeedForward = Literal["swiglu", "silu"]

# Larger than any real model, and small enough that no product of sizes overflows.
MAX_SIZE = 2**24
# Limit of counts in a run: products of two fit into 64 bits.
MAX_COUNT = 2**31
MAX_LAYERS = 10**5
MAX_VOCAB_SIZE = 2**31
MAX_PARAMETERS = 10**13
# Entries of the rotary tables that every model may have; large models may have more.
MIN_ROTARY_TABLES = 2**25


def default_d_ff(d_model: int, feed_forward: FeedForward = "swiglu") -> int:
    """The default inner width of a feed-forward layer.

    8/3 of `d_model` for the three matrices of SwiGLU, 4 times for the two of SiLU, so that both
    have the same number of parameters; rounded to a multiple of 64, which suits kernels.

    >>> default_d_ff(512), default_d_ff(192), default_d_ff(512, "silu")
    (1344, 512, 2048)
    """
    exact = d_model * 8 / 3 if feed_forward == "swiglu" else d_model * 4
    return max(64, round(exact / 64) * 64)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a Transformer language model.

    Attributes:
        vocab_size: vocabulary size.
        context_length: maximum sequence length.
        d_model: width of the residual stream.
        num_layers: number of blocks.
        num_heads: number of query heads, each of width `d_model / num_heads`.
        d_ff: inner width of the feed-forward layers; None for `default_d_ff`.
        rope_theta: base of the rotary frequencies.
        num_kv_heads: number of key and value heads (grouped-query attention); None for `num_heads`.
        norm: RMSNorm before each sublayer, after it, or none.
        positions: rotary embedding, or none.
        feed_forward: SwiGLU with three matrices, or SiLU with two.
        tie_embeddings: use the embedding matrix as output head.
        qk_norm: RMSNorm on queries and keys, per head.
        norm_eps: epsilon of RMSNorm.

    >>> ModelConfig(vocab_size=1000, context_length=64, d_model=96, num_layers=2, num_heads=3).d_ff
    256
    """

    vocab_size: int
    context_length: int
    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int | None = None
    rope_theta: float = 10000.0
    num_kv_heads: int | None = None
    norm: Norm = "pre"
    positions: Positions = "rope"
    feed_forward: FeedForward = "swiglu"
    tie_embeddings: bool = False
    qk_norm: bool = False
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        check_types(self)
        check_ranges(
            self,
            {
                "vocab_size": (1, MAX_VOCAB_SIZE),
                "context_length": (1, MAX_SIZE),
                "d_model": (1, MAX_SIZE),
                "num_layers": (1, MAX_LAYERS),
                "num_heads": (1, MAX_SIZE),
                "num_kv_heads": (1, MAX_SIZE),
                "d_ff": (1, MAX_SIZE),
            },
        )
        # Defaults that depend on other fields.
        if self.d_ff is None:
            object.__setattr__(self, "d_ff", default_d_ff(self.d_model, self.feed_forward))
        if self.num_kv_heads is None:
            object.__setattr__(self, "num_kv_heads", self.num_heads)
        for name in ("rope_theta", "norm_eps"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be > 0, got {getattr(self, name)}")
        if self.d_model % self.num_heads:
            raise ConfigError(
                f"d_model must be a multiple of num_heads ({self.num_heads}), got {self.d_model}",
                f"use {_listed(_divisors(self.d_model), self.num_heads)} heads, or another d_model",
            )
        if self.positions == "rope" and self.d_head % 2:
            raise ConfigError(
                f"d_model / num_heads must be even, got {self.d_head}: "
                "rotary embedding rotates pairs",
                "use an even width per head, or positions='none'",
            )
        if self.num_heads % self.n_kv:
            raise ConfigError(
                f"num_heads must be a multiple of num_kv_heads ({self.num_kv_heads}), "
                f"got {self.num_heads}",
                "each key and value head serves the same number of query heads",
            )
        self._check_size()

    def _check_size(self) -> None:
        """Raises if the sizes, each valid, together give too large a model."""
        from .plan.costs import n_parameters

        parameters = n_parameters(self)
        if parameters > MAX_PARAMETERS:
            raise ConfigError(
                f"the model must have ≤ {MAX_PARAMETERS:.0e} parameters, got {parameters:.2g}",
                "use fewer layers, or a smaller d_model or d_ff",
            )
        limit = max(MIN_ROTARY_TABLES, parameters)
        if self.positions == "rope" and self.context_length * self.d_head > limit:
            raise ConfigError(
                f"context_length must be ≤ {limit // self.d_head} for this model, "
                f"got {self.context_length}",
                "for longer contexts the rotary tables would be larger than the model",
            )

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads

    @property
    def n_kv(self) -> int:
        """Number of key and value heads."""
        assert self.num_kv_heads is not None
        return self.num_kv_heads

    @property
    def width(self) -> int:
        """Inner width of the feed-forward layers."""
        assert self.d_ff is not None
        return self.d_ff

    def to_json(self) -> dict[str, Any]:
        """Every field, for a file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ModelConfig:
        """The config from the fields of `to_json`; unknown fields are an error."""
        config: ModelConfig = from_mapping(cls, fields, "model config")
        return config


def _divisors(n: int) -> list[int]:
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return sorted({*small, *(n // k for k in small)})


def _listed(numbers: list[int], near: int) -> str:
    closest = sorted(sorted(numbers, key=lambda n: abs(n - near))[:4])
    return ", ".join(map(str, closest))


# --- training -----------------------------------------------------------------------------------

Dtype = Literal["auto", "float32", "bfloat16"]
Compile = Literal["auto", "off", "body"]
Kernels = Literal["plain", "torch", "fused"]
KernelOption = Literal["auto", "plain", "torch", "fused"]
Schedule = Literal["cosine", "constant", "wsd"]
OptimizerName = Literal["adamw", "muon", "sgd"]
Parallel = Literal["ddp", "fsdp"]


def _field(default: Any, text: str) -> Any:
    """A field whose description is also the help of its option."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained; the descriptions are those of `bytemill train --help`."""

    steps: int = _field(1000, "Number of optimizer steps.")
    batch_size: int = _field(32, "Sequences per step, summed over ranks.")
    micro_batch_size: int | None = _field(
        None,
        "Sequences per forward pass on a rank; gradients accumulate over the rest.  "
        "[default: all of them]",
    )
    optimizer: OptimizerName = _field(
        "adamw", "Optimizer; muon uses AdamW for parameters that are not hidden matrices."
    )
    lr: float = _field(3e-3, "Peak learning rate of AdamW or SGD.")
    min_lr: float | None = _field(
        None, "Final learning rate.  [default: a tenth of --lr; 0 for wsd]"
    )
    muon_lr: float = _field(0.02, "Peak learning rate of Muon.")
    embedding_lr: float | None = _field(
        None,
        "Peak learning rate of an untied embedding.  [default: 30 times --lr with muon, else --lr]",
    )
    schedule: Schedule = _field("cosine", "Learning-rate schedule after warmup.")
    warmup: int | None = _field(None, "Warmup steps.  [default: 5% of the steps]")
    decay: int | None = _field(
        None, "Decay steps of the wsd schedule.  [default: half of the steps]"
    )
    weight_decay: float = _field(0.1, "Weight decay of matrices; norms are not decayed.")
    beta1: float = _field(0.9, "AdamW's first-moment decay.")
    beta2: float = _field(0.95, "AdamW's second-moment decay.")
    eps: float = _field(1e-8, "AdamW's epsilon.")
    clip: float = _field(1.0, "Clip the global gradient norm to this value; 0 disables clipping.")
    seed: int = _field(0, "Random seed of weights, data order and samples.")
    val_fraction: float = _field(
        0.02, "Share of the tokens, at the end, to hold out if there is no validation split."
    )
    eval_every: int | None = _field(
        None, "Steps between evaluations; 0 disables them.  [default: a tenth of the steps]"
    )
    eval_windows: int = _field(128, "Number of held-out windows to evaluate on.")
    sample_every: int | None = _field(
        None, "Steps between samples; 0 disables them.  [default: --eval-every]"
    )
    sample_prompt: str = _field("", "Prompt of the samples.")
    sample_tokens: int = _field(48, "Tokens per sample.")
    checkpoint_every: int | None = _field(
        None, "Steps between checkpoints.  [default: a tenth of the steps]"
    )
    keep: int = _field(2, "Number of recent checkpoints to keep besides the best.")
    device: str = _field("auto", "Device: auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.")
    dtype: Dtype = _field("auto", "Matmul dtype; weights stay float32.")
    kernels: KernelOption = _field("auto", "Kernels of the forward and backward pass.")
    compile: Compile = _field("auto", "Compile the Transformer blocks with torch.compile.")
    threads: int | None = _field(None, "Threads per rank.  [default: torch's choice]")
    parallel: Parallel = _field(
        "ddp", "Under torchrun, replicate the model (ddp) or shard it (fsdp)."
    )
    tensorboard: bool = _field(True, "Write TensorBoard event files if tensorboard is installed.")
    wandb: bool = _field(False, "Log to Weights & Biases in offline mode if wandb is installed.")

    def __post_init__(self) -> None:
        check_types(self)
        check_seed(self.seed)
        least = {
            "steps": 1, "batch_size": 1, "micro_batch_size": 1, "warmup": 0, "decay": 0,
            "weight_decay": 0, "eps": 0, "clip": 0, "eval_every": 0, "eval_windows": 1,
            "sample_every": 0, "sample_tokens": 1, "checkpoint_every": 1, "keep": 1, "threads": 1,
            "min_lr": 0,
        }  # fmt: skip
        check_ranges(self, {name: (n, MAX_COUNT) for name, n in least.items()})
        for name in ("lr", "muon_lr", "embedding_lr"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} must be > 0, got {value}")
        for name in ("beta1", "beta2", "val_fraction"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must be ≥ 0 and < 1, got {getattr(self, name)}")
        check_device_name(self.device)
        if self.embedding_lr is not None and self.optimizer == "sgd":
            raise ConfigError(
                "embedding_lr is not supported by sgd, which has one rate for all", "omit it"
            )
        if self.warmup is not None and self.warmup > self.steps:
            raise ConfigError(
                f"warmup must be ≤ steps={self.steps}, got {self.warmup}",
                "about 5% of the steps is usual",
            )

    # --- defaults that depend on other fields -----------------------------------------------------

    @property
    def warmup_steps(self) -> int:
        return round(0.05 * self.steps) if self.warmup is None else self.warmup

    @property
    def decay_steps(self) -> int:
        if self.decay is not None:
            return self.decay
        return (self.steps - self.warmup_steps) // 2

    @property
    def last_lr(self) -> float:
        if self.min_lr is not None:
            return self.min_lr
        return 0.0 if self.schedule == "wsd" else self.lr / 10

    @property
    def eval_steps(self) -> int:
        return max(1, self.steps // 10) if self.eval_every is None else self.eval_every

    @property
    def sample_steps(self) -> int:
        return self.eval_steps if self.sample_every is None else self.sample_every

    @property
    def checkpoint_steps(self) -> int:
        return max(1, self.steps // 10) if self.checkpoint_every is None else self.checkpoint_every

    def to_json(self) -> dict[str, Any]:
        """Every field, for a file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TrainConfig:
        """The config from the fields of `to_json`; unknown fields are an error."""
        config: TrainConfig = from_mapping(cls, fields, "training config")
        return config


def check_device_name(name: str) -> None:
    """Raises if it is not a device name; the device need not exist here."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name, re.ASCII):
        raise ConfigError(
            f"device must be auto, cpu, cuda, cuda:N or mps, got {name!r}",
            "auto uses a GPU if there is one",
        )
