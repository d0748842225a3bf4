"""The app: pages, assets, and the routes of each module, after the checks of `guard`."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from importlib import resources

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..errors import BytemillError
from . import openai, runs, tokens, write
from .catalog import Catalog
from .guard import guards
from .replies import Refusal, refusal_response
from .state import Settings, State

__all__ = ["make_app"]

PAGES = {"/": "tokens.html", "/write": "write.html", "/runs": "runs.html"}
MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
}


def make_app(settings: Settings) -> Starlette:
    """The server as an ASGI application."""
    state = State(settings, Catalog(settings.paths))

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            state.close()

    routes: list[BaseRoute] = [*_static()]
    for module in (tokens, write, runs, openai):
        routes += module.routes(state)
    app = Starlette(
        routes=routes,
        middleware=guards(settings),
        exception_handlers={
            BytemillError: _refused,
            HTTPException: _http_error,
            OSError: _unreadable,
        },
        lifespan=lifespan,
    )
    # A path with an extra slash is a 404, not a redirect.
    app.router.redirect_slashes = False
    app.state.bytemill = state
    return app


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BytemillError)
    return refusal_response(error)


async def _unreadable(_request: Request, error: Exception) -> Response:
    # A file that vanished, or may not be read.
    assert isinstance(error, OSError)
    name = "" if error.filename is None else f"{os.path.basename(os.fsdecode(error.filename))}: "
    return refusal_response(Refusal(404, f"{name}{error.strerror or error}"))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    # Not request.url, which fails if the query is not UTF-8.
    message, path = error.detail, request.scope["path"][:200]
    if error.status_code == 404:
        message = f"unknown path: {path}"
    elif error.status_code == 405:
        message = f"{path} does not take {request.method[:20]}"
    return refusal_response(Refusal(error.status_code, message, headers=error.headers))


# --- files ----------------------------------------------------------------------------------------


def _static() -> list[Route]:
    """Pages and assets. Their files are read here, once: no path of a client opens a file."""
    files = {
        entry.name: entry.read_bytes()
        for entry in sorted((resources.files(__package__) / "static").iterdir(), key=str)
        if entry.name.rpartition(".")[2] in MEDIA_TYPES
    }
    places = {f"/static/{name}": name for name in files if not name.endswith(".html")}
    places |= {path: name for path, name in PAGES.items() if name in files}
    return [
        Route(path, _file(files[name], MEDIA_TYPES[name.rpartition(".")[2]]), methods=["GET"])
        for path, name in places.items()
    ]


def _file(data: bytes, media_type: str) -> Callable[[Request], Response]:
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Type": media_type}

    async def serve_file(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers)

    return serve_file  # type: ignore[return-value]
