"""GGUF, the file format of llama.cpp: a model and its tokenizer.

    magic, version, counts │ key-value pairs │ names, shapes, offsets of tensors │ tensors

The architecture `llama` rotates adjacent pairs, as bytemill does, so the weights are unchanged.
`qwen3`, which has a norm on queries and keys, rotates halves.
"""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import torch

from ...errors import ConfigError
from ...tokenizer import Tokenizer
from ..config import ModelConfig
from ..run.tensors import Deferred, converted, raw_bytes
from .transformers import architecture, block_names, is_rotated, to_halves

__all__ = ["metadata", "model_tensors", "pre_tokenizer", "write_gguf"]

TOP = {
    "embedding.weight": "token_embd.weight",
    "final_norm.weight": "output_norm.weight",
    "head.weight": "output.weight",
}
IN_BLOCK = {
    "attention_norm": "attn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.output": "attn_output",
    "attention.query_norm": "attn_q_norm",
    "attention.key_norm": "attn_k_norm",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
}
# Type numbers of tensors, and of files that mostly hold such tensors.
TENSOR_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}
FILE_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 32}
ALIGNMENT = 32

# Types of tokens.
NORMAL, CONTROL, UNUSED = 1, 3, 5

# llama.cpp's names for patterns, stage by stage, that split as ours do. There is none for cl100k:
# it keeps white space at the end of a text together, where llama-bpe splits after line breaks.
PRE_TOKENIZERS = {
    ("gpt2",): "gpt-2",
    ("llama3",): "llama-bpe",
    ("qwen2",): "qwen2",
    ("o200k",): "gpt-4o",
    (r"\p{N}", "gpt2"): "smollm",
}


# --- the tokenizer ------------------------------------------------------------------------------


def pre_tokenizer(tokenizer: Tokenizer) -> str:
    """llama.cpp's name for the tokenizer's split pattern; a ConfigError if it has none."""
    pattern = tokenizer.pattern
    stages = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    name = PRE_TOKENIZERS.get(stages)
    if name is None:
        shown = " then ".join(stages)
        raise ConfigError(
            f"llama.cpp has no name for the split pattern {shown[:60]}",
            f"supported: {', '.join(' then '.join(known) for known in PRE_TOKENIZERS)}; "
            "pre_tokenizer= sets llama.cpp's name for another pattern, unchecked",
        )
    if name == "gpt-4o":
        warnings.warn(
            "llama.cpp's o200k pattern differs slightly: words with combining marks, or with "
            "capitals beyond ASCII, may get different ids there",
            stacklevel=2,
        )
    # The name also decides whether a piece that is a token becomes it without merging. That
    # matters only for tokens that merges do not produce.
    takes_whole = name == "llama-bpe"
    if tokenizer.ignore_merges == takes_whole or not _needs_whole(tokenizer):
        return name
    if takes_whole:
        return "smaug-bpe"  # the same pattern, always merging
    raise ConfigError(
        f"llama.cpp uses merges alone with the pattern {name}, but this tokenizer has tokens "
        "that merges do not produce (ignore_merges)",
        "such a tokenizer can be exported only with the pattern llama3",
    )


def _needs_whole(tokenizer: Tokenizer) -> bool:
    specials = set(tokenizer.special_tokens.values())
    plain = {id: token for id, token in tokenizer.vocab.items() if id not in specials}
    return bool(Tokenizer(plain, tokenizer.merges).unreachable())


def _tokens(tokenizer: Tokenizer, vocab_size: int) -> tuple[list[str], list[int], list[str]]:
    """Texts and types by id, and the merges."""
    said = json.loads(tokenizer.write("huggingface")[0])
    texts, kinds = [""] * vocab_size, [UNUSED] * vocab_size
    for text, id in said["model"]["vocab"].items():
        texts[id], kinds[id] = text, NORMAL
    for text, id in tokenizer.special_tokens.items():
        texts[id], kinds[id] = text, CONTROL
    for id, kind in enumerate(kinds):
        if kind == UNUSED:
            texts[id] = f"[PAD{id}]"
    if len(set(texts)) < vocab_size:
        raise ConfigError(
            "a token has the text [PAD…], which is reserved for ids that the tokenizer does not "
            "use",
            "rename the special token: llama.cpp identifies tokens by their text",
        )
    merges = [m if isinstance(m, str) else " ".join(m) for m in said["model"]["merges"]]
    return texts, kinds, merges


