"""Vocabularies are downloaded only on request, verified, and stored completely or not at all."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import bytemill
import named
from bytemill import ConfigError, ProgressEvent, TokenizerError, encodings
from bytemill._numbers import size
from bytemill.encodings import downloading, sources
from command_line import ok, run


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`, by path, and records the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        # Bytes after which the connection is closed.
        self.cut: int | None = None
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """A client may close the connection."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/moved"))
            self.end_headers()
            return
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: self.server.cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def small(documents: list[str]) -> named.Small:
    text = " ".join("".join(documents[:9]).split())
    return named.Small(bytemill.train_tokenizer(iter([text]), vocab_size=700, special_tokens=[]))


@pytest.fixture(autouse=True)
def cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: named.Small, server: Server
) -> Iterator[Path]:
    """The user's cache; a small vocabulary is GPT-2's, and the server has it."""
    named.isolate(monkeypatch, tmp_path)
    small.publish(monkeypatch)
    named.forget()
    server.files["/r50k_base.tiktoken"] = small.file
    yield sources.cache_directory()
    named.forget()


def test_a_download_is_stored_and_found(cache: Path, server: Server, small: named.Small) -> None:
    pytest.importorskip("bpe_openai")
    assert bytemill.encodings.available() == ["cl100k_base", "o200k_base", "o200k_harmony"]
    events: list[ProgressEvent] = []
    path = encodings.download("gpt2", mirror=server.url, progress=events.append)
    assert path == cache / "r50k_base.tiktoken"
    assert path.read_bytes() == small.file
    assert [each.name for each in cache.iterdir()] == [path.name]
    assert (events[-1].phase, events[-1].done, events[-1].total) == (
        "download", len(small.file), len(small.file),
    )  # fmt: skip
    assert bytemill.get_encoding("gpt2").token_id("!") == 0
    assert encodings.status(["gpt2"])[0].place == "bytemill's cache"
    # Existing files are not downloaded again; p50k is derived from r50k.
    for name in ("gpt2", "r50k_base", "p50k_edit"):
        assert encodings.download(name, mirror=f"{server.url}/") == path
    assert server.asked == ["/r50k_base.tiktoken"]


def test_a_damaged_file_in_the_cache_is_replaced(
    cache: Path, server: Server, small: named.Small
) -> None:
    cache.mkdir(parents=True)
    path = cache / "r50k_base.tiktoken"
    path.write_bytes(small.file[:-100])
    encodings.download("gpt2", mirror=server.url)
    assert path.read_bytes() == small.file


def test_the_public_address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def urlopen(url: str, timeout: float) -> None:
        asked.append(url)
        raise TimeoutError("timed out")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    with pytest.raises(TokenizerError, match="cannot be downloaded: timed out") as failure:
        encodings.download("p50k_edit")
    assert asked == ["https://openaipublic.blob.core.windows.net/encodings/p50k_base.tiktoken"]
    assert (failure.value.hint or "").startswith(f"download {asked[0]} on another machine, and set")


def test_nothing_is_stored_when_a_download_fails(
    cache: Path, server: Server, small: named.Small
) -> None:
    url = f"{server.url}/r50k_base.tiktoken"

    def fails(message: str, mirror: str = server.url) -> None:
        with pytest.raises(TokenizerError) as failure:
            encodings.download("r50k_base", mirror=mirror)
        assert failure.value.message.startswith(message)
        assert "BYTEMILL_ENCODINGS" in (failure.value.hint or "")
        assert not cache.exists()

    n_bytes = len(small.file)
    server.files["/r50k_base.tiktoken"] = small.file.replace(b"Ig==", b"Iw==", 1)
    digest = downloading.RANKS["r50k_base"].sha256[:12]
    fails(f"{url}: not the published file: its SHA-256 is not {digest}…")
    server.files["/r50k_base.tiktoken"] = small.file + b"\n"
    fails(f"{url}: not the published file: {n_bytes + 1:,} bytes of {n_bytes:,} were read")
    server.cut = 1000
    fails(f"{url}: not the published file: 1,000 bytes of {n_bytes:,} were read")
    server.files.clear()
    fails(f"{url}: cannot be downloaded: HTTP Error 404: Not Found")
    server.server_close()
    fails(f"{url}: cannot be downloaded: ")
    fails(
        "http://127.0.0.1:x/r50k_base.tiktoken: cannot be downloaded: nonnumeric port: 'x'",
        "http://127.0.0.1:x",
    )


