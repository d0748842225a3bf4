"""Hosts, origins and keys that are accepted; limits of requests; security headers."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

# `serving` below skips these tests if a package is missing.
from starlette.websockets import WebSocketDisconnect

import serving
from bytemill.serve import Settings, make_app

KEY = "a-long-secret-key"
PATHS = ("/", "/api/catalog", "/static/tokens.js", "/no/such/path", "/v1/models", "/health")


# --- hosts and origins ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:8300", True),
        ("127.8.9.1:80", True),
        ("localhost:8300", True),
        ("LOCALHOST", True),
        ("localhost.", True),
        ("[::1]:8300", True),
        ("[::1]", True),
        ("evil.example", False),
        ("evil.example:8300", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("192.168.1.5", False),
        ("0.0.0.0", False),
        ("", False),
        ("a@localhost", False),
        ("localhost@evil.example", False),
    ],
)
def test_only_names_of_this_machine(host: str, allowed: bool) -> None:
    with serving.client() as client:
        response = client.get("/api/catalog", headers={"Host": host})
        if allowed:
            assert response.status_code == 200
        else:
            assert "not a name of this server" in serving.error_of(response, 403)


def test_the_host_given_and_all_addresses() -> None:
    with serving.client(host="10.1.2.3", insecure=True) as client:
        assert client.get("/api/catalog", headers={"Host": "10.1.2.3:80"}).status_code == 200
        assert client.get("/api/catalog", headers={"Host": "10.1.2.4:80"}).status_code == 403
    with serving.client(host="0.0.0.0", insecure=True) as client:
        # DNS rebinding needs a name, not an address.
        assert client.get("/api/catalog", headers={"Host": "10.1.2.4:80"}).status_code == 200
        assert client.get("/api/catalog", headers={"Host": "evil.example"}).status_code == 403


def test_two_hosts() -> None:
    headers = [(b"host", b"127.0.0.1"), (b"host", b"evil.example")]
    assert _status(make_app(Settings(paths=[])), headers=headers) == 403
    assert _status(make_app(Settings(paths=[])), headers=[]) == 403


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"Origin": "http://127.0.0.1"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://localhost"}, False),
        ({"Origin": "http://127.0.0.1:81"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, False),
        # A link to the page.
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True),
    ],
)
def test_pages_of_other_sites(headers: dict[str, str], allowed: bool) -> None:
    with serving.client() as client:
        for response in (
            client.get("/api/catalog", headers=headers),
            client.post("/api/tokenize", headers=headers, content="{}"),
        ):
            assert (response.status_code != 403) == allowed
            assert "access-control-allow-origin" not in response.headers


def test_cors_only_if_asked_for() -> None:
    preflight = {"Origin": "https://mine.example", "Access-Control-Request-Method": "POST"}
    with serving.client() as client:
        assert client.options("/v1/completions", headers=preflight).status_code == 403
    with serving.client(cors=["https://mine.example"], api_key=KEY) as client:
        # A preflight carries no key; OpenAI's client in a browser announces headers of its own.
        preflight["Access-Control-Request-Headers"] = "authorization,content-type,x-stainless-os"
        response = client.options("/v1/completions", headers=preflight)
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "https://mine.example"
        assert "access-control-allow-credentials" not in response.headers
        headers = {"Origin": "https://mine.example"}
        # The page may read why it was refused.
        response = client.get("/api/catalog", headers=headers)
        assert response.status_code == 401
        assert response.headers["access-control-allow-origin"] == "https://mine.example"
        headers["Authorization"] = f"Bearer {KEY}"
        response = client.get("/api/catalog", headers=headers)
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "https://mine.example"
        headers["Origin"] = "https://evil.example"
        assert client.get("/api/catalog", headers=headers).status_code == 403


# --- keys -----------------------------------------------------------------------------------------


def test_every_path_needs_the_key() -> None:
    with serving.client(api_key=KEY) as client:
        for path in PATHS:
            for method in ("GET", "POST", "PUT", "HEAD", "OPTIONS"):
                response = client.request(method, path)
                assert response.status_code == 401, (method, path)
                assert response.headers["www-authenticate"] == "Bearer"
        for value in (f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer", "", f"Basic {KEY}", KEY):
            response = client.get("/api/catalog", headers={"Authorization": value})
            assert "key is missing or wrong" in serving.error_of(response, 401)
        assert KEY not in response.text
        for value in (f"Bearer {KEY}", f"bearer  {KEY}"):
            response = client.get("/api/catalog", headers={"Authorization": value})
            assert response.status_code == 200


def test_a_browser_logs_in() -> None:
    with serving.client(api_key=KEY) as client:
        response = client.get(f"/write?key={KEY}&run=a%26b&x=")
        assert response.status_code == 303
        # The key leaves the address bar; the rest stays.
        assert response.headers["location"] == "/write?run=a%26b&x="
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert KEY not in cookie
        assert client.get("/").status_code == 200
        assert client.get("/api/catalog").status_code == 200
        # Logged in or not, a key in the address is always redirected, or refused.
        assert client.get(f"/?key={KEY}").headers["location"] == "/"
        assert client.get("/?key=wrong").status_code == 401
        client.cookies.clear()
        for query in ("key=", "key=wrong", f"key=wrong&key={KEY}", "key=%ff%fe", f"Key={KEY}"):
            response = client.get(f"/?{query}")
            assert response.status_code == 401, query
            assert "set-cookie" not in response.headers
        # Only pages log in, only by GET.
        assert client.get(f"/api/catalog?key={KEY}").status_code == 401
        assert client.get(f"http://127.0.0.1//evil.example?key={KEY}").status_code == 401
        assert client.post(f"/?key={KEY}").status_code == 401


def test_the_cookie_of_another_port_or_key() -> None:
    with serving.client(api_key=KEY) as client:
        client.get(f"/?key={KEY}")
        (name,) = client.cookies
        value = client.cookies[name]
    with serving.client(api_key=KEY + "2") as client:
        assert client.get("/", headers={"Cookie": f"{name}={value}"}).status_code == 401
    with serving.client(api_key=KEY) as client:
        assert client.get("/", headers={"Cookie": f"{name}={value}"}).status_code == 200
        assert client.get("/", headers={"Cookie": f"{name}={KEY}"}).status_code == 401
        assert client.get("/", headers={"Cookie": f"other={value}"}).status_code == 401


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/write", "/runs", *PATHS])
def test_headers_of_every_response(path: str) -> None:
    with serving.client() as client:
        responses = [client.get(path), client.get(path, headers={"Host": "evil.example"})]
        responses += [client.post(path), client.get(path, headers={"Origin": "http://evil"})]
    for response in responses:
        policy = response.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in response.headers


def test_pages_have_nothing_inline_and_load_nothing_from_elsewhere() -> None:
    with serving.client() as client:
        for path in ("/", "/write", "/runs"):
            response = client.get(path)
            assert response.headers["content-type"] == "text/html; charset=utf-8"
            page = response.text
            assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
            assert not re.search(r"<script(?![^>]*\ssrc=)", page)
            for address in re.findall(r'(?:src|href)="([^"]*)"', page):
                assert address.startswith(("/", "#", "data:")), address
                assert not address.startswith("//")
                if address.startswith("/static/"):
                    assert client.get(address).status_code == 200, address


def test_assets_are_kept_by_browsers_while_they_are_the_same() -> None:
    with serving.client() as client:
        first = client.get("/")
        assert first.headers["cache-control"] == "no-cache"
        again = client.get("/", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert client.get("/api/catalog").headers["cache-control"] == "no-store"


# --- limits ---------------------------------------------------------------------------------------


def test_bodies_that_are_too_large() -> None:
    with serving.client(max_body=1000) as client:
        response = client.post("/api/tokenize", content=b" " * 1001)
        assert "must be ≤ 1,000 bytes" in serving.error_of(response, 413)
        assert response.headers["connection"] == "close"
        # Without a length.
        response = client.post("/api/tokenize", content=iter([b" " * 600] * 2))
        serving.error_of(response, 413)
        response = client.post("/api/tokenize", headers={"Content-Length": "9" * 50}, content=b"")
        serving.error_of(response, 413)
        assert client.post("/api/tokenize", content=b" " * 1000).status_code == 400


def test_bodies_that_arrive_too_slowly() -> None:
    app = make_app(Settings(paths=[], body_seconds=0.05))
    host = [(b"host", b"127.0.0.1")]

    async def never() -> Any:
        await asyncio.sleep(60)

    async def drops() -> Any:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b" ", "more_body": True}

    for receive in (never, drops):
        assert _status(app, "POST", "/api/tokenize", host, receive) == 408


def test_web_sockets_are_refused() -> None:
    with serving.client() as client, pytest.raises(WebSocketDisconnect):
        client.websocket_connect("/api/catalog").__enter__()


def _status(
    app: Any,
    method: str = "GET",
    path: str = "/api/catalog",
    headers: list[tuple[bytes, bytes]] = [],  # noqa: B006
    receive: Any = None,
) -> int:
    """The status of a request that no client library would send."""
    sent: list[Any] = []

    async def nothing() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": ("x", 80),
    }  # fmt: skip
    asyncio.run(app(scope, receive or nothing, send))
    return int(sent[0]["status"])


def test_only_files_in_static_are_served(tmp_path: Path) -> None:
    (tmp_path / "secret.css").write_text("secret")
    with serving.client(tmp_path) as client:
        assert client.get("/static/secret.css").status_code == 404
        assert client.get("/static/tokens.html").status_code == 404
