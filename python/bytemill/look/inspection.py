"""A tokenizer looked at: what its vocabulary holds, and how it cuts a text.

`statistics` describes the vocabulary, `spans` cuts a text into tokens with their places, `visible`
writes any bytes so that nothing in them is hidden. `rendering` makes pictures of spans.
"""

from __future__ import annotations

import heapq
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .._native import Special
    from ..tokenizer import Tokenizer

__all__ = ["Span", "Statistics", "spans", "statistics", "visible"]


@dataclass(frozen=True)
class Statistics:
    """What a vocabulary holds. All but the first four lines is about ordinary tokens only.

    Attributes:
        vocab_size: ids, special tokens included.
        n_merges: merges; 0 for a tokenizer that merges by rank.
        special_tokens: text → id.
        pattern: name or regular expression of each stage.
        ignore_merges: whether a piece that is a token is that token, whatever the merges.
        fingerprint: SHA-256 over pattern, merges and special tokens.
        lengths: length in bytes → how many tokens have it.
        mean_length: mean length in bytes.
        longest: (id, token) of the longest tokens, the longest first.
        unreachable: ids that no text encodes to.
        not_utf8: tokens that are not text by themselves: parts of characters.
        leading_space: tokens that begin with a space.
        white_space: tokens of nothing but white space.
        digits: tokens of nothing but digits, apart from a leading space.
        scripts: script of a token's first letter → how many tokens; those without are left out.
    """

    vocab_size: int
    n_merges: int
    special_tokens: dict[str, int]
    pattern: list[str]
    ignore_merges: bool
    fingerprint: str
    lengths: dict[int, int]
    mean_length: float
    longest: list[tuple[int, bytes]]
    unreachable: list[int]
    not_utf8: int
    leading_space: int
    white_space: int
    digits: int
    scripts: dict[str, int]


class Span(NamedTuple):
    """One token of a text: its id, its place in bytes (half-open) and its bytes."""

    id: int
    start: int
    end: int
    token: bytes
    special: bool


def statistics(tokenizer: Tokenizer, *, n_longest: int = 20) -> Statistics:
    """Describes the vocabulary of `tokenizer`, with its `n_longest` longest tokens.

    >>> import bytemill
    >>> tokenizer = bytemill.train_tokenizer(iter(["see the sea " * 9]), vocab_size=260)
    >>> statistics(tokenizer, n_longest=1).longest
    [(257, b' se')]
    """
    specials = tokenizer.special_tokens
    special_ids = set(specials.values())
    tokens = [(id, token) for id, token in tokenizer.vocab.items() if id not in special_ids]
    lengths = Counter(len(token) for _, token in tokens)
    kinds: Counter[str] = Counter()
    scripts: Counter[str] = Counter()
    for _, token in tokens:
        kinds["leading space"] += token.startswith(b" ")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            kinds["not utf-8"] += 1
            continue
        kinds["white space"] += text.isspace()
        kinds["digits"] += text.removeprefix(" ").isdecimal()
        script = _script(text)
        if script is not None:
            scripts[script] += 1
    stages = tokenizer.pattern
    return Statistics(
        vocab_size=len(tokenizer),
        n_merges=len(tokenizer.merges),
        special_tokens=dict(sorted(specials.items(), key=lambda item: item[1])),
        pattern=[stages] if isinstance(stages, str) else list(stages),
        ignore_merges=tokenizer.ignore_merges,
        fingerprint=tokenizer.fingerprint,
        lengths=dict(sorted(lengths.items())),
        mean_length=sum(n * k for n, k in lengths.items()) / max(len(tokens), 1),
        # Of equal length, the lowest id: the one learnt first.
        longest=heapq.nsmallest(n_longest, tokens, key=lambda item: (-len(item[1]), item[0])),
        unreachable=sorted(tokenizer.unreachable()),
        not_utf8=kinds["not utf-8"],
        leading_space=kinds["leading space"],
        white_space=kinds["white space"],
        digits=kinds["digits"],
        scripts=dict(scripts.most_common()),
    )


def _script(text: str) -> str | None:
    """The script of the first letter, as the first word of its Unicode name says it.

    Python carries no table of scripts; for all larger ones the name is as good ("CJK", "HANGUL",
    "LATIN"), which is enough for an overview.
    """
    for char in text:
        if char.isalpha():
            return unicodedata.name(char, "?").split()[0].split("-")[0].capitalize()
    return None


def spans(tokenizer: Tokenizer, text: str | bytes, *, special: Special = "all") -> list[Span]:
    """The tokens of `text` with their places; their bytes, end to end, are the text.

    >>> import bytemill
    >>> tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [])
    >>> spans(tokenizer, "hi")
    [Span(id=104, start=0, end=1, token=b'h', special=False), \
Span(id=105, start=1, end=2, token=b'i', special=False)]
    """
    special_ids = set(tokenizer.special_tokens.values())
    known: dict[int, bytes] = {}
    found: list[Span] = []
    start = 0
    for id in tokenizer.encode(text, special=special):
        token = known.get(id)
        if token is None:
            token = known[id] = tokenizer.token_bytes(id)
        end = start + len(token)
        found.append(Span(id, start, end, token, id in special_ids))
        start = end
    return found


# White space, and what else would not be seen, by a sign that is one column wide.
SIGNS = {" ": "·", "\t": "→", "\n": "↵", "\r": "␍"}
# Control, format, surrogate, private and unassigned characters, separators: invisible, or worse,
# able to move the cursor or turn the direction of writing.
HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))


def visible(token: bytes) -> str:
    """`token` as text in which nothing is hidden: safe to print on any terminal.

    Spaces are `·`, tabs `→`, newlines `↵`, bytes that are not UTF-8 `‹e2›`, other invisible
    characters `‹U+200B›`; a mark that would sit on what stands before it sits on `◌`.

    >>> visible(b" caf\\xc3\\xa9\\n"), visible(b"\\xe2\\x80"), visible(b"\\x1b[2J")
    ('·café↵', '‹e2›‹80›', '‹U+001B›[2J')
    """
    signs = "".join(_signs(token))
    if signs and unicodedata.category(signs[0]) in ("Mn", "Me", "Mc"):
        signs = "◌" + signs
    return signs


def _signs(token: bytes) -> Iterator[str]:
    # Undecodable bytes come as lone surrogates U+DC80–U+DCFF; no valid UTF-8 gives those.
    for char in token.decode("utf-8", "surrogateescape"):
        if char in SIGNS:
            yield SIGNS[char]
        elif "\udc80" <= char <= "\udcff":
            yield f"‹{ord(char) - 0xDC00:02x}›"
        elif unicodedata.category(char) in HIDDEN:
            yield f"‹U+{ord(char):04X}›"
        else:
            yield char
