"""The report card of a run: `report_run`, from its config, metrics and tokenizer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...corpus.names import redacted, shown
from ...errors import BytemillError, CheckpointError, ConfigError
from ...look import Result, Statistics, statistics
from ...tokenizer import Tokenizer
from ...tokens.manifest import read_manifest
from ..config import MAX_COUNT, ModelConfig, TrainConfig
from ..plan.costs import n_parameters
from ..run.config_file import (
    CONFIG,
    TOKENIZER,
    check_tokenizer,
    model_config,
    read_config,
    tokenizer_fingerprint,
)
from ..run.history import EvaluatedStep, History, read_history, smoothed
from ..run.state import RunStatus, run_status
from .commands import Command, made_by
from .expected import Cost, costs_of

__all__ = ["RunReport", "Status", "report_run"]

Status = RunStatus | Literal["imported"]
# Among them are enough with letters; the very longest are often indentation and rules.
N_LONGEST = 400


@dataclass(frozen=True)
class RunReport(Result):
    """The report card of a run; numbers are None where the run does not have them.

    Attributes:
        run: its directory.
        status: `"finished"`; `"training"`: a process writes to it; `"interrupted"`: it can be
            resumed; `"imported"`: not trained here.
        config: the contents of its config, without credentials.
        model: the model.
        train: how it was trained.
        n_parameters: parameters of the model.
        steps: steps done.
        tokens_seen: tokens trained on.
        epochs: the same in passes over the training tokens.
        loss: training loss at the end, smoothed.
        seconds: duration of its steps, without evaluations, samples and checkpoints.
        tokens_per_s: tokens per second of that time.
        memory: peak memory in bytes.
        history: its metrics.
        costs: predicted and measured costs.
        tokenizer: statistics of its tokenizer.
        bytes_per_token: of the tokens it was trained on, if they are still there.
        commands: the commands that made it.
    """

    run: str
    status: Status
    config: dict[str, Any]
    model: ModelConfig
    train: TrainConfig | None
    n_parameters: int
    steps: int
    tokens_seen: int
    epochs: float | None
    loss: float | None
    seconds: float | None
    tokens_per_s: float | None
    memory: float | None
    history: History
    costs: list[Cost]
    tokenizer: Statistics | None
    bytes_per_token: float | None
    commands: list[Command]

    @property
    def name(self) -> str:
        """The last part of its path."""
        return os.path.basename(os.path.normpath(self.run)) or self.run

    @property
    def final(self) -> EvaluatedStep | None:
        """The last evaluation."""
        return self.history.evaluations[-1] if self.history.evaluations else None

    @property
    def best(self) -> EvaluatedStep | None:
        """The evaluation with the lowest loss."""
        return min(self.history.evaluations, key=lambda one: one.loss, default=None)

    def to_text(self) -> str:
        from .views import to_text

        return to_text(self)

    def to_json(self) -> dict[str, object]:
        from .views import to_json

        return to_json(self)

    def to_html(self, *, title: str = "") -> str:
        """A complete page, named after the run if no title is given."""
        from .page import run_page

        return run_page(self, title or f"Run {self.name}")


def report_run(run: str | os.PathLike[str]) -> RunReport:
    """Describes a run: the model, its training and the results.

    Works while the run is being trained, after an interruption, and without a tokenizer or
    evaluations. Reads the config, the metrics and the tokenizer; needs no torch.

    Args:
        run: its directory.
    """
    place = Path(run)
    config = read_config(place)
    name = str(place / CONFIG)
    model, train = model_config(config, name), _train_config(config, name)
    if train is not None:
        _check_tokens(config.get("tokens", {}), name)
    ranks = config.get("ranks", 1)
    if type(ranks) is not int or not 1 <= ranks <= MAX_COUNT:
        raise CheckpointError(f"{name}: damaged: ranks is {ranks!r:.60}")
    history = read_history(place)
    samples = [one._replace(text=redacted(one.text)) for one in history.samples]
    history = dataclasses.replace(history, samples=samples)
    tokenizer = _tokenizer(place, config, model)
    manifest = None if train is None else _manifest(config["tokens"])
    steps = int(history.steps[-1]) if len(history.steps) else 0
    took = history.column("seconds")
    known = took[np.isfinite(took)]
    per_step = 0 if train is None else train.batch_size * model.context_length
    n_train = 0 if train is None else config["tokens"].get("tokens", 0)
    memory = history.column("memory")
    losses = history.column("loss")
    return RunReport(
        run=redacted(shown(str(place))),
        status="imported" if train is None else run_status(place, steps, train.steps),
        config=_shown(config),
        model=model,
        train=train,
        n_parameters=n_parameters(model),
        steps=steps,
        tokens_seen=steps * per_step,
        epochs=steps * per_step / n_train if n_train else None,
        loss=smoothed(losses)[-1] if steps else None,
        seconds=float(known.sum()) if len(known) else None,
        tokens_per_s=len(known) * per_step / float(known.sum()) if known.sum() > 0 else None,
        memory=float(np.nanmax(memory)) if np.isfinite(memory).any() else None,
        history=history,
        costs=[] if train is None else costs_of(model, train, _plan(config), ranks, history),
        tokenizer=tokenizer,
        bytes_per_token=_bytes_per_token(manifest),
        commands=list(made_by(shown(str(place)), config, model, train, tokenizer, manifest)),
    )


def _train_config(config: Mapping[str, Any], name: str) -> TrainConfig | None:
    if "train" not in config:
        return None
    try:
        return TrainConfig.from_json(config["train"])
    except ConfigError as error:
        raise CheckpointError(f"{name}: {error.message}", "the file is damaged") from None


# The fields of `tokens` that are used here.
FIELDS: dict[str, tuple[type, ...]] = {
    "path": (str,),
    "val": (str, type(None)),
    "tokens": (int,),
    "held_out": (int,),
    "dtype": (str,),
}


def _check_tokens(tokens: Mapping[str, Any], name: str) -> None:
    for key, kinds in FIELDS.items():
        value = tokens.get(key)
        # A path with a null character cannot be opened.
        fits = type(value) in kinds and "\0" not in str(value)
        if not fits or (type(value) is int and not 0 <= value < 2**63):
            raise CheckpointError(f"{name}: damaged: tokens.{key} is {value!r:.60}")


def _plan(config: Mapping[str, Any]) -> dict[str, str]:
    plan = config.get("plan", {})
    return {name: value for name, value in plan.items() if isinstance(value, str)}


def _tokenizer(place: Path, config: Mapping[str, Any], model: ModelConfig) -> Statistics | None:
    path = place / TOKENIZER
    if not path.exists():
        return None
    found = Tokenizer.load(path)
    trained = tokenizer_fingerprint(config.get("tokens", {}))
    check_tokenizer(found, str(path), trained, model.vocab_size)
    return statistics(found, n_longest=N_LONGEST)


def _manifest(tokens: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of the tokens of a run; None if they are gone, or others are in their place."""
    try:
        found = read_manifest(Path(tokens["path"]))
    except (OSError, BytemillError):
        return None
    return found if found["tokenizer"]["fingerprint"] == tokens.get("fingerprint") else None


def _bytes_per_token(manifest: Mapping[str, Any] | None) -> float | None:
    if manifest is None or not manifest.get("text_bytes"):
        return None
    n_tokens = sum(split["tokens"] for split in manifest["splits"])
    return manifest["text_bytes"] / n_tokens if n_tokens else None


def _shown(value: Any) -> Any:
    """JSON without credentials."""
    if isinstance(value, dict):
        return {redacted(key): _shown(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shown(inner) for inner in value]
    return redacted(value) if isinstance(value, str) else value
