"""Ids that further text may change: tiktoken's `encode_with_unstable` and `_encode_bytes`.

Merges do not cross pieces, so only the last piece is unstable, or the last few where they are white
space, which later text may split differently. For these bytes, every token that could start within
them and extend past their end is tried. That is tiktoken's algorithm, including its approximations.
It takes one encoding per such token: tens of thousands after a single space.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from .. import _native, formats
from ..tokenizer import Tokenizer


def with_unstable(
    tokenizer: Tokenizer,
    merger: Tokenizer,
    tokens: Sequence[bytes],
    ids: list[int],
    specials: AbstractSet[int],
) -> tuple[list[int], list[list[int]]]:
    """The stable ids, and the lists of ids that may stand for the rest, in order.

    `merger` merges without splitting; `tokens` are the sorted ordinary tokens; `specials` are the
    ids of the special tokens allowed in `ids`.
    """
    n_unstable = _last_piece(tokenizer, ids, specials)
    if n_unstable == 0:
        return ids, []
    n_unstable = _with_white_space(tokenizer, ids, n_unstable, specials)
    stable, rest = ids[:-n_unstable], tokenizer.decode_bytes(ids[-n_unstable:])

    found: set[tuple[int, ...]] = {
        (tokenizer.token_id(token),) for token in _beginning(tokens, rest)
    }
    texts: list[str | bytes] = []
    pieces: list[bytes] = []
    for at in range(1, len(rest)):
        for token in _beginning(tokens, rest[at:]):
            whole = rest[:at] + token
            try:
                texts.append(whole.decode())
            except UnicodeDecodeError:
                # The split is unknown until the character is complete.
                pieces.append(whole)
    for source, batch in ((tokenizer, texts), (merger, pieces)):
        flat, ends = source.encode_batch(batch, special="none")
        lengths = {id: len(source.token_bytes(id)) for id in set(flat.tolist())}
        for start, end in zip(ends.tolist(), ends[1:].tolist()):
            found.add(_covering(flat[start:end].tolist(), lengths, len(rest)))
    if split := _last_space(rest):
        found.add((*merger.encode(rest[:-split]), *merger.encode(rest[-split:])))
    return stable, [list(each) for each in sorted(found)]


def encode_bytes(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """The ids of bytes; what follows the last stable piece of the valid UTF-8 is one piece."""
    try:
        return tokenizer.encode(data.decode(), special="none")
    except UnicodeDecodeError as error:
        valid = error.start
    ids = tokenizer.encode(data[:valid], special="none")
    n_unstable = _last_piece(tokenizer, ids, set())
    if n_unstable:
        n_unstable = _with_white_space(tokenizer, ids, n_unstable, set())
    stable = ids[: len(ids) - n_unstable]
    rest = data[len(tokenizer.decode_bytes(stable)) :]
    return stable + tokenizer._core.encode_piece(rest)


def _last_piece(tokenizer: Tokenizer, ids: Sequence[int], specials: AbstractSet[int]) -> int:
    """Number of ids in the last piece; 0 after a special token."""
    n_plain = 0
    while n_plain < len(ids) and ids[-1 - n_plain] not in specials:
        n_plain += 1
    if n_plain == 0:
        return 0
    tail = tokenizer.decode_bytes(ids[len(ids) - n_plain :])
    left = len(_native.split(formats.stages(tokenizer.pattern), tail)[-1])
    n_ids = 0
    while left > 0:
        n_ids += 1
        left -= len(tokenizer.token_bytes(ids[-n_ids]))
    return n_ids


def _with_white_space(
    tokenizer: Tokenizer, ids: Sequence[int], n_ids: int, specials: AbstractSet[int]
) -> int:
    """`n_ids`, extended by preceding white space if the last `n_ids` start with white space."""

    def is_space(id: int) -> bool:
        return id not in specials and not tokenizer.token_bytes(id).strip(b" \n\t")

    if is_space(ids[-n_ids]):
        while n_ids < len(ids) and is_space(ids[-n_ids - 1]):
            n_ids += 1
    return n_ids


def _beginning(tokens: Sequence[bytes], prefix: bytes) -> Iterator[bytes]:
    """The tokens that start with `prefix`."""
    at = bisect_left(tokens, prefix)
    while at < len(tokens) and tokens[at].startswith(prefix):
        yield tokens[at]
        at += 1


def _covering(ids: list[int], lengths: dict[int, int], n_bytes: int) -> tuple[int, ...]:
    """The shortest prefix of `ids` that covers `n_bytes`."""
    covered = 0
    for n, id in enumerate(ids, 1):
        covered += lengths[id]
        if covered >= n_bytes:
            return tuple(ids[:n])
    return tuple(ids)


def _last_space(data: bytes) -> int:
    """Size in bytes of the last character, if it is white space and not the only one; else 0.

    Later text may split it from the characters before it.
    """
    for size in range(1, min(4, len(data) - 1) + 1):
        try:
            last = data[-size:].decode()
        except UnicodeDecodeError:
            continue
        # For Python, but not for Unicode, these four separators are white space.
        return size if last.isspace() and last not in "\x1c\x1d\x1e\x1f" else 0
    return 0
