"""The native decode step: equal to the modules for every model, thread count and process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm import generate
from bytemill.lm.fast import decode

SHAPES = {
    "plain": {},
    "grouped": {"num_heads": 4, "num_kv_heads": 2},
    "one-kv-head": {"num_heads": 4, "num_kv_heads": 1},
    "tied": {"tie_embeddings": True},
    "no-positions": {"positions": "none"},
    "odd-widths": {"d_model": 36, "num_heads": 6, "d_ff": 41},
    # Enough weights for several threads.
    "large": {"vocab_size": 1013, "d_model": 192, "d_ff": 512, "num_heads": 6, "num_kv_heads": 3},
}
shapes = pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)


@pytest.fixture
def two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def all_logits(step: Any, ids: Any) -> Any:
    """The logits after each id from the third on."""
    with torch.inference_mode():
        found = [step.read(ids[:, :3]), *(step.step(column) for column in ids[:, 3:].unbind(1))]
    return torch.stack(found, 1)


@shapes
@pytest.mark.parametrize("n_samples", [1, 2, 7])
def test_logits_are_those_of_the_modules(changes: dict[str, Any], n_samples: int) -> None:
    model = small_lm.model(**changes)
    ids = small_lm.ids(n_samples, 20)
    assert isinstance(generate.new_step(model, n_samples, 20), decode.NativeStep)
    found = all_logits(decode.NativeStep(model, n_samples, 20), ids)
    expected = all_logits(generate.CachedStep(model, n_samples, 20), ids)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@shapes
@pytest.mark.parametrize(
    "options", [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": 3}]
)
@pytest.mark.parametrize("n_samples", [1, 3])
def test_ids_are_those_without_a_cache(
    changes: dict[str, Any], options: dict[str, Any], n_samples: int
) -> None:
    model = small_lm.model(**changes)
    # Longer than the context.
    found = model.generate([5, 6, 7], max_tokens=70, n_samples=n_samples, **options)
    assert found == model.generate(
        [5, 6, 7], max_tokens=70, n_samples=n_samples, use_cache=False, **options
    )


def test_threads_change_no_bit() -> None:
    model, ids = small_lm.model(**SHAPES["large"]), small_lm.ids(2, 20)
    before = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            step = decode.NativeStep(model, 2, 20)
            torch.set_num_threads(1)  # so that only the step itself differs
            found.append(all_logits(step, ids))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_other_samples_change_no_bit() -> None:
    model, ids = small_lm.model(), small_lm.ids(5, 20)
    steps = decode.NativeStep(model, 5, 20), decode.NativeStep(model, 1, 20)
    with torch.inference_mode():
        for step in steps:
            step.read(ids[:1, :3])
        for column in ids[:, 3:].unbind(1):
            many, one = steps[0].step(column), steps[1].step(column[:1])
            assert torch.equal(many[:1], one)


def test_changed_weights_take_effect() -> None:
    model = small_lm.model()
    options = {"max_tokens": 20, "temperature": 0}
    before = model.generate([1, 2], **options)
    step = decode.NativeStep(model, 1, 8)
    ids = small_lm.ids(1, 8)
    with torch.inference_mode():
        step.read(ids[:, :3])
        first = step.step(ids[:, 3])
    with torch.no_grad():
        # In place, as an optimizer does it.
        for parameter in model.parameters():
            parameter.mul_(1.3).add_(0.01)
    after = model.generate([1, 2], **options)
    assert after != before
    assert after == model.generate([1, 2], use_cache=False, **options)
    # An existing step sees them too.
    assert not torch.equal(first, all_logits(step, ids)[:, 1])
    torch.testing.assert_close(
        all_logits(step, ids), model(ids)[:, 2:].detach(), rtol=1e-4, atol=1e-4
    )
    # Replaced by another parameter.
    model.load_state_dict(small_lm.model(seed=5).state_dict(), assign=True)
    again = model.generate([1, 2], **options)
    assert again == model.generate([1, 2], use_cache=False, **options)


def taken_by(model: lm.TransformerLM) -> type:
    return type(generate.new_step(model, 1, 8))


def test_models_that_it_does_not_support() -> None:
    assert taken_by(small_lm.model()) is decode.NativeStep
    assert taken_by(small_lm.model().double()) is generate.CachedStep
    assert taken_by(small_lm.model().bfloat16()) is generate.CachedStep
    assert taken_by(small_lm.model().to("meta")) is not decode.NativeStep
    for changes in ({"norm": "post"}, {"feed_forward": "silu"}, {"qk_norm": True}):
        assert taken_by(small_lm.model(**changes)) is generate.CachedStep
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert taken_by(small_lm.model()) is not decode.NativeStep
    turned = small_lm.model()
    weight = turned.layers[0].attention.output.weight
    weight.data = weight.data.t().contiguous().t()
    assert taken_by(turned) is generate.CachedStep
    options = {"max_tokens": 20, "seed": 1}
    assert turned.generate([1], **options) == turned.generate([1], use_cache=False, **options)


def test_a_full_cache() -> None:
    step = decode.NativeStep(small_lm.model(), 1, 4)
    with torch.inference_mode():
        step.read(torch.tensor([[1, 2, 3]]))
        step.step(torch.tensor([4]))
        with pytest.raises(
            bytemill.ConfigError, match="the cache is full: its capacity is 4 positions"
        ):
            step.step(torch.tensor([5]))
        step.read(torch.tensor([[1]]))
        with pytest.raises(bytemill.ConfigError, match="id 97 is not below vocab_size=97"):
            step.step(torch.tensor([97]))


def test_arrays_that_do_not_fit() -> None:
    step = decode.NativeStep(small_lm.model(), 1, 4)
    arrays = decode.decoder_arguments(step.model, step.cache)
    for name, wrong in (
        ("head", arrays["head"][1:]),
        ("cache", arrays["cache"][0]),
        ("embedding", arrays["embedding"][:, ::2]),
        ("layers", arrays["layers"][1:]),
    ):
        with pytest.raises(bytemill.ConfigError):
            decode.LMDecoder(**(arrays | {name: wrong})).step([1], [0], [0])
    with pytest.raises(TypeError):
        decode.LMDecoder(**(arrays | {"head": arrays["head"].astype("float64")}))
    frozen = arrays["cache"].copy()
    frozen.flags.writeable = False
    with pytest.raises(TypeError, match=r"read-?only|writeable"):
        decode.LMDecoder(**(arrays | {"cache": frozen}))


def n_threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_no_thread_is_left(two_threads: None) -> None:
    model = small_lm.model(**SHAPES["large"])
    model.generate([1], max_tokens=4)  # torch's own threads
    gc.collect()
    before = n_threads()
    step = decode.NativeStep(model, 1, 4)
    assert n_threads() == before + 1
    del step
    gc.collect()
    assert n_threads() == before
    for _ in range(20):
        model.generate([1], max_tokens=4)
    gc.collect()
    assert n_threads() <= before


def test_many_at_once(two_threads: None) -> None:
    model = small_lm.model(**SHAPES["large"])
    expected = model.generate([1, 2], max_tokens=20, seed=1)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(model.generate([1, 2], max_tokens=20, seed=1)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def go_on(step: Any, ids: Any, queue: Any) -> None:
    torch.set_num_threads(1)  # torch's own threads do not survive a fork
    with torch.inference_mode():
        queue.put(step.step(ids).tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_works_after_a_fork(two_threads: None) -> None:
    step = decode.NativeStep(small_lm.model(**SHAPES["large"]), 1, 8)
    with torch.inference_mode():
        step.read(torch.tensor([[1, 2]]))
        step.step(torch.tensor([3]))
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=go_on, args=(step, torch.tensor([4]), queue))
    child.start()
    found = queue.get()
    child.join()
    assert child.exitcode == 0
    with torch.inference_mode():
        assert step.step(torch.tensor([4])).tolist() == found
