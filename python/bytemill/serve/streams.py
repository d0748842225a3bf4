"""Responses that end when their client goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

__all__ = ["EventStream", "event", "until_gone"]

Value = TypeVar("Value")


def event(value: Any) -> str:
    """A server-sent event with a JSON value."""
    # Escaped: text may have lone surrogates, which UTF-8 cannot encode.
    return f"data: {json.dumps(value, separators=(',', ':'), allow_nan=False)}\n\n"


class EventStream(StreamingResponse):
    """Server-sent events.

    Args:
        events: the events, as text.
        on_end: called in any case: at the end, or when the client goes away.
    """

    def __init__(self, events: AsyncIterator[str], on_end: Callable[[], None]) -> None:
        # A proxy must not collect the events.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self.on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self.stream_response(send))
        finally:
            self.on_end()


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
