"""Engines: requests share a batch, wait, are cancelled, fail, and end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("starlette")

import bytemill
import serving
import small_lm
from bytemill import lm
from bytemill.serve.replies import Refusal
from bytemill.serve.worker import Generation, ModelWorker, Order, SampleProgress

TOKENIZER = serving.small_tokenizer()


@pytest.fixture(scope="module")
def model() -> Any:
    return small_lm.model(vocab_size=len(TOKENIZER)).eval()


@pytest.fixture
def make(model: Any) -> Iterator[Callable[..., ModelWorker]]:
    made = []

    def make_worker(**options: Any) -> ModelWorker:
        made.append(ModelWorker(options.pop("model", model), TOKENIZER, **options))
        return made[-1]

    yield make_worker
    for worker in made:
        worker.close()


def order(ids: list[int] | None = None, max_tokens: int = 10, **options: Any) -> Order:
    fields = ("n", "stop", "stop_ids", "n_top", "score_prompts")
    own = {name: options.pop(name) for name in fields if name in options}
    return Order([ids or [1, 2, 3]], lm.Sampling(**{"seed": 1} | options), max_tokens, **own)


async def collected(generation: Generation) -> dict[int, list[SampleProgress]]:
    found: dict[int, list[SampleProgress]] = {}
    async for arrived in generation:
        for progress in arrived:
            found.setdefault(progress.sample, []).append(progress)
    return found


def text_of(steps: list[SampleProgress]) -> str:
    return "".join(token.text for step in steps for token in step.tokens)


class Gate:
    """Lets steps of batches pass one at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes = threading.Semaphore(0)
        step = lm.DecodeBatch.step

        def gated(batch: Any) -> Any:
            assert self.passes.acquire(timeout=30)
            return step(batch)

        monkeypatch.setattr(lm.DecodeBatch, "step", gated)

    def open(self, n: int = 100_000) -> None:
        self.passes.release(n)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate(monkeypatch)
    yield found
    found.open()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


async def happens(true: Callable[[], bool]) -> None:
    await asyncio.to_thread(serving.until, true)


def test_texts_are_those_of_each_request_alone(model: Any, make: Any) -> None:
    worker = make(max_batch=5)
    prompts = [small_lm.ids(n, seed=n, below=300).tolist() for n in (1, 5, 32, 7, 20, 3, 11, 2)]
    orders = [
        order(ids, 10 + 7 * n, n=1 + n % 3, seed=n, temperature=0.5 + n / 10)
        for n, ids in enumerate(prompts)
    ]

    async def all_at_once() -> Any:
        return await asyncio.gather(*(collected(worker.submit(each)) for each in orders))

    for each, found in zip(orders, run(all_at_once())):
        expected = lm.generate_ids(
            model,
            each.prompts[0],
            max_tokens=each.max_tokens,
            n_samples=each.n,
            seed=each.sampling.seed,
            temperature=each.sampling.temperature,
        )
        assert len(found) == each.n
        for number, ids in enumerate(expected):
            steps = found[number]
            assert [token.id for step in steps for token in step.tokens] == ids
            assert text_of(steps) == TOKENIZER.decode(ids)
            assert [step.done for step in steps] == [None] * (len(steps) - 1) + ["length"]
            assert steps[-1].n_tokens == len(ids)


def test_stop_strings_and_characters_across_tokens(model: Any, make: Any) -> None:
    """The texts are those of `generate_text`, wherever they are cut."""
    worker = make()

    async def check(seed: int, stop: tuple[str, ...]) -> None:
        options = {"seed": seed, "temperature": 1.5}
        found = (await collected(worker.submit(order(max_tokens=40, stop=stop, **options))))[0]
        ids = lm.generate_ids(model, [1, 2, 3], max_tokens=40, **options)[0]
        whole = TOKENIZER.decode(ids)
        at = [whole.find(text) for text in stop if text in whole]
        assert text_of(found) == (whole[: min(at)] if at else whole)
        assert found[-1].done == ("stop" if at else "length")
        # No token after the cut, and all before it.
        shown = [token.id for step in found for token in step.tokens]
        assert shown == ids[: len(shown)]
        if not at:
            assert len(shown) == len(ids)
        elif at and min(at):
            assert len(TOKENIZER.decode(ids[: len(shown) - 1])) <= min(at) + 1

    async def all_of_them() -> None:
        n_across = 0
        for seed in range(12):
            ids = lm.generate_ids(model, [1, 2, 3], max_tokens=40, seed=seed, temperature=1.5)[0]
            whole = TOKENIZER.decode(ids)
            for start in (0, 1, 7, 15):
                stop = whole[start : start + 3]
                n_across += all(stop not in TOKENIZER.decode([id]) for id in ids)
                await check(seed, (stop,))
            await check(seed, (whole[20:24], whole[9:11], "never there"))
            await check(seed, ("never there", whole[-1] + "x"))
        assert n_across > 20

    run(all_of_them())


def test_end_of_text(model: Any, make: Any) -> None:
    worker = make()
    ids = lm.generate_ids(model, [1, 2, 3], max_tokens=10, seed=1)[0]
    found = run(one(worker, order(stop_ids=frozenset([ids[4]]))))
    end = ids.index(ids[4])
    assert [token.id for step in found for token in step.tokens] == ids[:end]
    assert (found[-1].done, found[-1].n_tokens) == ("end", end)


async def one(worker: ModelWorker, wanted: Order) -> list[SampleProgress]:
    return (await collected(worker.submit(wanted)))[0]


