"""/api for the page Tokens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .replies import reply
from .state import State

__all__ = ["routes"]


def routes(state: State) -> list[Route]:
    def catalog(_request: Request) -> Response:
        return reply(state.catalog.found().to_json())

    return [Route("/api/catalog", catalog, methods=["GET"])]
