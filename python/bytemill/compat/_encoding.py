"""What `tokenizers` calls an encoding, computed on demand from ids.

An encoding is a list of segments: ranges of encoded texts, special tokens, padding. Other columns
than the ids are computed from the segments on first use. For rare operations (maps between
characters, words and tokens; changes in place) a `tokenizers.Encoding` is built from the columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tokenizers

from .. import _native
from .._alphabet import spelled
from .._native import Core

if TYPE_CHECKING:
    from .._native import Special

# White space as Rust defines it, and the letter that spells a space in byte-level tokens.
WHITE_SPACE = "Ġ \t\n\r\x0b\x0c\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
Offsets = tuple[int, int]
# The original class, also after a program has put ours in its place.
_Original: Any = tokenizers.Encoding


class Spelling(dict[int, str]):
    """Id → spelled token, computed on first use."""

    def __init__(self, core: Core) -> None:
        super().__init__({id: token for token, id in core.special_tokens.items()})
        self._core = core

    def __missing__(self, id: int) -> str:
        token = self[id] = spelled(self._core.token_bytes(id))
        return token


class Rules(NamedTuple):
    """The immutable settings that determine the columns of a text."""

    core: Core
    # The added tokens recognized in text: as the core's `special` argument, and their ids.
    special: Special
    special_ids: frozenset[int]
    spelling: Spelling
    # Whether the post-processor trims offsets, and then keeps a single leading space.
    trims: bool
    prefix_space: bool


class Text:
    """An encoded text: its `n` ids, as an array, which garbage collection does not visit."""

    __slots__ = ("_offsets", "_spans", "_words", "bare", "ids", "n", "rules", "text")

    def __init__(self, rules: Rules, text: str, ids: np.ndarray[Any, Any], bare: bool) -> None:
        self.rules, self.text, self.ids, self.n = rules, text, ids, len(ids)
        # Without tokens, offsets and words, as from `encode_batch_fast`.
        self.bare = bare
        self._spans: np.ndarray[Any, Any] | None = None
        self._offsets: list[Offsets] | None = None
        self._words: list[int] | None = None

    def spans(self) -> np.ndarray[Any, Any]:
        """Start and end of each token: in bytes (columns 0, 1) and in characters (2, 3)."""
        if self._spans is None:
            _, self._spans = self.rules.core.encode_spans(self.text, self.rules.special)
        return self._spans

    def offsets(self) -> list[Offsets]:
        """Start and end of each token, in characters."""
        if self._offsets is None:
            spans = self.spans()
            self._offsets = list(zip(spans[:, 2].tolist(), spans[:, 3].tolist()))
        return self._offsets

    def words(self) -> list[int]:
        """The index of each token's piece; an added token is a piece of its own."""
        if self._words is None:
            starts = np.asarray(self._piece_starts())
            self._words = (np.searchsorted(starts, self.spans()[:, 0], "right") - 1).tolist()
        return self._words

    def _piece_starts(self) -> list[int]:
        pattern = self.rules.core.pattern
        stages = [pattern] if isinstance(pattern, str) else pattern
        data, special_ids = self.text.encode(), self.rules.special_ids
        starts: list[int] = []

        def cut(start: int, end: int) -> None:
            for piece in _native.split(stages, data[start:end]) if start < end else ():
                starts.append(start)
                start += len(piece)

        at = 0
        for i, id in enumerate(self.ids.tolist()):
            if id in special_ids:
                start, end = self.spans()[i, :2].tolist()
                cut(at, start)
                starts.append(start)
                at = end
        cut(at, len(data))
        return starts


class TextSegment:
    """The tokens of a text from `start` to `stop`."""

    __slots__ = ("sequence", "start", "stop", "text", "type_id")
    is_special, attention = 0, 1

    def __init__(
        self, text: Text, start: int, stop: int, type_id: int, sequence: int | None
    ) -> None:
        self.text, self.start, self.stop = text, start, stop
        self.type_id, self.sequence = type_id, sequence

    def __len__(self) -> int:
        return self.stop - self.start

    def ids(self) -> list[int]:
        ids: list[int] = self.text.ids[self.start : self.stop].tolist()
        return ids

    def tokens(self) -> list[str]:
        if self.text.bare:
            return [""] * len(self)
        spelling = self.text.rules.spelling
        return [spelling[id] for id in self.ids()]

    def words(self) -> list[int] | list[None]:
        if self.text.bare:
            return [None] * len(self)
        return self.text.words()[self.start : self.stop]

    def offsets(self) -> list[Offsets]:
        if self.text.bare:
            return [(0, 0)] * len(self)
        offsets = self.text.offsets()[self.start : self.stop]
        if self.text.rules.trims:
            return trimmed(self.tokens(), offsets, self.text.rules.prefix_space)
        return offsets


