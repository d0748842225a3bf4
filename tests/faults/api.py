"""Readers that no command uses: calls of the Python interface, named as commands are.

api compat-minbpe area/a.model
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(name: str, path: str) -> int:
    """Makes a call; bytemill's errors are reported as on the command line."""
    from bytemill import BytemillError

    try:
        CALLS[name](Path(path))
    except (BytemillError, OSError, MemoryError) as error:
        print(f"error: {error or 'out of memory'}", file=sys.stderr)
        return 1
    return 0


def _tokens(path: Path) -> None:
    from bytemill import Tokens

    with Tokens(path, split="train") as tokens:
        for document in tokens.documents:
            len(document)
        tokens[len(tokens) // 2 :].sum()


def _counts(path: Path) -> None:
    from bytemill import Counts

    Counts.load(path).top(3)


def _minbpe(path: Path) -> None:
    from bytemill.compat.minbpe import RegexTokenizer

    tokenizer = RegexTokenizer()
    tokenizer.load(str(path))
    tokenizer.encode("Hello, world", allowed_special="all")


def _checkpoint(path: Path) -> None:
    from bytemill.lm import load_checkpoint

    load_checkpoint(path)


def _serve(path: Path) -> None:
    """Requests everything that the web app finds; a failure of the server is raised here."""
    from starlette.testclient import TestClient

    from bytemill.serve import Settings, make_app

    with TestClient(make_app(Settings(paths=[path])), base_url="http://127.0.0.1") as client:

        def get(place: str) -> None:
            assert client.get(place).status_code in (200, 400, 404)

        found = client.get("/api/catalog").json()
        for entry in found["tokenizers"]:
            if entry["kind"] != "encoding":
                get(f"/api/tokenizers/{entry['id']}")
                get(f"/api/tokenizers/{entry['id']}/tokens/260")
                body = {"tokenizer": entry["id"], "text": "Hello, world"}
                assert client.post("/api/tokenize", json=body).status_code in (200, 400, 404)
        for run in found["runs"]:
            get(f"/api/runs/{run['id']}")
            get(f"/api/runs/{run['id']}/metrics")
            get(f"/runs/{run['id']}/report")
        get("/api/differences?runs=" + ",".join(run["id"] for run in found["runs"]))
        for sweep in found["sweeps"]:
            get(f"/api/sweeps/{sweep['id']}")
        get("/v1/models")


CALLS = {
    "tokens": _tokens,
    "counts": _counts,
    "compat-minbpe": _minbpe,
    "checkpoint": _checkpoint,
    "serve": _serve,
}
