"""/api for the page Runs, and the metrics of a run while it is trained."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
# Some runs are trained first.
pytestmark = pytest.mark.slow

import serving
import small_lm
from bytemill import CheckpointError, ConfigError, lm
from bytemill.lm.run.metrics import METRICS
from bytemill.serve import runs as runs_api
from command_line import start

TINY: dict[str, Any] = {
    "context_length": 16,
    "d_model": 16,
    "num_layers": 1,
    "num_heads": 2,
    "vocab_size": 97,
    "batch_size": 4,
    "tensorboard": False,
    "threads": 1,
    "progress": False,
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ids") / "tokens.npy"
    np.save(path, small_lm.tokens())
    return path


@pytest.fixture(scope="module")
def place(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, and a sweep of two."""
    place = tmp_path_factory.mktemp("place")
    lm.train(tokens, place / "a", steps=6, lr=1e-3, eval_every=3, checkpoint_every=3, **TINY)
    lm.train(tokens, place / "b", steps=4, lr=2e-3, **TINY)
    lm.sweep(tokens, place / "sweep", {"lr": [1e-3, 3e-3]}, steps=4, **TINY)
    return place


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[Any]:
    with serving.client(place) as client:
        yield client


def ids(client: Any) -> dict[str, str]:
    """The ids of runs by the last part of their names."""
    entries = client.get("/api/catalog").json()["runs"]
    return {entry["name"].rpartition("/")[2]: entry["id"] for entry in entries}


def test_the_catalog_has_runs_and_sweeps(client: Any, place: Path) -> None:
    found = client.get("/api/catalog").json()
    assert found["notes"] == []
    (sweep,) = found["sweeps"]
    assert sweep["n_trials"] == 2
    assert sweep["fields"] == ["lr"]
    entries = {entry["name"]: entry for entry in found["runs"]}
    assert list(entries) == [
        f"{place.name}/a", f"{place.name}/b",
        f"{place.name}/sweep/lr=0.001", f"{place.name}/sweep/lr=0.003",
    ]  # fmt: skip
    a = entries[f"{place.name}/a"]
    assert {name: a[name] for name in ("status", "step", "steps", "checkpoints", "sweep")} == {
        "status": "finished", "step": 6, "steps": 6, "checkpoints": [3, 6], "sweep": None
    }  # fmt: skip
    model, _ = lm.load(place / "a")
    assert a["n_parameters"] == model.n_parameters
    assert a["best"] in (3, 6)
    best = json.loads((place / "a" / "best.json").read_text())
    assert a["val_loss"] == best["loss"]
    assert entries[f"{place.name}/sweep/lr=0.003"]["sweep"] == sweep["id"]


def test_a_run(client: Any, place: Path) -> None:
    found = client.get(f"/api/runs/{ids(client)['a']}").json()
    assert found["config"] == json.loads((place / "a" / "config.json").read_text())
    assert found["tokens_per_step"] == 64
    assert found["samples"] == []
    serving.error_of(client.get("/api/runs/none"), 404)


def test_metrics_from_a_given_line(client: Any, place: Path) -> None:
    url = f"/api/runs/{ids(client)['a']}/metrics"
    truth = [json.loads(line) for line in (place / "a" / METRICS).read_text().splitlines()]
    found = client.get(url).json()
    assert found["rows"] == [{k: v for k, v in row.items() if v is not None} for row in truth]
    assert (found["after"], found["next"], found["total"]) == (0, len(truth), len(truth))
    assert found["status"] == "finished"
    later = client.get(url, params={"after": 5, "version": found["version"]}).json()
    assert (later["rows"], later["after"]) == (found["rows"][5:], 5)
    end = client.get(url, params={"after": found["next"]}).json()
    assert (end["rows"], end["next"]) == ([], found["next"])
    # More lines than the file has: the run must have been restarted.
    assert client.get(url, params={"after": 1000}).json()["after"] == 0
    for query in ("after=-1", "after=x", "after=1e9", "version=x", "after=" + "9" * 5000):
        serving.error_of(client.get(f"{url}?{query}"), 400)


