"""Sublayers of a block as single steps of autograd, for float32 on a CPU without a compiler.

Composed of torch's operations one by one, a block spends a quarter of its time in passes over
memory that multiply and add, and keeps every intermediate result for the way back. Here a
sublayer keeps only what is dear to make again (the products of matrices) and makes the rest anew;
what is overwritten is always memory that nobody else has seen. The matrices are torch's (MKL), the
attention kernel is torch's too; the little functions between them (`norm_forward` and so on) are
the ones that `use_compiled` replaces by what the compiler makes of them.

Everything is held to the plain mathematics by tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["attention_sublayer", "feed_forward_sublayer", "rotation_table", "use_compiled"]


# --- between the matrices: (N, d) each ---------------------------------------------------------


def _norm_forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The normed rows, and one over the root mean square of each."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = torch.rsqrt(length.square() / x.shape[-1] + eps)
    return (x * scale).mul_(weight), scale


def _norm_again(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return (x * scale).mul_(weight)


def _norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, scale: Tensor, residual: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the weight; `residual` is what comes to x past the sublayer."""
    # Both sums over grad · x are products with a vector, which costs one pass each.
    product = grad * x
    weight_grad = torch.mv(product.t(), scale.squeeze(-1))
    along = torch.mv(product, weight).unsqueeze(-1)
    factor = scale.pow(3).mul_(along).div_(-x.shape[-1])
    torch.mul(grad, weight, out=product)
    product.mul_(scale).addcmul_(x, factor).add_(residual)
    return product, weight_grad


