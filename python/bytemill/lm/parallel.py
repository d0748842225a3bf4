"""Several processes as one run: ranks, their connection, and a model that they share.

`torchrun` sets the environment; a process without it is a world of one rank. Ranks communicate by
gloo on CPUs and by NCCL on GPUs. When a rank dies, its connections close; the next exchange of the
others fails at once and is reported as a lost rank.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import ConfigError, TrainingError
from .model import TransformerLM

__all__ = ["World", "joined", "local_rank", "local_size", "ranks_of_environment"]

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# Long enough for the first rank to write a large checkpoint while the others wait.
EXCHANGE_TIMEOUT = datetime.timedelta(minutes=30)
# Connecting takes seconds; a rank that has not connected by then is missing.
CONNECT_TIMEOUT = datetime.timedelta(seconds=int(os.environ.get("BYTEMILL_MEETING_SECONDS", "120")))


def ranks_of_environment() -> tuple[int, int]:
    """(rank, number of ranks) as torchrun sets them; (0, 1) without it."""
    if "WORLD_SIZE" not in os.environ and "RANK" not in os.environ:
        return 0, 1
    missing = [name for name in NAMES if not os.environ.get(name)]
    if missing:
        raise ConfigError(
            f"this process is one of several ranks, but {', '.join(missing)} is not set",
            "start with torchrun: torchrun --nproc-per-node 2 -m bytemill train …",
        )
    numbers = {}
    for name in NAMES:
        if name == "MASTER_ADDR":
            continue
        try:
            numbers[name] = int(os.environ[name])
        except ValueError:
            raise ConfigError(f"{name}={os.environ[name]!r} is not a number") from None
    rank, size = numbers["RANK"], numbers["WORLD_SIZE"]
    if not 0 <= rank < size:
        raise ConfigError(f"RANK must be < WORLD_SIZE={size}, got {rank}")
    return rank, size


def local_rank() -> int:
    """The number of this rank on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_size() -> int:
    """Number of ranks on this machine."""
    found = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(found)) if found.isdecimal() else 1


@dataclass(frozen=True)
class World:
    """The ranks of a run.

    Attributes:
        rank: the number of this rank.
        size: the number of ranks.
        device: the device of this rank.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files and reports progress."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """The sums over all ranks."""
        if self.size == 1:
            return values
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        tensor = torch.tensor(values, dtype=kind, device=self.device)
        dist.all_reduce(tensor)
        return list(tensor.tolist())

    def wait(self) -> None:
        """Waits for all ranks."""
        if self.size > 1:
            self.sum([0.0])

    def check_same(self, what: str, value: str) -> None:
        """Raises if the ranks have different values."""
        if self.size == 1:
            return
        number = float(zlib.crc32(value.encode()))
        mean = self.sum([number])[0] / self.size
        differs = self.sum([float(abs(mean - number) > 0.5)])[0]
        if differs:
            raise ConfigError(
                f"rank {self.rank}: the ranks disagree on {what}",
                "start all of them with the same command and the same files",
            )

    # --- the model ----------------------------------------------------------------------------

    def shared(self, model: TransformerLM, parallel: str) -> nn.Module:
        """The model as all ranks train it together."""
        if self.size == 1:
            return model
        if parallel == "fsdp":
            return self._sharded(model)
        ids = [self.device.index] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=ids)

    def _sharded(self, model: TransformerLM) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.size,))
        for block in model.layers:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    def put_back(self, model: nn.Module) -> None:
        """Reshards the weights that a forward pass without backward left gathered."""
        for module in model.modules():
            reshard: Any = getattr(module, "reshard", None)
            if reshard is not None:
                reshard()

    @contextlib.contextmanager
    def accumulating(self, model: nn.Module, last: bool) -> Iterator[None]:
        """Exchanges gradients only in the last of several backward passes."""
        if isinstance(model, nn.parallel.DistributedDataParallel):
            with contextlib.nullcontext() if last else model.no_sync():
                yield
            return
        sync: Any = getattr(model, "set_requires_gradient_sync", None)
        if sync is not None:
            sync(last)
        yield


@contextlib.contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """The world of this process: connects to the other ranks, and disconnects at the end."""
    rank, size = ranks_of_environment()
    if size == 1:
        yield World(0, 1, device)
        return
    if device.type == "mps":
        raise ConfigError("several ranks cannot share a run on Apple GPUs", "use device='cpu'")
    backend = "nccl" if device.type == "cuda" else "gloo"
    _check_device(device)
    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        dist.init_process_group(backend, timeout=CONNECT_TIMEOUT, **_device_id(device))
        world = World(rank, size, device)
        if world.sum([1.0])[0] != size:
            raise TrainingError(f"rank {rank}: not all of the {size} ranks responded")
        _set_timeout()
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"rank {rank} of {size} cannot reach the others at {where} by {backend}: "
            f"{_first_line(error)}",
            "check that all ranks were started and that no firewall blocks them; "
            "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names the network to use",
        ) from None
    try:
        yield world
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        raise TrainingError(
            f"rank {rank}: lost the connection to another rank: {_first_line(error)}",
            "see that rank's error above; resume=True continues the run",
        ) from None
    finally:
        # A wrapped model in a reference cycle would keep the threads of the group alive until the
        # process exits, which then aborts.
        gc.collect()
        # Without waiting for the others: if one is dead, that would hang.
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


def _set_timeout() -> None:
    # Public since torch 2.14 or so; the older name does the same.
    change: Any = getattr(dist, "set_timeout", None)
    if change is None:
        change = getattr(dist.distributed_c10d, "_set_pg_timeout", None)
    if change is not None:
        change(EXCHANGE_TIMEOUT, dist.group.WORLD)


def _device_id(device: torch.device) -> dict[str, Any]:
    return {"device_id": device} if device.type == "cuda" else {}


def _check_device(device: torch.device) -> None:
    if device.type == "cuda":
        n = torch.cuda.device_count()
        if local_rank() >= n:
            raise ConfigError(
                f"local rank {local_rank()}, but this machine has {n} GPUs",
                f"use torchrun --nproc-per-node {n}",
            )
        torch.cuda.set_device(device)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _is_lost_connection(error: BaseException) -> bool:
    if isinstance(error, dist.DistError):
        return True
    text = str(error).lower()
    words = ("connection closed", "connection reset", "connection refused", "gloo", "nccl")
    return any(word in text for word in (*words, "broken pipe", "timed out"))


# --- sharded tensors ----------------------------------------------------------------------------


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor; if it is sharded, all ranks must call this."""
    value = tensor.detach()
    full = getattr(value, "full_tensor", None)  # of a DTensor
    return value if full is None else full()


def like(source: Tensor, target: Tensor) -> Tensor:
    """`source` on the device of `target`, sharded as `target` is."""
    mesh = getattr(target, "device_mesh", None)
    if mesh is None:
        return source.to(target.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(source.to(target.device), mesh, target.placements)  # type: ignore[attr-defined]
