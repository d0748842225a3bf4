"""`bytemill account`: the estimated cost of a model, compared with measurements on request."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import _numbers, _tables, lm
from ..errors import ConfigError
from ..lm.config import ModelConfig, TrainConfig
from ..lm.config_checks import unknown_key
from ..lm.plan.plot import picture_path, plot_shares
from ..lm.presets import (
    DEFAULT_PRESET,
    GPT2_IDS,
    MODEL_KEYS,
    OTHER_IDS,
    PRESETS,
    preset_model,
    read_toml,
)
from . import options, outputs, streams
from .fields import model_options

if TYPE_CHECKING:
    from ..lm.plan.accounting import Account
    from ..lm.plan.measuring import Measured

EXAMPLES = """\b
examples:
  bytemill account gpt2-xl
  bytemill account gpt2-xl --context 16384 --hardware a100 --tokens 100e9
  bytemill account gpt2-small gpt2-medium gpt2-xl
  bytemill account gpt2-xl --plot shares.png
  bytemill account laptop --batch-size 32 --hardware this --measure
  bytemill account run/ --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--preset", multiple=True, metavar="NAME",
              help="Preset by name, as a MODEL; may be repeated.")  # fmt: skip
@click.option("--config", metavar="FILE", help="TOML file, as for bytemill train.")
@click.option("--batch-size", type=click.IntRange(min=1), default=1, show_default=True,
              metavar="N", help="Sequences per batch.")  # fmt: skip
@click.option("--hardware", metavar="NAME",
              help="Hardware to train on: a100, h100, or this (measured).")  # fmt: skip
@click.option("--memory", metavar="SIZE", help="Available memory, such as 80GB.  "
              "[default: the hardware's]")  # fmt: skip
@click.option("--tokens", type=options.WholeNumber(1), metavar="N",
              help="Tokens to train on.  [default: the compute-optimal number]")  # fmt: skip
@click.option("--mfu", type=click.FloatRange(0, 1, min_open=True), default=0.4, show_default=True,
              metavar="X", help="FLOPs utilization: share of the hardware's peak.")  # fmt: skip
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]),
              help="Matmul dtype.  [default: bfloat16 on a GPU]")  # fmt: skip
@click.option("--optimizer", type=click.Choice(["adamw", "muon", "sgd"]), default="adamw",
              show_default=True, help="Optimizer, whose state takes memory.")  # fmt: skip
@click.option("--measure", is_flag=True,
              help="Train a few steps here and compare with the estimate.")  # fmt: skip
@click.option("--plot", "picture", type=click.Path(path_type=Path), metavar="FILE",
              help="Plot FLOPs shares by size and context: .png, .svg or .pdf.")  # fmt: skip
@options.overwrite_option
@options.json_option
@model_options(
    vocab_size=f"Vocabulary size.  [default: {GPT2_IDS} for gpt2-…, {OTHER_IDS} for others]"
)
def account(
    models: tuple[str, ...],
    preset: tuple[str, ...],
    config: str | None,
    measure: bool,
    picture: Path | None,
    overwrite: bool,
    memory: str | None,
    **given: Any,
) -> None:
    """Estimate the cost of each MODEL: a preset by name, or the model of a run.

    Prints parameters, memory by kind and by activation checkpointing, FLOPs by component, the
    largest batch that fits and the training time. Several models are compared in a table.
    """
    if models and config:
        raise click.UsageError("give MODEL or --config, not both")
    names: list[str | None] = [*models, *preset]
    if measure and len(names) > 1:
        raise click.UsageError("--measure takes one MODEL")
    if picture is not None:
        outputs.check_file(picture_path(picture), overwrite)
    fields = {key: given.pop(key) for key in MODEL_KEYS}
    changes = {key: value for key, value in fields.items() if value is not None}
    limit = None if memory is None else _numbers.parse_size(memory)
    names = names or [None]
    configs = [_model(name, config, changes) for name in names]
    if given["hardware"] == "this":
        # Measured once, for all of them.
        streams.inform("measuring the matmul rate of this machine")
        given["hardware"] = lm.this_machine()
    accounts = [lm.account(each, memory=limit, **given) for each in configs]
    labels = [name or config or DEFAULT_PRESET for name in names]
    measured = None
    if measure:
        streams.inform("measuring a few training steps in a separate process")
        measured = _measured(configs[0], given)
    if picture is not None:
        plot_shares(dict(zip(labels, configs)), picture)
        streams.inform(f"saved   {picture}")
    facts = [one.to_json() | {"name": name} for one, name in zip(accounts, labels)]
    if measured is not None:
        facts[0]["measured"] = dataclasses.asdict(measured) | {"mfu": measured.mfu}
    if len(accounts) > 1:
        streams.emit(facts, text=_side_by_side(accounts, labels))
    else:
        compared = () if measured is None else _compared(measured)
        streams.emit(facts[0], text=chain(_sheet(accounts[0], labels[0]), compared))


