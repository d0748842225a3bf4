"""Damaged or hostile files of runs, sweeps and imported models: one error, little memory.

No model is created from a config that does not match its weights.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file

import bytemill
import small_lm
from bytemill import _json, lm
from bytemill.lm import model, presets
from bytemill.lm.plan import costs
from bytemill.lm.run import checkpoint, metrics, weights
from command_line import run as command

SMALL: dict[str, Any] = {
    "model": "tiny", "vocab_size": 97, "context_length": 16, "d_model": 32, "num_layers": 1,
    "batch_size": 8, "steps": 2, "eval_every": 1, "checkpoint_every": 2, "threads": 1,
    "progress": False, "tensorboard": False,
}  # fmt: skip
QUIET = {"progress": False, "tensorboard": False}
DEEP = "[" * 100_000
# Replacements for a field of any type.
VALUES = ["null", "true", "-1", "0", "1048576", "1e400", "-1e999", "1e308", "NaN", "Infinity",
          '"1"', '""', "[]", "{}", "[1]", "9" * 60, "9" * 5000, "1.5", '"\\ud800"',
          "[" * 500 + "]" * 500, DEEP]  # fmt: skip


@pytest.fixture(autouse=True)
def small_models_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if a model is created that is larger than any of these files."""
    real = model.TransformerLM.__init__

    def checked(self: Any, config: lm.ModelConfig, *arguments: Any, **options: Any) -> None:
        assert costs.n_parameters(config) < 10**6
        assert config.context_length * config.d_head <= 2**25
        real(self, config, *arguments, **options)

    monkeypatch.setattr(model.TransformerLM, "__init__", checked)


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ids") / "train.bin"
    small_lm.tokens(9000).tofile(path)
    return path


@pytest.fixture(scope="module")
def trained(ids: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    lm.train(ids, run, **SMALL)
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def put(path: Path, keys: list[str], text: str) -> None:
    """Replaces a value by JSON text."""
    fields = json.loads(path.read_text())
    inner = fields
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = "@@"
    path.write_text(json.dumps(fields).replace('"@@"', text))


def refused(work: Callable[[], Any]) -> bool:
    """Whether it is refused; if so, it must be with a short CheckpointError."""
    message = ""
    try:
        work()
    except bytemill.CheckpointError as error:
        message = str(error)
    assert len(message) < 2000
    return message != ""


# --- JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "3", DEEP, '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e400}',
     '{"a": %s}' % ("9" * 5000), '{"a": "\\ud800"}', "\xff", '{"a": ' * 100_000],
)  # fmt: skip
def test_json_that_is_not_an_object_of_finite_numbers(text: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(bytemill.CheckpointError, match=r"file\.json: ") as caught:
        _json.read_object(path, bytemill.CheckpointError)
    assert len(str(caught.value)) < 500


def test_json_files_are_regular_and_small(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # takes no room on disk
    with pytest.raises(bytemill.CheckpointError, match="must be ≤ 16,777,216 bytes"):
        _json.read_object(path, bytemill.CheckpointError)
    with pytest.raises(bytemill.CheckpointError, match="not a regular file"):
        _json.read_object(tmp_path, bytemill.CheckpointError)
    if hasattr(os, "mkfifo"):
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(bytemill.CheckpointError, match="not a regular file"):
            _json.read_object(path, bytemill.CheckpointError)


# --- runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *presets.MODEL_KEYS,
        "iteration",
        "files",
        "model",
        "kind",
        "version",
        "optimizer",
        "val_loss",
    ],
)
def test_a_hostile_state(name: str, run: Path, ids: Path) -> None:
    path = run / "step-00000002" / "state.json"
    original = path.read_text()
    keys = ["model", name] if name in presets.MODEL_KEYS else [name]
    for text in VALUES:
        path.write_text(original)
        put(path, keys, text)
        for work in (
            lambda: lm.load_checkpoint(run / "step-00000002"),
            lambda: lm.load(run),
            lambda: lm.export_run(run, run / "out", overwrite=True),
        ):
            # The replacement may be valid: null for a default, for example.
            if not refused(work):
                fields = json.loads(path.read_text())["model"]
                assert lm.ModelConfig.from_json(fields).vocab_size == 97, (name, text)


@pytest.mark.parametrize("name", [*presets.MODEL_KEYS, *presets.TRAIN_KEYS, "tokens", "plan",
                                  "start_from", "model", "train", "kind"])  # fmt: skip
