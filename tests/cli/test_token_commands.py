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


def test_round_trip(data: Path, saved: Path) -> None:
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
    assert "valid   tokens: matches its manifest\n" in result.said
    result = ok("verify", "tokens", "-t", saved, "--source", data)
    assert "matches its manifest and its source" in result.said
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
        "manifest.json", "tokenizer.json", "train.npy", "train.docs.npy", "val.npy", "val.docs.npy",
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
            for part in [Tokens("tokens", split=name)]
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
    assert sorted(os.listdir("tokens")) == [
        "manifest.json", "tokenizer.json", "tokens.bin", "tokens.docs.npy",
    ]  # fmt: skip
    result = run(*command, "--resume")
    assert (result.code, "other options" in result.said) == (1, True)


def test_verify_lists_every_problem(data: Path, saved: Path) -> None:
    ok("encode", data, "-t", saved, "-o", "tokens", "-q", "--shard-tokens", 4)
    first, second = Path("tokens/shard-00000.npy"), Path("tokens/shard-00001.npy")
    first.write_bytes(first.read_bytes()[:-1] + b"\xff")
    second.unlink()
    result = run("verify", "tokens", "-q")
    assert result.code == 1
    lines = result.text.splitlines()
    assert any(line.startswith("shard-00000.npy: the checksum") for line in lines)
    assert any(line.startswith("shard-00000.npy: id 65") for line in lines)
    assert any(line.startswith("shard-00001.npy: ") for line in lines)
    result = run("verify", "tokens", "--json")
    assert (result.code, result.json["problems"]) == (1, lines)
    result = run("decode", "tokens", "-t", saved)
    assert (result.code, "shard-00001.npy: missing" in result.said) == (1, True)


@pytest.mark.parametrize(
    ("line", "code", "named"),
    [
        ("encode -t T -o new", 2, "needs a corpus"),
        ("encode data -t T -o new --format ids", 2, "omit -o"),
        ("encode data/0.txt -t T --format shards", 2, "--format shards needs -o"),
        ("encode data/0.txt data/1.txt -t T", 2, "one text"),
        ("encode data/0.txt -t T --shuffle", 2, "--shuffle needs -o"),
        ("encode data/0.txt -t T --shard-tokens 9", 2, "--shard-tokens needs -o"),
        ("encode data -t T -o new --special none", 2, "--special applies to stdout"),
        ("encode data -t T -o new --resume --overwrite", 2, "contradicts"),
        ("encode - -t T -o new --resume", 2, "stdin"),
        ("encode data -t T -o new --val-fraction 2", 2, "--val-fraction"),
        ("encode data -t T -o new.bin", 1, "directory"),
        ("encode data -t T -o data", 1, "is in the output directory"),
        ("encode data -t T -o missing/new", 1, "missing/new"),
        ("encode missing -t T -o new", 1, "missing"),
        ("encode data -t T -o tokens", 1, "exists already"),
        ("encode data -t T -o new --eot <x>", 1, "not a special token"),
        ("verify missing", 1, "missing"),
        ("verify data", 1, "no manifest.json"),
        ("train data -o run", 1, "encode it first: bytemill encode data -t tokenizer.json"),
        ("verify tokens --source other.json", 1, "sources were given"),
        ("decode data/0.txt", 2, "-t is required"),
        ("verify tokens -t U", 1, "encoded with the tokenizer"),
        ("decode tokens -t U", 1, "encoded with the tokenizer"),
        ("decode tokens -t T --split val", 1, "no split 'val'"),
        ("decode data -t T", 1, "no manifest.json"),
        ("decode data/0.txt -t T --split val", 2, "--split applies to"),
    ],
)
def test_failures(data: Path, saved: Path, line: str, code: int, named: str) -> None:
    ok("encode", data, "-t", saved, "-o", "tokens", "-q")
    ok("train-tokenizer", data / "0.txt", "-o", "other.json", "--vocab-size", 258, "-q")
    words = {"T": saved, "U": "other.json"}
    result = run(*[words.get(word, word) for word in line.split()])
    assert (result.code, named in result.said + result.text) == (code, True), result.said
    assert "Traceback" not in result.said
    assert not Path("new").exists()


