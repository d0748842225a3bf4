"""A full disk while training: an OSError names the file, the old checkpoint is kept, no leftovers.

A limit on the size of files simulates the full disk, and a small file system where mounting is
allowed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
resource = pytest.importorskip("resource")

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm.run import checkpoint, metrics
from bytemill.lm.run.config_file import write_config
from command_line import run as command

SMALL: dict[str, Any] = {
    "model": "tiny", "vocab_size": 97, "context_length": 16, "d_model": 32, "num_layers": 1,
    "batch_size": 8, "steps": 2, "eval_every": 0, "checkpoint_every": 2, "threads": 1,
    "progress": False, "tensorboard": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ids") / "train.bin"
    small_lm.tokens(9000).tofile(path)
    return path


@contextlib.contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def leftovers(directory: Path) -> list[Path]:
    return list(directory.rglob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_issue_13_17_a_full_disk_while_checkpointing(name: str, ids: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    lm.train(ids, run, **SMALL)
    shutil.copytree(run, tmp_path / "undisturbed")
    # The optimizer's state is twice as large as the weights.
    limit = (run / "step-00000002" / name).stat().st_size - 100
    again = ["train", ids, "-o", run, "--resume", "--steps", 5, "--vocab-size", 97]
    with files_of_at_most(limit):
        with pytest.raises(OSError, match="File too large") as caught:
            lm.train(ids, run, resume=True, steps=5, progress=False, vocab_size=97)
        assert caught.value.errno == errno.EFBIG
        assert caught.value.filename == str(run / "step-00000004" / name)
        result = command(*again, "--quiet")
    assert result.code == 1
    assert f"error: {run / 'step-00000004' / name}: file too large" in result.said
    assert "Traceback" not in result.said
    assert not leftovers(run)
    assert [path.name for path in checkpoint.step_directories(run)] == ["step-00000002"]
    lm.load(run)
    # With free space again, the run continues as if nothing had happened.
    assert command(*again, "--quiet").code == 0
    again[3] = tmp_path / "undisturbed"
    assert command(*again, "--quiet").code == 0
    expected = (tmp_path / "undisturbed" / "step-00000005" / name).read_bytes()
    assert (run / "step-00000005" / name).read_bytes() == expected


def test_a_full_disk_when_a_run_starts(
    ids: Path, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    with files_of_at_most(200), pytest.raises(OSError, match="File too large") as caught:
        lm.train(ids, tmp_path / "run", **SMALL)
    assert caught.value.filename == str(tmp_path / "run" / "config.json")
    assert not (tmp_path / "run").exists()
    with files_of_at_most(20_000), pytest.raises(OSError, match="File too large") as caught:
        write_config(tmp_path, {}, tokenizer)
    assert caught.value.filename == str(tmp_path / "tokenizer.json")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_whole_lines_of_metrics(ids: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    lm.train(ids, run, **SMALL)
    path = run / "metrics.jsonl"
    with open(path, "a") as file:
        file.write(json.dumps({"step": 2, "sample": "x" * 500_000}) + "\n")
    before = path.read_bytes()
    with (
        files_of_at_most(len(before) + 100),
        pytest.raises(OSError, match="File too large") as caught,
    ):
        lm.train(ids, run, resume=True, steps=5, progress=False, vocab_size=97)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    lm.train(ids, run, resume=True, steps=5, progress=False, vocab_size=97)
    assert [row["step"] for row in metrics.read_metrics(run) if "loss" in row] == [1, 2, 3, 4, 5]


def write_events(written: metrics.Metrics, others: Path) -> None:
    for step in range(10_000):
        written.write(step=step, **dict.fromkeys("abcdefgh", 1.5))
        others.write_text("")  # only event files grow


def test_a_full_disk_for_event_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    written = metrics.Metrics(tmp_path, 0, tensorboard=True)
    with files_of_at_most(2000):
        with pytest.raises(OSError, match="File too large") as caught:
            write_events(written, tmp_path / "metrics.jsonl")
        assert caught.value.filename == str(tmp_path / "events")
        with pytest.raises(OSError, match="File too large") as caught:
            written.close()
        assert caught.value.filename == str(tmp_path / "events")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("to", ["huggingface", "gguf"])
def test_a_full_disk_while_exporting(
    to: Any, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    small_lm.run(tmp_path / "run", tokenizer)
    out = tmp_path / ("out.gguf" if to == "gguf" else "out")
    with files_of_at_most(60_000), pytest.raises(OSError, match="File too large") as caught:
        lm.export_run(tmp_path / "run", out, to=to)
    assert caught.value.filename == str(out if to == "gguf" else out / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    lm.export_run(tmp_path / "run", out, to=to)


# In a mount namespace of its own, which ends with the process.
REALLY_FULL = """
    import contextlib, json, subprocess, sys
    from pathlib import Path
    from bytemill import lm
    from bytemill.lm.run import checkpoint

    ids, disk, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    # Room for one checkpoint, not for two.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", disk], check=True)
    run = disk / "run"
    options |= {"steps": 50, "tensorboard": True}

    def fails(resume):
        try:
            lm.train(ids, run, resume=resume, **options)
        except OSError as error:
            assert error.strerror == "No space left on device", error
            return error.filename
        raise AssertionError("trained on a full disk")

    for resume in (False, True, True):
        assert fails(resume).startswith(str(run / "step-00000004"))
        assert [path.name for path in checkpoint.step_directories(run)] == ["step-00000002"]
        assert not list(run.glob(".*"))
    with open(disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(b"x" * 4096):
            pass
    # Not even a lock has room now.
    fails(True)
    lm.load(run)
    assert not list(run.glob(".*"))
    (disk / "filler").unlink()
    subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
    assert lm.train(ids, run, resume=True, **options | {"steps": 3}).step == 3
    print("as it should be")
"""


@pytest.mark.slow
def test_a_small_file_system_that_is_full(ids: Path, tmp_path: Path) -> None:
    apart = ["unshare", "--mount"]
    try:
        subprocess.run([*apart, "mount", "-t", "tmpfs", "none", tmp_path], check=True,
                       capture_output=True)  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system may be mounted here")
    command = [*apart, sys.executable, "-c", textwrap.dedent(REALLY_FULL), ids, tmp_path]
    done = subprocess.run([*command, json.dumps(SMALL)], capture_output=True, text=True)
    assert done.stdout == "as it should be\n", done.stderr
