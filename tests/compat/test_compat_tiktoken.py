"""`bytemill.compat.tiktoken` against tiktoken: results and exceptions."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tiktoken")

import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

import generated
import rivals
from bytemill import Tokenizer, TokenizerError, train_tokenizer
from bytemill.compat.tiktoken import Encoding

EOT = "<|endoftext|>"
BYTES = {bytes([i]): i for i in range(256)}
Pair = tuple[Encoding, tiktoken.Encoding]

surrogates = st.lists(
    st.sampled_from(["\ud83d", "\ude00", "\ud83d\ude00", "a", " ", "é", "<|end|>"]), max_size=8
).map("".join)
texts = st.one_of(generated.texts, surrogates)
sets = st.sets(st.sampled_from([*generated.DISJOINT, "unknown", "the"]))
allowed = st.one_of(st.just("all"), sets, sets.map(frozenset))
disallowed = st.one_of(st.just("all"), st.just(()), sets, sets.map(sorted))


@pytest.fixture(scope="module", params=["r50k", "cl100k", "o200k"])
def pair(request: pytest.FixtureRequest, documents: list[str]) -> Pair:
    """A freshly learned encoding, and tiktoken's with the same tables."""
    pattern = rivals.tiktoken_definition(f"{request.param}_base").pattern
    tokenizer = train_tokenizer(
        iter([*documents[:30], " \n\n \t\n  é→😀\n" * 50]),
        vocab_size=1500,
        special_tokens=generated.DISJOINT,
        pattern=pattern,
    )
    ours = Encoding.from_tokenizer(tokenizer, "ours")
    theirs = tiktoken.Encoding(
        "ours",
        pat_str=ours._pat_str,
        mergeable_ranks=ours._mergeable_ranks,
        special_tokens=tokenizer.special_tokens,
    )
    return ours, theirs


@pytest.fixture(scope="module")
def cl100k() -> Pair:
    theirs = rivals.published("cl100k").tiktoken()
    return Encoding.from_tiktoken(theirs), theirs


