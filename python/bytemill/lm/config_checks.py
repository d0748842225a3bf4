"""Validation of configs: keys, types, ranges; suggestions for misspelled keys."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..errors import ConfigError

__all__ = [
    "ABSENT",
    "SYNONYMS",
    "check_ranges",
    "check_seed",
    "check_types",
    "from_mapping",
    "unknown_key",
]

MAX_SEED = 2**64 - 1


def from_mapping(cls: type[Any], fields: Mapping[str, Any], where: str) -> Any:
    """An instance of a config class; unknown and missing keys are errors."""
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{where}: must be a mapping, got {_shown(fields)}")
    known = [field.name for field in dataclasses.fields(cls)]
    for key in fields:
        if key not in known:
            raise unknown_key(key, known, where)
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.name not in fields
    ]
    if missing:
        raise ConfigError(
            f"{where}: {', '.join(missing)} not given", "set it in the file or as an option"
        )
    return cls(**fields)


# Names of our fields in other programs: nanoGPT, transformers, litgpt.
OTHER_NAMES = {
    "batch_size": "batch",
    "beta1": "adam_beta1",
    "beta2": "adam_beta2",
    "checkpoint_every": "save_every save_interval save_steps",
    "clip": "grad_clip gradient_clipping max_grad_norm",
    "context_length": "block_size context max_position_embeddings max_seq_len max_seq_length n_ctx "
    "n_positions seq_len seq_length sequence_length",
    "d_ff": "ffn_dim intermediate_size n_inner",
    "d_model": "dim embed_dim embedding_dim hidden_size n_embd",
    "dtype": "precision torch_dtype",
    "eps": "adam_epsilon epsilon",
    "eval_every": "eval_interval eval_steps",
    "lr": "learning_rate max_lr",
    "micro_batch_size": "device_batch_size gradient_accumulation_steps micro_batch "
    "per_device_train_batch_size",
    "norm_eps": "layer_norm_eps rms_norm_eps",
    "num_heads": "heads n_head n_heads num_attention_heads",
    "num_kv_heads": "n_kv_head n_kv_heads num_key_value_heads",
    "num_layers": "depth layers n_layer n_layers num_hidden_layers",
    "rope_theta": "rope_base",
    "schedule": "lr_schedule lr_scheduler lr_scheduler_type",
    "steps": "iterations iters max_iters max_steps num_steps train_steps",
    "tie_embeddings": "tie_word_embeddings weight_tying",
    "vocab_size": "n_vocab",
    "warmup": "num_warmup_steps warmup_iters warmup_steps",
    "weight_decay": "wd",
}
SYNONYMS = {name: field for field, names in OTHER_NAMES.items() for name in names.split()}
# Options of other programs without a counterpart here, and what to do instead.
IN_STEPS = "runs are measured in steps of batch_size × context_length tokens: set steps"
ABSENT = {
    "dropout": "the models have no dropout; weight_decay regularizes them",
    "epochs": IN_STEPS,
    "num_epochs": IN_STEPS,
    "num_train_epochs": IN_STEPS,
}


def unknown_key(key: str, known: Iterable[str], where: str) -> ConfigError:
    """The error for an unknown key, with the known one that was most likely meant.

    >>> unknown_key("learning-rate", ["lr", "steps"], "options").hint
    'did you mean lr?'
    """
    names, key = sorted(known), str(key)[:80]
    plain = key.lower().replace("-", "_")
    near = difflib.get_close_matches(plain, names, n=1)
    if SYNONYMS.get(plain) in names:
        near = [SYNONYMS[plain]]
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(names)}"
    # Only for fields of configs, not for presets or tables.
    if "lr" in names:
        hint = ABSENT.get(plain, hint)
    return ConfigError(f"{where}: unknown key {key!r}", hint)


def check_types(config: Any) -> None:
    """Raises a `ConfigError` if a field is not of its declared type, or not a finite number.

    Numbers of other libraries are converted to Python's, whole numbers to float where one is
    declared; nothing else is converted.
    """
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        given = value = getattr(config, field.name)
        hint = hints[field.name]
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            value = int(value)
            if _accepts(float, hint) and abs(value) < 2**53:
                value = float(value)
        elif isinstance(value, numbers.Real) and not isinstance(value, bool):
            value = float(value)
        if value is not given:
            object.__setattr__(config, field.name, value)
        if not _fits(value, hint):
            raise ConfigError(f"{field.name} must be {_described(hint)}, got {_shown(value)}")


def check_ranges(config: Any, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Raises a `ConfigError` if a field is outside its range; None is in every range."""
    for name, (least, most) in ranges.items():
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise ConfigError(f"{name} must be ≥ {least}, got {_shown(value)}")
        if value is not None and value > most:
            raise ConfigError(f"{name} must be ≤ {most}, got {_shown(value)}")


def check_seed(seed: object) -> int:
    """Returns the seed; raises if it is not a whole number from 0 to 2⁶⁴ − 1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed must be from 0 to 2**64 - 1, got {_shown(seed)}")
    return seed


def _shown(value: object) -> str:
    """A value as text for a message, shortened."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    try:
        text = json.dumps(value, default=repr)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "…"


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_args(hint):  # a union
        return any(_fits(value, part) for part in get_args(hint))
    if isinstance(value, bool):
        return hint is bool
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, hint)


def _accepts(kind: type, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return False
    return hint is kind or any(part is kind for part in get_args(hint))


def _described(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    if get_args(hint):
        return " or ".join(_described(part) for part in get_args(hint) if part is not type(None))
    names = {
        int: "a whole number",
        float: "a finite number",
        bool: "true or false",
        str: "a string",
    }
    return names.get(hint, getattr(hint, "__name__", str(hint)))
