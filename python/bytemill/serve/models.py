"""Models in memory: loaded on first use; the least recently used is dropped for another.

A model that generates is never dropped: if all of them do, a request for another one gets a 429.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import lm
from .replies import Refusal
from .worker import ModelWorker, busy

if TYPE_CHECKING:
    from .found import RunEntry
    from .state import State

__all__ = ["Models", "checkpoint_of", "models_of"]


@dataclass
class _LoadedModel:
    worker: ModelWorker
    # Handlers that are about to submit a request.
    n_users: int = 0


class Models:
    """The models of a server; belongs to its event loop."""

    def __init__(self, state: State) -> None:
        self._settings = state.settings
        self._loaded: OrderedDict[object, _LoadedModel] = OrderedDict()
        self._loading = asyncio.Lock()
        state.at_exit.append(self.close)

    @contextlib.asynccontextmanager
    async def use(self, run: RunEntry, step: str | int = "best") -> AsyncIterator[ModelWorker]:
        """The worker of a checkpoint, which stays loaded meanwhile."""
        number = checkpoint_of(run, step)
        # A run that was replaced has another config file.
        try:
            stamp = os.stat(run.path / "config.json")
        except OSError as error:
            raise Refusal(404, f"{run.name}: {error.strerror or error}") from None
        key = (run.path, number, stamp.st_ino, stamp.st_mtime_ns)
        async with self._loading:
            loaded = self._loaded.get(key)
            if loaded is not None and not loaded.worker.is_usable:
                del self._loaded[key]
                loaded = None
            if loaded is None:
                await self._make_room()
                worker = await asyncio.to_thread(self._load, run, number)
                loaded = self._loaded[key] = _LoadedModel(worker)
            self._loaded.move_to_end(key)
            loaded.n_users += 1
        try:
            yield loaded.worker
        finally:
            loaded.n_users -= 1

    async def _make_room(self) -> None:
        while len(self._loaded) >= max(1, self._settings.max_models):
            idle = (
                key
                for key, loaded in self._loaded.items()
                if loaded.worker.is_idle and not loaded.n_users
            )
            oldest = next(idle, None)
            if oldest is None:
                raise busy("all models in memory are generating")
            worker = self._loaded.pop(oldest).worker
            await asyncio.to_thread(worker.close)

    def _load(self, run: RunEntry, number: int) -> ModelWorker:
        settings = self._settings
        try:
            model, tokenizer = lm.load(run.path, step=number, device=settings.device)
        except OSError as error:
            raise Refusal(404, f"{run.name}: {error.strerror or error}") from None
        if tokenizer is None:
            raise Refusal(400, f"{run.name} has no tokenizer, so it cannot write text")
        return ModelWorker(
            model, tokenizer, max_batch=settings.max_batch, max_queue=settings.max_queue
        )

    def close(self) -> None:
        """Ends all workers."""
        while self._loaded:
            self._loaded.popitem()[1].worker.close()


def checkpoint_of(run: RunEntry, step: str | int) -> int:
    """The step of a checkpoint: `best` by evaluation (else the last), `last`, or a number."""
    known = run.state.checkpoints
    if not known:
        raise Refusal(404, f"{run.name} has no checkpoint yet", "try again later")
    if step == "best":
        return known[-1] if run.state.best not in known else int(run.state.best or 0)
    if step == "last":
        return known[-1]
    # Compared as text: `int` refuses thousands of digits.
    number = next((each for each in known if str(each) == str(step)[:30]), None)
    if number is None:
        raise Refusal(
            404,
            f"{run.name} has no checkpoint {str(step)[:30]!r}",
            f"it has best, last, {', '.join(map(str, known[:20]))}",
        )
    return number


def models_of(state: State) -> Models:
    """The models of a server, the same for all its handlers."""
    if state.models is None:
        state.models = Models(state)
    return state.models
