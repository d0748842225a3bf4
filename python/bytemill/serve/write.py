"""/api/write for the page Write: samples as they are generated, with probabilities."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import BytemillError
from .fields import MAX_TOKENS, Fields
from .models import models_of
from .openai import SAMPLING, encoded
from .replies import json_body
from .streams import EventStream, event
from .worker import Generation, Order, token_bytes

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer
    from .state import State

__all__ = ["routes"]

FIELDS = (*SAMPLING, "alternatives", "ids", "max_tokens", "n", "prompt", "run", "step", "stop")
MAX_SAMPLES = 16
MAX_ALTERNATIVES = 20


def routes(state: State) -> list[Route]:
    """The route /api/write."""

    async def write(request: Request) -> Response:
        fields = Fields(await json_body(request))
        fields.check_names(FIELDS)
        step = fields.get("step")
        step = "best" if step is None else step
        if isinstance(step, bool) or not isinstance(step, (str, int)):
            raise fields.refuse("step", "best, last or a number")
        # A scan of the disk may be due.
        run = await asyncio.to_thread(state.catalog.run, fields.text("run"))
        async with models_of(state).use(run, step) as worker:
            if fields.get("ids") is not None:
                if fields.get("prompt") is not None:
                    raise fields.refuse("ids", "absent if there is a prompt")
                prompt = fields.ids("ids")
            else:
                prompt = await encoded(worker.tokenizer, fields.text("prompt", ""))
            order = Order(
                prompts=[prompt],
                sampling=fields.sampling(),
                max_tokens=fields.integer("max_tokens", 256, 1, MAX_TOKENS),
                n=fields.integer("n", 1, 1, MAX_SAMPLES),
                stop=fields.stop(),
                stop_ids=worker.end_ids,
                n_top=fields.integer("alternatives", 0, 0, MAX_ALTERNATIVES),
            )
            generation = worker.submit(order)
        return EventStream(_events(generation, worker.tokenizer), generation.cancel)

    return [Route("/api/write", write, methods=["POST"])]


async def _events(generation: Generation, tokenizer: Tokenizer) -> AsyncIterator[str]:
    order, n_tokens = generation.order, [0] * generation.order.n_samples
    prompt = [_token(tokenizer, id) for id in order.prompts[0]]
    yield event({"type": "start", "seed": order.sampling.seed, "prompt": prompt})
    start: float | None = None
    try:
        async for arrived in generation:
            # Without the time in the queue and for the prompt.
            start = time.perf_counter() if start is None else start
            texts = []
            for progress in arrived:
                n_tokens[progress.sample] = progress.n_tokens
                for token in progress.tokens:
                    known = _token(tokenizer, token.id) | {"text": token.text}
                    top = [_token(tokenizer, id) | {"p": math.exp(p)} for id, p in token.top]
                    shown = {"type": "token", "sample": progress.sample} | known
                    texts.append(event(shown | {"p": math.exp(token.logprob or 0.0), "top": top}))
                if progress.done:
                    end = {"type": "end", "sample": progress.sample, "reason": progress.done}
                    texts.append(event(end))
            yield "".join(texts)
        seconds = time.perf_counter() - (start or time.perf_counter())
        # The first tokens came at the start.
        later = max(0, sum(n_tokens) - order.n_samples)
        done = {
            "type": "done",
            "n_tokens": sum(n_tokens),
            "seconds": seconds,
            "tokens_per_second": later / seconds if seconds else 0.0,
        }
        yield event(done)
    except BytemillError as error:
        yield event({"type": "error", "message": error.message, "hint": error.hint})


def _token(tokenizer: Tokenizer, id: int) -> dict[str, Any]:
    data = token_bytes(tokenizer, id)
    return {"id": id, "hex": data.hex(), "text": data.decode(errors="replace")}
