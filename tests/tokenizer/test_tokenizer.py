"""The tokenizer as an object: types of arguments and results, and what it refuses."""

from __future__ import annotations

import copy
import pickle
import re
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bytemill
from bytemill import Tokenizer, TokenizerError

EOT = "<|endoftext|>"
BYTES = {i: bytes([i]) for i in range(256)}


@pytest.fixture
def small() -> Tokenizer:
    """Few tokens with scattered ids, and special tokens of which one begins like another."""
    vocab = {1000 + i: bytes([i]) for i in range(256)} | {7: b"he", 8: b"ll", 9: b"llo", 3: b" w"}
    merges = [(b"h", b"e"), (b"l", b"l"), (b"ll", b"o"), (b" ", b"w")]
    return Tokenizer(vocab, merges, {"<|a|>": 2, "<|a|><|b|>": 5})


# --- construction ---------------------------------------------------------------------------------


def test_ids_may_have_gaps(small: Tokenizer) -> None:
    assert small.encode("hello w") == [7, 9, 3]
    assert small.encode("x") == [1000 + ord("x")]
    assert small.decode([7, 9, 3]) == "hello w"
    assert len(small) == 262
    assert small.max_id == 1255
    assert small.vocab[9] == b"llo"
    assert small.token_bytes(9) == b"llo"
    assert small.token_id(b"llo") == small.token_id("llo") == 9
    assert small.token_id("<|a|>") == 2


def test_special_tokens_not_in_the_vocabulary_get_new_ids() -> None:
    tokenizer = Tokenizer(BYTES, [], ["<|a|>", "<|b|>"])
    assert tokenizer.special_tokens == {"<|a|>": 256, "<|b|>": 257}


def test_special_tokens_in_the_vocabulary_keep_theirs() -> None:
    tokenizer = Tokenizer(BYTES | {300: b"<|b|>"}, [], ["<|a|>", "<|b|>"])
    assert tokenizer.special_tokens["<|b|>"] == 300
    assert tokenizer.encode("<|a|><|b|>") == [tokenizer.special_tokens["<|a|>"], 300]
    assert len(tokenizer) == 258


@pytest.mark.parametrize(
    ("vocab", "merges", "specials", "said"),
    [
        ({i: bytes([i]) for i in range(255)}, [], [], "ff|255"),
        (BYTES | {256: b"ab", 257: b"ab"}, [(b"a", b"b")], [], "ab"),
        (BYTES, [(b"a", b"b")], [], "ab"),
        (BYTES | {256: b"abc"}, [(b"ab", b"c")], [], "ab"),
        (BYTES | {256: b""}, [], [], "empty"),
        (BYTES, [], [""], "empty"),
        (BYTES, [], {"<|a|>": 300, "<|b|>": 300}, "300"),
        (BYTES, [], {"<|a|>": 65}, "65"),
        (BYTES | {2**32 - 2: b"ab"}, [(b"a", b"b")], ["<|a|>"], "largest possible is 4294967294"),
    ],
)
def test_an_impossible_vocabulary_is_refused(
    vocab: dict[int, bytes], merges: list[tuple[bytes, bytes]], specials: list[str], said: str
) -> None:
    with pytest.raises(TokenizerError, match=said):
        Tokenizer(vocab, merges, specials)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tokenizer({"a": b"a"}, []),
        lambda: Tokenizer({1: "a"}, []),
        lambda: Tokenizer(BYTES, [b"ab"]),
        lambda: Tokenizer(BYTES, 7),
        lambda: Tokenizer(BYTES, [], "<|a|>"),
        lambda: Tokenizer(BYTES, [], [b"<|a|>"]),
        lambda: Tokenizer(BYTES, [], pattern=7),
    ],
)
def test_wrong_types_are_type_errors(make: Callable[[], Tokenizer]) -> None:
    with pytest.raises(TypeError):
        make()


def test_a_piece_that_is_a_token_is_that_token_if_asked() -> None:
    vocab = BYTES | {256: b"bc", 257: b"ab", 258: b"abc"}
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    assert Tokenizer(vocab, merges).encode("abc") == [97, 256]
    assert Tokenizer(vocab, merges, ignore_merges=True).encode("abc") == [258]
    assert Tokenizer(vocab, merges).unreachable() == [258]


