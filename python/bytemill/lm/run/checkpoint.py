"""Checkpoints: tensors as safetensors, everything else as JSON. Nothing is ever unpickled.

Two forms. A *file* or binary stream holds everything: `save_checkpoint`, `load_checkpoint`. A *step
directory* of a run holds weights and optimizer state in separate files, so that generation reads
only the weights: `write_step`, `read_step`. It is written under a temporary name, flushed, and
renamed, so a kill at any moment leaves the previous state.

Checkpoints are not trusted: the config is compared with the names and shapes in the header before a
model is allocated, and weights must be finite.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, overload

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..._files import naming, regular, replacing, replacing_directory
from ..._json import parse_object, read_object
from ...errors import CheckpointError
from ..config import ModelConfig
from ..model import TransformerLM
from ..optim import Optimizers
from ..parallel import like, whole
from .config_file import model_config
from .steps import (
    MOMENTS,
    STATE,
    STEP,
    WEIGHTS,
    foreign_in_step,
    prune_steps,
    step_directories,
    step_number,
)
from .tensors import Deferred, check_finite, open_tensors, raw_bytes, write_safetensors
from .weights import OTHER_CONFIG, check_weights, wrong_shape, wrong_type

__all__ = [
    "load_checkpoint",
    "prune_steps",
    "read_step",
    "save_checkpoint",
    "step_directories",
    "write_step",
]

Target = str | os.PathLike[str] | IO[bytes]
AnyOptimizer = Optimizer | Optimizers
VERSION = 1
KIND = "bytemill checkpoint"
BLOCK = 1 << 22


# --- one file ----------------------------------------------------------------------------------


def save_checkpoint(
    model: nn.Module, optimizer: AnyOptimizer | None, iteration: int, out: Target
) -> None:
    """Writes weights, optimizer state and iteration to a path or a binary stream.

    A file appears whole or not at all.
    """
    tensors = {f"model.{name}": tensor for name, tensor in weights_of(model).items()}
    facts: dict[str, Any] = {"version": VERSION, "iteration": iteration}
    config = getattr(model, "config", None)
    if isinstance(config, ModelConfig):
        facts["model"] = config.to_json()
    if optimizer is not None:
        moments, facts["optimizer"] = optimizer_state(model, optimizer)
        tensors |= {f"optimizer.{name}": tensor for name, tensor in moments.items()}
    facts["crc32"] = _checksum_of(tensors)
    data = safetensors.torch.save(tensors, {"bytemill": json.dumps(facts)})
    if isinstance(out, (str, os.PathLike)):
        with replacing(Path(out)) as file:
            file.write(data)
    else:
        out.write(data)


@overload
def load_checkpoint(src: Target) -> TransformerLM: ...
@overload
def load_checkpoint(
    src: Target, model: nn.Module, optimizer: AnyOptimizer | None = None
) -> int: ...
def load_checkpoint(
    src: Target, model: nn.Module | None = None, optimizer: AnyOptimizer | None = None
) -> int | TransformerLM:
    """Loads a checkpoint into a model and an optimizer; returns its iteration.

    Args:
        src: a file, a binary stream, a step directory, or a run (its last step).
        model: the model to fill; None creates and returns the one that was saved.
        optimizer: the optimizer to fill; None to load only the weights.
    """
    name = str(src) if isinstance(src, (str, os.PathLike)) else "the stream"
    if isinstance(src, (str, os.PathLike)) and Path(src).is_dir():
        return _load_directory(Path(src), model, optimizer)
    if isinstance(src, (str, os.PathLike)):
        data = regular(Path(src), CheckpointError).read_bytes()
    else:
        data = src.read()
    tensors, facts = _parse(data, name)
    if facts.get("crc32") != _checksum_of(tensors):
        raise CheckpointError(
            f"{name}: damaged: the checksum does not match", "use another checkpoint"
        )
    weights = _below("model.", tensors)
    if model is None:
        config = model_config(facts, name)
        check_weights(config, weights, name)
        return _new_model(config, weights, name)
    fill_model(model, weights, name)
    if optimizer is not None:
        fill_optimizer(
            model, optimizer, _below("optimizer.", tensors), facts.get("optimizer"), name
        )
    return int(facts["iteration"])


def _load_directory(
    directory: Path, model: nn.Module | None, optimizer: AnyOptimizer | None
) -> int | TransformerLM:
    if not (directory / STATE).exists():
        steps = step_directories(directory)
        if not steps:
            raise CheckpointError(
                f"{directory}: contains no checkpoint", "give a run or one of its steps"
            )
        directory = steps[-1]
    facts = read_step(directory)
    if model is None:
        return load_model(directory, facts)
    fill_model(model, read_tensors(directory, WEIGHTS, facts), str(directory))
    if optimizer is not None:
        moments = read_tensors(directory, MOMENTS, facts)
        fill_optimizer(model, optimizer, moments, facts.get("optimizer"), str(directory))
    return int(facts["iteration"])


def load_model(directory: Path, facts: Mapping[str, Any]) -> TransformerLM:
    """The model of a step directory; allocated only if config and weights agree."""
    config = checked_config(directory, facts)
    return _new_model(config, read_tensors(directory, WEIGHTS, facts), str(directory))


def _new_model(config: ModelConfig, weights: dict[str, Tensor], name: str) -> TransformerLM:
    model = TransformerLM(config)
    fill_model(model, weights, name)
    return model


def checked_config(directory: Path, facts: Mapping[str, Any]) -> ModelConfig:
    """The config of a step directory; raises if names and shapes of the weights do not match it.

    Reads only the header of the weights.
    """
    config = model_config(facts, str(directory / STATE))
    path = _present_file(directory, WEIGHTS, facts)
    with open_tensors(path) as found:
        check_weights(config, found, str(path))
    return config


def _parse(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    hint = "only checkpoints written by bytemill can be read"
    try:
        tensors = safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{name}: not a checkpoint, or damaged: {error}", hint) from None
    size = int.from_bytes(data[:8], "little")
    metadata = parse_object(data[8 : 8 + size], name, CheckpointError, hint).get("__metadata__")
    text = metadata.get("bytemill") if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise CheckpointError(f"{name}: not a bytemill checkpoint", hint)
    facts = parse_object(text, name, CheckpointError, hint)
    _check_fields(facts, name)
    return tensors, facts


def _check_fields(facts: Mapping[str, Any], name: str) -> None:
    """Raises if a field has the wrong type."""
    objects = ("model", "optimizer", "files")
    wrong = [key for key in objects if not isinstance(facts.get(key, {}), (dict, type(None)))]
    if type(facts.get("iteration")) is not int or facts["iteration"] < 0:
        wrong.append("iteration")
    if not isinstance(facts.get("tokenizer"), (str, type(None))):
        wrong.append("tokenizer")
    if type(facts.get("val_loss")) not in (float, int, type(None)):
        wrong.append("val_loss")
    if wrong:
        shown = repr(facts.get(wrong[0]))[:60]
        raise CheckpointError(f"{name}: damaged: {wrong[0]} is {shown}", _OLDER)


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}


def _checksum_of(tensors: Mapping[str, Tensor]) -> int:
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(name.encode(), crc)
        crc = zlib.crc32(raw_bytes(tensors[name]), crc)
    return crc


# --- a step directory --------------------------------------------------------------------------


def write_step(
    run: Path,
    iteration: int,
    weights: Mapping[str, Tensor] | Mapping[str, Deferred],
    moments: Mapping[str, Tensor] | None,
    facts: Mapping[str, Any],
    tell: Callable[[int], None] = lambda n_bytes: None,
) -> Path:
    """Writes a step directory: under a temporary name, flushed, then renamed.

    Deferred weights are loaded one by one; `tell` is called with the size of each written tensor.
    """
    final = run / f"step-{iteration:08}"
    foreign = foreign_in_step(final)
    if foreign is not None:
        raise CheckpointError(
            f"{foreign}: not part of a checkpoint, but its directory would be replaced",
            "move it elsewhere",
        )
    with replacing_directory(final) as directory:
        sums = {}
        for name, tensors in ((WEIGHTS, weights), (MOMENTS, moments)):
            if tensors is None:
                continue
            with naming(final / name):
                with open(directory / name, "wb") as file:
                    write_safetensors(file, tensors, tell)
                sums[name] = {"bytes": (directory / name).stat().st_size}
                sums[name]["crc32"] = _file_checksum(directory / name)
        state = {"kind": KIND, "version": VERSION, "iteration": iteration}
        text = json.dumps(state | dict(facts) | {"files": sums}, indent=2) + "\n"
        with naming(final / STATE):
            (directory / STATE).write_text(text)
    return final


def read_step(directory: Path) -> dict[str, Any]:
    """The contents of `state.json` of a step directory."""
    path = directory / STATE
    try:
        facts = read_object(path, CheckpointError, _OLDER)
    except FileNotFoundError:
        raise CheckpointError(f"{directory}: not a checkpoint: {STATE} is missing") from None
    if facts.get("kind") != KIND:
        raise CheckpointError(f"{path}: not a bytemill checkpoint")
    if facts.get("version") != VERSION:
        raise CheckpointError(
            f"{directory}: format version {str(facts.get('version'))[:60]}, not {VERSION}",
            "use the bytemill that wrote it",
        )
    _check_fields(facts, str(path))
    if STEP.fullmatch(directory.name) and step_number(directory) != facts["iteration"]:
        raise CheckpointError(
            f"{path}: belongs to step {facts['iteration']}, but its directory is {directory.name}",
            "restore the directory's original name",
        )
    return facts


_OLDER = "an earlier step of the run may be intact: give its directory"


def checked_file(directory: Path, name: str, facts: Mapping[str, Any]) -> Path:
    """The path of a file of a step directory; raises if its checksum does not match."""
    path = _present_file(directory, name, facts)
    if _file_checksum(path) != facts["files"][name].get("crc32"):
        raise CheckpointError(f"{path}: damaged: the checksum does not match", _OLDER)
    return path


def _present_file(directory: Path, name: str, facts: Mapping[str, Any]) -> Path:
    """The path of a file of a step directory; raises if its size does not match."""
    path = directory / name
    expected = (facts.get("files") or {}).get(name)
    if expected is None or not path.is_file():
        raise CheckpointError(f"{path}: missing", _OLDER)
    if not isinstance(expected, dict) or path.stat().st_size != expected.get("bytes"):
        raise CheckpointError(f"{path}: damaged: the size does not match", _OLDER)
    return path


def read_tensors(directory: Path, name: str, facts: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file of a step directory; raises if its checksum does not match."""
    path = checked_file(directory, name, facts)
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path}: damaged: {error}", _OLDER) from None


