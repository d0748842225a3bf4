"""Split patterns: names, expressions that exceed the step limit, errors that name the source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import rivals
from bytemill import ConfigError, Tokenizer, TokenizerError, count_corpus, train_tokenizer
from bytemill.compat import minbpe
from bytemill.compat.tiktoken import Encoding
from bytemill.formats import PatternName, pattern_names

BYTES = [bytes([i]) for i in range(256)]
NAMES = "gpt2, cl100k, o200k, llama3, qwen2"
POSIX = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def small(pattern: str) -> Tokenizer:
    return Tokenizer(dict(enumerate(BYTES)), [], pattern=pattern)


# --- names --------------------------------------------------------------------------------------


def test_the_type_of_names_lists_all_patterns() -> None:
    assert ", ".join(get_args(PatternName)) == pattern_names() == NAMES


@pytest.mark.parametrize("name", ["cl100k", "cl100k_base", "gpt4", "gpt-4", "gpt-3.5-turbo"])
def test_names_from_other_libraries_give_their_ids(name: str, tmp_path: Path) -> None:
    file = tmp_path / "cl100k_base.tiktoken"
    file.write_bytes(rivals.rank_file("cl100k"))
    tokenizer = Tokenizer.load(file, pattern=name)
    assert tokenizer.pattern == "cl100k"
    assert tokenizer.encode("2024") == [2366, 19]


ENTRANCES: dict[str, Callable[[str], object]] = {
    "Tokenizer": small,
    "train_tokenizer": lambda name: train_tokenizer(iter(["a b"]), vocab_size=258, pattern=name),
    "count_corpus": lambda name: count_corpus(iter(["a b"]), pattern=name),
    "stages": lambda name: train_tokenizer(iter(["a b"]), vocab_size=258, pattern=["gpt2", name]),
    "compat.tiktoken": lambda name: Encoding(
        "x", pat_str=name, mergeable_ranks={b: i for i, b in enumerate(BYTES)}, special_tokens={}
    ),
    "compat.minbpe": lambda name: minbpe.RegexTokenizer(name).train("a b a b", 257),
}


@pytest.mark.parametrize("enter", ENTRANCES.values(), ids=ENTRANCES)
def test_an_unknown_name_is_never_an_expression(enter: Callable[[str], object]) -> None:
    for name in ("cl100k_bas", "foo.bar", "a"):
        with pytest.raises(ConfigError, match="unknown split pattern") as caught:
            enter(name)
        assert caught.value.hint is not None
        assert NAMES in caught.value.hint
    enter("gpt-2")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train-tokenizer", "count", "encode"])
def test_the_command_line_knows_the_same_names(command: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("2024")
    (tmp_path / "r.tiktoken").write_bytes(rivals.rank_file("cl100k"))
    options = {
        "train-tokenizer": ["text.txt", "-o", "t.json", "--vocab-size", "257"],
        "count": ["text.txt", "-o", "t.counts"],
        "encode": ["-t", "r.tiktoken", "text.txt"],
    }[command]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "bytemill", command, *options, *more]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)

    done = run("--pattern", "gpt44")
    assert (done.returncode, done.stdout) == (1, "")
    assert 'unknown split pattern "gpt44"' in done.stderr
    assert "did you mean cl100k" in done.stderr
    assert "Traceback" not in done.stderr
    done = run("--pattern", "gpt4")
    assert done.returncode == 0, done.stderr
    if command == "encode":
        assert done.stdout.split() == ["2366", "19"]


@pytest.mark.parametrize("command", ["train-tokenizer", "count", "encode", "inspect", "convert"])
def test_help_lists_every_name(command: str) -> None:
    line = [sys.executable, "-m", "bytemill", command, "--help"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert NAMES in " ".join(done.stdout.split())


# --- errors name the source ---------------------------------------------------------------------

BAD = ["(unclosed", "[z-a]", r"(a)\2", "cl100k_base", "gpt2", "name", r"(?:(?:ab){1000}){1000}"]


@pytest.mark.parametrize("regex", BAD)
def test_a_bad_pattern_in_a_file_is_a_fault_of_the_file(regex: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    small(r"\S+|\s+").save(file)
    content = json.loads(file.read_text())
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex
    file.write_text(json.dumps(content))
    model = tmp_path / "x.model"
    model.write_text(f"minbpe v1\n{regex}\n0\n")
    for path in (file, model):
        for load in (Tokenizer.load, Tokenizer.from_pretrained):
            with pytest.raises(TokenizerError) as caught:
                load(path)
            assert caught.value.message.startswith(f"{path}: ")
    with pytest.raises(TokenizerError, match="split pattern"):
        minbpe.RegexTokenizer().load(str(model))


def test_a_bad_pattern_in_a_configuration_is_a_fault_of_it(tmp_path: Path) -> None:
    (tmp_path / "x.tiktoken").write_bytes(rivals.rank_file("cl100k"))
    config = tmp_path / "tokenizer_config.json"
    for regex in ("(unclosed", "name"):
        config.write_text(json.dumps({"pat_str": regex}))
        with pytest.raises(TokenizerError, match="split pattern") as caught:
            Tokenizer.from_pretrained(tmp_path)
        assert caught.value.message.startswith(f"{config}: ")


def test_a_bad_pattern_of_the_caller_is_an_option(tmp_path: Path) -> None:
    file = tmp_path / "x.tiktoken"
    file.write_bytes(rivals.rank_file("cl100k"))
    with pytest.raises(ConfigError, match="invalid split pattern"):
        Tokenizer.load(file, pattern="(unclosed")
    made = train_tokenizer(iter(["low lower"]), vocab_size=258)
    made.save(tmp_path, format="gpt2")
    with pytest.raises(ConfigError, match="unknown split pattern"):
        Tokenizer.load(tmp_path, pattern="name")


@pytest.mark.parametrize("regex", ["name", r"(a)(?(1)b|c)"])
def test_a_bad_pattern_of_a_live_object_is_a_fault_of_it(regex: str) -> None:
    ranks = {byte: i for i, byte in enumerate(BYTES)}
    tiktoken = pytest.importorskip("tiktoken")
    encoding = tiktoken.Encoding("x", pat_str=regex, mergeable_ranks=ranks, special_tokens={})
    with pytest.raises(TokenizerError, match="split pattern"):
        Tokenizer.from_tiktoken(encoding)
    with pytest.raises(TokenizerError, match="split pattern"):
        Tokenizer.from_huggingface(cutting_at({"Regex": regex}))


def test_a_literal_text_of_a_file_may_read_like_a_name() -> None:
    assert Tokenizer.from_huggingface(cutting_at({"String": "gpt2"})).pattern == "(?:gpt2)"


def cutting_at(pattern: dict[str, str]) -> Any:
    """A live Hugging Face tokenizer of the bytes alone that cuts text by `pattern`."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    options = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    steps = [split, {"type": "ByteLevel", **options}]
    content = {
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(alphabet)}, "merges": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
    }
    return tokenizers.Tokenizer.from_str(json.dumps(content))