class FixedSegment:
    """Tokens that come from no text: special tokens or padding."""

    __slots__ = ("_id", "_tokens", "attention", "n", "type_id")
    is_special, sequence = 1, None

    def __init__(
        self, ids: list[int], tokens: list[str], type_id: int, attention: int, n: int = 1
    ) -> None:
        self._id, self._tokens, self.type_id, self.attention = ids, tokens, type_id, attention
        self.n = n

    def __len__(self) -> int:
        return self.n * len(self._id)

    def ids(self) -> list[int]:
        return self._id * self.n

    def tokens(self) -> list[str]:
        return self._tokens * self.n

    def words(self) -> list[None]:
        return [None] * len(self)

    def offsets(self) -> list[Offsets]:
        return [(0, 0)] * len(self)


Segment = TextSegment | FixedSegment


def trimmed(tokens: Iterable[str], offsets: Iterable[Offsets], prefix_space: bool) -> list[Offsets]:
    """Offsets without the white space at the ends of the tokens.

    With `prefix_space`, a single space that starts the first token is not trimmed.
    """
    out: list[Offsets] = []
    for token, (start, end) in zip(tokens, offsets):
        leading = len(token) - len(token.lstrip(WHITE_SPACE))
        trailing = len(token) - len(token.rstrip(WHITE_SPACE))
        if leading == 1 and prefix_space and (not out or start == 0):
            leading = 0
        start = min(start + leading, end)
        if end >= trailing:
            end = max(end - trailing, start)
        out.append((start, end))
    return out


class EncodingRow(NamedTuple):
    """The segments of an encoding, and the rows of its overflowing encodings."""

    segments: list[Segment]
    overflowing: list[EncodingRow]

    def __add__(self, other: EncodingRow) -> EncodingRow:  # type: ignore[override]
        """Concatenates two rows; overflowing rows combine as in `tokenizers`, in its order."""
        overflowing = []
        for mine in self.overflowing:
            overflowing += [mine + other, *(mine + theirs for theirs in other.overflowing)]
        overflowing += [self + theirs for theirs in other.overflowing]
        return EncodingRow(self.segments + other.segments, overflowing)


class Padding(NamedTuple):
    length: int
    left: bool
    id: int
    type_id: int
    token: str

    def apply(self, segments: list[Segment], n: int) -> list[Segment]:
        if n >= self.length:
            return segments
        filling = FixedSegment([self.id], [self.token], self.type_id, 0, self.length - n)
        return [filling, *segments] if self.left else [*segments, filling]


def _column(name: str, make: Callable[[Encoding], Any]) -> Any:
    def get(self: Encoding) -> Any:
        return make(self) if self._foreign is None else getattr(self._foreign, name)

    return property(get)


