"""Tensors of which each rank has a part, and whole ones."""

from __future__ import annotations

from torch import Tensor

__all__ = ["like", "whole"]


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; what is sharded is put together by all ranks."""
    value = tensor.detach()
    full = getattr(value, "full_tensor", None)  # of a DTensor
    return value if full is None else full()


def like(source: Tensor, target: Tensor) -> Tensor:
    """`source` on the device of `target`, and sharded as it is."""
    mesh = getattr(target, "device_mesh", None)
    if mesh is None:
        return source.to(target.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(source.to(target.device), mesh, target.placements)  # type: ignore[attr-defined]