def test_differences(client: Any) -> None:
    runs = ids(client)
    found = client.get("/api/differences", params={"runs": f"{runs['a']},{runs['b']}"}).json()
    fields = {field["name"]: field["values"] for field in found["fields"]}
    assert fields["train.lr"] == [1e-3, 2e-3]
    assert fields["train.steps"] == [6, 4]
    assert "model.d_model" not in fields
    assert "train.batch_size" not in fields
    assert client.get("/api/differences").json() == {"fields": []}
    assert client.get(f"/api/differences?runs={runs['a']}").json() == {"fields": []}
    serving.error_of(client.get("/api/differences?runs=none"), 404)
    serving.error_of(client.get("/api/differences?runs=" + ",".join(["x"] * 101)), 400)


def test_a_sweep(client: Any, place: Path) -> None:
    runs = ids(client)
    (entry,) = client.get("/api/catalog").json()["sweeps"]
    found = client.get(f"/api/sweeps/{entry['id']}").json()
    assert found["fields"] == ["lr"]
    trials = {trial["name"]: trial for trial in found["trials"]}
    assert set(trials) == {"lr=0.001", "lr=0.003"}
    for name, trial in trials.items():
        assert trial["run"] == runs[name]
        assert trial["status"] == "done"
        assert trial["step"] == 4
        assert trial["settings"] == {"lr": float(name[3:])}
    table = json.loads((place / "sweep" / "sweep.json").read_text())
    assert [t["val_loss"] for t in found["trials"]] == [t["val_loss"] for t in table["trials"]]
    serving.error_of(client.get("/api/sweeps/none"), 404)


def test_a_sweep_under_way(tmp_path: Path, place: Path) -> None:
    shutil.copytree(place / "sweep", tmp_path / "sweep")
    path = tmp_path / "sweep" / "sweep.json"
    table = json.loads(path.read_text())
    del table["trials"][1]
    (last,) = set(table["runs"]) - {table["trials"][0]["run"]}
    path.write_text(json.dumps(table))
    with serving.client(tmp_path) as client:
        (entry,) = client.get("/api/catalog").json()["sweeps"]
        assert entry["n_trials"] == 2
        trials = client.get(f"/api/sweeps/{entry['id']}").json()["trials"]
    assert trials[1]["name"] == last
    assert trials[1]["settings"] == {"lr": float(last[3:])}
    assert trials[1]["status"] == "finished"


def test_a_run_that_its_sweep_stopped_has_diverged(tmp_path: Path, place: Path) -> None:
    shutil.copytree(place / "sweep", tmp_path / "sweep")
    path = tmp_path / "sweep" / "sweep.json"
    table = json.loads(path.read_text())
    table["trials"][0]["status"] = "diverged"
    path.write_text(json.dumps(table))
    stopped = table["trials"][0]["run"]
    config = tmp_path / "sweep" / stopped / "config.json"
    facts = json.loads(config.read_text())
    facts["train"]["steps"] = 9
    config.write_text(json.dumps(facts))
    with serving.client(tmp_path) as client:
        entries = client.get("/api/catalog").json()["runs"]
    statuses = {entry["name"].rpartition("/")[2]: entry["status"] for entry in entries}
    (other,) = set(statuses) - {stopped}
    assert statuses == {stopped: "diverged", other: "finished"}


def test_read_sweep_refuses_damage(tmp_path: Path, place: Path) -> None:
    path = tmp_path / "sweep.json"
    table = json.loads((place / "sweep" / "sweep.json").read_text())
    trial = table["trials"][0]
    for change in (
        {"kind": "other"}, {"trials": 1}, {"trials": [1]}, {"trials": [trial | {"run": "../x"}]},
        {"trials": [trial | {"loss": "x"}]}, {"trials": [trial | {"settings": 1}]},
        {"fields": "lr"}, {"fields": [1]},
    ):  # fmt: skip
        path.write_text(json.dumps(table | change))
        with pytest.raises(CheckpointError):
            lm.read_sweep(tmp_path)
    # Of an earlier version.
    del table["fields"]
    path.write_text(json.dumps(table))
    assert lm.read_sweep(tmp_path).fields == ["lr"]


