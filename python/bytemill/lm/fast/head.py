"""The output head and cross-entropy as one step that never has all logits in memory.

The logits of a batch are by far its largest tensor: vocabulary size times tokens. Here they are
computed for a few hundred rows at a time and turned into gradients at once; backward only returns
those. That saves the memory and the time to write it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..plan import costs
from . import sublayers

__all__ = ["linear_cross_entropy"]


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, chunk_rows: int | None = None
) -> Tensor:
    """cross_entropy(hidden weightᵀ, targets), in chunks of rows.

    Args:
        hidden: (…, d).
        weight: (V, d).
        targets: (…).
        chunk_rows: rows at a time; None for a chunk that fits into the caches.
    """
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
    rows = hidden.reshape(-1, hidden.shape[-1])
    if chunk_rows is None:
        chunk_rows = costs.head_rows(weight.shape[0], len(rows), kind)
    return _HeadLoss.apply(rows, weight, targets.reshape(-1), chunk_rows)  # type: ignore[no-any-return]


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, chunk_rows: int
    ) -> Tensor:
        n = hidden.shape[0]
        # Autograd is off inside forward, so `requires_grad` of the arguments is False.
        with_hidden, with_weight = ctx.needs_input_grad[:2]
        hidden_grad = torch.empty_like(hidden) if with_hidden else None
        weight_grad = torch.zeros_like(weight) if with_weight else None
        native = hidden.device.type == "cpu" and hidden.dtype == torch.float32
        slopes_of = _native_slopes if native else _slopes
        wide = torch.promote_types(hidden.dtype, torch.float32)
        loss = torch.zeros((), dtype=wide, device=hidden.device)
        chunk_rows = min(chunk_rows, n)
        # Reused for every chunk: new memory would have to be mapped each time.
        logits = torch.empty(chunk_rows, weight.shape[0], dtype=hidden.dtype, device=hidden.device)
        for start in range(0, n, chunk_rows):
            rows = hidden[start : start + chunk_rows]
            target = targets[start : start + chunk_rows]
            chunk = torch.mm(rows, weight.t(), out=logits[: len(rows)])
            factor = 1 / n if with_hidden or with_weight else None
            chunk_loss, slope = slopes_of(chunk, target, factor)
            loss += chunk_loss
            if hidden_grad is not None:
                torch.mm(slope, weight, out=hidden_grad[start : start + chunk_rows])
            if weight_grad is not None:
                weight_grad.addmm_(slope.t(), rows)
        ctx.save_for_backward(hidden_grad, weight_grad)
        return loss / n

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        hidden_grad, weight_grad = ctx.saved_tensors
        # Reading the value waits for a GPU; on a CPU it is free.
        if grad.device.type == "cpu" and grad.item() == 1.0:
            return hidden_grad, weight_grad, None, None
        scaled = [
            None if saved is None else saved * grad.to(saved.dtype) for saved in ctx.saved_tensors
        ]
        return scaled[0], scaled[1], None, None


def _slopes(logits: Tensor, targets: Tensor, factor: float | None) -> tuple[Tensor, Tensor]:
    """The sum of the losses of rows of logits and, with a factor, their gradients times it."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    targets = targets.unsqueeze(-1)
    # `max` with indices would take five times as long as both.
    top = logits.amax(-1, keepdim=True)
    of_target = logits.gather(-1, targets)
    shares = torch.softmax(logits, -1, dtype=wide)
    # log Σ exp = top - log(largest share); that share is at least 1/V, so the log is accurate.
    greatest = shares.amax(-1, keepdim=True)
    loss = (top - of_target).to(wide).sub_(greatest.log_()).sum()
    if factor is None:
        return loss, logits
    shares.scatter_add_(-1, targets, shares.new_full((1, 1), -1.0).expand(len(targets), 1))
    return loss, shares.mul_(factor).to(logits.dtype)


def _native_slopes(logits: Tensor, targets: Tensor, factor: float | None) -> tuple[float, Tensor]:
    """The same in one native pass, in place: float32 on a CPU."""
    ids = targets.detach().contiguous().numpy()
    return sublayers.passes().cross_entropy(sublayers.array(logits), ids, factor), logits
