"""Hints name keywords in Python and options on the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import bytemill
from bytemill.cli import app, hints
from command_line import run

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "python/bytemill"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
KEYWORD = re.compile(r"(?<![\w/.])[a-z][a-z_0-9]*=(?:True|False|None|[\"'\[]|\d|(?=[\s,;:.)]|$))")
# Help texts of the command line, style sheets, and a command to copy: none is an error.
OTHER_TEXTS = {
    "lm/config.py",
    "lm/report/commands.py",
    "look/result.py",
    "look/charts.py",
    "demo.py",
}
# Options of other programs, and a whole command, which is the same in Python.
OTHER_PROGRAMS = re.compile(r"(torchrun|ray start|bytemill encodings) --[a-z-]+")


def context(command: str) -> click.Context:
    ctx = click.Context(app)
    ctx.invoked_subcommand = command
    return ctx


# --- the mechanism --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "hint", "shown"),
    [
        ("encode", "overwrite=True replaces it", "--overwrite replaces it"),
        ("encode", "append none with append_eot=False", "append none with --no-append-eot"),
        ("encode", 'on_error="skip" skips it', "--on-error skip skips it"),
        ("encode", "name it: text_field=, dotted", "name it: --text-field, dotted"),
        ("encode", "a larger max_document= allows it", "a larger --max-document allows it"),
        ("train", "so do clip=1.0 and beta2=0.95", "so do --clip 1.0 and --beta2 0.95"),
        ("train", "use device='cpu'", "use --device cpu"),
        ("train", 'start_from="a run"', "--start-from 'a run'"),
        ("sweep", "lr=[1e-4, 1e-3]", "--lr 1e-4,1e-3"),
        ("import", "tokenizer=False imports the weights", "--no-tokenizer imports the weights"),
        ("convert", 'format="gpt2"', "--to gpt2"),
        # The command has no such option, but another has.
        ("generate", "continue with resume=True", "continue with --resume"),
        ("inspect", "leave special_tokens= out", "leave --special-token out"),
        # Not keywords: ordinary words, a path, a quoted name, an option.
        ("train", 'use dataset.to_parquet("x.parquet")', 'use dataset.to_parquet("x.parquet")'),
        ("encode", "see a/overwrite=True/b", "see a/overwrite=True/b"),
        ("train", "did you mean d_model?", "did you mean d_model?"),
        ("encode", "use --format u32", "use --format u32"),
        ("encode", "pip install 'bytemill[lm]'", "pip install 'bytemill[lm]'"),
    ],
)
def test_keywords_become_options(command: str, hint: str, shown: str) -> None:
    assert hints.in_hint(hint, context(command)) == shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("vocab_size=100 is too small", "--vocab-size 100 is too small"),
        ('input_format="x" is not known', "--input-format x is not known"),
        ("vocab_size must be ≥ 257, got 100", "--vocab-size must be ≥ 257, got 100"),
        ("threads must be ≥ 1, got 0", "--threads must be ≥ 1, got 0"),
        ("it has overwrite=True in it", "it has --overwrite in it"),
        # Values from a file are not options.
        ("a.toml: vocab_size=100 is too small", "a.toml: vocab_size=100 is too small"),
        ("id 5 is not below vocab_size=5", "id 5 is not below vocab_size=5"),
        ("data/year=2024/lang=en: no file matches", "data/year=2024/lang=en: no file matches"),
        ("threads of many colours", "threads of many colours"),
        ("threads=2.txt: no such file or directory", "threads=2.txt: no such file or directory"),
        # An option of another command: this one has it from a file.
        ("context_length=0 cannot be", "context_length=0 cannot be"),
    ],
)
def test_keywords_that_begin_a_message_become_options(message: str, shown: str) -> None:
    assert hints.in_message(message, context("train-tokenizer")) == shown


# --- every hint in the source ---------------------------------------------------------------------


def texts_of_python() -> Iterator[tuple[str, str]]:
    """Location and text of each string of the library, except docstrings."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith("cli/") or name in OTHER_TEXTS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in statements:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{name}:{node.lineno}", node.value


def texts_of_rust() -> Iterator[tuple[str, str]]:
    """Location and text of each string of the core, except in tests."""
    string = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
    for path in sorted((TOP / "src").rglob("*.rs")):
        name = path.relative_to(TOP).as_posix()
        if "/tests" in name:
            continue
        code = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for found in string.finditer(code.split("#[cfg(test)]")[0]):
            text = re.sub(r"\\\n\s*", "", found[1]).replace('\\"', '"')
            yield f"{name}: {text[:40]!r}", text


TEXTS = [*texts_of_python(), *texts_of_rust()]


