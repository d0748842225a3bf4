"""`bytemill sweep`: runs that differ in some settings, and the best of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import _numbers, _tables, lm
from .._files import write_atomically
from ..errors import MissingPackageError
from ..lm.plan.space import Range, parse
from . import options, outputs, streams
from .fields import listed_options

if TYPE_CHECKING:
    from ..lm.plan.results import Sweep

EXAMPLES = """\b
examples:
  bytemill sweep tokens/ -o sweep/ --lr 1e-3,3e-3,1e-2 --batch-size 16,32 --steps 200
  bytemill sweep tokens/ -o sweep/ --random 20 --lr 1e-4..1e-1 --optimizer adamw,muon
  bytemill sweep tokens/ -o sweep/ --lr 1e-3,3e-3 --engine ray --threads 2
  bytemill sweep tokens/ -o rates/ --find-lr --lr 1e-6..1
  bytemill train tokens/ -o run/ --config sweep/best.toml --steps 5000

A LIST is one value for all runs, or several, such as 1e-4,3e-4; with --random also a range, such as
1e-4..1e-2, from which values are drawn uniformly on a logarithmic scale.
"""


@click.command(epilog=EXAMPLES)
@click.argument("tokens", metavar="TOKENS")
@options.output_option("Directory for the runs, tables and pictures.")
@click.option("--random", type=click.IntRange(min=1), metavar="N",
              help="Draw N random settings, by --seed, instead of every combination.")  # fmt: skip
@click.option("--find-lr", is_flag=True,
              help="Run a learning-rate range test instead: --lr A..B [default: 1e-6..1], "
              "--steps N [default: 100].")  # fmt: skip
@options.training_options
@options.resume_option
@options.engine_options
@options.overwrite_option
@options.force_option
@options.report_options
@listed_options
@click.pass_context
def sweep(
    ctx: click.Context,
    /,
    tokens: str,
    output: Path,
    random: int | None,
    find_lr: bool,
    resume: bool,
    overwrite: bool,
    **given: Any,
) -> None:
    """Train a model on TOKENS for each setting, and find the best.

    Every option of `bytemill train` may have several values. Runs that diverge stop early. The
    output holds the runs, a table (sweep.json), pictures, and the best config
    (best.toml) for `bytemill train --config`.
    """
    common = {name: given.pop(name)
              for name in ("tokenizer", "val", "token_dtype", "preset", "config",
                           "force")}  # fmt: skip
    common["model"] = common.pop("preset")
    common["progress"] = options.progress()
    engine = options.engine_of(given)
    values = {name: parse(name, text) for name, text in given.items() if text is not None}
    if find_lr:
        if resume or random is not None:
            raise click.UsageError("--find-lr is a single run: omit --random and --resume")
        _rates(ctx, tokens, output, values, overwrite, common)
        return
    fixed = {n: v[0] for n, v in values.items() if not isinstance(v, Range) and len(v) == 1}
    space = {n: v for n, v in values.items() if n not in fixed}
    try:
        found = lm.sweep(
            tokens,
            output,
            space,
            random=random,
            engine=engine,
            resume=resume,
            overwrite=overwrite,
            **common,
            **fixed,
        )
    except KeyboardInterrupt:
        streams.note(ctx, f"finished runs are kept in {output}; --resume continues the sweep")
        raise
    for note in found.notes:
        streams.note(ctx, note)
    best = output / "best.toml"
    streams.emit(
        json.loads((output / "sweep.json").read_text()),
        text=[_table(found)],
        summary="" if found.best is None else f"best    {output / found.best.run.name}",
        next=() if found.best is None else ["train", tokens, "-o", "run/", "--config", best],
    )


def _table(found: Sweep) -> str:
    head = [*found.fields, "loss", "held out", "bits per byte", "steps", "time", ""]
    rows = [
        [
            *(str(trial.settings[field]) for field in found.fields),
            *(
                # Of a run that diverged, these numbers mean nothing.
                _number(value if trial.status == "done" else None)
                for value in (trial.loss, trial.val_loss, trial.val_bits_per_byte)
            ),
            f"{trial.step:,}",
            _numbers.duration(trial.seconds),
            trial.status if trial.message is None else f"{trial.status}: {trial.message}",
        ]
        for trial in found.trials
    ]
    return _tables.table("r" * (len(head) - 1) + "l", head, rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _rates(
    ctx: click.Context,
    tokens: str,
    output: Path,
    values: dict[str, list[Any] | Range],
    overwrite: bool,
    common: dict[str, Any],
) -> None:
    rates = values.pop("lr", Range(1e-6, 1.0))
    steps = values.pop("steps", [100])
    if not isinstance(rates, Range):
        raise click.UsageError("--find-lr needs a range of rates: --lr 1e-6..1")
    several = [n for n, v in [*values.items(), ("steps", steps)]
               if isinstance(v, Range) or len(v) > 1]  # fmt: skip
    if several:
        raise click.UsageError(f"--find-lr is a single run: give one value for --{several[0]}")
    assert not isinstance(steps, Range)
    fixed = {name: value[0] for name, value in values.items() if not isinstance(value, Range)}
    from ..lm.plan.plot import plot_rates
    from ..lm.run.output_directory import writing

    with writing(output):
        for name in ("lr.json", "lr.png"):
            outputs.check_file(output / name, overwrite)
        found = lm.find_lr(
            tokens, low=rates.low, high=rates.high, steps=steps[0], **common, **fixed
        )
        text = json.dumps(found.to_json(), indent=2) + "\n"
        write_atomically(output / "lr.json", text.encode())
        try:
            plot_rates(found, output / "lr.png")
        except MissingPackageError as error:
            streams.note(ctx, f"no plot: {error.hint}")
    rows = [
        ["suggestion", f"{found.suggestion:g}"],
        ["steepest", f"{found.steepest:.2g}"],
        ["lowest loss", f"{min(found.smoothed):.3f} at {found.lowest:.2g}"],
        ["last", f"{found.smoothed[-1]:.3f} at {found.rates[-1]:.2g}"],
    ]
    table = _tables.table("ll", rows[0], rows[1:])
    streams.emit(found.to_json(), text=[table], summary=f"saved   {output}")
