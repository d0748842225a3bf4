"""Checks before every handler: host, origin, key, size and duration of the request.

Outermost, `Limits` adds security headers to every response and bounds the size and duration of
request bodies. `Hosts` refuses requests that another website made a browser send: their `Host` is
a name that was rebound to this address, or their `Origin` is another site. `Keys` requires the key.
CORS comes before it, as a preflight request cannot carry a key.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import socket
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import BytemillError
from .replies import Refusal, refusal_response
from .state import Settings

__all__ = ["guards"]

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# Paths that a browser may log in at.
PAGES = ("/", "/write", "/runs")
MONTH = 30 * 24 * 3600


def guards(settings: Settings) -> list[Middleware]:
    """The middleware of the app, the outermost first."""
    found = [Middleware(Limits, settings=settings), Middleware(Hosts, settings=settings)]
    if settings.cors:
        found.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(settings.cors),
                allow_methods=["GET", "POST"],
                # OpenAI's client in a browser sends several of its own.
                allow_headers=["*"],
            )
        )
    if settings.api_key is not None:
        found.append(Middleware(Keys, key=settings.api_key))
    return found


# --- limits ---------------------------------------------------------------------------------------


class Limits:
    """Bounds request bodies, and adds security headers to responses."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self.headers = dict(HEADERS)
        if settings.cors:
            self.headers["Cross-Origin-Resource-Policy"] = "cross-origin"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            body = _Body(receive, Headers(scope=scope), self.settings)
            await self.app(scope, body, send_safely)
        except Refusal as refusal:
            # Raised by `_Body`, or by the middleware inside this one.
            if not started:
                await refusal_response(refusal)(scope, receive, send_safely)


class _Body:
    """`receive`, for a body of limited size that must arrive in time."""

    def __init__(self, receive: Receive, headers: Headers, settings: Settings) -> None:
        self.receive, self.settings = receive, settings
        self.n_bytes, self.complete = 0, False
        self.deadline = time.monotonic() + settings.body_seconds
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > settings.max_body):
            raise self._too_large()

    def _too_large(self) -> BytemillError:
        limit = f"{self.settings.max_body:,}"
        # The rest of the body is not read, so the connection cannot be used again.
        return Refusal(413, f"the request must be ≤ {limit} bytes", headers={"Connection": "close"})

    async def __call__(self) -> Message:
        if self.complete:
            return await self.receive()  # waits for the client to go away
        try:
            left = max(0.0, self.deadline - time.monotonic())
            message = await asyncio.wait_for(self.receive(), left)
        except asyncio.TimeoutError:
            raise Refusal(
                408,
                f"the request did not arrive within {self.settings.body_seconds:g} s",
                headers={"Connection": "close"},
            ) from None
        self.n_bytes += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        if self.n_bytes > self.settings.max_body:
            raise self._too_large()
        return message


# --- hosts ----------------------------------------------------------------------------------------


class Hosts:
    """Refuses requests for other hosts and from other sites."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self.names = {"localhost", settings.host.lower()}
        # A server on all addresses is reached by any of them. Only names can be rebound.
        self.any_address = settings.host in ("", "0.0.0.0", "::")
        if self.any_address:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._check(Headers(scope=scope))
        await self.app(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(_name_in(hosts[0])):
            raise Refusal(
                403,
                f"not a name of this server: {', '.join(hosts)[:200] or 'no Host header'}",
                "use the address that bytemill serve printed",
            )
        origin = headers.get("origin")
        if origin is None:
            foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
            if foreign and headers.get("sec-fetch-mode") != "navigate" and not self.settings.cors:
                raise _foreign("another site")
        elif origin.partition("://")[2] != hosts[0]:
            allowed: Sequence[str] = self.settings.cors
            if "*" not in allowed and origin not in allowed:
                raise _foreign(origin[:200])

    def _is_ours(self, name: str) -> bool:
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name.lower().rstrip(".") in self.names
        return address.is_loopback or self.any_address or name in self.names


def _foreign(origin: str) -> Refusal:
    return Refusal(
        403,
        f"pages of {origin} may not use this server",
        "allow their origin when you start the server (cors)",
    )


def _name_in(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


# --- keys -----------------------------------------------------------------------------------------


class Keys:
    """Requires the key: `Authorization: Bearer`, or the cookie of a browser that logged in.

    A browser logs in at a page by `?key=…`, which is redirected, so that the key leaves the address
    bar and the history.
    """

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app, self.key = app, key.encode()
        # The cookie is stored by the browser, so it does not contain the key itself.
        self.token = hmac.new(self.key, b"bytemill cookie", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._knows_key(scope):
            await self.app(scope, receive, send)
            return
        refusal = Refusal(
            401,
            "the key is missing or wrong",
            "send 'Authorization: Bearer KEY'; in a browser, open the address with ?key=KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        response = self._login(scope) or refusal_response(refusal)
        await response(scope, receive, send)

    def _knows_key(self, scope: Scope) -> bool:
        # A login with a new key must work whatever the old cookie is, and be redirected.
        if _wants_login(scope):
            return False
        request = Request(scope)
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        cookie = request.cookies.get(_cookie_name(scope), "")
        return (scheme.lower() == "bearer" and _equal(given.strip().encode(), self.key)) or _equal(
            cookie.encode(), self.token.encode()
        )

    def _login(self, scope: Scope) -> Response | None:
        if not _wants_login(scope):
            return None
        fields = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next(value for name, value in fields if name == "key")
        if not _equal(given.encode("utf-8", "replace"), self.key):
            return None
        rest = urlencode([field for field in fields if field[0] != "key"])
        response = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), 303)
        response.set_cookie(
            _cookie_name(scope), self.token, max_age=MONTH, httponly=True, samesite="strict"
        )
        return response


def _wants_login(scope: Scope) -> bool:
    if scope["path"] not in PAGES or scope["method"] != "GET":
        return False
    query = scope["query_string"].decode("latin-1")
    return any(name == "key" for name, _ in parse_qsl(query, keep_blank_values=True))


def _cookie_name(scope: Scope) -> str:
    # Browsers send the cookies of a host to all its ports.
    server: Any = scope.get("server") or ("", 0)
    return f"bytemill-{server[1]}"


def _equal(a: bytes, b: bytes) -> bool:
    return hmac.compare_digest(a, b)
