"""Replies as JSON: results, and refusals in one form for the pages and for OpenAI's clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from .._json import parse_object
from ..errors import BytemillError, ConfigError

__all__ = ["Refusal", "json_body", "number_in_query", "refusal_fields", "refusal_response", "reply"]

# Larger bodies are parsed in a thread.
MAX_INLINE_BODY = 64 << 10

# The type of an error, as OpenAI's clients know it.
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "server_error",
}


class Refusal(BytemillError):
    """A request that is refused with a given status.

    Any other `BytemillError` of a handler becomes a 400.
    """

    def __init__(
        self,
        status: int,
        message: str,
        hint: str | None = None,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.status, self.param, self.code = status, param, code
        self.headers = headers


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    # Escaped: text may have lone surrogates, which UTF-8 cannot encode.
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Response(text, status, headers, "application/json")


def refusal_response(error: BytemillError) -> Response:
    """A refusal as JSON."""
    status, headers = (error.status, error.headers) if isinstance(error, Refusal) else (400, None)
    return reply({"error": refusal_fields(error)}, status, headers)


def refusal_fields(error: BytemillError) -> dict[str, Any]:
    """A refusal as the value of `error`."""
    if not isinstance(error, Refusal):
        error = Refusal(400, error.message, error.hint)
    return {
        "message": error.message,
        "hint": error.hint,
        "type": TYPES.get(error.status, "invalid_request_error"),
        "param": error.param,
        "code": error.code,
    }


async def json_body(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a request; its strings may have lone surrogates."""
    try:
        body = await request.body()
    except ClientDisconnect:
        raise Refusal(400, "the request ended early") from None
    if len(body) < MAX_INLINE_BODY:
        return _parsed(body)
    return await run_in_threadpool(_parsed, body)


def _parsed(body: bytes) -> dict[str, Any]:
    return parse_object(body, "the body of the request", ConfigError, surrogates=True)


Default = TypeVar("Default", int, None)


def number_in_query(request: Request, name: str, default: Default, most: int) -> int | Default:
    """A number from 0 to `most` in the query of a request."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isdecimal() and text.isascii() and len(text) < 20 and int(text) <= most):
        raise ConfigError(f"{name} must be a number from 0 to {most:,}, got {text[:50]!r}")
    return int(text)