def outcome(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of a call, or its error with the first line of the message."""
    try:
        result = call(*args, **options)
    except (Exception, AssertionError) as error:
        said = error.args[0] if error.args else None
        if isinstance(error, TypeError | OverflowError):
            return type(error)
        return type(error), said.splitlines()[0] if isinstance(said, str) else said
    return result.tolist() if isinstance(result, np.ndarray) else result


def check(pair: Pair, method: str, *args: Any, **options: Any) -> Any:
    ours, theirs = (outcome(getattr(each, method), *args, **options) for each in pair)
    assert ours == theirs
    return ours


# --- encoding -------------------------------------------------------------------------------------


@given(texts, allowed, disallowed)
def test_encoding_and_its_refusals(pair: Pair, text: str, allowed: Any, disallowed: Any) -> None:
    options = {"allowed_special": allowed, "disallowed_special": disallowed}
    check(pair, "encode", text, **options)
    check(pair, "encode_batch", [text, "x", text], **options)


@pytest.mark.slow
@given(texts)
def test_encoding_as_most_do(pair: Pair, text: str) -> None:
    check(pair, "encode", text)
    check(pair, "encode_ordinary", text)
    check(pair, "encode_ordinary_batch", [text, "", text], num_threads=2)
    check(pair, "encode_batch", (text, "a"))


@given(generated.texts, allowed, disallowed)
def test_arrays(pair: Pair, text: str, allowed: Any, disallowed: Any) -> None:
    options = {"allowed_special": allowed, "disallowed_special": disallowed}
    check(pair, "encode_to_numpy", text, **options)
    assert pair[0].encode_to_numpy("abc").dtype == np.uint32


@pytest.mark.parametrize(
    "options",
    [
        {"allowed_special": [EOT]},
        {"allowed_special": [EOT], "disallowed_special": ()},
        {"allowed_special": EOT},
        {"allowed_special": None},
        {"allowed_special": {"unknown"}},
        {"disallowed_special": 5},
        {"disallowed_special": "ab"},
        {"disallowed_special": {EOT}, "allowed_special": {EOT}},
        {"disallowed_special": ["x"]},
        {"disallowed_special": [""]},
        {"allowed_special": "all", "disallowed_special": "all"},
    ],
)
@pytest.mark.parametrize("text", ["ab", f"a{EOT}b", "x<|end|>"])
def test_odd_options(pair: Pair, text: str, options: dict[str, Any]) -> None:
    for method in ("encode", "encode_to_numpy", "encode_with_unstable"):
        ours, theirs = (outcome(getattr(each, method), text, **options) for each in pair)
        if method == "encode_with_unstable" and not isinstance(ours, type):
            ours, theirs = ([each[0], sorted(each[1])] for each in (ours, theirs))
        assert ours == theirs
    check(pair, "encode_batch", [text, text], **options)


def test_the_message_names_the_remedies(pair: Pair) -> None:
    with pytest.raises(ValueError, match="Encountered text corresponding to disallowed") as failure:
        pair[0].encode(f"a {EOT}")
    for said in (EOT, "allowed_special=", "disallowed_special=()"):
        assert said in str(failure.value)


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        ("encode", b"bytes"),
        ("encode", 5),
        ("encode", None),
        ("encode_ordinary", b"bytes"),
        ("encode_ordinary", ["a"]),
        ("encode_batch", 5),
        ("encode_batch", ["a", 5]),
        ("encode_batch", [b"bytes"]),
        ("encode_batch", "abc"),
        ("encode_ordinary_batch", [b"bytes"]),
        ("encode_ordinary_batch", []),
        ("encode_single_token", "the"),
        ("encode_single_token", EOT),
        ("encode_single_token", EOT.encode()),
        ("encode_single_token", b"\xff"),
        ("encode_single_token", "no such token"),
        ("encode_single_token", b""),
        ("encode_single_token", 5),
        ("encode_single_token", "\ud800"),
        ("decode", [1, 9999]),
        ("decode_bytes", [9999, 99999]),
        ("decode_bytes", [-1]),
        ("decode_bytes", [9999, 1 << 40]),
        ("decode_bytes", ["a"]),
        ("decode_bytes", "ab"),
        ("decode_bytes", 5),
        ("decode_bytes", (97, 98)),
        ("decode_bytes", np.array([97, 98])),
        ("decode_bytes", b"ab"),
        ("decode_single_token_bytes", 9999),
        ("decode_single_token_bytes", -1),
        ("decode_single_token_bytes", "a"),
        ("decode_tokens_bytes", [97, 9999]),
        ("decode_with_offsets", [255]),
        ("decode_with_offsets", [9999]),
        ("decode_with_offsets", []),
        ("decode_batch", [[97], [9999]]),
        ("decode_bytes_batch", [[97], []]),
        ("is_special_token", "a"),
        ("is_special_token", 97),
        ("is_special_token", 1499),
    ],
)
def test_calls_that_succeed_or_fail_alike(pair: Pair, method: str, argument: Any) -> None:
    check(pair, method, argument)


@pytest.mark.parametrize("method", ["encode_batch", "encode_ordinary_batch", "decode_bytes_batch"])
def test_no_threads(pair: Pair, method: str) -> None:
    assert check(pair, method, [], num_threads=0)[0] is ValueError


def test_published_vocabulary(cl100k: Pair, documents: list[str]) -> None:
    for text in [*documents[:10], f"naïve 😀{EOT}<|fim_prefix|>", "\ud83d\ude00 \ud83d"]:
        check(cl100k, "encode", text, allowed_special="all")
        check(cl100k, "encode", text)
    check(cl100k, "encode_batch", documents[:20], disallowed_special=())


# --- unstable encoding ----------------------------------------------------------------------------


def check_unstable(pair: Pair, text: str, **options: Any) -> None:
    ours, theirs = (each.encode_with_unstable(text, **options) for each in pair)
    assert ours[0] == theirs[0]
    assert ours[1] == sorted(theirs[1])


@settings(max_examples=40)
@given(generated.texts, allowed)
def test_unstable(pair: Pair, text: str, allowed: Any) -> None:
    check_unstable(pair, text[-30:], allowed_special=allowed, disallowed_special=())


@pytest.mark.parametrize(
    "text",
    ["", "hello fanta", "a\n\n", " \n \n", "x \t", "a\x1c", "é", "a\u3000", f"a{EOT}", f"{EOT}  "],
)
def test_unstable_by_hand(pair: Pair, text: str) -> None:
    check_unstable(pair, text, allowed_special="all")


@pytest.mark.parametrize("text", ["hello fanta", "def f(x):\n\n", "日本"])
def test_unstable_with_a_published_vocabulary(cl100k: Pair, text: str) -> None:
    check_unstable(cl100k, text)


# --- decoding -------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1499), max_size=20))
def test_decoding(pair: Pair, ids: list[int]) -> None:
    for method in ("decode", "decode_bytes", "decode_tokens_bytes", "decode_with_offsets"):
        check(pair, method, ids)
    check(pair, "decode_batch", [ids, []], errors="ignore", num_threads=1)
    for errors in ("strict", "ignore", "backslashreplace"):
        check(pair, "decode", ids, errors=errors)


@given(generated.texts)
def test_decoding_text_with_offsets(pair: Pair, text: str) -> None:
    ids = pair[1].encode(text, allowed_special="all")
    assert check(pair, "decode_with_offsets", ids)[0] == text


# --- the object -----------------------------------------------------------------------------------


def test_what_it_holds(pair: Pair, cl100k: Pair) -> None:
    for ours, theirs in (pair, cl100k):
        for name in ("name", "n_vocab", "max_token_value", "eot_token", "special_tokens_set"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert repr(ours) == repr(theirs)
        assert ours.token_byte_values() == theirs.token_byte_values()


def test_without_an_end_of_text() -> None:
    encoding = Encoding("plain", pat_str="gpt2", mergeable_ranks=BYTES, special_tokens={})
    assert encoding.encode("a b") == [97, 32, 98]
    with pytest.raises(KeyError, match="endoftext"):
        encoding.eot_token  # noqa: B018


@given(generated.rank_lists, generated.merge_letters)
def test_ranks_that_no_training_produces(tokens: Iterable[bytes], text: str) -> None:
    ranks = BYTES | {token: 256 + i for i, token in enumerate(tokens)}
    parts: dict[str, Any] = {
        "pat_str": rivals.tiktoken_definition("r50k_base").pattern,
        "mergeable_ranks": ranks,
        "special_tokens": {EOT: len(ranks) + 3},
    }
    pair = Encoding("ranks", **parts), tiktoken.Encoding("ranks", **parts)
    check(pair, "encode", text)
    check(pair, "token_byte_values")
    assert pair[0].n_vocab == pair[1].n_vocab
    assert pair[0]._mergeable_ranks == ranks
    check((pickle.loads(pickle.dumps(pair[0])), pair[1]), "encode", text)
    check_unstable(pair, text[-8:])


def test_the_size_of_the_vocabulary_is_checked() -> None:
    parts: dict[str, Any] = {"pat_str": "gpt2", "mergeable_ranks": BYTES}
    for specials, n_vocab in (({EOT: 256}, 256), ({EOT: 300}, 257)):
        for made in (Encoding, tiktoken.Encoding):
            with pytest.raises(AssertionError):
                made("x", **parts, special_tokens=specials, explicit_n_vocab=n_vocab)
    made = Encoding("x", **parts, special_tokens={EOT: 256}, explicit_n_vocab=257)
    assert made.n_vocab == 257


@pytest.mark.parametrize(
    "parts",
    [{"pat_str": "("}, {"special_tokens": {EOT: 97}}, {"mergeable_ranks": {b"a": 0}}],
)
def test_impossible_vocabularies_are_refused(parts: dict[str, Any]) -> None:
    usual = {"pat_str": "gpt2", "mergeable_ranks": BYTES, "special_tokens": {EOT: 256}}
    with pytest.raises(ValueError, match=r"."):
        Encoding("broken", **usual | parts)


def test_copies(pair: Pair) -> None:
    ours, theirs = pair
    for again in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert isinstance(again, Encoding)
        check((again, theirs), "encode", f"naïve 😀 {EOT}", allowed_special="all")
        assert again.name == "ours"


def test_round_trip_of_our_tokenizer(pair: Pair) -> None:
    again = Tokenizer.from_tiktoken(pair[0])
    assert again.encode("the naïve 😀") == pair[1].encode("the naïve 😀")


def test_several_stages_have_no_single_pattern() -> None:
    tokenizer = Tokenizer({i: b for b, i in BYTES.items()}, [], pattern=[r"\d", "gpt2"])
    encoding = Encoding.from_tokenizer(tokenizer)
    assert encoding.encode("a1") == [97, 49]
    with pytest.raises(TokenizerError, match="2 steps"):
        encoding._pat_str  # noqa: B018


@given(generated.data | texts.map(lambda text: text.encode("utf-8", "replace")))
def test_private_methods_of_bytes(pair: Pair, data: bytes) -> None:
    ours, theirs = pair
    assert ours._encode_bytes(data) == theirs._encode_bytes(data)
    if data:
        # tiktoken panics.
        assert ours._encode_single_piece(data) == theirs._encode_single_piece(data)
    assert ours._encode_single_piece(b"") == []


@given(texts)
def test_private_methods_of_text(pair: Pair, text: str) -> None:
    results = [outcome(each._encode_only_native_bpe, text) for each in pair]
    assert results[0] == results[1]
    if text:
        results = [outcome(each._encode_single_piece, text) for each in pair]
        assert results[0] == results[1]


few_letters = st.text("abc", min_size=2, max_size=9).map(str.encode)


@settings(max_examples=300)
@given(st.sets(few_letters, max_size=40), st.randoms(use_true_random=False), st.booleans())
def test_ranks_in_any_order(tokens: set[bytes], random: Any, bytes_first: bool) -> None:
    """Long tokens may have lower ranks than their parts, and some cannot be merged."""
    singles, longer = list(BYTES), sorted(tokens)
    random.shuffle(longer)
    order = singles + longer
    if not bytes_first:
        random.shuffle(order)
    ranks = {token: rank for rank, token in enumerate(order)}
    ours, theirs = (
        kind("x", pat_str=r"[\s\S]+", mergeable_ranks=ranks, special_tokens={})
        for kind in (Encoding, tiktoken.Encoding)
    )
    for text in [*longer, *(b"".join(random.choices(order, k=9)) for _ in range(20))]:
        assert ours._encode_single_piece(text) == theirs._encode_single_piece(text)
    for _ in range(20):
        text = "".join(random.choices("abcd", k=40))
        assert ours.encode_ordinary(text) == theirs.encode_ordinary(text)


def test_private_methods_of_a_published_vocabulary(cl100k: Pair) -> None:
    ours, theirs = cl100k
    for text in ("helloqqqq", " \n the <|endoftext|>", "日本語" * 9, "a" * 300):
        assert ours._encode_single_piece(text) == theirs._encode_single_piece(text)
        assert ours._encode_only_native_bpe(text) == theirs._encode_only_native_bpe(text)
        data = text.encode() + b" \xe6\x97 x"
        assert ours._encode_bytes(data) == theirs._encode_bytes(data)
    for each in cl100k:
        with pytest.raises(TypeError):
            each._encode_bytes(5)
        with pytest.raises(TypeError):
            each._encode_single_piece(5)


@pytest.mark.parametrize(
    ("ranks", "error", "message"),
    [
        ({b"a": 0}, TokenizerError, "255 of the 256 bytes are not in the vocabulary"),
        (BYTES | {b"ab": 5}, TokenizerError, "two tokens have the id 5"),
        (BYTES | {b"ab": -1}, TokenizerError, "-1 is not an id"),
        (BYTES | {"ab": 300}, TypeError, "str"),
        (BYTES | {b"ab": "x"}, TypeError, "an id must be an integer, not str"),
        ([b"a"], TypeError, "list"),
    ],
)
def test_ranks_that_are_refused(ranks: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Encoding("x", pat_str=r"\w+|\W+", mergeable_ranks=ranks, special_tokens={})


def test_nothing_else_is_imported() -> None:
    modules = ["tiktoken", "transformers", "tokenizers", "torch", "huggingface_hub", "regex"]
    code = (
        "import sys, bytemill.compat.tiktoken, bytemill.compat.minbpe\n"
        f"print([name for name in {modules} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
