"""Tasks of Ray that run: starting them, waiting for them, stopping them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["RETRIES", "complete", "finished", "forget", "got", "stop", "tell_of_losses"]

Work = TypeVar("Work")

# Maximum retries of a task whose worker was lost.
RETRIES = 5
# Seconds that cancelled tasks get to stop.
PATIENCE = 30
# Tasks that wait for a processor; more would only fill the driver's memory.
WAITING_PER_CPU = 4


def complete(
    ray: Any,
    work: Iterable[Work],
    start: Callable[[Work], Any],
    each: Callable[[Any, Work], None],
) -> None:
    """Starts tasks, a few more than there are processors; `each` gets those that are done."""
    running: dict[Any, Work] = {}
    left = iter(work)
    most = max(int(ray.cluster_resources().get("CPU", 1)) * WAITING_PER_CPU, 2)
    over = False
    try:
        while not over or running:
            while not over and len(running) < most:
                item = next(left, None)
                over = item is None
                if item is not None:
                    running[start(item)] = item
            for reference in finished(ray, running, 1):
                each(reference, running.pop(reference))
    except BaseException:
        # Ctrl-C, or a task failed: stop the others.
        stop(ray, list(running))
        raise


def finished(ray: Any, running: dict[Any, Any], at_least: int) -> list[Any]:
    """Finished tasks, after waiting for at least `at_least`."""
    done: list[Any] = []
    while running:
        # Short waits: Ctrl-C should not have to wait for a task.
        n, timeout = (at_least, 0.1) if at_least else (len(running), 0)
        done, _ = ray.wait(list(running), num_returns=n, timeout=timeout, fetch_local=False)
        if len(done) >= at_least:
            break
    return done


def stop(ray: Any, running: list[Any]) -> None:
    """Stops tasks, and waits until they have stopped."""
    for reference in running:
        ray.cancel(reference, force=False)
    if running:
        # Until then they may still write where the next run would.
        done, _ = ray.wait(running, num_returns=len(running), timeout=PATIENCE, fetch_local=False)
        forget(ray, done)


def forget(ray: Any, done: Iterable[Any]) -> None:
    """Retrieves the errors of failed tasks, which Ray would otherwise print at length."""
    for reference in done:
        with contextlib.suppress(Exception):
            ray.get(reference, timeout=0)


def got(ray: Any, reference: Any) -> Any:
    """The result of a task; raises its original exception if it failed."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise


def tell_of_losses(n_begun_again: int) -> None:
    """Warns that Ray restarted tasks because their workers were lost."""
    if n_begun_again:
        times = "once" if n_begun_again == 1 else f"{n_begun_again:,} times"
        warnings.warn(
            f"workers of the cluster were lost: tasks were restarted {times} in total",
            UserWarning,
            stacklevel=2,
        )
