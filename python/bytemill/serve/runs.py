"""/api for the page Runs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .replies import reply
from .state import State

__all__ = ["routes"]


def routes(state: State) -> list[Route]:
    def run(request: Request) -> Response:
        return reply(state.catalog.run(request.path_params["id"]).to_json())

    return [Route("/api/runs/{id}", run, methods=["GET"])]
