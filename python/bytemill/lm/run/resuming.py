"""Start, resume or refuse a run: which config it has, and which weights it starts from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import CheckpointError, ConfigError, TokensError
from .. import presets
from ..config import ModelConfig, TrainConfig
from .checkpoint import checked_config, read_step, step_directories
from .config_file import CONFIG, TOKENIZER, model_config, read_config
from .directory import check_same_model, open_run
from .output_directory import contents, writing
from .sources import Sources

__all__ = ["Start", "find_start"]

# Settings that may change when a run is resumed.
CHANGEABLE = frozenset(
    (
        "steps", "eval_every", "eval_windows", "sample_every", "sample_prompt", "sample_tokens",
        "checkpoint_every", "keep", "device", "dtype", "kernels", "compile", "threads", "parallel",
        "tensorboard", "wandb", "micro_batch_size",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """How a run starts: anew, from the weights of another run, or from its own last checkpoint.

    Attributes:
        run: its directory.
        resume: whether a run that exists is resumed.
        overwrite: whether a run that exists is replaced.
        stored: the config of the run to be resumed; None for a new run.
        weights: the checkpoint of another run whose weights it starts from; None for new weights.
        keys: the keys of its configs.
        tokenizer: the tokenizer of the run, or of the run that the weights come from.
    """

    run: Path
    resume: bool
    overwrite: bool
    stored: dict[str, Any] | None
    weights: Path | None
    keys: dict[str, Any]
    tokenizer: Path | None

    def check(self, sources: Sources) -> None:
        """Raises if the run cannot be trained on these tokens."""
        if self.stored is not None:
            _check_same_tokens(self.stored, sources)
            _check_last_step(self.run, self.stored)
        elif self.weights is not None:
            _check_start_tokens(self.weights, sources)

    @contextmanager
    def locked(self, first: bool) -> Iterator[None]:
        """Keeps other writers out of the run, if this is the first rank."""
        if not first:
            yield
            return
        with writing(self.run):
            if stored_config(self.run, self.resume, self.overwrite) != self.stored:
                raise CheckpointError(
                    f"{self.run}: another process wrote to it after this one started",
                    "check the run, then start again",
                )
            yield


def find_start(
    run: Path,
    preset: str | None,
    file: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    start_from: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Start:
    """Decides how a run starts; raises if it may not be written.

    Args:
        run: its directory.
        preset: name of a preset; None for the default.
        file: keys of a TOML file, which override the preset.
        options: keys that override both.
        start_from: a run, or a step of it, whose weights to start from.
        resume: resume the run, if it exists.
        overwrite: replace the run, if it exists.
    """
    stored = stored_config(run, resume, overwrite)
    weights = _find_weights(start_from, stored, run)
    changes = dict(file) | dict(options)
    owner = None
    if stored is not None:
        keys, owner = _resumed_keys(stored, preset, changes), run
    else:
        keys = presets.merged(preset, file, options)
        if weights is not None:
            keys, owner = keys | _start_keys(weights, changes), weights.parent
    tokenizer = None if owner is None else owner / TOKENIZER
    if tokenizer is not None and not tokenizer.exists():
        tokenizer = None
    return Start(run, resume, overwrite, stored, weights, keys, tokenizer)


def stored_config(run: Path, resume: bool, overwrite: bool) -> dict[str, Any] | None:
    """The config of a run to be resumed; None for a new run; raises if neither is possible.

    Leftovers of a process that was killed before it wrote a config are ignored.
    """
    there = contents(run)
    if not there:
        return None
    if not (run / CONFIG).exists():
        raise ConfigError(
            f"{run}: contains files that are not part of a run, such as {there[0].name}",
            "only runs are resumed or replaced; choose another directory",
        )
    try:
        stored = read_config(run)
    except CheckpointError as error:
        hint = "it was not changed: choose another directory, or remove this one yourself"
        raise CheckpointError(error.message, hint) from None
    if not (resume or overwrite):
        raise ConfigError(
            f"{run}: already contains a run",
            "resume=True resumes it, overwrite=True replaces it",
        )
    if overwrite:
        return None
    if "train" not in stored:
        raise ConfigError(
            f"{run}: was imported, not trained here, so there is nothing to resume",
            f"start a new run from its weights: start_from={str(run)!r}",
        )
    model_config(stored, str(run / CONFIG))
    try:
        _train_config(stored)
    except ConfigError as error:
        raise CheckpointError(f"{run / CONFIG}: {error.message}", "the file is damaged") from None
    return stored


def _train_config(stored: Mapping[str, Any]) -> TrainConfig:
    """The config of a run with the kernels it was computed with, so that it resumes bit for bit."""
    plan = stored.get("plan", {})
    computed = {name: plan[name] for name in ("dtype", "kernels", "compile") if name in plan}
    return TrainConfig.from_json(stored["train"] | computed)


def _check_last_step(run: Path, stored: Mapping[str, Any]) -> None:
    """Raises if the last checkpoint does not belong to the model in the config.

    Reads only the header, so that nothing is allocated for a model whose weights do not exist.
    """
    steps = step_directories(run)
    if not steps:
        return
    facts = read_step(steps[-1])
    check_same_model(run, dict(stored), steps[-1], facts)
    if facts.get("seed") != stored["train"].get("seed"):
        raise CheckpointError(
            f"{run / CONFIG} and {steps[-1]} disagree: seed is {stored['train'].get('seed')} "
            f"and {str(facts.get('seed'))[:40]}",
            "one of the files was changed or belongs to another run",
        )
    checked_config(steps[-1], facts)


def _resumed_keys(
    stored: Mapping[str, Any], preset: str | None, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The keys of the run with changes; raises for a change that would make it another run."""
    keys = ModelConfig.from_json(stored["model"]).to_json() | _train_config(stored).to_json()
    if preset is not None:
        changes = presets.PRESETS.get(preset, {}) | dict(changes)
    for key, value in changes.items():
        if key in ("preset", "vocab_size"):
            continue
        if key not in keys:
            presets.merged(None, None, {key: value})  # raises, with a suggestion
        if key not in CHANGEABLE and value != keys[key]:
            raise ConfigError(
                f"the run was started with {key}={keys[key]}, not {key}={value}",
                "omit it to resume the run, or start another",
            )
        keys[key] = value
    return keys


