"""Checkpoints: tensors as safetensors, everything else as JSON. Nothing is ever unpickled.

Two forms. A *file* (or a binary stream) has all in one: `save_checkpoint`, `load_checkpoint`. A
*step directory* of a run has the weights apart from the optimizer's state, so that whoever only
wants to generate reads only those: `write_step`, `read_step`. A step directory is written under
another name, flushed, and renamed, so a kill at any moment leaves what was there before.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, overload

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .._files import regular, replacing, replacing_directory
from ..errors import CheckpointError
from .config import ModelConfig
from .model import TransformerLM
from .optim import Optimizers
from .sharding import like, whole
from .tensors import Deferred, raw_bytes, write_safetensors

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
STATE = "state.json"
WEIGHTS = "model.safetensors"
MOMENTS = "optimizer.safetensors"
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
    """Reads a checkpoint into a model and an optimizer, and gives its iteration.

    Args:
        src: a file, a binary stream, a step directory, or a run (its last step).
        model: to be filled; None to make the one that was saved, which is then given back.
        optimizer: to be filled; None if only the weights are wanted.
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
        raise CheckpointError(f"{name}: damaged: the checksum does not match", "use another one")
    weights = _below("model.", tensors)
    if model is None:
        return _new_model(facts, weights, name)
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
            raise CheckpointError(f"{directory}: no checkpoint in it", "name a run or a step of it")
        directory = steps[-1]
    facts = read_step(directory)
    weights = read_tensors(directory, WEIGHTS, facts)
    if model is None:
        return _new_model(facts, weights, str(directory))
    fill_model(model, weights, str(directory))
    if optimizer is not None:
        moments = read_tensors(directory, MOMENTS, facts)
        fill_optimizer(model, optimizer, moments, facts.get("optimizer"), str(directory))
    return int(facts["iteration"])


def _new_model(facts: Mapping[str, Any], weights: dict[str, Tensor], name: str) -> TransformerLM:
    if "model" not in facts:
        raise CheckpointError(
            f"{name}: does not say what model it is of", "make the model, and give it as well"
        )
    model = TransformerLM(ModelConfig.from_json(facts["model"]))
    fill_model(model, weights, name)
    return model


def _parse(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        tensors = safetensors.torch.load(data)
        size = int.from_bytes(data[:8], "little")
        facts = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["bytemill"])
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{name}: not a checkpoint, or damaged: {error}", "it must be one of bytemill's"
        ) from None
    return tensors, facts


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
    """Puts a step directory into a run: under another name, flushed, then renamed.

    Weights may be such as are read or made only when they are written; `tell` gets the size of
    each of those.
    """
    final = run / f"step-{iteration:08}"
    with replacing_directory(final) as directory:
        sums = {}
        for name, tensors in ((WEIGHTS, weights), (MOMENTS, moments)):
            if tensors is None:
                continue
            _save(directory / name, tensors, tell)
            sums[name] = {"bytes": (directory / name).stat().st_size}
            sums[name]["crc32"] = _file_checksum(directory / name)
        state = {"kind": "bytemill checkpoint", "version": VERSION, "iteration": iteration}
        text = json.dumps(state | dict(facts) | {"files": sums}, indent=2) + "\n"
        (directory / STATE).write_text(text)
    return final


def _save(
    path: Path,
    tensors: Mapping[str, Tensor] | Mapping[str, Deferred],
    tell: Callable[[int], None],
) -> None:
    made = {name: t for name, t in tensors.items() if isinstance(t, Tensor)}
    deferred = {name: t for name, t in tensors.items() if isinstance(t, Deferred)}
    if deferred:
        with open(path, "wb") as file:
            write_safetensors(file, deferred, tell)
    else:
        safetensors.torch.save_file(made, path)


def read_step(directory: Path) -> dict[str, Any]:
    """What a step directory says of itself."""
    try:
        facts = json.loads((directory / STATE).read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{directory}: no checkpoint here: {STATE} is missing") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{directory / STATE}: damaged: {error}", _OLDER) from None
    if not isinstance(facts, dict) or facts.get("kind") != "bytemill checkpoint":
        raise CheckpointError(f"{directory / STATE}: not a checkpoint of bytemill's")
    if facts.get("version") != VERSION:
        raise CheckpointError(
            f"{directory}: of version {facts.get('version')}, and this is for {VERSION}",
            "use the bytemill that it was made with",
        )
    return facts


_OLDER = "an earlier step of the run may still be whole: name its directory"