def test_a_hostile_config(name: str, run: Path, ids: Path) -> None:
    path = run / "config.json"
    original = path.read_text()
    table = "model" if name in presets.MODEL_KEYS else "train"
    keys = [table, name] if name in presets.MODEL_KEYS + presets.TRAIN_KEYS else [name]
    n_refused = 0
    for text in VALUES:
        path.write_text(original)
        put(path, keys, text)
        with pytest.MonkeyPatch.context() as patch:
            # The computation is not tested here.
            patch.setattr("bytemill.lm.training._Session.go", lambda *_, **__: None)
            patch.setattr("bytemill.lm.trainer._warm_up", lambda *_: None)
            patch.setattr("bytemill.lm.trainer.check_memory", lambda *_, **__: None)
            patch.setattr("bytemill.lm.training._Session.__init__", lambda *_: None)
            try:
                lm.train(ids, run, resume=True, **QUIET)
            except (bytemill.CheckpointError, bytemill.TokensError):
                n_refused += 1
    assert n_refused > 0


@pytest.mark.parametrize("name", ["step", "loss"])
def test_a_hostile_best(name: str, run: Path) -> None:
    path = run / "best.json"
    original = path.read_text()
    for text in VALUES:
        path.write_text(original)
        put(path, [name], text)
        refused(lambda: lm.load(run))
    for text in ("", "[]", "null", '{"step": "2", "loss": 1}', '{"step": 2}', '{"loss": 2}'):
        path.write_text(text)
        with pytest.raises(bytemill.CheckpointError, match=r"best\.json"):
            lm.load(run)


def test_hostile_metrics(run: Path, ids: Path, tmp_path: Path) -> None:
    path = run / "metrics.jsonl"
    original = path.read_text()
    for line in ("{", DEEP, "[]", "null", '{"loss": 3}', '{"step": "1"}', '{"step": 1e400}',
                 '{"step": 1, "loss": "low"}', '{"step": 1, "loss": [1]}', '{"step": true}',
                 '{"step": 1, "loss": NaN}', '{"step": -1}', "\0\0\0"):  # fmt: skip
        path.write_text(line + "\n" + original)
        with pytest.raises(bytemill.CheckpointError, match=r"metrics\.jsonl: line 1"):
            list(metrics.read_metrics(run))
        with pytest.raises(bytemill.CheckpointError, match=r"metrics\.jsonl: line 1"):
            lm.train(ids, run, resume=True, steps=3, **QUIET)
    # A kill leaves a truncated last line.
    path.write_text(original + '{"step": 3, "lo')
    lm.train(ids, run, resume=True, steps=3, **QUIET)
    assert [row["step"] for row in metrics.read_metrics(run) if "loss" in row] == [1, 2, 3]


def test_numbers_that_are_not_finite_are_null_in_metrics(tmp_path: Path) -> None:
    written = metrics.Metrics(tmp_path, 0)
    written.write(step=1, val_loss=800.0, val_perplexity=float("inf"), sample="\udcff")
    written.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["val_perplexity"] is None
    assert list(metrics.read_metrics(tmp_path)) == [{"step": 1, "val_loss": 800.0, "sample": "?"}]


def test_issue_13_5_a_state_of_another_step_is_refused(run: Path, ids: Path) -> None:
    (run / "step-00000002").rename(run / "step-00000050")
    (run / "best.json").unlink()
    for work in (
        lambda: lm.load(run),
        lambda: lm.load_checkpoint(run),
        lambda: lm.train(ids, run, resume=True, **QUIET),
    ):
        with pytest.raises(bytemill.CheckpointError, match="to step 2, but its directory is step-"):
            work()
    # A directory with another kind of name does not state its step.
    (run / "step-00000050").rename(run.parent / "kept")
    assert lm.load_checkpoint(run.parent / "kept").config.d_model == 32


