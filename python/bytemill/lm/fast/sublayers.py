"""Sublayers of a block as single autograd steps, for float32 on a CPU.

Composed of torch's operations, a block spends a quarter of its time in elementwise passes over
memory, and keeps every intermediate result for backward. Here a sublayer keeps only what is
expensive to recompute (the matmuls) and recomputes the rest. Matmuls are torch's; everything
between them, attention included, is one native pass each (`bytemill._native.Passes`), on torch's
own threads.

Only memory that is private to the sublayer is overwritten. Tests compare everything with `naive`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..._native import Passes
from ..plan.costs import chunk_rows

__all__ = ["attention_sublayer", "feed_forward_sublayer", "normed", "openmp_library", "passes"]

Rotation = tuple[Tensor, Tensor]


@functools.lru_cache(maxsize=8)
def _passes_on(n_threads: int) -> Passes:
    return Passes(n_threads, openmp=openmp_library())


def passes() -> Passes:
    """The native passes, on as many threads as torch uses."""
    return _passes_on(torch.get_num_threads())


def openmp_library() -> str | None:
    """The OpenMP library that torch has loaded; None if unknown."""
    try:
        places = Path("/proc/self/maps").read_text().split()
    except OSError:
        return None
    # If there are several, torch uses the one in its own directory.
    own = str(Path(torch.__file__).parent)
    found = {
        place
        for place in places
        if place.startswith("/") and Path(place).name.startswith(("libgomp", "libomp", "libiomp"))
    }
    return min(found, key=lambda place: (not place.startswith(own), place), default=None)


def array(tensor: Tensor) -> npt.NDArray[np.float32]:
    """The memory of a tensor as an array."""
    return tensor.detach().numpy()


def _copy(weight: Tensor) -> npt.NDArray[np.float32]:
    """A copy of a parameter: FSDP cannot resize memory that an array references."""
    return array(weight.detach().clone())


def _norm(x: Tensor, weight: Tensor, eps: float, out: Tensor, scale: Tensor) -> None:
    """Writes the normalized rows of x (N, d), and the reciprocal root mean square of each."""
    passes().norm(array(x), _copy(weight), eps, array(out), array(scale))


def _norm_again(x: Tensor, weight: Tensor, scale: Tensor, out: Tensor) -> None:
    passes().norm(array(x), _copy(weight), None, array(out), array(scale))


def _norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, scale: Tensor, residual: Tensor | None
) -> Tensor:
    """Returns the gradient of the weight; `grad` becomes that of x, plus that of the residual."""
    weight_grad = torch.empty_like(weight)
    past = None if residual is None else array(residual)
    passes().norm_back(array(x), _copy(weight), array(scale), past, array(grad), array(weight_grad))
    return weight_grad


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        flat = x.reshape(-1, x.shape[-1]).contiguous()
        out, scale = torch.empty_like(flat), x.new_empty(len(flat))
        _norm(flat, weight, eps, out, scale)
        ctx.save_for_backward(flat, weight, scale)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, scale = ctx.saved_tensors
        x_grad = grad.reshape(x.shape).clone(memory_format=torch.contiguous_format)
        weight_grad = _norm_backward(x_grad, x, weight, scale, None)
        return x_grad.view(grad.shape), weight_grad, None


class _FeedForward(torch.autograd.Function):
    """x + W2 (silu(W1 n) · W3 n), where n is the normalized x.

    In chunks of rows: temporary results reuse the same few megabytes, which stay in the caches.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, w1: Tensor, w2: Tensor, w3: Tensor, eps: float
    ) -> Tensor:
        flat = x.reshape(-1, x.shape[-1]).contiguous()
        n_rows, d_ff = len(flat), len(w1)
        scale = x.new_empty(n_rows)
        gate, up = x.new_empty(n_rows, d_ff), x.new_empty(n_rows, d_ff)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        flat_out = out.view(flat.shape)
        size = chunk_rows(d_ff, n_rows)
        normed, inner = x.new_empty(size, len(weight)), x.new_empty(size, d_ff)
        for rows in _chunks(n_rows, size):
            n = len(flat[rows])
            _norm(flat[rows], weight, eps, normed[:n], scale[rows])
            torch.mm(normed[:n], w1.t(), out=gate[rows])
            torch.mm(normed[:n], w3.t(), out=up[rows])
            passes().swiglu(array(gate[rows]), array(up[rows]), array(inner[:n]))
            torch.addmm(flat[rows], inner[:n], w2.t(), out=flat_out[rows])
        ctx.save_for_backward(flat, weight, w1, w2, w3, scale, gate, up)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, w1, w2, w3, scale, gate, up = ctx.saved_tensors
        flat = grad.reshape(x.shape).contiguous()
        n_rows, d_ff = gate.shape
        x_grad = torch.empty_like(x)
        weight_grad = torch.zeros_like(weight)
        w1_grad, w2_grad, w3_grad = map(torch.zeros_like, (w1, w2, w3))
        size = chunk_rows(d_ff, n_rows)
        up_grad, gate_grad, inner = (x.new_empty(size, d_ff) for _ in range(3))
        normed = x.new_empty(size, len(weight))
        for rows in _chunks(n_rows, size):
            past, n = flat[rows], len(flat[rows])
            # The gradient of the product of both; the pass turns it into that of `up`.
            torch.mm(past, w2, out=up_grad[:n])
            passes().swiglu_back(
                array(gate[rows]),
                array(up[rows]),
                array(up_grad[:n]),
                array(gate_grad[:n]),
                array(inner[:n]),
            )
            w2_grad.addmm_(past.t(), inner[:n])
            _norm_again(x[rows], weight, scale[rows], normed[:n])
            w1_grad.addmm_(gate_grad[:n].t(), normed[:n])
            w3_grad.addmm_(up_grad[:n].t(), normed[:n])
            torch.mm(gate_grad[:n], w1, out=x_grad[rows]).addmm_(up_grad[:n], w3)
            weight_grad += _norm_backward(x_grad[rows], x[rows], weight, scale[rows], past)
        return x_grad.view(grad.shape), weight_grad, w1_grad, w2_grad, w3_grad, None


