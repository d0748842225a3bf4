"""Start, resume or refuse a run: which config it has, and which weights it starts from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import CheckpointError, ConfigError, TokensError
from .. import presets
from ..config import ModelConfig, TrainConfig
from ..data import Sources
from .checkpoint import checked_config, model_config, read_step, step_directories
from .directory import CONFIG, TOKENIZER, check_same_model, open_run, read_config
from .placing import contents

__all__ = [
    "check_last_step",
    "check_same_tokens",
    "check_start_tokens",
    "find_start",
    "own_tokenizer",
    "resumed_keys",
    "start_keys",
    "stored_config",
]

# What may change when a run is resumed, without becoming another run.
CHANGEABLE = frozenset(
    (
        "steps", "eval_every", "eval_windows", "sample_every", "sample_prompt", "sample_tokens",
        "checkpoint_every", "keep", "device", "dtype", "kernels", "compile", "threads", "parallel",
        "tensorboard", "wandb", "micro_batch_size",
    )
)  # fmt: skip


def stored_config(run: Path, resume: bool, overwrite: bool) -> dict[str, Any] | None:
    """The config of a run to be resumed; None for a new one.

    What a process left that was killed before it wrote a config counts as nothing.
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
    """How a run was trained; and as it was computed, so that it is resumed bit for bit."""
    plan = stored.get("plan", {})
    computed = {name: plan[name] for name in ("dtype", "kernels", "compile") if name in plan}
    return TrainConfig.from_json(stored["train"] | computed)


def check_last_step(run: Path, stored: Mapping[str, Any]) -> None:
    """Raises unless the checkpoint that a run is resumed from is of the model in its config.

    Only a header is read, so that nothing is allocated for a model whose weights do not exist.
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


def resumed_keys(
    stored: Mapping[str, Any], preset: str | None, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The keys of the run, with the changes that do not make another run of it."""
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


def own_tokenizer(run: Path) -> Path | None:
    """The tokenizer that the run has kept."""
    return run / TOKENIZER if (run / TOKENIZER).exists() else None


def check_same_tokens(stored: Mapping[str, Any], sources: Sources) -> None:
    """Raises unless the tokens are those that the run was started with."""
    before = stored.get("tokens", {})
    if before.get("tokenizer") is not None and sources.tokenizer is None:
        raise TokensError(
            "the run was started with a tokenizer, which is missing", "give it again: -t FILE"
        )
    for name in ("fingerprint", "tokens", "held_out"):
        if before.get(name) != sources.facts[name]:
            raise TokensError(
                f"the run was started with other tokens: {name} was {before.get(name)!s:.80}, "
                f"now it is {sources.facts[name]}",
                "resume with the same tokens, or start another run",
            )


# --- with the weights of another run --------------------------------------------------------------


def find_start(
    given: str | os.PathLike[str] | None, stored: Mapping[str, Any] | None, run: Path
) -> Path | None:
    """The checkpoint that a run begins with: the one that is given or, resumed, began with.

    Args:
        given: a run, or a step in it.
        stored: the config of a run to be resumed; None for a new one.
        run: the run that begins.
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


def start_keys(step: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the model of a checkpoint; what is given besides must not contradict them.

    The context may be another: no weight depends on it.
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


def check_start_tokens(step: Path, sources: Sources) -> None:
    """Raises if the tokens were made with another tokenizer than the model of a checkpoint."""
    its = read_step(step).get("tokenizer")
    theirs = sources.facts["fingerprint"] or sources.facts["tokenizer"]
    if None not in (its, theirs) and its != theirs:
        raise TokensError(
            f"the tokens were encoded with the tokenizer {str(theirs)[:12]}…, "
            f"but the model of {step} was trained with {str(its)[:12]}…",
            "encode with the tokenizer.json of the run that the weights come from",
        )
