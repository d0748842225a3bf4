"""The processes of a Ray cluster.

Ray runs the task of a lost worker again. What a task writes gets its name only when it is complete,
so nothing is counted or written twice.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from .._numbers import size
from ..errors import ConfigError, require
from . import UNIT_SIZE, check_unit_size

__all__ = ["Ray"]

# Maximum retries of a task whose worker was lost.
RETRIES = 5
# Seconds that cancelled tasks get to stop.
STOP_SECONDS = 30
# Tasks submitted per processor; more would only fill the driver's memory.
TASKS_PER_CPU = 4
# Seconds of a wait, after which Ctrl-C is noticed.
WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class Ray:
    """Does the work on a Ray cluster.

    Args:
        address: of the cluster, as `ray.init` takes it (`"auto"`, `"ray://host:10001"`); None for
            the one that this process is connected to, the one that `RAY_ADDRESS` names, or a new
            one on this machine.
        unit_size: approximate bytes of the corpus per task.
        cpus: processors of a new cluster on this machine; None for all.
    """

    address: str | None = None
    _: KW_ONLY
    unit_size: int = UNIT_SIZE
    cpus: int | None = None
    is_local = False
    block_size = None

    def __post_init__(self) -> None:
        check_unit_size(self.unit_size)

    def _connected(self) -> Any:
        ray = require("ray", "the engine ray", extra="ray")
        if not ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
            if self.address is not None:
                options["address"] = self.address
            elif "RAY_ADDRESS" not in os.environ:
                # Without "local", Ray would connect to a cluster already running on this machine.
                options |= {"address": "local", "include_dashboard": False, "num_cpus": self.cpus}
            try:
                ray.init(**options)
            except ConnectionError as error:
                raise ConfigError(
                    f"no Ray cluster at {self.address!r}: {error}",
                    "start one: ray start --head",
                ) from None
        return ray

    @property
    def calls_per_machine(self) -> int:
        return max(int(machine.get("CPU", 1)) for machine in _machines(self._connected()))

    def each(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        done: Callable[[Any], Iterable[Any] | None],
        *,
        shared: tuple[Any, ...] = (),
        cpus: int = 1,
        gpus: int = 0,
        memory: int | None = None,
        store: bool = False,
    ) -> None:
        ray = self._connected()
        _check_memory(ray, memory)
        task = ray.remote(
            num_cpus=cpus, num_gpus=gpus, memory=memory, max_retries=RETRIES, num_returns=2
        )(_call).options(name=function.__name__)
        references = [ray.put(value) for value in shared]
        most = max(int(ray.cluster_resources().get("CPU", 1)) * TASKS_PER_CPU, 2)
        left, further = iter(items), deque[Any]()
        # The reference to the facts of a running task → that to its stored value.
        running: dict[Any, Any] = {}
        n_lost = 0
        try:
            while True:
                while len(running) < most:
                    item = further.popleft() if further else next(left, None)
                    if item is None:
                        break
                    value, facts = task.remote(function, store, *references, item)
                    running[facts] = value
                if not running:
                    break
                finished, _ = ray.wait(list(running), timeout=WAIT_SECONDS, fetch_local=False)
                for reference in finished:
                    value = running.pop(reference)
                    result, lost = _got(ray, reference)
                    n_lost += lost
                    further.extend(done((_InStore(value), result) if store else result) or ())
        except BaseException:
            # Ctrl-C, or a task failed: stop the others.
            _stop(ray, running)
            raise
        _warn_of_losses(n_lost)


@dataclass(frozen=True)
class _InStore:
    """A value in Ray's object store. Ray computes it again if the node that holds it is lost."""

    reference: Any

    def value(self) -> Any:
        import ray

        return ray.get(self.reference)


def _call(function: Callable[..., Any], store: bool, *arguments: Any) -> tuple[Any, Any]:
    """The task: the value to store, and the other results with the number of lost attempts. The
    driver fetches only the second."""
    result = function(*arguments)
    value, facts = result if store else (None, result)
    return value, (facts, _lost_attempts())


def _lost_attempts() -> int:
    """Number of workers that were lost while they ran this task."""
    try:
        from ray._private.worker import global_worker

        # Not a public API; the work does not depend on it.
        return int(global_worker.core_worker.get_current_task_attempt_number())
    except (ImportError, AttributeError):
        return 0


def _machines(ray: Any) -> list[dict[str, float]]:
    """The resources of each node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _check_memory(ray: Any, memory: int | None) -> None:
    most = max(int(machine.get("memory", 0)) for machine in _machines(ray))
    if memory is not None and memory > most:
        raise ConfigError(
            f"memory_limit={size(memory)} applies to each task, and no node of the cluster "
            f"has more than {size(most)} for tasks",
            "use less; without a limit, each task gets its share of its node",
        )


def _got(ray: Any, reference: Any) -> Any:
    """The result of a task; raises its original exception if it failed."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise


def _stop(ray: Any, running: dict[Any, Any]) -> None:
    """Cancels tasks, and waits until they have stopped: they may still write files."""
    for reference in running:
        ray.cancel(reference, force=False)
    if not running:
        return
    stopped, _ = ray.wait(
        list(running), num_returns=len(running), timeout=STOP_SECONDS, fetch_local=False
    )
    # Ray prints errors that are never retrieved, at length.
    for reference in stopped:
        for result in (reference, running[reference]):
            with contextlib.suppress(Exception):
                ray.get(result, timeout=0)


def _warn_of_losses(n_lost: int) -> None:
    if n_lost:
        times = "once" if n_lost == 1 else f"{n_lost:,} times"
        warnings.warn(
            f"workers of the cluster were lost: tasks were restarted {times} in total",
            UserWarning,
            stacklevel=3,
        )
