"""Any request gets an answer that is not a server error, and that contains no file."""

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

# Requests that succeed: method, path, query, body.
VALID: tuple[tuple[str, str, dict[str, bytes], dict[str, Any]], ...] = (
    ("GET", "/api/tokenizers/ID", {}, {}),
    ("GET", "/api/tokenizers/ID/search", {"q": b"6", "by": b"id", "limit": b"5"}, {}),
    ("GET", "/api/tokenizers/ID/search", {"q": b"e2 80", "by": b"hex", "limit": b"5"}, {}),
    ("GET", "/api/tokenizers/ID/tokens/65", {}, {}),
    ("GET", "/api/runs/RUN/metrics", {"after": b"0", "version": b"1"}, {}),
    ("GET", "/api/differences", {"runs": b"RUN,RUN"}, {}),
    ("POST", "/api/tokenize", {}, {"tokenizer": "ID", "text": "the cat", "special": "all"}),
    ("POST", "/api/write", {}, {
        "run": "RUN", "step": "best", "prompt": "a", "max_tokens": 2, "n": 1, "seed": 1,
        "temperature": 0.5, "top_k": 3, "alternatives": 2, "stop": ["x"],
    }),
    ("POST", "/v1/completions", {}, {
        "model": "RUN", "prompt": ["a", [1, 2]], "max_tokens": 2, "n": 1, "seed": 1,
        "top_p": 0.9, "min_p": 0.1, "logprobs": 1, "echo": True, "stop": "x", "stream": False,
    }),
    ("POST", "/v1/chat/completions", {}, {
        "model": "RUN", "messages": [{"role": "user", "content": "hi"}], "stream": True,
    }),
    ("POST", "/tokenize", {}, {"model": "RUN", "prompt": "a"}),
    ("POST", "/detokenize", {}, {"model": "RUN", "tokens": [1, 2]}),
)  # fmt: skip
WRONG_TEXTS = (b"-1", b"1.5", b"1e9", b"x", b"\xc2\xb2", b"%ff", b"9" * 30, b"300-", b"")

WRONG_VALUES: tuple[Any, ...] = (
    ["x"], [None], [-1], [2**70], [[1], "x"], [], {}, "", "x" * 30, -1, 0, 1.5, 1e300, 2**70, True
)  # fmt: skip


@st.composite
def nearly_valid(draw: st.DrawFn) -> tuple[str, str, dict[str, bytes], dict[str, Any]]:
    """A request of `VALID` with one field of its query or body replaced, removed or added."""
    method, path, query, body = draw(st.sampled_from(VALID))
    query, body = dict(query), dict(body)
    if query and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(query)))
        query[name] = draw(st.sampled_from(WRONG_TEXTS) | st.binary(max_size=10))
    elif method == "POST":
        name = draw(st.sampled_from(sorted(body)) | st.sampled_from(FIELDS))
        body.pop(name, None)
        if draw(st.integers(0, 4)):
            body[name] = draw(st.sampled_from(WRONG_VALUES) | anything)
    else:
        path += draw(st.sampled_from(("/", "0", "/..", "²", "%00")) | st.text(max_size=4))
    return method, path, query, body


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
    _check(app, method, path, query, extra, body, complete)


@pytest.mark.slow
@given(nearly_valid())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_requests_with_one_wrong_field_have_an_answer(
    app: Any, request_: tuple[str, str, dict[str, bytes], dict[str, Any]]
) -> None:
    method, path, query, body = request_
    _check(app, method, path, query, [], json.dumps(body), True)


def test_valid_requests_succeed(app: Any) -> None:
    """Otherwise the test above would only fuzz refusals."""
    if "RUN" not in app[1]:
        pytest.skip("torch is not installed")
    statuses = {
        (path, status)
        for method, path, query, body in VALID
        if (status := _check(app, method, path, query, [], json.dumps(body), True)) != 200
    }
    # The model has no chat template.
    assert statuses == {("/v1/chat/completions", 400)}


def _check(
    app: Any,
    method: str,
    path: str,
    query: dict[str, bytes],
    extra: list[tuple[bytes, bytes]],
    body: str | bytes,
    complete: bool,
) -> int:
    """Sends a request, checks what must hold for every answer, and returns its status."""
    asgi, names = app
    for name, id in names.items():
        query = {key: value.replace(name.encode(), id.encode()) for key, value in query.items()}
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
    return status
