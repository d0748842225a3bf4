"""What a model is, as plain data: no torch is needed to read, check or write it."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..errors import ConfigError

__all__ = ["ModelConfig", "check_seed", "default_d_ff", "from_mapping", "unknown_key"]

Norm = Literal["pre", "post", "none"]
Positions = Literal["rope", "none"]
FeedForward = Literal["swiglu", "silu"]

# Beyond what anyone trains, and small enough that no sum or product of sizes overflows anywhere.
MAX_SIZE = 2**24
MAX_LAYERS = 10**5
MAX_VOCAB_SIZE = 2**31
MAX_PARAMETERS = 10**13
# Numbers in the tables of rotary angles that any model may have; a large one may have more.
MIN_ROTARY_TABLES = 2**25
MAX_SEED = 2**64 - 1


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


# --- any config -------------------------------------------------------------------------------


def from_mapping(cls: type[Any], fields: Mapping[str, Any], where: str) -> Any:
    """An instance of a config class; unknown and missing keys are refused, with a suggestion."""
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{where}: must be keys and values, got {_shown(fields)}")
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
        raise ConfigError(f"{where}: {', '.join(missing)} not given", "say so in file or options")
    return cls(**fields)


# What other programs (nanoGPT, transformers, litgpt) call the fields of our configs.
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
# Options of other programs that have no counterpart here: what to do instead.
IN_STEPS = "a run is counted in steps of batch_size × context_length tokens each: set steps"
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
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
    # Not among presets or tables, which have names of their own.
    if "lr" in names:
        hint = ABSENT.get(plain, hint)
    return ConfigError(f"{where}: unknown key {key!r}", hint)


def check_types(config: Any) -> None:
    """Raises a `ConfigError` where a field is not of its declared type, or not a finite number.

    A whole number is taken for a float; nothing else is converted.
    """
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        hint = hints[field.name]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and _accepts(float, hint) and abs(value) < 2**53:
            object.__setattr__(config, field.name, float(value))
            continue
        if not _fits(value, hint):
            raise ConfigError(f"{field.name} must be {_described(hint)}, got {_shown(value)}")


def check_ranges(config: Any, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Raises a `ConfigError` where a field is below or above its range; None is in every range."""
    for name, (least, most) in ranges.items():
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise ConfigError(f"{name} must be ≥ {least}, got {_shown(value)}")
        if value is not None and value > most:
            raise ConfigError(f"{name} must be ≤ {most}, got {_shown(value)}")


def check_seed(seed: object) -> int:
    """The seed, if it is one: a whole number of 64 bits, from 0 on."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed must be from 0 to 2**64 - 1, got {_shown(seed)}")
    return seed


def _shown(value: object) -> str:
    """A value for a message: short, whatever it is."""
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
    names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _divisors(n: int) -> list[int]:
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return sorted({*small, *(n // k for k in small)})


def _listed(numbers: list[int], near: int) -> str:
    closest = sorted(sorted(numbers, key=lambda n: abs(n - near))[:4])
    return ", ".join(map(str, closest))