def _file_checksum(path: Path) -> int:
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            crc = zlib.crc32(block, crc)
    return crc


# --- the state of a model and an optimizer -------------------------------------------------------


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """All weights by name; for a sharded model, all ranks must call this."""
    return {name: _on_cpu(p) for name, p in _named(model)}


def _on_cpu(tensor: Tensor) -> Tensor:
    return whole(tensor).cpu().contiguous()


def _named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    # DDP and the compiler add prefixes to the names.
    for name, parameter in model.named_parameters():
        yield name.replace("_orig_mod.", "").removeprefix("module."), parameter
    for name, buffer in model.named_buffers():
        owner = model.get_submodule(name.rpartition(".")[0])
        if name.rpartition(".")[2] not in owner._non_persistent_buffers_set:
            yield name, buffer


def fill_model(model: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Copies weights into a model; names and shapes must match, and all numbers must be finite.

    If an error is raised, the model is unchanged.
    """
    there = dict(_named(model))
    missing, extra = there.keys() - weights.keys(), weights.keys() - there.keys()
    if missing or extra:
        what = f"lacks {sorted(missing)[0]}" if missing else f"has an unexpected {sorted(extra)[0]}"
        raise CheckpointError(f"{name}: belongs to another model: it {what}", OTHER_CONFIG)
    for key, target in there.items():
        found = weights[key]
        if target.shape != found.shape:
            raise wrong_shape(name, key, tuple(found.shape), tuple(target.shape))
        if target.is_floating_point() != found.is_floating_point():
            raise wrong_type(name, key, found.dtype)
        # Buffers may be infinite: masks often are.
        if isinstance(target, nn.Parameter):
            check_finite(name, key, found)
    for key, target in there.items():
        _copy(target, weights[key])


@torch.no_grad()
def _copy(target: Tensor, source: Tensor) -> None:
    target.copy_(like(source, target))


# The state that optimizers, torch's and ours, keep for every updated parameter.
NEEDED = {"AdamW": {"step", "exp_avg", "exp_avg_sq"}, "Muon": {"momentum_buffer"}}


def optimizer_state(
    model: nn.Module, optimizer: AnyOptimizer
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state: tensors by `name/parameter`, and numbers."""
    names = {id(p): name for name, p in _named(model)}
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p, {})
            # In an order of our own: torch's differs between new and loaded states.
            for key, value in sorted(state.items()):
                place = f"{key}/{names[id(p)]}"
                if isinstance(value, Tensor):
                    # A copy: two parameters may share one step tensor.
                    tensors[place] = _on_cpu(value).clone()
                else:
                    numbers[place] = value
    return tensors, {"numbers": numbers}


