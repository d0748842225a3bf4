"""How good a model is on tokens that it was not trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from .data import TokenArray, fixed_windows, take_windows
from .naive import perplexity
from .parallel import World

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = ["Evaluation", "Evaluator", "token_lengths"]


@dataclass(frozen=True)
class Evaluation:
    """A model's measures.

    Attributes:
        loss: mean cross-entropy of a token, in nats.
        perplexity: exp of that.
        bits_per_byte: bits to tell the text, per byte of it; comparable across tokenizers. None
            without a tokenizer.
        n_tokens: how many tokens were foretold.
    """

    loss: float
    perplexity: float
    bits_per_byte: float | None
    n_tokens: int


def token_lengths(tokenizer: Tokenizer, vocab_size: int) -> npt.NDArray[np.int64]:
    """How many bytes of text each id stands for; special tokens are no text."""
    lengths = np.zeros(vocab_size, np.int64)
    for id, token in tokenizer.vocab.items():
        lengths[id] = len(token)
    lengths[list(tokenizer.special_tokens.values())] = 0
    return lengths


class Evaluator:
    """Evaluates on windows that are always the same.

    Args:
        tokens: held out.
        context_length: of the model.
        n_windows: how many windows, spread evenly.
        lengths: bytes of each id, for bits per byte.
        at_once: windows of a batch, on each rank.
        vocab_size: ids from this on are refused.
    """

    def __init__(
        self,
        tokens: TokenArray,
        context_length: int,
        n_windows: int,
        lengths: npt.NDArray[np.int64] | None = None,
        at_once: int = 32,
        vocab_size: int | None = None,
    ) -> None:
        starts = fixed_windows(tokens, context_length, n_windows)
        self.windows = take_windows(tokens, starts, context_length, vocab_size)
        self.at_once = at_once
        self.n_tokens = int(self.windows[:, 1:].size)
        self.n_bytes = None if lengths is None else int(lengths[self.windows[:, 1:]].sum())

    def __call__(self, model: nn.Module, world: World, autocast: Any) -> Evaluation:
        """The measures of a model; all ranks must ask, and each does its part."""
        nats = 0.0
        stride = self.at_once * world.size
        was_training = model.training
        model.eval()
        with torch.no_grad(), autocast:
            for start in range(0, len(self.windows), stride):
                begin = start + world.rank * self.at_once
                mine = self.windows[begin : begin + self.at_once]
                # A rank without windows of its own reads one all the same: with shards, the
                # others need it.
                ids = torch.from_numpy(mine if len(mine) else self.windows[:1]).to(world.device)
                loss = float(model(ids[:, :-1], ids[:, 1:]))
                nats += loss * mine[:, 1:].size
        model.train(was_training)
        world.put_back(model)
        nats = world.sum([nats])[0]
        loss = nats / self.n_tokens
        bits = None if not self.n_bytes else nats / math.log(2) / self.n_bytes
        return Evaluation(loss, perplexity(loss), bits, self.n_tokens)
