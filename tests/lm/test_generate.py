"""Generation: the cache changes nothing, sampling follows its options, characters stay whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")


import numpy as np

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm import generate
from bytemill.lm.generate import Sampler


@small_lm.ablations
@pytest.mark.parametrize("n_samples", [1, 3])
def test_with_and_without_cache(changes: dict[str, Any], n_samples: int) -> None:
    model = small_lm.model(**changes)
    options = {"n_samples": n_samples, "temperature": 0.8, "top_k": 20, "seed": 4}
    # Longer than the context: its second half is read again, twice.
    cached = model.generate([5, 6, 7], max_tokens=70, **options)
    assert cached == model.generate([5, 6, 7], max_tokens=70, use_cache=False, **options)
    assert [len(sample) for sample in cached] == [70] * n_samples
    if n_samples > 1:
        assert cached[0] != cached[1]


@small_lm.ablations
@pytest.mark.parametrize("make", [generate.CachedStep, generate.new_step])
def test_logits_of_each_step(changes: dict[str, Any], make: Any) -> None:
    model = small_lm.model(**changes)
    ids = small_lm.ids(2, 20)
    with torch.inference_mode():
        expected = model(ids)
        step = make(model, 2, 20)
        found = [step.read(ids[:, :3]), *(step.step(ids[:, n]) for n in range(3, 20))]
    torch.testing.assert_close(torch.stack(found, 1), expected[:, 2:], rtol=1e-4, atol=1e-4)


def test_generation_needs_nothing_of_a_model_but_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    class Always:
        def read(self, ids: Any) -> Any:
            return torch.nn.functional.one_hot(torch.tensor([42]), 97).float()

        step = read

    def make(model: Any, n_samples: int, capacity: int) -> Any:
        asked.append((n_samples, capacity))
        return Always()

    monkeypatch.setattr(generate, "new_step", make)
    assert small_lm.model().generate([1], max_tokens=4, temperature=0) == [[42] * 4]
    assert asked == [(1, 5)]


def test_a_sample_does_not_depend_on_those_beside_it() -> None:
    model = small_lm.model()
    three = model.generate([1, 2], max_tokens=20, n_samples=3, seed=7)
    assert model.generate([1, 2], max_tokens=20, n_samples=1, seed=7) == three[:1]
    assert model.generate([1, 2], max_tokens=20, n_samples=3, seed=8) != three
    assert model.generate([1, 2], max_tokens=20, n_samples=3) != model.generate(
        [1, 2], max_tokens=20, n_samples=3
    )


def test_greedy() -> None:
    model = small_lm.model()
    ids = [3, 4]
    for _ in range(10):
        ids.append(int(model(torch.tensor(ids))[-1].argmax()))
    assert model.generate([3, 4], max_tokens=10, temperature=0) == [ids[2:]]
    assert model.generate([3, 4], max_tokens=10, top_k=1) == [ids[2:]]
    assert model.generate([3, 4], max_tokens=10, top_p=0) == [ids[2:]]


def test_stop_ids() -> None:
    model = small_lm.model()
    whole = model.generate([3, 4], max_tokens=20, seed=1)[0]
    stop = whole[8]
    assert model.generate([3, 4], max_tokens=20, seed=1, stop_ids=[stop]) == [
        whole[: whole.index(stop)]
    ]


def allowed(logits: Any, top_k: int | None, top_p: float | None, min_p: float | None) -> set[int]:
    """The ids that may be drawn, by definition."""
    shares = torch.softmax(logits.double(), -1)
    order = sorted(range(len(shares)), key=lambda i: -shares[i])
    if top_k is not None:
        order = order[:top_k]
    total = sum(float(shares[i]) for i in order)
    kept, mass = [], 0.0
    for i in order:
        if top_p is None or mass < top_p or not kept:
            kept.append(i)
        mass += float(shares[i]) / total
    if min_p is not None:
        kept = [i for i in kept if shares[i] >= min_p * shares[order[0]]]
    return set(kept)


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(2, 700),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.floats(0.05, 0.999)),
    st.one_of(st.none(), st.floats(0.01, 0.9)),
    st.sampled_from([0.3, 1.0, 5.0]),
)
def test_what_may_be_drawn(
    seed: int, n: int, top_k: int | None, top_p: float | None, min_p: float | None, scale: float
) -> None:
    logits = scale * torch.randn(n, generator=torch.Generator().manual_seed(seed))
    sampling = lm.Sampling(top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    sampler = Sampler(sampling, 50, 1, torch.device("cpu"))
    drawn = set(sampler.choose(logits.expand(50, -1)).tolist())
    expected = allowed(logits, top_k, top_p, min_p)
    # Rounding may put a probability at the limit on either side.
    assert drawn <= expected or len(drawn - expected) <= 1
    if len(expected) == 1:
        assert len(drawn) == 1


def test_draws_follow_the_distribution() -> None:
    shares = torch.tensor([0.5, 0.25, 0.125, 0.125])
    for temperature in (1.0, 0.5):
        sampler = Sampler(
            lm.Sampling(temperature=temperature, seed=0), 4000, 1, torch.device("cpu")
        )
        drawn = sampler.choose(shares.log().expand(4000, -1))
        found = torch.bincount(drawn, minlength=4) / 4000
        expected = torch.softmax(shares.log() / temperature, -1)
        assert (found - expected).abs().max() < 0.03


def test_repetition_penalty() -> None:
    sampling = lm.Sampling(temperature=0, repetition_penalty=2.0)
    sampler = Sampler(sampling, 1, 9, torch.device("cpu"))
    logits = torch.tensor([[3.0, 2.0, 1.9, -1.0]])
    assert [sampler.choose(logits).item() for _ in range(4)] == [0, 1, 2, 0]
    sampler = Sampler(sampling, 1, 9, torch.device("cpu"))
    sampler.observe(torch.tensor([[0, 1]]), 4)
    assert sampler.choose(logits).item() == 2
    negative = Sampler(sampling, 1, 9, torch.device("cpu"))
    below = torch.tensor([[-1.0, -1.5]])
    assert [negative.choose(below).item() for _ in range(2)] == [0, 1]


def test_a_temperature_near_zero_takes_the_likeliest() -> None:
    logits = torch.tensor([[3.0, 20.0, 1.9, -1.0]])
    for temperature in (0, 1e-45, 1e-320, 1e-38, 1e-30, 1e-6):
        sampling = lm.Sampling(temperature=temperature, seed=0)
        assert Sampler(sampling, 1, 1, torch.device("cpu")).choose(logits).item() == 1


def test_numbers_of_numpy_are_numbers() -> None:
    sampling = lm.Sampling(temperature=np.float32(0.5), top_k=np.int64(3), seed=1)
    assert sampling == lm.Sampling(temperature=0.5, top_k=3, seed=1)
    assert type(sampling.temperature) is float
    assert type(sampling.top_k) is int


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature must be ≥ 0, got -1"),
        ({"temperature": float("nan")}, "temperature must be a finite number, got NaN"),
        ({"temperature": "x"}, 'temperature must be a finite number, got "x"'),
        ({"top_k": 1.5}, "top_k must be a whole number, got 1.5"),
        ({"top_k": 0}, "top_k must be ≥ 1, got 0"),
        ({"top_p": 1.5}, "top_p must be between 0 and 1, got 1.5"),
        ({"min_p": -0.1}, "min_p must be between 0 and 1, got -0.1"),
        ({"repetition_penalty": 0}, "repetition_penalty must be > 0, got 0"),
        ({"max_tokens": 0}, "max_tokens must be ≥ 1, got 0"),
        ({"n_samples": 0}, "n_samples must be ≥ 1, got 0"),
        ({"ids": []}, "the prompt is empty"),
        ({"ids": [[1, 2], [3, 4]]}, r"ids must be one prompt, got an array of the shape \(2, 2\)"),
        ({"ids": [97]}, "id 97 of the prompt"),
        ({"ids": [-1]}, "id -1 of the prompt"),
        ({"ids": [1] * 33}, "the prompt must have ≤ 32 tokens"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(bytemill.ConfigError, match=message):
        small_lm.model().generate(**{"ids": [1], "max_tokens": 3} | options)


def test_inputs_of_a_wrong_type(tokenizer: bytemill.Tokenizer) -> None:
    model = small_lm.model(vocab_size=len(tokenizer))
    for ids in ([1.7, 2.0], [True], torch.tensor([1.5])):
        with pytest.raises(TypeError, match="ids must be integers, not "):
            model.generate(ids, max_tokens=3)
    with pytest.raises(TypeError, match="max_tokens must be an integer, not str"):
        model.generate([1], max_tokens="3")
    # A string would be a list of its characters.
    with pytest.raises(TypeError, match="stop must be a list of strings, not the string 'end'"):
        lm.generate_text(model, tokenizer, "def f", stop="end")
    expected = model.generate([1, 2], max_tokens=3, temperature=0)
    for ids in (torch.tensor([[1, 2]]), np.array([1, 2], np.uint16), range(1, 3)):
        assert model.generate(ids, max_tokens=3, temperature=0) == expected


# --- text ---------------------------------------------------------------------------------------


class Scripted:
    """A decode step that generates a given text."""

    def __init__(self, ids: list[int], n: int) -> None:
        self.ids, self.n = iter(ids), n

    def read(self, _: Any) -> Any:
        return torch.nn.functional.one_hot(torch.tensor([next(self.ids)]), self.n).float()

    step = read


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch, tokenizer: bytemill.Tokenizer) -> Any:
    """Runs `stream_text` on a model that generates this text, byte by byte."""
    model = small_lm.model(vocab_size=len(tokenizer))

    def run(text: bytes | list[int], **options: Any) -> list[lm.GeneratedText]:
        ids = list(text) + [0] * 50
        make = lambda *_: Scripted(ids, len(tokenizer))  # noqa: E731
        monkeypatch.setattr(generate, "new_step", make)
        options = {"max_tokens": len(text), "temperature": 0} | options
        return list(lm.stream_text(model, tokenizer, "prompt", **options))

    return run


def test_unfinished_characters_are_held_back(says: Any) -> None:
    pieces = says("añ😀b".encode())
    assert [piece.text for piece in pieces] == ["a", "ñ", "😀", "b", ""]
    assert [piece.done for piece in pieces] == [None] * 4 + ["length"]
    assert [piece.text for piece in says("a😀".encode()[:3])] == ["a", "\ufffd"]


def test_stop_strings_never_show(says: Any) -> None:
    shown = says(b"one two\n\nthree", stop=["\n\n", "five"])
    assert "".join(piece.text for piece in shown) == "one two"
    assert shown[-1].done == "stop"
    # Text that only begins like a stop string is shown once that is certain.
    shown = says(b"a\nb\n", stop=["\n\n"])
    assert [piece.text for piece in shown] == ["a", "\nb", "\n"]
    with pytest.raises(bytemill.ConfigError, match="stop strings must not be empty"):
        says(b"a", stop=[""])


@given(st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_stop_strings_against_a_plain_search(text: str, stops: list[str]) -> None:
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [])
    shown = generate.TextStream(tokenizer, tuple(stops))
    found, stopped = "", False
    for id in text.encode():
        part, stopped = shown.push(id)
        found += part
        if stopped:
            break
    if not stopped:
        found += shown.finish()
    # The first to be complete, in order of its end, cuts where it begins.
    ends = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    if not ends:
        assert found == text
    else:
        first = min(end for end, _ in ends)
        assert found == text[: min(begin for end, begin in ends if end == first)]


def test_end_of_text(says: Any, tokenizer: bytemill.Tokenizer) -> None:
    end = tokenizer.special_tokens["<|endoftext|>"]
    shown = says([97, 98, end, 99])
    assert "".join(piece.text for piece in shown) == "ab"
    assert shown[-1].done == "end"


def test_padded_ids_are_never_text(tokenizer: bytemill.Tokenizer) -> None:
    model = small_lm.model(vocab_size=4 * len(tokenizer))
    for penalty in (1.0, 1.2):
        options = {"max_tokens": 40, "temperature": 2.0, "seed": 3, "repetition_penalty": penalty}
        ids = model.generate(tokenizer.encode("def f"), **options)[0]
        assert max(ids) >= len(tokenizer)
        [text] = lm.generate_text(model, tokenizer, "def f", **options)
        assert text


def test_text_of_several_samples(tokenizer: bytemill.Tokenizer) -> None:
    model = small_lm.model(vocab_size=len(tokenizer))
    texts = lm.generate_text(model, tokenizer, "def f", max_tokens=12, n_samples=2, seed=3)
    assert len(texts) == 2
    ids = model.generate(tokenizer.encode("def f"), max_tokens=12, n_samples=2, seed=3)
    assert texts == [tokenizer.decode(sample) for sample in ids]


def test_an_empty_prompt_begins_a_text(tokenizer: bytemill.Tokenizer) -> None:
    assert generate.prompt_ids(tokenizer, "") == [tokenizer.special_tokens["<|endoftext|>"]]
    bare = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [])
    with pytest.raises(bytemill.ConfigError, match="no end-of-text token to start from"):
        generate.prompt_ids(bare, "")
    # A special token that a user types is text, unless the caller says otherwise.
    assert len(generate.prompt_ids(tokenizer, "<|endoftext|>")) > 1
    assert len(generate.prompt_ids(tokenizer, "<|endoftext|>", "all")) == 1
