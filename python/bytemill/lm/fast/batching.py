"""Continuous batching: samples that are decoded together and join and leave at any step.

    prompt ─► read into a row of the cache ─► logits ─► sampler ─► id ─► step of all rows ─► …

A step of a small model waits for its weights from memory, so eight samples together take little
longer than one. Each sample has a row of the cache and its own position in it. Prompts are read by
the model itself, in pieces, so that a long prompt does not hold up the others. Equal prompts that
join together are read once. When a context is full, its second half is read again, as in
`id_steps`.

With the native step, and for prompts of at most one piece, the ids of a sample are those of
`generate_ids` with the same seed, whatever the other samples are. The step in torch, for other
models and devices, computes the same up to rounding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..._native import LMDecoder
from ...errors import ConfigError
from ..generate import Sampler, Sampling, as_prompt, check_prompt
from ..model import KVCache, LayerCache, TransformerLM
from .decode import can_run, decoder_arguments

__all__ = ["BatchSample", "DecodeBatch"]

# Ids of a prompt that are read between two steps.
PIECE = 256


# --- ids at their own positions → logits --------------------------------------------------------


class _RowStep:
    """Reads ids into rows of a cache, in torch.

    Args:
        model: the model.
        n_rows: samples that the cache has room for.
    """

    def __init__(self, model: TransformerLM, n_rows: int) -> None:
        self.model = model
        self.memory = self._new_memory(n_rows)

    def _new_memory(self, n_rows: int) -> Tensor:
        return self.model.new_cache(n_rows).memory

    def read(self, row: int, ids: Sequence[int], position: int) -> Tensor:
        """Reads ids into a row from this position on; returns the logits of the next id, (1, V)."""
        cache = KVCache(self.memory[:, :, row : row + 1])
        cache.set_length(position)
        hidden = self.model.hidden(self._tensor([ids]), cache)
        return self.model.logits(hidden[:, -1])

    def copy(self, row: int, other: int, n: int) -> None:
        """Copies the first n positions of a row to another row."""
        self.memory[:, :, other, :, :n] = self.memory[:, :, row, :, :n]

    def step(self, ids: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> Tensor:
        """Reads an id into each of these rows, which increase; returns next logits (ids, V)."""
        cache = _RowsCache(self.memory, self._tensor(rows), self._tensor(positions))
        hidden = self.model.hidden(self._tensor(ids).unsqueeze(-1), cache)
        return self.model.logits(hidden[:, -1])

    def _tensor(self, numbers: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self.model.device)


class _NativeRowStep(_RowStep):
    """Single ids are read by the native step."""

    def __init__(self, model: TransformerLM, n_rows: int) -> None:
        super().__init__(model, n_rows)
        self._decoder = LMDecoder(**decoder_arguments(model, KVCache(self.memory)))

    def _new_memory(self, n_rows: int) -> Tensor:
        # numpy's zeros, unlike torch's, take memory only when they are first written: few samples
        # at a time use few rows.
        layers, two, _, *rest = self.model.new_cache(0).memory.shape
        return torch.from_numpy(np.zeros((layers, two, n_rows, *rest), np.float32))

    def step(self, ids: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> Tensor:
        return torch.from_numpy(self._decoder.step(ids, rows, positions))


class _RowsLayer(LayerCache):
    """One layer of `_RowsCache`."""

    def __init__(self, keys: Tensor, values: Tensor, rows: Tensor, positions: Tensor) -> None:
        super().__init__(keys, values)
        self._rows, self._positions = rows, positions
        self.length = int(positions.max())

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[self._rows, :, self._positions] = key.squeeze(-2).detach()
        self.values[self._rows, :, self._positions] = value.squeeze(-2).detach()
        n = self.length + 1
        return self.keys[self._rows, :, :n], self.values[self._rows, :, :n]

    def positions(self, n_new: int) -> Tensor:
        return self._positions.unsqueeze(-1)

    def mask(self, n_new: int) -> Tensor | None:
        at = torch.arange(self.length + 1, device=self.keys.device)
        return (at <= self._positions.unsqueeze(-1))[:, None, None]


class _RowsCache(KVCache):
    """Some rows of a cache for one step, each at its own position."""

    def __init__(self, memory: Tensor, rows: Tensor, positions: Tensor) -> None:
        super().__init__(memory)
        self.layers = [_RowsLayer(keys, values, rows, positions) for keys, values in memory]


# --- samples ------------------------------------------------------------------------------------


@dataclass(eq=False)
class BatchSample:
    """A sample in a batch.

    Attributes:
        ids: the prompt and the ids chosen so far.
        row: its row of the cache.
        max_tokens: ids still to be chosen.
    """

    ids: list[int]
    row: int
    max_tokens: int
    _sampler: Sampler = field(repr=False)
    # What is to be read, and how much of it is in the cache: a context, then one id after another.
    _context: list[int] = field(repr=False)
    _n_read: int = 0


class DecodeBatch:
    """Samples of one model, decoded together. All calls must come from one thread.

    >>> from bytemill.lm import ModelConfig, Sampling, TransformerLM
    >>> config = ModelConfig(
    ...     vocab_size=300, context_length=16, d_model=32, num_layers=2, num_heads=4
    ... )
    >>> batch = DecodeBatch(TransformerLM(config), 2)
    >>> sample = batch.join([1, 2, 3], Sampling(temperature=0), max_tokens=5)
    >>> while batch.samples:
    ...     new = batch.step()
    >>> len(sample.ids)
    8

    Args:
        model: the model.
        size: maximum number of samples at a time.
    """

    def __init__(self, model: TransformerLM, size: int) -> None:
        if size < 1:
            raise ConfigError(f"size must be ≥ 1, got {size}")
        self.model = model
        self._step: _RowStep = (_NativeRowStep if can_run(model) else _RowStep)(model, size)
        self._free = list(range(size))
        self._reading: deque[BatchSample] = deque()  # contexts
        self._ready: list[BatchSample] = []  # one id to read

    @property
    def samples(self) -> list[BatchSample]:
        """Those in the batch."""
        return [*self._reading, *self._ready]

    @property
    def n_free(self) -> int:
        """How many samples can join."""
        return len(self._free)

    def join(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        max_tokens: int,
        *,
        number: int = 0,
        n_ids: int | None = None,
    ) -> BatchSample:
        """Adds a sample; its first id comes with one of the next steps.

        Args:
            ids: the prompt.
            sampling: how ids are chosen.
            max_tokens: the sample leaves by itself after this number of ids.
            number: the number of the sample among those with the same seed.
            n_ids: ids from this one on are never chosen; None for all ids.
        """
        if not self._free:
            raise ConfigError("the batch is full", "call step() until a sample leaves")
        prompt = as_prompt(ids)
        check_prompt(self.model, prompt, max_tokens, 1)
        device = self.model.device
        sampler = Sampler(sampling, 1, max_tokens, device, number, n_ids)
        sampler.observe(prompt.to(device).unsqueeze(0), self.model.config.vocab_size)
        known = prompt.tolist()
        # Low rows first: the rows of a step are near each other.
        row = min(self._free)
        self._free.remove(row)
        sample = BatchSample(known.copy(), row, max_tokens, sampler, known)
        self._reading.append(sample)
        return sample

    def leave(self, sample: BatchSample) -> None:
        """Removes a sample; one that has left already is ignored."""
        for group in (self._reading, self._ready):
            if sample in group:
                group.remove(sample)
                self._free.append(sample.row)

    @torch.inference_mode()
    def step(self) -> list[tuple[BatchSample, int, Tensor]]:
        """The next id of each sample that is ready, and the logits (V,) that it was chosen from."""
        chosen = []
        if self._ready:
            samples, self._ready = sorted(self._ready, key=lambda sample: sample.row), []
            logits = self._step.step(
                [sample.ids[-1] for sample in samples],
                [sample.row for sample in samples],
                [sample._n_read for sample in samples],
            )
            for number, sample in enumerate(samples):
                sample._n_read += 1
                chosen.append(self._choose(sample, logits[number : number + 1]))
        chosen += self._read()
        return chosen

    def _read(self) -> list[tuple[BatchSample, int, Tensor]]:
        """Reads pieces of contexts, about `PIECE` ids."""
        chosen, n_read = [], 0
        for _ in range(len(self._reading)):
            if n_read >= PIECE:
                break
            sample = self._reading[0]
            start, context = sample._n_read, sample._context
            # Where pieces end depends on nothing else in the batch, so that results do not either.
            piece = context[start : start + PIECE]
            logits = self._step.read(sample.row, piece, start)
            n_read += len(piece)
            sample._n_read += len(piece)
            if sample._n_read < len(context):
                continue
            same = [s for s in self._reading if s is sample or s._context == context]
            for other in same:
                if other is not sample:
                    self._step.copy(sample.row, other.row, len(context))
                    other._n_read = len(context)
                self._reading.remove(other)
                chosen.append(self._choose(other, logits))
            if not self._reading:
                break
        return chosen

    def _choose(self, sample: BatchSample, logits: Tensor) -> tuple[BatchSample, int, Tensor]:
        """Chooses the next id from logits (1, V)."""
        id = int(sample._sampler.choose(logits))
        sample.ids.append(id)
        sample.max_tokens -= 1
        context = self.model.config.context_length
        if sample.max_tokens == 0:
            self._free.append(sample.row)
        elif sample._n_read < context:
            self._ready.append(sample)
        else:
            sample._context, sample._n_read = sample.ids[-max(1, context // 2) :], 0
            self._reading.append(sample)
        return sample, id, logits[0]