def _check_same_tokens(stored: Mapping[str, Any], sources: Sources) -> None:
    """Raises unless the tokens are those that the run was started with."""
    before = stored.get("tokens", {})
    if before.get("tokenizer") is not None and sources.tokenizer is None:
        raise TokensError(
            "the run was started with a tokenizer, which is missing", "give it again: tokenizer="
        )
    for name in ("fingerprint", "tokens", "held_out"):
        if before.get(name) != sources.facts[name]:
            raise TokensError(
                f"the run was started with other tokens: {name} was {before.get(name)!s:.80}, "
                f"now it is {sources.facts[name]}",
                "resume with the same tokens, or start another run",
            )


# --- from the weights of another run --------------------------------------------------------------


def _find_weights(
    given: str | os.PathLike[str] | None, stored: Mapping[str, Any] | None, run: Path
) -> Path | None:
    """The checkpoint whose weights a run starts from, or, if it is resumed, started from.

    Args:
        given: a run, or a step of it.
        stored: the config of the run to be resumed; None for a new run.
        run: the run that starts.
    """
    if stored is not None:
        before = stored.get("start_from")
        if given is not None and before is None:
            raise ConfigError(
                f"{run}: was not started from the weights of another run",
                "omit start_from= to resume it",
            )
        return None if before is None else Path(before)
    if given is None:
        return None
    step = open_run(given).step.absolute()
    if step.is_relative_to(run.absolute()):
        raise ConfigError(f"{given}: is inside the run to be replaced", "choose another directory")
    return step


def _start_keys(step: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the model of a checkpoint; raises if given keys contradict them.

    The context may differ: no weight depends on it.
    """
    keys = checked_config(step, read_step(step)).to_json()
    if "context_length" in given:
        keys["context_length"] = given["context_length"]
    for key, value in given.items():
        if key in keys and value != keys[key]:
            raise ConfigError(
                f"{step}: the model has {key}={keys[key]}, not {key}={value}",
                "omit it, or start without start_from=",
            )
    return keys


def _check_start_tokens(step: Path, sources: Sources) -> None:
    """Raises if the tokens were encoded with another tokenizer than that of the checkpoint."""
    its = read_step(step).get("tokenizer")
    theirs = sources.facts["fingerprint"] or sources.facts["tokenizer"]
    if None not in (its, theirs) and its != theirs:
        raise TokensError(
            f"the tokens were encoded with the tokenizer {str(theirs)[:12]}…, "
            f"but the model of {step} was trained with {str(its)[:12]}…",
            "encode with the tokenizer.json of the run that the weights come from",
        )
