"""The obvious tokenizer, to which all fast code is compared.

Written to be evidently correct, not fast: every merge recounts every pair, and every step of
encoding searches the whole piece again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import regex

# The parts of the published patterns.
BEFORE = r"[^\r\n\p{L}\p{N}]?"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = rf"{ENDING}|{BEFORE}\p{{L}}+"
CASED_WORDS = rf"{BEFORE}{UPPER}*{LOWER}+{ENDING}?|{BEFORE}{UPPER}+{LOWER}*{ENDING}?"
THREE_DIGITS = r"\p{N}{1,3}"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+"
LINES = r"\s*[\r\n]+"
SPACES = r"\s+(?!\S)|\s+"

PATTERNS = {
    "gpt2": rf"'(?:[sdmt]|ll|ve|re)| ?\p{{L}}+| ?\p{{N}}+|{SYMBOLS}|{SPACES}",
    "cl100k": rf"{WORDS}|{THREE_DIGITS}|{SYMBOLS}[\r\n]*|\s++$|{LINES}|{SPACES}",
    "o200k": rf"{CASED_WORDS}|{THREE_DIGITS}|{SYMBOLS}[\r\n/]*|{LINES}|{SPACES}",
    "llama3": rf"{WORDS}|{THREE_DIGITS}|{SYMBOLS}[\r\n]*|{LINES}|{SPACES}",
    "qwen2": rf"{WORDS}|\p{{N}}|{SYMBOLS}[\r\n]*|{LINES}|{SPACES}",
}

Token = bytes
Pair = tuple[Token, Token]


def pieces(data: bytes, pattern: str = "gpt2") -> list[bytes]:
    """The pieces of a document.

    A byte that is not UTF-8 becomes a lone surrogate, which is a character of no class.
    """
    text = data.decode("utf-8", "surrogateescape")
    cut: list[str] = []
    end = 0
    for match in regex.finditer(PATTERNS.get(pattern, pattern), text):
        # Text between two matches, which the named patterns never leave, is a piece too.
        cut += [part for part in (text[end : match.start()], match[0]) if part]
        end = match.end()
    cut += [text[end:]] if text[end:] else []
    return [piece.encode("utf-8", "surrogateescape") for piece in cut]


def split_specials(data: bytes, specials: Iterable[str]) -> Iterator[tuple[bytes, bool]]:
    """Plain text and special tokens (marked True); of several tokens the longest wins."""
    longest_first = sorted((s.encode() for s in specials), key=len, reverse=True)
    start = at = 0
    while at < len(data):
        found = next((s for s in longest_first if data.startswith(s, at)), None)
        if found is None:
            at += 1
            continue
        if start < at:
            yield data[start:at], False
        yield found, True
        start = at = at + len(found)
    if start < len(data):
        yield data[start:], False


def documents(data: bytes, separator: str) -> list[bytes]:
    """The documents of a text file."""
    return [document for document in data.split(separator.encode()) if document]


def count(documents: Iterable[bytes], specials: Sequence[str], pattern: str) -> Counter[bytes]:
    """How often each piece occurs."""
    return Counter(
        piece
        for document in documents
        for part, special in split_specials(document, specials)
        if not special
        for piece in pieces(part, pattern)
    )


def merge(word: Sequence[Token], pair: Pair) -> tuple[Token, ...]:
    """The word with every occurrence of the pair joined, from the left."""
    out: list[Token] = []
    at = 0
    while at < len(word):
        if tuple(word[at : at + 2]) == pair:
            out.append(pair[0] + pair[1])
            at += 2
        else:
            out.append(word[at])
            at += 1
    return tuple(out)


def singles(piece: bytes) -> tuple[Token, ...]:
    return tuple(piece[i : i + 1] for i in range(len(piece)))


def train(
    counts: Counter[bytes],
    n_merges: int,
    *,
    min_frequency: int = 1,
    min_piece_count: int = 1,
    max_token_length: int | None = None,
    start: Sequence[Pair] = (),
    tie_break: str = "bytes",
) -> list[Pair]:
    """The merges: highest count first, of equal counts the greatest pair of byte strings.

    With `tie_break="rustbpe"`, of equal counts the pair of the oldest tokens; the bytes are in the
    order of their values.
    """
    words = {singles(piece): n for piece, n in counts.items() if n >= min_piece_count}
    limit = float("inf") if max_token_length is None else max_token_length
    merges: list[Pair] = []
    for known in start:
        words = {merge(word, known): n for word, n in words.items()}
        merges.append(known)
    while len(merges) < n_merges:
        created = [*(bytes([b]) for b in range(256)), *(left + right for left, right in merges)]
        age = {token: -number for number, token in enumerate(created)}
        pairs: Counter[Pair] = Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        allowed = [
            (n, pair)
            for pair, n in pairs.items()
            if n >= min_frequency and len(pair[0] + pair[1]) <= limit
        ]
        if not allowed:
            break
        if tie_break == "rustbpe":
            best = max(allowed, key=lambda some: (some[0], age[some[1][0]], age[some[1][1]]))[1]
        else:
            best = max(allowed)[1]
        merges.append(best)
        words = {merge(word, best): n for word, n in words.items()}
    return merges


def encode_piece(piece: bytes, merges: Sequence[Pair], *, whole: bool = False) -> list[Token]:
    """The tokens of one piece: the earliest merge first, leftmost first.

    With `whole`, a piece that is a token is that token.
    """
    if whole and any(left + right == piece for left, right in merges):
        return [piece]
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(merges)))}
    word = list(singles(piece))
    while found := [
        (ranks[pair], at) for at, pair in enumerate(zip(word, word[1:])) if pair in ranks
    ]:
        _, at = min(found)
        word[at : at + 2] = [word[at] + word[at + 1]]
    return word


def encode(
    data: bytes, merges: Sequence[Pair], specials: Sequence[str] = (), pattern: str = "gpt2"
) -> list[Token]:
    """The tokens of a text."""
    tokens: list[Token] = []
    for part, special in split_specials(data, specials):
        if special:
            tokens.append(part)
        else:
            for piece in pieces(part, pattern):
                tokens += encode_piece(piece, merges)
    return tokens