def test_tokens_carry_their_tokenizer(data: Path, tokenizer: bytemill.Tokenizer) -> None:
    """Issue 13, 2: whatever the name and format of the tokenizer file."""
    tokenizer.save("ranks.tiktoken", format="tiktoken")
    ok("encode", data, "-t", "ranks.tiktoken", "--pattern", "gpt2", "--special-token", EOT,
       "-o", "tokens", "-q")  # fmt: skip
    carried = Tokens("tokens").tokenizer
    assert carried is not None
    assert carried.fingerprint == Tokens("tokens").fingerprint
    assert b"".join(Tokens("tokens").decode()) == b"".join(TEXTS)
    assert ok("decode", "tokens").data == b"".join(TEXTS)
    assert "matches its manifest and its source" in ok("verify", "tokens", "--source", data).said
    # The bytes depend neither on threads nor on how the tokens were made.
    ok("encode", data, "-t", "tokens/tokenizer.json", "-o", "again", "-q", "--threads", 1)
    ok("encode", data, "-t", "again", "-o", "again", "-q", "--overwrite")
    for path in Path("tokens").iterdir():
        assert path.read_bytes() == Path("again", path.name).read_bytes()


def test_another_tokenizer_in_a_directory_of_tokens(data: Path, saved: Path) -> None:
    ok("encode", data, "-t", saved, "-o", "tokens", "-q")
    ok("train-tokenizer", data / "0.txt", "-o", "other.json", "--vocab-size", 258, "-q")
    own = Path("tokens/tokenizer.json")
    whole = own.read_bytes()
    own.write_bytes(Path("other.json").read_bytes())
    result = run("verify", "tokens", "-q")
    assert (result.code, result.text.startswith("tokenizer.json: ")) == (1, True)
    assert "not the tokenizer" in run("decode", "tokens").said
    # With the right tokenizer given, the tokens are valid, with or without one in the directory.
    assert ok("decode", "tokens", "-t", saved).data == b"".join(TEXTS)
    own.unlink()
    assert ok("decode", "tokens", "-t", saved).data == b"".join(TEXTS)
    assert "tokenizer.json: " in run("verify", "tokens", "-q").text
    assert "contains no tokenizer" in run("decode", "tokens").said
    own.write_bytes(whole)
    ok("verify", "tokens", "-q")


def test_a_tokenizer_that_has_no_file_is_noted(data: Path, tmp_path: Path) -> None:
    vocab = {number: bytes([number]) for number in range(256)}
    tokenizer = bytemill.Tokenizer(vocab, [], [EOT], pattern="(?m)^a|.|\\n")
    with pytest.warns(UserWarning, match="has no tokenizer.json"):
        tokens = tokenizer.encode_files(data / "0.txt", tmp_path / "tokens")
    assert tokens.tokenizer is None
    assert not (tmp_path / "tokens/tokenizer.json").exists()
    assert b"".join(tokens.decode(tokenizer)) == TEXTS[0]
    tokens.verify(tokenizer, source=data / "0.txt")
    with pytest.raises(bytemill.ConfigError, match="requires the tokenizer"):
        tokens.verify(source=data / "0.txt")


def test_overwrite_deletes_only_files_in_our_manifest(data: Path, saved: Path) -> None:
    """Issue 13, 9."""
    command = ["encode", data, "-t", saved, "-o", "tokens", "-q", "--format", "bin",
               "--val-fraction", 0.5, "--overwrite"]  # fmt: skip
    foreign = {"manifest.json": b'{"shards": ["train.bin"]}', "train.bin": b"a", "val.bin": b"b"}
    for names in (["manifest.json"], ["train.bin"], ["val.bin"], list(foreign)):
        Path("tokens").mkdir(exist_ok=True)
        for name in names:
            Path("tokens", name).write_bytes(foreign[name])
        result = run(*command)
        assert (result.code, "contains files that are not tokens" in result.said) == (1, True)
        assert sorted(os.listdir("tokens")) == sorted(names)
        for name in names:
            assert Path("tokens", name).read_bytes() == foreign[name]
            Path("tokens", name).unlink()
    ok(*command)
    Path("tokens/notes.txt").write_text("mine")
    ok("encode", data, "-t", saved, "-o", "tokens", "-q", "--overwrite")
    assert sorted(os.listdir("tokens")) == [
        "manifest.json", "notes.txt", "shard-00000.docs.npy", "shard-00000.npy", "tokenizer.json",
    ]  # fmt: skip


