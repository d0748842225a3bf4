"""The history of a run: its metrics in columns. No torch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .metrics import METRICS, read_metrics

__all__ = ["EvaluatedStep", "History", "Sample", "read_history", "smoothed"]

Column = npt.NDArray[np.float64]

# The training loss is smoothed over about this share of the run.
SMOOTHING_SHARE = 0.02
PREDICTED = "predicted_"


class EvaluatedStep(NamedTuple):
    """An evaluation on held-out tokens.

    Attributes:
        step: updates before it.
        seconds: duration of these updates.
        loss: mean cross-entropy per token, in nats.
        perplexity: exp of the loss; None if it is too large for a number.
        bits_per_byte: bits per byte of text; None without a tokenizer.
    """

    step: int
    seconds: float
    loss: float
    perplexity: float | None
    bits_per_byte: float | None


class Sample(NamedTuple):
    """Text that the model generated after a step."""

    step: int
    text: str


@dataclass(frozen=True)
class History:
    """The metrics of a run.

    Attributes:
        steps: number of each step.
        seconds: seconds of training until then, without evaluations, samples and checkpoints.
        columns: name → value at each step; NaN where it is missing.
        evaluations: in order.
        samples: in order.
        predicted: predictions of the last session, by name.
    """

    steps: npt.NDArray[np.int64]
    seconds: Column
    columns: dict[str, Column]
    evaluations: list[EvaluatedStep]
    samples: list[Sample]
    predicted: dict[str, float]

    def column(self, name: str) -> Column:
        """The values at each step; all NaN if the run does not have them."""
        return self.columns.get(name, np.full(len(self.steps), np.nan))


def read_history(run: Path) -> History:
    """The history of a run; empty if no metrics were written yet."""
    steps: list[int] = []
    seconds = 0.0
    elapsed: list[float] = []
    columns: defaultdict[str, list[float]] = defaultdict(list)
    evaluations: list[EvaluatedStep] = []
    samples: list[Sample] = []
    predicted: dict[str, float] = {}
    for row in read_metrics(run) if (run / METRICS).exists() else ():
        step = row.pop("step")
        if "loss" in row:
            seconds += row.get("seconds", 0.0)
            for name, value in row.items():
                column = columns[name]
                column += [np.nan] * (len(steps) - len(column))
                column.append(value)
            steps.append(step)
            elapsed.append(seconds)
        if "val_loss" in row:
            evaluations.append(_evaluated(step, seconds, row))
        if "sample" in row:
            samples.append(Sample(step, row["sample"]))
        predicted |= {
            name.removeprefix(PREDICTED): value
            for name, value in row.items()
            if name.startswith(PREDICTED)
        }
    for column in columns.values():
        column += [np.nan] * (len(steps) - len(column))
    columns.pop("sample", None)
    return History(
        steps=np.array(steps, np.int64),
        seconds=np.array(elapsed, np.float64),
        columns={name: np.array(column, np.float64) for name, column in columns.items()},
        evaluations=evaluations,
        samples=samples,
        predicted=predicted,
    )


def _evaluated(step: int, seconds: float, row: dict[str, Any]) -> EvaluatedStep:
    return EvaluatedStep(
        step, seconds, row["val_loss"], row.get("val_perplexity"), row.get("val_bits_per_byte")
    )


def smoothed(losses: Column) -> list[float]:
    """The exponential moving average of the loss of each step.

    >>> [round(mean, 2) for mean in smoothed(np.array([4.0, 2.0] * 50))[-2:]]
    [3.33, 2.67]
    """
    keep = 1 - 1 / max(1.0, SMOOTHING_SHARE * len(losses))
    means: list[float] = []
    for loss in losses.tolist():
        means.append(loss if not means else keep * means[-1] + (1 - keep) * loss)
    return means
