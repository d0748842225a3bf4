"""`bytemill.compat.tokenizers` against `tokenizers`: results, exceptions and changes in place."""

from __future__ import annotations

import copy
import json
import os
import pickle
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("tokenizers")

import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

import generated
import pipelines
from bytemill.compat import _pipeline
from bytemill.compat.tokenizers import DecodeStream, Encoding, Tokenizer, explain

Pair = tuple[Tokenizer, Any]
COLUMNS = (
    "ids",
    "type_ids",
    "tokens",
    "offsets",
    "attention_mask",
    "special_tokens_mask",
    "word_ids",
    "n_sequences",
    "sequence_ids",
)


@pytest.fixture(scope="module")
def made(documents: list[str]) -> dict[str, Any]:
    return {name: make(documents) for name, make in pipelines.ALL.items()}


@pytest.fixture(scope="module", params=pipelines.ALL)
def shared(request: pytest.FixtureRequest, made: dict[str, Any]) -> Pair:
    """Ours and theirs; tests may change truncation and padding only."""
    original = made[request.param]
    return Tokenizer.wrap(copy.deepcopy(original)), copy.deepcopy(original)


def reset(pair: Pair) -> None:
    for tokenizer in pair:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = False


@pytest.fixture
def pair(shared: Pair) -> Pair:
    """Ours and theirs, which a test may change."""
    reset(shared)
    return copy.deepcopy(shared[0]), copy.deepcopy(shared[1])


def content(encoding: Any) -> dict[str, Any]:
    """All columns, those of overflowing encodings too."""
    out = {name: getattr(encoding, name) for name in COLUMNS}
    out["length"] = len(encoding)
    out["overflowing"] = [content(each) for each in encoding.overflowing]
    return out


def plain(value: Any) -> Any:
    if isinstance(value, tokenizers.Encoding):
        return content(value)
    return [plain(each) for each in value] if isinstance(value, list) else value


def outcome(tokenizer: Any, method: str, *args: Any, **options: Any) -> Any:
    try:
        return plain(getattr(tokenizer, method)(*args, **options))
    except BaseException as error:
        return type(error), str(error)


def check(pair: Pair, method: str, *args: Any, **options: Any) -> Any:
    ours, theirs = (outcome(each, method, *args, **options) for each in pair)
    assert ours == theirs
    return ours


# --- encoding -------------------------------------------------------------------------------------

truncations = st.fixed_dictionaries(
    {"max_length": st.integers(0, 12)},
    optional={
        "stride": st.integers(0, 4),
        "strategy": st.sampled_from(["longest_first", "only_first", "only_second"]),
        "direction": st.sampled_from(["left", "right"]),
    },
)
paddings = st.fixed_dictionaries(
    {},
    optional={
        "length": st.none() | st.integers(0, 20),
        "direction": st.sampled_from(["left", "right"]),
        "pad_id": st.integers(0, 9),
        "pad_type_id": st.integers(0, 3),
        "pad_token": st.sampled_from(["<pad>", ""]),
        "pad_to_multiple_of": st.sampled_from([None, 4]),
    },
)
texts = st.sampled_from(pipelines.TEXTS) | generated.texts
samples = texts | st.tuples(texts, texts) | st.lists(texts, min_size=2, max_size=2)


# On several threads, any of several failures is reported.
@mock.patch.dict(os.environ, TOKENIZERS_PARALLELISM="false")
@settings(max_examples=150)
@given(
    texts,
    st.none() | texts,
    st.lists(samples, max_size=4),
    st.none() | truncations,
    st.none() | paddings,
    st.booleans(),
    st.booleans(),
)
def test_encodings(
    shared: Pair,
    text: str,
    second: str | None,
    batch: list[Any],
    truncation: dict[str, Any] | None,
    padding: dict[str, Any] | None,
    adds: bool,
    encodes_special: bool,
) -> None:
    reset(shared)
    for tokenizer in shared:
        tokenizer.encode_special_tokens = encodes_special
    if truncation is not None:
        check(shared, "enable_truncation", **truncation)
    if padding is not None:
        check(shared, "enable_padding", **padding)
    assert (shared[0].truncation, shared[0].padding) == (shared[1].truncation, shared[1].padding)
    check(shared, "encode", text, second, add_special_tokens=adds)
    check(shared, "encode_batch", batch, add_special_tokens=adds)
    check(shared, "encode_batch_fast", batch, add_special_tokens=adds)
    check(shared, "encode", text.split(), is_pretokenized=True, add_special_tokens=adds)


