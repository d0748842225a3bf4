"""tiktoken's rules for special tokens: which are recognized, which are errors."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NoReturn

__all__ = ["any_of", "as_set", "refuse", "without_aliases"]


def without_aliases(special_tokens: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The first special token of each id, and the remaining ones (aliases)."""
    first: dict[int, str] = {}
    for text, id in special_tokens.items():
        first.setdefault(id, text)
    specials = {text: id for id, text in first.items()}
    return specials, {t: id for t, id in special_tokens.items() if t not in specials}


def as_set(allowed: AbstractSet[str]) -> AbstractSet[str]:
    """Returns `allowed`; raises a `TypeError` if it is not a set."""
    if not isinstance(allowed, AbstractSet):
        raise TypeError(f'allowed_special must be "all" or a set, not {type(allowed).__name__}')
    return allowed


@functools.lru_cache(maxsize=128)
def any_of(tokens: frozenset[str]) -> re.Pattern[str]:
    """Matches any of the tokens, the longest first."""
    longest_first = sorted(tokens, key=lambda token: (-len(token), token))
    return re.compile("|".join(map(re.escape, longest_first)))


def refuse(texts: Iterable[str], refused: frozenset[str]) -> None:
    """Raises a `ValueError` if a text contains one of the tokens."""
    for text in texts:
        if found := any_of(refused).search(text):
            _raise_disallowed(found[0])


def _raise_disallowed(token: str) -> NoReturn:
    # The first line is tiktoken's: programs match it.
    raise ValueError(
        f"Encountered text corresponding to disallowed special token {token!r}.\n"
        f"hint: for the special token, allow it: allowed_special={{{token!r}}}; for plain text, "
        "leave it out of disallowed_special, or give disallowed_special=() to refuse nothing"
    )
