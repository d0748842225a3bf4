"""`bytemill.compat.minbpe` against a plain implementation of minbpe's rules."""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("tiktoken")

import regex
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st

import generated
import rivals
from bytemill import ConfigError, Tokenizer, TokenizerError
from bytemill.compat import minbpe
from bytemill.compat.minbpe import (
    BasicTokenizer,
    GPT4Tokenizer,
    OptimizedRegexTokenizer,
    RegexTokenizer,
    _learner,
)
from bytemill.compat.minbpe.base import get_stats, merge
from bytemill.compat.minbpe.regex import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN

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
    """Counts all pairs again for every merge; of equal counts, `max` returns the first."""
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


def merges_of(tokenizer: minbpe.Tokenizer) -> list[Pair]:
    assert list(tokenizer.merges.values()) == list(range(256, 256 + len(tokenizer.merges)))
    return list(tokenizer.merges)


# --- learning -------------------------------------------------------------------------------------


@given(pieces | st.lists(generated.data, max_size=4))
@example([b"aaaaa", b"aaaa", b"aaa"])
@example([b"", b"ab", b"", b"ba", b"ab"])
def test_merges_are_those_of_the_rule(chunks: list[bytes]) -> None:
    assert list(_learner.learn(chunks)) == by_the_rule(chunks, 10_000)
    common = [chunk for chunk in chunks if chunks.count(chunk) >= 2]
    assert list(_learner.learn(chunks, 2)) == by_the_rule(common, 10_000)


@given(generated.texts, st.sampled_from([None, GPT2_SPLIT_PATTERN]))
def test_pieces_are_cut_as_the_pattern_says(text: str, pattern: str | None) -> None:
    cut = regex.findall(pattern or GPT4_SPLIT_PATTERN, text)
    expected = [pair for pair, _ in by_the_rule(map(str.encode, cut), 30)]
    tokenizer = RegexTokenizer(pattern)
    tokenizer.train(text, 256 + len(expected))
    assert merges_of(tokenizer) == expected


@pytest.mark.slow
def test_real_text(documents: list[str]) -> None:
    text = "".join(documents[:20])[:8_000]
    tokenizer = RegexTokenizer()
    tokenizer.train(text, 256 + 60)
    chunks = [chunk.encode() for chunk in regex.findall(GPT4_SPLIT_PATTERN, text)]
    assert merges_of(tokenizer) == [pair for pair, _ in by_the_rule(chunks, 60)]
    basic = BasicTokenizer()
    basic.train(text[:5000], 256 + 40)
    assert merges_of(basic) == [pair for pair, _ in by_the_rule([text[:5000].encode()], 40)]


