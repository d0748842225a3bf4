"""`OptimizedRegexTokenizer`: the interface of a published guide to a faster minbpe trainer."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from ...errors import ConfigError
from .regex import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, RegexTokenizer

__all__ = ["GPT2_SPLIT_PATTERN", "GPT4_SPLIT_PATTERN", "OptimizedRegexTokenizer"]

Self = TypeVar("Self", bound="OptimizedRegexTokenizer")


class OptimizedRegexTokenizer(RegexTokenizer):
    """A `RegexTokenizer` that can ignore rare pieces in training.

    >>> tokenizer = OptimizedRegexTokenizer(max_workers=4, batch_size=1000, min_freq_threshold=2)
    >>> with tokenizer:
    ...     tokenizer.train("the cow that ate the corn the", vocab_size=258)
    >>> tokenizer.merges
    {(32, 116): 256, (256, 104): 257}
    """

    def __init__(
        self,
        pattern: str | None = None,
        max_workers: int | None = None,
        batch_size: int = 1000,
        min_freq_threshold: int = 1,
        use_batching: bool = True,
    ) -> None:
        """Takes the options of the guide; only `min_freq_threshold` has an effect.

        Args:
            pattern: as for `RegexTokenizer`.
            max_workers: accepted, without effect: training uses one thread.
            batch_size: accepted, without effect.
            min_freq_threshold: pieces that occur fewer times in the text are ignored. With 1,
                the merges are those of `RegexTokenizer`.
            use_batching: accepted, without effect.
        """
        super().__init__(pattern)
        for name, value, least in (
            ("max_workers", max_workers, 1),
            ("batch_size", batch_size, 1),
            ("min_freq_threshold", min_freq_threshold, 0),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name} must be ≥ {least}, got {value}")
        self.max_workers = max_workers
        self.batch_size = batch_size
        self.min_freq_threshold = min_freq_threshold
        self.use_batching = use_batching

    def train(self, text: str, vocab_size: int, verbose: bool = False) -> None:
        """Learns `vocab_size - 256` merges; with a `UserWarning`, fewer if no pairs are left."""
        self._learn(self._pieces(text), vocab_size, verbose, self.min_freq_threshold)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to release: no worker outlives a call."""
