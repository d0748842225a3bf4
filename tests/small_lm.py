"""Small language models and tokens, for tests that need some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bytemill import Tokenizer
from bytemill.lm import ModelConfig, TransformerLM, fast, naive
from bytemill.lm.run.checkpoint import weights_of, write_step
from bytemill.lm.run.config_file import write_config

# A second thread only slows such small models down, especially on a busy machine.
torch.set_num_threads(1)


# Every kind of model, by its differences from the default.
ABLATIONS: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"norm": "none"},
    {"positions": "none"},
    {"feed_forward": "silu"},
    {"tie_embeddings": True},
    {"num_kv_heads": 2},
    {"num_kv_heads": 1},
    {"qk_norm": True},
    {"positions": "none", "num_kv_heads": 2, "tie_embeddings": True},
]
names = [",".join(f"{k}={v}" for k, v in case.items()) or "plain" for case in ABLATIONS]
ablations = pytest.mark.parametrize("changes", ABLATIONS, ids=names)


def config(**changes: Any) -> ModelConfig:
    """A model of about ten thousand parameters."""
    shape = {
        "vocab_size": 97,
        "context_length": 32,
        "d_model": 48,
        "num_layers": 2,
        "num_heads": 4,
    }
    return ModelConfig(**shape | changes)


def model(seed: int = 0, dtype: Any = None, **changes: Any) -> TransformerLM:
    """The same model each time."""
    torch.manual_seed(seed)
    made = TransformerLM(config(**changes), dtype=dtype)
    # Norms start at one, where a forgotten weight would not be noticed.
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
    return made


def with_kernels(model: TransformerLM, kernels: str) -> TransformerLM:
    """The model with the kernels `plain`, `torch` or `fused`."""
    if kernels == "plain":
        return naive.attach(model)
    return fast.attach(model) if kernels == "fused" else fast.detach(model)


def gradients(model: TransformerLM, loss: Any) -> dict[str, Any]:
    """The gradient of each parameter."""
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def run(place: Path, tokenizer: Tokenizer | None = None, **changes: Any) -> TransformerLM:
    """Writes a run with this model at step 7, as if trained; returns the model."""
    if tokenizer is not None:
        changes = {"vocab_size": tokenizer.max_id + 1} | changes
    made = model(**changes).eval()
    fields = {"model": made.config.to_json()}
    place.mkdir()
    write_config(place, fields)
    if tokenizer is not None:
        tokenizer.save(place / "tokenizer.json")
    fingerprint = None if tokenizer is None else tokenizer.fingerprint
    write_step(place, 7, weights_of(made), None, fields | {"tokenizer": fingerprint})
    return made


def ids(*shape: int, seed: int = 0, below: int = 97) -> Any:
    """Random ids."""
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def tokens(n: int = 5000, seed: int = 0, below: int = 97) -> np.ndarray[Any, Any]:
    """Ids with something to learn: mostly, each follows from the one before."""
    draws = np.random.default_rng(seed)
    found = np.empty(n, np.uint16)
    found[0] = 1
    noise = draws.integers(0, below, n)
    for i in range(1, n):
        found[i] = noise[i] if draws.random() < 0.1 else (int(found[i - 1]) * 5 + 3) % below
    return found
