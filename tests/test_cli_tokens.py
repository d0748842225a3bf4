"""`bytemill encode -o`, `verify` and `decode` of directories of tokens."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import bytemill
from bytemill import Tokens
from command_line import ok, run

EOT = "<|endoftext|>"
TEXTS = [f"the cat sat{EOT}on the mat".encode(), b"", "naïve \xff".encode() + b"\xfe", EOT.encode()]


@pytest.fixture(scope="module")
def saved(tokenizer: bytemill.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(path)
    return path


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of sources in the working directory."""
    monkeypatch.chdir(tmp_path)
    folder = Path("data")
    folder.mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"{number}.txt").write_bytes(text)
    return folder


def test_there_and_back(data: Path, saved: Path) -> None:
    result = ok("encode", data, "-t", saved, "-o", "tokens/", "--shard-tokens", 5)
    assert result.data == b""
    tokens = Tokens("tokens")
    n = sum(len(source.read_bytes()) for source in data.iterdir())
    assert f"{len(tokens):,} tokens in 5 documents (uint16) from {n} bytes" in result.said
    assert "next    bytemill verify tokens" in result.said
    assert tokens.manifest["shard_tokens"] == 5
    assert ok("decode", "tokens/", "-t", saved).data == b"".join(TEXTS)
    ok("decode", "tokens", "-t", saved, "-o", "text.txt")
    assert Path("text.txt").read_bytes() == b"".join(TEXTS)
    assert "--overwrite" in run("decode", "tokens", "-t", saved, "-o", "text.txt").said
    ok("decode", "tokens", "-t", saved, "-o", "text.txt", "--overwrite")
    result = ok("verify", "tokens")
    assert result.data == b""
    assert "whole   tokens: as its manifest says\n" in result.said
    result = ok("verify", "tokens", "-t", saved, "--source", data)
    assert "equal to its source" in result.said
    assert ok("verify", "tokens", "--quiet").said == ""


def test_every_option(data: Path, saved: Path, tokenizer: bytemill.Tokenizer) -> None:
    ok("encode", data / "0.txt", "data/[12].txt", data / "3.txt", "-t", saved, "-o", "a",
       "--format", "npy", "--dtype", "uint32", "--no-append-eot", "--eot", EOT, "--val-fraction",
       0.5, "--shuffle", "--seed", 9, "--threads", 2, "-q")  # fmt: skip
    tokenizer.encode_files(
        [data / f"{number}.txt" for number in range(4)], "b", format="npy", dtype=np.uint32,
        append_eot=False, val_fraction=0.5, shuffle=True, seed=9,
    )  # fmt: skip
    for path in Path("a").iterdir():
        assert path.read_bytes() == Path("b", path.name).read_bytes()
    assert {path.name for path in Path("a").iterdir()} == {
        "manifest.json", "train.npy", "train.docs.npy", "val.npy", "val.docs.npy",
    }  # fmt: skip
    both = [ok("decode", "a", "-t", saved, "--split", name).data for name in ("train", "val")]
    assert sum(map(len, both)) == sum(map(len, TEXTS))


def test_json(data: Path, saved: Path, tokenizer: bytemill.Tokenizer) -> None:
    result = ok("encode", data, "-t", saved, "-o", "tokens", "--json", "--val-fraction", 0.4)
    shown = result.json
    assert shown.pop("seconds") >= 0
    assert shown == {
        "tokens": "tokens",
        "format": "shards",
        "dtype": "uint16",
        "bytes": sum(map(len, TEXTS)),
        "file_bytes": sum(map(len, TEXTS)),
        "splits": {
            name: {"tokens": len(part), "documents": len(part.documents)}
            for name in ("train", "val")
            for part in [Tokens("tokens", name)]
        },
        "skipped": {},
        "skipped_files": [],
        "fingerprint": tokenizer.fingerprint,
    }
    assert all(event["phase"] == "encode" for event in result.events)
    assert ok("verify", "tokens", "--json").json == {"tokens": "tokens", "problems": []}


