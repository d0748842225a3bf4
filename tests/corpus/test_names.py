"""Names of sources: no credentials anywhere, and any bytes that a file system allows."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill import Corpus
from bytemill.corpus import places, remote
from bytemill.corpus.names import local_path, redacted, shown
from command_line import Result, ok, run

RECORDS = "".join(json.dumps({"text": f"record {n}, é"}) + "\n" for n in range(300)).encode()
SECRETS = ("hunter2", "s1gnature", "t0ken", "cr3dential")


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("https://host/a.txt?part=7", "https://host/a.txt?part=7"),
        ("https://me:hunter2@host:80/a.txt", "https://***@host:80/a.txt"),
        ("ftp://t0ken@host/a", "ftp://***@host/a"),
        ("https://me:hun@ter2@host/a", "https://***@host/a"),
        (
            "https://b.s3.amazonaws.com/a.jsonl?X-Amz-Credential=cr3dential%2F2024&X-Amz-Signature=s1",
            "https://b.s3.amazonaws.com/a.jsonl?X-Amz-Credential=***&X-Amz-Signature=***",
        ),
        ("http://h/a?AWSAccessKeyId=x&Signature=y&Expires=1", "http://h/a?AWSAccessKeyId=***&Signature=***&Expires=***"),
        ("https://a.blob.core.windows.net/c/a?sv=2&se=3&sig=s1%3D", "https://a.blob.core.windows.net/c/a?sv=***&se=***&sig=***"),
        ("https://h/a?access_token=t0ken&tokenizer=gpt2", "https://h/a?access_token=***&tokenizer=gpt2"),
        ("https://h/a?author=b&key=k&api_key=x#top", "https://h/a?author=b&key=***&api_key=***#top"),
        ("simplecache::https://me:pw@h/a?token=t0ken", "simplecache::https://***@h/a?token=***"),
        ("zip://x.txt::http://h/a.zip?sig=s1", "zip://x.txt::http://h/a.zip?sig=***"),
        ("https://p/?url=https%3A%2F%2Fh%2Fa%3Fsig%3Ds1%26n%3D1", "https://p/?url=https%3A%2F%2Fh%2Fa%3Fsig%3D***%26n%3D1"),
        ("abfs://container@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net/a"),
        ("hf://datasets/me/data@main/a.txt", "hf://datasets/me/data@main/a.txt"),
        ("user@host: what?key=x", "user@host: what?key=x"),
        ("403, url='http://u:p@h/x?sig=s1'", "403, url='http://***@h/x?sig=***'"),
    ],
)  # fmt: skip
def test_credentials_of_urls_are_redacted(url: str, clean: str) -> None:
    assert redacted(url) == clean
    assert redacted(clean) == clean


class _Server(http.server.SimpleHTTPRequestHandler):
    """Serves ranges of files; refuses requests if told to."""

    refuses = 0

    def do_GET(self) -> None:
        if self.refuses:
            self.send_error(self.refuses)
            return
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.send_response(206 if wanted else 200)
        if wanted:
            data = data[int(wanted[1]) : int(wanted[2]) + 1]
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of `tmp_path/web`, with user and password."""
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(remote, "FIRST_WAIT", 0.01)
    web = tmp_path / "web"
    web.mkdir()
    (web / "a.jsonl").write_bytes(RECORDS)
    (web / "b.jsonl.gz").write_bytes(gzip.compress(RECORDS))
    _Server.refuses = 0
    handler = lambda *a, **k: _Server(*a, directory=str(web), **k)  # noqa: E731
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://me:hunter2@127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def no_secrets(*places: Path | Result) -> None:
    """None of the secrets is in these files or streams."""
    for place in places:
        if isinstance(place, Path):
            for path in [place, *place.rglob("*")]:
                data = path.read_bytes() if path.is_file() else os.fsencode(path)
                assert not [secret for secret in SECRETS if secret.encode() in data], path
        else:
            assert not [secret for secret in SECRETS if secret in place.text + place.said]