@settings(max_examples=50)
@given(texts, texts, st.integers(0, 30), st.integers(0, 2))
def test_maps(shared: Pair, text: str, second: str, at: int, sequence: int) -> None:
    reset(shared)
    encodings = [each.encode(text, second) for each in shared]
    for method in ("char_to_token", "char_to_word", "word_to_tokens", "word_to_chars"):
        ours, theirs = (getattr(each, method)(at, sequence) for each in encodings)
        assert ours == theirs
    for method in ("token_to_chars", "token_to_sequence", "token_to_word"):
        ours, theirs = (getattr(each, method)(at) for each in encodings)
        assert ours == theirs


def test_encodings_are_what_they_stand_for(pair: Pair) -> None:
    ours, theirs = (each.encode("the cat sat", "on it") for each in pair)
    assert isinstance(ours, tokenizers.Encoding)
    assert repr(ours) == repr(theirs)
    for made in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert content(made) == content(theirs)
    assert isinstance(theirs, Encoding)
    if type(ours) is Encoding:
        with mock.patch.object(tokenizers, "Encoding", Encoding):
            assert content(pickle.loads(pickle.dumps(ours))) == content(theirs)
    # Returned lists are copies.
    ours.ids.append(5)
    ours.offsets.clear()
    merged = Encoding.merge([ours, ours], growing_offsets=True)
    assert content(merged) == content(tokenizers.Encoding.merge([theirs, theirs], True))
    for encoding in (ours, theirs):
        encoding.pad(20, pad_id=3, pad_token="x", direction="left")
        encoding.truncate(15, stride=2)
        encoding.set_sequence_id(1)
    assert content(ours) == content(theirs)
    assert content(pair[0].post_process(ours)) == content(pair[1].post_process(theirs))


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("encode", (5,)),
        ("encode", ("a", 5)),
        ("encode", ("a\ud800",)),
        ("encode", (b"a",)),
        ("encode", (["a"],)),
        ("encode", (["a", "b"], None, True)),
        ("encode", ("a", None, True)),
        ("encode", ("a", None, None)),
        ("encode", ("a", None, False, 1)),
        ("encode_batch", ("ab",)),
        ("encode_batch", (5,)),
        ("encode_batch", ([],)),
        ("encode_batch", ([5],)),
        ("encode_batch", (["a", ["b"]],)),
        ("encode_batch", (["a", ["b", "c", "d"]],)),
        ("encode_batch", (["a", ("b", 5)],)),
        ("encode_batch", (["a", "b\udfff"],)),
        ("encode_batch", (["a", ["b", "c\udfff"]],)),
        ("encode_batch", ([["a", "b"]], True)),
        ("encode_batch", (["a", "b"], 0)),
        ("encode_batch", (["a", "b"], False, None)),
        ("decode", ("ab",)),
        ("decode", ([5.0],)),
        ("decode", ([-1],)),
        ("decode", ((5, 6),)),
        ("decode", ([5, 6], 1)),
        ("decode", ([10**6, 5, 10**6],)),
        ("decode_batch", ([[5], (6, 7), []],)),
        ("decode_batch", ([5],)),
        ("enable_truncation", (-1,)),
        ("add_tokens", ("a",)),
        ("add_tokens", ([5],)),
    ],
)
def test_odd_arguments(pair: Pair, method: str, args: tuple[Any, ...]) -> None:
    check(pair, method, *args)
    assert not hasattr(pair[0], "no_such_method")


