"""A learning-rate range test: the rate rises with each step until the loss rises.

One short run finds the order of magnitude, for which a sweep would need many.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError, TrainingError
from ...progress import Progress, ProgressOption
from .. import presets
from ..config import ModelConfig, TrainConfig
from ..keywords import ConfigOptions, PresetName, TokenDtype, with_fields
from ..trainer import open_data, prepare

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ...tokenizer import Tokenizer

__all__ = ["RateTest", "find_lr"]

# Weight of the old mean in the running mean of the loss.
SMOOTHING = 0.8
# The test ends when the loss is this many nats above its minimum.
MAX_RISE = 1.0
# Safety factor: at the rate with the lowest loss, the loss is about to rise.
BACK_OFF = 10.0


@dataclass(frozen=True)
class RateTest:
    """The result of a learning-rate range test.

    Attributes:
        rates: the learning rate of each step.
        losses: the loss of each step.
        smoothed: a running mean of the losses.
        steepest: the rate at which the loss fell fastest.
        lowest: the rate at which the loss was lowest.
        suggestion: the rate to start a search with.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    steepest: float
    lowest: float
    suggestion: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, rates: list[float], losses: list[float], smoothed: list[float]) -> RateTest:
        """The suggestion that follows from the losses."""
        at = min(range(len(smoothed)), key=smoothed.__getitem__)
        # The rates are evenly spaced on a logarithmic scale, so differences of losses are slopes.
        slopes = [smoothed[i + 2] - smoothed[i - 2] for i in range(2, max(3, at - 1))]
        steepest = 2 + min(range(len(slopes)), key=slopes.__getitem__)
        suggestion = float(f"{min(rates[at] / BACK_OFF, rates[steepest]):.2g}")
        return cls(rates, losses, smoothed, rates[steepest], rates[at], suggestion)


@with_fields(ConfigOptions)
def find_lr(
    tokens: str | os.PathLike[str],
    *,
    low: float = 1e-6,
    high: float = 1.0,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    val: str | os.PathLike[str] | None = None,
    token_dtype: TokenDtype = "uint16",
    model: ModelConfig | PresetName | None = None,
    train: TrainConfig | None = None,
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    **options: Unpack[ConfigOptions],
) -> RateTest:
    """Trains while the rate rises from `low` to `high`, and suggests a rate.

    Args:
        tokens: as for [`train`][bytemill.lm.train]; so are the arguments not listed here.
        low: the rate of the first step.
        high: the rate of the last step, unless the loss rises before.
        options: fields of `ModelConfig` and `TrainConfig`; `steps` is 100 if not given here.
    """
    steps = options.get("steps", 100)
    if not 0 < low < high:
        raise ConfigError(f"the range of rates must have 0 < low < high, got {low}..{high}")
    if steps < 10:
        raise ConfigError(f"steps must be ≥ 10, got {steps}")
    preset = model if isinstance(model, str) else None
    given = presets.given(model, train) | options | {"steps": steps, "compile": "off"}
    keys = presets.merged(preset, presets.config_keys(config), given)
    sources, model_config, train_config = open_data(
        tokens, keys, tokenizer=tokenizer, val=val, token_dtype=token_dtype
    )
    trainer = prepare(model_config, train_config, force=force).trainer(sources.train)
    rates: list[float] = []
    losses: list[float] = []
    smoothed: list[float] = []
    with Progress(progress) as report:
        for step in range(steps):
            rate = low * (high / low) ** (step / (steps - 1))
            loss = trainer.forward_backward(step)
            if not math.isfinite(loss):
                break
            rates.append(rate)
            losses.append(loss)
            smoothed.append(
                loss if step == 0 else SMOOTHING * smoothed[-1] + (1 - SMOOTHING) * loss
            )
            report("sweep", step + 1, steps)
            if smoothed[-1] > min(smoothed) + MAX_RISE:
                break
            if not math.isfinite(trainer.update(rate)):
                break
    if len(rates) < 5:
        raise TrainingError(f"the loss rose immediately, at a rate of {low:g}", "start lower")
    return RateTest.of(rates, losses, smoothed)
