"""The report card of a run: its numbers, its page, its commands, and damaged runs. No torch."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
import pages
from bytemill import lm
from bytemill._files import writer_lock
from bytemill.cli.train import train as train_command
from bytemill.lm import ModelConfig, RunReport, TrainConfig, presets, report_run
from bytemill.lm.plan import costs
from bytemill.lm.report.commands import preset_and_options
from bytemill.lm.run.config_file import write_config
from bytemill.lm.run.metrics import Metrics

HOSTILE = "<script>alert('&')</script>"
MODEL = ModelConfig(vocab_size=300, context_length=16, d_model=32, num_layers=1, num_heads=2)
TRAIN = TrainConfig(steps=40, batch_size=4, sample_prompt="the ", warmup=2)
TOKENS = {
    "path": "/data/tokens",
    "val": None,
    "tokens": 10_000,
    "held_out": 200,
    "fingerprint": None,
    "tokenizer": None,
    "dtype": "uint16",
}
PLAN = {"device": "cpu", "dtype": "float32", "kernels": "fused", "compile": "off"}
RATE = 1e9


def make(
    place: Path,
    tokenizer: bytemill.Tokenizer | None = None,
    *,
    steps: int = 40,
    evaluated: bool = True,
    sample: str = "the cat",
    **config: Any,
) -> Path:
    """A run as training writes it, without its weights."""
    place.mkdir(parents=True, exist_ok=True)
    fields = {"bytemill": "0.1.0", "torch": "2.6", "model": MODEL.to_json()}
    fields |= {"train": TRAIN.to_json(), "tokens": TOKENS, "plan": PLAN, "ranks": 1}
    write_config(place, fields | {"start_from": None} | config, tokenizer)
    metrics = Metrics(place, 0)
    metrics.write(
        step=0, predicted_memory=600_000, predicted_base_memory=100, predicted_seconds=0.25
    )
    rate = TRAIN.batch_size * MODEL.context_length / 0.5
    used = costs.training_flops(MODEL, TRAIN.batch_size) / 0.5 / RATE
    for step in range(1, steps + 1):
        metrics.write(
            step=step, loss=5 - step / 20, lr=1e-3, grad_norm=1.0 + step % 3, tokens_per_s=rate,
            mfu=used, memory=500_000 + step, seconds=0.5,
        )  # fmt: skip
        if evaluated and step % 10 == 0:
            loss = 4.5 + abs(30 - step) / 10
            metrics.write(
                step=step, val_loss=loss, val_perplexity=math.exp(loss), val_bits_per_byte=loss / 2
            )
            metrics.write(step=step, sample=f"{sample} {step}")
    metrics.close()
    return place


@pytest.fixture
def small(tokenizer: bytemill.Tokenizer) -> bytemill.Tokenizer:
    return tokenizer.with_vocab_size(300)


def test_the_numbers_are_those_of_the_metrics(tmp_path: Path, small: bytemill.Tokenizer) -> None:
    found = report_run(make(tmp_path / "run", small))
    assert (found.status, found.steps, found.name) == ("finished", 40, "run")
    assert found.n_parameters == costs.n_parameters(MODEL)
    assert found.tokens_seen == 40 * 4 * 16
    assert found.epochs == 40 * 4 * 16 / 10_000
    assert found.final is not None
    assert found.best is not None
    assert (found.final.step, found.best.step) == (40, 30)
    assert (found.final.loss, found.best.loss, found.best.bits_per_byte) == (5.5, 4.5, 2.25)
    assert (found.final.seconds, found.seconds) == (20, 20)
    assert found.tokens_per_s == 4 * 16 / 0.5
    assert found.memory == 500_040
    assert found.loss == 3.0
    assert [one.text for one in found.history.samples] == [f"the cat {n}" for n in (10, 20, 30, 40)]
    assert found.tokenizer is not None
    assert found.tokenizer.vocab_size == 300


def test_costs_are_predicted_and_measured(tmp_path: Path) -> None:
    found = {cost.name: cost for cost in report_run(make(tmp_path / "run")).costs}
    flops = costs.training_flops(MODEL, 4)
    assert found["FLOPs of a step"].account == flops
    assert found["tokens"][2:] == (20 * costs.n_parameters(MODEL), None, 40 * 4 * 16)
    step, whole = found["time of a step"], found["time of 40 steps"]
    assert (step.expected, step.measured) == (0.25, 0.5)
    assert (whole.expected, whole.measured) == (10, 20)
    # At 40 % of the rate that the utilization is relative to.
    assert step.account == pytest.approx(flops / 0.4 / RATE, rel=1e-3)
    assert found["utilization"].account == 0.4
    assert found["utilization"].measured == pytest.approx(flops / 0.5 / RATE)
    memory = found["peak memory"]
    assert memory.account == costs.training_memory(MODEL, 4, kernels="fused", device="cpu").peak
    assert (memory.expected, memory.measured) == (600_000, 500_040)
    # Each rank has its share of the batch.
    two = {cost.name: cost for cost in report_run(make(tmp_path / "two", ranks=2)).costs}
    half = costs.training_memory(MODEL, 2, kernels="fused", device="cpu").peak
    assert two["peak memory"].account == half


def test_the_views_agree(tmp_path: Path, small: bytemill.Tokenizer) -> None:
    found = report_run(make(tmp_path / "run", small))
    text, page, data = found.to_text(), found.to_html(), json.loads(json.dumps(found.to_json()))
    assert text == str(found) + "\n"
    assert f"{tmp_path / 'run'}: finished, step 40 of 40\n" in text
    assert "held-out loss  5.5000 at step 40; best 4.5000 at step 30\n" in text
    assert "bits per byte  2.7500\n" in text
    assert data["final"]["loss"] == 5.5
    assert data["parameters"] == found.n_parameters
    assert [one["step"] for one in data["evaluations"]] == [10, 20, 30, 40]
    assert data["config"]["train"] == TRAIN.to_json()
    assert data["commands"][-1]["line"] == f"bytemill generate {tmp_path / 'run'} 'the '"
    for shown in ("5.5000", "4.5000", "2.7500", f"{found.n_parameters:,}", "the cat 40", "2,560"):
        assert shown in page, shown


def test_the_page_is_whole(tmp_path: Path, small: bytemill.Tokenizer) -> None:
    page = report_run(make(tmp_path / "run", small)).to_html()
    pages.check(page)
    assert not re.search(r"https?:|//\w", re.sub(r"</\w+>|<!doctype[^>]*>", "", page))
    for heading in ("Loss", "Learning rate", "Norm of the gradients", "Evaluation", "Samples",
                    "Costs", "Tokenizer", "Configuration", "Commands"):  # fmt: skip
        assert f"<h2>{heading}</h2>" in page
    loss, rate, norm, *_ = pages.drawings(page)
    assert loss.get("aria-label") == "loss by step"
    assert len(loss.findall("./g/path[@class='curve']")) == 2
    # Every evaluation is a dot, and the last step of training.
    assert len(loss.findall("./g/circle")) == 4 + 1
    assert rate.get("aria-label") == "learning rate by step"
    assert norm.get("aria-label") == "norm of the gradients by step"
    assert "Run run</h1>" in page
    assert "A title</h1>" in report_run(tmp_path / "run").to_html(title="A title")


def test_long_lists_are_short_at_first(tmp_path: Path) -> None:
    run = make(tmp_path / "run", steps=0)
    metrics = Metrics(run, 0)
    for step in range(1, 101):
        metrics.write(step=step, loss=3.0, val_loss=9.0 if step != 50 else 1.0)
        metrics.write(step=step, val_loss=9.0 if step != 50 else 1.0)
        metrics.write(step=step, sample=f"text {step}!")
    metrics.close()
    page = report_run(run).to_html()
    short = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert len(re.findall("text [0-9]+!", short)) == 12
    assert {"text 1!", "text 100!"} <= set(re.findall("text [0-9]+!", short))
    # The best is among them.
    assert '<span class="best">1.0000</span>' in short
    assert "All 100 samples" in page


def test_hostile_text_is_only_text(tmp_path: Path) -> None:
    learned = bytemill.train_tokenizer(
        iter([f"{HOSTILE} " * 99]), vocab_size=270, special_tokens=[HOSTILE + "|"]
    )
    hidden = "\x1b[2J\u202e\0"
    run = make(
        tmp_path / f"{HOSTILE.replace('/', '∕')} run",
        learned,
        sample=HOSTILE + hidden,
        bytemill=HOSTILE,
        train=dataclasses.replace(TRAIN, sample_prompt=HOSTILE).to_json(),
        tokens=TOKENS | {"path": f"/{HOSTILE}"},
        plan=PLAN | {"device": HOSTILE, HOSTILE: "x"},
        start_from=f"/{HOSTILE}/step-00000001",
    )
    found = report_run(run)
    page = found.to_html(title=HOSTILE)
    pages.check(page)
    assert "<script" not in page
    assert "alert(&#x27;&amp;&#x27;)" in page
    assert not set(hidden) & set(page) - {"[", "2", "J"}
    assert "‹U+202E›" in page
    json.dumps(found.to_json())


def test_credentials_are_never_shown(tmp_path: Path) -> None:
    secret = "https://me:hunter2@host/a?token=hunter2"
    found = report_run(
        make(
            tmp_path / "run",
            tokens=TOKENS | {"path": secret, "val": secret},
            start_from=secret,
            train=dataclasses.replace(TRAIN, sample_prompt=secret).to_json(),
        )
    )
    for view in (found.to_text(), found.to_html(), json.dumps(found.to_json())):
        assert "hunter2" not in view
    assert "https://***@host/a" in found.to_html()


# --- runs of all kinds --------------------------------------------------------------------------


def test_the_state_of_a_run(tmp_path: Path) -> None:
    run = make(tmp_path / "run", steps=7)
    stopped = report_run(run)
    assert stopped.status == "interrupted"
    assert "interrupted, step 7 of 40" in stopped.to_text()
    with writer_lock(run / ".lock", run, bytemill.CheckpointError):
        training = report_run(run)
        assert training.status == "training"
        assert "in training, step 7 of 40" in training.to_html()
    # Left by a killed process.
    (run / ".lock").write_text("12345")
    assert report_run(run).status == "interrupted"
    # A line that is being written.
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 8, "lo')
    assert report_run(run).steps == 7


def test_a_run_before_its_first_step(tmp_path: Path) -> None:
    run = make(tmp_path / "run", steps=0)
    for made in (report_run(run), (run / "metrics.jsonl").unlink() or report_run(run)):
        assert (made.steps, made.loss, made.final, made.tokens_per_s) == (0, None, None, None)
        pages.check(made.to_html())
        assert "step 0 of 40" in made.to_text()
        json.dumps(made.to_json())


def test_a_run_without_tokenizer_and_evaluations(tmp_path: Path) -> None:
    found = report_run(make(tmp_path / "run", evaluated=False))
    assert (found.tokenizer, found.final, found.best) == (None, None, None)
    pages.check(found.to_html())
    assert "The run has none." in found.to_html()
    assert "tokenizer      none; the model has 300 ids" in found.to_text()
    lines = [line for _, line in found.commands]
    assert lines[0].startswith("bytemill train /data/tokens")
    assert "--vocab-size 300" in lines[0]


def test_an_imported_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    imported = {"path": "/models/llama", "architecture": "LlamaForCausalLM"}
    write_config(tmp_path / "run", {"model": MODEL.to_json(), "imported": imported})
    found = report_run(tmp_path / "run")
    assert (found.status, found.costs, found.tokens_seen) == ("imported", [], 0)
    assert found.commands[0].line == f"bytemill import /models/llama -o {tmp_path / 'run'}"
    pages.check(found.to_html())
    assert "imported" in found.to_text()
    json.dumps(found.to_json())


def test_an_older_run_records_less(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    del config["ranks"], config["plan"]
    (run / "config.json").write_text(json.dumps(config))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join(lines[1:]) + "\n")
    found = report_run(run)
    assert all(cost.expected is None for cost in found.costs)
    assert "expected at the start</th>" not in found.to_html()
    assert found.tokens_per_s == 4 * 16 / 0.5


def test_no_torch_is_imported(tmp_path: Path, small: bytemill.Tokenizer) -> None:
    make(tmp_path / "run", small)
    script = (
        "import sys; from bytemill.cli import main; "
        "main(['report', 'run', '-o', 'page.html']); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, encoding="utf-8"
    )
    assert done.stdout.splitlines() == ["False"], done.stderr
    pages.check((tmp_path / "page.html").read_text(encoding="utf-8"))


# --- commands -----------------------------------------------------------------------------------


def parsed(line: str) -> dict[str, Any]:
    """The options that are given in a `bytemill train` command."""
    words = shlex.split(line)
    assert words[:2] == ["bytemill", "train"]
    context = train_command.make_context("train", words[2:])
    return {name: value for name, value in context.params.items() if value not in (None, False)}


SETTINGS = {
    "steps": st.integers(1, 10**6),
    "batch_size": st.sampled_from([1, 16, 32, 512]),
    "micro_batch_size": st.sampled_from([None, 1, 8]),
    "lr": st.sampled_from([3e-3, 5e-3, 1e-05]),
    "min_lr": st.sampled_from([None, 0.0, 3e-4]),
    "optimizer": st.sampled_from(["adamw", "muon", "sgd"]),
    "schedule": st.sampled_from(["cosine", "wsd"]),
    "sample_prompt": st.sampled_from(["", "-x", "a b", "'", "--lr", "\n"]),
    "warmup": st.sampled_from([None, 0, 1]),
    "tensorboard": st.booleans(),
    "seed": st.integers(0, 9),
}
SHAPES = {
    "d_model": st.sampled_from([64, 192, 768]),
    "num_layers": st.sampled_from([2, 4, 12]),
    "num_heads": st.sampled_from([2, 4]),
    "num_kv_heads": st.sampled_from([None, 2, 1]),
    "d_ff": st.sampled_from([None, 512, 3072]),
    "context_length": st.sampled_from([64, 1024]),
    "tie_embeddings": st.booleans(),
}


@pytest.mark.slow
@given(st.fixed_dictionaries(SHAPES), st.fixed_dictionaries(SETTINGS))
def test_the_command_gives_the_same_config(shape: dict[str, Any], settings: dict[str, Any]) -> None:
    model, train = ModelConfig(vocab_size=300, **shape), TrainConfig(**settings)
    preset, options = preset_and_options(model, train)
    keys = presets.merged(preset, None, options)
    assert presets.to_configs(keys, 300) == (model, train)


@pytest.mark.parametrize("prompt", ["", "-x", "a 'b'\n", "--lr"])
def test_the_command_is_that_of_the_run(tmp_path: Path, prompt: str) -> None:
    train = dataclasses.replace(TRAIN, sample_prompt=prompt, tensorboard=False)
    found = report_run(make(tmp_path / "run", train=train.to_json()))
    given = parsed(found.commands[0].line)
    assert given.pop("tokens") == "/data/tokens"
    assert given.pop("output") == tmp_path / "run"
    keys = presets.merged(given.pop("preset"), None, {
        name: value for name, value in given.items() if name != "token_dtype"
    } | {"tensorboard": False})  # fmt: skip
    assert presets.to_configs(keys, 300) == (MODEL, train)
    ranks = report_run(make(tmp_path / "two", ranks=2)).commands[0].line
    assert ranks.startswith("torchrun --nproc-per-node 2 -m bytemill train /data/tokens")


def test_tokens_that_are_still_there_are_described(
    tmp_path: Path, small: bytemill.Tokenizer
) -> None:
    corpus, tokens = tmp_path / "a corpus.txt", tmp_path / "tokens"
    corpus.write_text("the cat sat on the mat\n" * 50)
    small.encode_files([str(corpus)], tokens, val_fraction=0.5, shuffle=True, progress=False)
    facts = TOKENS | {"path": str(tokens), "fingerprint": small.fingerprint}
    found = report_run(make(tmp_path / "run", small, tokens=facts))
    learn, encode, train, _ = (line for _, line in found.commands)
    assert learn == f"bytemill train-tokenizer '{corpus}' -o tokenizer.json --vocab-size 300"
    assert encode == (
        f"bytemill encode '{corpus}' -t tokenizer.json -o {tokens} --val-fraction 0.5 --shuffle"
    )
    assert " -t " not in train
    n_ids = len(small.encode(corpus.read_text())) + 1  # with an end of text
    assert found.bytes_per_token == pytest.approx(corpus.stat().st_size / n_ids)
    # Other tokens at the same path are not those of this run.
    (tokens / "manifest.json").write_text(
        (tokens / "manifest.json").read_text().replace(small.fingerprint, "0" * 64)
    )
    other = report_run(tmp_path / "run")
    assert (other.bytes_per_token, len(other.commands)) == (None, 3)


# --- damaged runs -------------------------------------------------------------------------------


def test_refusals(tmp_path: Path, tokenizer: bytemill.Tokenizer) -> None:
    with pytest.raises(FileNotFoundError):
        report_run(tmp_path / "nothing")
    with pytest.raises(bytemill.CheckpointError, match="not a run"):
        report_run(tmp_path)
    run = make(tmp_path / "run")
    tokenizer.save(run / "tokenizer.json")
    with pytest.raises(bytemill.CheckpointError, match=r"has ids up to 3999"):
        report_run(run)
    (run / "tokenizer.json").write_text("{")
    with pytest.raises(bytemill.TokenizerError):
        report_run(run)


VALUES: list[Any] = [None, True, -1, 0, 10**60, 1e308, 1.5, "1", "", "\0", [], {}, [1], {"a": []}]
FIELDS = [(name,) for name in ("model", "train", "tokens", "plan", "ranks", "start_from")]
FIELDS += [("model", name) for name in MODEL.to_json()] + [("tokens", name) for name in TOKENS]
FIELDS += [("train", name) for name in ("steps", "batch_size", "lr", "sample_prompt", "optimizer")]
FIELDS += [("plan", name) for name in PLAN]


@pytest.mark.slow
@pytest.mark.parametrize("path", FIELDS, ids="-".join)
def test_hostile_configs(path: tuple[str, ...], tmp_path: Path) -> None:
    run = make(tmp_path / "run", steps=3)
    original = (run / "config.json").read_text()
    for value in VALUES:
        config = json.loads(original)
        inner = config
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        (run / "config.json").write_text(json.dumps(config))
        survives(lambda: report_run(run))
    config = json.loads(original)
    del config[path[0]]
    (run / "config.json").write_text(json.dumps(config))
    survives(lambda: report_run(run))


def survives(work: Callable[[], RunReport]) -> None:
    """Fails unless `work` returns a report with working views or raises an error of ours."""
    try:
        found = work()
    except bytemill.BytemillError:
        return
    pages.check(found.to_html())
    found.to_text()
    json.dumps(found.to_json())


NUMBERS = st.one_of(
    st.none(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False)
)
COLUMNS = ["loss", "lr", "grad_norm", "tokens_per_s", "mfu", "memory", "seconds", "val_loss",
           "val_perplexity", "val_bits_per_byte", "predicted_memory", "other"]  # fmt: skip
LINES = st.fixed_dictionaries(
    {"step": st.integers(0, 2**31)},
    optional=dict.fromkeys(COLUMNS, NUMBERS) | {"sample": st.text()},
)


@pytest.mark.slow
@given(st.lists(LINES, max_size=8))
def test_any_metrics(tmp_path_factory: pytest.TempPathFactory, lines: list[Any]) -> None:
    run = make(tmp_path_factory.mktemp("any") / "run", steps=2)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(text)
    survives(lambda: report_run(run))


def test_it_is_a_public_name() -> None:
    assert {"report_run", "RunReport"} <= set(lm.__all__)