# --- decoding -------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1230), max_size=12), st.booleans())
def test_decoding(shared: Pair, ids: list[int], skip: bool) -> None:
    check(shared, "decode", ids, skip_special_tokens=skip)
    check(shared, "decode_batch", [ids, [], ids], skip_special_tokens=skip)


def stream_takes_lists() -> bool:
    """Whether `step` takes lists of ids too; it does not in tokenizers 0.21."""
    try:
        decoders.DecodeStream(skip_special_tokens=False).step(
            tokenizers.Tokenizer(models.BPE()), []
        )
    except TypeError:
        return False
    return True


STEPS: st.SearchStrategy[Any] = st.integers(0, 1230)
if stream_takes_lists():
    STEPS |= st.lists(st.integers(0, 1230))


@given(st.lists(STEPS, max_size=12), st.booleans())
def test_streams(shared: Pair, steps: list[Any], skip: bool) -> None:
    ours = DecodeStream(skip_special_tokens=skip)
    theirs = decoders.DecodeStream(skip_special_tokens=skip)
    for step in steps:
        result = outcome(copy.copy(ours), "step", shared[0], step)
        assert outcome(ours, "step", shared[0], step) == result
        assert result == outcome(theirs, "step", shared[1], step)
        if isinstance(result, tuple):
            # It failed.
            break


@pytest.mark.parametrize("token", ["é", "Ġthe", "日本", "<é>", "a b", "Ã", "\x85"])
def test_added_tokens_that_decode_to_something_else(pair: Pair, token: str) -> None:
    for tokenizer in pair:
        tokenizer.add_tokens([AddedToken(token, normalized=False)])
    encoded = check(pair, "encode", f"the {token} cat{token}{token}")
    check(pair, "decode", encoded["ids"])


def test_tokens_matched_in_normalized_text(pair: Pair) -> None:
    for tokenizer in pair:
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.add_special_tokens([AddedToken("e\u0301", lstrip=True, normalized=True)])
    encoded = check(pair, "encode", "cat é")
    check(pair, "decode", encoded["ids"])


# --- changes --------------------------------------------------------------------------------------


def change(name: str) -> Any:
    """A change of a tokenizer, to be made to both."""

    def post_processor_in_place(tokenizer: Any) -> None:
        processor = tokenizer.post_processor
        if hasattr(processor, "single"):
            processor.single = "$A $A"
        elif hasattr(processor, "trim_offsets"):
            processor.trim_offsets = not processor.trim_offsets

    def kept_component(tokenizer: Any) -> None:
        level = processors.ByteLevel(trim_offsets=True)
        tokenizer.post_processor = level
        tokenizer.encode("the cat")
        level.trim_offsets = False

    def replace(component: str, value: Any) -> Any:
        return lambda tokenizer: setattr(tokenizer, component, value)

    return {
        "added": lambda tokenizer: tokenizer.add_tokens(["the", "cat sat"]),
        "special": lambda tokenizer: tokenizer.add_special_tokens(["<new>", "mat"]),
        "added with flags": lambda tokenizer: tokenizer.add_tokens(
            [AddedToken("at", single_word=True), AddedToken("on", rstrip=True)]
        ),
        "post-processor in place": post_processor_in_place,
        "component kept": kept_component,
        "no post-processor": replace("post_processor", None),
        "two processors": replace(
            "post_processor",
            processors.Sequence([processors.ByteLevel(), processors.ByteLevel()]),
        ),
        "add_prefix_space": lambda tokenizer: setattr(
            tokenizer, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)
        ),
        "in place": lambda tokenizer: setattr(tokenizer.pre_tokenizer, "add_prefix_space", True),
        "other pre-tokenizer": replace("pre_tokenizer", pre_tokenizers.Whitespace()),
        "no pre-tokenizer": replace("pre_tokenizer", None),
        "lowercase": replace("normalizer", normalizers.Lowercase()),
        "nfc": replace("normalizer", normalizers.Sequence([normalizers.NFC()])),
        "no decoder": replace("decoder", None),
        "other decoder": replace("decoder", decoders.Fuse()),
        "dropout of everything": lambda tokenizer: setattr(tokenizer.model, "dropout", 1.0),
        "ignore_merges": lambda tokenizer: setattr(tokenizer.model, "ignore_merges", True),
        "other model": replace("model", models.WordLevel({"the": 0, "?": 1}, unk_token="?")),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "added",
        "special",
        "added with flags",
        "post-processor in place",
        "component kept",
        "no post-processor",
        "two processors",
        "add_prefix_space",
        "in place",
        "other pre-tokenizer",
        "no pre-tokenizer",
        "lowercase",
        "nfc",
        "no decoder",
        "other decoder",
        "dropout of everything",
        "ignore_merges",
        "other model",
    ],
)
def test_changes(pair: Pair, name: str) -> None:
    before = [each.encode("The cat sat on the mat, and on the cat") for each in pair]
    pair[0].pre_tokenizer  # noqa: B018
    made: list[Any] = []
    for tokenizer in pair:
        try:
            made.append(change(name)(tokenizer))
        except AttributeError as error:
            made.append(str(error))
    assert made[0] == made[1]
    for text in [*pipelines.TEXTS, "The cat sat on the mat, and on the cat"]:
        encoded = check(pair, "encode", text, "at last")
        check(pair, "encode", text)
        check(pair, "decode", encoded["ids"])
        check(pair, "decode", encoded["ids"], skip_special_tokens=False)
    # Earlier encodings are unchanged.
    assert content(before[0]) == content(before[1])
    assert pair[0].to_str() == pair[1].to_str()