def test_probabilities_are_those_of_the_model(model: Any, make: Any) -> None:
    found = run(one(make(), order(n_top=3, score_prompts=True, temperature=0.3, top_k=5)))
    prompt = found[0].prompt
    assert prompt is not None
    tokens = [*prompt, *(token for step in found for token in step.tokens)]
    ids = [token.id for token in tokens]
    assert ids[:3] == [1, 2, 3]
    logprobs = model(torch.tensor(ids)).log_softmax(-1).detach()
    assert (tokens[0].logprob, tokens[0].top) == (None, [])
    for token, expected in zip(tokens[1:], logprobs):
        assert token.logprob == pytest.approx(float(expected[token.id]), abs=1e-4)
        values, places = expected.topk(3)
        assert [id for id, _ in token.top] == places.tolist()
        assert [p for _, p in token.top] == pytest.approx(values.tolist(), abs=1e-4)


def test_a_prompt_can_only_be_scored(make: Any) -> None:
    found = run(one(make(), order(max_tokens=0, n_top=0, score_prompts=True)))
    assert [(step.done, len(step.prompt or [])) for step in found] == [("length", 3)]


def test_cancelled_requests_free_their_place(make: Any, gate: Gate) -> None:
    worker = make(max_batch=1)

    async def check() -> None:
        first = worker.submit(order(max_tokens=30_000))
        steps = aiter(first)
        gate.open(5)
        await anext(steps)
        second = worker.submit(order(max_tokens=4))
        third = worker.submit(order(max_tokens=4))
        third.cancel()  # still waiting
        assert not worker.is_idle
        first.cancel()
        gate.open()
        assert (await collected(second))[0][-1].done == "length"
        await happens(lambda: worker.is_idle and worker.n_free == 1)
        first.cancel()  # a second time, without effect
        second.cancel()

    run(check())


def test_a_full_queue_is_refused(make: Any, gate: Gate) -> None:
    worker = make(max_batch=2, max_queue=1)

    async def check() -> None:
        # One request: the worker may take the first of two before the second is there.
        first = worker.submit(order(n=2))
        await happens(lambda: worker.n_free == 0)
        second = worker.submit(order())
        with pytest.raises(Refusal) as caught:
            worker.submit(order())
        assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
        first.cancel()
        gate.open(1)
        # The second takes its place.
        await happens(lambda: not worker._waiting)
        third = worker.submit(order())
        gate.open()
        for generation in (second, third):
            assert (await collected(generation))[0][-1].done == "length"

    run(check())


def test_a_large_request_does_not_block_small_ones(make: Any, gate: Gate) -> None:
    worker = make(max_batch=2)

    async def check() -> None:
        large = worker.submit(order(max_tokens=3, n=20))
        small = worker.submit(order(max_tokens=3))
        done = []

        async def wait(name: str, generation: Generation) -> None:
            await collected(generation)
            done.append(name)

        gate.open()
        await asyncio.gather(wait("large", large), wait("small", small))
        assert done == ["small", "large"]

    run(check())


def test_failures_reach_every_request(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Event()

    def fail(batch: Any) -> Any:
        assert start.wait(30)
        raise MemoryError("too little")

    monkeypatch.setattr(lm.DecodeBatch, "step", fail)
    worker = make(max_batch=1)

    async def check() -> None:
        generations = [worker.submit(order()) for _ in range(3)]
        start.set()
        for generation in generations:
            with pytest.raises(Refusal, match="the model failed: MemoryError") as caught:
                await collected(generation)
            assert caught.value.status == 500
        await happens(lambda: not worker.is_usable)
        with pytest.raises(Refusal, match="the model failed"):
            worker.submit(order())

    run(check())


def test_ids_without_a_token_are_refused_in_prompts_and_never_chosen(make: Any) -> None:
    larger = small_lm.model(vocab_size=3 * len(TOKENIZER)).eval()
    worker = make(model=larger)

    async def check() -> None:
        good = worker.submit(order([1], 0, n_top=0, score_prompts=True))
        unknown = worker.submit(order([600], 0, n_top=0, score_prompts=True))
        with pytest.raises(bytemill.TokenizerError):
            await collected(unknown)
        padded = worker.submit(order(max_tokens=100))
        assert (await collected(padded))[0][-1].done == "length"
        assert (await collected(good))[0][-1].done == "length"
        assert worker.is_usable
        await happens(lambda: worker.is_idle)

    run(check())


def test_shutting_down_an_engine(make: Any, gate: Gate) -> None:
    worker = make(max_batch=1)

    async def check() -> None:
        generations = [worker.submit(order(max_tokens=30_000)) for _ in range(3)]
        gate.open()
        await asyncio.to_thread(worker.close)
        for generation in generations:
            with pytest.raises(Refusal, match="the server is stopping"):
                await collected(generation)
        with pytest.raises(Refusal) as caught:
            worker.submit(order())
        assert caught.value.status == 503
        worker.close()

    run(check())
    assert not worker._thread.is_alive()


def test_queued_steps_arrive_together(make: Any) -> None:
    worker = make()

    async def check() -> None:
        generation = worker.submit(order(max_tokens=20))
        # Not `await`: the event loop must be blocked meanwhile.
        serving.until(lambda: worker.is_idle)
        worker.close()
        arrived = [steps async for steps in generation]
        assert [steps[-1].n_tokens for steps in arrived] == [20]

    run(check())


def test_wrong_requests_are_refused_at_once(make: Any) -> None:
    worker = make()

    async def check() -> None:
        for ids, message in (([999], "id 999 of the prompt"), ([1] * 33, "≤ 32 tokens")):
            with pytest.raises(Refusal, match=message) as caught:
                worker.submit(order(ids))
            assert (caught.value.status, caught.value.param) == (400, "prompt")
        assert worker.is_idle

    run(check())
