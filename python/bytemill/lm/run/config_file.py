"""`config.json` of a run: what was trained, on which tokens, and how. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._files import write_together
from ..._json import read_object
from ...errors import CheckpointError, ConfigError
from ..config import ModelConfig

if TYPE_CHECKING:
    from ...tokenizer import Tokenizer

__all__ = [
    "CONFIG",
    "TOKENIZER",
    "check_tokenizer",
    "model_config",
    "read_config",
    "tokenizer_fingerprint",
    "write_config",
]

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
KIND = "bytemill run"


def write_config(run: Path, fields: dict[str, Any], tokenizer: Tokenizer | None = None) -> None:
    """Writes the config of a run and, if given, its tokenizer: both or neither."""
    text = json.dumps({"kind": KIND, "version": 1} | fields, indent=2) + "\n"
    files = {} if tokenizer is None else {TOKENIZER: tokenizer.write("huggingface")[0]}
    write_together(run, files | {CONFIG: text.encode()})


def read_config(run: Path) -> dict[str, Any]:
    """The config of a run."""
    path = run / CONFIG
    if not run.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(run))
    try:
        fields = read_object(path, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(
            f"{run}: not a run: it has no {CONFIG}", "bytemill train -o creates runs"
        ) from None
    if fields.get("kind") != KIND:
        raise CheckpointError(f"{path}: not the config of a bytemill run")
    for name in ("model", "train", "tokens", "plan"):
        if not isinstance(fields.get(name, {}), dict):
            raise CheckpointError(f"{path}: damaged: {name} is {str(fields[name])[:60]}")
    start = fields.get("start_from")
    if start is not None and (not isinstance(start, str) or "\0" in start):
        raise CheckpointError(f"{path}: damaged: start_from is {start!r:.60}")
    return fields


def model_config(facts: Mapping[str, Any], name: str) -> ModelConfig:
    """The model config in a checkpoint; `name` is the file, for errors."""
    if "model" not in facts:
        raise CheckpointError(
            f"{name}: contains no model config", "create the model and pass it as model="
        )
    try:
        return ModelConfig.from_json(facts["model"])
    except ConfigError as error:
        raise CheckpointError(f"{name}: {error.message}", "the file is damaged") from None


def tokenizer_fingerprint(tokens: Mapping[str, Any]) -> str | None:
    """The fingerprint of the tokenizer, from the description of tokens in the config of a run."""
    found = tokens.get("tokenizer") or tokens.get("fingerprint")
    return None if found is None else str(found)


def check_tokenizer(tokenizer: Tokenizer, name: str, trained: object, n_ids: int) -> None:
    """Raises unless a model was trained with this tokenizer.

    Args:
        tokenizer: the tokenizer.
        name: its file, for errors.
        trained: the fingerprint of the model's tokenizer; None if unknown.
        n_ids: the vocabulary size of the model.
    """
    if trained not in (None, tokenizer.fingerprint):
        raise CheckpointError(
            f"{name}: not the tokenizer that the model was trained with: its fingerprint is "
            f"{tokenizer.fingerprint[:12]}…, not {str(trained)[:12]}…",
            "use the tokenizer that the tokens were encoded with",
        )
    if tokenizer.max_id >= n_ids:
        raise CheckpointError(
            f"{name}: has ids up to {tokenizer.max_id}, but the model's vocab_size is {n_ids}",
            "use the tokenizer that the tokens were encoded with",
        )