def test_copies(pair: Pair) -> None:
    ours, theirs = pair
    for tokenizer in pair:
        tokenizer.enable_truncation(5)
        tokenizer.enable_padding(length=8)
        # Not part of the state.
        tokenizer.encode_special_tokens = True
    theirs = copy.deepcopy(theirs)
    for made in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert type(made) is Tokenizer
        assert isinstance(made, tokenizers.Tokenizer)
        assert made.to_str() == theirs.to_str()
        for text in pipelines.TEXTS:
            check((made, theirs), "encode", text)
        made.no_padding()
        made.add_tokens(["the cat"])
        assert made.padding is None
        assert made.encode_special_tokens == theirs.encode_special_tokens
    assert ours.padding == theirs.padding
    check(pair, "encode", "the cat<s>")
    assert pickle.dumps(ours) == pickle.dumps(copy.deepcopy(ours))


def test_the_rest_is_the_original(pair: Pair, tmp_path: Any) -> None:
    for method, args in (
        ("get_vocab", ()),
        ("get_vocab_size", (False,)),
        ("get_added_tokens_decoder", ()),
        ("num_special_tokens_to_add", (True,)),
        ("token_to_id", ("the",)),
        ("id_to_token", (300,)),
        ("to_str", (True,)),
        ("__repr__", ()),
        ("__str__", ()),
    ):
        check(pair, method, *args)
    for tokenizer, name in zip(pair, ("ours", "theirs")):
        tokenizer.save(str(tmp_path / name))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert set(dir(pair[1])) <= set(dir(pair[0]))
    read = Tokenizer.from_file(str(tmp_path / "ours"))
    assert read.to_str() == Tokenizer.from_str(read.to_str()).to_str() == pair[1].to_str()
    check((Tokenizer.from_buffer(read.to_str().encode()), pair[1]), "encode", "the cat")


