"""Optimizations for speed, attached to a model from outside; parameters keep their names.

    sublayers   attention and feed-forward as single autograd steps, for float32 on a CPU
    head        the head and cross-entropy in chunks, without all logits in memory, on any device
    decode      one step of generation as one call to Rust, for float32 on a CPU
    batching    samples that are decoded together and join and leave at any step

`attach` exchanges the class of a model and its blocks, as FSDP does, so that checkpoints,
optimizers and hooks see the same modules. Tests compare all of it with `naive` on every kind of
model. `why_not` and `devices` decide when each is used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import ModelConfig
from ..model import LayerCache, RMSNorm, SwiGLU, TransformerBlock, TransformerLM
from ..plan.costs import can_fuse
from . import sublayers
from .head import linear_cross_entropy

__all__ = ["attach", "detach", "why_not"]


class FastBlock(TransformerBlock):
    """A block of two fused sublayers; for inputs that they do not support, the original block."""

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        if cache is not None or x.dim() != 3 or not is_float32_on_cpu(x):
            return super().forward(x, cache)
        attention, inner = self.attention, self.feed_forward
        rotation = None
        if attention.rope is not None:
            attention.rope.check_length(x.shape[1])
            rotation = attention.rope.cos, attention.rope.sin
        assert isinstance(self.attention_norm, RMSNorm)
        assert isinstance(self.feed_forward_norm, RMSNorm)
        assert isinstance(inner, SwiGLU)
        x = sublayers.attention_sublayer(
            x,
            self.attention_norm.weight,
            attention.query.weight,
            attention.key.weight,
            attention.value.weight,
            attention.output.weight,
            rotation,
            attention.d_head,
            self.config.norm_eps,
        )
        return sublayers.feed_forward_sublayer(
            x,
            self.feed_forward_norm.weight,
            inner.w1.weight,
            inner.w2.weight,
            inner.w3.weight,
            self.config.norm_eps,
        )


class FastNorm(RMSNorm):
    """The final norm as one native pass."""

    def forward(self, x: Tensor) -> Tensor:
        if not is_float32_on_cpu(x):
            return super().forward(x)
        return sublayers.normed(x, self.weight, self.eps)


class FastLM(TransformerLM):
    """A model whose loss never has all logits in memory."""

    def loss_of(self, x: Tensor, targets: Tensor) -> Tensor:
        return linear_cross_entropy(x, self.head_weight, targets)


def attach(model: TransformerLM, *, blocks: bool = True) -> TransformerLM:
    """Attaches the fast versions to a model in place; returns it.

    Args:
        model: any model; parts without a fast version stay as they are.
        blocks: fuse the blocks too; False leaves them to torch, or to its compiler.
    """
    detach(model)
    model.__class__ = FastLM
    if blocks:
        for block in model.layers if can_fuse(model.config) else []:
            block.__class__ = FastBlock
        if isinstance(model.final_norm, RMSNorm):
            model.final_norm.__class__ = FastNorm
    return model


def detach(model: TransformerLM) -> TransformerLM:
    """Undoes `attach`."""
    model.__class__ = TransformerLM
    for block in model.layers:
        block.__class__ = TransformerBlock
    if isinstance(model.final_norm, RMSNorm):
        model.final_norm.__class__ = RMSNorm
    return model


def is_float32_on_cpu(x: Tensor) -> bool:
    """Whether x is float32 on a CPU, without autocast."""
    return (
        x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    )


def why_not(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> str | None:
    """The reason not to fuse the blocks of this model on this machine; None if they can be."""
    if device.type != "cpu" or dtype != torch.float32:
        return "torch's own kernels are faster here"
    if not can_fuse(config):
        return "the fused sublayers do not support this kind of model"
    problem = _try_out()
    return None if problem is None else f"the fused sublayers fail here ({problem})"


def _try_out() -> str | None:
    """The reason why the fused sublayers do not work with this torch; None if they do."""
    state = torch.random.get_rng_state()
    try:
        config = ModelConfig(
            vocab_size=64, context_length=16, d_model=32, num_layers=1, num_heads=2, d_ff=64
        )
        model = TransformerLM(config)
        ids = torch.arange(16).reshape(1, -1)
        found = []
        for change in (detach, attach):
            model.zero_grad()
            loss = change(model).loss(ids, ids)
            torch.autograd.backward(loss)
            found.append((loss.detach(), model.embedding.weight.grad))
        close = all(torch.allclose(a, b, 1e-3, 1e-5) for a, b in zip(*found))
        return None if close else "wrong result"
    except (RuntimeError, AttributeError, TypeError) as error:
        return type(error).__name__
    finally:
        torch.random.set_rng_state(state)
