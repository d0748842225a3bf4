"""Runs, sweeps, exports: one writer at a time, only our own files replaced, no lock after kills."""

from __future__ import annotations

import builtins
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import _files, lm
from bytemill.lm.run import checkpoint, output_directory
from bytemill.lm.run import directory as runs
from bytemill.lm.run.config_file import write_config

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals and locks of POSIX")
SMALL: dict[str, Any] = {
    "model": "tiny", "vocab_size": 97, "context_length": 16, "d_model": 32, "num_layers": 1,
    "batch_size": 8, "steps": 4, "eval_every": 2, "checkpoint_every": 2, "threads": 1,
    "progress": False, "tensorboard": False,
}  # fmt: skip
EXPORT = ("model.safetensors", "config.json", "generation_config.json")


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ids") / "train.bin"
    small_lm.tokens(9000).tofile(path)
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def in_child(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# --- one writer at a time -----------------------------------------------------------------------

TRAINS_FOR_EVER = """
    import json, sys
    from bytemill import lm

    options = json.loads(sys.argv[3]) | {"steps": 10**6, "checkpoint_every": 5, "eval_every": 0}
    lm.train(sys.argv[1], sys.argv[2], **json.loads(sys.argv[4]), **options)
"""


def wait(child: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(params=[{}, {"resume": True}, {"overwrite": True}], ids=["new", "resume", "over"])
def busy(request: pytest.FixtureRequest, ids: Path, tmp_path: Path) -> Iterator[Path]:
    """A run that another process is training."""
    run = tmp_path / "run"
    if request.param:
        lm.train(ids, run, **SMALL)
    child = in_child(TRAINS_FOR_EVER, ids, run, json.dumps(SMALL), json.dumps(request.param))
    try:
        wait(child, (run / ".lock").exists)
        yield run
        # The first writer was not disturbed: it still writes checkpoints.
        wait(child, lambda: any(int(p.name[5:]) >= 15 for p in checkpoint.step_directories(run)))
    finally:
        child.kill()
        child.communicate()


@pytest.mark.slow
@POSIX
def test_a_run_has_one_writer_at_a_time(busy: Path, ids: Path) -> None:
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(bytemill.CheckpointError, match=r"process \d+ is writing there"):
            lm.train(ids, busy, **SMALL, **options)


@POSIX
def test_import_does_not_replace_a_run_in_training(ids: Path, tmp_path: Path) -> None:
    small_lm.run(tmp_path / "source")
    lm.export_run(tmp_path / "source", tmp_path / "model")
    run = tmp_path / "run"
    lm.train(ids, run, **SMALL)
    before = names(run)
    with (
        output_directory.writing(run),
        pytest.raises(bytemill.CheckpointError, match=f"process {os.getpid()} is writing there"),
    ):
        lm.import_run(tmp_path / "model", run, tokenizer=False, overwrite=True)
    assert names(run) == before
    assert names(tmp_path) == ["model", "run", "source"]


@POSIX
@pytest.mark.parametrize("kind", ["export", "gguf", "import", "sweep"])
def test_one_writer_of_exports_imports_and_sweeps(
    kind: str, ids: Path, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    out = tmp_path / ("out.gguf" if kind == "gguf" else "out")
    small_lm.run(tmp_path / "run", tokenizer)
    lm.export_run(tmp_path / "run", tmp_path / "model")

    def write() -> None:
        if kind == "sweep":
            keys = {name: value for name, value in SMALL.items() if name != "progress"}
            lm.sweep(ids, out, {"lr": [1e-3, 1e-2]}, progress=False, **keys)
        elif kind == "import":
            lm.import_run(tmp_path / "model", out)
        else:
            lm.export_run(tmp_path / "run", out, to="gguf" if kind == "gguf" else "huggingface")

    lock = (
        _files.writer_lock(tmp_path / ".out.gguf.lock", out, bytemill.CheckpointError)
        if kind == "gguf"
        else output_directory.writing(out)
    )
    with lock, pytest.raises(bytemill.CheckpointError, match="is writing there"):
        write()
    # Afterwards the directory is removed, and nothing prevents a new writer.
    assert not out.exists()
    write()
    assert out.exists()
    assert not list(tmp_path.rglob(".*"))


@POSIX
def test_exchanging_a_directory_keeps_the_lock_of_a_new_writer(tmp_path: Path) -> None:
    target = tmp_path / "out"

    def none(_: Path) -> None:
        return None

    with output_directory.replacing_target(target, True, none, "a thing") as directory:
        (directory / "file").write_text("new")
        (directory / ".lock").write_text("1")  # as if another writer had started at once
    assert names(target) == [".lock", "file"]


@POSIX
@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_a_path_that_safetensors_cannot_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff")
    with (
        pytest.raises(bytemill.ConfigError, match="%FF: this path is not UTF-8"),
        output_directory.writing(path),
    ):
        pass
    assert not path.exists()


def test_a_foreign_lock_file_is_kept(ids: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").write_text("held by my editor\n")
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(bytemill.ConfigError, match=r"\.lock"):
            lm.train(ids, run, **SMALL, **options)
    assert (run / ".lock").read_text() == "held by my editor\n"


def test_a_change_between_reading_and_locking_is_detected(
    ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bytemill.lm.run import resuming

    run, real = tmp_path / "run", resuming.stored_config
    lm.train(ids, tmp_path / "other", **SMALL)

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(resuming, "stored_config", real)
        found = real(*arguments)
        shutil.copytree(tmp_path / "other", run)
        return found

    monkeypatch.setattr(resuming, "stored_config", late)
    with pytest.raises(bytemill.CheckpointError, match="another process wrote to it"):
        lm.train(ids, run, resume=True, **SMALL)
    assert names(run) == names(tmp_path / "other")


# --- foreign files ------------------------------------------------------------------------------


def foreign(run: Path) -> list[Path]:
    """Adds foreign files to a run and returns them."""
    last = checkpoint.step_directories(run)[-1]
    (run / "events").mkdir(exist_ok=True)
    (run / "wandb").mkdir()
    found = [
        run / "README.md", run / "step-1" / "model.bin", last / "notes.txt",
        run / "events" / "mine.txt", run / "wandb" / "offline-run-1", run / "config.json.bak",
        run / "step-00000077",
    ]  # fmt: skip
    for path in found:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    return found


def test_overwriting_a_run_keeps_foreign_files(ids: Path, tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    lm.train(ids, run, **SMALL | {"tensorboard": True, "keep": 5})
    # A checkpoint that was moved to another disk: the link is ours, its target is not.
    shutil.move(run / "step-00000002", elsewhere)
    (run / "step-00000002").symlink_to(elsewhere)
    kept = foreign(run)
    lm.train(ids, run, overwrite=True, **SMALL | {"steps": 3})
    assert all(path.read_text() == "mine" for path in kept)
    assert [p.name for p in checkpoint.step_directories(run)] == ["step-00000002", "step-00000003"]
    assert not (run / "step-00000002").is_symlink()
    assert names(elsewhere) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    assert names(run / "step-00000004") == ["notes.txt"]
    assert names(run / "events") == ["mine.txt"]
    assert lm.load(run, step="last")[0].config.d_model == 32


def test_overwriting_a_run_removes_all_of_ours(ids: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    lm.train(ids, run, **SMALL | {"tensorboard": True})
    assert "events" in names(run)
    with output_directory.writing(run):
        runs.clear_run(run)
    assert names(run) == []


def test_a_directory_with_a_foreign_config_is_refused(ids: Path, tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    for text in ('{"model_type": "llama"}', "not json", "[]"):
        (place / "config.json").write_text(text)
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(bytemill.CheckpointError, match=r"config\.json"):
                lm.train(ids, place, **SMALL, **options)
        assert names(place) == ["config.json"]
        assert (place / "config.json").read_text() == text


def test_pruning_keeps_foreign_files(tmp_path: Path) -> None:
    model = small_lm.model()
    for number in (1, 2, 3):
        checkpoint.write_step(tmp_path, number, checkpoint.weights_of(model), None, {})
        (tmp_path / f"step-0000000{number}" / "notes.txt").write_text("mine")
    checkpoint.prune_steps(tmp_path, 1)
    assert names(tmp_path / "step-00000001") == ["notes.txt"]
    assert names(tmp_path / "step-00000003") == ["model.safetensors", "notes.txt", "state.json"]
    with pytest.raises(bytemill.CheckpointError, match=r"notes\.txt"):
        checkpoint.write_step(tmp_path, 2, checkpoint.weights_of(model), None, {})
    assert names(tmp_path / "step-00000002") == ["notes.txt"]


def test_an_export_is_replaced_only_if_all_of_it_is_ours(tmp_path: Path) -> None:
    small_lm.run(tmp_path / "run")
    out = tmp_path / "out"
    lm.export_run(tmp_path / "run", out)
    (out / "README.md").write_text("mine")
    with pytest.raises(bytemill.ConfigError, match=r"README\.md: not part of an exported model"):
        lm.export_run(tmp_path / "run", out, overwrite=True)
    (out / "README.md").unlink()
    lm.export_run(tmp_path / "run", out, overwrite=True)
    # Models of other programs have files of the same names.
    from safetensors.torch import load_file, save_file

    save_file(load_file(out / "model.safetensors"), out / "model.safetensors")
    with pytest.raises(bytemill.ConfigError, match=r"model\.safetensors: not part of"):
        lm.export_run(tmp_path / "run", out, overwrite=True)
    (out / "model.safetensors").unlink()
    with pytest.raises(bytemill.ConfigError, match=r"config\.json: not part of"):
        lm.export_run(tmp_path / "run", out, overwrite=True)
    assert names(out) == ["config.json", "generation_config.json"]


def test_an_import_replaces_a_run_only_if_all_of_it_is_ours(ids: Path, tmp_path: Path) -> None:
    small_lm.run(tmp_path / "source")
    lm.export_run(tmp_path / "source", tmp_path / "model")
    run = tmp_path / "run"
    lm.train(ids, run, **SMALL)
    for path in foreign(run):
        with pytest.raises(bytemill.ConfigError, match="not part of a run"):
            lm.import_run(tmp_path / "model", run, tokenizer=False, overwrite=True)
        path.unlink()
    shutil.rmtree(run / "wandb")
    shutil.rmtree(run / "step-1")
    lm.import_run(tmp_path / "model", run, tokenizer=False, overwrite=True)
    assert names(run) == ["config.json", "step-00000000"]


@pytest.mark.slow
def test_overwriting_a_sweep_keeps_foreign_files(ids: Path, tmp_path: Path) -> None:
    place = tmp_path / "sweep"
    keys = {name: value for name, value in SMALL.items() if name != "steps"} | {"steps": 2}
    lm.sweep(ids, place, {"lr": [1e-3, 1e-2]}, **keys)
    (place / "notes.txt").write_text("mine")
    lm.train(ids, place / "best", **SMALL)  # a run of its own, not one of the sweep's
    note = place / "lr=0.01" / "notes.txt"
    note.write_text("mine")
    before = names(place)
    with pytest.raises(bytemill.ConfigError, match=r"notes\.txt: not part of a run"):
        lm.sweep(ids, place, {"lr": [1e-4]}, overwrite=True, **keys)
    assert names(place) == before
    note.unlink()
    lm.sweep(ids, place, {"lr": [1e-4, 1e-5]}, overwrite=True, **keys)
    assert {"best", "notes.txt", "lr=0.0001", "lr=1e-05"} <= set(names(place))
    assert not (place / "lr=0.01").exists()
    assert lm.load(place / "best")[0].config.d_model == 32
    (place / "sweep.json").write_text('{"mine": 1}')
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(bytemill.CheckpointError, match=r"sweep\.json"):
            lm.sweep(ids, place, {"lr": [1e-4]}, **options, **keys)


@pytest.mark.parametrize("runs", [["../other"], ["."], [""], ["a/b"], [3], "lr=0.01", None])
def test_a_table_of_a_sweep_names_runs_within_it(runs: Any, ids: Path, tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    lm.train(ids, tmp_path / "other", **SMALL)
    table = {"kind": "bytemill sweep", "trials": [], "runs": runs}
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(table))
    with pytest.raises(bytemill.CheckpointError, match=r"sweep\.json"):
        lm.sweep(ids, tmp_path / "sweep", {"lr": [1e-3]}, overwrite=True, **SMALL)
    lm.load(tmp_path / "other")


# --- kills --------------------------------------------------------------------------------------


def killed(place: Path, at: int, work: Callable[[], Any]) -> bool:
    """Runs `work` in a child that dies before its n-th change of `place`; False if it finished."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has threads, idle ones
        child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
        return status != 0
    calls = 0

    def count(path: Any) -> None:
        nonlocal calls
        if isinstance(path, (str, os.PathLike)) and str(path).startswith(str(place)):
            calls += 1
            if calls == at:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted(real: Any) -> Any:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if real is real_open:
                writes = bool(arguments[0] & (os.O_CREAT | os.O_RDWR | os.O_WRONLY))
            elif real is real_file:
                writes = bool(set(arguments[0] if arguments else "r") & set("wax+"))
            else:
                writes = True
            if writes:
                count(path)
            return real(path, *arguments, **options)

        return call

    real_open, real_file = os.open, open
    for name in ("rename", "replace", "unlink", "mkdir", "rmdir", "open"):
        setattr(os, name, counted(getattr(os, name)))
    builtins.open = io.open = counted(real_file)
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


@pytest.mark.slow
@POSIX
@pytest.mark.timeout(240)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_killed_at_its_start_does_not_block_the_next(
    overwrite: bool, ids: Path, tmp_path: Path
) -> None:
    run, old, left = tmp_path / "run", tmp_path / "old", tmp_path / "left"
    if overwrite:
        lm.train(ids, old, **SMALL | {"keep": 3})
    options = SMALL | {"steps": 1, "eval_every": 0, "checkpoint_every": 1}
    expected = tmp_path / "expected"
    lm.train(ids, expected, **options)
    at, states = 1, set()

    def restore(source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        if source.exists():
            shutil.copytree(source, target)

    restore(old, run)
    while killed(run, at, lambda: lm.train(ids, run, overwrite=overwrite, **options)):
        found = names(run) if run.exists() else []
        # Temporary files have random names.
        state = tuple(re.sub("[0-9a-f]{8}.bytemill", "", name) for name in found)
        for again in ("plain", "resume", "overwrite") if state not in states else ():
            restore(run, left)
            is_run = "config.json" in found or _files.COMMIT in found
            if again == "plain" and is_run:
                with pytest.raises(bytemill.ConfigError, match="already contains a run"):
                    lm.train(ids, left, **options)
                continue
            changes = options
            if again == "resume" and is_run:
                # Either the old run, or one that was just started.
                changes = {"progress": False, "tensorboard": False, "vocab_size": 97}
            lm.train(ids, left, **{} if again == "plain" else {again: True}, **changes)
            assert not list(left.glob(".*"))
            if not (overwrite and again == "resume"):
                assert names(left) == names(expected)
                name = "step-00000001/model.safetensors"
                assert (left / name).read_bytes() == (expected / name).read_bytes()
        states.add(state)
        at += 1
        restore(old, run)
    assert at > 15
    assert len(states) > 5


@pytest.mark.slow
@POSIX
@pytest.mark.parametrize("kind", ["export", "import"])
def test_a_killed_export_or_import_does_not_block_the_next(kind: str, tmp_path: Path) -> None:
    small_lm.run(tmp_path / "source")
    lm.export_run(tmp_path / "source", tmp_path / "model")
    top = tmp_path / "top"
    top.mkdir()

    def write(overwrite: bool = False) -> Any:
        if kind == "export":
            lm.export_run(tmp_path / "source", top / "out", overwrite=overwrite)
        else:
            lm.import_run(tmp_path / "model", top / "out", tokenizer=False, overwrite=overwrite)

    for overwrite in (False, True):
        at = 1
        while killed(top, at, lambda overwrite=overwrite: write(overwrite)):
            out = top / "out"
            assert not overwrite or (out / "config.json").exists()
            write(overwrite=out.exists() and (out / "config.json").exists())
            assert names(top) == ["out"]
            assert not list(out.rglob(".*"))
            if not overwrite:
                shutil.rmtree(out)
            at += 1
        assert at > 5


@POSIX
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_killed_sweep_does_not_block_the_next(
    ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("plot_settings", "plot_curves"):  # these take most of the time
        monkeypatch.setattr(f"bytemill.lm.plan.sweeping.{name}", lambda *_: None)
    place, old, left = tmp_path / "sweep", tmp_path / "old", tmp_path / "left"
    options = SMALL | {"steps": 1, "eval_every": 0, "checkpoint_every": 1}

    def sweep(out: Path, **flags: Any) -> list[str]:
        found = lm.sweep(ids, out, {"lr": [1e-3]}, **flags, **options)
        return [trial.status for trial in found.trials]

    sweep(old)
    expected = sorted(str(path.relative_to(old)) for path in old.rglob("*"))
    states = set()
    for overwrite in (False, True):
        at = 1
        while True:
            shutil.rmtree(place, ignore_errors=True)
            if overwrite:
                shutil.copytree(old, place)
            if not killed(place, at, lambda overwrite=overwrite: sweep(place, overwrite=overwrite)):
                break
            at += 1
            found = sorted(str(p.relative_to(place)) for p in place.rglob("*"))
            state = tuple(re.sub("[0-9a-f]{8}.bytemill", "", name) for name in found)
            if state in states:
                continue
            states.add(state)
            shutil.rmtree(left, ignore_errors=True)
            if place.exists():
                shutil.copytree(place, left)
            again = "resume" if len(states) % 2 else "overwrite"
            assert sweep(left, **{again: True}) == ["done"]
            assert sorted(str(path.relative_to(left)) for path in left.rglob("*")) == expected
    assert len(states) > 20


@pytest.mark.slow
@POSIX
def test_leftovers_of_a_killed_start_are_ignored(ids: Path, tmp_path: Path) -> None:
    for options in ({}, {"resume": True}, {"overwrite": True}):
        for left in ([], [".lock"], [".lock", ".config.json.0123abcd.bytemill"]):
            run = tmp_path / "run"
            shutil.rmtree(run, ignore_errors=True)
            run.mkdir()
            for name in left:
                (run / name).write_text("12345" if name == ".lock" else "{")
            lm.train(ids, run, **SMALL | {"steps": 1}, **options)
            assert not list(run.glob(".*"))
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    (sweep / ".lock").write_text("12345")
    lm.sweep(ids, sweep, {"lr": [1e-3, 1e-2]}, **SMALL | {"steps": 1})
    small_lm.run(tmp_path / "source")
    model = tmp_path / "model"
    model.mkdir()
    (model / ".lock").touch()
    (tmp_path / ".model.0123abcd.bytemill").mkdir()
    lm.export_run(tmp_path / "source", model)
    assert names(model) == sorted(EXPORT)
    assert names(tmp_path) == ["model", "run", "source", "sweep"]


def test_config_and_tokenizer_appear_together(
    tmp_path: Path, tokenizer: bytemill.Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    real = _files.write_atomically
    monkeypatch.setattr(_files, "write_atomically", full)
    with pytest.raises(OSError, match="No space"):
        write_config(tmp_path, {}, tokenizer)
    assert names(tmp_path) == []
    monkeypatch.setattr(_files, "write_atomically", real)
    write_config(tmp_path, {}, tokenizer)
    assert names(tmp_path) == ["config.json", "tokenizer.json"]
    assert bytemill.Tokenizer.load(tmp_path / "tokenizer.json") == tokenizer


def test_a_failure_before_the_first_write_leaves_no_directory(ids: Path, tmp_path: Path) -> None:
    with pytest.raises(bytemill.BytemillError):
        lm.train(ids, tmp_path / "a" / "run", **SMALL | {"batch_size": 10**10})
    assert not (tmp_path / "a").exists()