def rewritten(run: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Changes the weights of the step of a run, with size and checksum to match."""
    place = run / "step-00000002"
    path = place / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    sums = {"bytes": path.stat().st_size, "crc32": zlib.crc32(path.read_bytes())}
    put(place / "state.json", ["files", "model.safetensors"], json.dumps(sums))
    return place


@pytest.mark.parametrize("kind", ["all NaN", "one NaN", "infinite", "int64", "int8", "bool"])
def test_issue_13_5_weights_must_be_finite_numbers(kind: str, run: Path, ids: Path) -> None:
    name = "blocks.0.attention.query.weight"

    def change(tensors: dict[str, Any]) -> None:
        if kind in ("int64", "int8", "bool"):
            tensors[name] = tensors[name].to(getattr(torch, kind))
        elif kind == "all NaN":
            tensors[name].fill_(float("nan"))
        else:
            tensors[name][3, 5] = float("nan") if kind == "one NaN" else float("-inf")

    place = rewritten(run, change)
    count = {"all NaN": "1,024 of 1,024", "one NaN": "1 of 1,024", "infinite": "1 of 1,024"}
    message = f"{count[kind]} values of {name}" if kind in count else f"{name} has type"
    filled = small_lm.model(vocab_size=97, context_length=16, d_model=32, num_layers=1, num_heads=4)
    before = [p.clone() for p in filled.parameters()]
    for work in (
        lambda: lm.load(run),
        lambda: lm.load_checkpoint(place),
        lambda: lm.load_checkpoint(place, filled),
        lambda: lm.train(ids, run, resume=True, steps=3, **QUIET),
        lambda: lm.train(ids, run.parent / "tuned", start_from=run, **QUIET),
        lambda: lm.export_run(run, run.parent / "out"),
    ):
        with pytest.raises(bytemill.CheckpointError, match=message):
            work()
    assert not (run.parent / "out").exists()
    # A model is loaded completely or not at all.
    assert all(torch.equal(p, q) for p, q in zip(before, filled.parameters(), strict=True))


def test_an_import_of_weights_that_are_not_finite_is_refused(tmp_path: Path) -> None:
    small_lm.run(tmp_path / "run")
    lm.export_run(tmp_path / "run", tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"][0, 0] = float("nan")
    save_file(tensors, path)
    with pytest.raises(bytemill.CheckpointError, match=r"1 of 4,656 values of lm_head\.weight"):
        lm.import_run(tmp_path / "model", tmp_path / "back", tokenizer=False)
    assert not (tmp_path / "back").exists()


def test_weights_of_any_float_are_loaded(run: Path) -> None:
    for kind in (torch.float64, torch.float16, torch.bfloat16):
        place = rewritten(
            run, lambda tensors, to=kind: tensors.update({k: t.to(to) for k, t in tensors.items()})
        )
        assert lm.load_checkpoint(place).head_weight.dtype == torch.float32


def test_optimizer_state_must_fit_its_parameters(run: Path, ids: Path) -> None:
    place = run / "step-00000002"
    path = place / "optimizer.safetensors"
    # Copies: some versions return views of the file, which is written again below.
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    name = next(key for key in tensors if key.startswith("exp_avg/"))
    for change, message in (
        (None, r"damaged: no exp_avg of "),
        (torch.full_like(tensors[name], float("nan")), "are NaN or infinite"),
        (torch.zeros(3), r"shape \(3,\), but"),
    ):
        save_file({k: t for k, t in (tensors | {name: change}).items() if t is not None}, path)
        sums = {"bytes": path.stat().st_size, "crc32": zlib.crc32(path.read_bytes())}
        put(place / "state.json", ["files", "optimizer.safetensors"], json.dumps(sums))
        with pytest.raises(bytemill.CheckpointError, match=message):
            lm.train(ids, run, resume=True, steps=3, **QUIET)


def test_a_config_and_a_state_that_disagree(run: Path, ids: Path) -> None:
    # None of these shows in the shapes of the weights.
    for name, value in (("rope_theta", "5e5"), ("num_heads", "2"), ("norm_eps", "1e-3")):
        for path in (run / "config.json", run / "step-00000002" / "state.json"):
            original = path.read_text()
            put(path, ["model", name], value)
            with pytest.raises(bytemill.CheckpointError, match=rf"disagree: {name}|num_kv_heads"):
                lm.load(run)
            with pytest.raises(bytemill.CheckpointError, match=rf"disagree: {name}|num_kv_heads"):
                lm.train(ids, run, resume=True, **QUIET)
            path.write_text(original)
    put(run / "config.json", ["train", "seed"], "7")
    with pytest.raises(bytemill.CheckpointError, match="disagree: seed is 7 and 0"):
        lm.train(ids, run, resume=True, **QUIET)


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "post"}, {"norm": "none"}, {"feed_forward": "silu"}, {"qk_norm": True},
     {"tie_embeddings": True}, {"num_kv_heads": 2}, {"positions": "none"}],
)  # fmt: skip
def test_the_weights_of_a_config_are_those_of_its_model(changes: dict[str, Any]) -> None:
    made = small_lm.model(**changes)
    expected = {name: tuple(t.shape) for name, t in checkpoint.weights_of(made).items()}
    assert dict(weights.weight_shapes(made.config)) == expected


# --- one file -----------------------------------------------------------------------------------


def test_a_hostile_checkpoint_file(tmp_path: Path) -> None:
    path = tmp_path / "c"
    made = small_lm.model()
    lm.save_checkpoint(made, None, 3, path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    facts = json.loads(header["__metadata__"]["bytemill"])

    def write(inner: str) -> None:
        header["__metadata__"]["bytemill"] = inner
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])

    for key in ("d_model", "num_layers", "vocab_size", "context_length"):
        write(json.dumps(facts | {"model": facts["model"] | {key: 2**24}}))
        with pytest.raises(bytemill.CheckpointError):
            lm.load_checkpoint(path)
    for inner in ("", "[]", DEEP, json.dumps(facts | {"model": []}),
                  json.dumps(facts | {"iteration": "3"}), json.dumps(facts | {"iteration": None}),
                  json.dumps(facts | {"optimizer": 3})):  # fmt: skip
        write(inner)
        with pytest.raises(bytemill.CheckpointError):
            lm.load_checkpoint(path, made)


# --- TOML and options -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*presets.MODEL_KEYS, *presets.TRAIN_KEYS, "preset"])
def test_hostile_toml(name: str, ids: Path, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for text in ("inf", "-inf", "nan", "1e400", "[]", "{}", "true", "-1", "9" * 60, "9" * 5000,
                 '"x"', "1979-05-27", "[1]", "[" * 100_000, "9223372036854775807"):  # fmt: skip
        path.write_text(f"{name} = {text}")
        found = command("train", ids, "-o", tmp_path / "run", "--config", path, "--steps", "0")
        assert found.code == 1, (text, found.said)
        assert "Traceback" not in found.said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 2**24 + 64, "num_heads": 1}, "d_model must be ≤ 16777216"),
        ({"num_layers": 10**6}, "num_layers must be ≤ 100000"),
        ({"vocab_size": 2**40}, "vocab_size must be ≤"),
        ({"d_model": 2**24, "num_heads": 2**10}, "≤ 1e+13 parameters"),
        ({"context_length": 2**24}, "context_length must be ≤"),
        ({"rope_theta": float("inf")}, "rope_theta must be a finite number"),
        ({"rope_theta": 10**400}, "rope_theta must be a finite number, got a number of"),
        ({"norm_eps": float("nan")}, "norm_eps must be a finite number"),
        ({"d_model": 10**400}, "d_model must be ≤ 16777216, got a number of"),
    ],
)
def test_sizes_beyond_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(bytemill.ConfigError) as caught:
        small_lm.config(**changes)
    assert message in str(caught.value)


# --- imported models ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model_type", "hidden_size", "num_attention_heads", "vocab_size",
    "max_position_embeddings", "num_hidden_layers", "intermediate_size", "num_key_value_heads",
    "head_dim", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "hidden_act",
    "tie_word_embeddings", "attention_bias", "layer_types", "partial_rotary_factor",
    "use_sliding_window", "quantization_config"])  # fmt: skip
def test_a_hostile_config_of_transformers(name: str, tmp_path: Path) -> None:
    small_lm.run(tmp_path / "run")
    lm.export_run(tmp_path / "run", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    original, out = path.read_text(), tmp_path / "back"
    for text in [*VALUES, '"false"', '{"rope_type": []}', '{"rope_theta": "x"}', "[[]]"]:
        path.write_text(original)
        put(path, [name], text)
        if not refused(lambda: lm.import_run(tmp_path / "model", out, tokenizer=False)):
            lm.load(out)
            shutil.rmtree(out)
        assert not out.exists()


# --- seeds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed",
    [-1, 2**64, 10**30, 10**5000, True, 1.5, "1"],
    ids=["below 0", "65 bits", "30 digits", "5000 digits", "true", "a half", "text"],
)
def test_issue_13_17_seeds_are_of_64_bits(seed: Any, ids: Path, tmp_path: Path) -> None:
    made = small_lm.model()
    for work in (
        lambda: lm.train(ids, tmp_path / "run", **SMALL, seed=seed),
        lambda: lm.sweep(ids, tmp_path / "run", {"lr": [1e-3, 1e-2]}, **SMALL, seed=seed),
        lambda: lm.find_lr(ids, seed=seed, **{k: v for k, v in SMALL.items() if k != "steps"}),
        lambda: made.generate([1, 2], max_tokens=3, seed=seed),
        lambda: lm.Sampling(seed=seed),
    ):
        with pytest.raises(bytemill.ConfigError, match=r"seed must be (from 0 to 2\*\*64|a whole)"):
            work()
    assert not (tmp_path / "run").exists()


def test_the_largest_seed(ids: Path, tmp_path: Path) -> None:
    largest = 2**64 - 1
    lm.train(ids, tmp_path / "run", **SMALL | {"steps": 1}, seed=largest)
    small_lm.model().generate([1, 2], max_tokens=3, seed=largest)
    found = command("train", ids, "-o", tmp_path / "x", "--seed", largest + 1)
    assert (found.code, "seed must be from 0 to 2**64 - 1" in found.said) == (1, True)
    assert command("generate", tmp_path / "run", "x", "--seed", largest + 1).code == 2
    found = command("sweep", ids, "-o", tmp_path / "x", "--lr", "1,2", "--seed", largest + 1)
    assert (found.code, "seed must be from 0 to 2**64 - 1" in found.said) == (1, True)
