"""Sweeps: runs that differ in some settings, and the best of them.

    sweep/
      lr=0.001,batch_size=16/   a run, with outcome.json when it has ended
      sweep.json                the settings and results
      best.toml                 the best config, for `bytemill train --config`
      settings.png curves.png   final loss against each setting; all loss curves

Finished runs are kept, interrupted ones are resumed: all state is in their directories.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import encodings
from ..._files import remove_if_empty, write_atomically
from ..._json import read_object
from ...engines import Engine, EngineLike, Local, as_engine
from ...errors import (
    BytemillError,
    CheckpointError,
    ConfigError,
    MissingPackageError,
    TrainingError,
)
from ...progress import Progress, ProgressOption, StepReport
from .. import presets
from ..config import MAX_COUNT, ModelConfig, TrainConfig
from ..config_checks import check_seed
from ..keywords import ConfigOptions, PresetName, TokenDtype, with_fields
from ..run.config_file import CONFIG, read_config
from ..run.directory import OUTCOME, clear_run, foreign_in_run
from ..run.metrics import METRICS, read_metrics
from ..run.output_directory import contents, tidy, writing
from ..training import Divergence, train
from .plot import plot_curves, plot_settings
from .results import KIND, SUMMARY, Status, Sweep, Trial, is_run_name, is_trial
from .space import Range, name_of, trials_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["sweep"]

BEST = "best.toml"
PICTURES = ("settings.png", "curves.png")
# Settings that depend on the machine or the tokens, not on what is best.
NOT_IN_BEST = ("vocab_size", "device", "dtype", "kernels", "compile", "threads", "parallel",
               "tensorboard", "wandb")  # fmt: skip
# Share of the last steps whose mean loss counts if a run has no evaluation.
LAST_SHARE = 0.1


@with_fields(ConfigOptions)
def sweep(
    tokens: str | os.PathLike[str],
    out: str | os.PathLike[str],
    space: Mapping[str, Sequence[object] | Range],
    *,
    random: int | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    val: str | os.PathLike[str] | None = None,
    token_dtype: TokenDtype = "uint16",
    model: ModelConfig | PresetName | None = None,
    train: TrainConfig | None = None,
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    engine: EngineLike = "local",
    resume: bool = False,
    overwrite: bool = False,
    force: bool = False,
    progress: ProgressOption = None,
    **fixed: Unpack[ConfigOptions],
) -> Sweep:
    """Trains a model for each setting, and finds the best.

    Args:
        tokens: as for [`train`][bytemill.lm.train]; so are the arguments not listed here.
        out: directory for the runs and results.
        space: for each field of the configs that varies, its values, or a `Range` to draw from.
        random: number of random draws, which depend on `seed`; None for every combination.
        engine: `"local"` trains one run after another; `"ray"` trains on a cluster whose machines
            share the file system, with `threads` processors per run (default 1).
        resume: keep finished runs, and train the others.
        overwrite: replace the sweep in `out`.
        force: also train settings that are predicted not to fit into memory.
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
        fixed: fields of `ModelConfig` and `TrainConfig` that are the same for all runs.
    """
    if resume and overwrite:
        raise ConfigError("resume=True contradicts overwrite=True", "give one of them")
    place, preset = Path(out), model if isinstance(model, str) else None
    same = presets.given(model, train) | fixed
    found = trials_of(space, random, check_seed(same.get("seed", 0)))
    common: dict[str, Any] = {
        "tokens": os.path.abspath(tokens),
        "tokenizer": tokenizer_for_workers(tokenizer),
        "val": None if val is None else os.path.abspath(val),
        "token_dtype": token_dtype,
        "preset": preset,
        "config": presets.config_keys(config),
    }
    orders: list[dict[str, Any]] = []
    for each in found:
        keys = presets.merged(preset, common["config"], same | each)
        patience = _patience(_steps(keys))
        run = os.path.abspath(place / name_of(each))
        orders.append({**common, "run": run, "options": same | each, "settings": each,
                       "patience": patience, "force": force})  # fmt: skip
    if not Path(tokens).exists():
        raise FileNotFoundError(2, "No such file or directory", str(tokens))
    worker = as_engine(engine)
    tidy(place)
    names = _planned(place, resume, overwrite)
    with writing(place):
        if _planned(place, resume, overwrite) != names:
            raise CheckpointError(
                f"{place}: another process wrote to it after this one started", "start again"
            )
        for name in names:
            tidy(place / name)
        if overwrite and names:
            _clear(place, names)
            names = []
        # All runs that the sweep may write, so that it can be replaced at any time.
        names += [name for o in orders if (name := Path(o["run"]).name) not in names]
        facts = common | {"fixed": same, "random": random, "fields": list(space), "runs": names}
        return _sweep(place, orders, facts, list(space), worker, progress)


def tokenizer_for_workers(
    tokenizer: str | os.PathLike[str] | None,
) -> str | os.PathLike[str] | None:
    """The tokenizer for processes in other directories; the name of an encoding stays as it is."""
    if tokenizer is None or encodings.is_name(tokenizer):
        return tokenizer
    return os.path.abspath(tokenizer)


def _sweep(
    place: Path,
    orders: list[dict[str, Any]],
    facts: dict[str, Any],
    fields: list[str],
    worker: Engine,
    progress: ProgressOption,
) -> Sweep:
    """Trains all runs; the caller holds the lock of the directory."""
    trials: list[Trial] = []
    fixed = facts["fixed"]
    is_new = not (place / SUMMARY).exists()
    before = {"kind": KIND, "trials": []} if is_new else read_object(place / SUMMARY, ConfigError)
    _write_json(place / SUMMARY, before | {name: facts[name] for name in ("fields", "runs")})

    def over(trial: Trial) -> None:
        # After each run: a sweep that is killed leaves a table of its finished runs.
        trials.append(trial)
        _write_summary(place, facts, trials)

    with Progress(progress) as report:
        if isinstance(worker, Local):
            _one_after_another(orders, over, report)
        else:
            threads = fixed.get("threads")
            cpus = threads if type(threads) is int and threads > 0 else 1
            gpus = int(str(fixed.get("device", "")).startswith("cuda"))
            for order in orders:
                order["options"] = {"threads": cpus} | dict(order["options"])

            def done(trial: Trial) -> None:
                over(trial)
                report("sweep", len(trials), len(orders))

            worker.each(_trial, orders, done, cpus=cpus, gpus=gpus)
    if all(trial.status == "failed" for trial in trials):
        if is_new:
            _clear(place, facts["runs"])
        raise ConfigError(f"none of the runs could start: {trials[0].message}")
    return _finished(place, fields, trials, facts)


def _steps(keys: Mapping[str, Any]) -> int:
    """Updates of a run; 0 if its config is invalid."""
    steps = keys.get("steps", TrainConfig.steps)
    return steps if type(steps) is int and 0 < steps <= MAX_COUNT else 0


def _patience(steps: int) -> int:
    # Runs of a sweep are short; one that diverges should end soon.
    return min(50, max(5, steps // 20))


def _planned(place: Path, resume: bool, overwrite: bool) -> list[str]:
    """The names of the runs of an existing sweep; raises if it may not be written to."""
    # Empty directories may be left from runs whose lock could not be removed.
    if not any(not path.is_dir() or contents(path) for path in contents(place)):
        return []
    path = place / SUMMARY
    if not path.exists():
        raise ConfigError(
            f"{place}: the directory is not empty and not a sweep",
            "choose a new or empty directory",
        )
    found = read_object(path, CheckpointError)
    names = found.get("runs")
    if found.get("kind") != KIND or not isinstance(names, list) or not all(map(is_run_name, names)):
        raise CheckpointError(f"{path}: not the table of a bytemill sweep")
    if not (resume or overwrite):
        raise ConfigError(
            f"{place}: already contains a sweep",
            "resume=True resumes it, overwrite=True replaces it",
        )
    for name in names if overwrite else []:
        if not contents(place / name):
            continue
        foreign = foreign_in_run(place / name)
        if foreign is not None:
            raise ConfigError(
                f"{foreign}: not part of a run, but its directory would be replaced",
                "move it elsewhere, or choose another directory",
            )
    return names


def _clear(place: Path, names: list[str]) -> None:
    """Removes the files of a sweep and no others; the table that names its runs last."""
    for name in names:
        run = place / name
        if not run.is_dir():
            continue
        with writing(run):
            if contents(run):
                clear_run(run)
        remove_if_empty(run)
    for name in (BEST, *PICTURES, SUMMARY):
        (place / name).unlink(missing_ok=True)


def _one_after_another(
    orders: list[dict[str, Any]], over: Callable[[Trial], None], report: Callable[..., None]
) -> None:
    steps = [_steps(presets.merged(o["preset"], o["config"], o["options"])) for o in orders]
    total, done = sum(steps), 0
    for order, n_steps in zip(orders, steps):
        before = done
        over(_trial(order, lambda step, before=before: report("sweep", before + step, total)))  # type: ignore[misc]
        done += n_steps
        report("sweep", done, total)


# --- one run -------------------------------------------------------------------------------------


def _trial(order: dict[str, Any], on_step: Callable[[int], None] | None = None) -> Trial:
    """Trains or resumes a run and returns its outcome; a task on a cluster."""
    run = Path(order["run"])
    keys = {k: v for k, v in order.items() if k not in ("run", "settings", "patience", "force")}
    keys["options"] = {k: v for k, v in keys["options"].items() if k != "threads"}
    kept = _outcome(run, keys, order["settings"])
    if kept is not None:
        return kept
    divergence = Divergence(order["patience"])

    def watched(step: StepReport) -> None:
        problem = divergence(step.loss)
        if problem is not None:
            raise TrainingError(f"step {step.step}: {problem}")
        if on_step is not None:
            on_step(step.step)

    quiet = {"sample_every": 0, "tensorboard": False} | order["options"]
    status: Status = "done"
    message = None
    try:
        train(
            order["tokens"],
            run,
            tokenizer=order["tokenizer"],
            val=order["val"],
            token_dtype=order["token_dtype"],
            model=order["preset"],
            config=order["config"],
            resume=True,
            force=order["force"],
            progress=watched,
            **quiet,
        )
    except TrainingError as error:
        status, message = "diverged", error.message
    except MissingPackageError:
        raise
    except BytemillError as error:
        # An impossible combination, or one that does not fit, does not end the sweep.
        return Trial(order["settings"], run, "failed", message=error.message)
    except (MemoryError, RuntimeError) as error:
        # Nor does one that runs out of memory, for which torch raises several types.
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        return Trial(order["settings"], run, "failed", message="out of memory")
    trial = Trial(order["settings"], run, status, message=message, **_results(run))
    _write_json(run / OUTCOME, {"keys": keys, "trial": trial.to_json()})
    return trial


def _outcome(run: Path, keys: dict[str, Any], varied: dict[str, Any]) -> Trial | None:
    """The outcome of a run that has ended; None if it has not."""
    path = run / OUTCOME
    try:
        found = read_object(path, CheckpointError)
    except (FileNotFoundError, NotADirectoryError):
        return None
    before, trial = found.get("keys"), found.get("trial")
    if not (isinstance(before, dict) and isinstance(before.get("options"), dict)):
        raise CheckpointError(f"{path}: damaged: it has no keys", "delete it to resume the run")
    now = json.loads(json.dumps(keys))
    if before != now:
        old, new = before.pop("options") | before, now.pop("options") | now
        differ = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        raise ConfigError(
            f"{run}: was trained with a different {', '.join(differ)}",
            "start over with overwrite=True, or choose another directory",
        )
    if not isinstance(trial, dict) or not is_trial(trial):
        raise CheckpointError(f"{path}: damaged", "delete it to resume the run")
    return Trial(**trial | {"run": run, "settings": varied})


def _results(run: Path) -> dict[str, Any]:
    rows = list(read_metrics(run)) if (run / METRICS).exists() else []
    losses = [row["loss"] for row in rows if "loss" in row]
    held_out = [row for row in rows if "val_loss" in row]
    last = losses[-max(1, round(LAST_SHARE * len(losses))) :]
    return {
        "step": max((row["step"] for row in rows), default=0),
        "loss": sum(last) / len(last) if last else None,
        "val_loss": held_out[-1]["val_loss"] if held_out else None,
        "val_bits_per_byte": held_out[-1].get("val_bits_per_byte") if held_out else None,
        "seconds": sum(row.get("seconds", 0.0) for row in rows),
    }


# --- results -------------------------------------------------------------------------------------


def _finished(place: Path, fields: list[str], trials: list[Trial], facts: dict[str, Any]) -> Sweep:
    """Writes the results of all runs."""
    ordered = sorted(trials, key=lambda trial: trial.score)
    notes: list[str] = []
    try:
        plot_settings(ordered, fields, place / PICTURES[0])
        plot_curves(ordered, place / PICTURES[1])
    except MissingPackageError as error:
        notes.append(f"no plots: {error.hint}")
    result = Sweep(place, fields, ordered, notes)
    if result.best is not None:
        write_atomically(place / BEST, _toml(result.best).encode())
    else:
        notes.append("no run finished: try lower learning rates")
    _write_summary(place, facts, trials)
    return result


def _write_summary(place: Path, facts: dict[str, Any], trials: list[Trial]) -> None:
    """Writes the table of the runs that have ended, best first."""
    ordered = sorted(trials, key=lambda trial: trial.score)
    best = ordered[0].run.name if ordered and math.isfinite(ordered[0].score) else None
    summary = {"kind": KIND, "best": best} | facts
    summary["trials"] = [trial.to_json() for trial in ordered]
    _write_json(place / SUMMARY, summary)


def _write_json(path: Path, fields: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(fields, indent=2) + "\n").encode())


def _toml(best: Trial) -> str:
    """The config of a run as TOML, without fields that are None."""
    stored = read_config(best.run)
    text = f"# The best of a sweep ({best.run.name}): loss {best.score:.4f}, see {CONFIG} there.\n"
    for table in ("model", "train"):
        text += f"\n[{table}]\n"
        for key, value in stored[table].items():
            if value is not None and key not in NOT_IN_BEST:
                # Numbers, strings and booleans are the same in JSON and TOML.
                text += f"{key} = {json.dumps(value)}\n"
    return text
