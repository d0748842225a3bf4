"""A run: a directory with a model's config, tokenizer, checkpoints and metrics.

run/
  config.json       model, training, tokens, how it was computed
  tokenizer.json    if it is known
  step-00000500/    model.safetensors, optimizer.safetensors, state.json
  best.json         which step evaluated best
  metrics.jsonl     a line for each step, and for each evaluation
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._files import write_atomically
from ..errors import CheckpointError
from .checkpoint import WEIGHTS as WEIGHTS
from .checkpoint import fill_model, read_step, read_tensors, step_directories
from .config import ModelConfig
from .model import TransformerLM

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = [
    "OpenRun",
    "best_step",
    "find_step",
    "load",
    "open_run",
    "read_config",
    "write_best",
    "write_config",
]

CONFIG = "config.json"
BEST = "best.json"
TOKENIZER = "tokenizer.json"
KIND = "bytemill run"


def write_config(run: Path, fields: dict[str, Any]) -> None:
    """Writes the config of a run."""
    text = json.dumps({"kind": KIND, "version": 1} | fields, indent=2) + "\n"
    write_atomically(run / CONFIG, text.encode())


def read_config(run: Path) -> dict[str, Any]:
    """The config of a run."""
    path = run / CONFIG
    if not run.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(run))
    try:
        fields = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(
            f"{run}: not a run: it has no {CONFIG}", "a run is what bytemill train -o makes"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged: {error}") from None
    if not isinstance(fields, dict) or fields.get("kind") != KIND:
        raise CheckpointError(f"{path}: not the config of a run of bytemill's")
    return fields


def write_best(run: Path, step: int, loss: float) -> None:
    """Remembers which step evaluated best."""
    write_atomically(run / BEST, json.dumps({"step": step, "loss": loss}).encode() + b"\n")


def best_step(run: Path) -> tuple[Path, float] | None:
    """The step that evaluated best, and its loss; None if there is none."""
    try:
        fields = json.loads((run / BEST).read_text())
        place = run / f"step-{fields['step']:08}"
        return (place, float(fields["loss"])) if place.is_dir() else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def find_step(run: Path, which: str | int = "best") -> Path:
    """The checkpoint of a run: `"best"` (else the last), `"last"`, or a number of steps."""
    steps = step_directories(run)
    if not steps:
        raise CheckpointError(f"{run}: no checkpoint yet", "continue its training with resume=True")
    if which == "last":
        return steps[-1]
    if which == "best":
        best = best_step(run)
        return best[0] if best is not None else steps[-1]
    place = run / f"step-{int(which):08}"
    if place not in steps:
        there = ", ".join(str(int(p.name.removeprefix("step-"))) for p in steps)
        raise CheckpointError(f"{run}: no checkpoint of step {which}", f"there are {there}")
    return place


class OpenRun(NamedTuple):
    """A checkpoint of a run that was found, before anything large is read."""

    step: Path
    facts: dict[str, Any]
    tokenizer: Tokenizer | None


def open_run(run: str | os.PathLike[str], step: str | int = "best") -> OpenRun:
    """Finds a checkpoint, as `load` does, and the tokenizer that belongs to it."""
    from ..tokenizer import Tokenizer

    place = Path(run)
    if not (place / CONFIG).exists() and (place / "state.json").exists():
        place, chosen = place.parent, place
        read_config(place)
    else:
        read_config(place)
        chosen = find_step(place, step)
    facts = read_step(chosen)
    path = place / TOKENIZER
    tokenizer = Tokenizer.load(path) if path.exists() else None
    if tokenizer is not None and facts.get("tokenizer") not in (None, tokenizer.fingerprint):
        raise CheckpointError(
            f"{path}: not the tokenizer that the model was trained with",
            "put back the one with fingerprint " + str(facts["tokenizer"])[:12] + "…",
        )
    return OpenRun(chosen, facts, tokenizer)


def load(
    run: str | os.PathLike[str], *, step: str | int = "best", device: str | None = None
) -> tuple[TransformerLM, Tokenizer | None]:
    """The model of a run, ready to generate, and its tokenizer.

    Args:
        run: the directory, or one step in it.
        step: `"best"` by evaluation (else the last), `"last"`, or a number.
        device: where to put it.
    """
    chosen, facts, tokenizer = open_run(run, step)
    model = TransformerLM(ModelConfig.from_json(facts["model"]))
    fill_model(model, read_tensors(chosen, WEIGHTS, facts), str(chosen))
    if device is not None:
        model.to(device)
    model.eval()
    return model, tokenizer
