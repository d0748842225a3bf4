"""A run → a directory for transformers, or a file for llama.cpp."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch

from ..._files import naming, replacing, writer_lock
from ...errors import CheckpointError, ConfigError
from ...progress import Progress, ProgressOption
from ...tokenizer import Tokenizer
from ...tokens.encode import end_of_text
from ..config import ModelConfig
from ..keywords import StepName
from ..run.checkpoint import checked_config, checked_file
from ..run.directory import open_run
from ..run.output_directory import LOCK, check_target, contents, replacing_target
from ..run.steps import WEIGHTS
from ..run.tensors import Deferred, converted, is_written_by_us, open_tensors, write_safetensors
from . import gguf, transformers

__all__ = ["Export", "Target", "export_run"]

Target: TypeAlias = Literal["huggingface", "gguf"]
WeightType: TypeAlias = Literal["f32", "f16", "bf16"]
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
KIND = "an exported model"
# The files of a directory for transformers.
FILES = (
    WEIGHTS,
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


@dataclass(frozen=True)
class Export:
    """The result of `export_run`.

    Attributes:
        path: the directory or file.
        to: the target format.
        architecture: the architecture of the target: `"llama"` or `"qwen3"`.
        step: the step of the checkpoint.
        n_bytes: size of the weights.
        tokenizer: whether a tokenizer was exported.
        pre_tokenizer: llama.cpp's name for the split pattern; None for transformers.
    """

    path: Path
    to: Target
    architecture: str
    step: int
    n_bytes: int
    tokenizer: bool
    pre_tokenizer: str | None


def export_run(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    to: Target = "huggingface",
    step: StepName = "best",
    dtype: WeightType = "f32",
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    pre_tokenizer: str | None = None,
    overwrite: bool = False,
    progress: ProgressOption = None,
) -> Export:
    """Exports the model of a run for other programs, one tensor at a time.

    A model that the target cannot represent exactly is an error, which gives the reason.

    Args:
        run: the directory, or one step in it.
        out: a directory for `huggingface`; a file, `….gguf`, for `gguf`. It is written whole or not
            at all.
        to: `"huggingface"` for transformers and programs that read its format, `"gguf"` for
            llama.cpp.
        step: the checkpoint, as in [`load`][bytemill.lm.load].
        dtype: type of the exported weights.
        tokenizer: the tokenizer the model was trained with, for a run that has none.
        pre_tokenizer: for `gguf`, llama.cpp's name for the split pattern; None derives it.
        overwrite: replace an earlier export.
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
    """
    for name, value, known in (("to", to, get_args(Target)), ("dtype", dtype, tuple(TYPES))):
        if value not in known:
            raise ConfigError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    if pre_tokenizer is not None and to != "gguf":
        raise ConfigError("pre_tokenizer applies to gguf only", "omit it")
    target = Path(out)
    _check_target(target, to, overwrite)
    opened = open_run(run, step, tokenizer)
    config = checked_config(opened.step, opened.facts)
    kind = transformers.architecture(config)
    found = opened.tokenizer
    end = None if found is None else _end(found)
    pairs: dict[str, Any] = {}
    if to == "gguf":
        if found is None:
            raise ConfigError(
                f"{run}: the run has no tokenizer, but a GGUF file needs one",
                "give the one that the tokens were encoded with: tokenizer=",
            )
        pre_tokenizer = pre_tokenizer or gguf.pre_tokenizer(found)
        name = Path(run).resolve().name
        pairs = gguf.metadata(
            config, found, name=name, pre=pre_tokenizer, end=end, dtype=TYPES[dtype]
        )
    path = checked_file(opened.step, WEIGHTS, opened.facts)
    with open_tensors(path) as weights, Progress(progress) as report:
        renamed = (
            _for_transformers(config, weights, TYPES[dtype])
            if to == "huggingface"
            else gguf.model_tensors(config, weights, TYPES[dtype])
        )
        total, done = sum(tensor.n_bytes for tensor in renamed.values()), 0

        def tell(n_bytes: int) -> None:
            nonlocal done
            done += n_bytes
            report("export", done, total)

        if to == "gguf":
            lock = target.with_name(f".{target.name}{LOCK}")
            with writer_lock(lock, target, CheckpointError):
                _check_target(target, to, overwrite)
                with replacing(target) as file:
                    gguf.write_gguf(file, pairs, renamed, tell)
        else:
            with replacing_target(target, overwrite, foreign_in_export, KIND) as directory:
                with naming(target / WEIGHTS), open(directory / WEIGHTS, "wb") as file:
                    write_safetensors(file, renamed, tell)
                _write_json_files(directory, config, found, end, dtype)
    return Export(
        target,
        to,
        kind,
        int(opened.facts["iteration"]),
        total,
        found is not None,
        pre_tokenizer,
    )


def _check_target(target: Path, to: Target, overwrite: bool) -> None:
    if to == "huggingface":
        check_target(target, overwrite, foreign_in_export, KIND)
        return
    if target.suffix != ".gguf":
        raise ConfigError(
            f"{target}: the name of a GGUF file must end in .gguf", "such as model.gguf"
        )
    if target.is_dir():
        raise IsADirectoryError(21, "Is a directory", str(target))
    if os.path.lexists(target) and not overwrite:
        raise FileExistsError(17, "File exists", str(target))
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(target.parent))


def foreign_in_export(directory: Path) -> Path | None:
    """A file that `export_run` did not write; None if there is none.

    Other models have files of the same names; the header of the weights marks ours. A model that
    another program has trained further and saved is no longer ours.
    """
    for path in contents(directory):
        if path.name not in FILES or (path.name == WEIGHTS and not is_written_by_us(path)):
            return path
    return None if (directory / WEIGHTS).exists() else next(iter(contents(directory)), None)


def _end(tokenizer: Tokenizer) -> int | None:
    """The end-of-text id, if there is one."""
    text = end_of_text(tokenizer, None, append_eot=False)
    return None if text is None else tokenizer.special_tokens[text]


def _for_transformers(
    config: ModelConfig, weights: dict[str, Deferred], dtype: torch.dtype
) -> dict[str, Deferred]:
    halves = transformers.to_halves(config)
    return {
        theirs: converted(
            weights[ours], dtype, halves if transformers.is_rotated(ours) else lambda w: w
        )
        for ours, theirs in transformers.tensor_names(config).items()
    }


def _write_json_files(
    directory: Path, config: ModelConfig, tokenizer: Tokenizer | None, end: int | None, dtype: str
) -> None:
    """Writes everything but the weights."""
    kind = str(TYPES[dtype]).removeprefix("torch.")
    files: dict[str, dict[str, Any]] = {
        "config.json": transformers.config_fields(config, end, kind),
        # pad_token_id is not in config.json: there, it would keep its row from being trained.
        "generation_config.json": {
            "bos_token_id": end, "eos_token_id": end, "pad_token_id": end,
        },
    }  # fmt: skip
    if tokenizer is not None:
        tokenizer.save(directory / "tokenizer.json")
        ending = None if end is None else tokenizer.token_bytes(end).decode()
        files["tokenizer_config.json"] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": ending,
            "eos_token": ending,
            "model_max_length": config.context_length,
            "clean_up_tokenization_spaces": False,
        }
    for name, fields in files.items():
        (directory / name).write_text(json.dumps(fields, indent=2) + "\n")
