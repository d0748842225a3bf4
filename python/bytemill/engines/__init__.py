"""Engines: executors that call functions, in this process or on a cluster.

Counts add up and tokens follow the order of their sources, so a cluster needs no algorithm of its
own. Workers get a path and a byte range or row groups, never text; they return counts or write
files. Both engines give the same bytes.

    engine="local"                     this process (the default)
    engine="ray"                       the running Ray cluster, or a new one on this machine
    engine=Ray("ray://head:10001")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ..errors import ConfigError

if TYPE_CHECKING:
    from .on_ray import Ray

__all__ = ["Engine", "EngineLike", "Local", "Ray", "Stored", "as_engine"]

# Bytes of the corpus per unit of work. Large units cost less per byte; small ones lose less work
# when a process is killed, and spread more evenly over a cluster.
UNIT_SIZE = 256_000_000


class Stored(Protocol):
    """A result that stays where it was computed until it is needed."""

    def value(self) -> Any:
        """The result, in the process that calls this."""


class Engine(Protocol):
    """Calls functions."""

    @property
    def is_local(self) -> bool:
        """Whether all calls run in this process, one after another."""

    @property
    def unit_size(self) -> int:
        """Approximate bytes of the corpus per unit of work."""

    @property
    def block_size(self) -> int | None:
        """Bytes of text that a thread encodes at a time; None for the default."""

    @property
    def calls_per_machine(self) -> int:
        """Calls with one processor each that run on a machine at the same time."""

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
        """Calls a function for each item, in any order, and passes the results to `done`.

        A call may run more than once, if a worker is lost.

        Args:
            function: called with the values of `shared` and an item.
            items: one for each call.
            done: called in this process; may return further items.
            shared: sent to every machine once.
            cpus: processors per call.
            gpus: GPUs per call.
            memory: bytes of memory to reserve per call; None for no reservation.
            store: the function returns a pair whose first value stays where it was computed:
                `done` gets a `Stored` in its place, which may be part of further items.
        """


EngineLike: TypeAlias = Engine | Literal["local", "ray"]


@dataclass(frozen=True, kw_only=True)
class Local:
    """Does the work in this process.

    Args:
        unit_size: bytes of the corpus after which finished work is saved.
        block_size: bytes of text that a thread encodes at a time; None for the default.

    Attributes:
        is_local: calls run in this process, in order.
        calls_per_machine: one at a time.
    """

    unit_size: int = UNIT_SIZE
    block_size: int | None = None
    is_local = True
    calls_per_machine = 1

    def __post_init__(self) -> None:
        check_unit_size(self.unit_size)

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
        for item in items:
            result = function(*shared, item)
            further = done((_Here(result[0]), result[1]) if store else result)
            if further:
                self.each(function, further, done, shared=shared, store=store)


@dataclass(frozen=True)
class _Here:
    held: Any

    def value(self) -> Any:
        return self.held


def check_unit_size(unit_size: int) -> None:
    """Raises a ConfigError unless `unit_size` is at least 1."""
    if unit_size < 1:
        raise ConfigError(f"unit_size must be ≥ 1, got {unit_size}")


def as_engine(engine: EngineLike) -> Engine:
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