# --- metadata and tensors -----------------------------------------------------------------------


def metadata(
    config: ModelConfig,
    tokenizer: Tokenizer,
    *,
    name: str,
    pre: str,
    end: int | None,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """The key-value pairs of a model.

    Args:
        config: the model.
        tokenizer: its tokenizer.
        name: a name of the model, for display.
        pre: llama.cpp's name for the split pattern.
        end: the end-of-text id, which also starts a text.
        dtype: type of the matrices.
    """
    kind = architecture(config)
    texts, kinds, merges = _tokens(tokenizer, config.vocab_size)
    if end is None:
        # Without one, llama.cpp would end texts at id 11. No UTF-8 text contains the byte FF.
        end = tokenizer.token_id(b"\xff")
    return {
        "general.architecture": kind,
        "general.type": "model",
        "general.name": name,
        "general.file_type": FILE_TYPES[dtype],
        "general.alignment": ALIGNMENT,
        f"{kind}.vocab_size": config.vocab_size,
        f"{kind}.context_length": config.context_length,
        f"{kind}.embedding_length": config.d_model,
        f"{kind}.block_count": config.num_layers,
        f"{kind}.feed_forward_length": config.width,
        f"{kind}.attention.head_count": config.num_heads,
        f"{kind}.attention.head_count_kv": config.n_kv,
        f"{kind}.attention.key_length": config.d_head,
        f"{kind}.attention.value_length": config.d_head,
        f"{kind}.attention.layer_norm_rms_epsilon": config.norm_eps,
        f"{kind}.rope.dimension_count": config.d_head,
        f"{kind}.rope.freq_base": config.rope_theta,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": end,
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
    }


def model_tensors(
    config: ModelConfig, weights: Mapping[str, Deferred], dtype: torch.dtype
) -> dict[str, Deferred]:
    """Our weights by llama.cpp's names; vectors stay float32, as it requires."""
    halves = to_halves(config)
    names = TOP | block_names(IN_BLOCK, config, "blk")
    turns = architecture(config) == "qwen3"
    return {
        names[name]: converted(
            tensor,
            dtype if len(tensor.shape) > 1 else torch.float32,
            halves if turns and is_rotated(name) else lambda w: w,
        )
        for name, tensor in weights.items()
    }


# --- the file -----------------------------------------------------------------------------------


def write_gguf(
    file: BinaryIO,
    pairs: Mapping[str, Any],
    tensors: Mapping[str, Deferred],
    tell: Callable[[int], None] = lambda n_bytes: None,
) -> None:
    """Writes a GGUF file, version 3, tensors one after another.

    Args:
        file: the output.
        pairs: the key-value pairs: bools, ints (as u32), floats (as f32), strings, and lists of
            strings or ints (as i32).
        tensors: by name.
        tell: called with the size of each tensor that is written.
    """
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(pairs))]
    head += [_string(key) + _value(value) for key, value in pairs.items()]
    place = 0
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]  # innermost dimension first
        head.append(_string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        head.append(struct.pack("<IQ", TENSOR_TYPES[tensor.dtype], place))
        place += _aligned(tensor.n_bytes)
    data = b"".join(head)
    file.write(data.ljust(_aligned(len(data)), b"\0"))
    for tensor in tensors.values():
        file.write(raw_bytes(tensor.load()))
        file.write(bytes(_aligned(tensor.n_bytes) - tensor.n_bytes))
        tell(tensor.n_bytes)


def _aligned(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if value and isinstance(value[0], int):
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
