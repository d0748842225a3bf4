"""Costs of a run: predicted by formula, predicted when it started, and measured."""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np

from ..config import Kernels, ModelConfig, TrainConfig
from ..plan import costs
from ..plan.accounting import MFU, Hardware, account
from ..run.history import Column, History

__all__ = ["Cost", "costs_of"]

# Limits of a plausible matmul rate, in FLOP/s.
RATES = (1e3, 1e30)


class Cost(NamedTuple):
    """A quantity, predicted and measured; None where it is unknown.

    Attributes:
        name: the quantity.
        unit: `"FLOPs"`, `"tokens"`, `"s"`, `"share"` or `"bytes"`.
        account: the value of `lm.account`.
        expected: the prediction when training started, from a micro-batch on that machine.
        measured: the value of the run.
    """

    name: str
    unit: str
    account: float | None
    expected: float | None
    measured: float | None


def costs_of(
    model: ModelConfig,
    train: TrainConfig,
    plan: dict[str, str],
    ranks: int,
    history: History,
) -> list[Cost]:
    """The costs of a run.

    The account is for the run's own matmul rate, which follows from its utilization, and for the
    part of the run that is done.
    """
    dtype, device = plan.get("dtype", "float32"), plan.get("device", "cpu")
    n_steps = len(history.steps)
    step_flops = costs.training_flops(model, train.batch_size)
    per_step = train.batch_size * model.context_length
    rate = _matmul_rate(history, step_flops / per_step)
    hardware = None if rate is None else Hardware(device, {dtype: rate}, 0, device)
    found = account(
        model,
        batch_size=train.batch_size,
        dtype="bfloat16" if dtype == "bfloat16" else "float32",
        optimizer=train.optimizer,
        hardware=hardware,
        tokens=max(n_steps, 1) * per_step,
    )
    seconds = history.column("seconds")
    took = _sum(seconds)
    step_seconds = None if found.seconds is None else found.seconds / max(n_steps, 1)
    expected = history.predicted.get("seconds")
    return [
        Cost("FLOPs of a step", "FLOPs", found.training, None, None),
        Cost("tokens", "tokens", found.optimal_tokens, None, n_steps * per_step),
        Cost("time of a step", "s", step_seconds, expected, _median(seconds)),
        Cost(
            f"time of {n_steps:,} steps",
            "s",
            found.seconds if n_steps else None,
            None if expected is None else expected * n_steps,
            took,
        ),
        Cost("utilization", "share", MFU, None, _utilization(step_flops, rate, seconds)),
        Cost(
            "peak memory",
            "bytes",
            _training_memory(model, train, plan, ranks),
            history.predicted.get("memory"),
            _most(history.column("memory")),
        ),
    ]


def _matmul_rate(history: History, token_flops: float) -> float | None:
    """FLOP/s of a large matrix product on the machine of the run, of all ranks together."""
    tokens, mfu = history.column("tokens_per_s"), history.column("mfu")
    known = (tokens > 0) & (mfu > 0)
    if not known.any():
        return None
    rate = float(np.median(tokens[known] / mfu[known])) * token_flops
    return rate if RATES[0] <= rate <= RATES[1] else None


def _utilization(step_flops: int, rate: float | None, seconds: Column) -> float | None:
    mean = _sum(seconds)
    if rate is None or not mean:
        return None
    return step_flops * int(np.isfinite(seconds).sum()) / mean / rate


def _training_memory(
    model: ModelConfig, train: TrainConfig, plan: dict[str, str], ranks: int
) -> int | None:
    """Bytes of training on a rank, without Python, torch and the room between blocks of memory."""
    kernels, dtype = plan.get("kernels"), plan.get("dtype")
    if kernels not in get_args(Kernels) or dtype not in costs.WIDTHS:
        return None
    rows = max(train.batch_size // ranks, 1)
    micro = min(train.micro_batch_size or rows, rows)
    return costs.training_memory(
        model,
        micro,
        kernels=str(kernels),
        dtype=str(dtype),
        optimizer=train.optimizer,
        accumulate=micro < rows,
        device=plan.get("device"),
    ).peak


def _sum(values: Column) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.sum()) if len(known) else None


def _median(values: Column) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def _most(values: Column) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None