class _Kind(type):
    """`isinstance` accepts the originals, too: both occur in the results of one batch."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Original)


class Encoding(metaclass=_Kind):
    """Stands in for `tokenizers.Encoding`."""

    __slots__ = ("_foreign", "_n", "_overflow", "_padding", "_segments")

    def __init__(
        self, segments: list[Segment], overflow: Callable[[], list[EncodingRow]] | None = None
    ):
        self._segments = segments
        self._n = sum(map(len, segments))
        self._overflow = overflow
        self._padding: Padding | None = None
        # The `tokenizers.Encoding`, once built. It may be changed, so it then has the columns.
        self._foreign: Any = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return _Original  # type: ignore[no-any-return]

    def pad_to(self, padding: Padding) -> None:
        """Pads the encoding and its overflowing encodings."""
        self._segments = padding.apply(self._segments, self._n)
        self._n = max(self._n, padding.length)
        self._padding = padding

    def __len__(self) -> int:
        return self._n if self._foreign is None else len(self._foreign)

    ids = _column("ids", lambda self: self._joined("ids"))
    tokens = _column("tokens", lambda self: self._joined("tokens"))
    word_ids = _column("word_ids", lambda self: self._joined("words"))
    offsets = _column("offsets", lambda self: self._joined("offsets"))
    type_ids = _column("type_ids", lambda self: self._repeated("type_id"))
    attention_mask = _column("attention_mask", lambda self: self._repeated("attention"))
    special_tokens_mask = _column("special_tokens_mask", lambda self: self._repeated("is_special"))
    n_sequences = _column("n_sequences", lambda self: len(self._sequence_ranges()) or 1)
    overflowing = _column("overflowing", lambda self: self._overflowing())

    def _joined(self, method: str) -> list[Any]:
        first, *rest = self._segments
        values: list[Any] = getattr(first, method)()
        for segment in rest:
            values += getattr(segment, method)()
        return values

    def _repeated(self, attribute: str) -> list[int]:
        first, *rest = self._segments
        values: list[int] = [getattr(first, attribute)] * len(first)
        for segment in rest:
            values += [getattr(segment, attribute)] * len(segment)
        return values

    def _sequence_ranges(self) -> dict[int, dict[str, int]]:
        ranges, at = {}, 0
        for segment in self._segments:
            end = at + len(segment)
            if segment.sequence is not None:
                ranges[segment.sequence] = {"start": at, "end": end}
            at = end
        return ranges

    def _overflowing(self) -> list[Encoding]:
        return [self._overflown(row) for row in self._overflow()] if self._overflow else []

    def _overflown(self, row: EncodingRow) -> Encoding:
        encoding = Encoding(row.segments, (lambda: row.overflowing) if row.overflowing else None)
        if self._padding is not None:
            encoding.pad_to(self._padding)
        return encoding

    # --- as a `tokenizers.Encoding` --------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        columns = ("ids", "type_ids", "tokens", "offsets", "special_tokens_mask", "attention_mask")
        return {name: getattr(self, name) for name in columns} | {
            "words": self.word_ids,
            "overflowing": [each._state() for each in self._overflowing()],
            "sequence_ranges": self._sequence_ranges(),
        }

    def foreign(self) -> Any:
        """This encoding as a `tokenizers.Encoding`."""
        if self._foreign is None:
            self._foreign = _restored(json.dumps(self._state()).encode())
        return self._foreign

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.foreign(), name)

    def __repr__(self) -> str:
        return repr(self.foreign())

    def __reduce__(self) -> tuple[Any, ...]:
        # Not the original itself: pickle looks its class up by name, which may be ours by now.
        return _restored, (self.foreign().__getstate__(),)

    @staticmethod
    def merge(encodings: Sequence[Any], growing_offsets: bool = True) -> Any:
        """Concatenates encodings."""
        return _Original.merge([as_foreign(each) for each in encodings], growing_offsets)


def as_foreign(encoding: Any) -> Any:
    """Converts one of our encodings to a `tokenizers.Encoding`; returns others unchanged."""
    return encoding.foreign() if type(encoding) is Encoding else encoding


def _restored(state: bytes) -> Any:
    made = _Original()
    made.__setstate__(state)
    return made


# --- truncation -----------------------------------------------------------------------------------


def windows(n: int, length: int, stride: int, left: bool) -> list[tuple[int, int]]:
    """Ranges of at most `length` of `n` tokens; the first is kept, the others overflow."""
    if n <= length:
        return [(0, n)]
    out = []
    for start in range(0, n, length - stride):
        stop = min(start + length, n)
        out.append((n - stop, n - start) if left else (start, stop))
        if stop == n:
            break
    return out


def kept(lengths: Sequence[int], length: int, strategy: str) -> list[int] | None:
    """Number of tokens kept of each of one or two texts; None where `tokenizers` fails."""
    excess = sum(lengths) - length
    if excess <= 0:
        return list(lengths)
    if strategy == "longest_first":
        if len(lengths) == 1:
            return [length]
        first, second = lengths
        shorter, longer = sorted(lengths)
        longer = shorter if shorter > length else max(shorter, length - shorter)
        if shorter + longer > length:
            shorter = length // 2
            longer = shorter + length % 2
        return [longer, shorter] if first > second else [shorter, longer]
    which = ["only_first", "only_second"].index(strategy)
    if which >= len(lengths) or lengths[which] <= excess:
        return None
    out = list(lengths)
    out[which] -= excess
    return out