def test_an_output_that_is_an_input_is_refused(data: Path, saved: Path) -> None:
    """Issue 13, 9: also under another name, through a link."""
    ok("encode", data, "-t", saved, "-o", "tokens", "-q")
    ok("count", data, "-o", "a.counts", "-q")
    os.link(data / "0.txt", "link.json")
    os.symlink(data / "1.txt", "link.counts")
    saved_copy = Path("own.json")
    saved_copy.write_bytes(saved.read_bytes())
    lines = [
        ("decode tokens -o tokens/shard-00000.npy", "tokens/shard-00000.npy"),
        ("decode tokens -o tokens/manifest.json", "tokens/manifest.json"),
        ("decode data/0.txt -t own.json -o data/0.txt", "data/0.txt"),
        ("train-tokenizer data -o data/0.txt", "data/0.txt"),
        ("train-tokenizer data/0.txt -o link.json", "data/0.txt"),
        ("train-tokenizer --counts *.counts -o a.counts", "a.counts"),
        ("count data/*.txt -o data/3.txt", "data/3.txt"),
        ("count data -o link.counts", "data/1.txt"),
        ("convert own.json --to tiktoken -o own.json", "own.json"),
        ("inspect own.json --file data/0.txt --html data/0.txt", "data/0.txt"),
        ("compare own.json data --html own.json", "own.json"),
    ]
    for line, name in lines:
        before = Path(name).read_bytes()
        result = run(*line.split(), "--overwrite")
        assert (result.code, "is an input and would be overwritten" in result.said) == (1, True), (
            line
        )
        assert Path(name).read_bytes() == before
    # Overwriting is allowed where no input would be lost.
    ok("convert", "own.json", "--to", "huggingface", "-o", "own.json", "--overwrite", "-q")
    assert bytemill.Tokenizer.load("own.json") == bytemill.Tokenizer.load(saved)


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_files_that_are_not_regular_do_not_block(data: Path, saved: Path, kind: str) -> None:
    """Issue 13, 19."""
    command = ["encode", data, "-t", saved, "-o", "tokens", "-q"]
    ok(*command)
    ok("count", data, "-o", "a.counts", "-q")
    lines = {
        "tokens/manifest.json": ["verify tokens", "decode tokens", "encode data -t T -o tokens "
                                 "--overwrite", "encode data -t T -o tokens --resume"],
        "tokens/shard-00000.npy": ["verify tokens", "decode tokens"],
        "tokens/shard-00000.docs.npy": ["verify tokens", "decode tokens"],
        "tokens/tokenizer.json": ["verify tokens", "decode tokens",
                                  "inspect tokens/tokenizer.json"],
        "tokens/.partial/plan.json": ["encode data -t T -o tokens --resume"],
        "a.counts": ["train-tokenizer --counts a.counts -o t.json", "count data -o a.counts "
                     "--resume"],
    }  # fmt: skip
    for name, some in lines.items():
        path = Path(name)
        before = path.read_bytes() if path.exists() else None
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "directory":
                path.mkdir()
        for line in some:
            result = run(*[saved if word == "T" else word for word in line.split()])
            assert result.code == 1, (name, line)
            found = result.said + result.text
            assert "regular file" in found or kind == "directory" or "--overwrite" in line, found
            assert "Traceback" not in result.said
        path.rmdir() if kind == "directory" else path.unlink()
        if before is not None:
            path.write_bytes(before)
    os.rmdir("tokens/.partial")
    ok("verify", "tokens", "-q")
