"""Training by `bytemill.compat.tokenizers`: the file that `tokenizers` saves, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")

import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

import generated
from bytemill._native import pattern_regex
from bytemill.compat import _training
from bytemill.compat.tokenizers import Tokenizer

LETTERS = pre_tokenizers.ByteLevel.alphabet()


def untrained(kind: Any, pattern: str = "gpt2", **settings: Any) -> Any:
    tokenizer = kind(models.BPE(**settings))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
    if pattern != "gpt2":
        split = pre_tokenizers.Split(Regex(pattern_regex(pattern)), "isolated")
        level = pre_tokenizers.Sequence([split, level])
    tokenizer.pre_tokenizer = level
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def both(*args: Any, **settings: Any) -> tuple[Tokenizer, Any]:
    return (
        untrained(Tokenizer, *args, **settings),
        untrained(tokenizers.Tokenizer, *args, **settings),
    )


options = st.fixed_dictionaries(
    {"vocab_size": st.integers(0, 320)},
    optional={
        "min_frequency": st.integers(0, 4),
        "special_tokens": st.lists(
            st.sampled_from(
                ["<|endoftext|>", AddedToken("[MASK]", lstrip=True), "<a b>", "a", "the"]
            ),
            max_size=3,
        ),
        "initial_alphabet": st.sampled_from([[], ["a", "b"], LETTERS, ["日"], ["ab"]]),
        # With a smaller one the original drops any of the bytes that are equally frequent.
        "limit_alphabet": st.sampled_from([256, 1000]),
        "max_token_length": st.sampled_from([None, 0, 1, 2, 3, 4, 6]),
    },
)


@settings(max_examples=150)
@example(["00"], {"vocab_size": 3, "special_tokens": ["<|endoftext|>"] * 3}, "gpt2")
@given(st.lists(generated.texts, max_size=4), options, st.sampled_from(["gpt2", "llama3"]))
def test_generated(texts: list[str], options: dict[str, Any], pattern: str) -> None:
    for ours, theirs in (both(pattern), both(pattern, unk_token="<unk>", fuse_unk=True)):
        for tokenizer in (ours, theirs):
            trainer = trainers.BpeTrainer(show_progress=False, **options)
            tokenizer.train_from_iterator([texts[:1], *texts[1:]], trainer)
        assert ours.to_str(pretty=True) == theirs.to_str(pretty=True)
        for text in texts:
            assert ours.encode(text).ids == theirs.encode(text).ids


@pytest.mark.parametrize("pattern", ["gpt2", "llama3"])
def test_files(documents: list[str], tmp_path: Path, pattern: str, monkeypatch: Any) -> None:
    """Real text, from files, which are read line by line."""
    files = []
    for i, document in enumerate(documents[:20]):
        files.append(str(tmp_path / f"{i}.txt"))
        Path(files[-1]).write_bytes(document.encode())
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|endoftext|>", "<pad>"],
        initial_alphabet=LETTERS,
        max_token_length=8,
        show_progress=False,
    )
    ours, theirs = both(pattern)
    theirs.train(files, trainer)
    theirs.save(str(tmp_path / "theirs"))
    monkeypatch.setattr(ours, "_original", Untrained(ours._original))
    ours.train(files, trainer)
    ours.save(str(tmp_path / "ours"))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    text = documents[30]
    assert ours.encode(text).ids == theirs.encode(text).ids


class Untrained:
    """An original that must not train."""

    def __init__(self, original: Any) -> None:
        object.__setattr__(self, "_original", original)

    def __getattr__(self, name: str) -> Any:
        assert not name.startswith("train")
        return getattr(self._original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._original, name, value)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: setattr(t, "normalizer", normalizers.Lowercase()),
        lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Whitespace()),
        lambda t: setattr(t, "pre_tokenizer", None),
        lambda t: t.add_tokens(["the"]),
        lambda t: setattr(t, "model", models.WordLevel(unk_token="?")),
    ],
)
def test_what_the_original_trains(change: Any) -> None:
    ours, theirs = both()
    for tokenizer in (ours, theirs):
        change(tokenizer)
        wordy = type(tokenizer.model).__name__ == "WordLevel"
        kind = trainers.WordLevelTrainer if wordy else trainers.BpeTrainer
        trainer = kind(vocab_size=60, show_progress=False)
        tokenizer.train_from_iterator(iter(["The cat sat on the mat"] * 3), trainer)
    assert ours.to_str() == theirs.to_str()


def test_a_limited_alphabet() -> None:
    ours, theirs = both()
    for tokenizer in (ours, theirs):
        trainer = trainers.BpeTrainer(limit_alphabet=2, vocab_size=5, show_progress=False)
        tokenizer.train_from_iterator(["aaaabbbcabcab"], trainer)
    assert ours.to_str() == theirs.to_str()


def test_without_a_trainer(capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = both()
    for tokenizer in (ours, theirs):
        tokenizer.train_from_iterator(["the cat sat on the mat"] * 2)
    assert ours.to_str() == theirs.to_str()


def test_invalid_texts() -> None:
    for tokenizer in both():
        trainer = trainers.BpeTrainer(show_progress=False)
        with pytest.raises(TypeError):
            tokenizer.train_from_iterator(["a", 5], trainer)
        with pytest.raises(TypeError):
            tokenizer.train_from_iterator(5, trainer)
        with pytest.raises(Exception, match="No such file"):
            tokenizer.train(["no such file"], trainer)


def test_the_texts_are_not_consumed_if_the_original_trains() -> None:
    texts = iter(["a"])
    tokenizer: Any = tokenizers.Tokenizer(models.BPE())  # type: ignore[call-arg]
    assert not _training.train(tokenizer, None, texts)
    assert list(texts) == ["a"]