# --- encoding -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_way_to_encode_gives_the_same_ids(tokenizer: Tokenizer, documents: list[str]) -> None:
    texts = [*documents[:50], "", EOT, "naïve 😀"]
    ids = [tokenizer.encode(text) for text in texts]
    assert [tokenizer.encode(text.encode()) for text in texts] == ids
    assert [tokenizer.encode_array(text).tolist() for text in texts] == ids
    assert [tokenizer.count(text) for text in texts] == [len(row) for row in ids]
    assert [tokenizer.encode_with_offsets(text).ids for text in texts] == ids
    assert [list(tokenizer.encode_iterable([text])) for text in texts] == ids
    for threads in (None, 1, 2, 7):
        assert tokenizer.encode_batch(texts, threads=threads, lists=True) == ids


def test_arrays_have_the_types_that_are_promised(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_array("hello").dtype == np.uint32
    batch = tokenizer.encode_batch(["hello", "", b"world"])
    assert isinstance(batch, bytemill.Batch)
    assert (batch.ids.dtype, batch.offsets.dtype) == (np.uint32, np.uint64)
    assert batch.offsets.tolist()[0] == 0
    assert len(batch.offsets) == 4
    assert tokenizer.decode_batch(batch) == ["hello", "", "world"]
    assert tokenizer.encode_batch([]).offsets.tolist() == [0]


def test_offsets_are_in_bytes_and_in_characters() -> None:
    tokenizer = Tokenizer(BYTES | {256: "é".encode()}, [(b"\xc3", b"\xa9")], ["<|a|>"])
    assert tokenizer.encode_with_offsets("né€<|a|>!") == bytemill.Offsets(
        ids=[110, 256, 0xE2, 0x82, 0xAC, 257, 33],
        bytes=[(0, 1), (1, 3), (3, 4), (4, 5), (5, 6), (6, 11), (11, 12)],
        chars=[(0, 1), (1, 2), (2, 3), (2, 3), (2, 3), (3, 8), (8, 9)],
    )
    assert tokenizer.encode_with_offsets(b"\xffa").chars == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("a\ud83d", "a\ufffd"),
        ("\udc00b", "\ufffdb"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "��"),
    ],
)
def test_surrogates_are_replaced(tokenizer: Tokenizer, broken: str, whole: str) -> None:
    assert tokenizer.encode(broken) == tokenizer.encode(whole)
    assert tokenizer.encode_array(broken).tolist() == tokenizer.encode(whole)
    assert tokenizer.encode_batch([broken], lists=True) == [tokenizer.encode(whole)]
    assert tokenizer.count(broken) == tokenizer.count(whole)


@pytest.mark.parametrize("wrong", [7, None, ["a"], [1, 2], object()])
def test_only_text_can_be_encoded(tokenizer: Tokenizer, wrong: object) -> None:
    for encode in (tokenizer.encode, tokenizer.encode_array, tokenizer.count):
        with pytest.raises(TypeError):
            encode(wrong)
    with pytest.raises(TypeError):
        tokenizer.encode_batch([wrong])


def test_a_string_is_not_a_batch(tokenizer: Tokenizer) -> None:
    with pytest.raises(TypeError, match="texts must be a sequence of texts, not str"):
        tokenizer.encode_batch("hello")


# --- special tokens -------------------------------------------------------------------------------


def test_of_special_tokens_the_longest_wins(small: Tokenizer) -> None:
    assert small.encode("<|a|><|b|><|a|>") == [5, 2]


def test_the_caller_says_what_counts_as_special(small: Tokenizer) -> None:
    text = "<|a|><|b|>"
    assert small.encode(text, special="all") == [5]
    plain = small.encode(text, special="none")
    assert small.decode(plain) == text
    assert not {2, 5} & set(plain)
    assert small.encode(text, special={"<|a|>"}) == [2, *small.encode("<|b|>")]
    assert small.encode(text, special=["<|a|>", "<|a|><|b|>"]) == [5]
    assert small.encode(text, special=set()) == plain
    assert small.encode("hello", special="error") == small.encode("hello")


@pytest.mark.parametrize("text", ["né<|endoftext|>", "né<|endoftext|>".encode()])
def test_a_refused_special_token_is_named_with_its_place(
    tokenizer: Tokenizer, text: str | bytes
) -> None:
    for encode in (tokenizer.encode, tokenizer.encode_array, tokenizer.encode_with_offsets):
        with pytest.raises(TokenizerError, match=re.escape(EOT)) as caught:
            encode(text, special="error")
        assert re.search(r"\b3\b", caught.value.message), "the byte offset"
        assert caught.value.hint
    with pytest.raises(TokenizerError, match=re.escape(EOT)):
        list(tokenizer.encode_iterable(["né<|endo", "ftext|>"], special="error"))
    with pytest.raises(TokenizerError, match=re.escape(EOT)):
        tokenizer.encode_batch(["fine", text], special="error")


