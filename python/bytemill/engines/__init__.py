"""Engines run the work: on the threads of this process, or on a cluster.

Counts add up and tokens are those of sources in order, so a cluster needs no algorithm of its own:
workers get (path, byte range or row groups), never text, and give counts or write shards. Both
engines give the same bytes.

    engine="local"               this process (the default)
    engine="ray"                 Ray: the cluster that is there, or one on this machine
    engine=Ray("ray://head:10001")
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ..errors import ConfigError
from .local import Local

if TYPE_CHECKING:
    from .. import _native
    from ..corpus.argument import Corpus
    from ..corpus.places import Entry
    from ..progress import ProgressCallback
    from .on_ray import Ray

__all__ = ["Engine", "EngineLike", "Local", "Ray", "chosen"]


class Engine(Protocol):
    """Counts a corpus, and calls functions."""

    def count(
        self,
        counts: _native.Counts,
        corpus: Corpus,
        memory_limit: int | str | None,
        spill_dir: str | os.PathLike[str] | None,
        report: ProgressCallback,
    ) -> object:
        """Adds the counts of a corpus to `counts`, which keep to the limit themselves; what is
        given back must live as long as they."""

    def count_to(
        self,
        counts: _native.Counts,
        corpus: Corpus,
        entries: list[Entry],
        directory: Path,
        threads: int | None,
        memory_limit: int | str | None,
        report: ProgressCallback,
    ) -> Path:
        """Counts a corpus into a file in a directory, resuming work there; returns its path."""

    @property
    def is_local(self) -> bool:
        """Whether all calls run in this process, one after another."""

    @property
    def unit_size(self) -> int:
        """Approximate bytes of the corpus encoded per call."""

    @property
    def block_size(self) -> int | None:
        """Bytes of text that a thread encodes at a time; None for the default."""

    def each(
        self,
        function: Callable[..., Any],
        items: list[Any],
        done: Callable[[Any], None],
        *,
        shared: tuple[Any, ...] = (),
        cpus: int = 1,
        gpus: int = 0,
    ) -> None:
        """Calls a function for each item, in any order, and passes the results to `done`.

        Args:
            function: called with the values of `shared` and an item.
            items: one for each call.
            done: called in this process.
            shared: sent to every machine once.
            cpus: processors of a call.
            gpus: likewise.
        """


EngineLike: TypeAlias = "Literal['local', 'ray'] | Engine"


def chosen(engine: str | Engine) -> Engine:
    """The engine for an `engine=` argument."""
    if not isinstance(engine, str):
        return engine
    if engine == "local":
        return Local()
    if engine == "ray":
        from .on_ray import Ray

        return Ray()
    raise ConfigError(f"engine must be 'local' or 'ray', got {engine!r}")


def __getattr__(name: str) -> Any:
    # Ray takes a second to import, and is optional.
    if name == "Ray":
        from .on_ray import Ray

        return Ray
    raise AttributeError(name)
