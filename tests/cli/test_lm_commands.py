"""`bytemill train`, `generate`, `plot` and `report`; and what happens without torch."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import bytemill
import pages
from bytemill.errors import install_command
from command_line import ok, run


@pytest.fixture(scope="module")
def made(
    tokenizer: bytemill.Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, bytemill.Tokenizer]:
    """A directory with text, a small tokenizer, tokens and a run."""
    pytest.importorskip("torch")
    here = tmp_path_factory.mktemp("cli-lm")
    (here / "text.txt").write_text("the cat sat on the mat and the dog sat on the log\n" * 300)
    small = tokenizer.with_vocab_size(320)
    small.save(here / "tokenizer.json")
    ok("encode", here / "text.txt", "-t", here / "tokenizer.json", "-o", here / "tokens", "-q")
    (here / "train.toml").write_text(
        'preset = "tiny"\nsteps = 90\neval_every = 45\nlr = 0.01\nthreads = 1\n'
        "[model]\ncontext_length = 32\nd_model = 32\nnum_layers = 1\n"
    )
    result = ok(
        "train", here / "tokens", "-o", here / "run", "--config", here / "train.toml",
        "--num-layers", 2, "--no-tensorboard", "--sample-prompt", "the cat",
    )  # fmt: skip
    assert result.data == b""
    for word in ("device  cpu", "kernels fused", "expect  ", "eval    step 90", "bits per byte",
                 'sample  "the cat', "saved   ", "next    bytemill generate"):  # fmt: skip
        assert word in result.said, word
    return here, small


@pytest.mark.slow
def test_the_run(made: tuple[Path, bytemill.Tokenizer]) -> None:
    here, small = made
    config = json.loads((here / "run" / "config.json").read_text())
    assert (config["model"]["num_layers"], config["model"]["d_model"]) == (2, 32)
    assert config["train"]["lr"] == 0.01
    assert bytemill.Tokenizer.load(here / "run") == small
    again = run("train", here / "tokens", "-o", here / "run", "--config", here / "train.toml")
    assert again.code == 1
    assert "--resume" in again.said
    more = ok("train", here / "tokens", "-o", here / "run", "--resume", "--steps", 92, "--json",
              "--no-tensorboard")  # fmt: skip
    assert (more.json["step"], more.json["steps"]) == (92, 92)
    assert (more.json["tokens"], more.json["total_tokens"]) == (2 * 16 * 32, 92 * 16 * 32)
    assert more.json["evaluation"]["bits_per_byte"] > 0
    kinds = {event["event"] for event in more.events}
    assert {"predicted", "progress", "evaluation", "sample"} <= kinds


def test_after_a_resume_the_summary_covers_this_session_and_the_run(
    made: tuple[Path, bytemill.Tokenizer], tmp_path: Path
) -> None:
    here, _ = made
    train = ["train", here / "tokens", "-o", tmp_path / "run", "--config", here / "train.toml",
             "--no-tensorboard", "--eval-every", 0]  # fmt: skip
    assert ": step 3 of 3, 1,536 tokens in 0." in ok(*train, "--steps", 3).said
    said = ok(*train, "--steps", 5, "--resume").said
    assert ": step 5 of 5, 1,024 tokens in 0." in said
    assert " s this session (2,560 tokens in all)" in said
    again = ok(*train, "--steps", 5, "--resume")
    assert "complete already at step 5" in again.said
    assert "expect  " not in again.said
    assert ok(*train, "--steps", 5, "--resume", "--json").json["loss"] is None


def test_a_run_without_a_tokenizer_can_be_given_one(
    made: tuple[Path, bytemill.Tokenizer], tmp_path: Path
) -> None:
    here, small = made
    tokens, model = tmp_path / "tokens", tmp_path / "run"
    small.save(tmp_path / "mine.json")
    ok("encode", here / "text.txt", "-t", tmp_path / "mine.json", "-o", tokens, "-q")
    # Tokens include their tokenizer; here it was deleted.
    (tokens / "tokenizer.json").unlink(missing_ok=True)
    train = ["train", tokens, "-o", model, "--preset", "tiny", "--steps", 1, "--threads", 1]
    said = ok(*train).said
    assert "note: no tokenizer found" in said
    assert f"(fingerprint {small.fingerprint[:12]}…): -t tokenizer.json" in said
    missing = run("generate", model, "the cat")
    assert (missing.code, missing.data) == (1, b"")
    assert "-t tokenizer.json" in missing.said
    given = ["-t", tmp_path / "mine.json"]
    assert ok("generate", model, "the cat", "--max-tokens", 3, *given).text.startswith("the cat")
    assert "unknown" in ok("evaluate", model, tokens, "-q").text
    assert ok("evaluate", model, tokens, *given, "--json").json["bits_per_byte"] > 0
    assert "-t tokenizer.json" in ok("export", model, "-o", tmp_path / "a").said
    ok("export", model, "-o", tmp_path / "b", *given)
    assert bytemill.Tokenizer.load(tmp_path / "b") == small
    assert "--tokenizer" in run("export", model, "--to", "gguf", "-o", "x.gguf").said
    ok("export", model, "--to", "gguf", "-o", tmp_path / "x.gguf", *given)
    small.with_vocab_size(300).save(tmp_path / "other.json")
    for command in (["generate", model, "x"], ["evaluate", model, tokens],
                    ["export", model, "-o", tmp_path / "c"]):  # fmt: skip
        other = run(*command, "-t", tmp_path / "other.json")
        assert other.code == 1
        assert "not the tokenizer that the model was trained with" in other.said
    # Resumed with one, the run keeps it.
    ok(*train, "--resume", "--steps", 2, *given)
    assert ok("generate", model, "the cat", "--max-tokens", 3).text.startswith("the cat")


def test_generate(made: tuple[Path, bytemill.Tokenizer]) -> None:
    here, _ = made
    options = ["--max-tokens", 20, "--seed", 1, "--temperature", 0.3]
    text = ok("generate", here / "run", "the cat", *options).text
    assert text.startswith("the cat")
    assert text == ok("generate", here / "run", "the cat", *options).text
    assert " sat on the" in text
    bare = ok("generate", here / "run", "the cat", "--no-echo", *options).text
    assert text == "the cat" + bare
    found = ok("generate", here / "run", "the cat", "-n", 2, "--json", *options).json
    assert found["prompt"] == "the cat"
    assert [sample["ended"] for sample in found["samples"]] == ["length"] * 2
    assert found["samples"][0]["text"] + "\n" == bare
    shown = ok("generate", here / "run", "the cat", "-n", 2, *options).text
    assert "--- 1 ---\nthe cat" in shown
    stopped = ok("generate", here / "run", "the cat", "--stop", " on", "--json", *options).json
    assert stopped["samples"][0]["ended"] == "stop"
    assert " on" not in stopped["samples"][0]["text"]


def test_prompts_from_stdin(made: tuple[Path, bytemill.Tokenizer]) -> None:
    here, _ = made
    options = ["--max-tokens", 4, "--temperature", 0]
    text = ok("generate", here / "run", "-", *options, stdin=b"the cat\n\nthe dog\n").text
    assert text.startswith("the cat")
    assert "\n\nthe dog" in text
    chat = ok("generate", here / "run", "-i", *options, stdin=b"the cat\nthe dog\n")
    assert chat.said == "> " * 3
    assert len(chat.text.strip().splitlines()) >= 2
    assert "the cat" not in chat.text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["generate", "run", "the " * 99], 1, "must have ≤ 32 tokens"),
        (["generate", "run", "x", "--step", "7"], 1, "no checkpoint of step 7"),
        (["generate", "run", "x", "--step", "first"], 2, "best, last or a number"),
        (["generate", "run", "x", "-i"], 2, "omit PROMPT"),
        (["generate", "nothing", "x"], 1, "no such file or directory"),
        (["generate", "tokens", "x"], 1, "not a run"),
        (["train", "tokens", "-o", "a", "--preset", "labtop"], 1, "did you mean laptop"),
        (["train", "tokens", "-o", "a", "--stpes", "3"], 2, "--steps"),
        (["train", "tokens", "-o", "a", "--num-heads", "5"], 1, "must be a multiple of num_heads"),
        (["train", "tokens", "-o", "a", "--resume", "--overwrite"], 2, "contradicts"),
        (["train", "nothing", "-o", "a"], 1, "no such file or directory"),
        (["train", "tokens", "-o", "a", "--context-length", "999999"], 1, "needs at least"),
        (["train", "tokens", "-o", "a", "-t", "other.json"], 1, "encoded with the tokenizer"),
        (["train", "tokens", "-o", "a", "--config", "bad.toml"], 1, "did you mean d_model"),
        (["train", "tokens", "-o", "a", "--learning-rate", "1"], 2, "hint: did you mean --lr?"),
        (["train", "tokens", "-o", "a", "--n-embd=9"], 2, "hint: did you mean --d-model?"),
        (["sweep", "tokens", "-o", "a", "--max-steps", "9"], 2, "hint: did you mean --steps?"),
        (["train", "tokens", "-o", "a", "--dropout", "0.1"], 2, "no dropout"),
        (["train", "text.txt", "-o", "a"], 1, "bytemill encode text.txt -t tokenizer.json -o"),
        (["train", "tokens", "-o", "a", "--device", "cuda:99"], 1, "is not available to torch"),
        (["train", "tokens", "-o", "a", "--device", "gpu"], 1, "cuda:N or mps, got 'gpu'"),
        (["generate", "run", "x", "--device", "cuda:99"], 1, "is not available to torch"),
        (["generate", "run", "x", "--device", "gpu"], 1, "cuda:N or mps, got 'gpu'"),
        (["evaluate", "run", "tokens", "--device", "cuda:99"], 1, "is not available to torch"),
        (["evaluate", "run", "text.txt"], 1, "encode it first"),
        (["plot", "tokens", "-o", "a.png"], 1, "has no metrics.jsonl"),
        (["report", "tokens"], 1, "not a run: it has no config.json"),
        (["report", "nothing"], 1, "no such file or directory"),
        (["report", "run", "-o", "text.txt"], 1, "hint: --overwrite replaces it"),
    ],
)
def test_failures(
    arguments: list[str], code: int, message: str, made: tuple[Path, bytemill.Tokenizer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    here, small = made
    monkeypatch.chdir(here)
    small.with_vocab_size(300).save("other.json", overwrite=True)
    Path("bad.toml").write_text("[model]\nd_modell = 3\n")
    result = run(*arguments)
    assert result.code == code, result.said
    assert message in result.said
    assert result.data == b""
    assert not Path("a").exists()


def test_plot(made: tuple[Path, bytemill.Tokenizer], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    here, _ = made
    ok("plot", here / "run", here / "run", "-o", tmp_path / "loss.svg")
    assert b"<svg" in (tmp_path / "loss.svg").read_bytes()
    assert "--overwrite" in run("plot", here / "run", "-o", tmp_path / "loss.svg").said


def test_report(made: tuple[Path, bytemill.Tokenizer], tmp_path: Path) -> None:
    here, _ = made
    text = ok("report", here / "run").text
    assert text.startswith(f"run            {here / 'run'}: finished, step ")
    assert "bits per byte  " in text
    page = tmp_path / "report.html"
    written = ok("report", here / "run", "-o", page)
    assert (written.data, written.said) == (b"", f"saved   {page}\n")
    pages.check(page.read_text(encoding="utf-8"))
    found = ok("report", here / "run", "--json").json
    memory = found["costs"][-1]
    assert (found["status"], memory["name"]) == ("finished", "peak memory")
    # Predicted before training, and measured.
    assert memory["expected"] == pytest.approx(memory["measured"], rel=0.5)
    assert found["config"]["ranks"] == 1
    learn, encode, train, _ = (one["line"] for one in found["commands"])
    assert learn.endswith("--vocab-size 320")
    assert encode.startswith(f"bytemill encode {here / 'text.txt'} -t tokenizer.json")
    assert "--preset tiny" in train
    assert "--overwrite" in run("report", here / "run", "-o", page).said
    config = here / "run" / "config.json"
    refused = run("report", here / "run", "-o", config, "--overwrite")
    assert "config.json: is an input and would be overwritten" in refused.said


WITHOUT = """
    import sys
    sys.modules["torch"] = None  # importing it now raises ModuleNotFoundError

    import bytemill, bytemill.lm
    from bytemill.cli import main
    from bytemill.lm import ModelConfig, TrainConfig

    config = ModelConfig(vocab_size=300, context_length=16, d_model=32, num_layers=1, num_heads=2)
    try:
        bytemill.lm.TransformerLM
    except bytemill.MissingPackageError as error:
        assert isinstance(error, ImportError)
        print(error)
    for command in ("train", "sweep", "evaluate", "account"):
        assert main([command, "--help"]) == 0
    assert bytemill.lm.account(config, hardware="a100").seconds
    for command in (
        ["account", "--measure"], ["account", "run"], ["account", "--hardware", "this"],
        ["sweep", "tokens", "-o", "a", "--lr", "1,2"], ["sweep", "tokens", "-o", "a", "--find-lr"],
        ["evaluate", "run", "tokens"],
    ):
        assert main(command) == 1
    sys.exit(main(["generate", "run", "x"]))
"""


def test_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT)], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 1, done.stderr
    assert "the language model needs torch, which is not installed" in done.stdout
    assert f"hint: {install_command('lm')}" in done.stdout
    assert "error: the language model needs torch" in done.stderr
    assert f"hint: {install_command('lm')}" in done.stderr


def test_help_needs_no_torch() -> None:
    script = "import sys; from bytemill.cli import main; main(['train', '--help'])"
    script += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8")
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_demo_trains_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(Path(json.__file__).parent))
    out = tmp_path / "demo"
    for _ in range(2):
        text = ok("demo", "--out", out, "--vocab-size", 600, "--seconds", 0.3, "-q").text
        assert "sample:\n\n  | def " in text
    assert "bytemill generate" in text
    ok("generate", out / "run", "import ", "--max-tokens", 3)