def test_an_unknown_mode_or_special_token_is_refused(tokenizer: Tokenizer) -> None:
    for special in ("some", {"<|unknown|>"}):
        with pytest.raises(bytemill.BytemillError):
            tokenizer.encode("text", special=special)
    for special, kind in ((7, "int"), (None, "NoneType")):
        for encode in (tokenizer.encode, tokenizer.encode_array, tokenizer.count):
            with pytest.raises(TypeError, match=f"special must be .*, not {kind}"):
                encode("text", special=special)
        with pytest.raises(TypeError, match="special must be"):
            list(tokenizer.encode_iterable(["text"], special=special))
    with pytest.raises(TypeError, match="special tokens must be str, not int"):
        tokenizer.encode("text", special=[7])


# --- decoding -------------------------------------------------------------------------------------


def test_decoding_takes_any_iterable(tokenizer: Tokenizer) -> None:
    text = f"def naïve(): 😀{EOT}"
    ids = tokenizer.encode(text)
    for given in (ids, tuple(ids), iter(ids), np.array(ids), np.array(ids, dtype=np.uint16)):
        assert tokenizer.decode(given) == text
    assert tokenizer.decode_bytes(np.array(ids, dtype=np.uint32)) == text.encode()
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode_batch([ids, [], ids[:1]]) == [text, "", tokenizer.decode(ids[:1])]


def test_decoding_replaces_what_is_not_utf_8(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([0xE2, 0x82]) == b"\xe2\x82".decode(errors="replace")
    assert tokenizer.decode([0xFF, 0x41]) == "\ufffdA"
    assert tokenizer.decode_bytes([0xE2, 0x82]) == b"\xe2\x82"


@pytest.mark.parametrize("unknown", [4000, -1, 2**31, 2**32, 2**32 + 65])
def test_unknown_ids_are_named(tokenizer: Tokenizer, unknown: int) -> None:
    for decode in (tokenizer.decode, tokenizer.decode_bytes):
        with pytest.raises(TokenizerError, match=str(unknown)):
            decode([1, unknown])
    with pytest.raises(TokenizerError, match=str(unknown)):
        tokenizer.token_bytes(unknown)
    with pytest.raises(TokenizerError, match=str(unknown)):
        tokenizer.decoder().push(unknown)


def test_no_number_is_too_large_to_be_unknown(tokenizer: Tokenizer) -> None:
    for unknown in (2**64, -(2**64), 10**30):
        with pytest.raises(TokenizerError):
            tokenizer.decode([unknown])
        with pytest.raises(TokenizerError):
            tokenizer.token_bytes(unknown)


def test_an_unknown_token_has_no_id(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="no-such-token"):
        tokenizer.token_id("no-such-token")


def test_the_decoder_holds_back_unfinished_characters(tokenizer: Tokenizer) -> None:
    decoder = tokenizer.decoder()
    assert [decoder.push(byte) for byte in "a€😀".encode()] == ["a", "", "", "€", "", "", "", "😀"]
    assert decoder.finish() == ""
    assert decoder.push(0xE2) == ""
    assert decoder.push(0x41) == "\ufffdA"
    assert decoder.push(0xE2) == ""
    assert decoder.finish() == "\ufffd"
    assert decoder.push(0x41) == "A", "a finished decoder starts afresh"


# --- the object -----------------------------------------------------------------------------------


def test_equality_fingerprint_and_repr(tokenizer: Tokenizer, small: Tokenizer) -> None:
    again = Tokenizer(tokenizer.vocab, tokenizer.merges, tokenizer.special_tokens)
    assert again == tokenizer
    assert hash(again) == hash(tokenizer)
    assert again.fingerprint == tokenizer.fingerprint
    assert re.fullmatch(r"[0-9a-f]{64}", tokenizer.fingerprint)
    assert tokenizer != small
    assert tokenizer != "tokenizer"
    others = [
        Tokenizer(tokenizer.vocab, tokenizer.merges, tokenizer.special_tokens, pattern="cl100k"),
        Tokenizer(tokenizer.vocab, tokenizer.merges, {EOT: 5000}),
        tokenizer.with_vocab_size(3999),
        Tokenizer(tokenizer.vocab, tokenizer.merges, tokenizer.special_tokens, ignore_merges=True),
    ]
    assert len({tokenizer, *others}) == 5
    shown = repr(tokenizer)
    assert shown.startswith("Tokenizer(vocab_size=4000, pattern='gpt2'")
    assert tokenizer.fingerprint[:12] in shown


def test_pickling_and_copying(tokenizer: Tokenizer, small: Tokenizer) -> None:
    for original in (tokenizer, small):
        for again in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):
            assert type(again) is Tokenizer
            assert again == original
            assert again.encode(f"hello w{EOT}<|a|>") == original.encode(f"hello w{EOT}<|a|>")


