"""minbpe's tokenizers: its methods, files and merges, without minbpe.

Merges are learnt by minbpe's own rule (`_first_met`), encoding is the core's. Text that the pattern
of a `RegexTokenizer` does not match is kept, where minbpe drops it; the usual patterns match all.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from .. import _files, _native
from ..errors import ConfigError, TokenizerError
from ..tokenizer import Tokenizer
from ._first_met import Pair, learn

__all__ = ["BasicTokenizer", "RegexTokenizer"]

Self = TypeVar("Self", bound="BasicTokenizer")
WHOLE = r"[\s\S]+"
# The published patterns, spelled as minbpe's files have them.
GPT2_SPLIT_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4_SPLIT_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


class BasicTokenizer:
    """Byte-level BPE over the text as one piece.

    `max_workers`, `batch_size` and `min_freq_threshold` may be given here or to `train`. The first
    two change nothing: learning takes one thread and one pass. With the third, pairs that occur
    less often are not merged.

    >>> with BasicTokenizer() as tokenizer:
    ...     tokenizer.train("aaabdaaabac", 256 + 3)
    >>> tokenizer.encode("aaabdaaabac")
    [258, 100, 258, 97, 99]
    >>> tokenizer.decode([258, 100])
    'aaabd'
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        batch_size: int | None = None,
        min_freq_threshold: int | None = None,
    ) -> None:
        self._set_up("", max_workers, batch_size, min_freq_threshold)

    def _set_up(
        self,
        pattern: str,
        max_workers: int | None,
        batch_size: int | None,
        min_freq_threshold: int | None,
    ) -> None:
        _check_guide(max_workers, batch_size, min_freq_threshold)
        self.pattern = pattern
        self.special_tokens: dict[str, int] = {}
        self._min_count = min_freq_threshold
        self._take([])

    # --- learning -----------------------------------------------------------------------------

    def train(
        self,
        text: str,
        vocab_size: int,
        verbose: bool = False,
        *,
        max_workers: int | None = None,
        batch_size: int | None = None,
        min_freq_threshold: int | None = None,
    ) -> None:
        """Learns `vocab_size - 256` merges: the commonest pair, of equals the one met first.

        A text that has no pair left before that is a `ValueError`, as in minbpe; if
        `min_freq_threshold` is what ends it, the vocabulary is smaller and a `UserWarning` says so.
        """
        assert vocab_size >= 256, f"vocab_size={vocab_size}: the bytes alone take 256"
        _check_guide(max_workers, batch_size, min_freq_threshold)
        least = min_freq_threshold or self._min_count or 1
        n_merges = vocab_size - 256
        merges: list[Pair] = []
        vocab = _vocab([])
        for pair, count in islice(learn(self._pieces(text.encode())), n_merges):
            if count < least:
                warnings.warn(
                    f"no pair occurs {least} times any more: the vocabulary has "
                    f"{256 + len(merges)} of the {vocab_size} ids asked for",
                    UserWarning,
                    stacklevel=2,
                )
                n_merges = len(merges)
                break
            new = 256 + len(merges)
            vocab[new] = vocab[pair[0]] + vocab[pair[1]]
            merges.append(pair)
            if verbose:
                print(
                    f"merge {len(merges)}/{n_merges}: {pair} -> {new} ({vocab[new]!r}) "
                    f"had {count} occurrences"
                )
        if len(merges) < n_merges:
            raise ValueError(
                f"no pair is left to merge: the text is good for {256 + len(merges)} of the "
                f"{vocab_size} ids asked for"
            )
        self._take(merges)

    def _pieces(self, data: bytes) -> Iterable[bytes]:
        return [data]

    def _take(self, merges: list[Pair]) -> None:
        """Goes over to these merges."""
        self.merges = {pair: 256 + i for i, pair in enumerate(merges)}
        self.vocab = _vocab(merges)
        self._tokenizer = Tokenizer(
            self.vocab,
            [(self.vocab[left], self.vocab[right]) for left, right in merges],
            pattern=self._split_pattern(),
        )

    def _split_pattern(self) -> str:
        return WHOLE

    # --- use ----------------------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        # As bytes, since minbpe refuses a text with lone surrogates, and the core does not.
        return self._tokenizer.encode(text.encode(), "none")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; a `KeyError` for one that is not in the vocabulary."""
        return b"".join([self.vocab[id] for id in ids]).decode("utf-8", "replace")

    # --- files --------------------------------------------------------------------------------

    def save(self, file_prefix: str) -> None:
        """Writes `file_prefix.model`, for `load`, and `file_prefix.vocab`, for the eye."""
        for text in (self.pattern, *self.special_tokens):
            if "\n" in text or "\r" in text:
                raise TokenizerError(
                    f"{file_prefix}.model: {text!r} has a line break, and the format has lines"
                )
        lines = ["minbpe v1", self.pattern, str(len(self.special_tokens))]
        lines += [f"{text} {id}" for text, id in self.special_tokens.items()]
        lines += [f"{left} {right}" for left, right in self.merges]
        _write(f"{file_prefix}.model", lines)
        halves = {new: pair for pair, new in self.merges.items()}
        shown = {id: f"[{_shown(token)}]" for id, token in self.vocab.items()}
        _write(
            f"{file_prefix}.vocab",
            [
                f"{shown[halves[id][0]]}{shown[halves[id][1]]} -> {token} {id}"
                if id in halves
                else f"{token} {id}"
                for id, token in shown.items()
            ],
        )

    def load(self, model_file: str) -> None:
        """Reads a `.model` file; what is wrong with it is a `TokenizerError` that says where."""
        assert model_file.endswith(".model"), f"{model_file} is not a .model file"
        data = Path(model_file).read_bytes()
        # The core checks all there is to check.
        _native.Core.read("minbpe", [(model_file, data)], [], [])
        lines = [line.rstrip("\r") for line in data.decode().split("\n")]
        end = 3 + int(lines[2])
        specials = [line.rsplit(" ", 1) for line in lines[3:end]]
        merges = [line.split() for line in lines[end:] if line.strip()]
        self.pattern = lines[1].strip()
        self._take([(int(left), int(right)) for left, right in merges])
        self.special_tokens = {text: int(id) for text, id in specials}
        self.vocab |= {id: text.encode() for text, id in self.special_tokens.items()}

    # --- as a context -------------------------------------------------------------------------

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held that must be given back: no pool of workers outlives a call."""


