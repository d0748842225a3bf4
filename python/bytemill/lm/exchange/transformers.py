"""The names, weights and config of a model in transformers, and back.

Two of its architectures match ours exactly: Llama, and, with a norm on queries and keys, Qwen3.
Both rotate the two halves of a head where ours rotates adjacent pairs, so the rows of queries and
keys are permuted; no number changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn, TypeAlias

from torch import Tensor

from ...errors import CheckpointError, ConfigError
from ..config import ModelConfig

__all__ = [
    "Architecture",
    "architecture",
    "config_fields",
    "read_fields",
    "tensor_names",
]

Architecture: TypeAlias = Literal["llama", "qwen3"]
CLASSES: dict[Architecture, str] = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}

TOP = {
    "embedding.weight": "model.embed_tokens.weight",
    "final_norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
IN_BLOCK = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w3": "mlp.up_proj",
    "feed_forward.w2": "mlp.down_proj",
}
ROTATED = ("query", "key", "query_norm", "key_norm")


def architecture(config: ModelConfig) -> Architecture:
    """The architecture that matches this model exactly; a ConfigError if there is none."""
    reasons = {
        "norm": ("pre", "Llama and Qwen3 have a norm before each sublayer"),
        "positions": ("rope", "Llama and Qwen3 have rotary positions"),
        "feed_forward": ("swiglu", "the feed-forward layers of Llama and Qwen3 have a gate"),
    }
    for name, (expected, reason) in reasons.items():
        if getattr(config, name) != expected:
            raise ConfigError(
                f"a model with {name}={getattr(config, name)!r} cannot be exported: {reason}",
                f"to export, train with {name}={expected!r}",
            )
    return "qwen3" if config.qk_norm else "llama"


# --- weights ------------------------------------------------------------------------------------


def block_names(names: Mapping[str, str], config: ModelConfig, block: str) -> dict[str, str]:
    """Our names of the weights in blocks → theirs, where blocks are called `block`."""
    norms = ("attention.query_norm", "attention.key_norm")
    return {
        f"blocks.{number}.{ours}.weight": f"{block}.{number}.{theirs}.weight"
        for number in range(config.num_layers)
        for ours, theirs in names.items()
        if config.qk_norm or ours not in norms
    }


def tensor_names(config: ModelConfig) -> dict[str, str]:
    """Our names of all weights → those of transformers."""
    top = {o: t for o, t in TOP.items() if o != "head.weight" or not config.tie_embeddings}
    return top | block_names(IN_BLOCK, config, "model.layers")


def is_rotated(name: str) -> bool:
    """Whether the rows of this weight are rotated by positions."""
    return name.split(".")[-2] in ROTATED


def to_halves(config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Permutes the rows of each head: adjacent pairs → halves."""
    return lambda w: _swapped(w, config.d_head // 2, 2)


def to_pairs(config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Permutes the rows of each head: halves → adjacent pairs."""
    return lambda w: _swapped(w, 2, config.d_head // 2)


def _swapped(weight: Tensor, outer: int, inner: int) -> Tensor:
    rest = weight.shape[1:]
    return weight.reshape(-1, outer, inner, *rest).transpose(1, 2).reshape(weight.shape)


# --- config.json --------------------------------------------------------------------------------


def config_fields(config: ModelConfig, end: int | None, dtype: str) -> dict[str, Any]:
    """The config.json of a model.

    Args:
        config: the model.
        end: the end-of-text id, which also starts a text.
        dtype: type of the weights, by torch's name.
    """
    kind = architecture(config)
    fields = {
        "architectures": [CLASSES[kind]],
        "model_type": kind,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "hidden_size": config.d_model,
        "intermediate_size": config.width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.n_kv,
        "head_dim": config.d_head,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": False,
        # If omitted, Llama's own ids would be used.
        "bos_token_id": end,
        "eos_token_id": end,
        "torch_dtype": dtype,
    }
    return fields if kind == "qwen3" else fields | {"mlp_bias": False}


def read_fields(fields: Mapping[str, Any], name: str) -> ModelConfig:
    """The model of a config.json; raises a CheckpointError if bytemill cannot represent it.

    Args:
        fields: the contents of the file.
        name: the file, for errors.
    """
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in CLASSES:
        shown = repr(kind)[:60]
        _refuse(name, f"model_type {shown} is not supported", "supported: llama and qwen3")
    checked = _Fields(fields, name)
    d_model, heads = checked.whole("hidden_size"), checked.whole("num_attention_heads")
    _check_fields(checked, d_model, heads)
    try:
        return ModelConfig(
            vocab_size=checked.whole("vocab_size"),
            context_length=checked.whole("max_position_embeddings"),
            d_model=d_model,
            num_layers=checked.whole("num_hidden_layers"),
            num_heads=heads,
            d_ff=checked.whole("intermediate_size"),
            rope_theta=_rope_theta(checked),
            num_kv_heads=checked.whole("num_key_value_heads", heads),
            # With transformers' defaults for fields that are missing.
            tie_embeddings=checked.flag("tie_word_embeddings"),
            qk_norm=kind == "qwen3",
            norm_eps=checked.number("rms_norm_eps", 1e-6),
        )
    except ConfigError as error:
        _refuse(name, error.message, error.hint)


class _Fields:
    """Fields of a JSON object, checked for their types; null counts as missing."""

    def __init__(self, fields: Mapping[str, Any], name: str) -> None:
        self.fields, self.name = fields, name

    def get(self, key: str, kinds: tuple[type, ...], default: Any = None) -> Any:
        value = self.fields.get(key)
        if value is None:
            if default is None:
                raise self.wrong(f"{key!r} is missing")
            return default
        if type(value) not in kinds:
            raise self.wrong(f"{key} is {repr(value)[:60]}")
        return value

    def wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.name}: not a model config: {what}")

    def whole(self, key: str, default: int | None = None) -> int:
        return int(self.get(key, (int,), default))

    def number(self, key: str, default: float) -> float:
        return float(self.get(key, (int, float), default))

    def flag(self, key: str) -> bool:
        return bool(self.get(key, (bool,), False))

    def text(self, key: str, default: str) -> str:
        return str(self.get(key, (str,), default))

    def inner(self, key: str) -> _Fields:
        """A nested object; empty if it is missing."""
        return _Fields(self.get(key, (dict,), {}), self.name)


def _check_fields(fields: _Fields, d_model: int, heads: int) -> None:
    name = fields.name
    for bias in ("attention_bias", "mlp_bias"):
        if fields.flag(bias):
            _refuse(name, f"{bias} is set, but bytemill's layers have no biases")
    activation = fields.text("hidden_act", "silu")
    if activation != "silu":
        _refuse(name, f"hidden_act must be 'silu', is {activation!r}")
    is_given = fields.fields.get("head_dim") is not None
    head = fields.whole("head_dim", 128)  # Qwen3's default; Llama's follows from the others
    if (is_given or fields.text("model_type", "") == "qwen3") and head * heads != d_model:
        _refuse(
            name,
            f"head_dim={head} times {heads} heads must equal hidden_size={d_model}",
        )
    layers = fields.get("layer_types", (list,), [])
    if fields.flag("use_sliding_window") or any(kind != "full_attention" for kind in layers):
        _refuse(name, "sliding-window attention is not supported")
    if fields.fields.get("quantization_config"):
        _refuse(name, "quantized weights are not supported", "import the unquantized model")


def _rope_theta(fields: _Fields) -> float:
    # transformers 5 has `rope_parameters`; earlier versions `rope_theta` and `rope_scaling`.
    rope, scaling = fields.inner("rope_parameters"), fields.inner("rope_scaling")
    for place in (scaling, rope):
        kind = place.text("rope_type", place.text("type", "default"))
        if kind != "default":
            _refuse(fields.name, f"scaled rotary frequencies ({kind[:40]}) are not supported")
    share = rope.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    if share != 1.0:
        _refuse(fields.name, f"rotary positions rotate only {share} of each head, not all of it")
    return rope.number("rope_theta", fields.number("rope_theta", 10000.0))


def _refuse(name: str, reason: str, hint: str | None = None) -> NoReturn:
    raise CheckpointError(
        f"{name}: the model cannot be imported: {reason}",
        hint or "only models that bytemill can compute exactly are imported",
    )


# Tensors that transformers saves but recomputes.
IGNORED = re.compile(r".*\.rotary_emb\.inv_freq")
