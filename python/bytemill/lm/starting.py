"""Beginning a run with the weights of another: what of it must be the same, and what may differ."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError, TokensError
from .checkpoint import read_step
from .run import open_run
from .sources import Sources

__all__ = ["check_start_tokens", "find_start", "start_keys"]


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
                f"{run}: was not begun with the weights of another run",
                "leave start_from (--start-from) out to go on with it",
            )
        return None if before is None else Path(before)
    if given is None:
        return None
    step = open_run(given).step.absolute()
    if step.is_relative_to(run.absolute()):
        raise ConfigError(
            f"{given}: lies in the run that is to be replaced", "name another directory (-o)"
        )
    return step


def start_keys(step: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the model of a checkpoint; what is given besides must not contradict them.

    The context may be another: no weight depends on it.
    """
    keys: dict[str, Any] = dict(read_step(step)["model"])
    if "context_length" in given:
        keys["context_length"] = given["context_length"]
    for key, value in given.items():
        if key in keys and value != keys[key]:
            raise ConfigError(
                f"{step}: of a model with {key}={keys[key]}, and {key}={value} was given",
                "leave it out, or begin without start_from (--start-from)",
            )
    return keys


def check_start_tokens(step: Path, sources: Sources) -> None:
    """Raises if the tokens were made with another tokenizer than the model of a checkpoint."""
    its = read_step(step).get("tokenizer")
    theirs = sources.facts["fingerprint"] or sources.facts["tokenizer"]
    if None not in (its, theirs) and its != theirs:
        raise TokensError(
            f"the tokens were made with the tokenizer {str(theirs)[:12]}…, "
            f"and {step} is of a model for {str(its)[:12]}…",
            "encode with the tokenizer.json of the run that the weights are of",
        )
