"""The second half of the demo: a small model on the tokens of Python's library."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..progress import ProgressOption
from ..tokenizer import Tokenizer
from . import fast
from .config import ModelConfig
from .data import Windows, open_tokens
from .generate import generate_text
from .model import TransformerLM
from .run.directory import load
from .training import TrainResult, train

__all__ = ["ModelDemo", "run_model"]

# Small, so that a minute on two cores is enough to see it learn; Muon and a trapezoid learn most
# in a given time.
SHAPE: dict[str, Any] = {"context_length": 128, "d_model": 128, "num_layers": 4, "num_heads": 4}
TRAINING: dict[str, Any] = {
    "batch_size": 16,
    "optimizer": "muon",
    "lr": 6e-3,
    "schedule": "wsd",
    "seed": 1,
}
PROMPT = "def "


@dataclass(frozen=True)
class ModelDemo:
    """What `run_model` made.

    Attributes:
        result: of training.
        n_parameters: of the model.
        prompt: what the sample begins with.
        sample: how the model goes on.
    """

    result: TrainResult
    n_parameters: int
    prompt: str
    sample: str


def run_model(
    tokens: Path, tokenizer: Tokenizer, run: Path, *, seconds: float, progress: ProgressOption
) -> ModelDemo:
    """Trains for about so many seconds, and lets the model write."""
    steps = _steps_within(seconds, tokens, len(tokenizer))
    result = train(
        tokens,
        run,
        tokenizer=tokenizer,
        overwrite=run.exists(),
        steps=steps,
        eval_every=max(1, steps // 4),
        eval_windows=64,
        sample_prompt=PROMPT,
        sample_tokens=24,
        checkpoint_every=max(1, steps // 2),
        tensorboard=False,
        progress=progress,
        model="tiny",
        **SHAPE,
        **TRAINING,
    )
    model, _ = load(run)
    text = generate_text(
        model, tokenizer, PROMPT, 160, temperature=0.7, top_k=100, min_p=0.02, seed=1
    )[0]
    return ModelDemo(result, model.n_parameters, PROMPT, text)


def _steps_within(seconds: float, tokens: Path, vocab_size: int) -> int:
    """How many steps take about so long here, by trying three."""
    config = ModelConfig(vocab_size=vocab_size, **SHAPE)
    model = fast.attach(TransformerLM(config))
    windows = Windows(open_tokens(tokens), config.context_length)
    took = []
    for step in range(3):
        began = time.perf_counter()
        torch.autograd.backward(model.loss(*windows.batch(step, TRAINING["batch_size"])))
        took.append(time.perf_counter() - began)
    # The optimizer, evaluations and samples take about a quarter more.
    return max(2, min(3000, round(seconds / (1.25 * min(took)))))
