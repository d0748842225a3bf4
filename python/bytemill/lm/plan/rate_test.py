"""A learning-rate range test: the rate rises with every step, until the loss does too.

One short run tells the order of magnitude that a sweep would be long in finding.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import ConfigError, TrainingError
from ...progress import ProgressOption, reporter
from .. import presets
from ..config import ModelConfig, TrainConfig
from ..data import open_sources
from ..trainer import prepare

__all__ = ["RateTest", "find_lr"]

# The loss of single steps jumps; so much of the mean stays with each.
KEPT = 0.8
# The test ends when the loss is this many nats above the lowest.
RISEN = 1.0
# Safety factor: at the rate with the lowest loss, the loss is about to rise.
BACK_OFF = 10.0


@dataclass(frozen=True)
class RateTest:
    """What a test found.

    Attributes:
        rates: the learning rate of each step.
        losses: its loss.
        smoothed: a running mean of those.
        steepest: the rate at which the loss fell fastest.
        lowest: the rate at which it was lowest.
        suggestion: the rate to begin a search with.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    steepest: float
    lowest: float
    suggestion: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find_lr(
    tokens: str | os.PathLike[str],
    *,
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 100,
    tokenizer: str | os.PathLike[str] | None = None,
    val: str | os.PathLike[str] | None = None,
    token_dtype: str = "uint16",
    model: ModelConfig | str | None = None,
    train: TrainConfig | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **options: Any,
) -> RateTest:
    """Trains with rates that rise from `low` to `high`, and proposes one.

    Args:
        tokens: as for `train`; so are the other arguments.
        low: the first rate.
        high: the last, unless the loss has risen before.
        steps: how many.
        force: train even if that is predicted not to fit into memory.
        options: fields of `ModelConfig` and `TrainConfig`.
    """
    if not 0 < low < high:
        raise ConfigError(f"the range of rates must have 0 < low < high, got {low}..{high}")
    if steps < 10:
        raise ConfigError(f"steps must be ≥ 10, got {steps}")
    file = presets.read_config(config)
    preset = model if isinstance(model, str) else None
    keys = presets.merged(preset, file, presets.given(model, train) | options)
    sources = open_sources(
        tokens,
        tokenizer=tokenizer,
        val=val,
        val_fraction=presets.train_config(keys).val_fraction,
        vocab_size=keys.get("vocab_size"),
        token_dtype=token_dtype,
    )
    configs = presets.resolve(keys | {"steps": steps, "compile": "off"}, sources.vocab_size)
    trainer = prepare(*configs, force=force).trainer(sources.train)
    rates: list[float] = []
    losses: list[float] = []
    smoothed: list[float] = []
    with reporter(progress) as report:
        for step in range(steps):
            rate = low * (high / low) ** (step / (steps - 1))
            loss = trainer.forward_backward(step)
            if not math.isfinite(loss):
                break
            rates.append(rate)
            losses.append(loss)
            smoothed.append(loss if step == 0 else KEPT * smoothed[-1] + (1 - KEPT) * loss)
            report("sweep", step + 1, steps)
            if smoothed[-1] > min(smoothed) + RISEN:
                break
            if not math.isfinite(trainer.update(rate)):
                break
    if len(rates) < 5:
        raise TrainingError(f"the loss rose immediately, at a rate of {low:g}", "start lower")
    return _found(rates, losses, smoothed)


def _found(rates: list[float], losses: list[float], smoothed: list[float]) -> RateTest:
    # Steps are evenly spread over the logarithms, so differences of steps are slopes.
    at = min(range(len(smoothed)), key=smoothed.__getitem__)
    slopes = [smoothed[i + 2] - smoothed[i - 2] for i in range(2, max(3, at - 1))]
    steepest = 2 + min(range(len(slopes)), key=slopes.__getitem__)
    suggestion = float(f"{min(rates[at] / BACK_OFF, rates[steepest]):.2g}")
    return RateTest(rates, losses, smoothed, rates[steepest], rates[at], suggestion)
