"""Plots: loss curves of runs, FLOPs shares of a model, sweeps, learning rates."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..._files import replacing
from ...errors import CheckpointError, ConfigError, require
from ..config import ModelConfig
from ..presets import MODEL_KEYS, PRESETS
from ..run.metrics import METRICS
from . import costs
from .accounting import shares

if TYPE_CHECKING:
    from .rate_test import RateTest
    from .results import Trial

__all__ = [
    "figure",
    "picture_path",
    "plot_curves",
    "plot_rates",
    "plot_runs",
    "plot_settings",
    "plot_shares",
    "save",
]

XAxis: TypeAlias = Literal["step", "seconds"]
"""What the horizontal axis shows."""


def plot_runs(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    x: XAxis = "step",
    title: str | None = None,
) -> None:
    """Plots the training and held-out loss of runs.

    Args:
        runs: their directories.
        out: the file: .png, .svg or .pdf.
        x: quantity on the x axis.
        title: title of the plot.
    """
    target = picture_path(out)
    if x not in ("step", "seconds"):
        raise ConfigError(f"x must be step or seconds, got {x!r}")
    found = [(Path(run), *curves(Path(run), x)) for run in runs]
    drawn = figure()
    axes = drawn.add_subplot()
    for run, training, held_out in found:
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
    save(drawn, target)


def picture_path(out: str | os.PathLike[str]) -> Path:
    """Returns the path; raises if it does not end in .png, .svg or .pdf."""
    target = Path(out)
    if target.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"{out}: the name must end in .png, .svg or .pdf")
    return target


def save(drawn: Any, target: Path) -> None:
    """Writes a picture atomically."""
    with replacing(target) as file:
        drawn.savefig(file, format=target.suffix[1:].lower())


def figure(width: float = 9, height: float = 5.5) -> Any:
    """An empty picture."""
    module = require("matplotlib.figure", "drawing", extra="plot")
    # Without pyplot: no window, and no global state.
    return module.Figure(figsize=(width, height), dpi=120, layout="constrained")


Curve = tuple[list[float], list[float]]


def curves(run: Path, x: XAxis) -> tuple[Curve, Curve]:
    """The smoothed loss of steps, and the loss of evaluations."""
    # Needs numpy, which `bytemill account --help` does not load.
    from ..run.history import read_history, smoothed

    if not (run / METRICS).exists():
        raise CheckpointError(f"{run}: has no {METRICS}", "bytemill train -o creates runs")
    found = read_history(run)
    if not len(found.steps):
        raise CheckpointError(f"{run}: no step has finished yet", "wait for the first step")
    across: list[float] = (found.steps if x == "step" else found.seconds).tolist()
    return (across, smoothed(found.column("loss"))), (
        [one.step if x == "step" else one.seconds for one in found.evaluations],
        [one.loss for one in found.evaluations],
    )


def plot_shares(configs: Mapping[str, ModelConfig], out: str | os.PathLike[str]) -> None:
    """Plots the FLOPs shares of a forward pass by model size and by context length.

    Args:
        configs: models by name. A single one is shown with GPT-2's four sizes; the context varies
            for the last one.
        out: the file: .png, .svg or .pdf.
    """
    target = picture_path(out)
    sizes = dict(configs)
    if len(sizes) == 1:
        for name in ("gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"):
            keys = {key: value for key, value in PRESETS[name].items() if key in MODEL_KEYS}
            sizes.setdefault(name, ModelConfig(vocab_size=50257, **keys))
    sizes = dict(sorted(sizes.items(), key=lambda item: costs.n_parameters(item[1])))
    last, config = list(configs.items())[-1]
    drawn = figure(13, 5.5)
    left, right = drawn.subplots(1, 2)
    parts = [name for name, n in costs.flops_of(config, 1).items() if n]
    bottom = [0.0] * len(sizes)
    for part in parts:
        heights = [100 * shares(one, one.context_length)[part] for one in sizes.values()]
        left.bar(list(sizes), heights, bottom=bottom, label=part)
        bottom = [low + height for low, height in zip(bottom, heights)]
    left.set_title("by size, each at its own context")
    left.set_ylabel("% of the FLOPs of a forward pass")
    left.tick_params(axis="x", rotation=30)
    # Up to 131,072, or the model's own.
    most = max(17, math.ceil(math.log2(config.context_length)))
    contexts = [2**power for power in range(7, most + 1)]
    rows = [[100 * shares(config, n)[part] for n in contexts] for part in parts]
    right.stackplot(contexts, *rows, labels=parts)
    right.set_xscale("log", base=2)
    right.set_xticks(contexts[::2], [f"{n:,}" for n in contexts[::2]])
    right.margins(x=0, y=0)
    right.axvline(config.context_length, color="black", linewidth=1, linestyle=":")
    right.set_xlabel("context in tokens (log scale); dotted: the model's own")
    right.set_title(f"by context: {last}")
    # Beside the plot, which has no free space; in the order of the areas, from the top.
    handles, names = right.get_legend_handles_labels()
    drawn.legend(handles[::-1], names[::-1], loc="outside right upper")
    save(drawn, target)


# --- sweeps --------------------------------------------------------------------------------------


def plot_settings(trials: Sequence[Trial], fields: Sequence[str], out: Path) -> None:
    """Plots the final loss of every run against each setting; crosses for diverged runs."""
    drawn = figure(max(5.0, 4.5 * len(fields)), 4.5)
    panels = drawn.subplots(1, len(fields), squeeze=False, sharey=True)[0]
    finished = [trial.score for trial in trials if math.isfinite(trial.score)]
    top = max(finished, default=1.0)
    room = (top - min(finished, default=0.0)) or 0.1
    for axes, field in zip(panels, fields):
        values = [trial.settings[field] for trial in trials]
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
        if numbers and min(values) > 0 and max(values) / min(values) >= 8:
            axes.set_xscale("log")
        for trial, value in zip(trials, values):
            x = value if numbers else str(value)
            if math.isfinite(trial.score):
                axes.plot([x], [trial.score], "o", color="C0")
            elif trial.status == "diverged":
                axes.plot([x], [top + 0.1 * room], "x", color="C3")
        axes.set_xlabel(field)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("final loss (nats per token); crosses: diverged")
    save(drawn, out)


def plot_curves(trials: Sequence[Trial], out: Path) -> None:
    """Plots the loss curves of all runs, the best in front."""
    drawn = figure(10, 6)
    axes = drawn.add_subplot()
    seen: list[float] = []
    for number, trial in enumerate(trials):
        try:
            training, held_out = curves(trial.run, "step")
        except CheckpointError:
            continue
        # Of a diverged run, only the first loss counts for the limits of the axis.
        seen += training[1][:1] if trial.status == "diverged" else training[1] + held_out[1]
        style: dict[str, Any] = {"linewidth": 1.2, "zorder": 100 - number}
        if trial.status == "diverged":
            style |= {"linestyle": ":"}
        # A legend of a hundred names would be useless.
        label = trial.run.name if number < 12 else None
        (line,) = axes.plot(*training, label=label, **style)
        if held_out[0]:
            axes.plot(*held_out, "o", color=line.get_color(), markersize=3)
    if all(trial.status == "diverged" for trial in trials):
        # Show the diverging losses.
        axes.set_yscale("log")
    elif seen and all(map(math.isfinite, seen)):
        room = 0.05 * (max(seen) - min(seen)) or 0.1
        axes.set_ylim(min(seen) - room, max(seen) + 2 * room)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token); dots: held out, dotted: diverged")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save(drawn, out)


def plot_rates(found: RateTest, out: str | os.PathLike[str]) -> None:
    """Plots loss against learning rate."""
    target = picture_path(out)
    drawn = figure()
    axes = drawn.add_subplot()
    axes.plot(found.rates, found.losses, alpha=0.4, linewidth=1, label="loss of each step")
    axes.plot(found.rates, found.smoothed, label="smoothed")
    label = f"suggestion: {found.suggestion:g}"
    axes.axvline(found.suggestion, color="C2", linestyle="--", label=label)
    axes.axvline(found.steepest, color="C1", linestyle=":", label=f"steepest: {found.steepest:.2g}")
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.3)
    axes.legend()
    save(drawn, target)