def signed(base: str, name: str, signature: str = "s1gnature") -> str:
    return (
        f"{base}/{name}?X-Amz-Credential=cr3dential%2Faws&X-Amz-Signature={signature}&token=t0ken"
    )


@pytest.mark.filterwarnings("ignore")  # of aiohttp, about its own sessions
def test_credentials_are_nowhere(
    served: str, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    tokenizer.save(tmp_path / "t.json")
    for name in ("a.jsonl", "b.jsonl.gz"):
        url = signed(served, name)
        out = tmp_path / f"tokens-{name}"
        # The query does not hide what the file is.
        results = [
            ok("encode", url, "-t", tmp_path / "t.json", "-o", out, "--json"),
            ok("count", url, "-o", tmp_path / f"{name}.counts"),
            ok("count", url, "-o", tmp_path / "dry.counts", "--dry-run"),
            ok("compare", tmp_path / "t.json", url, "--json"),
            ok("verify", out, "-t", tmp_path / "t.json", "--source", url),
        ]
        no_secrets(*results, out, tmp_path / f"{name}.counts")
        source = bytemill.Tokens(out).manifest["sources"][0]
        assert source["path"].startswith("http://***@127.0.0.1")
        assert "X-Amz-Signature=***" in source["path"]
        assert len(bytemill.Tokens(out).documents) == 300
        # With a new signature, it is the same source.
        again = signed(served, name, "another")
        ok("encode", again, "-t", tmp_path / "t.json", "-o", out, "--resume")
    assert "hunter2" not in repr(Corpus(served))


@pytest.mark.filterwarnings("ignore")
def test_errors_contain_no_credentials(served: str, tmp_path: Path) -> None:
    count = ("count", "-o", tmp_path / "a.counts")
    missing = run(*count, signed(served, "missing.jsonl"))
    assert missing.code == 1
    assert "no such file" in missing.said
    (tmp_path / "web" / "bad.jsonl").write_bytes(b"not json\n")
    bad = run(*count, signed(served, "bad.jsonl"))
    assert "not JSON" in bad.said
    _Server.refuses = 403
    refused = run(*count, signed(served, "a.jsonl"))
    assert "the server answered 403" in refused.said
    assert "expired" in refused.said
    _Server.refuses = 503
    broken = run(*count, signed(served, "a.jsonl"), "--json")
    assert "the server answered 503" in broken.events[-1]["message"]
    gone = run(*count, "http://me:hunter2@127.0.0.1:9/a?sig=s1gnature")
    unknown = run(*count, "nonsense://me:hunter2@host/a?sig=s1gnature")
    for result in (missing, bad, refused, broken, gone, unknown):
        assert result.code == 1
        assert "Traceback" not in result.said
        no_secrets(result)
    # What a user of the library sees, chained exceptions included.
    _Server.refuses = 403
    with pytest.raises(bytemill.CorpusError) as caught:
        bytemill.count_corpus(signed(served, "a.jsonl"))
    import traceback

    told = "".join(traceback.format_exception(caught.value))
    # The source lines of a traceback hold no values.
    assert not [secret for secret in SECRETS if secret in told]
    _Server.refuses = 0


@pytest.mark.filterwarnings("ignore")
def test_an_interrupted_count_resumes_with_a_newly_signed_url(served: str, tmp_path: Path) -> None:
    from bytemill import count_to_file
    from bytemill.engines import Local

    output = tmp_path / "a.counts"
    partial = tmp_path / "a.counts.partial"
    urls = [signed(served, "a.jsonl"), signed(served, "b.jsonl.gz")]
    stopped = []

    def stop(event: bytemill.ProgressEvent) -> None:
        stopped.append(event)
        if list(partial.glob("*.counts")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_to_file(urls, output, engine=Local(unit_size=1000), progress=stop)
    kept = {path: path.stat().st_mtime_ns for path in partial.glob("*.counts")}
    no_secrets(partial)
    again = [signed(served, "a.jsonl", "another"), signed(served, "b.jsonl.gz", "another")]

    def watch(event: bytemill.ProgressEvent) -> None:
        if event.phase == "count":
            assert all(path.stat().st_mtime_ns == changed for path, changed in kept.items())

    counts = count_to_file(again, output, engine=Local(unit_size=1000), resume=True, progress=watch)
    assert dict(counts) == dict(bytemill.count_corpus(again))


def test_a_query_does_not_hide_the_format() -> None:
    for url, part in [
        ("https://h/a.jsonl.gz?sig=a.b", "https://h/a.jsonl.gz"),
        ("simplecache::https://h/a.csv?x=1", "https://h/a.csv"),
        ("zip://inner.txt::s3://b/a.zip", "zip://inner.txt"),
        ("s3://b/a?.txt", "s3://b/a?.txt"),
    ]:
        assert places._telling_part(url) == part


# --- names that are not UTF-8 ---------------------------------------------------------------------


def test_names_that_are_not_text_round_trip() -> None:
    for path in ("a b/%41.txt", "é.txt", os.fsdecode(b"d\xff/\xe9%.txt")):
        name = shown(path)
        assert name.encode()
        assert (local_path(name) if name.startswith("file:") else name) == path


ODD = b"\xff\xe9 \x80.txt"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_file_names_that_are_not_utf8(tmp_path: Path) -> None:
    """One such file must not make its directory unreadable."""
    data = os.fsencode(tmp_path / "data")
    os.makedirs(data + b"/d\xfe")
    contents = {
        b"a.txt": b"first text. " * 50,
        ODD: b"second text. " * 50,
        b"d\xfe/\xff.jsonl": RECORDS,
        b"z\xff.jsonl.gz": gzip.compress(RECORDS),
    }
    for name, content in contents.items():
        with open(data + b"/" + name, "wb") as file:
            file.write(content)
    folder = tmp_path / "data"
    tokenizer, out = tmp_path / "t.json", tmp_path / "tokens"
    ok("train-tokenizer", folder, "-o", tokenizer, "--vocab-size", 300)
    ok("count", folder, "-o", tmp_path / "a.counts")
    ok("encode", folder, "-t", tokenizer, "-o", out)
    ok("encode", folder, "-t", tokenizer, "-o", out, "--resume")
    ok("verify", out, "-t", tokenizer, "--source", folder)
    ok("compare", tokenizer, folder)
    assert "%FF%E9%20%80.txt" in ok("count", folder, "-o", tmp_path / "b", "--dry-run").text
    # Names are deterministic, lossless, and usable as a corpus.
    names = [source["path"] for source in bytemill.Tokens(out).manifest["sources"]]
    assert names == [shown(path) for path in sorted(map(os.fsdecode, _below(data)))]
    assert [entry.path for entry in Corpus(names).entries()] == [
        entry.path for entry in Corpus(folder).entries()
    ]
    # The file given by name; and the name in an error.
    named = os.fsdecode(data + b"/" + ODD)
    ok("encode", named, "-t", tokenizer, "-o", tmp_path / "one")
    with open(data + b"/bad\xff.jsonl", "wb") as file:
        file.write(b"not json\n")
    bad = run("count", folder, "-o", tmp_path / "c.counts")
    assert bad.code == 1
    assert "bad%FF.jsonl: line 1" in bad.said


def _below(folder: bytes) -> Iterator[bytes]:
    for directory, _, files in os.walk(folder):
        for file in files:
            yield os.path.join(directory, file)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_tables_whose_names_are_not_utf8(tmp_path: Path) -> None:
    pyarrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": ["one", "two"]})
    parquet.write_table(table, tmp_path / "a")
    with pyarrow.ipc.new_file(tmp_path / "b", table.schema) as writer:
        writer.write_table(table)
    with pyarrow.ipc.new_stream(tmp_path / "c", table.schema) as writer:
        writer.write_table(table)
    folder = os.fsencode(tmp_path)
    for old, new in ((b"a", b"\xff.parquet"), (b"b", b"\xff.arrow"), (b"c", b"\xff.arrows")):
        os.rename(folder + b"/" + old, folder + b"/" + new)
    assert bytemill.count_corpus(tmp_path).bytes_read == 18
