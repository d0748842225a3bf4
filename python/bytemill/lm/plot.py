"""Loss curves of several runs as one picture."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, ConfigError, MissingPackageError
from .metrics import METRICS, read_metrics

__all__ = ["plot_runs"]

# Of the losses of single steps, which jump, a mean over about this share of the run is drawn.
SMOOTHED = 0.02


def plot_runs(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    x: str = "step",
    title: str | None = None,
) -> None:
    """Draws training and held-out loss of runs into a PNG, SVG or PDF.

    Args:
        runs: their directories.
        out: the file; its ending says which kind.
        x: `"step"` or `"seconds"`.
        title: above it.
    """
    target = Path(out)
    if target.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"{out}: not a picture", "end the name in .png, .svg or .pdf")
    if x not in ("step", "seconds"):
        raise ConfigError(f"x={x!r} is unknown", "known are step and seconds")
    curves = [(Path(run), *_curves(Path(run), x)) for run in runs]
    figure = _figure()
    axes = figure.add_subplot()
    for run, training, held_out in curves:
        (line,) = axes.plot(*training, alpha=0.5, linewidth=1)
        label = run.name or str(run)
        if held_out[0]:
            axes.plot(*held_out, color=line.get_color(), marker="o", markersize=3, label=label)
        else:
            line.set_label(label)
    axes.set_xlabel("step" if x == "step" else "seconds of training")
    axes.set_ylabel("loss (nats per token); dots: held out")
    axes.grid(alpha=0.3)
    axes.legend()
    if title:
        axes.set_title(title)
    figure.savefig(target)


def _figure() -> Any:
    try:
        module = importlib.import_module("matplotlib.figure")
    except ModuleNotFoundError:
        raise MissingPackageError(
            "drawing needs matplotlib, which is not installed", "pip install 'bytemill[plot]'"
        ) from None
    # Without pyplot there is no window and no state that others could have changed.
    return module.Figure(figsize=(9, 5.5), dpi=120, layout="constrained")


Curve = tuple[list[float], list[float]]


def _curves(run: Path, x: str) -> tuple[Curve, Curve]:
    """The smoothed loss of steps, and the loss of evaluations."""
    if not (run / METRICS).exists():
        raise CheckpointError(f"{run}: no {METRICS} here", "a run is what bytemill train -o makes")
    rows = list(read_metrics(run))
    training: Curve = ([], [])
    held_out: Curve = ([], [])
    keep = 1 - 1 / max(1.0, SMOOTHED * sum("loss" in row for row in rows))
    mean, seconds = None, 0.0
    for row in rows:
        if "loss" in row:
            seconds += row.get("seconds", 0.0)
            mean = row["loss"] if mean is None else keep * mean + (1 - keep) * row["loss"]
            training[0].append(row["step"] if x == "step" else seconds)
            training[1].append(mean)
        if "val_loss" in row:
            held_out[0].append(row["step"] if x == "step" else seconds)
            held_out[1].append(row["val_loss"])
    if not training[0]:
        raise CheckpointError(f"{run}: no step was finished yet", "wait a moment")
    return training, held_out
