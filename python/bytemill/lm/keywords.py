"""The keyword options of `train`, `sweep`, `find_lr` and generation, typed for editors and mypy.

Any field of `ModelConfig` and `TrainConfig` is a keyword of `train`, and any field of `Sampling` is
one of `generate_text`. The classes here repeat those fields, because a type checker cannot derive
them; a test compares both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, TypedDict, TypeVar, get_type_hints

from .config import (
    Compile,
    Dtype,
    FeedForward,
    KernelOption,
    Norm,
    OptimizerName,
    Parallel,
    Positions,
    Schedule,
)

__all__ = [
    "ConfigOptions",
    "IdOptions",
    "PresetName",
    "SamplingOptions",
    "Special",
    "StepName",
    "TextOptions",
    "TokenDtype",
    "with_fields",
]

PresetName = Literal[
    "laptop", "tiny", "tinystories", "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"
]
# Type of raw ids, which have no header.
TokenDtype = Literal["uint8", "uint16", "uint32", "uint64", "int16", "int32", "int64"]
# A checkpoint of a run; a number is that of its step.
StepName = Literal["best", "last"] | int
# Special tokens to recognize in a prompt, as in `Tokenizer.encode`.
Special = Literal["all", "none", "error"] | Collection[str]

Function = TypeVar("Function", bound=Callable[..., Any])


class ModelOptions(TypedDict, total=False):
    """The fields of `ModelConfig`."""

    vocab_size: int
    context_length: int
    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int | None
    rope_theta: float
    num_kv_heads: int | None
    norm: Norm
    positions: Positions
    feed_forward: FeedForward
    tie_embeddings: bool
    qk_norm: bool
    norm_eps: float


class ConfigOptions(ModelOptions, total=False):
    """The fields of `ModelConfig` and `TrainConfig`."""

    steps: int
    batch_size: int
    micro_batch_size: int | None
    optimizer: OptimizerName
    lr: float
    min_lr: float | None
    muon_lr: float
    embedding_lr: float | None
    schedule: Schedule
    warmup: int | None
    decay: int | None
    weight_decay: float
    beta1: float
    beta2: float
    eps: float
    clip: float
    seed: int
    val_fraction: float
    eval_every: int | None
    eval_windows: int
    sample_every: int | None
    sample_prompt: str
    sample_tokens: int
    checkpoint_every: int | None
    keep: int
    device: str
    dtype: Dtype
    kernels: KernelOption
    compile: Compile
    threads: int | None
    parallel: Parallel
    tensorboard: bool
    wandb: bool


class SamplingOptions(TypedDict, total=False):
    """The fields of `Sampling`."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    seed: int | None


class IdOptions(SamplingOptions, total=False):
    """The keywords of `generate_ids`."""

    n_samples: int
    stop_ids: Sequence[int]
    use_cache: bool


class TextOptions(SamplingOptions, total=False):
    """The keywords of `stream_text`."""

    n_samples: int
    stop: Sequence[str]
    special: Special
    use_cache: bool


def with_fields(options: type[Any]) -> Callable[[Function], Function]:
    """Lists the keys of a TypedDict in a function's signature in place of its `**options`.

    Notebooks complete keywords from the signature; `help` prints it.
    """

    def listed(function: Function) -> Function:
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        keys = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=hint)
            for name, hint in get_type_hints(options).items()
        ]
        function.__signature__ = signature.replace(parameters=[*named, *keys])  # type: ignore[attr-defined]
        return function

    return listed
