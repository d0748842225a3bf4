"""Tokenizers in memory: by file, or by the name of an encoding."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from .. import encodings
from ..encodings.published import definition
from ..errors import BytemillError
from ..tokenizer import Tokenizer
from .recent import RecentlyUsed, stamp_of

__all__ = ["TokenizerCache"]

# One of 200,000 tokens takes about 50 MB.
MAX_LOADED = 8
# Tokenizers whose facts are kept for the list.
MAX_FACTS = 500
# Files whose kind is remembered.
MAX_KNOWN = 50_000


class TokenizerCache:
    """The most recently used tokenizers, and the facts that the list shows of each; thread-safe.

    Attributes:
        known: whether a file is a tokenizer, by its first bytes.
    """

    def __init__(self) -> None:
        self._tokenizers = RecentlyUsed(MAX_LOADED)
        self._facts = RecentlyUsed(MAX_FACTS)
        self.known = RecentlyUsed(MAX_KNOWN)
        self._encodings: dict[str, dict[str, Any]] = {}
        self._encodings_until = 0.0

    def tokenizer(self, path: Path | None, name: str) -> Tokenizer:
        """The tokenizer at `path`, or the encoding `name`."""
        if path is None:
            return self._tokenizers.get(name, lambda: encodings.get_encoding(name))
        # An absolute path is never taken for the name of a model on the hub.
        return self._tokenizers.get(stamp_of(path), lambda: Tokenizer.from_pretrained(path))

    def encodings(self) -> dict[str, dict[str, Any]]:
        """What the list shows of the encodings whose vocabulary is on this machine; none is loaded.

        Looked for once a minute, as their files are read and checked.
        """
        if time.monotonic() > self._encodings_until:
            self._encodings = _encodings()
            self._encodings_until = time.monotonic() + 60
        return self._encodings

    def facts(self, path: Path, name: str) -> dict[str, Any] | BytemillError | OSError:
        """What the list shows of a tokenizer, kept until its file changes; or why it cannot be
        read."""

        def read() -> dict[str, Any] | BytemillError | OSError:
            try:
                return _facts(self.tokenizer(path, name))
            except (BytemillError, OSError) as error:
                return error

        try:
            return self._facts.get(stamp_of(path), read)
        except OSError as error:
            return error


def _facts(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "pattern": tokenizer.pattern,
        "special_tokens": list(tokenizer.special_tokens),
        "fingerprint": tokenizer.fingerprint,
    }


# --- named encodings ------------------------------------------------------------------------------


def _encodings() -> dict[str, dict[str, Any]]:
    return {
        name: {
            "vocab_size": each.vocab_size,
            "pattern": each.pattern,
            "special_tokens": list(each.special_tokens),
            # That of the tokenizer is known when it is loaded.
            "fingerprint": f"encoding {name}",
        }
        for name, each in ((name, definition(name)) for name in encodings.available())
    }