# --- costly expressions ---------------------------------------------------------------------------


# Deadlines are in processor time, so they do not depend on the load of the machine.
START = """
    import resource, signal, sys, time
    import bytemill

    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
"""
ENCODES = r"""
    tokenizer = bytemill.Tokenizer.load(sys.argv[1])
    text = "a" * int(sys.argv[2])
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_batch([text])):
        try:
            encode(text)
        except bytemill.TokenizerError as error:
            print(error.message)
"""


def run_child(code: str, *arguments: object) -> str:
    code = textwrap.dedent(START) + textwrap.dedent(code)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@POSIX
@pytest.mark.timeout(120)
@pytest.mark.parametrize("n", [100_000, 1_000_000])
@pytest.mark.parametrize("regex", [r"(?=(a+))\1b", r"(a+)+\1b", r"(?<=b[^c]*)a", r"[^\n]*x|."])
def test_a_costly_expression_of_a_file_is_an_error(regex: str, n: int, tmp_path: Path) -> None:
    small(regex).save(tmp_path / "tokenizer.json")
    lines = run_child(ENCODES, tmp_path / "tokenizer.json", n).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "fails at byte" in line
        assert "steps" in line


@POSIX
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_costly_expression_on_a_hundred_megabytes(tmp_path: Path) -> None:
    small(r"(?=(a+))\1b").save(tmp_path / "tokenizer.json")
    printed = run_child(ENCODES, tmp_path / "tokenizer.json", 100_000_000)
    assert printed.count("fails at byte") == 2


INTERRUPTED = r"""
    # Half a thousand steps for each byte, which is allowed, and not one match: one long search.
    pattern, text = r"(?=(a{1500}))\1b", "a" * 20_000_000
    tokenizer = bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], pattern=pattern)
    work = {
        "encode": lambda: tokenizer.encode(text),
        "batch": lambda: tokenizer.encode_batch([text] * 3),
        "offsets": lambda: tokenizer.encode_with_offsets(text),
        "count": lambda: bytemill.count_corpus(iter([text]), pattern=pattern),
    }["HOW"]
    signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1)
    began = time.process_time()
    try:
        work()
    except KeyboardInterrupt:
        print(time.process_time() - began)
"""


@pytest.mark.slow
@POSIX
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["encode", "batch", "offsets", "count"])
def test_ctrl_c_inside_a_match(how: str) -> None:
    assert float(run_child(INTERRUPTED.replace("HOW", how))) < 2
