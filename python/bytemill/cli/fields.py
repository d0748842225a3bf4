"""Options derived from the fields of `ModelConfig` and `TrainConfig`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from ..lm.config import ModelConfig, TrainConfig
from ..lm.presets import DEFAULT_PRESET, PRESETS
from .options import WholeNumber, all_of

__all__ = ["config_options", "listed_options", "model_options"]

Function = TypeVar("Function", bound=Callable[..., Any])
# Name, type, help, default.
Field = tuple[str, Any, str, Any]

MODEL_HELP = {
    "vocab_size": "Vocabulary size.  [default: the tokenizer's]",
    "context_length": "Context length in tokens.",
    "d_model": "Width of the residual stream.",
    "num_layers": "Transformer blocks.",
    "num_heads": "Query heads.",
    "d_ff": "Hidden width of the feed-forward layers.",
    "rope_theta": "Base of the rotary frequencies.",
    "num_kv_heads": "Key and value heads.  [default: --num-heads]",
    "norm": "RMSNorm before sublayers, after them, or none.",
    "positions": "Position embedding: rotary, or none.",
    "feed_forward": "SwiGLU, or SiLU without a gate.",
    "tie_embeddings": "Share one matrix between embedding and head.",
    "qk_norm": "Apply RMSNorm to queries and keys.",
    "norm_eps": "Epsilon of RMSNorm.",
}


def config_options(function: Function) -> Function:
    """Adds an option for each field of the configs; omitted options are None."""
    every = [_option(*field) for field in _model_fields() + _train_fields()]
    return all_of(*every)(function)


def model_options(**texts: str) -> Callable[[Function], Function]:
    """Adds an option for each field of the model's config; `texts` replace help texts."""

    return all_of(
        *(
            _option(name, hint, texts.get(name, text), default)
            for name, hint, text, default in _model_fields()
        )
    )


def listed_options(function: Function) -> Function:
    """The same as `config_options`, but each takes a text: a value, several, or a range."""
    return all_of(
        *(
            click.option(
                *_flags(name), name, metavar="LIST", help=_with_default(hint, text, default)
            )
            for name, hint, text, default in _model_fields() + _train_fields()
        )
    )(function)


def _model_fields() -> list[Field]:
    hints = get_type_hints(ModelConfig)
    return [(name, hints[name], text, None) for name, text in MODEL_HELP.items()]


def _train_fields() -> list[Field]:
    hints = get_type_hints(TrainConfig)
    # The preset's word comes before that of the class.
    preset = PRESETS[DEFAULT_PRESET]
    return [
        (field.name, hints[field.name], field.metadata["help"],
         preset.get(field.name, field.default))
        for field in dataclasses.fields(TrainConfig)
    ]  # fmt: skip


def _with_default(hint: Any, text: str, default: Any) -> str:
    if default in (None, "") or "[default" in text:
        return text
    shown = {True: "yes", False: "no"}.get(default, default) if hint is bool else default
    return f"{text}  [default: {shown}]"


def _flags(name: str) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return ["--context", flag] if name == "context_length" else [flag]


def _option(name: str, hint: Any, text: str, default: Any) -> Callable[[Function], Function]:
    flags = _flags(name)
    text = _with_default(hint, text, default)
    if hint is bool:
        return click.option(f"{flags[0]}/--no-{flags[0][2:]}", name, default=None, help=text)
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    if get_origin(hint) is Literal:
        return click.option(*flags, name, type=click.Choice(get_args(hint)), help=text)
    kind = kinds[0]
    metavar = {int: "N", float: "X", str: "NAME" if name == "device" else "TEXT"}[kind]
    taken = WholeNumber() if kind is int else kind
    return click.option(*flags, name, type=taken, metavar=metavar, help=text)
