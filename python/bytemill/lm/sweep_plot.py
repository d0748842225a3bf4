"""Pictures of a sweep: final loss against each setting, and all loss curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError
from .plot import curves, figure, save

if TYPE_CHECKING:
    from .search import Trial

__all__ = ["plot_curves", "plot_settings"]


def plot_settings(trials: Sequence[Trial], fields: Sequence[str], out: Path) -> None:
    """A panel for each setting: the final loss of every run, crosses where it diverged."""
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
    """The loss of every run that took a step; the best in front, and with a name."""
    drawn = figure(10, 6)
    axes = drawn.add_subplot()
    seen: list[float] = []
    for number, trial in enumerate(trials):
        try:
            training, held_out = curves(trial.run, "step")
        except CheckpointError:
            continue
        # What diverged may have gone anywhere; where it began is enough of it.
        seen += training[1][:1] if trial.status == "diverged" else training[1] + held_out[1]
        style: dict[str, Any] = {"linewidth": 1.2, "zorder": 100 - number}
        if trial.status == "diverged":
            style |= {"linestyle": ":"}
        # A legend of a hundred names helps nobody.
        label = trial.run.name if number < 12 else None
        (line,) = axes.plot(*training, label=label, **style)
        if held_out[0]:
            axes.plot(*held_out, "o", color=line.get_color(), markersize=3)
    if seen and all(map(math.isfinite, seen)):
        room = 0.05 * (max(seen) - min(seen)) or 0.1
        axes.set_ylim(min(seen) - room, max(seen) + 2 * room)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token); dots: held out, dotted: diverged")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save(drawn, out)