def _swiglu_forward(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(gate).mul_(up)


def _swiglu_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of gate and up; `grad` may be overwritten."""
    up_grad = torch.nn.functional.silu(gate).mul_(grad)
    grad.mul_(up)
    return torch.ops.aten.silu_backward(grad, gate), up_grad


def _turn(x: Tensor, table: Tensor) -> Tensor:
    """Turns pairs of x (…, T, d) in place by the complex numbers of `table` (T, d/2)."""
    torch.view_as_complex(x.view(*x.shape[:-1], -1, 2)).mul_(table)
    return x


norm_forward: Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]] = _norm_forward
norm_again: Callable[[Tensor, Tensor, Tensor], Tensor] = _norm_again
norm_backward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = (
    _norm_backward
)
swiglu_forward: Callable[[Tensor, Tensor], Tensor] = _swiglu_forward
swiglu_backward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = _swiglu_backward


def _pure_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, scale: Tensor, residual: Tensor
) -> tuple[Tensor, Tensor]:
    product = grad * x
    along = (product * weight).sum(-1, keepdim=True)
    weight_grad = (product * scale).sum(0)
    factor = scale.pow(3) * along / x.shape[-1]
    return grad * weight * scale - x * factor + residual, weight_grad


def _pure_norm_forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * scale * weight, scale


def _pure_swiglu_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    sigmoid = torch.sigmoid(gate)
    return grad * up * sigmoid * (1 + gate * (1 - sigmoid)), grad * gate * sigmoid


def use_compiled(compiled: bool = True) -> None:
    """Replaces the little functions by compiled ones, or puts them back.

    Compiling happens at their first call, some seconds for all of them, and may raise there.
    """
    names = ("norm_forward", "norm_again", "norm_backward", "swiglu_forward", "swiglu_backward")
    for name in names:
        plain = globals()[f"_{name}"]
        if compiled:
            pure = globals().get(f"_pure_{name}", plain)
            plain = torch.compile(pure, dynamic=False)
        globals()[name] = plain


# --- sublayers ---------------------------------------------------------------------------------


def rotation_table(cos: Tensor, sin: Tensor, n_heads: int) -> Tensor:
    """cos + i sin of shape (T, d_head/2), once for each head: (T, heads · d_head/2)."""
    return torch.complex(cos, sin).repeat(1, n_heads)


class _FeedForward(torch.autograd.Function):
    """x + W2 (silu(W1 n) · W3 n), where n is the norm of x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, w1: Tensor, w2: Tensor, w3: Tensor, eps: float
    ) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        normed, scale = norm_forward(flat, weight, eps)
        gate, up = normed @ w1.t(), normed @ w3.t()
        inner = swiglu_forward(gate, up)
        ctx.save_for_backward(flat, weight, w1, w2, w3, scale, gate, up)
        return _added(x, flat, inner, w2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, w1, w2, w3, scale, gate, up = ctx.saved_tensors
        flat = grad.reshape(x.shape)
        w2_grad = flat.t() @ swiglu_forward(gate, up)
        gate_grad, up_grad = swiglu_backward(flat @ w2, gate, up)
        normed = norm_again(x, weight, scale)
        w1_grad, w3_grad = gate_grad.t() @ normed, up_grad.t() @ normed
        del normed
        norm_grad = (gate_grad @ w1).addmm_(up_grad, w3)
        x_grad, weight_grad = norm_backward(norm_grad, x, weight, scale, flat)
        return x_grad.view(grad.shape), weight_grad, w1_grad, w2_grad, w3_grad, None


class _Attention(torch.autograd.Function):
    """x + Wo attention(Wq n, Wk n, Wv n), where n is the norm of x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        wq: Tensor,
        wk: Tensor,
        wv: Tensor,
        wo: Tensor,
        query_table: Tensor | None,
        key_table: Tensor | None,
        d_head: int,
        eps: float,
    ) -> Tensor:
        n_rows, n_tokens, _ = x.shape
        flat = x.reshape(-1, x.shape[-1])
        normed, scale = norm_forward(flat, weight, eps)
        shape = (n_rows, n_tokens, -1)
        query, key, value = ((normed @ w.t()).view(shape) for w in (wq, wk, wv))
        if query_table is not None and key_table is not None:
            _turn(query, query_table)
            _turn(key, key_table)
        shared = query.shape[-1] // key.shape[-1]
        heads = [_heads(query, d_head)] + [
            # Torch's kernel has no grouped heads: they are repeated for it.
            _heads(part, d_head).repeat_interleave(shared, 1)
            if shared > 1
            else _heads(part, d_head)
            for part in (key, value)
        ]
        mixed, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*heads, 0.0, True)
        ctx.d_head, ctx.shared = d_head, shared
        ctx.save_for_backward(
            flat, weight, wq, wk, wv, wo, query_table, key_table, scale, *heads, mixed, sums
        )
        joined = mixed.transpose(1, 2).reshape(flat.shape)
        return _added(x, flat, joined, wo)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        saved = ctx.saved_tensors
        x, weight, wq, wk, wv, wo, query_table, key_table, scale, *heads, mixed, sums = saved
        n_rows, n_tokens, _ = grad.shape
        flat = grad.reshape(x.shape)
        wo_grad = flat.t() @ mixed.transpose(1, 2).reshape(x.shape)
        mixed_grad = _heads((flat @ wo).view(n_rows, n_tokens, -1), ctx.d_head)
        head_grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            mixed_grad, *heads, mixed, sums, 0.0, True
        )
        query_grad, key_grad, value_grad = head_grads
        if ctx.shared > 1:
            key_grad, value_grad = (
                part.unflatten(1, (-1, ctx.shared)).sum(2) for part in (key_grad, value_grad)
            )
        query_grad, key_grad, value_grad = (
            part.transpose(1, 2).flatten(2) for part in (query_grad, key_grad, value_grad)
        )
        if query_table is not None:
            # Turning back is turning by the conjugate.
            _turn(query_grad, query_table.conj())
            _turn(key_grad, key_table.conj())
        rows = [part.reshape(-1, part.shape[-1]) for part in (query_grad, key_grad, value_grad)]
        normed = norm_again(x, weight, scale)
        weight_grads = [part.t() @ normed for part in rows]
        del normed
        norm_grad = (rows[0] @ wq).addmm_(rows[1], wk).addmm_(rows[2], wv)
        x_grad, weight_grad = norm_backward(norm_grad, x, weight, scale, flat)
        return x_grad.view(grad.shape), weight_grad, *weight_grads, wo_grad, *[None] * 4


def _added(x: Tensor, flat: Tensor, inner: Tensor, weight: Tensor) -> Tensor:
    """x + weight inner, in the shape of x and in memory of its own.

    Not a view of what the product gives: FSDP hangs its hooks on outputs, and warns of views.
    """
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    torch.addmm(flat, inner, weight.t(), out=out.view(flat.shape))
    return out


def _heads(x: Tensor, d_head: int) -> Tensor:
    """(B, T, heads · d_head) -> (B, heads, T, d_head), the same memory."""
    return x.view(*x.shape[:2], -1, d_head).transpose(1, 2)


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
    tables: tuple[Tensor, Tensor] | None,
    d_head: int,
    eps: float,
) -> Tensor:
    """Norm, causal attention and the residual; x is (B, T, d).

    `tables` are those of queries and keys by `rotation_table`, of T rows; None for no positions.
    """
    query_table, key_table = (None, None) if tables is None else tables
    return _Attention.apply(  # type: ignore[no-any-return]
        x, norm_weight, wq, wk, wv, wo, query_table, key_table, d_head, eps
    )
