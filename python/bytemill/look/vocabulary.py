"""Statistics of a vocabulary: `statistics`, as text, JSON and HTML."""

from __future__ import annotations

import heapq
import html
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import _tables
from .result import Result, html_table, page, token_json, visible

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = ["Statistics", "glance", "statistics"]

# Ids per section of the list of tokens. Sections are initially closed, so that a browser does not
# have to lay out 200,000 rows.
PART = 1000
BAR_WIDTH = 40
# Terminal columns for a token.
TOKEN_WIDTH = 80


@dataclass(frozen=True)
class Statistics(Result):
    """Statistics of a vocabulary. From `lengths` on, all but `tokens` exclude special tokens.

    Attributes:
        vocab_size: ids, special tokens included.
        n_merges: merges; 0 for a tokenizer that merges by rank.
        special_tokens: text → id.
        pattern: name or regular expression of each stage.
        ignore_merges: whether a piece that is a token becomes that token regardless of merges.
        fingerprint: SHA-256 over pattern, merges and special tokens.
        lengths: length in bytes → number of tokens.
        mean_length: mean length in bytes.
        longest: (id, token) of the longest tokens, the longest first.
        unreachable: ids that no text encodes to.
        not_utf8: tokens that are not valid UTF-8: parts of characters.
        leading_space: tokens that begin with a space.
        white_space: tokens of white space only.
        digits: tokens of digits only, after an optional space.
        scripts: script of a token's first letter → number of tokens; tokens without letters are
            skipped.
        tokens: id → bytes of every token, special tokens included.
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
    tokens: dict[int, bytes] = field(repr=False)

    def to_json(self) -> dict[str, object]:
        facts = {name: value for name, value in vars(self).items() if name != "tokens"}
        return facts | {"longest": [token_json(*one) for one in self.longest]}

    def to_text(self) -> str:
        return "".join(self._text())

    def to_html(self, *, title: str = "bytemill") -> str:
        return page(title, self._html())

    def _text(self) -> Iterator[str]:
        for label, value in self._facts():
            yield f"{label:15}  {value}\n"
        yield f"\n{'bytes':>7}  {'tokens':>7}\n"
        for length, n, bar in self._lengths():
            yield f"{length:>7}  {n:>7}  {bar}\n"
        if self.longest:
            yield "\nlongest tokens\n"
            yield longest_tokens(self.longest)

    def _html(self) -> Iterator[str]:
        yield html_table("ll", (), (tuple(map(html.escape, row)) for row in self._facts()))
        yield "<h2>Lengths</h2>\n"
        yield html_table("rrl", ("bytes", "tokens", ""), self._lengths())
        if self.longest:
            yield "<h2>Longest tokens</h2>\n"
            rows = ((str(id), str(len(token)), _shown(token)) for id, token in self.longest)
            yield html_table("rrc", ("id", "bytes", "token"), rows)
        yield "<h2>All tokens</h2>\n"
        special, unreachable = set(self.special_tokens.values()), set(self.unreachable)
        tokens = list(self.tokens.items())
        for start in range(0, len(tokens), PART):
            part = tokens[start : start + PART]
            yield f"<details>\n<summary>{part[0][0]:,}–{part[-1][0]:,}</summary>\n"
            rows_of_part = (
                (
                    str(id),
                    str(len(token)),
                    _shown(token),
                    token.hex(" "),
                    "special" if id in special else "unreachable" if id in unreachable else "",
                )
                for id, token in part
            )
            yield html_table("rrccl", ("id", "bytes", "token", "hex", ""), rows_of_part)
            yield "</details>\n"

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Labels and values; an empty label continues the one before."""
        n_tokens = max(sum(self.lengths.values()), 1)

        def share(n: int) -> str:
            return f"{n:,} ({n / n_tokens:.1%})"

        yield "vocabulary", f"{self.vocab_size:,} ids"
        yield "merges", f"{self.n_merges:,}"
        for number, (text, id) in enumerate(self.special_tokens.items()):
            yield "" if number else "special tokens", f"{visible(text.encode())} = {id}"
        for number, stage in enumerate(self.pattern):
            yield "" if number else "pattern", stage
        yield "fingerprint", self.fingerprint
        yield "mean length", f"{self.mean_length:.2f} bytes"
        yield "leading space", share(self.leading_space)
        yield "white space", share(self.white_space)
        yield "digits", share(self.digits)
        yield "parts of chars", share(self.not_utf8)
        ids = self.unreachable
        first = f": {', '.join(map(str, ids[:8]))}{', …' if len(ids) > 8 else ''}" if ids else ""
        yield "unreachable", share(len(ids)) + first
        scripts = list(self.scripts.items())
        shown = ", ".join(f"{name} {n:,}" for name, n in scripts[:8])
        yield "scripts", f"{shown}{', …' if len(scripts) > 8 else ''}"

    def _lengths(self) -> Iterator[tuple[str, str, str]]:
        """Length in bytes, number of tokens, bar: up to 16 one by one, then in doubling ranges."""
        groups: dict[str, int] = {}
        for length, n in self.lengths.items():
            low = 1 << ((length - 1).bit_length() - 1) if length > 16 else 0
            label = f"{low + 1}–{2 * low}" if length > 16 else str(length)
            groups[label] = groups.get(label, 0) + n
        most = max(self.lengths.values(), default=1)
        for label, n in groups.items():
            yield label, f"{n:,}", "▇" * max(round(BAR_WIDTH * n / most), 1)