def _model(name: str | None, config: str | None, changes: dict[str, Any]) -> ModelConfig:
    """The model that is meant by a preset's name, the path of a run, or a TOML file."""
    if name is None or (name in PRESETS and not (Path(name) / "config.json").exists()):
        return preset_model(name, None if config is None else read_toml(config), **changes)
    if not Path(name).exists():
        raise ConfigError(
            f"{name}: no such run or preset", unknown_key(name, PRESETS, "presets").hint
        )
    keys = lm.read_config(Path(name))["model"] | changes
    return ModelConfig(**{key: value for key, value in keys.items() if key in MODEL_KEYS})


def _measured(config: ModelConfig, given: dict[str, Any]) -> Measured:
    train = TrainConfig(
        batch_size=given["batch_size"],
        optimizer=given["optimizer"],
        dtype=given["dtype"] or "auto",
        compile="off",
    )
    return lm.measured_step(config, train)


# --- tables --------------------------------------------------------------------------------------


def _sheet(found: Account, name: str) -> Iterator[str]:
    config = found.config
    yield (
        f"{name}: {found.n_parameters:,} parameters, {config.num_layers} layers of "
        f"{config.d_model}, {config.num_heads} heads, d_ff {config.width}, "
        f"context {config.context_length:,}, {config.vocab_size:,} ids\n\n"
    )
    with_head, without = found.shares(), found.shares(head=False)
    order = ("embeddings", "attention projections", "attention scores", "feed-forward", "norms",
             "output head")  # fmt: skip
    rows = [
        [
            part,
            _count(found.parameters.get(part)),
            _count(found.forward.get(part)),
            _percent(with_head.get(part)),
            _percent(without.get(part)),
            _about(found.update.get(part)),
        ]
        for part in order
    ]
    without_head = found.forward_flops - found.forward["output head"]
    rows.append(
        ["all", _count(found.n_parameters), _count(found.forward_flops), "100.00%", "100.00%",
         _about(found.training)]
    )  # fmt: skip
    rows.append(["all but the head", "", _count(without_head), "", "",
                 _about(found.training - found.update["output head"])])  # fmt: skip
    head = ["component", "parameters", "forward FLOPs", "share", "without head", "an update"]
    yield _tables.table("lrrrrr", head, rows)
    batch = _sequences(found.batch_size)
    yield (
        f"\nan update on {batch}: {found.training:.4g} FLOPs, "
        f"{found.recomputed:.4g} if blocks are recomputed\n\n"
    )
    yield from _memory(found, batch)
    yield from _time(found)


def _memory(found: Account, batch: str) -> Iterator[str]:
    first = next(iter(found.memory.values()))
    yield (
        f"weights {_bytes(first.weights)}, gradients {_bytes(first.gradients)}, "
        f"{found.optimizer}'s state {_bytes(first.moments)}\n"
        f"KV cache of one sequence {_bytes(found.kv_cache)}; with weights in {found.dtype} "
        f"{_bytes(found.inference)}\n\n"
    )
    head = [f"training on {batch}, {found.dtype}", "activations", "sum", "peak"]
    rows = [
        [way, *map(_numbers.size, (memory.activations, memory.total, memory.peak))]
        for way, memory in found.memory.items()
    ]
    if found.limit is not None:
        head.append(f"largest batch in {_numbers.size(found.limit)}")
        for row, most in zip(rows, found.largest_batch.values()):
            row.append(f"{most:,}" if most else "none")
    yield _tables.table("l" + "r" * (len(head) - 1), head, rows)


