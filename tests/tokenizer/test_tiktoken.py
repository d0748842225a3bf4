"""The ids are those of tiktoken, for its own vocabularies and for ours."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tiktoken")

import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import generated
import rivals
from bytemill import Tokenizer, _native, train_tokenizer

BYTES = {bytes([i]): i for i in range(256)}
# Including unassigned, private and noncharacter code points.
any_text = st.one_of(
    generated.texts, st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
)

HOSTILE = [
    "",
    " ",
    "\t'data' \n'S 'Ll DON'T I'LL'VE",
    "  \n\n  \r\n\t \x0b\x0c x",
    "trailing spaces   ",
    "trailing newlines \n \n",
    "a\u0085b\u00a0\u00a0c\u2028d\u3000",
    "0123456789" * 20,
    "١٢٣٤٥٦ ⅧⅨ ½²³",
    "ÀÉÎõü Ǆǅǆ ʰʱ ªº ßẞ ſ's 'ſ 'K",
    "e\u0301e\u0301 \u0301 x\u20dd",
    "日本語、中文。한국어 ไทย العربية हिन्दी",
    "👩‍👩‍👧‍👦🏳️‍🌈🇪🇺 😀😀😀",
    "\ufeff\u200b\u200d\u00ad\ufffd\uffff",
    "\U000e0001\U0010ffff\u0378\ue000",
    "a" * 5000,
    " " * 5000,
    "ab" * 3000,
    "!?" * 3000,
    "\n" * 3000,
    "/" * 300 + "\n" * 300,
    "<|endoftext|><|fim_prefix|> <|endofprompt|>",
]


def encoding_of(tokenizer: Tokenizer, pattern: str) -> tiktoken.Encoding:
    """A tiktoken encoding with the tables of one of our tokenizers."""
    specials = tokenizer.special_tokens
    return tiktoken.Encoding(
        "ours",
        pat_str=pattern,
        mergeable_ranks={t: i for i, t in tokenizer.vocab.items() if i not in specials.values()},
        special_tokens=specials,
    )


@pytest.fixture(scope="module", params=["r50k", "cl100k", "o200k"])
def pair(
    request: pytest.FixtureRequest, documents: list[str]
) -> tuple[Tokenizer, tiktoken.Encoding]:
    """A freshly trained tokenizer, and tiktoken with the same tables."""
    pattern = rivals.tiktoken_definition(f"{request.param}_base").pattern
    texts = [*documents[:40], *HOSTILE * 3]
    tokenizer = train_tokenizer(
        iter(texts), vocab_size=2000, special_tokens=generated.DISJOINT, pattern=pattern
    )
    return tokenizer, encoding_of(tokenizer, pattern)


@pytest.mark.parametrize(("theirs", "ours"), [("r50k", "gpt2"), ("cl100k",) * 2, ("o200k",) * 2])
def test_the_patterns_of_tiktoken_are_known_by_name(theirs: str, ours: str) -> None:
    pattern = rivals.tiktoken_definition(f"{theirs}_base").pattern
    assert _native.known_pattern(pattern) == ours
    assert _native.known_pattern(_native.pattern_regex(ours)) == ours
    assert _native.known_pattern(ours) == ours
    assert _native.known_pattern("another") is None


@given(any_text)
def test_ids_of_our_vocabularies(pair: tuple[Tokenizer, tiktoken.Encoding], text: str) -> None:
    tokenizer, encoding = pair
    assert tokenizer.encode(text, special="none") == encoding.encode_ordinary(text)
    assert tokenizer.encode(text) == encoding.encode(text, allowed_special="all")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text(pair: tuple[Tokenizer, tiktoken.Encoding], text: str) -> None:
    tokenizer, encoding = pair
    assert tokenizer.encode(text, special="none") == encoding.encode_ordinary(text)


# --- published vocabularies -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(openai: rivals.Published) -> tuple[Tokenizer, tiktoken.Encoding]:
    encoding = openai.tiktoken()
    return Tokenizer.from_tiktoken(encoding), encoding


@pytest.mark.slow
def test_ids_of_real_text(
    published: tuple[Tokenizer, tiktoken.Encoding], documents: list[str]
) -> None:
    tokenizer, encoding = published
    for text in [*documents, *HOSTILE]:
        assert tokenizer.encode(text, special="none") == encoding.encode_ordinary(text)


@given(any_text)
def test_ids_of_any_text(published: tuple[Tokenizer, tiktoken.Encoding], text: str) -> None:
    tokenizer, encoding = published
    assert tokenizer.encode(text) == encoding.encode(text, allowed_special="all")


@given(generated.data)
def test_bytes_that_are_not_text_round_trip(
    published: tuple[Tokenizer, tiktoken.Encoding], data: bytes
) -> None:
    tokenizer, encoding = published
    ids = tokenizer.encode(data)
    assert tokenizer.decode_bytes(ids) == encoding.decode_bytes(ids) == data


@given(st.lists(st.integers(0, 99_000), max_size=30))
def test_decoding_any_ids(published: tuple[Tokenizer, tiktoken.Encoding], ids: list[int]) -> None:
    tokenizer, encoding = published
    assert tokenizer.decode_bytes(ids) == encoding.decode_bytes(ids)
    assert tokenizer.decode(ids) == encoding.decode(ids)


@pytest.mark.slow
def test_a_rank_file_is_the_live_encoding(openai: rivals.Published, tmp_path: Path) -> None:
    file = tmp_path / "ranks.tiktoken"
    file.write_bytes(rivals.rank_file(openai.name.removesuffix("_base")))
    loaded = Tokenizer.load(file, pattern=openai.pattern, special_tokens=openai.special_tokens)
    assert loaded == Tokenizer.from_tiktoken(openai.tiktoken())
    assert loaded.ignore_merges
    vocab = loaded.vocab
    assert all(vocab[rank] == token for token, rank in openai.ranks.items())
    loaded.save(tmp_path / "again.tiktoken", format="tiktoken")
    assert (tmp_path / "again.tiktoken").read_bytes().split() == file.read_bytes().split()


# --- ranks that no training produces --------------------------------------------------------------


@given(generated.rank_lists, generated.merge_letters, generated.texts)
def test_ranks_that_cannot_be_reached(tokens: list[bytes], letters: str, text: str) -> None:
    ranks = BYTES | {token: 256 + i for i, token in enumerate(tokens)}
    pattern = rivals.tiktoken_definition("r50k_base").pattern
    encoding = tiktoken.Encoding("ranks", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    tokenizer = Tokenizer.from_tiktoken(encoding)
    for given_text in (letters, text):
        assert tokenizer.encode(given_text) == encoding.encode_ordinary(given_text)


@pytest.mark.parametrize("broken", ["\ud83d", "a\udc00b", "\ud83d\ude00", "x\ude00\ud83d 'S"])
def test_surrogates(published: tuple[Tokenizer, tiktoken.Encoding], broken: str) -> None:
    tokenizer, encoding = published
    assert tokenizer.encode(broken) == encoding.encode(broken)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k"])
def test_every_code_point_has_the_class_that_tiktoken_gives_it(pattern: str) -> None:
    # A token of a character's last byte and a letter, digit, symbol or space shows whether the
    # two were in one piece.
    ranks = dict(BYTES)
    for other in (b"b", b"1", b"!", b" "):
        for last in range(0x80, 0xC0):
            ranks[bytes([last]) + other] = len(ranks)
    encoding = tiktoken.Encoding(
        "classes",
        pat_str=_native.pattern_regex(pattern),
        mergeable_ranks=ranks,
        special_tokens={},
    )
    tokenizer = Tokenizer.from_tiktoken(encoding)
    assert tokenizer.pattern == pattern
    # Between these ranges nothing is assigned.
    points = [*range(0x80, 0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0xE1000), 0x10FFFF]
    for start in range(0, len(points), 1 << 14):
        chars = map(chr, points[start : start + (1 << 14)])
        text = "".join(f"b{c}b {c}1 {c}! {c} {c}{c}\n" for c in chars)
        assert encoding.encode_ordinary(text) == tokenizer.encode(text), f"from {start}"
