"""How a run is set up: a typed config from presets, a TOML file and options, in this order.

No torch is needed here: the command line makes its options from the fields below.
"""

# `_field` is dataclasses.field with a description.
# ruff: noqa: RUF009

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import ConfigError
from .config import ModelConfig, check_ranges, check_seed, check_types, from_mapping, unknown_key

__all__ = [
    "PRESETS",
    "TrainConfig",
    "merged",
    "preset_model",
    "read_toml",
    "resolve",
    "train_config",
]

# Of counts: far beyond any use, and products of two still fit into 64 bits.
MANY = 2**31
MAX_TOML_BYTES = 1 << 20

Dtype = Literal["auto", "float32", "bfloat16"]
Compile = Literal["auto", "off", "body"]
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
        check_ranges(self, {name: (n, MANY) for name, n in least.items()})
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


def _gpt2(d_model: int, num_layers: int, num_heads: int, lr: float) -> dict[str, Any]:
    return {
        "context_length": 1024,
        "d_model": d_model,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "d_ff": 4 * d_model,
        "batch_size": 512,
        "micro_batch_size": 8,
        "steps": 20000,
        "lr": lr,
        "min_lr": lr / 10,
    }


# Shapes by name; everything in them can be changed by file and options.
PRESETS: dict[str, dict[str, Any]] = {
    # Some minutes on a laptop; what `bytemill train` takes by itself. In so short a time, Muon with
    # a plateau learns most.
    "laptop": {
        "optimizer": "muon",
        "schedule": "wsd",
        "context_length": 128,
        "d_model": 192,
        "num_layers": 4,
        "num_heads": 6,
        "d_ff": 512,
        "batch_size": 32,
        "steps": 500,
        "lr": 3e-3,
    },
    # For trying things out: seconds.
    "tiny": {
        "context_length": 64,
        "d_model": 64,
        "num_layers": 2,
        "num_heads": 4,
        "batch_size": 16,
        "steps": 200,
        "lr": 5e-3,
    },
    # The course's model for TinyStories: 40,000 steps of 32 × 256 are its 327 million tokens.
    "tinystories": {
        "context_length": 256,
        "d_model": 512,
        "num_layers": 4,
        "num_heads": 16,
        "d_ff": 1344,
        "batch_size": 32,
        "steps": 40000,
        "lr": 1e-3,
    },
    "gpt2-small": _gpt2(768, 12, 12, 6e-4),
    "gpt2-medium": _gpt2(1024, 24, 16, 3e-4),
    "gpt2-large": _gpt2(1280, 36, 20, 2.5e-4),
    "gpt2-xl": _gpt2(1600, 48, 25, 2e-4),
}
DEFAULT_PRESET = "laptop"
# Ids of a preset's model where no tokenizer says how many.
GPT2_IDS = 50257
OTHER_IDS = 10000

MODEL_KEYS = tuple(field.name for field in dataclasses.fields(ModelConfig))
TRAIN_KEYS = tuple(field.name for field in dataclasses.fields(TrainConfig))


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys of a TOML file: at its top, or in tables `[model]` and `[train]`."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    place, hint = Path(path), "lines such as d_model = 256"
    if place.exists() and not (place.is_file() and place.stat().st_size <= MAX_TOML_BYTES):
        raise ConfigError(f"{path}: not a file of at most {MAX_TOML_BYTES:,} bytes", hint)
    try:
        found = tomllib.loads(place.read_bytes().decode())
    except RecursionError:
        raise ConfigError(f"{path}: not TOML: nested too deeply", hint) from None
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML: {error}", hint) from None
    keys: dict[str, Any] = {}
    for key, value in found.items():
        if isinstance(value, dict):
            if key not in ("model", "train"):
                raise unknown_key(key, ("model", "train"), f"{path}: tables")
            known = MODEL_KEYS if key == "model" else TRAIN_KEYS
            for inner, inner_value in value.items():
                if inner not in known:
                    raise unknown_key(inner, known, f"{path}: [{key}]")
                keys[inner] = inner_value
        else:
            keys[key] = value
    for key in keys:
        if key != "preset":
            _check_key(key, str(path))
    return keys


def merged(
    preset: str | None, file: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """One set of keys: the preset's, over them the file's, over them the options.

    A file may name its preset; an option names another.
    """
    file = dict(file or {})
    name = preset or file.pop("preset", None) or DEFAULT_PRESET
    file.pop("preset", None)
    if not isinstance(name, str) or name not in PRESETS:
        raise unknown_key(name, PRESETS, "presets")
    for key in options:
        _check_key(key, "options")
    return PRESETS[name] | file | dict(options)


def preset_model(
    name: str | None, file: Mapping[str, Any] | None = None, **changes: Any
) -> ModelConfig:
    """The model of a preset; with as many ids as GPT-2 has, or 10,000, where nothing is said.

    >>> preset_model("gpt2-xl").vocab_size, preset_model("tiny", d_model=32).d_model
    (50257, 32)
    """
    keys = merged(name, file, changes)
    chosen = name or (file or {}).get("preset") or DEFAULT_PRESET
    keys = {"vocab_size": GPT2_IDS if chosen.startswith("gpt2") else OTHER_IDS} | keys
    return ModelConfig(**{key: value for key, value in keys.items() if key in MODEL_KEYS})


def resolve(keys: Mapping[str, Any], vocab_size: int) -> tuple[ModelConfig, TrainConfig]:
    """The two configs of merged keys; `vocab_size` is what the tokens say."""
    fields = {key: value for key, value in keys.items() if key in MODEL_KEYS}
    if fields.get("vocab_size") is None:
        fields["vocab_size"] = vocab_size
    model: ModelConfig = from_mapping(ModelConfig, fields, "the model's config")
    if model.vocab_size < vocab_size:
        raise ConfigError(
            f"vocab_size={model.vocab_size}, but there are ids up to {vocab_size - 1}",
            f"use {vocab_size} or more, or leave it to the tokens",
        )
    return model, train_config(keys)


def train_config(keys: Mapping[str, Any]) -> TrainConfig:
    """The run's config of merged keys: what is known before the tokens are opened."""
    return TrainConfig.from_json({key: keys[key] for key in TRAIN_KEYS if key in keys})


def _check_key(key: str, where: str) -> None:
    if key not in MODEL_KEYS and key not in TRAIN_KEYS:
        raise unknown_key(key, (*MODEL_KEYS, *TRAIN_KEYS), where)