def test_a_server_that_sends_without_end(server: Server, small: named.Small) -> None:
    server.files["/r50k_base.tiktoken"] = bytes(50 << 20)
    with pytest.raises(TokenizerError, match=r"not the published file: [\d,]+ bytes of"):
        encodings.download("r50k_base", mirror=server.url)


def test_redirections_are_followed(cache: Path, server: Server) -> None:
    encodings.download("gpt2", mirror=f"{server.url}/moved")
    assert server.asked == ["/moved/r50k_base.tiktoken", "/r50k_base.tiktoken"]
    assert (cache / "r50k_base.tiktoken").exists()


def test_a_directory_is_a_mirror(cache: Path, tmp_path: Path, small: named.Small) -> None:
    (tmp_path / "r50k_base.tiktoken").write_bytes(small.file)
    encodings.download("gpt2", mirror=tmp_path.as_uri())
    assert (cache / "r50k_base.tiktoken").exists()
    for mirror in (str(tmp_path), "ftp://example.org", ""):
        with pytest.raises(ConfigError, match="mirror must start with https://"):
            encodings.download("gpt2", mirror=mirror)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_an_interruption_leaves_nothing(
    cache: Path, server: Server, error: type[BaseException]
) -> None:
    def interrupt(event: ProgressEvent) -> None:
        raise error("from the caller")

    with pytest.raises(error, match="from the caller"):
        encodings.download("gpt2", mirror=server.url, progress=interrupt)
    assert not cache.exists()


def test_credentials_are_not_shown() -> None:
    mirror = "http://user:secret@127.0.0.1:1"
    with pytest.raises(TokenizerError, match="cannot be downloaded") as failure:
        encodings.download("gpt2", mirror=mirror)
    assert "secret" not in str(failure.value)
    with pytest.raises(ConfigError) as refused:
        encodings.download("gpt2", mirror=mirror.replace("http", "ftp"))
    assert "secret" not in str(refused.value)


def test_without_a_home(cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(ConfigError, match="no home directory\nhint: set XDG_CACHE_HOME"):
        encodings.download("gpt2", mirror=server.url)
    assert server.asked == []


def test_the_command(cache: Path, server: Server, small: named.Small) -> None:
    path = cache / "r50k_base.tiktoken"
    result = ok(
        "encodings", "--download", "gpt2", "--download", "r50k_base", "--mirror", server.url
    )
    assert server.asked == ["/r50k_base.tiktoken"]
    assert result.data == b""
    assert f"download  {size(len(small.file))} in " in result.said
    assert result.said.endswith(f"found   gpt2: {path}\nfound   r50k_base: {path}\n")
    assert ok("encode", "-t", "gpt2", stdin=b"!").text == "0\n"
    result = ok("encodings", "--download", "p50k_edit", "--json")
    assert [(each["name"], each["path"]) for each in result.json] == [("p50k_edit", str(path))]


def test_failures_of_the_command(server: Server) -> None:
    result = run("encodings", "--download", "gpt2", "--mirror", f"{server.url}/nothing")
    assert result.code == 1
    assert result.said.startswith(f"error: {server.url}/nothing/r50k_base.tiktoken: cannot be")
    result = run("encodings", "--download", "gpt3")
    assert (result.code, "gpt3" in result.said) == (2, True)
    assert run("encodings", "--mirror", server.url).code == 2
    assert "Traceback" not in result.said