def _chunks(n_rows: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, n_rows, size)]


class _Attention(torch.autograd.Function):
    """x + Wo attention(Wq n, Wk n, Wv n), where n is the normalized x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        wq: Tensor,
        wk: Tensor,
        wv: Tensor,
        wo: Tensor,
        cos: Tensor | None,
        sin: Tensor | None,
        d_head: int,
        eps: float,
    ) -> Tensor:
        n_samples, n_tokens, d_model = x.shape
        flat = x.reshape(-1, d_model).contiguous()
        normed, scale = torch.empty_like(flat), x.new_empty(len(flat))
        _norm(flat, weight, eps, normed, scale)
        query, key, value = (normed @ w.t() for w in (wq, wk, wv))
        shape = n_samples, n_tokens, query.shape[1] // d_head, key.shape[1] // d_head, d_head
        mixed, logs = torch.empty_like(query), x.new_empty(n_samples * shape[2] * n_tokens)
        passes().attend(
            shape,
            (array(query), array(key), array(value)),
            _rotation(cos, sin),
            array(mixed),
            array(logs),
        )
        ctx.shape = shape
        ctx.save_for_backward(
            flat, weight, wq, wk, wv, wo, cos, sin, scale, query, key, value, mixed, logs
        )
        return _added(x, flat, mixed, wo)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, wq, wk, wv, wo, cos, sin, scale, query, key, value, mixed, logs = (
            ctx.saved_tensors
        )
        flat = grad.reshape(x.shape).contiguous()
        wo_grad = flat.t() @ mixed
        mixed_grad = flat @ wo
        parts = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        passes().attend_back(
            ctx.shape,
            (array(query), array(key), array(value)),
            _rotation(cos, sin),
            (array(mixed), array(logs), array(mixed_grad)),
            (array(parts[0]), array(parts[1]), array(parts[2])),
        )
        normed = torch.empty_like(x)
        _norm_again(x, weight, scale, normed)
        weight_grads = [part.t() @ normed for part in parts]
        x_grad = torch.mm(parts[0], wq, out=normed).addmm_(parts[1], wk).addmm_(parts[2], wv)
        weight_grad = _norm_backward(x_grad, x, weight, scale, flat)
        return x_grad.view(grad.shape), weight_grad, *weight_grads, wo_grad, *[None] * 4


def _rotation(
    cos: Tensor | None, sin: Tensor | None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None:
    return None if cos is None or sin is None else (array(cos), array(sin))


def _added(x: Tensor, flat: Tensor, inner: Tensor, weight: Tensor) -> Tensor:
    """x + weight inner, in the shape of x and in its own memory.

    Not a view of the product: FSDP attaches hooks to outputs, and warns about views.
    """
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    torch.addmm(flat, inner, weight.t(), out=out.view(flat.shape))
    return out


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of x (…, d)."""
    return _Norm.apply(x, weight, eps)  # type: ignore[no-any-return]


def feed_forward_sublayer(
    x: Tensor, norm_weight: Tensor, w1: Tensor, w2: Tensor, w3: Tensor, eps: float
) -> Tensor:
    """Norm, SwiGLU and the residual; x is (…, d)."""
    return _FeedForward.apply(x, norm_weight, w1, w2, w3, eps)  # type: ignore[no-any-return]


def attention_sublayer(
    x: Tensor,
    norm_weight: Tensor,
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wo: Tensor,
    rotation: Rotation | None,
    d_head: int,
    eps: float,
) -> Tensor:
    """Norm, causal attention and the residual; x is (B, T, d).

    `rotation` holds the cosines and sines of at least T positions; None for no positions.
    """
    cos, sin = (None, None) if rotation is None else rotation
    return _Attention.apply(  # type: ignore[no-any-return]
        x, norm_weight, wq, wk, wv, wo, cos, sin, d_head, eps
    )
