"""Metrics of a run: JSON lines always; TensorBoard and W&B if they are installed.

`read_metrics` reads them once, `MetricsLog` while they grow.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..._files import naming, replacing
from ..._json import parse_object
from ...errors import CheckpointError, install_command
from ..config import MAX_COUNT

__all__ = ["EVENTS", "METRICS", "Metrics", "MetricsLog", "last_step", "read_metrics"]

METRICS = "metrics.jsonl"
# Bytes at the end of the file in which the last line is looked for.
TAIL = 64 << 10
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
            yield _parsed(line, f"{path}: line {number}")


def _parsed(line: bytes, name: str) -> dict[str, Any]:
    hint = "delete that line"
    fields = parse_object(line, name, CheckpointError, hint)
    for key, value in fields.items():
        if not _fits(key, value):
            raise CheckpointError(f"{name}: damaged: {key} is {value!r:.60}", hint)
    if "step" not in fields:
        raise CheckpointError(f"{name}: damaged: no step in it", hint)
    return {key: value for key, value in fields.items() if value is not None}


class MetricsLog:
    """Reads the metrics of a run while they grow.

    Keeps the positions of the lines, 8 bytes each, not the lines. Not for several threads at once.

    Args:
        run: the directory of the run; its metrics need not exist yet.

    Attributes:
        version: the number of times that the file was replaced: a run that is resumed or trained
            anew replaces it, and line numbers of another version mean nothing.
    """

    def __init__(self, run: str | os.PathLike[str]) -> None:
        self._path = Path(run) / METRICS
        self._starts = array("Q", [0])
        self._file_id: tuple[int, int] | None = None
        self.version = 0

    def rows(self, after: int, max_rows: int) -> list[dict[str, Any]]:
        """At most `max_rows` lines, as `read_metrics` gives them, from line `after` on (0 is the
        first)."""
        self._refresh()
        starts = self._starts
        first = min(max(after, 0), len(starts) - 1)
        end = min(first + max_rows, len(starts) - 1)
        if first == end:
            return []
        with open(self._path, "rb") as file:
            file.seek(starts[first])
            lines = file.read(starts[end] - starts[first]).split(b"\n")[:-1]
        return [
            _parsed(line, f"{self._path}: line {number}")
            for number, line in enumerate(lines, first + 1)
        ]

    def __len__(self) -> int:
        """The number of lines when `rows` was last called."""
        return len(self._starts) - 1

    def _refresh(self) -> None:
        """Finds the lines that were added."""
        try:
            if not self._path.is_file() and self._path.exists():
                raise CheckpointError(f"{self._path}: not a regular file")
            file = open(self._path, "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            self._restart(None)
            return
        with file:
            found = os.fstat(file.fileno())
            file_id = (found.st_dev, found.st_ino)
            if file_id != self._file_id or found.st_size < self._starts[-1]:
                self._restart(file_id)
            file.seek(self._starts[-1])
            for line in file:
                if line.endswith(b"\n"):
                    self._starts.append(self._starts[-1] + len(line))

    def _restart(self, file_id: tuple[int, int] | None) -> None:
        self.version += self._file_id is not None and len(self) > 0
        self._starts = array("Q", [0])
        self._file_id = file_id


def last_step(run: Path) -> int:
    """The largest step in the last lines of the metrics; 0 if there is none."""
    path = run / METRICS
    if not path.is_file():
        return 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL))
        lines = file.read(TAIL).split(b"\n")
    for line in reversed(lines[:-1]):
        # The first may be the end of a line.
        with contextlib.suppress(CheckpointError):
            return int(_parsed(line, str(path))["step"])
    return 0


def _storable(value: Any) -> Any:
    """A value that JSON can represent."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # such as the perplexity of a diverged model
    # A lone surrogate comes from an argument that is not UTF-8.
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


# Larger than any real value; sums and products of two are finite.
LIMITS = {"seconds": 1e12, "memory": 1e18, "base_memory": 1e18, "tokens_per_s": 1e30, "mfu": 1e30}


def _fits(key: str, value: Any) -> bool:
    if key == "step":
        return type(value) is int and 0 <= value <= MAX_COUNT
    if key == "sample":
        return isinstance(value, str)
    if value is None:
        return True
    limit = LIMITS.get(key.removeprefix("predicted_"))
    return type(value) in (int, float) and (limit is None or 0 <= value <= limit)


def _cut(path: Path, first_step: int) -> None:
    kept = [fields for fields in read_metrics(path.parent) if fields["step"] <= first_step]
    with replacing(path) as file:
        file.write("".join(json.dumps(fields) + "\n" for fields in kept).encode())
