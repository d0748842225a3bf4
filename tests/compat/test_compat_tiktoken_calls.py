"""Random calls of every public method of `Encoding`: ours against tiktoken's."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tiktoken")

import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import generated
import rivals
from bytemill import train_tokenizer
from bytemill.compat.tiktoken import Encoding

Pair = tuple[Encoding, tiktoken.Encoding]
METHODS = sorted(
    name
    for name, value in vars(tiktoken.Encoding).items()
    if not name.startswith("_") and inspect.isfunction(value)
)

SPECIALS = ["<|endoftext|>", "<|end|>"]
few_texts = st.one_of(generated.texts, generated.specials, st.sampled_from(["", "the", *SPECIALS]))
ids = st.integers(0, 1499) | st.sampled_from([-1, 1500, 9999, (1 << 32) - 1, 1 << 32, 1 << 70])
id_lists = st.lists(st.integers(0, 1499), max_size=9) | st.lists(ids, max_size=5)
sets = st.sets(st.sampled_from([*SPECIALS, "unknown", "the"]))
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.sampled_from([b"the", bytearray(b"the"), memoryview(b"the"), (), {}, {"a": 1}, object()]),
    st.sampled_from([np.array([97]), np.uint32(97), np.array([]), range(3), "all", ["a"], [b"a"]]),
)
anything = st.one_of(few_texts, ids, id_lists, sets, odd)
wrong_numbers = st.sampled_from([None, 0, -1, "8", ()])
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "text": few_texts,
    "text_or_bytes": few_texts | generated.data | st.sampled_from(["the", b"\xff", *SPECIALS]),
    "tokens": id_lists,
    "token": ids,
    "batch": st.lists(id_lists, max_size=3),
    "allowed_special": sets | st.just("all") | sets.map(frozenset),
    "disallowed_special": sets | st.just("all") | st.just(()) | sets.map(sorted),
    "num_threads": st.sampled_from([1, 2, 8]),
    "errors": st.sampled_from(["strict", "replace", "ignore", "nothing"]),
}


@pytest.fixture(scope="module")
def pair(documents: list[str]) -> Pair:
    tokenizer = train_tokenizer(
        iter([*documents[:30], " \n\n \t\n  é→😀\n" * 50]),
        vocab_size=1500,
        special_tokens=SPECIALS,
        pattern=rivals.tiktoken_definition("cl100k_base").pattern,
    )
    ours = Encoding.from_tokenizer(tokenizer, "ours")
    theirs = tiktoken.Encoding(
        "ours",
        pat_str=ours._pat_str,
        mergeable_ranks=ours._mergeable_ranks,
        special_tokens=tokenizer.special_tokens,
    )
    return ours, theirs


def drawn(data: st.DataObject, method: str) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of which at most one is invalid; options may be missing."""
    parameters = [*inspect.signature(getattr(tiktoken.Encoding, method)).parameters.values()][1:]
    misfit = data.draw(st.sampled_from([None, *(each.name for each in parameters)]))
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for each in parameters:
        fitting = FITTING[each.name]
        if each.name == "text" and "batch" in method:
            fitting = st.lists(few_texts, min_size=1, max_size=3)
        if each.name == misfit:
            fitting = wrong_numbers if each.name == "num_threads" else anything
        if each.default is each.empty:
            positional.append(data.draw(fitting))
        elif each.name == misfit or data.draw(st.booleans()):
            named[each.name] = data.draw(fitting)
    return positional, named


def outcome(call: Any, positional: list[Any], named: dict[str, Any]) -> Any:
    try:
        result = call(*positional, **named)
    except Exception as error:
        return type(error)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return "panic"
    if isinstance(result, np.ndarray):
        return result.dtype.name, result.tolist()
    if (
        isinstance(result, tuple)
        and isinstance(result[1], list)
        and call.__name__.endswith("stable")
    ):
        return result[0], sorted(result[1])
    return type(result), result


def same(ours: Any, theirs: Any) -> bool:
    """Our exceptions may be of a subclass."""
    if isinstance(ours, type) and isinstance(theirs, type):
        return issubclass(ours, theirs)
    return bool(ours == theirs)


def test_every_public_method_exists() -> None:
    for name, value in vars(tiktoken.Encoding).items():
        if not name.startswith("_"):
            found = inspect.getattr_static(Encoding, name)
            assert inspect.isfunction(found) == inspect.isfunction(value), name
            if inspect.isfunction(value):
                parameters = [*inspect.signature(value).parameters.values()]
                for ours, theirs in zip(
                    inspect.signature(found).parameters.values(), parameters, strict=True
                ):
                    assert (ours.name, ours.kind) == (theirs.name, theirs.kind), name
                    if theirs.name not in ("allowed_special",):
                        assert ours.default == theirs.default, name


@pytest.mark.parametrize("method", METHODS)
@given(st.data())
def test_any_call(pair: Pair, method: str, data: st.DataObject) -> None:
    positional, named = drawn(data, method)
    ours, theirs = (outcome(getattr(each, method), positional, named) for each in pair)
    if theirs != "panic":
        assert same(ours, theirs), (ours, theirs)
