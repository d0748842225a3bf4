"""What a model is and how it is trained, as plain data, which needs no torch."""

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

# Beyond what anyone trains, and small enough that no sum or product of sizes overflows anywhere.
MAX_SIZE = 2**24
# Of counts in a run: far beyond any use, and products of two still fit into 64 bits.
MAX_COUNT = 2**31
MAX_LAYERS = 10**5
MAX_VOCAB_SIZE = 2**31
MAX_PARAMETERS = 10**13
# Numbers in the tables of rotary angles that any model may have; a large one may have more.
MIN_ROTARY_TABLES = 2**25


def default_d_ff(d_model: int, feed_forward: FeedForward = "swiglu") -> int:
    """The inner width of a feed-forward layer where none is given.

    8/3 of `d_model` for SwiGLU's three matrices, 4 times for the two of plain SiLU, so that both
    have the same number of parameters; rounded to a multiple of 64, which kernels like.

    >>> default_d_ff(512), default_d_ff(192), default_d_ff(512, "silu")
    (1344, 512, 2048)
    """
    exact = d_model * 8 / 3 if feed_forward == "swiglu" else d_model * 4
    return max(64, round(exact / 64) * 64)


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a Transformer language model.

    Attributes:
        vocab_size: how many ids there are.
        context_length: the longest sequence it is trained on.
        d_model: width of the residual stream.
        num_layers: how many blocks.
        num_heads: how many heads of queries; each is `d_model / num_heads` wide.
        d_ff: inner width of the feed-forward layers; None for `default_d_ff`.
        rope_theta: base of the rotary frequencies.
        num_kv_heads: heads of keys and values (grouped-query attention); None for `num_heads`.
        norm: where RMSNorm stands: before each sublayer, behind it, or nowhere.
        positions: rotary embedding, or none at all.
        feed_forward: SwiGLU with three matrices, or SiLU with two.
        tie_embeddings: the output head is the embedding matrix.
        qk_norm: RMSNorm on queries and keys, per head.
        norm_eps: what keeps RMSNorm from dividing by zero.

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
        # Frozen for others; what was left open is settled here, once.
        if self.d_ff is None:
            object.__setattr__(self, "d_ff", default_d_ff(self.d_model, self.feed_forward))
        if self.num_kv_heads is None:
            object.__setattr__(self, "num_kv_heads", self.num_heads)
        for name in ("rope_theta", "norm_eps"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be > 0, got {getattr(self, name)}")
        if self.d_model % self.num_heads:
            raise ConfigError(
                f"d_model={self.d_model} does not divide into num_heads={self.num_heads} heads",
                f"use one of {_listed(_divisors(self.d_model), self.num_heads)} heads, "
                "or another d_model",
            )
        if self.positions == "rope" and self.d_head % 2:
            raise ConfigError(
                f"heads of {self.d_head} (d_model / num_heads) are odd, "
                "and rotary positions turn pairs",
                "use an even width per head, or positions='none'",
            )
        if self.num_heads % self.n_kv:
            raise ConfigError(
                f"num_kv_heads={self.num_kv_heads} does not divide num_heads={self.num_heads}",
                "as many heads of queries must share each head of keys and values",
            )
        self._check_size()

    def _check_size(self) -> None:
        """Raises if the sizes, each possible, are too much together."""
        from .plan.costs import n_parameters

        parameters = n_parameters(self)
        if parameters > MAX_PARAMETERS:
            raise ConfigError(
                f"the model would have {parameters:.2g} parameters, at most {MAX_PARAMETERS:.0e} "
                "are possible",
                "use fewer layers, or a smaller d_model or d_ff",
            )
        limit = max(MIN_ROTARY_TABLES, parameters)
        if self.positions == "rope" and self.context_length * self.d_head > limit:
            raise ConfigError(
                f"context_length must be ≤ {limit // self.d_head} for this model, "
                f"got {self.context_length}",
                "longer ones have larger tables of positions than the model has weights",
            )

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads

    @property
    def n_kv(self) -> int:
        """Heads of keys and values."""
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
        """The config of `to_json`; unknown fields are refused."""
        config: ModelConfig = from_mapping(cls, fields, "the model's config")
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


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained; the descriptions are those of `bytemill train --help`."""

    steps: int = _field(1000, "Updates in all.")
    batch_size: int = _field(32, "Sequences of an update, of all ranks together.")
    micro_batch_size: int | None = _field(
        None, "Sequences at a time on a rank; gradients of the others are added up. [default: all]"
    )
    optimizer: OptimizerName = _field("adamw", "AdamW, Muon for matrices with AdamW, or SGD.")
    lr: float = _field(3e-3, "Highest learning rate (of AdamW or SGD).")
    min_lr: float | None = _field(None, "Last learning rate.  [default: a tenth of --lr]")
    muon_lr: float = _field(0.02, "Highest learning rate of Muon.")
    embedding_lr: float | None = _field(
        None,
        "Highest learning rate of an embedding that is not the head too.  "
        "[default: 30 times --lr beside Muon, else --lr]",
    )
    schedule: Schedule = _field("cosine", "How the learning rate goes after warming up.")
    warmup: int | None = _field(None, "Steps of warming up.  [default: 5 % of the steps]")
    decay: int | None = _field(None, "Decay steps of wsd.  [default: half of the steps]")
    weight_decay: float = _field(0.1, "Weight decay of matrices; vectors have none.")
    beta1: float = _field(0.9, "AdamW's first-moment decay.")
    beta2: float = _field(0.95, "AdamW's second-moment decay.")
    eps: float = _field(1e-8, "What keeps AdamW from dividing by zero.")
    clip: float = _field(1.0, "Largest norm of all gradients together; 0 for any.")
    seed: int = _field(0, "What weights, order and samples depend on.")
    val_fraction: float = _field(
        0.02, "Share of tokens, at the end, to hold out where there is no validation split."
    )
    eval_every: int | None = _field(
        None, "Steps between evaluations; 0 for none.  [default: a tenth of the steps]"
    )
    eval_windows: int = _field(128, "Windows of the held-out tokens to evaluate on.")
    sample_every: int | None = _field(
        None, "Steps between samples; 0 for none.  [default: as --eval-every]"
    )
    sample_prompt: str = _field("", "What samples begin with.")
    sample_tokens: int = _field(48, "Tokens of a sample.")
    checkpoint_every: int | None = _field(
        None, "Steps between checkpoints.  [default: a tenth of the steps]"
    )
    keep: int = _field(2, "Checkpoints to keep, besides the best.")
    device: str = _field(
        "auto", "Where to compute: auto (a GPU if there is one), cpu, cuda, cuda:1, mps."
    )
    dtype: Dtype = _field("auto", "Matmul dtype; weights stay float32.")
    kernels: KernelOption = _field("auto", "Which way to compute.")
    compile: Compile = _field("auto", "Compile nothing, or the body.")
    threads: int | None = _field(None, "Threads of a rank.  [default: torch's choice]")
    parallel: Parallel = _field("ddp", "Under torchrun: copies of the model, or shards.")
    tensorboard: bool = _field(True, "Write event files, where tensorboard is installed.")
    wandb: bool = _field(False, "Log to Weights & Biases, offline, where wandb is installed.")

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
                "embedding_lr is not for sgd, which has one rate for all", "leave it out"
            )
        if self.warmup is not None and self.warmup > self.steps:
            raise ConfigError(
                f"warmup={self.warmup} is longer than the run of {self.steps} steps",
                "warm up for some 5 % of the steps",
            )

    # --- what was left open -------------------------------------------------------------------

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
        """The config of `to_json`; unknown fields are refused."""
        config: TrainConfig = from_mapping(cls, fields, "the run's config")
        return config


def check_device_name(name: str) -> None:
    """Raises unless it is the name of a device, of this machine or another."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name, re.ASCII):
        raise ConfigError(
            f"device must be auto, cpu, cuda, cuda:N or mps, got {name!r}",
            "auto takes a GPU if there is one",
        )