def _time(found: Account) -> Iterator[str]:
    yield f"\noptimal {found.optimal_tokens:,} tokens: about 20 per parameter\n"
    yield f"train   {found.tokens:,} tokens: {found.total_flops:.4g} FLOPs\n"
    if found.hardware is not None and found.seconds is not None:
        rate = found.hardware.flops[found.dtype]
        yield (
            f"time    {_span(found.seconds)} on {found.hardware.name} at {found.mfu:.0%} of "
            f"{rate:.4g} FLOP/s in {found.dtype}\n"
        )


def _side_by_side(accounts: list[Account], labels: list[str]) -> Iterator[str]:
    parts = [name for name in accounts[0].forward if accounts[0].forward[name]]
    head = ["", "parameters", "forward FLOPs", *parts]
    rows = [
        [label, _count(one.n_parameters), _count(one.forward_flops),
         *(_percent(one.shares()[part]) for part in parts)]
        for one, label in zip(accounts, labels)
    ]  # fmt: skip
    yield _tables.table("l" + "r" * (len(head) - 1), head, rows)
    yield "\nwithout the output head:\n"
    parts.remove("output head")
    rows = [
        [label, _count(one.forward_flops - one.forward["output head"]),
         *(_percent(one.shares(head=False)[part]) for part in parts)]
        for one, label in zip(accounts, labels)
    ]  # fmt: skip
    head = ["", "forward FLOPs", *parts]
    yield _tables.table("l" + "r" * (len(head) - 1), head, rows)
    first = accounts[0]
    batch = _sequences(first.batch_size)
    yield f"\nmemory, and the peak of training on {batch} in {first.dtype}, by way:\n"
    ways = [way for way in first.memory if all(way in one.memory for one in accounts)]
    rows = [
        [label, _numbers.size(one.memory[ways[0]].weights), _numbers.size(one.kv_cache),
         *(_numbers.size(one.memory[way].peak) for way in ways)]
        for one, label in zip(accounts, labels)
    ]  # fmt: skip
    head = ["", "weights", "KV cache", *ways]
    yield _tables.table("l" + "r" * (len(head) - 1), head, rows)
    if first.limit is not None:
        yield f"\nlargest batch in {_numbers.size(first.limit)}:\n"
        rows = [
            [label, *(f"{one.largest_batch[way]:,}" for way in ways)]
            for one, label in zip(accounts, labels)
        ]
        yield _tables.table("l" + "r" * len(ways), ["", *ways], rows)
    if any(one.seconds for one in accounts):
        yield "\n"
        rows = [
            [label, f"{one.tokens:,}", _span(one.seconds or 0.0)]
            for one, label in zip(accounts, labels)
        ]
        yield _tables.table("lrr", ["", "tokens", "time to train"], rows)


def _compared(measured: Measured) -> Iterator[str]:
    rows = [
        ["FLOPs of an update", _count(measured.predicted_flops), _count(measured.flops),
         "torch's counter, meta device"],
        ["peak memory", _count(measured.predicted_memory), _count(measured.allocated),
         f"torch's allocator, kernels {measured.kernels}"],
        ["", "", _count(measured.resident), "growth of the process"],
    ]  # fmt: skip
    yield "\n" + _tables.table(
        "lrrl", ["a real step", "predicted", "measured", "measured by"], rows
    )
    yield (
        f"\nstep    {_numbers.duration(measured.seconds)}: {measured.mfu:.0%} of the "
        f"{measured.rate:.4g} FLOP/s of a large product\n"
    )


def _count(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


def _about(n: int | None) -> str:
    return "" if n is None else f"{n:.4g}" if n else "0"


def _sequences(n: int) -> str:
    return "1 sequence" if n == 1 else f"{n:,} sequences"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.2%}"


def _bytes(n: int) -> str:
    return f"{_numbers.size(n)} ({n / 2**30:.2f} GiB)" if n >= 10**9 else _numbers.size(n)


def _span(seconds: float) -> str:
    return _numbers.duration(seconds) if seconds < 86400 else f"{seconds / 86400:,.1f} days"
