"""Training: runs learn, survive kills, resume exactly, and refuse impossible settings."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm
from bytemill.errors import install_command
from bytemill.lm import devices, evaluation, fast, presets
from bytemill.lm.plan import costs
from bytemill.lm.run import checkpoint, metrics

SMALL: dict[str, Any] = {
    "model": "tiny", "vocab_size": 97, "context_length": 16, "d_model": 32, "num_layers": 1,
    "batch_size": 8, "steps": 20, "eval_every": 10, "checkpoint_every": 10, "threads": 1,
    "progress": False, "tensorboard": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw ids, as nanoGPT has them."""
    path = tmp_path_factory.mktemp("ids") / "train.bin"
    small_lm.tokens(20000).tofile(path)
    return path


def weights(run: Path, step: int) -> bytes:
    place = run / f"step-{step:08}"
    return b"".join((place / f"{n}.safetensors").read_bytes() for n in ("model", "optimizer"))


def rows(run: Path, key: str) -> list[dict[str, Any]]:
    return [row for row in metrics.read_metrics(run) if key in row]


class Enough(Exception):
    """Raised from a callback to end a run."""


def until(step: int) -> Any:
    def report(now: lm.StepReport) -> None:
        if now.step == step:
            raise Enough

    return report


def test_a_run(ids: Path, tmp_path: Path) -> None:
    seen: list[lm.StepReport] = []
    run = tmp_path / "run"
    result = lm.train(ids, run, **SMALL | {"steps": 60, "progress": seen.append, "keep": 1})
    assert result.step == 60
    assert result.tokens == 60 * 8 * 16
    assert result.evaluation is not None
    # Nine in ten ids follow from the one before, the others are random.
    assert result.evaluation.loss < 1.5 < 3.5 < seen[0].loss
    assert [report.step for report in seen] == list(range(1, 61))
    lines = rows(run, "loss")
    assert [line["step"] for line in lines] == list(range(1, 61))
    assert {"step", "loss", "lr", "tokens_per_s", "mfu", "grad_norm", "memory"} <= set(lines[0])
    assert [row["step"] for row in rows(run, "val_loss")] == list(range(10, 61, 10))
    best = min(rows(run, "val_loss"), key=lambda row: row["val_loss"])
    assert json.loads((run / "best.json").read_text())["step"] == best["step"]
    kept = {f"step-{n:08}" for n in {60, best["step"]}}
    assert {p.name for p in run.glob("step-*")} == kept
    config = json.loads((run / "config.json").read_text())
    assert config["model"]["d_model"] == 32
    assert config["train"]["batch_size"] == 8
    assert config["plan"]["device"] == "cpu"
    model, tokenizer = lm.load(run)
    assert tokenizer is None
    assert model.config.d_model == 32
    # The loaded model is the best one, whose loss was recorded.
    evaluator = evaluation.Evaluator(lm.open_tokens(ids)[19600:], 16, 128)
    world = lm_world()
    assert evaluator(model, world, devices.contextlib.nullcontext()).loss == pytest.approx(
        best["val_loss"], rel=1e-5
    )
    last, _ = lm.load(run / "step-00000060")
    assert torch.equal(lm.load_checkpoint(run / "step-00000060").head_weight, last.head_weight)


def lm_world() -> Any:
    from bytemill.lm.parallel import World

    return World(0, 1, torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"optimizer": "muon"}, {"schedule": "wsd", "qk_norm": True}, {"micro_batch_size": 3}],
)
def test_resuming_is_exact(changes: dict[str, Any], ids: Path, tmp_path: Path) -> None:
    options = SMALL | changes
    lm.train(ids, tmp_path / "whole", **options)
    with pytest.raises(Enough):
        lm.train(ids, tmp_path / "parts", **options | {"progress": until(15)})
    result = lm.train(ids, tmp_path / "parts", resume=True, progress=False, tensorboard=False)
    assert result.step == 20
    assert weights(tmp_path / "whole", 20) == weights(tmp_path / "parts", 20)
    losses = [[row["loss"] for row in rows(tmp_path / n, "loss")] for n in ("whole", "parts")]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 20


