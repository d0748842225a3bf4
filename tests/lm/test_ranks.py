"""Several processes as one run: the losses of one process, other numbers of ranks, dead ranks."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm import parallel, trainer
from bytemill.lm.run import metrics, output_directory

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(sys.platform == "win32", reason="gloo needs a network that CI lacks there"),
]

OPTIONS = [
    "--preset", "tiny", "--vocab-size", "97", "--context-length", "16", "--d-model", "32",
    "--num-heads", "4", "--batch-size", "8", "--steps", "8", "--eval-every", "4", "--threads", "1",
    "--checkpoint-every", "4", "--eval-windows", "13", "--no-tensorboard",
]  # fmt: skip


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ids") / "tokens.bin"
    small_lm.tokens(8000).tofile(path)
    return path


@pytest.fixture(scope="module")
def alone(ids: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    run = tmp_path_factory.mktemp("alone") / "run"
    command = [sys.executable, "-m", "bytemill", "train", ids, "-o", run, *OPTIONS, "--quiet"]
    subprocess.run(list(map(str, command)), check=True)
    return run


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    given = {name: str(value) for name, value in names.items()}
    return os.environ | given | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}


def torchrun(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
        "--master-port", free_port(), "-m", "bytemill", "train", *arguments,
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        list(map(str, command)), check=False, capture_output=True, encoding="utf-8", env=environment
    )


def column(run: Path, key: str) -> list[float]:
    return [row[key] for row in metrics.read_metrics(run) if key in row]


def same(a: Path, b: Path) -> None:
    for key in ("loss", "val_loss", "grad_norm"):
        assert column(a, key) == pytest.approx(column(b, key), rel=2e-4), key
    one, two = lm.load(a, step="last")[0], lm.load(b, step="last")[0]
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-2, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_do_what_one_does(parallel: str, ids: Path, alone: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = torchrun(ids, "-o", run, *OPTIONS, "--parallel", parallel, "--micro-batch-size", 2)
    assert done.returncode == 0, done.stderr
    assert f"2 ranks ({parallel})" in done.stderr
    assert done.stderr.count("saved   ") == 1
    same(run, alone)
    # The second half by two processes, after a first half by one or by two.
    half = tmp_path / "half"
    shutil.copytree(alone if parallel == "ddp" else run, half)
    shutil.rmtree(half / "step-00000008")
    (half / "best.json").unlink()
    done = torchrun(ids, "-o", half, "--resume", "--parallel", parallel)
    assert done.returncode == 0, done.stderr
    assert "resume  from step 4" in done.stderr
    same(half, alone)


@pytest.mark.slow
def test_muon_on_shards(ids: Path, tmp_path: Path) -> None:
    options = [*OPTIONS, "--optimizer", "muon", "--quiet"]
    one, two = tmp_path / "one", tmp_path / "two"
    command = [sys.executable, "-m", "bytemill", "train", ids, "-o", one, *options]
    subprocess.run(list(map(str, command)), check=True)
    done = torchrun(ids, "-o", two, *options, "--parallel", "fsdp")
    assert done.returncode == 0, done.stderr
    same(one, two)


SCRIPT = """
    import os, sys
    from bytemill import lm

    from bytemill import BytemillError
    from bytemill.lm.trainer import Trainer

    if sys.argv[3] == "dies":
        real = Trainer.update
        calls = 0
        def update(self, lr):
            global calls
            calls += 1
            if calls == 3:
                os._exit(7)
            return real(self, lr)
        Trainer.update = update
    try:
        lm.train(sys.argv[1], sys.argv[2], model="tiny", vocab_size=97, context_length=16,
                 d_model=32, batch_size=int(sys.argv[4]), steps=10**6, threads=1, progress=False,
                 tensorboard=False, eval_every=0)
    except BytemillError as error:
        sys.exit(f"{type(error).__name__}: {error}")
"""


def ranks(ids: Path, run: Path, roles: list[str], sizes: list[int]) -> list[Any]:
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), str(ids), str(run), role, str(size)],
            env=environment(rank, len(roles), port),
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for rank, (role, size) in enumerate(zip(roles, sizes))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dies", [0, 1])
def test_a_dead_rank_ends_the_others(dies: int, ids: Path, tmp_path: Path) -> None:
    roles = ["dies" if rank == dies else "lives" for rank in range(2)]
    processes = ranks(ids, tmp_path / "run", roles, [8, 8])
    assert processes[dies].wait(120) == 7
    began = time.monotonic()
    said = processes[1 - dies].communicate(timeout=60)[1]
    assert processes[1 - dies].returncode == 1, said
    assert time.monotonic() - began < 30
    assert "TrainingError: rank" in said
    assert "lost the connection to another rank" in said
    processes[dies].communicate()


@pytest.mark.slow
def test_all_ranks_fail_at_once_if_the_run_has_a_writer(ids: Path, tmp_path: Path) -> None:
    with output_directory.writing(tmp_path / "run"):
        processes = ranks(ids, tmp_path / "run", ["lives", "lives"], [8, 8])
        said = [processes[0].communicate(timeout=80)[1]]
        began = time.monotonic()
        said.append(processes[1].communicate(timeout=60)[1])
        assert time.monotonic() - began < 30
    assert [process.returncode for process in processes] == [1, 1]
    assert f"CheckpointError: {tmp_path / 'run'}: process {os.getpid()} is writing" in said[0]
    assert "lost the connection to another rank" in said[1]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ranks_that_differ(ids: Path, tmp_path: Path) -> None:
    processes = ranks(ids, tmp_path / "run", ["lives", "lives"], [8, 16])
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [1, 1]
    for text in said:
        assert "the ranks disagree on the config" in text


def test_a_batch_that_does_not_divide() -> None:
    config = lm.TrainConfig(batch_size=6)
    rows = [
        trainer.rows_of(config, parallel.World(rank, 3, torch.device("cpu"))) for rank in range(3)
    ]
    assert rows == [range(2), range(2, 4), range(4, 6)]
    with pytest.raises(
        bytemill.ConfigError, match="batch_size must be a multiple of the 4 ranks, got 6"
    ):
        trainer.rows_of(config, parallel.World(0, 4, torch.device("cpu")))


def test_inconsistent_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in parallel.NAMES:
        monkeypatch.delenv(name, raising=False)
    assert parallel.ranks_of_environment() == (0, 1)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(bytemill.ConfigError, match="WORLD_SIZE, LOCAL_RANK, MASTER_ADDR") as caught:
        parallel.ranks_of_environment()
    assert "torchrun" in str(caught.value.hint)
    for name, value in environment(1, 2, 1234).items():
        monkeypatch.setenv(name, value)
    assert parallel.ranks_of_environment() == (1, 2)
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(bytemill.ConfigError, match="RANK must be < WORLD_SIZE=2, got 2"):
        parallel.ranks_of_environment()
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(bytemill.ConfigError, match="is not a number"):
        parallel.ranks_of_environment()


@pytest.mark.slow
def test_ranks_that_never_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    import datetime

    monkeypatch.setattr(parallel, "CONNECT_TIMEOUT", datetime.timedelta(seconds=2))
    for name, value in environment(1, 2, free_port()).items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(bytemill.TrainingError, match="rank 1 of 2 cannot reach the others"),
        parallel.joined(torch.device("cpu")),
    ):
        pass
