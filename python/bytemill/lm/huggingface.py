"""How a model of ours is written in transformers' terms, and back.

Two of its architectures are ours exactly: Llama, and, with a norm on queries and keys, Qwen3. Both
turn the two halves of a head by rotary angles where ours turns neighbours, so the rows of queries
and keys are put into another order; no number changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn, TypeAlias

from torch import Tensor

from ..errors import CheckpointError, ConfigError
from .config import ModelConfig

__all__ = [
    "Architecture",
    "architecture",
    "config_fields",
    "read_fields",
    "tensor_names",
    "tensor_shape",
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
TURNED = ("query", "key", "query_norm", "key_norm")


def architecture(config: ModelConfig) -> Architecture:
    """The architecture that is this model exactly; a ConfigError with the reason if none is."""
    reasons = {
        "norm": ("pre", "Llama and Qwen3 have a norm before each sublayer"),
        "positions": ("rope", "Llama and Qwen3 have rotary positions"),
        "feed_forward": ("swiglu", "the feed-forward layers of Llama and Qwen3 have a gate"),
    }
    for name, (expected, reason) in reasons.items():
        if getattr(config, name) != expected:
            raise ConfigError(
                f"a model with {name}={getattr(config, name)!r} cannot be exported: {reason}",
                f"others cannot compute it; train with {name}={expected!r} to export",
            )
    return "qwen3" if config.qk_norm else "llama"


# --- weights ------------------------------------------------------------------------------------


def block_names(names: Mapping[str, str], config: ModelConfig, block: str) -> dict[str, str]:
    """Our names of the weights in blocks → others', whose blocks are called `block`."""
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


def tensor_shape(config: ModelConfig, name: str) -> tuple[int, ...]:
    """The shape of the weight of that name of ours, the same in transformers."""
    # A model on the meta device would tell too, but the first one takes torch seconds of importing.
    width, keys = config.d_model, config.n_kv * config.d_head
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (config.vocab_size, width),
        "head": (config.vocab_size, width),
        "query": (width, width),
        "key": (keys, width),
        "value": (keys, width),
        "output": (width, width),
        "query_norm": (config.d_head,),
        "key_norm": (config.d_head,),
        "w1": (config.width, width),
        "w3": (config.width, width),
        "w2": (width, config.width),
    }
    return shapes.get(name.split(".")[-2], (width,))


def is_turned(name: str) -> bool:
    """Whether the weight of that name of ours is turned by positions."""
    return name.split(".")[-2] in TURNED


def to_halves(config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Rows for neighbours → rows for halves, in each head."""
    return lambda w: _swapped(w, config.d_head // 2, 2)


def to_neighbours(config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Rows for halves → rows for neighbours, in each head."""
    return lambda w: _swapped(w, 2, config.d_head // 2)


def _swapped(weight: Tensor, outer: int, inner: int) -> Tensor:
    rest = weight.shape[1:]
    return weight.reshape(-1, outer, inner, *rest).transpose(1, 2).reshape(weight.shape)


# --- config.json --------------------------------------------------------------------------------


def config_fields(config: ModelConfig, end: int | None, dtype: str) -> dict[str, Any]:
    """The config.json of a model.

    Args:
        config: what the model is.
        end: the id that ends a text, and behind which one begins.
        dtype: of the weights, in torch's words.
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
        # Left out, Llama's own ids would be taken.
        "bos_token_id": end,
        "eos_token_id": end,
        "torch_dtype": dtype,
    }
    return fields if kind == "qwen3" else fields | {"mlp_bias": False}


def read_fields(fields: Mapping[str, Any], name: str) -> ModelConfig:
    """The model of a config.json; a CheckpointError if ours cannot be it.

    Args:
        fields: what the file says.
        name: the file, for errors.
    """
    kind = fields.get("model_type")
    if kind not in CLASSES:
        _refuse(name, f"model_type {kind!r} is another architecture", "known are llama and qwen3")
    try:
        d_model, heads = int(fields["hidden_size"]), int(fields["num_attention_heads"])
        _check_fields(fields, d_model, heads, name)
        return ModelConfig(
            vocab_size=int(fields["vocab_size"]),
            context_length=int(fields["max_position_embeddings"]),
            d_model=d_model,
            num_layers=int(fields["num_hidden_layers"]),
            num_heads=heads,
            d_ff=int(fields["intermediate_size"]),
            rope_theta=_rope_theta(fields, name),
            num_kv_heads=int(fields.get("num_key_value_heads") or heads),
            # transformers' defaults, where the file leaves them out.
            tie_embeddings=bool(fields.get("tie_word_embeddings", False)),
            qk_norm=kind == "qwen3",
            norm_eps=float(fields.get("rms_norm_eps", 1e-6)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, ConfigError):
            _refuse(name, error.message, error.hint)
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(f"{name}: not the config of a model: {what}") from None


def _check_fields(fields: Mapping[str, Any], d_model: int, heads: int, name: str) -> None:
    for bias in ("attention_bias", "mlp_bias"):
        if fields.get(bias):
            _refuse(name, f"{bias} is set, and our layers have no biases")
    if fields.get("hidden_act", "silu") != "silu":
        _refuse(name, f"hidden_act is {fields['hidden_act']!r}, and ours is silu")
    head = fields.get("head_dim")
    if head is None and fields["model_type"] == "qwen3":
        head = 128
    if head is not None and head * heads != d_model:
        _refuse(
            name,
            f"head_dim={head} times {heads} heads is not hidden_size={d_model}, as ours must be",
        )
    windows = fields.get("use_sliding_window") or set(fields.get("layer_types") or ()) - {
        "full_attention"
    }
    if windows:
        _refuse(name, "its attention has a sliding window, and ours has none")
    if fields.get("quantization_config"):
        _refuse(name, "its weights are quantized", "import the model it was made from")


def _rope_theta(fields: Mapping[str, Any], name: str) -> float:
    # transformers 5 has it all in `rope_parameters`; before, `rope_theta` and `rope_scaling`.
    rope = dict(fields.get("rope_parameters") or {})
    scaling = rope | dict(fields.get("rope_scaling") or {})
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in (None, "default"):
        _refuse(name, f"its rotary frequencies are scaled ({kind}), and ours are not")
    share = rope.get("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0))
    if share not in (None, 1, 1.0):
        _refuse(name, f"rotary positions turn only {share} of each head, and ours turn all")
    return float(rope.get("rope_theta", fields.get("rope_theta", 10000.0)))


def _refuse(name: str, reason: str, hint: str | None = None) -> NoReturn:
    raise CheckpointError(
        f"{name}: the model cannot be imported: {reason}",
        hint or "imported are models that ours can compute exactly",
    )


# What transformers keeps beside the weights and makes again by itself.
IGNORED = re.compile(r".*\.rotary_emb\.inv_freq")
