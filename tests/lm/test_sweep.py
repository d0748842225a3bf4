"""Sweeps: which settings they try; they resume, stop diverging runs and find the best."""

from __future__ import annotations

import json
import math
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm
from bytemill._system import resident_memory
from bytemill.lm import presets
from bytemill.lm.plan import fitting, plot, space
from bytemill.lm.plan import sweeping as search
from bytemill.lm.run import metrics
from command_line import ok, run
from ray_cluster import ray_cluster

TOP = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "model": "tiny", "vocab_size": 97, "context_length": 16, "d_model": 32, "num_layers": 1,
    "batch_size": 8, "steps": 16, "eval_every": 8, "threads": 1, "progress": False,
}  # fmt: skip
FLAGS = ["--preset", "tiny", "--vocab-size", 97, "--context-length", 16, "--d-model", 32,
         "--num-layers", 1, "--steps", 12, "--threads", 1]  # fmt: skip


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ids") / "train.bin"
    small_lm.tokens(20000).tofile(path)
    return path


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips drawing, which takes longer than such small runs; only `swept` is drawn."""
    for name in ("plot_settings", "plot_curves"):
        monkeypatch.setattr(search, name, lambda *arguments: None)


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        ("lr", "1e-4,3e-4", [1e-4, 3e-4]),
        ("batch_size", "16", [16]),
        ("steps", "1e3", [1000]),
        ("norm", "pre,none", ["pre", "none"]),
        ("qk_norm", "yes,no", [True, False]),
        ("warmup", "none,5", [None, 5]),
        ("sample_prompt", "a, b..c", ["a, b..c"]),
        ("lr", "1e-4..1e-2", space.Range(1e-4, 1e-2)),
        ("num_layers", "2..8", space.Range(2, 8)),
    ],
)
def test_values_in_words(field: str, text: str, values: Any) -> None:
    assert space.parse(field, text) == values


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("lr", "fast", "must be a number"),
        ("batch_size", "1.5", "whole number"),
        ("norm", "before", "one of pre, post, none"),
        ("norm", "pre..none", "not a range of numbers"),
        ("lr", "1e-2..1e-4", "lower end first"),
        ("lr", "1e-2,0.01", "twice"),
        ("batchsize", "3", "did you mean batch_size"),
    ],
)
def test_words_that_mean_no_values(field: str, text: str, message: str) -> None:
    with pytest.raises(bytemill.ConfigError, match=message):
        space.parse(field, text)


def test_grids_and_draws() -> None:
    grid = space.trials_of({"lr": [1.0, 2.0], "norm": ["pre", "none"]}, None, 0)
    assert grid == [{"lr": a, "norm": b} for a in (1.0, 2.0) for b in ("pre", "none")]
    ranges: dict[str, Any] = {
        "lr": lm.Range(1e-4, 1e-1),
        "num_layers": lm.Range(1, 4),
        "weight_decay": lm.Range(0.0, 1.0),
        "norm": ["pre", "none"],
    }
    drawn = space.trials_of(ranges, 300, 7)
    assert drawn[:100] == space.trials_of(ranges, 100, 7)
    assert drawn != space.trials_of(ranges, 300, 8)
    assert {trial["num_layers"] for trial in drawn} == {1, 2, 3, 4}
    assert all(type(trial["num_layers"]) is int for trial in drawn)
    assert all(1e-4 <= trial["lr"] <= 1e-1 for trial in drawn)
    # Logarithms are uniform: a third in each of the three decades; half of the rest are below 0.5.
    for low in (1e-4, 1e-3, 1e-2):
        assert 70 < sum(low <= trial["lr"] < 10 * low for trial in drawn) < 130
    assert 120 < sum(trial["weight_decay"] < 0.5 for trial in drawn) < 180
    assert len(space.trials_of({"norm": ["pre", "post", "none"]}, 50, 0)) == 3
    for wrong, random, message in (
        ({"lr": lm.Range(1e-4, 1e-2)}, None, "random=20"),
        ({}, None, "nothing varies"),
        ({"lr": []}, None, "no values"),
        ({"learning_rate": [1]}, None, "unknown key"),
        ({"lr": [1.0]}, 0, "must be ≥ 1"),
    ):
        with pytest.raises(bytemill.ConfigError, match=message):
            space.trials_of(wrong, random, 0)


def test_names_are_those_of_files() -> None:
    odd = {"sample_prompt": "../../etc", "lr": 0.1}
    assert "/" not in space.name_of(odd)
    assert space.name_of(odd) != space.name_of(odd | {"sample_prompt": ".._.._etc"})
    assert len(space.name_of({"sample_prompt": "x" * 900})) < 200


# --- sweeps --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(ids: Path, tmp_path_factory: pytest.TempPathFactory) -> lm.Sweep:
    place = tmp_path_factory.mktemp("sweep") / "sweep"
    return lm.sweep(ids, place, {"lr": [1e-4, 1e-2, 1e4], "norm": ["pre", "none"]}, **SMALL)


@pytest.mark.slow
def test_the_best_is_found(swept: lm.Sweep, ids: Path, tmp_path: Path) -> None:
    assert len(swept.trials) == 6
    assert swept.best is not None
    assert swept.best.settings["lr"] == 1e-2
    done = [trial for trial in swept.trials if trial.status == "done"]
    assert [trial.score for trial in done] == sorted(trial.score for trial in done)
    assert all(trial.step == 16 and trial.val_loss == trial.score for trial in done)
    summary = json.loads((swept.out / "sweep.json").read_text())
    assert summary["best"] == swept.best.run.name
    assert len(summary["trials"]) == 6
    # The file makes the same run again.
    again = lm.train(ids, tmp_path / "run", config=swept.out / "best.toml", vocab_size=97,
                     threads=1, progress=False, tensorboard=False)  # fmt: skip
    assert again.evaluation is not None
    assert again.evaluation.loss == pytest.approx(swept.best.val_loss, rel=1e-6)


def test_what_diverges_is_stopped(swept: lm.Sweep) -> None:
    bad = [trial for trial in swept.trials if trial.settings["lr"] == 1e4]
    assert {trial.status for trial in bad} == {"diverged"}
    assert all(trial.step < 16 and trial.message for trial in bad)
    assert all(trial.score == math.inf for trial in bad)
    assert swept.trials[-2:] == bad or swept.trials[-2:] == bad[::-1]


def test_pictures(swept: lm.Sweep) -> None:
    pytest.importorskip("matplotlib")
    for name in ("settings.png", "curves.png"):
        assert (swept.out / name).read_bytes().startswith(b"\x89PNG")


def test_the_picture_of_runs_that_all_diverged(
    swept: lm.Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    monkeypatch.setattr(plot, "save", lambda figure, _: drawn.append(figure.axes[0]))
    bad = [trial for trial in swept.trials if trial.status == "diverged"]
    plot.plot_curves(bad, tmp_path / "a.png")
    plot.plot_curves(swept.trials, tmp_path / "b.png")
    assert [axes.get_yscale() for axes in drawn] == ["log", "linear"]
    # All of each curve is in the picture.
    highest = max(max(line.get_ydata()) for line in drawn[0].lines)
    assert highest <= drawn[0].get_ylim()[1]


class Enough(Exception):
    """Raised from a callback to end a sweep."""


@pytest.mark.slow
def test_resuming(ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, Any] = {"lr": [1e-3, 1e-2]}
    whole = lm.sweep(ids, tmp_path / "whole", values, **SMALL)

    def stop(event: bytemill.ProgressEvent) -> None:
        if event.done == 16 + 13:  # in the second run, after a checkpoint
            raise Enough

    with pytest.raises(Enough):
        lm.sweep(ids, tmp_path / "parts", values,
                 **SMALL | {"progress": stop, "checkpoint_every": 4})  # fmt: skip
    first, second = (tmp_path / "parts" / f"lr={lr}" for lr in (0.001, 0.01))
    # Finished runs are in the table already.
    table = json.loads((tmp_path / "parts" / "sweep.json").read_text())
    assert ([trial["run"] for trial in table["trials"]], table["best"]) == (
        [first.name],
        first.name,
    )
    assert (first / search.OUTCOME).exists()
    assert not (second / search.OUTCOME).exists()
    before = (first / "metrics.jsonl").stat().st_mtime_ns
    with pytest.raises(bytemill.ConfigError, match="already contains a sweep"):
        lm.sweep(ids, tmp_path / "parts", values, **SMALL)
    steps: list[int] = []
    original = search.train

    def counted(*arguments: Any, **options: Any) -> Any:
        call = options["progress"]
        options["progress"] = lambda report: (steps.append(report.step), call(report))
        return original(*arguments, **options)

    monkeypatch.setattr(search, "train", counted)
    parts = lm.sweep(ids, tmp_path / "parts", values, resume=True,
                     **SMALL | {"checkpoint_every": 4})  # fmt: skip
    assert steps == list(range(13, 17))
    assert (first / "metrics.jsonl").stat().st_mtime_ns == before
    assert [t.score for t in parts.trials] == [t.score for t in whole.trials]
    losses = [[row["loss"] for row in metrics.read_metrics(place / "lr=0.01") if "loss" in row]
              for place in (tmp_path / "whole", tmp_path / "parts")]  # fmt: skip
    assert losses[0] == losses[1]
    # More values are more runs; other settings for the same runs are refused.
    steps.clear()
    more = lm.sweep(ids, tmp_path / "parts", {"lr": [1e-3, 1e-2, 3e-3]}, resume=True,
                    **SMALL | {"checkpoint_every": 4})  # fmt: skip
    assert len(more.trials) == 3
    assert steps == list(range(1, 17))
    with pytest.raises(bytemill.ConfigError, match="a different beta2"):
        lm.sweep(ids, tmp_path / "parts", values, resume=True, beta2=0.9,
                 **SMALL | {"checkpoint_every": 4})  # fmt: skip


def test_impossible_settings(ids: Path, tmp_path: Path) -> None:
    # Five heads do not divide the width: that run fails, the other is done.
    found = lm.sweep(ids, tmp_path / "a", {"num_heads": [4, 5]}, **SMALL | {"steps": 2})
    assert [trial.status for trial in found.trials] == ["done", "failed"]
    assert "must be a multiple" in str(found.trials[1].message)
    with pytest.raises(bytemill.ConfigError, match="none of the runs could start"):
        lm.sweep(ids, tmp_path / "b", {"num_heads": [3, 5]}, **SMALL)
    assert not (tmp_path / "b").exists()
    with pytest.raises(FileNotFoundError):
        lm.sweep(tmp_path / "nothing", tmp_path / "b", {"lr": [1e-3, 1e-2]}, **SMALL)
    assert not (tmp_path / "b").exists()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").touch()
    for overwrite in (False, True):
        with pytest.raises(bytemill.ConfigError, match="not a sweep"):
            lm.sweep(ids, tmp_path / "c", {"lr": [1e-3]}, overwrite=overwrite, **SMALL)
    assert (tmp_path / "c" / "thesis.tex").exists()


def test_a_sweep_that_does_not_fit(
    ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = search.train

    def small_machine(*arguments: Any, **options: Any) -> Any:
        if options["batch_size"] > 8:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to …")
        return original(*arguments, **options)

    monkeypatch.setattr(search, "train", small_machine)
    keys = {name: value for name, value in SMALL.items() if name != "batch_size"} | {"steps": 2}
    found = lm.sweep(ids, tmp_path / "a", {"batch_size": [8, 16]}, **keys)
    assert [trial.status for trial in found.trials] == ["done", "failed"]
    assert found.trials[1].message == "out of memory"
    monkeypatch.setattr(search, "train", lambda *_, **__: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):
        lm.sweep(ids, tmp_path / "b", {"batch_size": [8, 16]}, **keys)


def test_settings_predicted_not_to_fit_are_skipped(
    ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {name: value for name, value in SMALL.items() if name != "batch_size"} | {"steps": 2}
    limit = resident_memory() + 2_000_000_000
    monkeypatch.setattr(fitting, "available_memory", lambda _: limit)
    space = {"batch_size": [4, 10_000_000]}
    found = lm.sweep(ids, tmp_path / "a", space, **keys)
    assert [trial.status for trial in found.trials] == ["done", "failed"]
    assert "training on 10,000,000 sequences" in str(found.trials[1].message)
    assert not found.trials[1].run.exists()
    with pytest.raises(bytemill.ConfigError, match="none of the runs could start: training on"):
        lm.sweep(ids, tmp_path / "b", {"batch_size": [10_000_000, 20_000_000]}, **keys)
    with pytest.raises(bytemill.ConfigError, match="training on 10,000,000 sequences"):
        lm.find_lr(ids, **keys | {"steps": 20, "batch_size": 10_000_000})
    monkeypatch.setattr(fitting, "available_memory", lambda _: 0)
    forced = lm.sweep(ids, tmp_path / "c", {"batch_size": [4, 8]}, force=True, **keys)
    assert [trial.status for trial in forced.trials] == ["done", "done"]
    # `force` is not part of a run's settings.
    again = lm.sweep(ids, tmp_path / "c", {"batch_size": [4, 8]}, resume=True, **keys)
    assert [trial.status for trial in again.trials] == ["done", "done"]


@pytest.mark.slow
def test_the_command(ids: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    found = ok("sweep", ids, "-o", out, *FLAGS, "--lr", "1e-3,1e-2", "--batch-size", "4,8")
    lines = found.text.splitlines()
    assert {"lr", "batch_size", "loss", "held", "out", "steps"} <= set(lines[0].split())
    assert len(lines) == 5
    assert "next    bytemill train" in found.said
    config = presets.read_toml(out / "best.toml")
    assert config["lr"] == 1e-2
    again = ok("sweep", ids, "-o", out, *FLAGS, "--lr", "1e-3,1e-2", "--batch-size", "4,8",
               "--resume", "--json")  # fmt: skip
    assert len(again.json["trials"]) == 4
    drawn = ok("sweep", ids, "-o", out, *FLAGS, "--lr", "1e-3..1e-1", "--random", 2, "--seed", 3,
               "--context", 8, "--overwrite", "--json")  # fmt: skip
    assert len(drawn.json["trials"]) == 2
    assert drawn.json["fixed"]["context_length"] == 8
    for arguments, message in (
        (["--lr", "1e-3..1e-1"], "--random 20"),
        (["--lr", "1e-3"], "nothing varies"),
        (["--lr", "fast"], "must be a number"),
        (["--lr", "1,2", "--resume", "--overwrite"], "contradicts"),
        (["--find-lr", "--lr", "1e-3"], "needs a range"),
        (["--find-lr", "--d-model", "32,64"], "one value for --d_model"),
        (["--find-lr", "--random", "3"], "a single run"),
    ):
        failed = run("sweep", ids, "-o", tmp_path / "other", *arguments)
        assert failed.code in (1, 2)
        assert message in failed.said, failed.said
        assert not (tmp_path / "other").exists()


# --- learning rates ------------------------------------------------------------------------------


def test_a_range_test(ids: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "rates"
    options = ["--preset", "tiny", "--vocab-size", 97, "--context-length", 16, "--d-model", 32,
               "--num-layers", 1, "--threads", 1, "--steps", 60, "--find-lr"]  # fmt: skip
    found = ok("sweep", ids, "-o", out, *options, "--lr", "1e-6..1e3", "--json").json
    # It ends when the loss has risen, well before the last rate.
    assert found["rates"][0] == 1e-6
    assert found["rates"][-1] < 1e3
    assert len(found["rates"]) == len(found["losses"]) == len(found["smoothed"])
    # Rates near this are best for such a model; the suggestion is good to a factor of ten.
    assert 1e-3 < found["suggestion"] < 2e-1
    assert (out / "lr.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "lr.json").read_text()) == found
    assert "--overwrite" in run("sweep", ids, "-o", out, *options).said
    # Reported before the first step.
    assert "not a directory" in run("sweep", ids, "-o", out / "lr.png", *options).said


def test_the_suggestion() -> None:
    # A loss that falls fastest at 1e-3, is lowest at 1e-1, and rises.
    rates = [10 ** (-6 + i / 10) for i in range(61)]
    smoothed = [7 - 2 / (1 + (1e-3 / rate) ** 2) + (rate / 0.5) ** 2 for rate in rates]
    found = lm.RateTest.of(rates, smoothed, smoothed)
    assert found.steepest == pytest.approx(1e-3, rel=0.3)
    assert found.suggestion == pytest.approx(1e-3, rel=0.3)


def test_the_exercise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "rates.png"
    monkeypatch.setattr(sys, "argv", ["learning_rates.py", str(picture)])
    names = runpy.run_path(str(TOP / "examples" / "learning_rates.py"), run_name="__main__")
    slow, fast, wild = (names["losses"](lr) for lr in (1e1, 1e2, 1e3))
    assert slow[0] == fast[0] == wild[0]
    assert all(later < earlier for earlier, later in zip(slow, slow[1:]))
    assert 0.1 * slow[0] < slow[-1] < slow[0]
    assert fast[-1] < 1e-6 * fast[0]
    assert wild[-1] > 1e12 * wild[0]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(capsys.readouterr().out.splitlines()) == 11


# --- on Ray --------------------------------------------------------------------------------------


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.filterwarnings("ignore")
def test_on_ray(ids: Path, swept: lm.Sweep, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    values: dict[str, Any] = {"lr": [1e-2, 1e4], "norm": ["pre"]}
    with ray_cluster(2):
        there = lm.sweep(ids, tmp_path / "there", values, engine="ray", **SMALL)
    here = [trial for trial in swept.trials if trial.settings in space.trials_of(values, None, 0)]
    assert [trial.settings for trial in there.trials] == [trial.settings for trial in here]
    assert [t.status for t in there.trials] == ["done", "diverged"]
    assert [t.score for t in there.trials] == pytest.approx([t.score for t in here])
    # Finished runs are not repeated.
    again = lm.sweep(ids, tmp_path / "there", values, resume=True, **SMALL)
    assert again.trials == there.trials
