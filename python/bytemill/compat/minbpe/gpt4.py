"""minbpe's `GPT4Tokenizer`: the encoding cl100k_base."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from ...encodings import get_encoding
from ._learner import Pair
from .base import WatchedDict, vocab_lines, write_lines
from .regex import GPT4_SPLIT_PATTERN, RegexTokenizer

__all__ = ["GPT4_SPECIAL_TOKENS", "GPT4_SPLIT_PATTERN", "GPT4Tokenizer", "bpe", "recover_merges"]

GPT4_SPECIAL_TOKENS = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}


def bpe(
    mergeable_ranks: Mapping[bytes, int], token: bytes, max_rank: int | None = None
) -> list[bytes]:
    """The tokens that the bytes of `token` merge to, using only ranks below `max_rank`."""
    parts = [bytes([byte]) for byte in token]
    limit = float("inf") if max_rank is None else max_rank
    while len(parts) > 1:
        ranks = [mergeable_ranks.get(a + b, limit) for a, b in zip(parts, parts[1:])]
        lowest = min(ranks)
        if lowest >= limit:
            break
        at = ranks.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def recover_merges(mergeable_ranks: Mapping[bytes, int]) -> dict[Pair, int]:
    """The pair of ids that each token is merged from, derived from the ranks.

    >>> recover_merges({b"a": 1, b"b": 0, b"ab": 2, b"abb": 3})
    {(1, 0): 2, (2, 0): 3}
    """
    merges: dict[Pair, int] = {}
    for token, rank in mergeable_ranks.items():
        if len(token) > 1:
            left, right = bpe(mergeable_ranks, token, max_rank=rank)
            merges[mergeable_ranks[left], mergeable_ranks[right]] = rank
    return merges


class GPT4Tokenizer(RegexTokenizer):
    """GPT-4's tokenizer; its vocabulary is found as by `bytemill.get_encoding`."""

    def __init__(self) -> None:
        super().__init__(pattern=GPT4_SPLIT_PATTERN)
        encoding = get_encoding("cl100k_base")
        special = set(encoding.special_tokens.values())
        ranks = {token: id for id, token in encoding.vocab.items() if id not in special}
        self.merges = WatchedDict(recover_merges(ranks))
        self.vocab = self._build_vocab()
        # In this vocabulary the ids of bytes are not in byte order. Each byte is replaced by its id
        # before merging; decoding reverses that.
        self.byte_shuffle = {byte: ranks[bytes([byte])] for byte in range(256)}
        self.inverse_byte_shuffle = {id: byte for byte, id in self.byte_shuffle.items()}
        self.register_special_tokens(GPT4_SPECIAL_TOKENS)

    def _encode_chunk(self, text_bytes: bytes) -> list[int]:
        return super()._encode_chunk(bytes(self.byte_shuffle[byte] for byte in text_bytes))

    def _unshuffled(self, token: bytes) -> bytes:
        return bytes(self.inverse_byte_shuffle[byte] for byte in token)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special ones included; an unknown id is a `ValueError`."""
        parts = [
            self._bytes([id])
            if id in self.inverse_special_tokens
            else self._unshuffled(self._bytes([id]))
            for id in ids
        ]
        return b"".join(parts).decode("utf-8", "replace")

    def train(self, text: str, vocab_size: int, verbose: bool = False) -> NoReturn:
        """Refused: the vocabulary is GPT-4's."""
        raise NotImplementedError("a GPT4Tokenizer has its vocabulary already")

    def save(self, file_prefix: str) -> NoReturn:
        """Refused: the format cannot store the order of the bytes."""
        raise NotImplementedError("GPT4Tokenizer cannot be saved.")

    def load(self, model_file: str) -> NoReturn:
        """Refused, like `save`."""
        raise NotImplementedError("GPT4Tokenizer cannot be loaded.")

    def save_vocab(self, vocab_file: str) -> None:
        """Writes the vocabulary for people to read."""
        vocab = {id: self._unshuffled(token) for id, token in self.vocab.items()}
        write_lines(vocab_file, vocab_lines(vocab, self.merges))
