"""Texts for property tests, of every kind that has broken a tokenizer."""

from __future__ import annotations

import re
import unicodedata

from hypothesis import strategies as st

# One contains another, one is another twice, one shares its beginning with another.
SPECIALS = ["<|endoftext|>", "<|end|>", "<|endoftext|><|endoftext|>", "<|endo", "→"]
# tiktoken would not match the longest of these, but the one that it tries first.
DISJOINT = ["<|endoftext|>", "<|end|>", "→"]

# One or two characters of every class that a pattern distinguishes: letters of each case kind and
# none, marks, digits of each kind, apostrophes and the letters of contractions (among them one
# that only case folding makes such a letter), white space of every kind, punctuation, symbols,
# emoji with their joiners, and characters of two, three and four bytes.
CLASSES = (
    "aeslltdmvrASLTDMVR'’\u017fßǅʰªあ中ا"
    "\u0301\u0903\u20dd0٣Ⅷ²½\u3007 \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u3000\ufeff\u200b\u200d"
    "._-/\\<|>$€+😀🏽\U0001d400\U00020000\x00\x1c\x7f"
)


def known(text: str) -> bool:
    """Whether all characters are in Unicode 3.2, which every engine supports."""
    return all(
        c in CLASSES or "\udc80" <= c <= "\udcff" or unicodedata.ucd_3_2_0.category(c) != "Cn"
        for c in text
    )


characters = st.characters(exclude_categories=["Cs", "Cn", "Co"]).filter(known)
runs = st.lists(
    st.tuples(st.sampled_from("aab é"), st.integers(1, 40)).map(lambda run: run[0] * run[1]),
    max_size=6,
).map("".join)
few_letters = st.text(st.sampled_from("ab "), max_size=60)
classes = st.text(st.sampled_from(CLASSES), max_size=40)
words = st.lists(
    st.sampled_from(["the", " the", " then", "hello", " hell", "n't", "'s", "\n\n", "  ", "12345"]),
    max_size=30,
).map("".join)
specials = st.lists(
    st.sampled_from([*SPECIALS, "<|", "endoftext|>", "<|endoftext", "|>", "a", " ", "\n"]),
    max_size=12,
).map("".join)

# Any text.
texts = st.lists(
    st.one_of(runs, few_letters, classes, words, specials, st.text(characters, max_size=30)),
    max_size=5,
).map("".join)

# Any bytes: text of every kind with stray bytes anywhere.
stray = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf"]),
)
data = (
    st.lists(st.one_of(texts.map(str.encode), stray), max_size=5)
    .map(b"".join)
    # Stray bytes can make up a character.
    .filter(lambda data: known(data.decode("utf-8", "surrogateescape")))
)

# What a text file may hold: bytes that are not UTF-8, but no control characters.
file_data = st.lists(
    st.one_of(texts.map(str.encode), st.sampled_from([b"caf\xe9 ", b"\xff", b"\xe2\x82"])),
    max_size=5,
).map(lambda parts: re.sub(rb"[\x00-\x08\x0e-\x1f\x7f]", b"", b"".join(parts)))


@st.composite
def splits(draw: st.DrawFn, whole: str | bytes) -> list[str | bytes]:
    """The same text in parts, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)])]


@st.composite
def merge_lists(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Merges that no training would produce: any two tokens, in any order.

    A merge may come before those that make its halves, and a token may have several merges.
    """
    tokens = [b"a", b"b", b" ", b"\xc3", b"\xa9", b"\n"]
    merges: list[tuple[bytes, bytes]] = []
    for left, right in draw(st.lists(st.tuples(*[st.integers(0, 99)] * 2), max_size=25)):
        pair = tokens[left % len(tokens)], tokens[right % len(tokens)]
        joined = pair[0] + pair[1]
        if pair not in merges and len(joined) <= 12:
            merges.append(pair)
            if joined not in tokens:
                tokens.append(joined)
    return draw(st.permutations(merges))


def merged(merges: list[tuple[bytes, bytes]]) -> dict[int, bytes]:
    """The vocabulary of merges: the bytes, and what the merges make."""
    made = dict.fromkeys(left + right for left, right in merges)
    return dict(enumerate([*(bytes([byte]) for byte in range(256)), *made]))


# Text of the letters that `merge_lists` merges.
merge_letters = st.text(st.sampled_from("aabb  é\n"), max_size=60)

# Tokens with ranks, of which some cannot be reached.
rank_lists = st.lists(
    st.binary(min_size=2, max_size=6)
    | st.text(st.sampled_from("ab é"), min_size=2, max_size=6).map(str.encode),
    unique=True,
    max_size=40,
)
