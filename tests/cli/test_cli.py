"""Every command does its work, and stdout carries data only."""

from __future__ import annotations

import json
import shlex
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import bytemill
from bytemill import cli
from bytemill.learn import TieBreak
from bytemill.lm.presets import MODEL_KEYS, TRAIN_KEYS
from command_line import COMMANDS, ok, run

TEXT = "def f(x):\n\treturn 'naïve' # 日本 <|endoftext|> 12345\n".encode() + b"\xff\xfe\xe2\x82"


@pytest.fixture(scope="module")
def saved(tokenizer: bytemill.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(path)
    return path


@pytest.fixture(scope="module")
def sample(documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus."""
    path = tmp_path_factory.mktemp("sample") / "sample.txt"
    path.write_bytes("<|endoftext|>".join(documents)[:200_000].encode())
    return path


# --- help -------------------------------------------------------------------------------------

OPTIONS = {
    "train-tokenizer": "-o --output --vocab-size --special-token --no-special-tokens --pattern "
    "--tie-break --min-frequency --min-piece-count --max-token-length --extend-from --threads "
    "--counts --memory-limit --spill-dir --format --overwrite --quiet --json --include --exclude "
    "--dry-run",
    "count": "-o --output --special-token --no-special-tokens --pattern --threads --memory-limit "
    "--resume --overwrite --quiet --json --include --exclude --dry-run",
    "encode": "-t --tokenizer --format --special --pattern --special-token -o --output "
    "--shard-tokens --append-eot --no-append-eot --eot --dtype --val-fraction --shuffle --seed "
    "--threads --resume --overwrite --quiet --json --include --exclude --dry-run",
    "decode": "-t --tokenizer --format --pattern --special-token -o --output --split --overwrite",
    "verify": "-t --tokenizer --source --pattern --special-token --include --exclude --quiet "
    "--json",
    "inspect": "--file --ids --html --longest --color --special --pattern --special-token "
    "--overwrite --json",
    "compare": "--corpus --limit --differences --longest --extrapolate --html --special --pattern "
    "--special-token --overwrite --json --quiet --include --exclude --dry-run",
    "convert": "--to -o --output --pattern --special-token --overwrite --quiet --json",
    "encodings": "--download --mirror --quiet --json",
    "train": "-o --output -t --tokenizer --val --token-dtype --preset --config "
    "--start-from --resume --overwrite --quiet --json "
    + " ".join(f"--{name.replace('_', '-')}" for name in (*MODEL_KEYS, *TRAIN_KEYS)),
    "generate": "--max-tokens --temperature --top-k --top-p --min-p --repetition-penalty --stop "
    "--seed -n --samples --step --device --special --echo --no-echo -i --interactive --json",
    "sweep": "-o --output --random --find-lr -t --tokenizer --val --token-dtype --preset --config "
    "--resume --engine --ray-address --overwrite --quiet --json "
    + " ".join(f"--{name.replace('_', '-')}" for name in (*MODEL_KEYS, *TRAIN_KEYS)),
    "evaluate": "--split --stride --per-document --step --batch-size --token-dtype --device "
    "--check --no-check --quiet --json",
    "account": "--preset --config --batch-size --hardware --memory --tokens --mfu --dtype "
    "--optimizer --measure --plot --overwrite --json --context "
    + " ".join(f"--{name.replace('_', '-')}" for name in MODEL_KEYS),
    "serve": "--host --port --open --api-key --insecure --cors --device --max-batch --max-queue "
    "--max-models",
    "export": "--to -o --output --dtype --step --pre-tokenizer --overwrite --quiet --json",
    "import": "-o --output --tokenizer --no-tokenizer --overwrite --quiet --json",
    "plot": "-o --output --x --title --overwrite --quiet",
    "report": "-o --output --overwrite --quiet --json",
    "demo": "--out --vocab-size --seconds --quiet",
}


def test_help_lists_every_command() -> None:
    text = ok("--help").text
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert ok("-h").text == text


def test_commands_are_imported_when_they_are_used() -> None:
    assert set(OPTIONS) == set(COMMANDS)
    modules = {module for module, _ in cli.COMMANDS.values()}
    for line, imported in ((["--help"], set()), (["count", "--help"], {"count"})):
        code = "import sys; from bytemill.cli import main; main(sys.argv[1:]); print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code, *line], capture_output=True, text=True, check=True
        )
        found = set(done.stdout.splitlines()[-1].split())
        assert found & {f"bytemill.cli.{name}" for name in modules} == {
            f"bytemill.cli.{name}" for name in imported
        }
        assert not found & {"numpy", "torch", "fsspec", "pyarrow"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command: str) -> None:
    text = ok(command, "--help").text
    words = text.replace(",", " ").replace(" / ", " ").split()
    assert set(OPTIONS[command].split()) <= set(words)
    assert f"bytemill {command}" in text.partition("examples:")[2]
    assert all(len(line) <= 100 for line in text.splitlines())


def test_version() -> None:
    assert ok("--version").text == f"bytemill {bytemill.__version__}\n"


def test_without_a_command_help_goes_to_stderr() -> None:
    result = run()
    assert (result.code, result.data) == (2, b"")
    assert "train-tokenizer" in result.said


# --- train-tokenizer --------------------------------------------------------------------------


@pytest.mark.slow
def test_train_tokenizer(sample: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.json"
    result = ok("train-tokenizer", sample, "-o", out, "--vocab-size", 500)
    assert result.data == b""
    assert bytemill.Tokenizer.load(out) == bytemill.train_tokenizer(sample, vocab_size=500)
    assert "500 ids (256 bytes, 243 merges, 1 special token)" in result.said
    assert f"bytemill inspect {out}" in result.said
    assert [line.split()[0] for line in result.said.splitlines()] == [
        "count", "merge", "saved", "next",
    ]  # fmt: skip


@pytest.mark.parametrize("tie_break", ["huggingface", "rustbpe"])
def test_train_tokenizer_with_every_option(
    sample: Path, tmp_path: Path, tie_break: TieBreak
) -> None:
    out = tmp_path / "new.json"
    ok("train-tokenizer", sample, sample, "-o", out, "--vocab-size", 400, "--special-token", "<a>",
       "--special-token", "<b>", "--pattern", "cl100k", "--tie-break", tie_break,
       "--min-frequency", 3, "--min-piece-count", 2, "--max-token-length", 6,
       "--threads", 2)  # fmt: skip
    expected = bytemill.train_tokenizer(
        [sample, sample],
        vocab_size=400,
        special_tokens=["<a>", "<b>"],
        pattern="cl100k",
        tie_break=tie_break,
        min_frequency=3,
        min_piece_count=2,
        max_token_length=6,
    )
    assert bytemill.Tokenizer.load(out) == expected


def test_train_tokenizer_from_stdin_in_several_stages(sample: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.json"
    stages = ["gpt2", "[a-z]+|[^a-z]+"]
    ok("train-tokenizer", "-", "-o", out, "--vocab-size", 300, "--no-special-tokens", "--pattern",
       stages[0], "--pattern", stages[1], stdin=sample.read_bytes())  # fmt: skip
    expected = bytemill.train_tokenizer(sample, vocab_size=300, special_tokens=(), pattern=stages)
    assert bytemill.Tokenizer.load(out) == expected


def test_train_tokenizer_extends(sample: Path, saved: Path, tmp_path: Path) -> None:
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    ok("train-tokenizer", sample, "-o", small, "--vocab-size", 300, "--pattern", "o200k")
    ok("train-tokenizer", sample, "-o", large, "--vocab-size", 350, "--extend-from", small)
    first, second = bytemill.Tokenizer.load(small), bytemill.Tokenizer.load(large)
    assert second.merges[: len(first.merges)] == first.merges
    assert (len(second), second.pattern) == (350, "o200k")
    assert list(second.special_tokens) == list(first.special_tokens)


def test_train_tokenizer_json(sample: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.json"
    result = ok("train-tokenizer", sample, "-o", out, "--vocab-size", 500, "--json")
    assert result.json["fingerprint"] == bytemill.Tokenizer.load(out).fingerprint
    assert (result.json["vocab_size"], result.json["merges"]) == (500, 243)
    finished = {e["phase"]: e for e in result.events if e["event"] == "finished"}
    assert list(finished) == ["count", "merge"]
    assert finished["count"]["done"] == finished["count"]["total"] == sample.stat().st_size
    assert finished["merge"]["done"] == finished["merge"]["total"] == 243


def test_train_tokenizer_quiet_prints_only_notes(tmp_path: Path) -> None:
    corpus = tmp_path / "small.txt"
    corpus.write_text("so short")
    result = ok("train-tokenizer", corpus, "-o", tmp_path / "a.json", "--vocab-size", 999, "-q")
    assert result.data == b""
    assert result.said.startswith("note: no pairs left to merge")
    assert len(result.said.splitlines()) == 1
    result = ok("train-tokenizer", corpus, "-o", tmp_path / "b.json", "--vocab-size", 999, "-q",
                "--json")  # fmt: skip
    assert [event["event"] for event in result.events] == ["note"]


# --- encode, decode ---------------------------------------------------------------------------


def test_encode(saved: Path, tokenizer: bytemill.Tokenizer, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(TEXT)
    ids = tokenizer.encode(TEXT)
    assert ok("encode", "-t", saved, stdin=TEXT).text == " ".join(map(str, ids)) + "\n"
    assert ok("encode", "-t", saved, file).text == ok("encode", "-t", saved, "-", stdin=TEXT).text
    assert ok("encode", "-t", saved, file, "--format", "json").json == ids
    binary = ok("encode", "-t", saved, file, "--format", "u16").data
    assert binary == struct.pack(f"<{len(ids)}H", *ids)
    binary = ok("encode", "-t", saved, file, "--format", "u32").data
    assert binary == struct.pack(f"<{len(ids)}I", *ids)


def test_encode_with_special_tokens(saved: Path, tokenizer: bytemill.Tokenizer) -> None:
    ids = tokenizer.encode(TEXT, special="none")
    result = ok("encode", "-t", saved, "--special", "none", "--format", "json", stdin=TEXT)
    assert result.json == ids
    result = run("encode", "-t", saved, "--special", "error", stdin=TEXT)
    assert (result.code, "<|endoftext|>" in result.said) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["ids", "json", "u16", "u32"])
@pytest.mark.parametrize("text", [b"", b"\n", TEXT, TEXT * 70_000], ids=len)
def test_decode_restores_the_bytes(saved: Path, text: bytes, format: str) -> None:
    ids = ok("encode", "-t", saved, "--format", format, stdin=text).data
    assert ok("decode", "-t", saved, "--format", format, stdin=ids).data == text


def test_encoding_in_blocks_equals_encoding_at_once(
    saved: Path, tokenizer: bytemill.Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bytemill.cli.streams.BLOCK_SIZE", 7)
    text = (TEXT + b" " * 50 + b"a" * 50) * 20
    result = ok("encode", "-t", saved, "--format", "json", stdin=text)
    assert result.json == tokenizer.encode(text)
    ids = "  \n".join(map(str, result.json)).encode()
    assert ok("decode", "-t", saved, stdin=ids).data == text
    binary = struct.pack(f"<{len(result.json)}I", *result.json)
    assert ok("decode", "-t", saved, "--format", "u32", stdin=binary).data == text


# --- inspect ----------------------------------------------------------------------------------


def test_inspect_shows_statistics(saved: Path, tokenizer: bytemill.Tokenizer) -> None:
    text = ok("inspect", saved, "--longest", 3).text
    assert "4,000 ids" in text
    assert tokenizer.fingerprint in text
    assert text.rpartition("token\n")[2].count("\n") == 3
    found = ok("inspect", saved, "--json").json
    assert found["special_tokens"] == {"<|endoftext|>": 3999}
    assert len(found["longest"]) == 20


def test_inspect_shows_how_a_text_is_cut(saved: Path, tokenizer: bytemill.Tokenizer) -> None:
    plain = ok("inspect", saved, "return  x").text
    assert plain == "return│·│·x\n3 tokens, 9 bytes, 3.00 bytes per token\n"
    ids = tokenizer.encode("a\n")
    assert ok("inspect", saved, "a\n", "--ids").text.startswith(f"a⟨{ids[0]}⟩│↵⟨{ids[1]}⟩\n2 ")
    spans = ok("inspect", saved, "-", "--json", stdin=TEXT).json["spans"]
    assert b"".join(bytes.fromhex(span["hex"]) for span in spans) == TEXT
    assert ok("inspect", saved, "").text == "0 tokens, 0 bytes, – bytes per token\n"


def test_inspect_writes_a_page(saved: Path, tmp_path: Path) -> None:
    source, page = tmp_path / "<source>", tmp_path / "page.html"
    source.write_bytes(TEXT)
    result = ok("inspect", saved, "--file", source, "--html", page)
    assert result.data == b""
    assert "&lt;source&gt;</title>" in page.read_text(encoding="utf-8")
    assert run("inspect", saved, "--file", source, "--html", page).code == 1
    ok("inspect", saved, "--file", source, "--html", page, "--overwrite")


def test_issue_13_inspect_writes_the_vocabulary_as_a_page(
    saved: Path, tokenizer: bytemill.Tokenizer, tmp_path: Path
) -> None:
    page = tmp_path / "vocabulary.html"
    result = ok("inspect", saved, "--html", page)
    assert (result.data, result.said) == (b"", f"saved   {page}\n")
    text = page.read_text(encoding="utf-8")
    assert tokenizer.fingerprint in text
    assert text.count(">special</td></tr>") == len(tokenizer.special_tokens)
    assert run("inspect", saved, "--html", page).code == 1
    # Beside the page, the statistics as JSON.
    both = ok("inspect", saved, "--html", page, "--overwrite", "--json")
    assert both.json["vocab_size"] == len(tokenizer)


@pytest.mark.parametrize(
    ("variable", "option", "colored"),
    [(None, "auto", True), ("NO_COLOR", "auto", False), ("NO_COLOR", "always", True),
     (None, "never", False)],
)  # fmt: skip
def test_color_on_a_terminal(
    saved: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, option: str, colored: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    if variable:
        monkeypatch.setenv(variable, "1")
    result = ok("inspect", saved, "a b", "--color", option, terminal=True)
    assert ("\x1b[" in result.text) is colored


# --- compare, convert, demo -------------------------------------------------------------------


def test_compare(saved: Path, sample: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    bytemill.train_tokenizer(sample, vocab_size=600, pattern="cl100k").save(other)
    result = ok("compare", saved, other, sample, "-n", 5)
    assert str(saved) in result.text
    assert "most frequent differences" in result.text
    for part in ("bytes per token by vocabulary size", "longest tokens of", "never occurred"):
        assert part in result.text
    found = ok("compare", saved, other, sample, "-n", 5, "--json", "--quiet")
    on_sample = found.json["corpora"][str(sample)]
    assert [row["vocab_size"] for row in on_sample["tokenizers"].values()] == [4000, 600]
    assert len(on_sample["differences"]) == 5
    assert found.said == ""
    assert "no difference" in ok("compare", saved, saved, sample).text
    by_pipe = ok("compare", saved, saved, "-", "--json", stdin=b"abc")
    assert by_pipe.json["corpora"]["-"]["bytes"] == 3
    assert "shared" not in ok("compare", saved, sample).text


def test_compare_on_several_corpora(saved: Path, sample: Path, tmp_path: Path) -> None:
    other = tmp_path / "a=b.txt"
    other.write_text("Once upon a time there was a princess. " * 99)
    corpora = ("--corpus", f"code={sample}", "--corpus", other, "--corpus", f"code={other}")
    found = ok("compare", saved, *corpora, "--extrapolate", "1TB", "--longest", 2, "--json", "-q")
    # An existing path with an equals sign is a path; a name given twice is one corpus.
    assert list(found.json["corpora"]) == ["code", str(other)]
    sizes = [one["bytes"] for one in found.json["corpora"].values()]
    assert sizes == [sample.stat().st_size + other.stat().st_size, other.stat().st_size]
    row = found.json["corpora"]["code"]["tokenizers"][str(saved)]
    assert row["extrapolated"]["tokens"] == round(10**12 / row["bytes_per_token"])
    assert row["bytes_per_token_by_vocab_size"]["4000"] == row["bytes_per_token"]
    about = found.json["tokenizers"][str(saved)]
    assert len(about["longest"]) == 2
    assert sum(about["lengths"].values()) == 3999
    assert 0 < about["unused"]["number"] < 3743
    text = ok("compare", saved, *corpora).text
    assert text.startswith("bytes per token\n")
    assert "── code ──" in text
    limited = ok("compare", saved, *corpora, "--limit", "2kB", "--json").json["corpora"]
    assert [one["bytes"] for one in limited.values()] == [2000, 2000]


def test_compare_as_a_page(saved: Path, sample: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = ok("compare", saved, sample, "--html", page)
    assert (result.data, f"saved   {page}" in result.said) == (b"", True)
    assert "<svg" in page.read_text(encoding="utf-8")
    assert run("compare", saved, sample, "--html", page).code == 1
    both = ok("compare", saved, sample, "--html", page, "--overwrite", "--json")
    assert str(sample) in both.json["corpora"]


@pytest.mark.parametrize("format", ["huggingface", "gpt2", "tiktoken", "minbpe"])
def test_convert_round_trip(saved: Path, tmp_path: Path, format: str) -> None:
    there, back = tmp_path / "there", tmp_path / "back.json"
    result = ok("convert", saved, "--to", format, "-o", there)
    assert result.data == b""
    assert "all equal" in result.said
    words = shlex.split(result.said.splitlines()[-1])
    extra = words[words.index(str(there)) + 1 : -1]
    ok("convert", there, *extra, "--to", "huggingface", "-o", back)
    ids = ok("encode", "-t", saved, stdin=TEXT).text
    assert ok("encode", "-t", back, stdin=TEXT).text == ids
    # The command in the last line runs as printed.
    assert ok("inspect", there, *extra, "any text").text == ok("inspect", saved, "any text").text
    again = ok("convert", saved, "--to", format, "-o", there, "--overwrite", "--json")
    assert again.json["ids_compared"] > 1000


def test_the_demo_omits_code_pages_and_tests() -> None:
    """A model that is trained on code pages generates mostly code pages."""
    from bytemill import demo

    root = sysconfig.get_path("stdlib")
    parts = {part for path in demo.library_files() for part in path.relative_to(root).parts[:-1]}
    assert not parts & {"encodings", "test", "tests", "idle_test"}
    assert "json" in parts


def test_vocabulary_sizes_in_thousands(tmp_path: Path, sample: Path) -> None:
    made = ok("train-tokenizer", sample, "-o", tmp_path / "t.json", "--vocab-size", "1k", "--json")
    assert made.json["vocab_size"] == 1000
    out = tmp_path / "tokens"
    ok("encode", sample, "-t", tmp_path / "t.json", "-o", out, "--shard-tokens", "0.5k")
    assert bytemill.Tokens(out).manifest["shard_tokens"] == 500
    for value in ("10kB", "0", "1.0005k"):
        refused = run("train-tokenizer", sample, "-o", tmp_path / "u.json", "--vocab-size", value)
        assert refused.code == 2
        assert "--vocab-size" in refused.said


def test_demo_can_be_repeated(
    tmp_path: Path, sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The whole library takes seconds; one directory is enough.
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(Path(json.__file__).parent))
    out = tmp_path / "demo"
    for _ in range(2):
        text = ok("demo", "--out", out, "--vocab-size", 600, "--seconds", 0, "-q").text
        assert "identical to the original" in text
    facts = json.loads((out / "demo.json").read_text())
    assert facts["vocab_size"] == len(bytemill.Tokenizer.load(out)) == 600
    command = next(line.split() for line in text.splitlines() if "bytemill decode" in line)
    decoded = ok(*command[1 : command.index("|")]).data
    assert len(decoded) == facts["bytes"]
