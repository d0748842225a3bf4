"""Tokens → batches, in an order that depends only on the seed and the step.

The tokens are cut into windows of `context_length` + 1 tokens. An epoch visits all windows in the
order of a keyed permutation, which is computed, not stored: any position of it takes constant time.
So a run can resume at any step, on any number of ranks, and memory does not grow with the corpus.
Each epoch has its own order and its own window boundaries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..errors import ConfigError, TokensError
from .config_checks import check_seed

__all__ = [
    "TokenArray",
    "Windows",
    "check_ids",
    "check_length",
    "fixed_windows",
    "get_batch",
    "permuted",
    "take_windows",
]

Array = npt.NDArray[Any]


class TokenArray(Protocol):
    """Ids in order: a numpy array, a memory map, or `bytemill.Tokens`."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> Array: ...


def get_batch(
    tokens: TokenArray | Iterable[int],
    batch_size: int,
    context_length: int,
    device: torch.device | str | None = None,
    *,
    generator: np.random.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Random windows: ids (B, T) and their targets (B, T), the ids that follow."""
    array: Any = tokens if hasattr(tokens, "__getitem__") else np.fromiter(tokens, np.int64)
    n_places = len(array) - context_length
    check_length(len(array), context_length)
    draws = generator or np.random.default_rng()
    return _pairs(
        take_windows(array, draws.integers(0, n_places, batch_size), context_length), device
    )


class Windows:
    """The windows of tokens in the order of training.

    Args:
        tokens: the ids.
        context_length: T.
        seed: seed of the order.
        vocab_size: ids must be below this; None for no limit.
    """

    def __init__(
        self,
        tokens: TokenArray,
        context_length: int,
        *,
        seed: int = 0,
        vocab_size: int | None = None,
    ) -> None:
        check_length(len(tokens), context_length)
        self.tokens, self.context_length, self.seed = tokens, context_length, check_seed(seed)
        self.vocab_size = vocab_size
        # One window fewer than would fit, if possible, so that each epoch can start at another
        # offset.
        self.per_epoch = max(1, (len(tokens) - 1) // context_length - 1)
        self._slack = len(tokens) - 1 - self.per_epoch * context_length

    def starts(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Start offsets of the windows number `first` to `first + count - 1` of the run."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        epochs, places = np.divmod(numbers, self.per_epoch)
        starts = np.empty(count, np.int64)
        for epoch in np.unique(epochs).tolist():
            these = epochs == epoch
            key = mixed(np.uint64(self.seed), np.uint64(epoch))
            shift = int(mixed(key, np.uint64(1))) % (self._slack + 1)
            order = permuted(places[these], self.per_epoch, int(key))
            starts[these] = order * self.context_length + shift
        return starts

    def batch(
        self,
        step: int,
        batch_size: int,
        *,
        device: torch.device | str | None = None,
        rows: range | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The batch of a step, or some of its rows: ids and targets, (B, T) each."""
        rows = range(batch_size) if rows is None else rows
        starts = self.starts(step * batch_size + rows.start, len(rows))
        windows = take_windows(self.tokens, starts, self.context_length, self.vocab_size)
        return _pairs(windows, device)


def fixed_windows(tokens: TokenArray, context_length: int, count: int) -> npt.NDArray[np.int64]:
    """Start offsets of at most `count` windows, evenly spaced, that do not overlap."""
    check_length(len(tokens), context_length)
    fitting = (len(tokens) - 1) // context_length
    return (
        np.linspace(0, fitting - 1, min(count, fitting)).round().astype(np.int64) * context_length
    )


def take_windows(
    tokens: TokenArray, starts: Array, context_length: int, vocab_size: int | None = None
) -> npt.NDArray[np.int64]:
    """The windows at these offsets, a context and one more id each: (B, T + 1)."""
    windows = np.empty((len(starts), context_length + 1), np.int64)
    for window, start in zip(windows, starts.tolist()):
        window[:] = tokens[start : start + context_length + 1]
    check_ids(windows, starts, vocab_size)
    return windows


def check_ids(windows: npt.NDArray[np.int64], starts: Array, vocab_size: int | None) -> None:
    """Raises a TokensError if an id is out of range; `starts` are the offsets of the windows.

    64-bit unsigned ids that do not fit are negative here.
    """
    limit = np.iinfo(np.int64).max if vocab_size is None else vocab_size
    if windows.size and (int(windows.min()) < 0 or int(windows.max()) >= limit):
        row, column = np.argwhere((windows < 0) | (windows >= limit))[0]
        id, place = int(windows[row, column]), int(starts[row]) + int(column)
        rule = "is negative" if id < 0 else f"is not below vocab_size={vocab_size}"
        labels = "labels with padding (-100), " if id < 0 else ""
        raise TokensError(
            f"id {id} at token {place} {rule}",
            f"the tokens are {labels}from another tokenizer, of another dtype, or damaged",
        )


def _pairs(
    windows: npt.NDArray[np.int64], device: torch.device | str | None
) -> tuple[Tensor, Tensor]:
    ids = torch.from_numpy(windows)
    if device is not None and torch.device(device).type == "cuda":
        ids = ids.pin_memory().to(device, non_blocking=True)
    elif device is not None:
        ids = ids.to(device)
    return ids[:, :-1], ids[:, 1:]


def check_length(n_tokens: int, context_length: int) -> None:
    """Raises if there are too few tokens for a context and one more."""
    if context_length < 1:
        raise ConfigError(f"context_length must be ≥ 1, got {context_length}")
    if n_tokens <= context_length:
        raise TokensError(
            f"a context of {context_length:,} needs at least {context_length + 1:,} tokens, "
            f"got {n_tokens:,}",
            "encode more text, or use a shorter context_length=",
        )


# --- the order of windows ------------------------------------------------------------------------


def mixed(x: Any, y: Any) -> Any:
    """64 bits that depend on every bit of both (the finalizer of splitmix64)."""
    with np.errstate(over="ignore"):
        z = (x ^ (y * np.uint64(0x9E3779B97F4A7C15))) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def permuted(places: Array, n: int, key: int) -> npt.NDArray[np.int64]:
    """The images of these places under a permutation of 0 … n-1, chosen by `key`.

    A Feistel network over the next power of four, applied until the result is below n: at most four
    times on average, and without a table.

    >>> sorted(permuted(np.arange(10), 10, key=7).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = [mixed(np.uint64(key), np.uint64(round_ + 2)) for round_ in range(4)]
    result = np.asarray(places).astype(np.uint64)
    outside = np.ones(result.shape, bool)
    while outside.any():
        left, right = result[outside] >> half, result[outside] & mask
        for round_key in keys:
            left, right = right, left ^ (mixed(right, round_key) & mask)
        result[outside] = (left << half) | right
        outside = result >= n
    return result.astype(np.int64)
