"""`bytemill serve` as a process: its address, its error messages, and its exit."""

from __future__ import annotations

import errno
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import pytest

import serving
from bytemill import ConfigError, MissingPackageError
from bytemill import serve as package
from bytemill.errors import install_command
from bytemill.serve import server, state
from command_line import run, start

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


@contextmanager
def served(*arguments: Any, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """A server as a process, and its address."""
    env = {k: v for k, v in os.environ.items() if k != "BYTEMILL_API_KEY"} | environment
    process = start("serve", "--port", 0, *arguments, env=env)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode().strip()
        assert line.startswith("http://"), process.stderr.read().decode()  # type: ignore[union-attr]
        yield process, urlsplit(line)
    finally:
        process.kill()
        process.communicate()


def ask(address: Any, path: str, **headers: str) -> tuple[int, Any, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    is_json = response.getheader("content-type") == "application/json"
    return response.status, json.loads(body) if is_json else body, response


@POSIX
@pytest.mark.slow
def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    serving.small_tokenizer().save(tmp_path / "tokenizer.json")
    with served(tmp_path) as (process, address):
        assert address.hostname == "127.0.0.1"
        status, body, response = ask(address, "/api/catalog")
        assert status == 200
        assert f"{tmp_path.name}/tokenizer.json" in [e["name"] for e in body["tokenizers"]]
        assert response.getheader("server") is None
        status, body, _ = ask(address, "/")
        assert status == 200
        assert body.lower().startswith(b"<!doctype html>")
        # An open connection does not delay it.
        with socket.create_connection((address.hostname, address.port)) as idle:
            idle.send(b"GET / HTTP/1.1\r\n")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.decode().splitlines()[-1] == "interrupted"
    assert b"Traceback" not in said


@POSIX
@pytest.mark.slow
def test_it_ends_by_sigterm(tmp_path: Path) -> None:
    with served(tmp_path) as (process, _):
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert b"Traceback" not in said


@pytest.mark.slow
def test_a_key_from_the_environment(tmp_path: Path) -> None:
    with served(tmp_path, BYTEMILL_API_KEY="key-of-environment") as (process, address):
        assert ask(address, "/api/catalog")[0] == 401
        assert ask(address, "/health")[0] == 401
        headers = {"Authorization": "Bearer key-of-environment"}
        assert ask(address, "/api/catalog", **headers)[0] == 200
        status, _, response = ask(address, "/?key=key-of-environment")
        assert status == 303
        cookie = (response.getheader("set-cookie") or "").partition(";")[0]
        assert ask(address, "/", Cookie=cookie)[0] == 200
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"login   add ?key= and the key")


@pytest.mark.slow
def test_headers_that_do_not_arrive(tmp_path: Path) -> None:
    with served(tmp_path) as (_, address):
        where = (address.hostname, address.port)
        with socket.create_connection(where, timeout=60) as slow:
            slow.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            began = time.monotonic()
            assert slow.recv(100) == b""
            assert time.monotonic() - began < server.HEADER_SECONDS + 15
        for data in (b"\x16\x03\x01\x02\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"\r\n" * 100_000):
            strange = socket.create_connection(where, timeout=60)
            with strange, suppress(ConnectionError):
                strange.sendall(data)
                strange.shutdown(socket.SHUT_WR)
                while strange.recv(1000):
                    pass
        assert ask(address, "/api/catalog")[0] == 200


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--host", "0.0.0.0"], 1, "needs a key\nhint: give --api-key, or --insecure"),
        (["--api-key", "short"], 1, "error: --api-key must be ≥ 8 printable ASCII characters"),
        (["--cors", "example.org"], 1, "--cors must be an origin"),
        (["--host", "no such host", "--insecure"], 1, "is not an address of this machine"),
        (["--host", "203.0.113.7", "--insecure"], 1, "hint: give an address of this machine"),
        (["--port", "70000"], 2, "70000"),
        (["none/"], 1, "error: none: no such file or directory"),
    ],
)
def test_refusals(
    arguments: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BYTEMILL_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    result = run("serve", *arguments)
    assert (result.code, result.data) == (code, b"")
    assert said.splitlines()[0] in result.said
    assert said.splitlines()[-1] in result.said


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        result = run("serve", tmp_path, "--port", number)
        assert result.code == 1
        assert f"--port {number} is in use" in result.said or f"port={number} is" in result.said
        assert "0 takes any that is free" in result.said
        # Without a port, the next that is free.
        monkeypatch.setattr(server, "DEFAULT_PORT", number)
        with server._bound("127.0.0.1", None) as other:
            assert other.getsockname()[1] > number
        monkeypatch.setattr(server, "N_PORTS", 1)
        with pytest.raises(ConfigError, match="in use"):
            server._bound("127.0.0.1", None)


def test_a_port_that_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(ConfigError, match="port=80 may not be used"):
        server._bound("127.0.0.1", 80)


def test_addresses_for_a_browser() -> None:
    assert server._in_url("0.0.0.0") == "127.0.0.1"
    assert server._in_url("::") == "[::1]"
    assert server._in_url("::1") == "[::1]"
    assert server._in_url("localhost") == "localhost"


def test_the_browser_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []
    monkeypatch.setattr(server.webbrowser, "open", opened.append)

    class Ends(server._Server):
        async def main_loop(self) -> None:
            return

    monkeypatch.setattr(server, "_Server", Ends)
    announced: list[str] = []
    package.serve([tmp_path], port=0, open_browser=True, on_start=announced.append)
    package.serve([tmp_path], port=0, open_browser=True, api_key="a-long-key")
    assert opened[0] == announced[0]
    assert opened[1].endswith("/?key=a-long-key")


def test_the_typed_keywords_are_the_settings() -> None:
    hints = get_type_hints(state.Settings)
    assert hints.keys() - {"paths", "port"} == get_type_hints(state.OtherSettings).keys()
    assert get_type_hints(state.OtherSettings).items() <= hints.items()


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: Any) -> Any:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(MissingPackageError) as failure:
        package.make_app  # noqa: B018
    assert failure.value.hint == install_command("serve")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018
    assert dir(package) == ["Settings", "make_app", "serve"]