def test_a_larger_text(documents: list[str]) -> None:
    text = "".join(documents[:40])
    tokenizer = RegexTokenizer()
    tokenizer.train(text, 2000)
    assert len(tokenizer.merges) == 2000 - 256
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_verbose_prints_each_merge(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_issue_13_the_example_of_the_guide(
    tmp_path: Path,
    documents: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bytemill.compat.minbpe.regex_optimized import OptimizedRegexTokenizer

    monkeypatch.chdir(tmp_path)
    text = "".join(documents[:3])
    tokenizer = OptimizedRegexTokenizer(
        max_workers=8, batch_size=2000, min_freq_threshold=5, use_batching=True
    )
    with tokenizer:
        with pytest.warns(UserWarning, match="no pairs left to merge"):
            tokenizer.train(text, vocab_size=32000, verbose=True)
        tokenizer.save("model")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(tokenizer.merges) > 50
    chunks = [chunk.encode() for chunk in regex.findall(GPT4_SPLIT_PATTERN, text)]
    common = [chunk for chunk in chunks if chunks.count(chunk) >= 5]
    assert merges_of(tokenizer) == [pair for pair, _ in by_the_rule(common, 32000 - 256)]
    again = RegexTokenizer()
    again.load("model.model")
    assert again.encode(text) == tokenizer.encode(text)


def test_the_guides_other_options_change_nothing(documents: list[str]) -> None:
    text = documents[0]
    plain = RegexTokenizer()
    plain.train(text, 300)
    for options in (
        {},
        {"max_workers": 4, "batch_size": 500, "min_freq_threshold": 1, "use_batching": True},
        {"max_workers": 2, "batch_size": 1, "min_freq_threshold": 0, "use_batching": False},
    ):
        made = OptimizedRegexTokenizer(**options)
        made.train(text, 300)
        assert made.merges == plain.merges
    by_place = OptimizedRegexTokenizer(GPT2_SPLIT_PATTERN, 4, 1000, 2, True)
    assert (by_place.pattern, by_place.max_workers) == (GPT2_SPLIT_PATTERN, 4)
    assert (by_place.batch_size, by_place.min_freq_threshold) == (1000, 2)


@pytest.mark.parametrize(
    ("name", "least"), [("max_workers", 1), ("batch_size", 1), ("min_freq_threshold", 0)]
)
def test_impossible_options(name: str, least: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be ≥ {least}, got {least - 1}"):
        OptimizedRegexTokenizer(**{name: least - 1})


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


def test_invalid_ids_and_texts(trained: RegexTokenizer) -> None:
    with pytest.raises(ValueError, match="invalid token id: 999"):
        trained.decode([97, 999])
    with pytest.raises(KeyError):
        BasicTokenizer().decode([256])
    assert trained.decode([0xFF, 97]) == "\ufffda"
    for call in (trained.encode_ordinary, BasicTokenizer().encode):
        with pytest.raises(UnicodeEncodeError):
            call("\ud800")


def test_as_a_context() -> None:
    with OptimizedRegexTokenizer() as tokenizer:
        tokenizer.train("abab", 257)
    assert tokenizer.encode("ab") == [256]
    with pytest.raises(ZeroDivisionError), OptimizedRegexTokenizer():
        _ = 1 // 0
    with pytest.raises(ValueError, match="no pairs left"):
        BasicTokenizer().train("a", 257)


# --- assignments and subclasses -------------------------------------------------------------------


def test_issue_13_the_base_class_and_the_modules_are_minbpes() -> None:
    base = minbpe.Tokenizer()
    assert (base.merges, base.pattern, base.special_tokens) == ({}, "", {})
    assert base.vocab == {i: bytes([i]) for i in range(256)}
    for call in (lambda: base.train("a", 256), lambda: base.encode("a"), lambda: base.decode([])):
        with pytest.raises(NotImplementedError):
            call()
    for made in (BasicTokenizer, RegexTokenizer, OptimizedRegexTokenizer, GPT4Tokenizer):
        assert issubclass(made, minbpe.Tokenizer)
    for name, names in {
        "base": ["Tokenizer", "get_stats", "merge", "render_token", "replace_control_characters"],
        "basic": ["BasicTokenizer"],
        "regex": ["RegexTokenizer", "GPT2_SPLIT_PATTERN", "GPT4_SPLIT_PATTERN"],
        "gpt4": ["GPT4Tokenizer", "bpe", "recover_merges", "GPT4_SPECIAL_TOKENS"],
        "regex_optimized": ["OptimizedRegexTokenizer"],
    }.items():
        module = importlib.import_module(f"bytemill.compat.minbpe.{name}")
        assert all(hasattr(module, each) for each in names)


ids_of_few = st.lists(st.integers(0, 3), max_size=20)


@given(ids_of_few, st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 5))
def test_the_helpers_of_the_base(ids: list[int], pair: Pair, new: int) -> None:
    assert merge(ids, pair, new) == joined(ids, pair, new)
    counts = get_stats(ids, get_stats(ids))
    assert counts == {each: 2 * n for each, n in Counter(zip(ids, ids[1:])).items()}


AB, BC, ABC = (97, 98), (98, 99), (256, 99)


@pytest.mark.parametrize("kind", [BasicTokenizer, RegexTokenizer, OptimizedRegexTokenizer])
def test_issue_13_assigned_merges_and_vocab_take_effect(kind: type[minbpe.Tokenizer]) -> None:
    tokenizer = kind()
    assert tokenizer.encode("abc") == [97, 98, 99]
    mine = {AB: 256}
    tokenizer.merges = mine
    assert tokenizer.encode("abc") == [256, 99]
    mine[ABC] = 257
    assert tokenizer.encode("abc") == [257]
    # The lowest id merges first, whatever its position; the number of merges is the same.
    mine[ABC] = 255 + 256
    del mine[ABC]
    mine[BC] = 100
    assert tokenizer.encode("abc") == [97, 100]
    tokenizer.merges = {}
    assert tokenizer.encode("abc") == [97, 98, 99]
    tokenizer.merges = {AB: 256}
    tokenizer.vocab = tokenizer._build_vocab()
    assert tokenizer.decode([256]) == "ab"
    tokenizer.vocab = {256: b"x"}
    assert tokenizer.decode([256]) == "x"
    # Learned merges can be changed too.
    tokenizer.train("abcabc", 258)
    first, second = tokenizer.merges
    assert tokenizer.encode("abc") == [257]
    tokenizer.merges.pop(second)
    assert tokenizer.encode("abc") == [256, 99]
    tokenizer.merges.clear()
    assert tokenizer.encode("abc") == [97, 98, 99]
    tokenizer.merges |= {first: 300}
    assert tokenizer.encode("abc") == [300, 99]


@given(
    generated.few_letters,
    st.dictionaries(
        st.tuples(*[st.sampled_from([97, 98, 32, 256, 257, 258])] * 2),
        st.sampled_from([256, 257, 258, 259, 40, 97, 5000]),
        max_size=6,
    ),
)
@example("abab", {(97, 98): 256, (98, 97): 256})
@example("abcabc", {AB: 256, BC: 257, ABC: 258, (97, 257): 259})
def test_issue_13_any_merges_encode_by_the_rule(text: str, merges: dict[Pair, int]) -> None:
    basic, pieces = BasicTokenizer(), RegexTokenizer()
    basic.merges = pieces.merges = merges
    assert basic.encode(text) == encoded_by_the_rule(text.encode(), merges)
    cut = regex.findall(GPT4_SPLIT_PATTERN, text)
    expected = [id for chunk in cut for id in encoded_by_the_rule(chunk.encode(), merges)]
    assert pieces.encode(text) == expected


def test_issue_13_an_assigned_pattern_takes_effect() -> None:
    tokenizer = RegexTokenizer()
    tokenizer.train("a b a b a b", 258)
    assert tokenizer.encode("a b") == [97, 256]
    tokenizer.pattern = r"\s|\S"
    assert tokenizer.encode("a b") == [97, 32, 98]
    tokenizer.pattern = "gpt2"  # an expression, not the name of a pattern
    tokenizer.merges = {(103, 112): 256}
    assert tokenizer.encode("gpt2gpt") == [256, 116, 50, 256, 116]
    tokenizer.compiled_pattern = regex.compile("g|p")
    assert tokenizer.encode("gpgp") == [103, 112, 103, 112]
    assert RegexTokenizer("ab").compiled_pattern == regex.compile("ab")


def test_issue_13_overridden_methods_are_called() -> None:
    class Upper(RegexTokenizer):
        def _encode_chunk(self, text_bytes: bytes) -> list[int]:
            return super()._encode_chunk(text_bytes.upper())

    tokenizer = Upper()
    tokenizer.train("THE CAT THE CAT", 259)
    expected = RegexTokenizer()
    expected.merges = tokenizer.merges
    text = "the cat — the CAT"
    assert tokenizer.encode(text) == expected.encode(text.upper()) != expected.encode(text)
    plain = RegexTokenizer()
    plain._encode_chunk = lambda data: [len(data)]  # type: ignore[method-assign]
    assert plain.encode("the cat") == [3, 4]

    class Reversed(RegexTokenizer):
        def encode_ordinary(self, text: str) -> list[int]:
            return super().encode_ordinary(text)[::-1]

    assert Reversed().encode("abc") == [99, 98, 97]


def test_issue_13_tokens_of_equal_bytes() -> None:
    # "ab" + "c" and "a" + "bc" are both tokens: the core holds each string of bytes once.
    text = "ab." * 9 + "bc." * 8 + "abc." * 7 + "abc"
    tokenizer = BasicTokenizer()
    tokenizer.merges = {AB: 256, BC: 257, ABC: 258, (97, 257): 259}
    assert tokenizer.encode(text) == encoded_by_the_rule(text.encode(), tokenizer.merges)


def test_issue_13_merges_that_the_file_cannot_hold_are_refused(tmp_path: Path) -> None:
    tokenizer = RegexTokenizer()
    tokenizer.merges = {AB: 300}
    with pytest.raises(TokenizerError, match="256, 257, … in order"):
        tokenizer.save(str(tmp_path / "model"))
    assert not list(tmp_path.iterdir())


# As tiktoken's vocabularies are: the ids of bytes are not the bytes.
SHUFFLED = {bytes([255 - i]): i for i in range(256)} | {
    b"ab": 256,
    b"bc": 257,
    b"abc": 258,
    b" abc": 259,
    "é".encode(): 260,
}


def test_issue_13_gpt4_with_shuffled_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tiktoken.Encoding(
        "small",
        pat_str=GPT4_SPLIT_PATTERN,
        mergeable_ranks=SHUFFLED,
        special_tokens={EOT: 100257},
    )
    small = Tokenizer.from_tiktoken(theirs)
    monkeypatch.setattr("bytemill.compat.minbpe.gpt4.get_encoding", lambda name: small)
    ours = GPT4Tokenizer()
    text = f"abc abc bcab é 日本{EOT}"
    ids = ours.encode(text, allowed_special="all")
    assert ids == theirs.encode(text, allowed_special="all")
    assert ours.decode(ids) == text
    with pytest.raises(ValueError, match="invalid token id: 9999"):
        ours.decode([9999])
    for call in (
        lambda: ours.train("a", 300),
        lambda: ours.save("x"),
        lambda: ours.load("x.model"),
    ):
        with pytest.raises(NotImplementedError):
            call()
    ours.save_vocab(str(tmp_path / "gpt4.vocab"))
    lines = (tmp_path / "gpt4.vocab").read_text(encoding="utf-8").splitlines()
    assert (lines[255 - 97], lines[259]) == ("[a] 158", "[ ][abc] -> [ abc] 259")


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


def test_files_that_are_not_models(tmp_path: Path) -> None:
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


@pytest.mark.skipif(sys.platform == "win32", reason="has no FIFOs")
def test_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    """Opening a FIFO waited for a writer that never came."""
    os.mkfifo(tmp_path / "pipe.model")
    (tmp_path / "zero.model").symlink_to("/dev/zero")
    for name in ("pipe.model", "zero.model"):
        with pytest.raises(TokenizerError, match="not a regular file"):
            RegexTokenizer().load(str(tmp_path / name))


@pytest.mark.slow
def test_gpt4_is_cl100k(documents: list[str]) -> None:
    """With the vocabulary that is found on this machine, and without importing tiktoken."""
    ours, theirs = GPT4Tokenizer(), rivals.published("cl100k").tiktoken()
    for text in (*documents[:5], f"naïve 日本 😀{EOT}<|fim_prefix|>"):
        ids = ours.encode(text, allowed_special="all")
        assert ids == theirs.encode(text, allowed_special="all")
        assert ours.decode(ids) == text
