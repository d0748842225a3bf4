"""Small language models and tokens, for tests that need some."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bytemill.lm import ModelConfig, TransformerLM  # noqa: E402

# Models as small as these only lose by a second thread, and most of all on a busy machine.
torch.set_num_threads(1)


def config(**changes: Any) -> ModelConfig:
    """A model of some ten thousand parameters."""
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
