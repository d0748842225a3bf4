"""minbpe's `RegexTokenizer`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from ... import _native
from ...errors import require
from .base import WHOLE, Tokenizer, get_stats, merge

__all__ = ["GPT2_SPLIT_PATTERN", "GPT4_SPLIT_PATTERN", "RegexTokenizer", "get_stats", "merge"]

# The published patterns, as minbpe writes them to its files.
GPT2_SPLIT_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4_SPLIT_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


class RegexTokenizer(Tokenizer):
    """Byte-level BPE within the pieces that a pattern cuts, and special tokens.

    >>> tokenizer = RegexTokenizer()
    >>> tokenizer.train("the cat sat on the mat", 256 + 2)
    >>> tokenizer.merges
    {(97, 116): 256, (116, 104): 257}
    >>> tokenizer.register_special_tokens({"<|endoftext|>": 1000})
    >>> tokenizer.encode("that<|endoftext|>", allowed_special="all")
    [257, 256, 1000]
    """

    _compiled: Any = None

    def __init__(self, pattern: str | None = None) -> None:
        """`pattern` is a regular expression; None for minbpe's version of GPT-4's."""
        super().__init__()
        self.pattern = GPT4_SPLIT_PATTERN if pattern is None else pattern
        self.inverse_special_tokens: dict[int, str] = {}

    @property
    def compiled_pattern(self) -> Any:
        """The pattern, compiled by the package `regex`. An assigned one is used to cut texts."""
        if self._compiled is not None:
            return self._compiled
        return require("regex", "compiled_pattern").compile(self.pattern)

    @compiled_pattern.setter
    def compiled_pattern(self, compiled: Any) -> None:
        self._compiled = compiled

    def train(self, text: str, vocab_size: int, verbose: bool = False) -> None:
        """Learns `vocab_size - 256` merges; of equally frequent pairs, the first in the text.

        Raises a `ValueError` if no pairs are left before that, as in minbpe.
        """
        self._learn(self._pieces(text), vocab_size, verbose)

    def _expression(self) -> str:
        return self.pattern or WHOLE

    def _pieces(self, text: str) -> list[bytes]:
        if self._compiled is not None:
            return [found.group().encode() for found in self._compiled.finditer(text)]
        return _native.split([self._expression()], text.encode())

    def register_special_tokens(self, special_tokens: dict[str, int]) -> None:
        """Sets the special tokens: texts and their ids."""
        self.special_tokens = special_tokens
        self.inverse_special_tokens = {id: text for text, id in special_tokens.items()}

    def _encode_chunk(self, text_bytes: bytes) -> list[int]:
        """The ids of one piece. If a subclass overrides this, it is called for every piece."""
        return self._merged(bytes(text_bytes))

    def encode_ordinary(self, text: str) -> list[int]:
        """The ids of a text; special tokens in it are plain text."""
        chunk = getattr(self._encode_chunk, "__func__", None)
        if chunk is RegexTokenizer._encode_chunk and self._compiled is None:
            fast = self._core(self._expression())
            if fast is not None:
                # As bytes: minbpe refuses texts with lone surrogates, the core does not.
                return fast.encode(text.encode(), special="none")
        with self._unchanged():
            return [id for piece in self._pieces(text) for id in self._encode_chunk(piece)]

    def encode(
        self, text: str, allowed_special: str | AbstractSet[str] = "none_raise"
    ) -> list[int]:
        """The ids of a text.

        `allowed_special` is `"all"`, `"none"`, a set of special tokens, or `"none_raise"`, which
        raises an `AssertionError` if the text contains one. If several match at a position, the
        one registered first wins.
        """
        special = self._allowed(text, allowed_special)
        if not special:
            return self.encode_ordinary(text)
        # Not the core: there, the longest special token wins, and no other token may have its id.
        ids: list[int] = []
        for part in re.split(f"({'|'.join(map(re.escape, special))})", text):
            ids += [special[part]] if part in special else self.encode_ordinary(part)
        return ids

    def _allowed(self, text: str, allowed_special: str | AbstractSet[str]) -> dict[str, int]:
        if allowed_special == "all":
            return self.special_tokens
        if allowed_special == "none_raise":
            found = [token for token in self.special_tokens if token in text]
            if found:
                raise AssertionError(
                    f"the text contains the special token {found[0]!r}\n"
                    'hint: allowed_special="all" encodes it as its id, "none" as plain text'
                )
            return {}
        if allowed_special == "none":
            return {}
        if isinstance(allowed_special, AbstractSet):
            return {t: id for t, id in self.special_tokens.items() if t in allowed_special}
        raise ValueError(f"allowed_special={allowed_special} not understood")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; an unknown id is a `ValueError`."""
        return self._bytes(ids).decode("utf-8", "replace")

    def _bytes(self, ids: Iterable[int]) -> bytes:
        parts: list[bytes] = []
        for id in ids:
            if id in self.vocab:
                parts.append(self.vocab[id])
            elif id in self.inverse_special_tokens:
                parts.append(self.inverse_special_tokens[id].encode())
            else:
                raise ValueError(f"invalid token id: {id}")
        return b"".join(parts)

    def load(self, model_file: str) -> None:
        """Reads a `.model` file; raises a `TokenizerError` with the position of a problem."""
        super().load(model_file)
        self.register_special_tokens(self.special_tokens)
        self._compiled = None