def test_from_stdin(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ok("encode", "-", "-t", saved, "-o", "tokens", stdin=TEXTS[0])
    assert ok("decode", "tokens", "-t", saved).data == TEXTS[0]


def test_resume_and_overwrite(data: Path, saved: Path) -> None:
    command = ["encode", data, "-t", saved, "-o", "tokens", "-q"]
    ok(*command, "--resume")
    ok(*command, "--resume")
    result = run(*command)
    assert result.code == 1
    assert "tokens: exists already" in result.said
    assert "hint: --overwrite replaces it" in result.said
    ok(*command, "--overwrite", "--format", "bin")
    assert sorted(os.listdir("tokens")) == ["manifest.json", "tokens.bin", "tokens.docs.npy"]
    result = run(*command, "--resume")
    assert (result.code, "other options" in result.said) == (1, True)


def test_what_is_wrong_is_listed(data: Path, saved: Path) -> None:
    ok("encode", data, "-t", saved, "-o", "tokens", "-q", "--shard-tokens", 4)
    first, second = Path("tokens/shard-00000.npy"), Path("tokens/shard-00001.npy")
    first.write_bytes(first.read_bytes()[:-1] + b"\xff")
    second.unlink()
    result = run("verify", "tokens", "-q")
    assert result.code == 1
    lines = result.text.splitlines()
    assert any(line.startswith("shard-00000.npy: the checksum") for line in lines)
    assert any(line.startswith("shard-00000.npy: 65") for line in lines)
    assert any(line.startswith("shard-00001.npy: ") for line in lines)
    result = run("verify", "tokens", "--json")
    assert (result.code, result.json["problems"]) == (1, lines)
    result = run("decode", "tokens", "-t", saved)
    assert (result.code, "shard-00001.npy: missing" in result.said) == (1, True)


@pytest.mark.parametrize(
    ("line", "code", "named"),
    [
        ("encode -t T -o new", 2, "needs a corpus"),
        ("encode data -t T -o new --format ids", 2, "goes without -o"),
        ("encode data/0.txt -t T --format shards", 2, "goes with -o"),
        ("encode data/0.txt data/1.txt -t T", 2, "one text"),
        ("encode data/0.txt -t T --shuffle", 2, "--shuffle is for -o"),
        ("encode data/0.txt -t T --shard-tokens 9", 2, "--shard-tokens is for -o"),
        ("encode data -t T -o new --special none", 2, "--special is for stdout"),
        ("encode data -t T -o new --resume --overwrite", 2, "contradicts"),
        ("encode - -t T -o new --resume", 2, "stdin"),
        ("encode data -t T -o new --val-fraction 2", 2, "--val-fraction"),
        ("encode data -t T -o new.bin", 1, "directory"),
        ("encode data -t T -o data", 1, "lies in the directory"),
        ("encode data -t T -o missing/new", 1, "missing/new"),
        ("encode missing -t T -o new", 1, "missing"),
        ("encode data -t T -o tokens", 1, "exists already"),
        ("encode data -t T -o new --eot <x>", 1, "not a special token"),
        ("verify missing", 1, "missing"),
        ("verify data", 1, "no manifest.json"),
        ("verify tokens --source data", 2, "needs --tokenizer"),
        ("verify tokens -t U", 1, "made with the tokenizer"),
        ("decode tokens -t U", 1, "made with the tokenizer"),
        ("decode tokens -t T --split val", 1, "no split 'val'"),
        ("decode data -t T", 1, "no manifest.json"),
        ("decode data/0.txt -t T --split val", 2, "--split is for"),
    ],
)
def test_failures(data: Path, saved: Path, line: str, code: int, named: str) -> None:
    ok("encode", data, "-t", saved, "-o", "tokens", "-q")
    ok("train-tokenizer", data / "0.txt", "-o", "other.json", "--vocab-size", 258, "-q")
    words = {"T": saved, "U": "other.json"}
    result = run(*[words.get(word, word) for word in line.split()])
    assert (result.code, named in result.said) == (code, True), result.said
    assert "Traceback" not in result.said
    assert not Path("new/manifest.json").exists()