def test_samples_and_the_tokenizer_of_a_run(tmp_path: Path) -> None:
    tokenizer = serving.small_tokenizer()
    (tmp_path / "text.txt").write_text(serving.TEXT * 3)
    tokenizer.encode_files([tmp_path / "text.txt"], tmp_path / "tokens", progress=False)
    shape = {k: v for k, v in TINY.items() if k != "vocab_size"}
    lm.train(
        tmp_path / "tokens", tmp_path / "run", steps=4, sample_every=2, sample_tokens=4, **shape
    )
    small_lm.run(tmp_path / "imported", tokenizer)
    with serving.client(tmp_path) as client:
        catalog = client.get("/api/catalog").json()
        (shown,) = (entry for entry in catalog["tokenizers"] if entry["kind"] == "run")
        assert [entry["tokenizer"] for entry in catalog["runs"]] == [shown["id"]] * 2
        runs = ids(client)
        found = client.get(f"/api/runs/{runs['run']}").json()
        assert [sample["step"] for sample in found["samples"]] == [2, 4]
        assert all(isinstance(sample["text"], str) for sample in found["samples"])
        imported = client.get(f"/api/runs/{runs['imported']}").json()
        assert (imported["status"], imported["step"], imported["steps"]) == ("finished", 7, 7)
        assert imported["tokens_per_step"] == 0
        metrics = client.get(f"/api/runs/{runs['imported']}/metrics").json()
        assert (metrics["rows"], metrics["total"]) == ([], 0)
        assert client.get(f"/runs/{runs['imported']}/report").status_code == 200


def test_the_report_of_a_run(client: Any) -> None:
    response = client.get(f"/runs/{ids(client)['a']}/report")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    # A self-contained page without scripts.
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    assert response.headers["x-frame-options"] == "DENY"
    assert "<script" not in response.text
    assert response.text.startswith("<!DOCTYPE html>")
    serving.error_of(client.get("/runs/none/report"), 404)


def test_damaged_metrics(tmp_path: Path, place: Path) -> None:
    shutil.copytree(place / "b", tmp_path / "b")
    with open(tmp_path / "b" / METRICS, "a") as file:
        file.write("not json\n")
    with serving.client(tmp_path) as client:
        (id,) = ids(client).values()
        for path in (f"/api/runs/{id}", f"/api/runs/{id}/metrics"):
            assert "damaged" in serving.error_of(client.get(path), 400)
        assert client.get("/api/catalog").json()["runs"][0]["step"] == 4


def test_metrics_that_may_not_be_read(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(place / "b", tmp_path / "b")

    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(tmp_path / "b" / METRICS))

    with serving.client(tmp_path) as client:
        (id,) = ids(client).values()
        monkeypatch.setattr(lm.MetricsLog, "rows", refuse)
        message = serving.error_of(client.get(f"/api/runs/{id}/metrics"), 404)
    assert message == "metrics.jsonl: Permission denied"


# --- while a run is trained -----------------------------------------------------------------------


