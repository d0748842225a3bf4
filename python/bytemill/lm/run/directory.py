"""A run: a directory with a model's config, tokenizer, checkpoints and metrics.

run/
  config.json       model, training and tokens; device, dtype and kernels
  tokenizer.json    the tokenizer, if known
  step-00000500/    model.safetensors, optimizer.safetensors, state.json
  best.json         the step with the best evaluation
  metrics.jsonl     one line per step and per evaluation
  events/           the same for TensorBoard
  .lock             present while a process writes to the directory
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._files import remove_if_empty
from ...errors import CheckpointError
from ..devices import find_device
from ..keywords import StepName
from ..model import TransformerLM
from .checkpoint import load_model, read_step
from .config_file import (
    CONFIG,
    TOKENIZER,
    check_tokenizer,
    model_config,
    read_config,
    tokenizer_fingerprint,
)
from .metrics import EVENTS, METRICS
from .output_directory import contents
from .steps import BEST, STATE, STEP, find_step, foreign_in_step, remove_step

if TYPE_CHECKING:
    from ...tokenizer import Tokenizer

__all__ = [
    "OpenRun",
    "clear_run",
    "foreign_in_run",
    "load",
    "open_run",
]

OUTCOME = "outcome.json"


# --- the files of a run -------------------------------------------------------------------------


EVENT_FILE = re.compile(r"events\.out\.tfevents\..+")


def foreign_in_run(run: Path) -> Path | None:
    """A file in a run that bytemill did not write; None if there is none.

    Raises a `CheckpointError` if the directory is not a run.
    """
    read_config(run)
    for path in contents(run):
        found = _foreign_at(path)
        if found is not None:
            return found
    return None


def _foreign_at(path: Path) -> Path | None:
    if path.name in (CONFIG, TOKENIZER, BEST, METRICS, OUTCOME):
        return None if path.is_file() else path
    if STEP.fullmatch(path.name) and path.is_dir():
        return foreign_in_step(path)
    if path.name == EVENTS and path.is_dir():
        return next((p for p in contents(path) if not EVENT_FILE.fullmatch(p.name)), None)
    return path


def clear_run(run: Path) -> None:
    """Removes the files of a run and no others; the config last, so that it stays a run until then.

    The caller must hold the lock.
    """
    read_config(run)
    _unlink(run / OUTCOME)
    # The newest step first, then the metrics: after an interruption, the rest is an earlier state
    # of the run, which can be resumed.
    for path in reversed(contents(run)):
        if STEP.fullmatch(path.name) and path.is_dir():
            remove_step(path)
    events = run / EVENTS
    if events.is_dir() and not events.is_symlink():
        _unlink(*(path for path in contents(events) if EVENT_FILE.fullmatch(path.name)))
        remove_if_empty(events)
    _unlink(run / BEST, run / METRICS, run / TOKENIZER, run / CONFIG)


def _unlink(*paths: Path) -> None:
    for path in paths:
        if path.is_file() or path.is_symlink():
            path.unlink()


# --- a checkpoint of it -------------------------------------------------------------------------


class OpenRun(NamedTuple):
    """A checkpoint of a run, before anything large is read."""

    step: Path
    facts: dict[str, Any]
    tokenizer: Tokenizer | None


def open_run(
    run: str | os.PathLike[str],
    step: StepName = "best",
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
) -> OpenRun:
    """Finds a checkpoint, as `load` does, and its tokenizer."""
    from ... import encodings
    from ...tokenizer import Tokenizer

    place = Path(run)
    if not (place / CONFIG).exists() and (place / STATE).exists():
        place, chosen = place.parent, place
        config = read_config(place)
    else:
        config = read_config(place)
        chosen = find_step(place, step)
    facts = read_step(chosen)
    check_same_model(place, config, chosen, facts)
    path = place / TOKENIZER
    if tokenizer is None and path.exists():
        tokenizer = path
    name = "the tokenizer" if isinstance(tokenizer, Tokenizer) else str(tokenizer)
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        tokenizer = encodings.load(tokenizer)
    if tokenizer is not None:
        trained = facts.get("tokenizer") or tokenizer_fingerprint(config.get("tokens", {}))
        n_ids = model_config(facts, str(chosen)).vocab_size
        check_tokenizer(tokenizer, name, trained, n_ids)
    return OpenRun(chosen, facts, tokenizer)


def check_same_model(run: Path, config: dict[str, Any], step: Path, facts: dict[str, Any]) -> None:
    """Raises if the config of a run and one of its checkpoints describe different models."""
    ours, theirs = config.get("model"), facts.get("model")
    if ours == theirs or ours is None or theirs is None:
        return
    name = next(n for n in (*theirs, *ours) if ours.get(n) != theirs.get(n))
    raise CheckpointError(
        f"{run / CONFIG} and {step / STATE} disagree: "
        f"{name} is {ours.get(name)!r:.60} and {theirs.get(name)!r:.60}",
        "one of the files was changed or belongs to another run",
    )


def load(
    run: str | os.PathLike[str],
    *,
    step: StepName = "best",
    device: str | None = None,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
) -> tuple[TransformerLM, Tokenizer | None]:
    """The model of a run, ready to generate, and its tokenizer.

    Args:
        run: the directory, or one step in it.
        step: `"best"` by evaluation (else the last), `"last"`, or a number.
        device: `cpu`, `cuda`, `cuda:1`, `mps`; `"auto"` for a GPU, or the CPU. None for the CPU.
        tokenizer: the tokenizer the model was trained with, for a run that has none: a tokenizer,
            a file, or the name of an encoding such as `cl100k_base`.
    """
    place = None if device is None else find_device(device)
    chosen, facts, found = open_run(run, step, tokenizer)
    model = load_model(chosen, facts)
    if place is not None:
        model.to(place)
    model.eval()
    return model, found
