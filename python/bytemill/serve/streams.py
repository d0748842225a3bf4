"""Responses that end when their client goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

__all__ = ["EventStream", "event", "until_gone"]

Value = TypeVar("Value")


def event(value: Any) -> str:
    """A server-sent event with a JSON value."""
    # Escaped: text may have lone surrogates, which UTF-8 cannot encode.
    return f"data: {json.dumps(value, separators=(',', ':'), allow_nan=False)}\n\n"


class EventStream(Response):
    """Server-sent events.

    Args:
        events: the events, as text.
        on_end: called in any case: at the end, or when the client goes away.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None], on_end: Callable[[], None]) -> None:
        self.events, self.on_end = events, on_end
        self.status_code, self.background = 200, None
        # A proxy must not collect the events.
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    def render(self, content: Any) -> bytes:
        return b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._send(send))
        finally:
            self.on_end()

    async def _send(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        async with contextlib.aclosing(self.events) as events:
            async for text in events:
                body = {"type": "http.response.body", "body": text.encode(), "more_body": True}
                await send(body)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_gone(receive: Receive, work: Coroutine[Any, Any, Value]) -> Value | None:
    """The result of some work; None if the client goes away, which cancels the work."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
