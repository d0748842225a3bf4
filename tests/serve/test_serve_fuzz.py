"""Whatever a client sends: an answer, no failure of the server, no file of the machine."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import serving

SECRET = "a secret that no client may read"
METHODS = ("GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "TRACE", "")
PATHS = (
    "/", "/write", "/runs", "/static/", "/static/..", "/api/catalog", "/api/tokenize",
    "/api/tokenizers/", "/api/tokenizers/ID", "/api/tokenizers/ID/search",
    "/api/tokenizers/ID/tokens/", "/api/tokenizers/ID/tokens/65", "/api/runs/", "/api/runs/RUN",
    "/api/runs/RUN/metrics", "/api/differences", "/api/sweeps/", "/runs/RUN/report", "/api/write",
    "/v1/models", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/health",
)  # fmt: skip
PARTS = ("..", ".", "etc", "passwd", "secret.txt", "ID", "RUN", "%2e%2e", "\0", "tokens", "65", "é")
FIELDS = ("tokenizer", "text", "special", "run", "step", "prompt", "ids", "max_tokens", "model",
          "messages", "n", "stop", "seed", "logprobs", "echo", "stream", "tokens", "temperature",
          "top_k", "top_p", "min_p", "repetition_penalty", "alternatives")  # fmt: skip
QUERY = ("q", "by", "limit", "after", "version", "runs", "key")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The app, with the ids of its tokenizer and run."""
    place = tmp_path_factory.mktemp("fuzz")
    (place / "secret.txt").write_text(SECRET)
    tokenizer = serving.small_tokenizer()
    tokenizer.save(place / "tokenizer.json")
    _add_run(place / "run", tokenizer)
    with serving.client(place, body_seconds=0.05) as client:
        catalog = client.get("/api/catalog").json()
        names = {"ID": next(e["id"] for e in catalog["tokenizers"] if e["kind"] == "file")}
        if catalog["runs"]:
            names["RUN"] = catalog["runs"][0]["id"]
        yield client.app, names
    shutil.rmtree(place)


def _add_run(place: Path, tokenizer: Any) -> None:
    try:
        import small_lm
    except pytest.skip.Exception:
        return
    small_lm.run(place, tokenizer)


def _answer(app: Any, scope: dict[str, Any], messages: list[dict[str, Any]]) -> tuple[int, bytes]:
    sent: list[Any] = []
    left = list(messages)

    async def receive() -> Any:
        if left:
            return left.pop(0)
        await asyncio.sleep(0.2)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asyncio.wait_for(app(scope, receive, send), 60))
    assert sent[0]["type"] == "http.response.start"
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=20) | st.sampled_from(["ID", "RUN", "all", "best", "hi"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
bodies = (
    st.dictionaries(st.sampled_from(FIELDS), anything, max_size=6).map(json.dumps)
    | anything.map(json.dumps)
    | st.binary(max_size=60)
)
paths = st.sampled_from(PATHS) | st.lists(
    st.sampled_from(PARTS) | st.text(max_size=8), max_size=6
).map(lambda parts: "/" + "/".join(parts))
headers = st.lists(
    st.tuples(
        st.sampled_from(
            [b"host", b"origin", b"authorization", b"cookie", b"content-length", b"content-type",
             b"transfer-encoding", b"accept", b"range", b"if-none-match", b"sec-fetch-site"]
        ),
        st.binary(max_size=20) | st.sampled_from([b"127.0.0.1", b"99999999999999", b"Bearer x"]),
    ),
    max_size=4,
)  # fmt: skip


@pytest.mark.slow
@given(
    method=st.sampled_from(METHODS),
    path=paths,
    query=st.dictionaries(st.sampled_from(QUERY), st.binary(max_size=10), max_size=3),
    extra=headers,
    body=bodies,
    complete=st.sampled_from([True, True, True, False]),
)
@example("POST", "/api/tokenize", {}, [], '{"tokenizer": "ID", "text": "\\ud800"}', True)
@example("GET", "/api/tokenizers/ID/search", {"q": b"\xff", "by": b"hex"}, [], "", True)
@example("GET", "/api/tokenizers/ID/search", {"q": b"%ed%a0%80"}, [], "", True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_request_has_an_answer(
    app: Any,
    method: str,
    path: str,
    query: dict[str, bytes],
    extra: list[tuple[bytes, bytes]],
    body: str | bytes,
    complete: bool,
) -> None:
    asgi, names = app
    for name, id in names.items():
        path = path.replace(name, id)
        body = body.replace(f'"{name}"', f'"{id}"') if isinstance(body, str) else body
    data = body.encode("utf-8", "replace") if isinstance(body, str) else body
    given_host = any(name == b"host" for name, _ in extra)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": b"&".join(name.encode() + b"=" + value for name, value in query.items()),
        "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        "headers": extra + ([] if given_host else [(b"host", b"127.0.0.1")]),
    }  # fmt: skip
    message = {"type": "http.request", "body": data, "more_body": not complete}
    status, answer = _answer(asgi, scope, [message])
    assert 200 <= status < 500, (status, answer)
    assert SECRET.encode() not in answer
    assert b"Traceback" not in answer
    assert b"root:" not in answer
    if status >= 400 and method != "HEAD":
        assert json.loads(answer)["error"]["message"]