def statistics(tokenizer: Tokenizer, *, n_longest: int = 20) -> Statistics:
    """Describes the vocabulary of `tokenizer`, with its `n_longest` longest tokens.

    >>> import bytemill
    >>> tokenizer = bytemill.train_tokenizer(iter(["see the sea " * 9]), vocab_size=260)
    >>> statistics(tokenizer, n_longest=1).longest
    [(257, b' se')]
    """
    specials = tokenizer.special_tokens
    special_ids = set(specials.values())
    vocab = tokenizer.vocab
    tokens = [(id, token) for id, token in vocab.items() if id not in special_ids]
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
        # Of equal length, the lowest id: the one learned first.
        longest=heapq.nsmallest(n_longest, tokens, key=lambda item: (-len(item[1]), item[0])),
        unreachable=sorted(tokenizer.unreachable()),
        not_utf8=kinds["not utf-8"],
        leading_space=kinds["leading space"],
        white_space=kinds["white space"],
        digits=kinds["digits"],
        scripts=dict(scripts.most_common()),
        tokens=vocab,
    )


def _script(text: str) -> str | None:
    """The script of the first letter: the first word of its Unicode name.

    Python has no table of scripts; the first word of the name ("CJK", "HANGUL", "LATIN") is enough
    for an overview.
    """
    for char in text:
        if char.isalpha():
            return unicodedata.name(char, "?").split()[0].split("-")[0].capitalize()
    return None


def longest_tokens(tokens: list[tuple[int, bytes]]) -> str:
    """Ids, lengths and tokens as a table for the terminal."""
    rows = [
        (str(id), str(len(token)), _tables.shorten(visible(token), TOKEN_WIDTH))
        for id, token in tokens
    ]
    return _tables.table("rrl", ("id", "bytes", "token"), rows)


def _shown(token: bytes) -> str:
    return html.escape(visible(token))


def glance(tokenizer: Tokenizer, *, n_tokens: int = 12) -> str:
    """A tokenizer in a few lines of HTML, for a notebook: size, pattern, special tokens, and
    a sample of tokens.
    """
    stages = tokenizer.pattern
    specials = tokenizer.special_tokens
    ids = set(specials.values())
    ordinary = [(id, t) for id, t in tokenizer.vocab.items() if len(t) > 1 and id not in ids]
    some = ordinary[:: max(len(ordinary) // n_tokens, 1)][:n_tokens]
    facts = [
        ("vocabulary", f"{len(tokenizer):,} ids"),
        ("pattern", ", ".join([stages] if isinstance(stages, str) else stages)),
        ("special tokens", ", ".join(f"{text} = {id}" for text, id in specials.items()) or "none"),
        ("some tokens", ", ".join(f"{visible(token)} = {id}" for id, token in some) or "bytes"),
        ("fingerprint", tokenizer.fingerprint),
    ]
    return "<b>Tokenizer</b>\n" + html_table(
        "ll", (), [tuple(map(html.escape, row)) for row in facts]
    )
