"""The web app for tests: a client, and files to serve."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx2")

from starlette.testclient import TestClient

import bytemill
from bytemill.serve import Settings, catalog, make_app

TEXT = (
    "the cat sat on the mat; the hat of the cat. " * 20
    + "naïve café — 12,345 straße\n" * 5
    + "def function(argument): return other_argument\n" * 9
)


def client(*paths: Path, **settings: Any) -> TestClient:
    """A client of the app over `paths`; a context manager, which ends the app."""
    app = make_app(Settings(paths=paths, port=80, **settings))
    return TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)


@contextlib.contextmanager
def running(*paths: Path, **settings: Any) -> Iterator[str]:
    """Serves `paths` on a local port; yields the address."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        app = make_app(Settings(paths=paths, port=port, **settings))
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=2)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


def until(true: Any, seconds: float = 30.0) -> None:
    """Waits until a call returns true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def scan_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the server scan for files at every request."""
    monkeypatch.setattr(catalog, "RESCAN_SECONDS", 0)
    monkeypatch.setattr(catalog, "RESCAN_PAUSE", 0)


def small_tokenizer(vocab_size: int = 300) -> bytemill.Tokenizer:
    """A tokenizer of some text."""
    return bytemill.train_tokenizer(iter([TEXT]), vocab_size=vocab_size)


def error_of(response: Any, status: int) -> str:
    """The message of a refusal with this status."""
    assert response.status_code == status, response.text
    fields = response.json()["error"]
    assert set(fields) == {"message", "hint", "type", "param", "code"}
    return str(fields["message"])
