"""Configs from presets, a TOML file and options; later ones override earlier ones. No torch."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .config import ModelConfig, TrainConfig
from .config_checks import from_mapping, unknown_key

__all__ = [
    "DEFAULT_PRESET",
    "MODEL_KEYS",
    "PRESETS",
    "TRAIN_KEYS",
    "config_keys",
    "given",
    "merged",
    "preset_model",
    "read_toml",
    "to_configs",
    "train_config",
]

MAX_TOML_BYTES = 1 << 20


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


# Shapes and settings by name; a file and options override them.
PRESETS: dict[str, dict[str, Any]] = {
    # A few minutes on a laptop; the default. In this time, Muon with a wsd schedule learns most.
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
    # A few seconds, for experiments.
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
# Vocabulary sizes of presets without a tokenizer.
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
    place, hint = Path(path), "write lines such as d_model = 256"
    if place.exists() and not (place.is_file() and place.stat().st_size <= MAX_TOML_BYTES):
        raise ConfigError(
            f"{path}: must be a regular file of at most {MAX_TOML_BYTES:,} bytes", hint
        )
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
    """The keys of the preset, overridden by those of the file, overridden by the options.

    The file may name a preset; `preset` overrides it.
    """
    file = dict(file or {})
    name = preset or file.pop("preset", None) or DEFAULT_PRESET
    file.pop("preset", None)
    if not isinstance(name, str) or name not in PRESETS:
        raise unknown_key(name, PRESETS, "presets")
    for key in options:
        _check_key(key, "options")
    return PRESETS[name] | file | dict(options)


def config_keys(
    config: str | os.PathLike[str] | Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The keys of a `config=` argument: those of a TOML file, or the keys themselves."""
    return read_toml(config) if isinstance(config, (str, os.PathLike)) else dict(config or {})


def given(model: ModelConfig | str | None, train: TrainConfig | None) -> dict[str, Any]:
    """The keys of configs that the caller built; a preset's name has none."""
    keys = model.to_json() if isinstance(model, ModelConfig) else {}
    return keys | ({} if train is None else train.to_json())


def preset_model(
    name: str | None, file: Mapping[str, Any] | None = None, **changes: Any
) -> ModelConfig:
    """The model of a preset; by default, the vocabulary size is GPT-2's, or 10,000.

    >>> preset_model("gpt2-xl").vocab_size, preset_model("tiny", d_model=32).d_model
    (50257, 32)
    """
    keys = merged(name, file, changes)
    chosen = name or (file or {}).get("preset") or DEFAULT_PRESET
    keys = {"vocab_size": GPT2_IDS if chosen.startswith("gpt2") else OTHER_IDS} | keys
    return ModelConfig(**{key: value for key, value in keys.items() if key in MODEL_KEYS})


def to_configs(keys: Mapping[str, Any], vocab_size: int) -> tuple[ModelConfig, TrainConfig]:
    """The two configs from merged keys; `vocab_size` is that of the tokens."""
    fields = {key: value for key, value in keys.items() if key in MODEL_KEYS}
    if fields.get("vocab_size") is None:
        fields["vocab_size"] = vocab_size
    model: ModelConfig = from_mapping(ModelConfig, fields, "model config")
    if model.vocab_size < vocab_size:
        raise ConfigError(
            f"vocab_size must be ≥ {vocab_size}, the vocabulary of the tokens, got "
            f"{model.vocab_size}",
            "omit it to use that of the tokens",
        )
    return model, train_config(keys)


def train_config(keys: Mapping[str, Any]) -> TrainConfig:
    """The training config from merged keys; it does not depend on the tokens."""
    return TrainConfig.from_json({key: keys[key] for key in TRAIN_KEYS if key in keys})


def _check_key(key: str, where: str) -> None:
    if key not in MODEL_KEYS and key not in TRAIN_KEYS:
        raise unknown_key(key, (*MODEL_KEYS, *TRAIN_KEYS), where)
