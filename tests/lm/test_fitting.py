"""Memory of a run: predicted before anything is allocated, compared with what is available."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm
from bytemill._system import resident_memory
from bytemill.lm import devices, presets, trainer
from bytemill.lm.plan import fitting
from command_line import ok, run, start

GB = 10**9


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ids") / "train.bin"
    small_lm.tokens(20000).tofile(path)
    return path


def plan(device: str = "cpu", **changes: Any) -> devices.ComputePlan:
    fields = {"dtype": torch.float32, "kernels": "fused", "compile": "off"} | changes
    return devices.ComputePlan(torch.device(device), **fields)


def resolved(preset: str, **changes: Any) -> tuple[lm.ModelConfig, lm.TrainConfig]:
    return presets.to_configs(presets.merged(preset, None, changes), 50257)


def test_gpt2_xl_with_a_batch_of_100000_is_refused_before_it_is_allocated(
    ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocated(*_: object, **__: object) -> None:
        raise AssertionError("the model was made")

    monkeypatch.setattr(fitting, "available_memory", lambda _: 23 * GB)
    monkeypatch.setattr(trainer.Setup, "trainer", allocated)
    before = resident_memory()
    options = ["train", ids, "-o", tmp_path / "run", "--vocab-size", 50257, "--threads", 1]
    failed = run(*options, "--preset", "gpt2-xl", "--batch-size", 100000)
    assert failed.code == 1
    assert "training on 8 sequences of 1,024 tokens at a time needs about " in failed.said
    assert "but 23.0 GB are available" in failed.said
    assert "weights 8.51 GB, gradients 8.51 GB, optimizer state 17.0 GB" in failed.said
    assert "hint: the model alone does not fit: use a smaller one" in failed.said
    assert "--force" in failed.said
    assert not (tmp_path / "run").exists()
    assert resident_memory() - before < 0.5 * GB
    failed = run(*options, "--preset", "gpt2-small", "--micro-batch-size", 100000, "--batch-size",
                 100000)  # fmt: skip
    assert "--micro-batch-size " in failed.said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("n_ranks", [1, 4])
@pytest.mark.parametrize("changes", [{}, {"micro_batch_size": 200}, {"optimizer": "muon"}])
def test_the_micro_batch_of_the_hint_is_the_largest_that_fits(
    changes: dict[str, Any], n_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, config = resolved("tinystories", batch_size=1024, **changes)
    available = 4 * GB
    monkeypatch.setattr(fitting, "available_memory", lambda _: available)
    with pytest.raises(bytemill.ConfigError) as caught:
        fitting.check_memory(model, config, plan(), base=GB // 2, n_ranks=n_ranks)
    most = int(str(caught.value.hint).partition("micro_batch_size=")[2].split()[0])
    assert 1 <= most < 256

    def peak(micro: int) -> int:
        return fitting.predict_memory(
            model, config, plan(), base=GB // 2, n_ranks=n_ranks, micro=micro
        ).peak

    assert peak(most) <= available < peak(most + 1)


def test_one_sequence_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, config = resolved("tiny", context_length=10**6, batch_size=1)
    monkeypatch.setattr(fitting, "available_memory", lambda _: GB)
    with pytest.raises(bytemill.ConfigError, match="training on 1 sequence of 1,000,000") as caught:
        fitting.check_memory(model, config, plan(), base=GB // 2)
    assert "not even one sequence at a time fits" in str(caught.value.hint)
    assert "context_length=" in str(caught.value.hint)
    assert fitting.check_memory(model, config, plan(), base=GB // 2, force=True).peak > GB


def test_a_run_that_does_not_fit_can_be_forced(
    ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "available_memory", lambda _: 0)
    options = ["train", ids, "-o", tmp_path / "run", "--preset", "tiny", "--vocab-size", 97,
               "--steps", 2, "--threads", 1, "--no-tensorboard"]  # fmt: skip
    assert "--force" in run(*options).said
    assert "expect  about " in ok(*options, "--force").said


def test_on_a_gpu_its_own_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, config = resolved("gpt2-small", micro_batch_size=512)
    gpu = plan("cuda:0", dtype=torch.bfloat16, kernels="torch")
    monkeypatch.setattr(fitting, "available_memory", lambda _: 0)
    monkeypatch.setattr(fitting, "free_memory", lambda _: 80 * GB)
    with pytest.raises(bytemill.ConfigError, match=r"80\.0 GB are available on cuda:0"):
        fitting.check_memory(model, config, gpu)
    _, smaller = resolved("gpt2-small", micro_batch_size=8)
    found = fitting.check_memory(model, smaller, gpu)
    assert (found.base, found.peak) == (0, found.training.peak)


def test_shards_share_weights_and_moments() -> None:
    model, config = resolved("gpt2-small", batch_size=8, parallel="fsdp")
    alone = fitting.predict_memory(model, config, plan(), base=0, micro=1)
    shared = fitting.predict_memory(model, config, plan(), base=0, n_ranks=8, micro=1)
    assert alone.peak - shared.peak > 3 * alone.training.weights


def test_a_large_batch_is_not_tried_before_the_first_step(
    ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    original = trainer.Windows.batch

    def counted(self: Any, step: int, batch_size: int, **options: Any) -> Any:
        sizes.append(len(options["rows"]))
        return original(self, step, batch_size, **options)

    monkeypatch.setattr(trainer.Windows, "batch", counted)
    lm.train(ids, tmp_path / "run", model="tiny", vocab_size=97, batch_size=64,
             micro_batch_size=4, steps=1, threads=1, progress=False, eval_every=0)  # fmt: skip
    # For the warm-up, for two trials, and for the step.
    assert sizes == [1, 4, 4, *[4] * 16]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "options",
    [["--preset", "tiny"], ["--preset", "laptop"], ["--preset", "laptop", "--kernels", "torch"]],
    ids=["tiny", "laptop", "laptop-torch"],
)
def test_the_prediction_is_near_the_peak_that_progress_shows(
    options: list[str], ids: Path, tmp_path: Path
) -> None:
    process = start("train", ids, "-o", tmp_path / "run", "--vocab-size", 2048, "--steps", 3,
                    "--json", *options)  # fmt: skip
    _, said = process.communicate()
    events = [json.loads(line) for line in said.decode().splitlines()]
    predicted = next(event for event in events if event["event"] == "predicted")
    measured = next(event["memory"] for event in events if event["event"] == "finished")
    assert predicted["memory"] == pytest.approx(measured, rel=0.15)
    assert 0 < predicted["base_memory"] < predicted["memory"]
