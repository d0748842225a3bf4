"""`bytemill.compat.minbpe` beside minbpe's rules, written down as plainly as they can be."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

import generated
from bytemill import ConfigError, Tokenizer, TokenizerError
from bytemill.compat import _first_met
from bytemill.compat.minbpe import (
    GPT2_SPLIT_PATTERN,
    GPT4_SPLIT_PATTERN,
    BasicTokenizer,
    RegexTokenizer,
)

EOT = "<|endoftext|>"
Pair = tuple[int, int]
pieces = st.lists(st.text(st.sampled_from("aab "), max_size=12).map(str.encode), max_size=8)


def joined(ids: list[int], pair: Pair, new: int) -> list[int]:
    out: list[int] = []
    while ids:
        if tuple(ids[:2]) == pair:
            out, ids = [*out, new], ids[2:]
        else:
            out, ids = [*out, ids[0]], ids[1:]
    return out


def by_the_rule(chunks: Iterable[bytes], n_merges: int) -> list[tuple[Pair, int]]:
    """Every pair is counted anew for every merge; `max` gives the first of equals."""
    words = [list(chunk) for chunk in chunks]
    merges: list[tuple[Pair, int]] = []
    while len(merges) < n_merges:
        counts: dict[Pair, int] = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        best = max(counts, key=lambda pair: counts[pair])
        words = [joined(word, best, 256 + len(merges)) for word in words]
        merges.append((best, counts[best]))
    return merges


def merges_of(tokenizer: BasicTokenizer) -> list[Pair]:
    assert list(tokenizer.merges.values()) == list(range(256, 256 + len(tokenizer.merges)))
    return list(tokenizer.merges)


# --- learning -------------------------------------------------------------------------------------


@given(pieces | st.lists(generated.data, max_size=4))
@example([b"aaaaa", b"aaaa", b"aaa"])
@example([b"", b"ab", b"", b"ba", b"ab"])
def test_merges_are_those_of_the_rule(chunks: list[bytes]) -> None:
    assert list(_first_met.learn(chunks)) == by_the_rule(chunks, 10_000)


@given(generated.texts, st.sampled_from([None, GPT2_SPLIT_PATTERN]))
def test_pieces_are_cut_as_the_pattern_says(text: str, pattern: str | None) -> None:
    cut = regex.findall(pattern or GPT4_SPLIT_PATTERN, text)
    expected = [pair for pair, _ in by_the_rule(map(str.encode, cut), 30)]
    tokenizer = RegexTokenizer(pattern)
    tokenizer.train(text, 256 + len(expected))
    assert merges_of(tokenizer) == expected


def test_real_text(documents: list[str]) -> None:
    text = "".join(documents[:20])[:8_000]
    tokenizer = RegexTokenizer()
    tokenizer.train(text, 256 + 60)
    chunks = [chunk.encode() for chunk in regex.findall(GPT4_SPLIT_PATTERN, text)]
    assert merges_of(tokenizer) == [pair for pair, _ in by_the_rule(chunks, 60)]
    basic = BasicTokenizer()
    basic.train(text[:5000], 256 + 40)
    assert merges_of(basic) == [pair for pair, _ in by_the_rule([text[:5000].encode()], 40)]


def test_a_larger_text_is_no_trap(documents: list[str]) -> None:
    text = "".join(documents[:40])
    tokenizer = RegexTokenizer()
    tokenizer.train(text, 2000)
    assert len(tokenizer.merges) == 2000 - 256
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_verbose_tells_each_merge(capsys: pytest.CaptureFixture[str]) -> None:
    BasicTokenizer().train("aaabdaaabac", 258, verbose=True)
    assert capsys.readouterr().out.splitlines() == [
        "merge 1/2: (97, 97) -> 256 (b'aa') had 4 occurrences",
        "merge 2/2: (256, 97) -> 257 (b'aaa') had 2 occurrences",
    ]


def test_too_little_text() -> None:
    tokenizer = RegexTokenizer()
    with pytest.raises(ValueError, match="258 of the 300"):
        tokenizer.train("abc", 300)
    assert tokenizer.merges == {}
    with pytest.raises(AssertionError):
        tokenizer.train("abc", 255)
    tokenizer.train("", 256)
    assert tokenizer.encode("abc") == [97, 98, 99]


@pytest.mark.parametrize("in_constructor", [True, False])
def test_the_options_of_the_guide(in_constructor: bool) -> None:
    options = {"max_workers": 4, "batch_size": 1000, "min_freq_threshold": 3}
    made = RegexTokenizer(**options if in_constructor else {})
    with pytest.warns(UserWarning, match="no pair occurs 3 times any more"):
        made.train("ab ab ab cd cd", 300, **{} if in_constructor else options)
    assert merges_of(made) == [(97, 98)]
    plain = RegexTokenizer()
    plain.train("ab ab ab cd cd", 257)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.train("ab ab ab cd cd", 257, max_workers=1, batch_size=1)
    assert made.merges == plain.merges


@pytest.mark.parametrize("name", ["max_workers", "batch_size", "min_freq_threshold"])
def test_impossible_options(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        BasicTokenizer(**{name: 0})
    with pytest.raises(ConfigError, match=name):
        RegexTokenizer().train("ab", 257, **{name: -1})


# --- encoding and decoding ------------------------------------------------------------------------


def encoded_by_the_rule(data: bytes, merges: dict[Pair, int]) -> list[int]:
    ids = list(data)
    while known := [pair for pair in zip(ids, ids[1:]) if pair in merges]:
        best = min(known, key=lambda pair: merges[pair])
        ids = joined(ids, best, merges[best])
    return ids


@given(generated.texts)
def test_encoding_by_the_rule(text: str) -> None:
    for tokenizer, cut in (
        (BasicTokenizer(), [text]),
        (RegexTokenizer(), regex.findall(GPT4_SPLIT_PATTERN, text)),
    ):
        tokenizer.train("the hello then 12345 n't aabab é" * 3, 270)
        expected = [i for c in cut for i in encoded_by_the_rule(c.encode(), tokenizer.merges)]
        ids = (
            tokenizer.encode_ordinary(text)
            if isinstance(tokenizer, RegexTokenizer)
            else tokenizer.encode(text)
        )
        assert ids == expected
        assert tokenizer.decode(ids) == text


@pytest.fixture
def trained() -> RegexTokenizer:
    tokenizer = RegexTokenizer()
    tokenizer.train("the cat sat on the mat" * 3, 262)
    tokenizer.register_special_tokens({"<|end": 1000, "<|endoftext|>": 1001, "→": 1002})
    return tokenizer


@pytest.mark.parametrize(
    ("allowed", "specials"),
    [
        # The first that was registered, not the longest.
        ("all", [1000, 1002]),
        ({EOT}, [1001]),
        (frozenset({"→"}), [1002]),
        ({"unknown"}, []),
        (set(), []),
        ("none", []),
    ],
)
def test_special_tokens(
    trained: RegexTokenizer, allowed: str | set[str], specials: list[int]
) -> None:
    text = f"the {EOT}cat→"
    ids = trained.encode(text, allowed_special=allowed)
    assert [id for id in ids if id >= 1000] == specials
    assert trained.decode(ids) == text


def test_special_tokens_are_refused_by_default(trained: RegexTokenizer) -> None:
    assert trained.encode("the cat") == trained.encode_ordinary("the cat")
    with pytest.raises(AssertionError, match="special token"):
        trained.encode("the→")
    with pytest.raises(ValueError, match="allowed_special=some not understood"):
        trained.encode("the", allowed_special="some")


def test_what_cannot_be_decoded_or_encoded(trained: RegexTokenizer) -> None:
    with pytest.raises(ValueError, match="invalid token id: 999"):
        trained.decode([97, 999])
    with pytest.raises(KeyError):
        BasicTokenizer().decode([256])
    assert trained.decode([0xFF, 97]) == "\ufffda"
    for call in (trained.encode_ordinary, BasicTokenizer().encode):
        with pytest.raises(UnicodeEncodeError):
            call("\ud800")


def test_as_a_context() -> None:
    with RegexTokenizer() as tokenizer:
        tokenizer.train("abab", 257)
    assert tokenizer.encode("ab") == [256]
    with pytest.raises(ValueError, match="no pair is left"), BasicTokenizer() as basic:
        basic.train("a", 257)


# --- files ----------------------------------------------------------------------------------------


def test_files(tmp_path: Path) -> None:
    prefix = str(tmp_path / "small")
    tokenizer = RegexTokenizer(GPT2_SPLIT_PATTERN)
    tokenizer.train("\n\n é", 258)
    tokenizer.register_special_tokens({EOT: 300})
    tokenizer.save(prefix)
    model = Path(f"{prefix}.model").read_text(encoding="utf-8")
    assert model == f"minbpe v1\n{GPT2_SPLIT_PATTERN}\n1\n{EOT} 300\n10 10\n32 195\n"
    lines = Path(f"{prefix}.vocab").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 258
    assert (lines[10], lines[97], lines[195]) == (r"[\u000a] 10", "[a] 97", "[\ufffd] 195")
    assert lines[256:] == [
        r"[\u000a][\u000a] -> [\u000a\u000a] 256",
        "[ ][\ufffd] -> [ \ufffd] 257",
    ]

    again = RegexTokenizer()
    again.load(f"{prefix}.model")
    assert (again.merges, again.pattern) == (tokenizer.merges, GPT2_SPLIT_PATTERN)
    assert again.special_tokens == {EOT: 300}
    text = f"\n\n\n {EOT}é"
    ids = tokenizer.encode(text, allowed_special="all")
    assert again.encode(text, allowed_special="all") == ids
    assert again.decode(ids) == text
    # As a tokenizer of ours, and as minbpe would write what it has loaded.
    assert Tokenizer.load(f"{prefix}.model").encode(text) == ids
    again.save(f"{prefix}2")
    assert Path(f"{prefix}2.model").read_text(encoding="utf-8") == model
    assert Path(f"{prefix}2.vocab").read_text(encoding="utf-8").splitlines()[-1] == f"[{EOT}] 300"


def test_a_basic_file_has_no_pattern(tmp_path: Path) -> None:
    basic = BasicTokenizer()
    basic.train("a b a b", 258)
    basic.save(str(tmp_path / "basic"))
    again = BasicTokenizer()
    again.load(str(tmp_path / "basic.model"))
    assert again.pattern == ""
    assert again.encode("a b a b") == basic.encode("a b a b") == [257, 32, 257]


def test_files_that_are_none(tmp_path: Path) -> None:
    tokenizer = RegexTokenizer()
    with pytest.raises(AssertionError):
        tokenizer.load("tokenizer.json")
    with pytest.raises(FileNotFoundError):
        tokenizer.load(str(tmp_path / "missing.model"))
    (tmp_path / "broken.model").write_text("minbpe v1\n\n0\n97 300\n")
    with pytest.raises(TokenizerError, match="not made before"):
        tokenizer.load(str(tmp_path / "broken.model"))
    tokenizer.register_special_tokens({"a\nb": 300})
    with pytest.raises(TokenizerError, match="line break"):
        tokenizer.save(str(tmp_path / "lines"))
    assert not list(tmp_path.glob("lines*"))
