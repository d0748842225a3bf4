"""A vocabulary to look things up in: lengths of tokens, merges as trees, search, neighbors.

Made once per tokenizer, in time and memory proportional to its size.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import ConfigError, TokenizerError
from ..look import statistics

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..tokenizer import Tokenizer

__all__ = ["SearchBy", "VocabularyIndex"]

SearchBy = Literal["text", "hex", "id"]
# Of a tree; some tokens are hundreds of spaces.
MAX_NODES = 1_000
MAX_DEPTH = 100
# Tokens with letters among the longest, which often are indentation and rules.
N_WORDS = 8
N_LONGEST = 400


class VocabularyIndex:
    """The vocabulary of `tokenizer`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens: dict[int, bytes] = tokenizer.vocab
        self.special_ids = frozenset(tokenizer.special_tokens.values())
        self.ids: npt.NDArray[np.int64] = np.fromiter(self.tokens, np.int64, len(self.tokens))
        self._lengths: npt.NDArray[np.int64] = np.fromiter(
            map(len, self.tokens.values()), np.int64, len(self.tokens)
        )

    def places(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The position of each id among the ids of the vocabulary, which may have gaps."""
        if len(self.ids) and self.ids[-1] == len(self.ids) - 1:
            return ids.astype(np.int64)
        return np.searchsorted(self.ids, ids)

    def ends(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The end of each token in the text of `ids`, in bytes."""
        return np.cumsum(self._lengths[self.places(ids)])

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """Statistics, as JSON; `longest` has only tokens with letters."""
        found: dict[str, Any] = statistics(self.tokenizer, n_longest=N_LONGEST).to_json()
        words = (one for one in found["longest"] if any(map(str.isalpha, one["text"] or "")))
        return found | {"longest": list(itertools.islice(words, N_WORDS))}

    # --- one token --------------------------------------------------------------------------------

    def token(self, id: int) -> dict[str, Any]:
        """A token as JSON; its text is None if it is not UTF-8."""
        return self._shown(id, self.tokens[id]) | {"special": id in self.special_ids}

    def neighbours(self, id: int, n: int = 5) -> list[dict[str, Any]]:
        """The `n` tokens before `id` and the `n` after it."""
        place = int(np.searchsorted(self.ids, id))
        near = self.ids[max(0, place - n) : place + n + 1].tolist()
        return [self._shown(other, self.tokens[other]) for other in near if other != id]

    def tree(self, id: int) -> dict[str, Any]:
        """The merges that make a token."""
        left = [MAX_NODES]
        return self._node(id, self.tokens[id], 0, left)

    def _node(self, id: int | None, token: bytes, depth: int, left: list[int]) -> dict[str, Any]:
        left[0] -= 2
        is_leaf = id in self.special_ids or depth == MAX_DEPTH or left[0] <= 0
        found = None if is_leaf else self._merges.get(token)
        rank, parts = found if found is not None else (None, ())
        return self._shown(id, token) | {
            "rank": rank,
            "parts": [self._node(self._id_of(part), part, depth + 1, left) for part in parts],
        }

    @functools.cached_property
    def _merges(self) -> dict[bytes, tuple[int, tuple[bytes, bytes]]]:
        """Token → the number of the merge that makes it, and what that joins."""
        found: dict[bytes, tuple[int, tuple[bytes, bytes]]] = {}
        for rank, (left, right) in enumerate(self.tokenizer.merges):
            found.setdefault(left + right, (rank, (left, right)))
        return found

    def _id_of(self, token: bytes) -> int | None:
        try:
            return self.tokenizer.token_id(token)
        except TokenizerError:
            return None

    def _shown(self, id: int | None, token: bytes) -> dict[str, Any]:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            text = None
        return {"id": id, "hex": token.hex(), "text": text}

    # --- search -----------------------------------------------------------------------------------

    def search(self, query: str, by: SearchBy, limit: int) -> tuple[int, list[dict[str, Any]]]:
        """The number of tokens found, and the first of them: the closest to the query."""
        if by == "id":
            found = self._between(query)
        else:
            wanted = _bytes_of(query) if by == "hex" else query.encode("utf-8", "replace")
            found = [
                (not token.startswith(wanted), len(token), id)
                for id, token in self.tokens.items()
                if wanted in token
            ]
        shown = heapq.nsmallest(limit, found)
        return len(found), [self.token(id) for _, _, id in shown]

    def _between(self, query: str) -> list[tuple[bool, int, int]]:
        """The tokens of an id, or of the ids from A to B."""
        first, dash, last = query.replace("–", "-").partition("-")
        ends = [text.strip() for text in (first, last if dash else first)]
        if not all(text.isdecimal() and text.isascii() and len(text) < 20 for text in ends):
            raise ConfigError(f"not an id: {query[:50]!r}", "search for 300, or for 300-310")
        low, high = np.searchsorted(self.ids, [int(ends[0]), int(ends[1]) + 1]).tolist()
        return [(False, 0, id) for id in self.ids[low:high].tolist()]


def _bytes_of(query: str) -> bytes:
    try:
        return bytes.fromhex(query)
    except ValueError:
        raise ConfigError(
            f"not bytes in hex: {query[:50]!r}", "two digits make a byte: e2 80 94"
        ) from None