def fill_optimizer(
    model: nn.Module,
    optimizer: AnyOptimizer,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any] | None,
    name: str,
) -> None:
    """Loads a saved state into an optimizer of the same model."""
    if facts is None:
        raise CheckpointError(
            f"{name}: has no optimizer state", "it can be used for inference only"
        )
    named = dict(_named(model))
    states: dict[str, dict[str, Any]] = {}
    numbers = facts.get("numbers", {})
    if not isinstance(numbers, dict):
        raise CheckpointError(f"{name}: damaged: optimizer.numbers is {str(numbers)[:60]}", _OLDER)
    for place, value in [*tensors.items(), *numbers.items()]:
        key, _, parameter = place.partition("/")
        if parameter not in named:
            raise CheckpointError(
                f"{name}: has optimizer state of {parameter}, which the model lacks"
            )
        _check_state(name, place, value, named[parameter])
        states.setdefault(parameter, {})[key] = value
    for parameter, state in states.items():
        p = named[parameter]
        owner = optimizer.owner(p) if isinstance(optimizer, Optimizers) else optimizer
        missing = NEEDED.get(type(owner).__name__, set()) - state.keys()
        if missing:
            raise CheckpointError(f"{name}: damaged: no {min(missing)} of {parameter}", _OLDER)
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == p.shape:
                state[key] = like(value, p).clone()
            elif isinstance(value, Tensor) and value.dim() == 0 and p.device.type == "cuda":
                fused = any(group.get("fused") for group in owner.param_groups)
                state[key] = value.to(p.device) if fused else value
        owner.state[p] = state


def _check_state(name: str, place: str, value: Any, parameter: Tensor) -> None:
    """Raises if an entry of the state is neither a number nor of the shape of its parameter."""
    if not isinstance(value, Tensor):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise CheckpointError(f"{name}: damaged: {place} is {str(value)[:60]}", _OLDER)
        return
    if value.dim() and value.shape != parameter.shape:
        raise wrong_shape(name, place, tuple(value.shape), tuple(parameter.shape))
    check_finite(name, place, value)
