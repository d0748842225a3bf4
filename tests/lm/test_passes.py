"""The native training passes against the same in float64, at every SIMD level."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

import bytemill
from bytemill._native import Passes
from bytemill.lm import naive
from bytemill.lm.fast import sublayers

LEVELS = Passes.levels()


def numbers(*shape: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * spread


def close(found: Tensor, expected: Tensor, tolerance: float = 3e-6) -> None:
    """Checks that all numbers are equal up to float32 rounding of the largest one."""
    assert found.dtype == torch.float32
    largest = max(float(expected.abs().max()), 1e-3)
    assert float((found.double() - expected).abs().max()) <= tolerance * largest


@pytest.fixture(params=LEVELS)
def passes(request: Any) -> Passes:
    return Passes(2, level=request.param)


def arrays(*tensors: Tensor) -> tuple[Any, ...]:
    return tuple(map(sublayers.array, tensors))


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 7), (5, 16), (100, 192), (2, 40_000), (700, 33)])
@pytest.mark.parametrize("with_residual", [True, False])
def test_norm(passes: Passes, n: int, d: int, with_residual: bool) -> None:
    x, weight, grad = numbers(n, d), numbers(d, seed=1), numbers(n, d, seed=2)
    residual = numbers(n, d, seed=3) if with_residual else None
    wide_x, wide_weight = x.double().requires_grad_(), weight.double().requires_grad_()
    expected = wide_x * torch.rsqrt(wide_x.square().mean(-1, keepdim=True) + 1e-5) * wide_weight
    expected.backward(grad.double())

    out, scales, again = torch.empty_like(x), torch.empty(n), torch.empty_like(x)
    passes.norm(*arrays(x, weight), 1e-5, *arrays(out, scales))
    close(out, expected.detach())
    passes.norm(*arrays(x, weight), None, *arrays(again, scales))
    assert torch.equal(again, out)
    weight_grad = torch.full((d,), torch.nan)
    past = None if residual is None else sublayers.array(residual)
    passes.norm_back(*arrays(x, weight, scales), past, *arrays(grad, weight_grad))
    assert wide_x.grad is not None
    assert wide_weight.grad is not None
    close(grad, wide_x.grad + (0 if residual is None else residual.double()), 1e-5)
    close(weight_grad, wide_weight.grad, 1e-5)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 50_001])
def test_swiglu(passes: Passes, n: int) -> None:
    gate, up, grad = numbers(n, spread=5), numbers(n, seed=1), numbers(n, seed=2)
    wide_gate, wide_up = gate.double().requires_grad_(), up.double().requires_grad_()
    expected = wide_gate * torch.sigmoid(wide_gate) * wide_up
    expected.backward(grad.double())

    out, gate_grad, inner = (torch.empty(n) for _ in range(3))
    passes.swiglu(*arrays(gate, up, out))
    close(out, expected.detach())
    passes.swiglu_back(*arrays(gate, up, grad, gate_grad, inner))
    assert wide_gate.grad is not None
    assert wide_up.grad is not None
    close(inner, expected.detach())
    close(grad, wide_up.grad)
    close(gate_grad, wide_gate.grad)


@pytest.mark.parametrize(("n", "width"), [(1, 1), (3, 17), (64, 300), (5, 50_257)])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_cross_entropy(passes: Passes, n: int, width: int, spread: float) -> None:
    logits = numbers(n, width, spread=spread)
    targets = torch.arange(n) * 7 % width
    wide = logits.double().requires_grad_()
    losses = naive.cross_entropy(wide, targets)
    losses.backward()
    before = logits.clone()
    assert passes.cross_entropy(
        sublayers.array(before), targets.numpy(), None
    ) / n == pytest.approx(float(losses.detach()), rel=1e-5, abs=1e-6)
    found = passes.cross_entropy(sublayers.array(logits), targets.numpy(), 1 / n)
    assert found / n == pytest.approx(float(losses.detach()), rel=1e-5, abs=1e-6)
    assert wide.grad is not None
    close(logits, wide.grad)


def attention(parts: list[Tensor], rotation: tuple[Tensor, Tensor] | None, d_head: int) -> Tensor:
    """(B, T, heads · d_head) from the plain mathematics."""
    query, key, value = (x.unflatten(-1, (-1, d_head)).transpose(1, 2) for x in parts)
    if rotation is not None:
        n = query.shape[-2]
        cos, sin = (table[:n].double() for table in rotation)
        query, key = naive.rotate(query, cos, sin), naive.rotate(key, cos, sin)
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    mask = torch.ones(query.shape[-2], query.shape[-2], dtype=torch.bool).tril()
    mixed = naive.scaled_dot_product_attention(query, key, value, mask)
    return mixed.transpose(1, 2).flatten(2)


# Samples, tokens, heads, heads of keys and values, width of a head: every kind of rest.
SHAPES = [
    (1, 1, 1, 1, 2), (2, 7, 3, 1, 6), (1, 8, 2, 2, 16), (3, 9, 4, 2, 24), (1, 31, 1, 1, 32),
    (2, 64, 2, 1, 32), (1, 65, 2, 2, 40), (1, 130, 2, 2, 64), (1, 200, 1, 1, 8),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("turned", "spread"), [(True, 1.0), (True, 8.0), (False, 1.0)])
def test_attention(passes: Passes, shape: Any, turned: bool, spread: float) -> None:
    n_samples, n_tokens, n_heads, n_kv_heads, d_head = shape
    rows = n_samples, n_tokens
    query = numbers(*rows, n_heads * d_head, spread=spread)
    key, value = (numbers(*rows, n_kv_heads * d_head, seed=i) for i in (1, 2))
    grad = numbers(*rows, n_heads * d_head, seed=3)
    angles = torch.outer(torch.arange(n_tokens + 3.0), 100 ** -torch.linspace(0, 1, d_head // 2))
    rotation = (angles.cos(), angles.sin()) if turned else None
    wide = [x.double().requires_grad_() for x in (query, key, value)]
    expected = attention(wide, rotation, d_head)
    expected.backward(grad.double())

    out, logs = torch.full_like(query, torch.nan), torch.empty(n_samples, n_heads, n_tokens)
    tables = None if rotation is None else arrays(*rotation)
    given = arrays(query, key, value)
    passes.attend(shape, given, tables, *arrays(out, logs))
    close(out, expected.detach(), 1e-5)
    found = [torch.full_like(x, torch.nan) for x in (query, key, value)]
    passes.attend_back(shape, given, tables, arrays(out, logs, grad), arrays(*found))
    for x, part in zip(wide, found):
        assert x.grad is not None
        close(part, x.grad, 2e-5)


def test_threads_do_not_change_a_bit() -> None:
    shape = (3, 70, 4, 2, 24)
    query, key, value = (numbers(3, 70, n * 24, seed=n) for n in (4, 2, 2))
    results = []
    for n_threads in (1, 2, 3, 8):
        passes = Passes(n_threads)
        out, logs, weight_grad = torch.empty_like(query), torch.empty(3, 4, 70), torch.empty(96)
        passes.attend(shape, arrays(query, key, value), None, *arrays(out, logs))
        grads = [torch.empty_like(x) for x in (query, key, value)]
        passes.attend_back(
            shape, arrays(query, key, value), None, arrays(out, logs, query), arrays(*grads)
        )
        x, scales, logits = query.reshape(-1, 96), torch.ones(210), numbers(210, 5_000)
        grad = grads[0].reshape(-1, 96).clone()
        passes.norm_back(*arrays(x, x[0], scales), None, *arrays(grad, weight_grad))
        loss = passes.cross_entropy(sublayers.array(logits), np.arange(210), 1.0)
        results.append([out, logs, *grads, grad, weight_grad, logits, torch.tensor(loss)])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_torchs_own_threads_are_found() -> None:
    info = torch.__config__.parallel_info()
    if "ATen parallel backend: OpenMP" in info and sys.platform == "linux":
        library = sublayers.openmp_library()
        assert library is not None
        assert Path(library).is_file()
    # A library that is not loaded stays unloaded, and does no harm.
    passes = Passes(2, openmp="/nowhere/libgomp.so.1")
    out = torch.empty(40_000)
    passes.swiglu(*arrays(numbers(40_000), numbers(40_000), out))
    assert torch.isfinite(out).all()


def test_nan_propagates(passes: Passes) -> None:
    row = torch.tensor([[1.0, torch.nan, 2.0]])
    assert np.isnan(passes.cross_entropy(sublayers.array(row), np.array([0]), 1.0))
    assert torch.isnan(row).all()
    out, scales = torch.empty(2, 2), torch.empty(2)
    passes.norm(
        *arrays(torch.tensor([[torch.inf, 1], [1, 1]]), torch.ones(2)), 0.0, *arrays(out, scales)
    )
    assert torch.isnan(out[0, 0])
    assert torch.equal(out[1], torch.ones(2))


def test_mismatched_arrays_are_refused() -> None:
    passes = Passes(1)
    a, b = numbers(4, 6), numbers(3, 6)
    with pytest.raises(bytemill.ConfigError, match="must all have the same size"):
        passes.swiglu(*arrays(a, b, a))
    with pytest.raises(bytemill.ConfigError, match="one row per scale"):
        passes.norm(*arrays(a, b[0]), 1e-5, *arrays(b, torch.empty(4)))
    with pytest.raises(bytemill.ConfigError, match="contiguous"):
        passes.swiglu(a.numpy()[:, ::2], a.numpy()[:, ::2], numbers(4, 3).numpy())
    with pytest.raises(bytemill.ConfigError, match="targets must be ids below 6, got 6"):
        passes.cross_entropy(a.numpy(), np.array([0, 1, 6, 2]), None)
    with pytest.raises(bytemill.ConfigError, match="targets must be ids below 6, got -1"):
        passes.cross_entropy(a.numpy(), np.array([0, -1, 3, 2]), None)
    for shape in ((4, 1, 3, 3, 2), (4, 1, 3, 2, 2), (4, 1, 0, 0, 2), (2**40, 2**40, 1, 1, 6)):
        with pytest.raises(bytemill.ConfigError):
            passes.attend(shape, arrays(a, a, b), None, *arrays(a.clone(), torch.empty(12)))
    with pytest.raises(bytemill.ConfigError, match="level"):
        Passes(1, level="abacus")