def checked_file(directory: Path, name: str, facts: Mapping[str, Any]) -> Path:
    """A file of a step directory, after its checksum was compared."""
    path = directory / name
    expected = facts.get("files", {}).get(name)
    if expected is None or not path.exists():
        raise CheckpointError(f"{path}: missing", _OLDER)
    if path.stat().st_size != expected["bytes"] or _file_checksum(path) != expected["crc32"]:
        raise CheckpointError(f"{path}: damaged: size or checksum is not what was written", _OLDER)
    return path


def read_tensors(directory: Path, name: str, facts: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file in a step directory, after its checksum was compared."""
    path = checked_file(directory, name, facts)
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path}: damaged: {error}", _OLDER) from None


def step_directories(run: Path) -> list[Path]:
    """The finished steps of a run, in order."""
    named = [p for p in run.glob("step-*") if re.fullmatch(r"step-\d+", p.name)]
    return sorted((p for p in named if (p / STATE).exists()), key=_number)


def prune_steps(run: Path, keep: int, also: Path | None = None) -> None:
    """Removes all but the last `keep` steps, and `also`; and what killed writers left behind."""
    steps = step_directories(run)
    for old in steps[:-keep] if keep > 0 else []:
        if also is None or old.name != also.name:
            # Renamed first, so that a kill in between leaves nothing that looks whole.
            aside = run / f".{old.name}.old"
            shutil.rmtree(aside, ignore_errors=True)
            old.rename(aside)
    for left in run.glob(".step-*"):
        shutil.rmtree(left, ignore_errors=True)


def _number(directory: Path) -> int:
    return int(directory.name.removeprefix("step-"))


def _file_checksum(path: Path) -> int:
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            crc = zlib.crc32(block, crc)
    return crc


# --- what is in a model and an optimizer -------------------------------------------------------


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every weight by name, once; of a sharded model, whole (all ranks must ask)."""
    return {name: _on_cpu(p) for name, p in _named(model)}


def _on_cpu(tensor: Tensor) -> Tensor:
    return whole(tensor).cpu().contiguous()


def _named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    # Wrappers (DDP, the compiler) put their own names before ours.
    for name, parameter in model.named_parameters():
        yield name.replace("_orig_mod.", "").removeprefix("module."), parameter
    for name, buffer in model.named_buffers():
        owner = model.get_submodule(name.rpartition(".")[0])
        if name.rpartition(".")[2] not in owner._non_persistent_buffers_set:
            yield name, buffer


def fill_model(model: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Copies weights into a model; names and shapes must be the same."""
    there = dict(_named(model))
    missing, extra = there.keys() - weights.keys(), weights.keys() - there.keys()
    if missing or extra:
        what = f"lacks {sorted(missing)[0]}" if missing else f"has {sorted(extra)[0]} besides"
        raise CheckpointError(f"{name}: of another model: it {what}", "use the config it is of")
    for key, target in there.items():
        if target.shape != weights[key].shape:
            raise CheckpointError(
                f"{name}: {key} is {tuple(weights[key].shape)}, "
                f"and {tuple(target.shape)} in this model",
                "use the config it is of",
            )
        _copy(target, weights[key])


@torch.no_grad()
def _copy(target: Tensor, source: Tensor) -> None:
    target.copy_(like(source, target))


def optimizer_state(
    model: nn.Module, optimizer: AnyOptimizer
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state as tensors by `name/parameter`, and the rest."""
    names = {id(p): name for name, p in _named(model)}
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p, {})
            for key, value in state.items():
                place = f"{key}/{names[id(p)]}"
                if isinstance(value, Tensor):
                    # A copy: two parameters may share one tensor of steps.
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
    """Puts a saved state into an optimizer of the same model."""
    if facts is None:
        raise CheckpointError(f"{name}: has no optimizer state", "it is for inference only")
    named = dict(_named(model))
    states: dict[str, dict[str, Any]] = {}
    for place, value in [*tensors.items(), *facts.get("numbers", {}).items()]:
        key, _, parameter = place.partition("/")
        if parameter not in named:
            raise CheckpointError(f"{name}: has state of {parameter}, which the model lacks")
        states.setdefault(parameter, {})[key] = value
    for parameter, state in states.items():
        p = named[parameter]
        owner = optimizer.owner(p) if isinstance(optimizer, Optimizers) else optimizer
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == p.shape:
                state[key] = like(value, p).clone()
            elif isinstance(value, Tensor) and value.dim() == 0 and p.device.type == "cuda":
                fused = any(group.get("fused") for group in owner.param_groups)
                state[key] = value.to(p.device) if fused else value
        owner.state[p] = state


def to_bytes(model: nn.Module, optimizer: AnyOptimizer | None, iteration: int) -> bytes:
    """`save_checkpoint` into memory."""
    stream = io.BytesIO()
    save_checkpoint(model, optimizer, iteration, stream)
    return stream.getvalue()
