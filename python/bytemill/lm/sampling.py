"""Logits → the next id.

Repetition penalty, temperature, top-k, top-p and min-p, in this order; what is left is drawn
from. The draws come from the seed and the number of the sample alone, so a sample does not depend
on how many others are made beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigError
from .config import check_seed

__all__ = ["Sampler", "Sampling"]


@dataclass(frozen=True)
class Sampling:
    """How ids are chosen.

    Attributes:
        temperature: what logits are divided by; 0 takes the likeliest id.
        top_k: only the k likeliest.
        top_p: only the likeliest that together have this probability.
        min_p: only those at least this share of the likeliest's probability.
        repetition_penalty: above 1, ids that occurred are made less likely.
        seed: of the draws; None for other ones each time.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_seed(self.seed)
        if not self.temperature >= 0:
            raise ConfigError(f"temperature={self.temperature} cannot be", "use 0 or more")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k={self.top_k} cannot be", "use 1 or more, or leave it out")
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{name}={value} cannot be", "it is a share: between 0 and 1")
        if not self.repetition_penalty > 0:
            raise ConfigError(
                f"repetition_penalty={self.repetition_penalty} cannot be", "1 is no penalty"
            )


class Sampler:
    """Chooses ids for a batch of samples, step after step.

    Args:
        sampling: how.
        n_samples: B.
        max_tokens: how many steps there may be.
    """

    def __init__(
        self, sampling: Sampling, n_samples: int, max_tokens: int, device: torch.device
    ) -> None:
        self.sampling = sampling
        self._seen: Tensor | None = None
        self._number = 0
        seed = sampling.seed
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        # All draws at once: none has to be made, or moved to a device, between two steps.
        draws = [np.random.default_rng([seed, n]).random(max_tokens) for n in range(n_samples)]
        self._draws = torch.tensor(np.array(draws), dtype=torch.float32, device=device)

    def observe(self, ids: Tensor, vocab_size: int) -> None:
        """Ids (B, T) that count as having occurred."""
        if self.sampling.repetition_penalty == 1.0:
            return
        if self._seen is None:
            self._seen = torch.zeros(
                len(self._draws), vocab_size, dtype=torch.bool, device=ids.device
            )
        self._seen.scatter_(1, ids, True)

    def choose(self, logits: Tensor) -> Tensor:
        """The next ids, (B,), of logits (B, V)."""
        sampling = self.sampling
        logits = logits.float()
        if self._seen is not None:
            penalty = sampling.repetition_penalty
            less = torch.where(logits > 0, logits / penalty, logits * penalty)
            logits = torch.where(self._seen, less, logits)
        if sampling.temperature == 0 or sampling.top_k == 1:
            chosen = logits.argmax(-1)
        else:
            chosen = self._draw(logits)
        self.observe(chosen.unsqueeze(-1), logits.shape[-1])
        self._number += 1
        return chosen

    def _draw(self, logits: Tensor) -> Tensor:
        sampling = self.sampling
        if sampling.temperature != 1.0:
            logits = logits / sampling.temperature
        places = None
        if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
            logits, places = logits.topk(sampling.top_k, sorted=True)
        shares = torch.softmax(logits, -1)
        if sampling.top_p is not None and sampling.top_p < 1:
            if places is None and shares.device.type == "cpu":
                shares = self._cut_by_value(shares, sampling.top_p)
            else:
                if places is None:
                    shares, places = shares.sort(-1, descending=True)
                # Kept is what begins before top_p is reached, so at least the likeliest.
                before = shares.cumsum(-1) - shares
                shares = shares.masked_fill(before >= max(sampling.top_p, 1e-9), 0.0)
        if sampling.min_p:
            shares = shares.masked_fill(
                shares < sampling.min_p * shares.amax(-1, keepdim=True), 0.0
            )
        sums = shares.cumsum(-1)
        drawn = self._draws[:, self._number, None] * sums[:, -1:]
        # The first place whose sum exceeds the draw; a share of zero is never that place.
        index = torch.searchsorted(sums, drawn, right=True)
        n = shares.shape[-1]
        # Rounding may push a draw to the very end, behind the last place that is left. On a GPU,
        # asking whether it did takes longer than what follows.
        if index.device.type != "cpu" or int(index.max()) == n:
            last = (shares > 0).long().mul_(torch.arange(n, device=shares.device))
            index = torch.minimum(index, last.amax(-1, keepdim=True))
        if places is not None:
            index = places.gather(-1, index)
        return index.squeeze(-1)

    def _cut_by_value(self, shares: Tensor, top_p: float) -> Tensor:
        """Without those below the least share that `top_p` needs; of equal ones, all stay.

        Only values are sorted, by numpy, which takes a tenth of the time of torch's sort with
        places; and row by row, which for a single one is quicker.
        """
        kept = torch.empty_like(shares)
        for row, left in zip(shares.numpy(), kept.numpy()):
            falling = np.sort(row)[::-1]
            needed = np.count_nonzero(falling.cumsum() - falling < max(top_p, 1e-9))
            # Times true or false, which is quicker than a fill by mask.
            np.multiply(row, row >= falling[needed - 1], out=left)
        return kept