def test_a_tokenizer_cannot_be_changed(tokenizer: Tokenizer) -> None:
    with pytest.raises(AttributeError):
        tokenizer.pattern = "o200k"
    with pytest.raises(AttributeError):
        tokenizer.note = "mine"
    tokenizer.vocab[0] = b"changed"
    tokenizer.merges.clear()
    tokenizer.special_tokens.clear()
    assert tokenizer.token_bytes(0) == b"\0"
    assert tokenizer.vocab[0] == b"\0"
    assert tokenizer.merges
    assert tokenizer.encode(EOT) == [3999]


def test_a_vocabulary_shortened_too_far_is_refused(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.with_vocab_size(257)) == 257
    assert tokenizer.with_vocab_size(4000) == tokenizer
    for vocab_size in (256, 0, -1, 4001):
        with pytest.raises(bytemill.ConfigError, match=str(vocab_size)):
            tokenizer.with_vocab_size(vocab_size)


def test_issue_13_the_size_of_the_vocabulary(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == len(tokenizer) == 4000
    assert tokenizer.with_vocab_size(300).vocab_size == 300


def test_issue_13_truncate_shortens_text(small: Tokenizer) -> None:
    text = "hello<|a|>é"
    assert small.truncate(text, 100) == text
    assert small.truncate(text, 0) == ""
    assert small.truncate(b"hello", 0) == b""
    # A special token is one id and stays whole; as plain text it is its bytes.
    assert small.truncate("<|a|><|a|>", 1) == "<|a|>"
    assert small.truncate("<|a|><|a|>", 1, special="none") == "<"
    with pytest.raises(bytemill.TokenizerError):
        small.truncate(text, 2, special="error")
    with pytest.raises(bytemill.ConfigError, match="max_tokens must be ≥ 0, got -1"):
        small.truncate(text, -1)
    with pytest.raises(TypeError):
        small.truncate(300)  # the vocabulary is shortened by with_vocab_size
    # The replacement of a lone surrogate is what is encoded and cut.
    assert small.truncate("a\ud800b", 99) == "a\ud800b"
    assert small.truncate("a\ud800b", 4) == "a\ufffd"


def test_many_threads_at_once(tokenizer: Tokenizer, documents: list[str]) -> None:
    texts = documents[:60]
    expected = [tokenizer.encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.encode, texts)) == expected
        batches = list(pool.map(lambda _: tokenizer.encode_batch(texts, lists=True), range(8)))
    assert all(batch == expected for batch in batches)


def test_the_cache_limit_is_a_setting(tokenizer: Tokenizer, documents: list[str]) -> None:
    changed = copy.deepcopy(tokenizer)
    assert changed.cache_size == 64 << 20
    expected = [tokenizer.encode(text) for text in documents]
    for size, n_bytes in (("1MB", 1_000_000), (0, 0), (np.int64(5_000), 5_000)):
        changed.cache_size = size
        assert changed.cache_size == n_bytes
        assert [changed.encode(text) for text in documents] == expected
        assert changed.encode_batch(documents, lists=True) == expected
    for wrong in ("much", -1, "-1MB"):
        with pytest.raises(bytemill.ConfigError):
            changed.cache_size = wrong
    with pytest.raises(TypeError):
        changed.cache_size = 1.5
    assert changed.cache_size == 5_000
    assert pickle.loads(pickle.dumps(changed)).cache_size == 64 << 20


# --- the wrapper ------------------------------------------------------------------------------


def test_issue_15_the_native_core_does_not_show(small: Tokenizer) -> None:
    core = {name for name in dir(small._core) if not name.startswith("_")}
    hidden = {"build", "from_ranks", "read", "encode_flat", "encode_spans", "encode_piece",
              "stream", "core_with_vocab_size", "cache_limit", "set_cache_limit"}  # fmt: skip
    assert hidden <= core
    # Everything else of the core is public, under the same name.
    assert core & set(dir(small)) == core - hidden


def test_issue_15_copies_and_references(small: Tokenizer) -> None:
    class Mine(Tokenizer):
        """Copies of a subclass are of the subclass."""

    mine = Mine(small.vocab, small.merges, small.special_tokens)
    for again in (copy.copy(mine), copy.deepcopy(mine)):
        assert type(again) is Mine
        assert again == mine
        assert hash(again) == hash(mine)
    assert weakref.ref(mine)() is mine
    assert mine != "something else"
    with pytest.raises(AttributeError):
        small.something = 1  # type: ignore[attr-defined]
