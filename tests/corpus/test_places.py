"""Corpora at URLs, in datasets and from generators; killed work on any of them resumes."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bytemill
import soak_tokens
from bytemill import Corpus
from bytemill.corpus import places, remote
from bytemill.errors import install_command

fsspec: Any = pytest.importorskip("fsspec")
datasets: Any = pytest.importorskip("datasets")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TEXTS = [f"text number {n} of some words, é" for n in range(400)]
COUNTS = dict(bytemill.count_corpus(iter(TEXTS)))
RECORDS = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()


def files(folder: Path) -> dict[str, bytes]:
    parquet.write_table(pyarrow.table({"text": TEXTS}), folder / "c.parquet", row_group_size=50)
    written = {"a.jsonl": RECORDS, "b.jsonl.gz": gzip.compress(RECORDS)}
    for name, data in written.items():
        (folder / name).write_bytes(data)
    return written | {"c.parquet": (folder / "c.parquet").read_bytes()}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    for name, data in files(tmp_path).items():
        system.pipe_file(f"/data/{name}", data)
    yield system
    system.store.clear()


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "c.parquet"])
def test_remote_files(
    memory: Any, name: str, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    url = f"memory://data/{name}"
    assert dict(bytemill.count_corpus(url)) == COUNTS
    tokens = tokenizer.encode_files(url, tmp_path / "tokens")
    tokens.verify(tokenizer, source=url)
    assert b"".join(tokens.decode(tokenizer)) == "".join(TEXTS).encode()
    # The same as from a local file, except for the name.
    tokenizer.encode_files(tmp_path / name, tmp_path / "local")
    for shard in (tmp_path / "local").glob("*.npy"):
        assert (tmp_path / "tokens" / shard.name).read_bytes() == shard.read_bytes()


def test_remote_globs_and_directories(memory: Any) -> None:
    twice = {piece: 2 * n for piece, n in COUNTS.items()}
    assert dict(bytemill.count_corpus("memory://data/*.jsonl*")) == twice
    assert len(Corpus("memory://data").entries()) == 3
    with pytest.raises(bytemill.CorpusError, match="no file matches"):
        bytemill.count_corpus("memory://data/*.txt")
    with pytest.raises(FileNotFoundError):
        bytemill.count_corpus("memory://data/missing.txt")
    with pytest.raises(bytemill.CorpusError, match="nonsense"):
        bytemill.count_corpus("nonsense://data/a.txt")


def test_file_urls(tmp_path: Path) -> None:
    (tmp_path / "with space.jsonl").write_bytes(RECORDS)
    url = (tmp_path / "with space.jsonl").as_uri()
    assert "%20" in url
    assert dict(bytemill.count_corpus(url)) == COUNTS
    assert not places.is_url(url)
    assert places.is_url("s3://bucket/a.txt")
    assert not places.is_url("C:\\corpus.txt")


class _Server(http.server.SimpleHTTPRequestHandler):
    """Serves ranges, and fails now and then."""

    fails: list[int]
    ranges = True

    def do_GET(self) -> None:
        data = Path(self.translate_path(self.path)).read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if self.fails and self.fails.pop():
            self.send_error(503)
            return
        if wanted and self.ranges:
            self.send_response(206)
            data = data[int(wanted[1]) : int(wanted[2]) + 1]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(remote, "FIRST_WAIT", 0.01)
    files(tmp_path)
    _Server.fails, _Server.ranges = [], True
    handler = lambda *a, **k: _Server(*a, directory=str(tmp_path), **k)  # noqa: E731
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.filterwarnings("ignore")  # of aiohttp, about its own sessions
def test_web_servers(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.jsonl", "b.jsonl.gz"):
        # In many small blocks, some of which are requested twice.
        monkeypatch.setattr(remote, "BLOCK", 3000)
        _Server.fails = [1, 0, 1, 0]
        assert dict(bytemill.count_corpus(f"{served}/{name}")) == COUNTS
    _Server.ranges = False
    assert dict(bytemill.count_corpus(f"{served}/a.jsonl")) == COUNTS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "WHOLE", 100)
        with pytest.raises(bytemill.CorpusError, match="may not support range requests"):
            # A range is requested only of a file that is longer than one block.
            remote.find(f"{served}/a.jsonl").__next__()[1].fetch(5, 10)


def test_a_remote_file_that_changes(memory: Any) -> None:
    corpus = Corpus("memory://data/a.jsonl")
    inputs = corpus.inputs()
    memory.pipe_file("/data/a.jsonl", RECORDS + b"\n")
    with pytest.raises(bytemill.CorpusError, match="changed since"):
        list(inputs.texts([], [10**9], 1 << 20))
    file = Corpus("memory://data/b.jsonl.gz").entries()[0].reader
    again = pickle.loads(pickle.dumps(file))
    assert again.read_range(0, 2) == b"\x1f\x8b"


def test_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(bytemill.MissingPackageError, match="needs fsspec") as caught:
        bytemill.count_corpus("s3://bucket/a.txt")
    assert caught.value.hint == install_command("remote")


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(bytemill.MissingPackageError, match="needs pyarrow") as caught:
        bytemill.count_corpus(tmp_path / "c.parquet")
    assert caught.value.hint == install_command("parquet")


# --- datasets, generators -------------------------------------------------------------------------


def test_datasets(tmp_path: Path, tokenizer: bytemill.Tokenizer) -> None:
    rows = {"text": TEXTS, "meta": [{"body": text} for text in TEXTS]}
    dataset = datasets.Dataset.from_dict(rows)
    shuffled = dataset.shuffle(seed=1)
    streamed = dataset.to_iterable_dataset()
    for corpus in (dataset, shuffled, streamed, Corpus(dataset, text_field="meta.body")):
        assert dict(bytemill.count_corpus(corpus)) == COUNTS
    tokens = tokenizer.encode_files(shuffled, tmp_path / "tokens")
    found = [tokenizer.decode(document[:-1]) for document in tokens.documents]
    assert found == shuffled["text"][:]
    assert (
        bytemill.verify_tokens(tmp_path / "tokens", tokenizer, source=shuffled, progress=False)
        == []
    )
    with pytest.raises(bytemill.CorpusError, match="columns are text, meta"):
        bytemill.count_corpus(Corpus(dataset, text_field="body"))
    with pytest.raises(TypeError, match="choose a split"):
        bytemill.count_corpus(datasets.DatasetDict({"train": dataset}))


def test_generators_are_encoded(tmp_path: Path, tokenizer: bytemill.Tokenizer) -> None:
    tokens = tokenizer.encode_files((text for text in TEXTS), tmp_path / "a", shard_tokens=1000)
    (tmp_path / "a.jsonl").write_bytes(RECORDS)
    others = tokenizer.encode_files(tmp_path / "a.jsonl", tmp_path / "b", shard_tokens=1000)
    assert list(tokens) == list(others)
    assert tokens.documents.ends.tolist() == others.documents.ends.tolist()

    def broken() -> Iterator[str]:
        yield "text"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        tokenizer.encode_files(broken(), tmp_path / "c")


# --- killed and resumed ---------------------------------------------------------------------------

WORK = """
import sys
import bytemill
from bytemill import Corpus
from bytemill.engines import Local
tokenizer = bytemill.Tokenizer.load(sys.argv[1])
print("begin", flush=True)
corpus = Corpus(sys.argv[3:], on_error="skip")
tokenizer.encode_files(corpus, sys.argv[2], shard_tokens=5000, resume=True, threads=2,
    engine=Local(unit_size=20_000, block_size=2000), progress=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.timeout(120)
def test_killed_anywhere_and_resumed(
    tmp_path: Path, documents: list[str], tokenizer: bytemill.Tokenizer
) -> None:
    texts = [text[:3000] for text in documents[:120]]
    lines = "".join(json.dumps({"text": text}) + "\nnot json\n" for text in texts).encode()
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "c.parquet", row_group_size=20)
    tokenizer.save(tmp_path / "t.json")
    sources = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl.gz", "c.parquet")]

    def start(out: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WORK, str(tmp_path / "t.json"), str(out), *sources]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        process.stdout.close()
        return process

    process = start(tmp_path / "undisturbed")
    began = time.perf_counter()
    assert process.wait() == 0
    took = time.perf_counter() - began
    midway = 0
    for number in range(6):
        process = start(tmp_path / "disturbed")
        time.sleep(took * (number + 1) / 8)
        process.send_signal(signal.SIGKILL)
        process.wait()
        midway += (tmp_path / "disturbed" / ".partial" / "plan.json").exists()
    assert start(tmp_path / "disturbed").wait() == 0
    assert midway > 0
    whole = soak_tokens.content(tmp_path / "disturbed")
    assert whole == soak_tokens.content(tmp_path / "undisturbed")
    tokens = bytemill.Tokens(tmp_path / "disturbed")
    assert tokens.skipped == {"invalid_json": 2 * len(texts)}
    tokens.verify(tokenizer, source=sources)