class RegexTokenizer(BasicTokenizer):
    """Byte-level BPE within the pieces that a pattern cuts, and special tokens.

    >>> tokenizer = RegexTokenizer()
    >>> tokenizer.train("the cat sat on the mat", 256 + 2)
    >>> tokenizer.merges
    {(97, 116): 256, (116, 104): 257}
    >>> tokenizer.register_special_tokens({"<|endoftext|>": 1000})
    >>> tokenizer.encode("that<|endoftext|>", allowed_special="all")
    [257, 256, 1000]
    """

    def __init__(
        self,
        pattern: str | None = None,
        *,
        max_workers: int | None = None,
        batch_size: int | None = None,
        min_freq_threshold: int | None = None,
    ) -> None:
        """`pattern` is a regular expression; None for GPT-4's as minbpe has it."""
        self.inverse_special_tokens: dict[int, str] = {}
        pattern = GPT4_SPLIT_PATTERN if pattern is None else pattern
        self._set_up(pattern, max_workers, batch_size, min_freq_threshold)

    def _split_pattern(self) -> str:
        return self.pattern or WHOLE

    def _pieces(self, data: bytes) -> Iterable[bytes]:
        return _native.split([self._split_pattern()], data)

    def register_special_tokens(self, special_tokens: dict[str, int]) -> None:
        """Sets the special tokens: texts and their ids."""
        self.special_tokens = special_tokens
        self.inverse_special_tokens = {id: text for text, id in special_tokens.items()}

    def encode_ordinary(self, text: str) -> list[int]:
        """The ids of a text, in which nothing is special."""
        return super().encode(text)

    def encode(
        self, text: str, allowed_special: str | AbstractSet[str] = "none_raise"
    ) -> list[int]:
        """The ids of a text.

        `allowed_special` is `"all"`, `"none"`, a set of special tokens, or `"none_raise"`: an
        `AssertionError` if there is one in the text. Where several match, the one registered first
        is taken.
        """
        special = self._allowed(text, allowed_special)
        if not special:
            return self.encode_ordinary(text)
        # The core takes the longest special token, and none whose id is also a token's.
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
                    f"the text holds the special token {found[0]!r}\n"
                    "hint: allowed_special says what to do: all, none, or a set of them"
                )
            return {}
        if allowed_special == "none":
            return {}
        if isinstance(allowed_special, AbstractSet):
            return {t: id for t, id in self.special_tokens.items() if t in allowed_special}
        raise ValueError(f"allowed_special={allowed_special} not understood")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; a `ValueError` for one that is not known."""
        specials = {id: text.encode() for id, text in self.inverse_special_tokens.items()}
        known = specials | self.vocab
        parts: list[bytes] = []
        for id in ids:
            if id not in known:
                raise ValueError(f"invalid token id: {id}")
            parts.append(known[id])
        return b"".join(parts).decode("utf-8", "replace")

    def load(self, model_file: str) -> None:
        """Reads a `.model` file; what is wrong with it is a `TokenizerError` that says where."""
        super().load(model_file)
        self.register_special_tokens(self.special_tokens)


def _vocab(merges: list[Pair]) -> dict[int, bytes]:
    vocab = {byte: bytes([byte]) for byte in range(256)}
    for new, (left, right) in enumerate(merges, 256):
        vocab[new] = vocab[left] + vocab[right]
    return vocab


def _check_guide(*values: int | None) -> None:
    for name, value in zip(("max_workers", "batch_size", "min_freq_threshold"), values):
        if value is not None and value < 1:
            raise ConfigError(f"{name}={value} cannot be", "use 1 or more")


def _shown(token: bytes) -> str:
    """A token for the eye: control characters by number, bytes that are no text as U+FFFD."""
    return "".join(
        f"\\u{ord(char):04x}" if unicodedata.category(char).startswith("C") else char
        for char in token.decode("utf-8", "replace")
    )


def _write(path: str, lines: list[str]) -> None:
    _files.write_atomically(Path(path), "".join(f"{line}\n" for line in lines).encode())
