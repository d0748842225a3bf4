"""minbpe's base class: merges, vocabulary, special tokens and pattern, and their files.

`merges`, `vocab`, `special_tokens` and `pattern` are plain attributes that may be assigned or
changed in place. The core is built from `merges` when a text is encoded, and again after a change.
"""

from __future__ import annotations

import contextlib
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ... import _files, _native
from ... import tokenizer as core
from ...errors import TokenizerError
from ._learner import Pair, learn

__all__ = ["Tokenizer", "get_stats", "merge", "render_token", "replace_control_characters"]

WHOLE = r"[\s\S]+"
MAX_IDS = 1 << 32


def get_stats(ids: Sequence[int], counts: dict[Pair, int] | None = None) -> dict[Pair, int]:
    """Adds the number of occurrences of each adjacent pair to `counts`.

    >>> get_stats([1, 2, 1, 2])
    {(1, 2): 2, (2, 1): 1}
    """
    counts = {} if counts is None else counts
    for pair in zip(ids, ids[1:]):
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def merge(ids: Sequence[int], pair: Pair, idx: int) -> list[int]:
    """Replaces every `pair` in `ids`, from the left, by `idx`.

    >>> merge([1, 1, 1, 2], (1, 1), 9)
    [9, 1, 2]
    """
    out: list[int] = []
    at = 0
    while at < len(ids):
        joined = tuple(ids[at : at + 2]) == pair
        out.append(idx if joined else ids[at])
        at += 1 + joined
    return out


def replace_control_characters(s: str) -> str:
    """The text with its control characters as escapes."""
    return "".join(
        f"\\u{ord(char):04x}" if unicodedata.category(char).startswith("C") else char for char in s
    )


def render_token(t: bytes) -> str:
    """A token for display: bytes that are not UTF-8 as U+FFFD."""
    return replace_control_characters(t.decode("utf-8", "replace"))


class WatchedDict(dict[Pair, int]):
    """A dictionary that counts its changes, so that a change is detected in constant time."""

    n_changes = 0


def _counted(change: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: WatchedDict, *args: Any, **named: Any) -> Any:
        self.n_changes += 1
        return change(self, *args, **named)

    return counted


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault"):
    setattr(WatchedDict, _name, _counted(getattr(dict, _name)))
WatchedDict.update = _counted(dict.update)  # type: ignore[method-assign]