def test_live_metrics(tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving.scan_always(monkeypatch)
    run, steps = tmp_path / "run", 200
    flags = {k: v for k, v in TINY.items() if k not in ("tensorboard", "progress")}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    command = ["train", tokens, "-o", run, "--steps", steps, "--no-tensorboard", "-q", *options]
    rows: list[Any] = []
    statuses: list[str] = []
    query = {"after": 0}
    n_polls = 0
    with serving.client(tmp_path) as client, start(*command) as process:
        while statuses[-1:] != ["finished"] or len(rows) < query["total"]:
            time.sleep(0.05)
            assert process.poll() in (None, 0), process.stderr.read().decode()
            runs = ids(client)
            if not runs:
                continue
            found = client.get(f"/api/runs/{runs['run']}/metrics", params=query).json()
            assert found["after"] == len(rows)
            rows += found.pop("rows")
            status = found.pop("status")
            if query["after"] < found["next"]:
                n_polls += 1
            query = found | {"after": found["next"]}
            # Scans may see it before its first step and after its last.
            if status != "interrupted" and statuses[-1:] != [status]:
                statuses.append(status)
    assert statuses == ["training", "finished"]
    assert n_polls > 1
    assert [row["step"] for row in rows if "loss" in row] == [*range(1, steps + 1)]
    assert rows == [
        {k: v for k, v in json.loads(line).items() if v is not None}
        for line in (run / METRICS).read_text().splitlines()
    ]


def test_a_killed_run_is_interrupted(tmp_path: Path, place: Path) -> None:
    shutil.copytree(place / "a", tmp_path / "a")
    lines = (tmp_path / "a" / METRICS).read_text().splitlines(keepends=True)
    (tmp_path / "a" / METRICS).write_text("".join(lines[:4]) + '{"step": 5')
    shutil.rmtree(tmp_path / "a" / "step-00000006")
    (tmp_path / "a" / ".lock").write_text("12345")
    state = lm.run_state(tmp_path / "a")
    assert (state.status, state.step, state.checkpoints) == ("interrupted", 3, [3])


def test_run_state_while_a_process_writes(tmp_path: Path, place: Path) -> None:
    from bytemill.lm.run.output_directory import writing

    shutil.copytree(place / "a", tmp_path / "a")
    assert lm.run_state(tmp_path / "a").status == "finished"
    with writing(tmp_path / "a"):
        assert lm.run_state(tmp_path / "a").status == "training"
        # Reading the state does not disturb the writer.
        with pytest.raises(CheckpointError, match="is writing there"), writing(tmp_path / "a"):
            pass
    assert lm.run_state(tmp_path / "a").status == "finished"


def test_run_state_of_damaged_runs(tmp_path: Path, place: Path) -> None:
    shutil.copytree(place / "a", tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    fields = json.loads(path.read_text())
    for change in ({"train": {"steps": "x"}}, {"model": {}}, {"model": {"x": 1}}):
        path.write_text(json.dumps(fields | change))
        with pytest.raises((CheckpointError, ConfigError)):
            lm.run_state(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        lm.run_state(tmp_path / "none")


def test_a_log_that_is_replaced_and_cut(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    log = lm.MetricsLog(tmp_path)
    assert (log.rows(0, 10), len(log), log.version) == ([], 0, 0)
    path.write_text('{"step": 1}\n{"step": 2, "loss": null}\n{"step"')
    assert log.rows(0, 10) == [{"step": 1}, {"step": 2}]
    with open(path, "a") as file:
        file.write(": 3}\n")
    assert log.rows(2, 10) == [{"step": 3}]
    assert log.rows(0, 1) == [{"step": 1}]
    assert log.rows(-5, 2) == [{"step": 1}, {"step": 2}]
    assert (len(log), log.version) == (3, 0)
    # Resuming a run replaces the file; training from the start removes it first.
    (tmp_path / "new").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 4}\n')
    os.replace(tmp_path / "new", path)
    assert log.rows(3, 10) == [{"step": 4}]
    assert log.version == 1
    path.unlink()
    assert log.rows(0, 10) == []
    assert log.version == 2
    path.write_text("{}\n")
    with pytest.raises(CheckpointError, match="line 1: damaged: no step"):
        log.rows(0, 10)


def test_samples_of_a_restarted_run(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(place / "a", tmp_path / "a")
    path = tmp_path / "a" / METRICS

    def write(*samples: str) -> None:
        lines = [json.dumps({"step": i, "sample": text}) for i, text in enumerate(samples)]
        (tmp_path / "new").write_text("\n".join(lines) + "\n")
        os.replace(tmp_path / "new", path)

    monkeypatch.setattr(runs_api, "MAX_ROWS", 2)
    with serving.client(tmp_path) as client:
        url = f"/api/runs/{ids(client)['a']}"

        def samples() -> list[str]:
            return [sample["text"] for sample in client.get(url).json()["samples"]]

        for texts in (["a", "b", "c"], ["d"], ["e", "f", "g", "h", "\ud800"]):
            write(*texts)
            if texts[-1] != "\ud800":
                assert samples() == texts
                assert samples() == texts
                assert client.get(url + "/metrics").json()["rows"][0]["sample"] == texts[0]
            else:
                serving.error_of(client.get(url), 400)