def test_the_class_replaces_the_original(made: dict[str, Any], monkeypatch: Any) -> None:
    """A program may replace the class for all its modules, after bytemill was imported."""
    original = made["gpt2"]
    text = original.to_str()
    expected = content(original.encode("one two"))
    for name, ours in (("Tokenizer", Tokenizer), ("Encoding", Encoding)):
        monkeypatch.setattr(tokenizers, name, ours)
    tokenizer = tokenizers.Tokenizer.from_str(text)
    assert type(tokenizer) is Tokenizer
    for each in (tokenizer, copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        encoding = each.encode("one two")
        assert content(encoding) == expected
        assert content(tokenizers.Encoding.merge([encoding], False)) == expected
    assert tokenizers.Tokenizer(models.BPE()).get_vocab_size() == 0


def test_only_a_tokenizer_can_be_wrapped() -> None:
    with pytest.raises(TypeError, match=r"expected a tokenizers\.Tokenizer, not int"):
        Tokenizer.wrap(5)


# --- what is fast ---------------------------------------------------------------------------------


def test_explanations(made: dict[str, Any]) -> None:
    said = {name: str(explain(copy.deepcopy(each))) for name, each in made.items()}
    usual = "encode: bytemill; original for lists of words"
    prefixed = 'pre_tokenizer: "add_prefix_space" is not supported'
    assert said == {
        "gpt2": f"{usual}\ndecode: bytemill",
        "bare": f"{usual}\ndecode: bytemill",
        "llama3": f"{usual}\ndecode: bytemill",
        "qwen": f"{usual}, texts that are not in NFC\ndecode: bytemill",
        "surrounded": f"{usual}, texts with <mask>\ndecode: bytemill",
        "roberta": f"{usual}\ndecode: bytemill",
        "prefixed": f"encode: original ({prefixed})\ndecode: original ({prefixed})",
    }
    other = tokenizers.Tokenizer(models.WordLevel({"the": 0}))  # type: ignore[call-arg]
    assert explain(other).encode_reason == "model: WordLevel is not supported"


class Forbidden:
    """An original that must not encode or decode."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("encode_b", "decode_b")) or name in ("encode", "decode"):
            return pytest.fail
        return getattr(self._original, name)


@pytest.mark.parametrize("name", [name for name in pipelines.ALL if name != "prefixed"])
def test_the_original_is_not_used(made: dict[str, Any], name: str) -> None:
    tokenizer = Tokenizer.wrap(copy.deepcopy(made[name]))
    expected = copy.deepcopy(made[name])
    for each in (tokenizer, expected):
        each.enable_truncation(7, stride=1)
        each.enable_padding()
    tokenizer._original = Forbidden(tokenizer._original)
    batch = ["the cat sat on the mat", "naïve 日本語 😀", ("a", "b"), "<s>"]
    encodings = tokenizer.encode_batch(batch)
    assert plain(encodings) == plain(expected.encode_batch(batch))
    ids = [each.ids for each in encodings]
    assert tokenizer.decode_batch(ids) == expected.decode_batch(ids)
    assert tokenizer.encode("a", "b").ids == expected.encode("a", "b").ids


def test_early_exit_of_some_versions(made: dict[str, Any], monkeypatch: Any) -> None:
    """If `tokenizers` does not tokenize what it truncates, it truncates itself."""
    assert _pipeline.exits_early() == tokenizers.__version__.startswith(("0.23.0", "0.23.1"))
    monkeypatch.setattr(_pipeline, "exits_early", lambda: True)
    tokenizer = Tokenizer.wrap(copy.deepcopy(made["gpt2"]))
    tokenizer.enable_truncation(3)
    assert type(tokenizer.encode("the cat sat on the mat")) is tokenizers.Encoding
    assert type(tokenizer.encode("the")) is Encoding


def test_unassigned_characters_are_not_taken_for_normal(made: dict[str, Any]) -> None:
    tokenizer = Tokenizer.wrap(copy.deepcopy(made["qwen"]))
    assert tokenizer._ready().accepts("naïve 日本語 é")
    assert not tokenizer._ready().accepts("e\u0301")
    assert not tokenizer._ready().accepts("\u0378")


def test_json_of_an_encoding(pair: Pair) -> None:
    ours, theirs = (each.encode("the cat", "sat") for each in pair)
    if type(ours) is Encoding:
        assert json.loads(ours.foreign().__getstate__()) == json.loads(theirs.__getstate__())