class Tokenizer:
    """The base class: it cannot train, encode or decode by itself."""

    _state: Any = None
    _encoding: tuple[int, int] | None = None
    _cores: Mapping[str, core.Tokenizer | None] = {}

    def __init__(self) -> None:
        self.merges: dict[Pair, int] = {}
        self.pattern = ""
        self.special_tokens: dict[str, int] = {}
        self.vocab: dict[int, bytes] = self._build_vocab()

    def train(self, text: str, vocab_size: int, verbose: bool = False) -> None:
        """For subclasses."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """For subclasses."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        """For subclasses."""
        raise NotImplementedError

    def _build_vocab(self) -> dict[int, bytes]:
        """Id → bytes, from the merges and special tokens."""
        vocab = {byte: bytes([byte]) for byte in range(256)}
        for (left, right), new in self.merges.items():
            vocab[new] = vocab[left] + vocab[right]
        return vocab | {id: text.encode() for text, id in self.special_tokens.items()}

    # --- for subclasses in this package -------------------------------------------------------

    def _learn(
        self, pieces: Iterable[bytes], vocab_size: int, verbose: bool, min_count: int | None = None
    ) -> None:
        """Learns `vocab_size - 256` merges; with `min_count`, fewer if no pairs are left."""
        assert vocab_size >= 256, f"vocab_size must be ≥ 256, got {vocab_size}"
        n_merges = vocab_size - 256
        merges = WatchedDict()
        vocab = {byte: bytes([byte]) for byte in range(256)}
        for pair, count in islice(learn(pieces, min_count or 1), n_merges):
            new = 256 + len(merges)
            vocab[new] = vocab[pair[0]] + vocab[pair[1]]
            merges[pair] = new
            if verbose:
                print(
                    f"merge {len(merges)}/{n_merges}: {pair} -> {new} ({vocab[new]!r}) "
                    f"had {count} occurrences"
                )
        if len(merges) < n_merges:
            short = (
                f"no pairs left to merge: the text gives {256 + len(merges)} of the "
                f"{vocab_size} ids requested"
            )
            if min_count is None:
                raise ValueError(short)
            warnings.warn(short, UserWarning, stacklevel=3)
        self.merges, self.vocab = merges, vocab

    def _core(self, pattern: str) -> core.Tokenizer | None:
        """The core with the current merges; None if it cannot represent them."""
        merges = self.merges
        if (id(merges), len(merges)) != self._encoding:
            if isinstance(merges, WatchedDict):
                state: Any = merges, merges.n_changes
            else:
                # Changes in place can be detected only by comparison.
                state = list(merges), list(merges.values())
            if state != self._state:
                self._state, self._cores = state, {}
        if pattern not in self._cores:
            self._cores = {**self._cores, pattern: _built(merges, pattern)}
        return self._cores[pattern]

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Compares the merges once, not for every piece of a text."""
        self._core(WHOLE)
        self._encoding = id(self.merges), len(self.merges)
        try:
            yield
        finally:
            self._encoding = None

    def _merged(self, data: bytes) -> list[int]:
        """The ids of one piece."""
        fast = self._core(WHOLE)
        if fast is not None:
            return fast.encode(data, special="none")
        ids, never = list(data), float("inf")
        while len(ids) > 1:
            pair = min(zip(ids, ids[1:]), key=lambda each: self.merges.get(each, never))
            if pair not in self.merges:
                break
            ids = merge(ids, pair, self.merges[pair])
        return ids

    # --- files --------------------------------------------------------------------------------

    def save(self, file_prefix: str) -> None:
        """Writes `file_prefix.model`, for `load`, and `file_prefix.vocab`, for people to read."""
        model = f"{file_prefix}.model"
        for text in (self.pattern, *self.special_tokens):
            if "\n" in text or "\r" in text:
                raise TokenizerError(
                    f"{model}: {text!r} has a line break, which the format cannot represent"
                )
        if list(self.merges.values()) != list(range(256, 256 + len(self.merges))):
            raise TokenizerError(
                f"{model}: the format requires merges with the ids 256, 257, … in order, and "
                "these have others"
            )
        lines = ["minbpe v1", self.pattern, str(len(self.special_tokens))]
        lines += [f"{text} {id}" for text, id in self.special_tokens.items()]
        lines += [f"{left} {right}" for left, right in self.merges]
        write_lines(model, lines)
        write_lines(f"{file_prefix}.vocab", vocab_lines(self.vocab, self.merges))

    def load(self, model_file: str) -> None:
        """Reads a `.model` file; raises a `TokenizerError` with the position of a problem."""
        assert model_file.endswith(".model"), f"{model_file} is not a .model file"
        data = _files.regular(Path(model_file), TokenizerError).read_bytes()
        # The core checks the whole file.
        _native.Core.read("minbpe", [(model_file, data)], [], [])
        lines = [line.rstrip("\r") for line in data.decode().split("\n")]
        end = 3 + int(lines[2])
        specials = [line.rsplit(" ", 1) for line in lines[3:end]]
        merges = [line.split() for line in lines[end:] if line.strip()]
        self.pattern = lines[1].strip()
        self.merges = WatchedDict(
            {(int(left), int(right)): 256 + i for i, (left, right) in enumerate(merges)}
        )
        self.special_tokens = {text: int(id) for text, id in specials}
        self.vocab = self._build_vocab()


def _built(merges: Mapping[Pair, int], pattern: str) -> core.Tokenizer | None:
    """The core with these merges; None if it cannot represent them."""
    vocab = {byte: bytes([byte]) for byte in range(256)}
    halves: list[tuple[bytes, bytes]] = []
    # The lowest id is merged first, regardless of the order of the dictionary.
    for (left, right), new in sorted(merges.items(), key=lambda item: item[1]):
        if new in vocab or not 0 <= new < MAX_IDS or left not in vocab or right not in vocab:
            return None
        vocab[new] = vocab[left] + vocab[right]
        halves.append((vocab[left], vocab[right]))
    try:
        return core.Tokenizer(vocab, halves, pattern=pattern)
    except TokenizerError:
        return None  # such as two ids with the same bytes


def vocab_lines(vocab: Mapping[int, bytes], merges: Mapping[Pair, int]) -> list[str]:
    """A vocabulary to read: a token per line, with the two tokens it was merged from."""
    halves = {new: pair for pair, new in merges.items()}
    shown = {id: f"[{render_token(token)}]" for id, token in vocab.items()}
    return [
        f"{shown[halves[id][0]]}{shown[halves[id][1]]} -> {token} {id}"
        if id in halves
        else f"{token} {id}"
        for id, token in shown.items()
    ]


def write_lines(path: str, lines: list[str]) -> None:
    _files.write_atomically(Path(path), "".join(f"{line}\n" for line in lines).encode())
