"""Metrics of a run: JSON lines always; TensorBoard and W&B if they are installed."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..._files import naming, replacing
from ..._json import parse_object
from ...errors import CheckpointError, install_command

__all__ = ["EVENTS", "METRICS", "Metrics", "read_metrics"]

METRICS = "metrics.jsonl"
EVENTS = "events"


class Metrics:
    """Writes the metrics of a run.

    Args:
        run: its directory.
        first_step: steps done; lines of later steps, from an interrupted run, are removed.
        tensorboard: also write event files, if possible.
        wandb: also log to Weights & Biases, offline, if possible.
    """

    def __init__(
        self, run: Path, first_step: int, *, tensorboard: bool = False, wandb: bool = False
    ) -> None:
        self.notes: list[str] = []
        self._path, self._events = run / METRICS, run / EVENTS
        self._quiet = contextlib.ExitStack()
        if self._path.exists():
            _cut(self._path, first_step)
        # Unbuffered: a failed write is noticed at once.
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._board = self._open_board(run, first_step) if tensorboard else None
        self._wandb = self._open_wandb(run) if wandb else None

    def _open_board(self, run: Path, first_step: int) -> Any:
        try:
            module = importlib.import_module("torch.utils.tensorboard")
        except ImportError:
            self.notes.append(f"no event files: {install_command('tensorboard')}")
            return None
        self._quiet.enter_context(_quiet_threads_of("tensorboard."))
        with naming(self._events):
            return module.SummaryWriter(str(self._events), purge_step=first_step or None)

    def _open_wandb(self, run: Path) -> Any:
        try:
            wandb = importlib.import_module("wandb")
        except ImportError:
            self.notes.append("no Weights & Biases log: pip install wandb")
            return None
        os.environ.setdefault("WANDB_SILENT", "true")
        return wandb.init(project="bytemill", name=run.name, dir=str(run), mode="offline")

    def write(self, **fields: Any) -> None:
        """Adds a line; `step` must be among the fields."""
        fields = {key: _storable(value) for key, value in fields.items()}
        self._append((json.dumps(fields) + "\n").encode())
        step = fields["step"]
        numbers = {k: v for k, v in fields.items() if isinstance(v, (int, float)) and k != "step"}
        if self._board is not None:
            with naming(self._events):
                for name, value in numbers.items():
                    self._board.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def _append(self, line: bytes) -> None:
        """Adds a whole line or, on a full disk, nothing."""
        size = os.fstat(self._file.fileno()).st_size
        try:
            with naming(self._path):
                while line:
                    line = line[self._file.write(line) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), size)
            raise

    def close(self) -> None:
        self._file.close()
        with self._quiet:
            if self._wandb is not None:
                self._wandb.finish()
            if self._board is not None:
                with naming(self._events):
                    self._board.close()


@contextlib.contextmanager
def _quiet_threads_of(package: str) -> Iterator[None]:
    """Suppresses the tracebacks of failing threads of a package.

    TensorBoard writes in a thread, and raises the error of that thread at the next call.
    """
    before = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        if not type(failed.thread).__module__.startswith(package):
            before(failed)

    threading.excepthook = hook
    try:
        yield
    finally:
        if threading.excepthook is hook:
            threading.excepthook = before


def read_metrics(run: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run, without null fields; an unfinished last line is skipped.

    Raises a `CheckpointError` for any other damaged line.
    """
    path = run / METRICS
    if not path.is_file() and path.exists():
        raise CheckpointError(f"{path}: not a regular file")
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            name, hint = f"{path}: line {number}", "delete that line"
            fields = parse_object(line, name, CheckpointError, hint)
            for key, value in fields.items():
                if not _fits(key, value):
                    raise CheckpointError(f"{name}: damaged: {key} is {value!r:.60}", hint)
            if "step" not in fields:
                raise CheckpointError(f"{name}: damaged: no step in it", hint)
            yield {key: value for key, value in fields.items() if value is not None}


def _storable(value: Any) -> Any:
    """A value that JSON can represent."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # such as the perplexity of a diverged model
    # A lone surrogate comes from an argument that is not UTF-8.
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _fits(key: str, value: Any) -> bool:
    if key == "step":
        return type(value) is int and value >= 0
    if key == "sample":
        return isinstance(value, str)
    return value is None or type(value) in (int, float)


def _cut(path: Path, first_step: int) -> None:
    kept = [fields for fields in read_metrics(path.parent) if fields["step"] <= first_step]
    with replacing(path) as file:
        file.write("".join(json.dumps(fields) + "\n" for fields in kept).encode())