KILLED = """
    import os, signal, sys
    from bytemill import lm
    from bytemill import _files

    ids, run, steps, mode, at = sys.argv[1:]
    steps, at, calls = int(steps), int(at), 0

    def report(now):
        if mode == "step" and now.step == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def sync(path, real=_files.sync):
        global calls
        calls += 1
        if mode == "sync" and calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        real(path)

    _files.sync = sync
    lm.train(ids, run, model="tiny", vocab_size=97, context_length=16, d_model=32, num_layers=1,
             batch_size=8, steps=steps, eval_every=0, checkpoint_every=10, keep=1, threads=1,
             tensorboard=False, progress=report, resume=True)
"""


def killed(*arguments: object) -> int:
    script = textwrap.dedent(KILLED)
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], check=False)
    return done.returncode


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_30_steps_a_kill_and_30_more_are_60(ids: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert killed(ids, whole, 60, "step", 99) == 0
    assert killed(ids, parts, 60, "step", 33) == -signal.SIGKILL
    assert [p.name for p in checkpoint.step_directories(parts)] == ["step-00000030"]
    # And while the checkpoint of step 40 is being written: the one of step 30 survives that.
    for number in (2, 4):
        assert killed(ids, parts, 60, "sync", number) == -signal.SIGKILL
        assert [p.name for p in checkpoint.step_directories(parts)] == ["step-00000030"]
        lm.load_checkpoint(parts)
    assert killed(ids, parts, 60, "step", 99) == 0
    assert weights(whole, 60) == weights(parts, 60)
    assert [row["loss"] for row in rows(whole, "loss")] == [
        row["loss"] for row in rows(parts, "loss")
    ]
    assert not list(parts.glob(".step-*"))


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to oneself there")
def test_ctrl_c_ends_at_a_step_with_a_checkpoint(ids: Path, tmp_path: Path) -> None:
    def interrupt(now: lm.StepReport) -> None:
        if now.step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        lm.train(ids, tmp_path / "run", **SMALL | {"progress": interrupt})
    assert [p.name for p in checkpoint.step_directories(tmp_path / "run")] == ["step-00000007"]
    lm.train(ids, tmp_path / "run", resume=True, progress=False, tensorboard=False)
    lm.train(ids, tmp_path / "whole", **SMALL)
    assert weights(tmp_path / "whole", 20) == weights(tmp_path / "run", 20)


@pytest.mark.slow
def test_accumulated_gradients_are_those_of_the_whole(ids: Path, tmp_path: Path) -> None:
    losses = []
    for micro in (8, 4, 3, 1):
        run = tmp_path / str(micro)
        lm.train(ids, run, **SMALL | {"micro_batch_size": micro})
        losses.append([row["loss"] for row in rows(run, "loss")])
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("kernels", ["plain", "torch"])
def test_kernels_train_alike(kernels: str, ids: Path, tmp_path: Path) -> None:
    lm.train(ids, tmp_path / "fused", **SMALL | {"kernels": "fused"})
    lm.train(ids, tmp_path / "other", **SMALL | {"kernels": kernels})
    found = [[row["loss"] for row in rows(tmp_path / n, "loss")] for n in ("fused", "other")]
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_a_nan_loss_stops_the_run(ids: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(bytemill.TrainingError) as caught:
        lm.train(
            ids, run, **SMALL | {"lr": 1e30, "warmup": 12, "checkpoint_every": 2, "eval_every": 0,
                                 "schedule": "constant", "norm": "none", "weight_decay": 0.0}
        )  # fmt: skip
    assert "nan" in caught.value.message or "inf" in caught.value.message
    assert "an lr below 1e+30" in str(caught.value.hint)


def test_a_loss_that_diverges_stops_the_run(ids: Path, tmp_path: Path) -> None:
    changes = {"optimizer": "sgd", "lr": 60.0, "steps": 400, "warmup": 300, "eval_every": 0}
    with pytest.raises(bytemill.TrainingError, match="the loss diverged") as caught:
        lm.train(ids, tmp_path / "run", **SMALL | changes)
    assert "the last good checkpoint is" in caught.value.message


def test_bits_per_byte(tmp_path: Path, tokenizer: bytemill.Tokenizer) -> None:
    text = "the cat sat on the mat and the dog sat on the log\n" * 40
    (tmp_path / "text.txt").write_text(text)
    tokens = tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "tokens", append_eot=False)
    model = small_lm.model(vocab_size=len(tokenizer))
    lengths = evaluation.token_lengths(tokenizer, len(tokenizer))
    found = evaluation.Evaluator(tokens, 32, 1000, lengths, at_once=3)(
        model, lm_world(), devices.contextlib.nullcontext()
    )
    ids = torch.tensor(np.asarray(tokens[:]).astype(np.int64))
    n = (len(ids) - 1) // 32
    nats = sum(
        model.loss(ids[None, i : i + 32], ids[None, i + 1 : i + 33]).item() * 32
        for i in range(0, 32 * n, 32)
    )
    n_bytes = len(tokenizer.decode_bytes(ids[1 : 32 * n + 1].tolist()))
    assert found.n_tokens == 32 * n
    assert found.loss == pytest.approx(nats / (32 * n), rel=1e-5)
    assert found.perplexity == pytest.approx(np.exp(nats / (32 * n)), rel=1e-4)
    assert found.bits_per_byte == pytest.approx(nats / np.log(2) / n_bytes, rel=1e-5)
    assert lengths[tokenizer.special_tokens["<|endoftext|>"]] == 0


# --- config -------------------------------------------------------------------------------------


def test_the_file_overrides_the_preset_and_options_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text('preset = "tiny"\nlr = 0.5\n[model]\nd_model = 96\n[train]\nsteps = 7\n')
    keys = presets.merged(None, presets.read_toml(file), {"steps": 9})
    model, train = presets.to_configs(keys, 300)
    assert (model.d_model, model.num_layers, model.vocab_size) == (96, 2, 300)
    assert (train.lr, train.steps, train.batch_size) == (0.5, 9, 16)
    keys = presets.merged("laptop", presets.read_toml(file), {})
    assert presets.to_configs(keys, 300)[0].num_layers == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat = 1", "unknown key 'learning_rat'"),
        ("learning_rate = 1", "did you mean lr?"),
        ("[model]\nn_embd = 64", "did you mean d_model?"),
        ("n_layer = 2", "did you mean num_layers?"),
        ("block_size = 64", "did you mean context_length?"),
        ("max_steps = 64", "did you mean steps?"),
        ("dropout = 0.1", "no dropout"),
        ('device = "gpu"', "auto, cpu, cuda, cuda:N or mps, got 'gpu'"),
        ("[modle]\nd_model = 3", "did you mean model"),
        ("[model]\nsteps = 3", "unknown key 'steps'"),
        ("[train]\nstep = 3", "did you mean steps"),
        ("steps = ", "not TOML"),
        ('steps = "many"', "steps must be a whole number"),
        ("steps = 0", "steps must be ≥ 1, got 0"),
        ("steps = true", "steps must be a whole number, got true"),
        ("beta2 = 1.0", "beta2 must be ≥ 0 and < 1, got 1.0"),
        ("lr = 0", "lr must be > 0, got 0.0"),
        ("warmup = 5000", "warmup must be ≤ steps"),
        ('preset = "labtop"', "did you mean laptop"),
        ('optimizer = "adam"', "'adamw', 'muon', 'sgd'"),
        ("vocab_size = 100", "vocab_size must be ≥ 300"),
    ],
)
def test_configs_that_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text(text)
    with pytest.raises(bytemill.ConfigError) as caught:
        presets.to_configs(presets.merged(None, presets.read_toml(file), {}), 300)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_is_consistent(name: str) -> None:
    model, train = presets.to_configs(presets.merged(name, None, {}), 50257)
    assert train.warmup_steps < train.steps
    assert train.last_lr < train.lr
    with torch.device("meta"):
        assert lm.TransformerLM(model).n_parameters == costs.n_parameters(model)


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "post"}, {"norm": "none"}, {"feed_forward": "silu"}, {"qk_norm": True},
     {"tie_embeddings": True}, {"num_kv_heads": 2}],
)  # fmt: skip
def test_the_count_of_parameters_and_products(changes: dict[str, Any]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config = small_lm.config(**changes)
    with torch.device("meta"):
        model = small_lm.with_kernels(lm.TransformerLM(config), "plain")
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, 32, dtype=torch.long))
    assert model.n_parameters == costs.n_parameters(config)
    assert counter.get_total_flops() == costs.forward_flops(config, 32)


