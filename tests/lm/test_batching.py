"""Continuous batching: a sample does not depend on which others join and leave the batch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm import generate
from bytemill.lm.fast import batching, decode
from bytemill.lm.fast.batching import DecodeBatch

OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.8, "top_k": 20, "seed": 3},
    {"top_p": 0.9, "seed": 4},
    {"min_p": 0.05, "repetition_penalty": 1.3, "seed": 5},
    {"temperature": 1.5, "seed": 6},
]


def generated(batch: DecodeBatch, requests: list[tuple[list[int], dict[str, Any], int]]) -> Any:
    """The new ids of each request; one joins at every second step, as soon as there is room."""
    waiting, samples, lengths = list(enumerate(requests)), {}, []
    for step in range(10_000):
        if step % 2 == 0 and waiting and batch.n_free:
            number, (ids, options, n) = waiting.pop(0)
            samples[number] = len(ids), batch.join(ids, lm.Sampling(**options), n)
        if not waiting and not batch.samples:
            break
        lengths.append(len(batch.step()))
    assert max(lengths) > 1
    return [samples[n][1].ids[samples[n][0] :] for n in range(len(requests))]


def requests() -> list[tuple[list[int], dict[str, Any], int]]:
    # Some are longer than the context of 32 ids, so the context is read again.
    lengths = [3, 1, 32, 10, 31, 3, 17]
    return [
        (small_lm.ids(n, seed=number).tolist(), OPTIONS[number % len(OPTIONS)], 5 + 13 * number)
        for number, n in enumerate(lengths)
    ]


@small_lm.ablations
@pytest.mark.parametrize("size", [2, 5])
def test_each_sample_equals_the_sample_alone(changes: dict[str, Any], size: int) -> None:
    model = small_lm.model(**changes)
    batch = DecodeBatch(model, size)
    assert isinstance(batch._step, batching._NativeRowStep) == decode.can_run(model)
    expected = [
        lm.generate_ids(model, ids, max_tokens=n, **options)[0] for ids, options, n in requests()
    ]
    assert generated(batch, requests()) == expected
    assert (batch.n_free, batch.samples) == (size, [])
    # In rows that earlier samples used.
    assert generated(batch, requests()) == expected


@small_lm.ablations
def test_logits_of_the_step_in_torch(changes: dict[str, Any]) -> None:
    model = small_lm.model(**changes)
    ids = small_lm.ids(3, 20)
    expected = model(ids).detach()
    step = batching._RowStep(model, 5)
    starts = {0: 3, 2: 11, 4: 1}
    with torch.inference_mode():
        for sample, (row, n) in enumerate(starts.items()):
            found = step.read(row, ids[sample, :n].tolist(), 0)[0]
            torch.testing.assert_close(found, expected[sample, n - 1], rtol=1e-4, atol=1e-4)
        for after in range(8):
            positions = [n + after for n in starts.values()]
            new = [int(ids[sample, at]) for sample, at in enumerate(positions)]
            found = step.step(new, list(starts), positions)
            logits = torch.stack([expected[sample, at] for sample, at in enumerate(positions)])
            torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-4)


def test_samples_of_a_request_have_its_draws() -> None:
    model = small_lm.model()
    expected = lm.generate_ids(model, [1, 2, 3], max_tokens=40, n_samples=4, seed=9)
    batch = DecodeBatch(model, 4)
    sampling = lm.Sampling(seed=9)
    samples = [batch.join([1, 2, 3], sampling, 40, number=number) for number in range(4)]
    while batch.samples:
        batch.step()
    assert [sample.ids[3:] for sample in samples] == expected


def test_equal_prompts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_lm.model()
    read: list[int] = []
    hidden = type(model).hidden

    def counted(self: Any, ids: Any, cache: Any = None) -> Any:
        read.append(ids.numel())
        return hidden(self, ids, cache)

    monkeypatch.setattr(type(model), "hidden", counted)
    batch = DecodeBatch(model, 4)
    for number in range(3):
        batch.join(range(20), lm.Sampling(seed=1), 5, number=number)
    batch.join(range(9), lm.Sampling(seed=1), 5)
    assert len(batch.step()) == 4
    assert read == [20, 9]


def test_long_prompts_do_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "PIECE", 8)
    model = small_lm.model()
    long = small_lm.ids(30).tolist()
    batch = DecodeBatch(model, 3)
    first = batch.join([1, 2], lm.Sampling(temperature=0), 20)
    assert [sample for sample, _, _ in batch.step()] == [first]
    second = batch.join(long, lm.Sampling(temperature=0), 20)
    # Three pieces of 8 ids, and the last of 6.
    assert [len(batch.step()) for _ in range(4)] == [1, 1, 1, 2]
    while batch.samples:
        batch.step()
    assert first.ids[2:] == lm.generate_ids(model, [1, 2], max_tokens=20, temperature=0)[0]
    assert second.ids[30:] == lm.generate_ids(model, long, max_tokens=20, temperature=0)[0]


def test_removing_samples() -> None:
    model = small_lm.model()
    batch = DecodeBatch(model, 2)
    expected = lm.generate_ids(model, [5, 6], max_tokens=30, seed=2)[0]
    stays = batch.join([5, 6], lm.Sampling(seed=2), 30)
    leaves = batch.join([7], lm.Sampling(seed=3), 30)
    with pytest.raises(bytemill.ConfigError, match="the batch is full"):
        batch.join([8], lm.Sampling(), 30)
    for _ in range(5):
        batch.step()
    batch.leave(leaves)
    assert (batch.n_free, batch.samples) == (1, [stays])
    batch.leave(leaves)
    assert batch.n_free == 1
    unread = batch.join([8], lm.Sampling(), 30)
    batch.leave(unread)
    assert (batch.n_free, batch.samples) == (1, [stays])
    while batch.samples:
        assert [sample for sample, _, _ in batch.step()] == [stays]
    assert stays.ids[2:] == expected
    batch.leave(stays)
    assert batch.n_free == 2
    assert batch.step() == []


def test_logits_are_those_that_were_drawn_from() -> None:
    model = small_lm.model()
    batch = DecodeBatch(model, 2)
    sample = batch.join([5, 6, 7], lm.Sampling(temperature=0), 10)
    batch.join([9], lm.Sampling(seed=1), 4)
    while batch.samples:
        for found, id, logits in batch.step():
            if found is sample:
                assert id == sample.ids[-1] == int(logits.argmax())
                expected = model(torch.tensor(sample.ids[:-1]))[-1]
                torch.testing.assert_close(logits, expected.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("ids", "n", "message"),
    [
        ([], 5, "the prompt is empty"),
        ([97], 5, "id 97 of the prompt"),
        ([-1], 5, "id -1 of the prompt"),
        ([1] * 33, 5, "≤ 32 tokens"),
        ([1], 0, "max_tokens must be ≥ 1"),
    ],
)
def test_refusals(ids: list[int], n: int, message: str) -> None:
    batch = DecodeBatch(small_lm.model(), 1)
    with pytest.raises(bytemill.ConfigError, match=message):
        batch.join(ids, lm.Sampling(), n)
    assert batch.n_free == 1
    with pytest.raises(bytemill.ConfigError, match="size must be ≥ 1"):
        DecodeBatch(small_lm.model(), 0)


def test_the_native_step_is_used_where_generation_uses_it() -> None:
    for made in (small_lm.model(), small_lm.model(qk_norm=True), small_lm.model().double()):
        native = isinstance(generate.new_step(made, 1, 8), decode.NativeStep)
        assert isinstance(DecodeBatch(made, 1)._step, batching._NativeRowStep) == native
