"""A transformers model → a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import __version__
from ..._json import read_object
from ...errors import CheckpointError
from ...progress import Progress, ProgressOption
from ...tokenizer import Tokenizer
from ..config import ModelConfig
from ..plan.costs import n_parameters
from ..run.checkpoint import write_step
from ..run.config_file import write_config
from ..run.directory import foreign_in_run
from ..run.output_directory import check_target, replacing_target
from ..run.tensors import Deferred, converted, open_tensors
from ..run.weights import weight_shapes
from . import transformers

__all__ = ["Import", "import_run"]

ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class Import:
    """The result of `import_run`.

    Attributes:
        run: the new run.
        architecture: the architecture of the model: `"llama"` or `"qwen3"`.
        parameters: number of parameters.
        tokenizer: whether a tokenizer was imported.
    """

    run: Path
    architecture: str
    parameters: int
    tokenizer: bool


def import_run(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tokenizer: bool = True,
    overwrite: bool = False,
    progress: ProgressOption = None,
) -> Import:
    """Imports a model that transformers saved as a run, one tensor at a time.

    Supports Llama and Qwen3 models that bytemill can compute exactly; for others, the error gives
    the reason. Nothing is ever unpickled. Weights become float32.

    Args:
        directory: with config.json, safetensors (also in shards) and tokenizer.json.
        out: the run's directory; it is written whole or not at all.
        tokenizer: False to import without the tokenizer, if bytemill cannot read it.
        overwrite: replace the run in `out`.
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
    """
    source, target = Path(directory), Path(out)
    if not source.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(source))
    check_target(target, overwrite, foreign_in_run, "a run")
    fields = _read_json(source / "config.json")
    config = transformers.read_fields(fields, str(source / "config.json"))
    found = _read_tokenizer(source, config) if tokenizer else None
    with _weights(source) as weights, Progress(progress) as report:
        total, done = 4 * n_parameters(config), 0

        def tell(n_bytes: int) -> None:
            nonlocal done
            done += n_bytes
            report("import", done, total)

        ours = _ours(config, weights, str(source))
        with replacing_target(target, overwrite, foreign_in_run, "a run") as run:
            kind = transformers.architecture(config)
            write_config(
                run,
                {
                    "bytemill": __version__,
                    "model": config.to_json(),
                    "imported": {"path": os.path.abspath(source), "architecture": kind},
                },
                found,
            )
            facts = {
                "model": config.to_json(),
                "tokenizer": None if found is None else found.fingerprint,
            }
            write_step(run, 0, ours, None, facts, tell)
    return Import(target, kind, n_parameters(config), found is not None)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_object(path, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.parent}: not a transformers model: it has no {path.name}",
            "give the directory that save_pretrained wrote",
        ) from None


def _read_tokenizer(source: Path, config: ModelConfig) -> Tokenizer:
    path = source / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(
            f"{source}: has no tokenizer.json",
            "tokenizer=False imports the weights alone",
        )
    found = Tokenizer.load(path)
    if found.max_id >= config.vocab_size:
        raise CheckpointError(
            f"{path}: has ids up to {found.max_id}, but the model's vocab_size is "
            f"{config.vocab_size}",
            "tokenizer=False imports the weights alone",
        )
    return found


@contextlib.contextmanager
def _weights(source: Path) -> Iterator[dict[str, Deferred]]:
    """The tensors of a directory, from one file or from shards."""
    if (source / ONE_FILE).is_file():
        names = [ONE_FILE]
    elif (source / INDEX).is_file():
        places = _read_json(source / INDEX).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(p, str) for p in places.values()):
            raise CheckpointError(f"{source / INDEX}: has no weight_map")
        names = sorted(set(places.values()))
        for name in names:
            if Path(name).name != name or not (source / name).is_file():
                raise CheckpointError(f"{source}: the shard {name!r} is missing")
    else:
        pickled = [path.name for kind in PICKLES for path in sorted(source.glob(kind))]
        if pickled:
            raise CheckpointError(
                f"{source}: the weights are pickled ({pickled[0]}), and loading a pickle can run "
                "arbitrary code",
                "if you trust it, convert it to safetensors: model.save_pretrained(directory)",
            )
        raise CheckpointError(f"{source}: has neither {ONE_FILE} nor {INDEX}")
    with contextlib.ExitStack() as stack:
        found: dict[str, Deferred] = {}
        for name in names:
            found |= stack.enter_context(open_tensors(source / name))
        yield found


def _ours(config: ModelConfig, weights: dict[str, Deferred], name: str) -> dict[str, Deferred]:
    """The weights by our names, in our layout."""
    names = transformers.tensor_names(config)
    allowed = set(names.values()) | ({"lm_head.weight"} if config.tie_embeddings else set())
    for theirs in weights:
        if theirs not in allowed and not transformers.IGNORED.fullmatch(theirs):
            raise CheckpointError(
                f"{name}: the model cannot be imported: bytemill has no weight for {theirs}",
                "only models that bytemill can compute exactly are imported",
            )
    for ours, expected in weight_shapes(config):
        theirs = names[ours]
        if theirs not in weights:
            raise CheckpointError(f"{name}: {theirs} is missing", "is a file or a shard missing?")
        if weights[theirs].shape != expected:
            raise CheckpointError(
                f"{name}: {theirs} has shape {weights[theirs].shape}, but config.json implies "
                f"{expected}"
            )
    pairs = transformers.to_pairs(config)
    same: Callable[[Tensor], Tensor] = lambda w: w  # noqa: E731
    return {
        ours: converted(
            weights[theirs], torch.float32, pairs if transformers.is_rotated(ours) else same
        )
        for ours, theirs in names.items()
    }