def test_runs_that_cannot_be_resumed_or_replaced(ids: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    lm.train(ids, run, **SMALL)
    quiet = {"progress": False, "tensorboard": False}
    with pytest.raises(bytemill.ConfigError, match="already contains a run"):
        lm.train(ids, run, **SMALL)
    with pytest.raises(bytemill.ConfigError, match="contradicts"):
        lm.train(ids, run, resume=True, overwrite=True)
    with pytest.raises(bytemill.ConfigError, match="started with d_model=32, not d_model=64"):
        lm.train(ids, run, resume=True, d_model=64, **quiet)
    with pytest.raises(bytemill.ConfigError, match="did you mean steps"):
        lm.train(ids, run, resume=True, stesp=64, **quiet)
    other = tmp_path / "other.bin"
    small_lm.tokens(9000).tofile(other)
    with pytest.raises(bytemill.TokensError, match="started with other tokens"):
        lm.train(other, run, resume=True, **quiet)
    # More steps are another schedule, but the same run.
    assert lm.train(ids, run, resume=True, steps=25, **quiet).step == 25
    lm.train(ids, run, overwrite=True, **SMALL | {"steps": 3})
    assert [p.name for p in checkpoint.step_directories(run)] == ["step-00000003"]
    something = tmp_path / "something"
    something.mkdir()
    (something / "else").write_text("")
    for options in ({}, {"overwrite": True}):
        with pytest.raises(bytemill.ConfigError, match="directory"):
            lm.train(ids, something, **SMALL, **options)
    assert (something / "else").exists()
    with pytest.raises(NotADirectoryError):
        lm.train(ids, ids, **SMALL)


def test_raw_ids_need_a_vocabulary(ids: Path, tmp_path: Path) -> None:
    with pytest.raises(bytemill.ConfigError, match="vocabulary size of raw ids is unknown"):
        lm.train(ids, tmp_path / "run", **SMALL | {"vocab_size": None})


@pytest.mark.parametrize(
    ("name", "data"),
    [("corpus.txt", b"a"), ("a.jsonl", b'{"text": "a"}'), ("a.txt.gz", b"\x1f\x8b"),
     ("corpus", "Straßen, 道路 and\troads\r\n".encode() * 300)],
)  # fmt: skip
def test_text_in_place_of_tokens_is_refused(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    for tokenizer in (None, "nothing.json"):
        with pytest.raises(bytemill.TokensError) as caught:
            lm.train(path, tmp_path / "run", tokenizer=tokenizer, **SMALL)
        assert f"bytemill encode {path} -t tokenizer.json -o tokens/" in str(caught.value)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("n_ids", [97, 256, 1000, 50257])
def test_raw_ids_are_not_mistaken_for_text(n_ids: int, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    np.random.default_rng(n_ids).integers(32, n_ids, 2000).astype(dtype).tofile(path)
    assert len(lm.open_tokens(path, dtype=dtype)) == 2000


def test_tokens_and_tokenizers_must_match(
    tmp_path: Path, tokenizer: bytemill.Tokenizer, corpus: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some text for a very short run\n" * 400)
    other = tokenizer.with_vocab_size(300)
    tokenizer.encode_files(text, tmp_path / "tokens")
    other.encode_files(text, tmp_path / "others")
    options = {key: value for key, value in SMALL.items() if key != "vocab_size"} | {"steps": 2}
    with pytest.raises(bytemill.TokensError, match="encoded with the tokenizer"):
        lm.train(tmp_path / "tokens", tmp_path / "run", tokenizer=other, **options)
    with pytest.raises(bytemill.TokensError, match="encoded with another tokenizer"):
        lm.train(tmp_path / "tokens", tmp_path / "run", val=tmp_path / "others", **options)
    # Without one in their directory, a tokenizer beside the tokens is used if it made them.
    (tmp_path / "tokens" / "tokenizer.json").unlink()
    other.save(tmp_path / "tokenizer.json")
    lm.train(tmp_path / "tokens", tmp_path / "a", **options)
    assert not (tmp_path / "a" / "tokenizer.json").exists()
    tokenizer.save(tmp_path / "tokenizer.json", overwrite=True)
    lm.train(tmp_path / "tokens", tmp_path / "b", **options)
    model, found = lm.load(tmp_path / "b")
    assert found == tokenizer
    assert model.config.vocab_size == len(tokenizer)
    assert "val_bits_per_byte" in rows(tmp_path / "b", "val_loss")[0]
    assert rows(tmp_path / "b", "sample")
    other.save(tmp_path / "b" / "tokenizer.json", overwrite=True)
    with pytest.raises(bytemill.CheckpointError, match="not the tokenizer"):
        lm.load(tmp_path / "b")


def test_splits_are_used(tmp_path: Path, tokenizer: bytemill.Tokenizer) -> None:
    from bytemill.lm.run.sources import open_sources

    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"text number {number} of many\n" * 20)
    made = tokenizer.encode_files(
        str(tmp_path / "*.txt"), tmp_path / "tokens", val_fraction=0.2, seed=1
    )
    found = open_sources(tmp_path / "tokens", tokenizer=tokenizer)
    assert len(found.train) == len(made)
    assert found.held_out is not None
    assert len(found.held_out) == len(bytemill.Tokens(tmp_path / "tokens", split="val"))
    small_lm.tokens(500).tofile(tmp_path / "train.bin")
    small_lm.tokens(100).tofile(tmp_path / "val.bin")
    found = open_sources(tmp_path / "train.bin", vocab_size=97)
    assert found.held_out is not None
    assert (len(found.train), len(found.held_out)) == (500, 100)
    found = open_sources(tmp_path / "val.bin", vocab_size=97, val_fraction=0.25)
    assert found.held_out is not None
    assert (len(found.train), len(found.held_out)) == (75, 25)
    assert np.array_equal(found.held_out[:5], small_lm.tokens(100)[75:80])


def test_the_tokenizer_in_the_tokens_is_the_runs(
    tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    """Issue 13, 2."""
    from bytemill.lm.run.sources import open_sources

    (tmp_path / "text.txt").write_text("some text, and some more of it\n" * 50)
    tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "tokens", format="bin")
    assert open_sources(tmp_path / "tokens").tokenizer == tokenizer
    # Also if a file in it is named.
    assert open_sources(tmp_path / "tokens" / "tokens.bin").tokenizer == tokenizer


# --- the machine --------------------------------------------------------------------------------


def test_the_plan_gives_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(devices._system, "cpu_flags", lambda: {"avx2"})
    model = small_lm.config()
    plan = devices.choose(model, lm.TrainConfig(steps=10))
    assert (plan.device.type, plan.dtype, plan.kernels, plan.compile) == (
        "cpu", torch.float32, "fused", "off",
    )  # fmt: skip
    assert "no bfloat16 instructions" in plan.reasons[1]
    monkeypatch.setattr(devices._system, "cpu_flags", lambda: {"amx_bf16"})
    wide = lm.ModelConfig(vocab_size=300, context_length=16, d_model=512, num_layers=1, num_heads=8)
    plan = devices.choose(wide, lm.TrainConfig())
    assert (plan.dtype, plan.kernels) == (torch.bfloat16, "torch")
    small = devices.choose(model, lm.TrainConfig())
    assert (small.dtype, small.kernels) == (torch.float32, "fused")
    assert "too small" in small.reasons[1]
    assert devices.choose(model, lm.TrainConfig(dtype="bfloat16")).dtype == torch.bfloat16
    assert devices.choose(small_lm.config(qk_norm=True), lm.TrainConfig()).kernels == "torch"
    with pytest.raises(bytemill.ConfigError, match="device 'cuda' is not available"):
        devices.choose(model, lm.TrainConfig(device="cuda"))
    asked = devices.choose(model, lm.TrainConfig(dtype="float32", kernels="plain", compile="body"))
    assert (asked.kernels, asked.compile) == ("plain", "body")
    monkeypatch.setattr(fast, "_try_out", lambda: "RuntimeError")
    assert devices.choose(model, lm.TrainConfig(dtype="float32")).kernels == "torch"


@pytest.mark.parametrize(
    ("name", "n_gpus", "found"),
    [
        ("cpu", 0, "cpu"), (None, 0, "cpu"), ("auto", 2, "cuda:0"), ("cuda", 2, "cuda:0"),
        ("cuda:1", 2, "cuda:1"), ("cuda", 0, "not available"), ("mps", 0, "not available"),
        ("cuda:7", 2, "available: cpu, cuda:0, cuda:1"), ("gpu", 2, "got 'gpu'"),
        ("cuda:", 2, "got 'cuda:'"), ("cuda:x", 2, "got 'cuda:x'"), ("cpu:3", 2, "got 'cpu:3'"),
    ],
)  # fmt: skip
def test_a_device_that_is_missing_or_unknown_is_an_error(
    name: str | None, n_gpus: int, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: n_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    if found in ("cpu", "cuda:0", "cuda:1"):
        assert str(devices.find_device(name)) == found
        return
    with pytest.raises(bytemill.ConfigError) as caught:
        devices.find_device(name)
    assert found in str(caught.value)


def test_every_rank_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert str(devices.find_device("cuda", local_rank=1)) == "cuda:1"
    with pytest.raises(bytemill.ConfigError, match="one GPU, but several ranks"):
        devices.choose(small_lm.config(), lm.TrainConfig(device="cuda:0"), local_rank=1)


def test_probing_draws_nothing() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert fast.why_not(small_lm.config(), torch.device("cpu"), torch.float32) is None
    assert torch.equal(torch.rand(3), expected)


def test_bfloat16_trains(ids: Path, tmp_path: Path) -> None:
    result = lm.train(ids, tmp_path / "run", **SMALL | {"dtype": "bfloat16", "steps": 40})
    assert result.loss < 3


def test_a_model_that_cannot_be_compiled_runs_uncompiled(
    ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    monkeypatch.setattr(torch.nn.Module, "compile", broken)
    lm.train(ids, tmp_path / "a", **SMALL | {"compile": "body", "progress": "plain"})
    assert "compiling failed (RuntimeError); training uncompiled" in capfd.readouterr().err
    lm.train(ids, tmp_path / "b", **SMALL)
    assert weights(tmp_path / "a", 20) == weights(tmp_path / "b", 20)


def test_event_files_and_their_absence(
    ids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    options = SMALL | {"tensorboard": True, "steps": 3, "progress": "plain"}
    real = metrics.importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name in ("torch.utils.tensorboard", "wandb"):
            raise ImportError(name)
        return real(name, package)

    with monkeypatch.context() as patch:
        patch.setattr(metrics.importlib, "import_module", missing)
        lm.train(ids, tmp_path / "without", **options | {"wandb": True})
    said = capfd.readouterr().err
    assert f"no event files: {install_command('tensorboard')}" in said
    assert "pip install wandb" in said
    pytest.importorskip("tensorboard")
    lm.train(ids, tmp_path / "with", **options)
    assert list((tmp_path / "with" / "events").glob("events.*"))
    assert not (tmp_path / "without" / "events").exists()


def test_pictures(ids: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lm.train(ids, tmp_path / "run", **SMALL)
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    for name, head in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        lm.plot_runs(
            [tmp_path / "run", tmp_path / "other"], tmp_path / name, x="seconds", title="t"
        )
        assert (tmp_path / name).read_bytes().startswith(head)
    with pytest.raises(bytemill.ConfigError, match="must end in"):
        lm.plot_runs([tmp_path / "run"], tmp_path / "a.txt")
    with pytest.raises(bytemill.CheckpointError, match=r"has no metrics.jsonl"):
        lm.plot_runs([tmp_path], tmp_path / "a.png")


def test_a_run_killed_before_it_recorded_its_best_finds_it_again(ids: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = SMALL | {"eval_every": 5}
    lm.train(ids, whole, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bytemill.lm.run.writer.write_best", lambda *_: None)
        lm.train(ids, killed, **options)
    assert not (killed / "best.json").exists()
    lm.train(ids, killed, resume=True, **options)
    assert json.loads((killed / "best.json").read_text())["step"] == 20
    assert (killed / "best.json").read_bytes() == (whole / "best.json").read_bytes()