def test_issue_13_library_messages_name_no_command_line_options() -> None:
    assert len(TEXTS) > 2000  # both were found
    wrong = [(place, text) for place, text in TEXTS if OPTION.search(OTHER_PROGRAMS.sub("", text))]
    assert wrong == []


def test_issue_13_every_keyword_of_a_hint_has_an_option() -> None:
    hinted = [
        (place, text)
        for place, text in TEXTS
        # No command uses the drop-in interfaces.
        if re.search(r"=(True|False)\b", text) and not place.startswith("compat/")
    ]
    assert len(hinted) > 20
    wrong = [
        (place, shown)
        for place, text in hinted
        if KEYWORD.search(shown := hints.in_hint(text, context("train")))
    ]
    assert wrong == []


# --- real failures, on both sides -----------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a corpus, a tokenizer, tokens, unfinished tokens and damaged records."""
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("some text for a corpus, some text\n" * 20)
    Path("bad.jsonl").write_text('{"text": "good"}\n{"other": "bad"}\n')
    tokenizer = bytemill.train_tokenizer("corpus.txt", vocab_size=270, progress=False)
    tokenizer.save("t.json")
    tokenizer.save("ranks.tiktoken", format="tiktoken")
    bytemill.Tokenizer(dict(enumerate(map(bytes, ([i] for i in range(256))))), []).save("no.json")
    tokenizer.encode_files("corpus.txt", "tokens", progress=False)
    Path("damaged").mkdir()
    Path("damaged/manifest.json").write_text("{}")
    bytemill.count_corpus("corpus.txt", progress=False).save("counts.bin")
    return tmp_path


def tokenizer() -> bytemill.Tokenizer:
    return bytemill.Tokenizer.load("t.json")


FAILURES: list[tuple[str, Callable[[], Any]]] = [
    (
        "train-tokenizer corpus.txt -o new.json --vocab-size 100",
        lambda: bytemill.train_tokenizer("corpus.txt", vocab_size=100),
    ),
    ("train-tokenizer corpus.txt -o t.json", lambda: tokenizer().save("t.json")),
    (
        "train-tokenizer bad.jsonl -o new.json",
        lambda: bytemill.train_tokenizer("bad.jsonl", vocab_size=300),
    ),
    (
        "train-tokenizer bad.jsonl -o new.json --text-field no",
        lambda: bytemill.train_tokenizer(
            bytemill.Corpus("bad.jsonl", text_field="no"), vocab_size=300
        ),
    ),
    (
        "train-tokenizer corpus.txt -o new.json --input-format nothing",
        lambda: bytemill.train_tokenizer(
            bytemill.Corpus("corpus.txt", input_format="nothing"), vocab_size=300
        ),
    ),
    (
        "count corpus.txt -o counts.bin",
        lambda: bytemill.count_corpus("corpus.txt").save("counts.bin"),
    ),
    (
        "encode corpus.txt -t t.json -o tokens",
        lambda: tokenizer().encode_files("corpus.txt", "tokens"),
    ),
    (
        "encode corpus.txt -t t.json -o tokens --resume --overwrite",
        lambda: tokenizer().encode_files("corpus.txt", "tokens", resume=True, overwrite=True),
    ),
    (
        "encode corpus.txt -t no.json -o new",
        lambda: bytemill.Tokenizer.load("no.json").encode_files("corpus.txt", "new"),
    ),
    (
        "encode corpus.txt -t t.json -o new --shard-tokens 0",
        lambda: tokenizer().encode_files("corpus.txt", "new", shard_tokens=0),
    ),
    (
        "encode corpus.txt -t t.json -o new --eot <|x|>",
        lambda: tokenizer().encode_files("corpus.txt", "new", eot="<|x|>"),
    ),
    (
        "encode -t t.json --special error x.txt",
        lambda: tokenizer().encode("<|endoftext|>", special="error"),
    ),
    ("verify damaged", lambda: bytemill.verify_tokens("damaged")),
    ("decode -t t.json damaged", lambda: bytemill.Tokens("damaged")),
    (
        "inspect t.json --special-token <a>",
        lambda: bytemill.Tokenizer.load("t.json", special_tokens=["<a>"]),
    ),
    ("inspect ranks.tiktoken", lambda: bytemill.Tokenizer.load("ranks.tiktoken")),
]


@pytest.mark.parametrize(("line", "call"), FAILURES, ids=[line for line, _ in FAILURES])
def test_issue_13_errors_name_keywords_or_options(
    here: Path, line: str, call: Callable[[], Any]
) -> None:
    Path("x.txt").write_text("<|endoftext|>")
    result = run(*line.split())
    assert result.code in (1, 2), result.said
    assert not KEYWORD.search(result.said), result.said
    with pytest.raises((bytemill.BytemillError, OSError)) as failure:
        call()
    assert not OPTION.search(str(failure.value)), failure.value
