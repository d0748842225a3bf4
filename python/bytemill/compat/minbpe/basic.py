"""minbpe's `BasicTokenizer`."""

from __future__ import annotations

from collections.abc import Iterable

from .base import Tokenizer, get_stats, merge

__all__ = ["BasicTokenizer", "get_stats", "merge"]


class BasicTokenizer(Tokenizer):
    """Byte-level BPE over the text as one piece.

    >>> tokenizer = BasicTokenizer()
    >>> tokenizer.train("aaabdaaabac", 256 + 3)
    >>> tokenizer.encode("aaabdaaabac")
    [258, 100, 258, 97, 99]
    >>> tokenizer.decode([258, 100])
    'aaabd'
    """

    def train(self, text: str, vocab_size: int, verbose: bool = False) -> None:
        """Learns `vocab_size - 256` merges; of equally frequent pairs, the first in the text.

        Raises a `ValueError` if no pairs are left before that, as in minbpe.
        """
        self._learn([text.encode()], vocab_size, verbose)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self._merged(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; an unknown id is a `KeyError`."""
        return b"".join([self.vocab[id] for id in ids]).decode("utf-8", "replace")
