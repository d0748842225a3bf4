"""/v1: an API for OpenAI's clients; also /tokenize, /detokenize and /health.

A model is a run: its id as in /v1/models, or its name if no other run has it; `@best`, `@last` or
`@` and a number choose a checkpoint. Options that cannot be honoured are refused, not ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import BytemillError
from .chat import find_template, rendered
from .choices import Chat, Completion, Form
from .fields import MAX_SAMPLES, MAX_TOKENS, Fields, is_ids
from .models import checkpoint_of, models_of
from .replies import Refusal, json_body, refusal_fields, reply
from .streams import EventStream, event, until_gone
from .worker import Generation, ModelWorker, Order

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer
    from .found import RunEntry
    from .state import State

__all__ = ["encoded", "routes"]

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed")
# Accepted: they do not affect the text.
IGNORED = (
    "metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user",
)  # fmt: skip
COMMON = (
    *SAMPLING, *IGNORED, "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "model", "n",
    "presence_penalty", "stop", "stream", "stream_options",
)  # fmt: skip
COMPLETIONS = (*COMMON, "best_of", "echo", "prompt", "suffix")
CHAT = (
    *COMMON, "max_completion_tokens", "messages", "modalities", "response_format", "tool_choice",
    "tools", "top_logprobs",
)  # fmt: skip
MAX_LOGPROBS = 20
# Longer text is encoded in a thread.
MAX_INLINE_TEXT = 20_000


def routes(state: State) -> list[Route]:
    """The routes under /v1, /tokenize, /detokenize, /health."""
    api = _Interface(state)
    return [
        Route("/v1/models", api.models, methods=["GET"]),
        Route("/v1/models/{id:path}", api.model, methods=["GET"]),
        Route("/v1/completions", api.completions, methods=["POST"]),
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
        Route("/tokenize", api.tokenize, methods=["POST"]),
        Route("/detokenize", api.detokenize, methods=["POST"]),
        Route("/health", api.health, methods=["GET"]),
    ]


class _Interface:
    def __init__(self, state: State) -> None:
        self._state = state

    # --- models ---------------------------------------------------------------------------------

    def models(self, _request: Request) -> Response:
        runs = self._state.catalog.found().runs.values()
        usable = [run for run in runs if run.state.checkpoints and run.tokenizer is not None]
        return reply({"object": "list", "data": [_described(run.id, run) for run in usable]})

    def model(self, request: Request) -> Response:
        name = request.path_params["id"]
        run, step = self._find(name)
        checkpoint_of(run, step)
        return reply(_described(name, run))

    def _find(self, name: str) -> tuple[RunEntry, str]:
        """The run and the checkpoint that a client names."""
        runs = self._state.catalog.found().runs
        wanted, step = name, "best"
        if name not in runs and "@" in name:
            wanted, _, step = name.rpartition("@")
        named = [
            run
            for run in runs.values()
            if wanted in (run.id, run.name, run.name.rpartition("/")[2])
        ]
        if wanted in runs:
            named = [runs[wanted]]
        if len(named) == 1:
            return named[0], step
        problem = "is the name of several runs" if named else "is not a model of this server"
        raise Refusal(
            404,
            f"{name[:100]!r} {problem}",
            "GET /v1/models lists the ids",
            param="model",
            code="model_not_found",
        )

    async def _model(self, fields: Fields) -> tuple[RunEntry, str]:
        # A scan of the disk may be due.
        return await asyncio.to_thread(self._find, fields.text("model"))

    # --- completions ----------------------------------------------------------------------------

    async def completions(self, request: Request) -> Response:
        fields = Fields(await json_body(request))
        fields.check_names(COMPLETIONS)
        _refuse_unsupported(fields)
        n = fields.integer("n", 1, 1, MAX_SAMPLES)
        best_of = fields.integer("best_of", n, 1, MAX_SAMPLES)
        if best_of != n:
            raise fields.refuse("best_of", "n: samples are not ranked")
        echo, n_top = fields.flag("echo"), None
        if fields.get("logprobs") is not None:
            n_top = fields.integer("logprobs", 0, 0, MAX_LOGPROBS)
        prompts = _prompts(fields)
        if len(prompts) * n > MAX_SAMPLES:
            raise fields.refuse("n", f"such that prompts times n are ≤ {MAX_SAMPLES}")
        run, step = await self._model(fields)
        async with models_of(self._state).use(run, step) as worker:
            ids = [await _prompt_ids(worker.tokenizer, prompt) for prompt in prompts]
            _check_lengths(worker, ids, "prompt")
            order = Order(
                prompts=ids,
                sampling=fields.sampling(),
                max_tokens=fields.integer("max_tokens", 16, 0, MAX_TOKENS),
                n=n,
                stop=fields.stop(),
                stop_ids=worker.end_ids,
                n_top=n_top,
                score_prompts=echo and n_top is not None,
            )
            texts = None
            if echo:
                decode = worker.tokenizer.decode
                texts = [each if isinstance(each, str) else decode(each) for each in prompts]
            form = Completion(fields.text("model"), order, worker.tokenizer, texts)
            options = _stream_options(fields)
            generation = worker.submit(order)
        return await _answer(request, generation, form, options)

    async def chat(self, request: Request) -> Response:
        fields = Fields(await json_body(request))
        fields.check_names(CHAT)
        _refuse_unsupported(fields)
        n_top = fields.integer("top_logprobs", 0, 0, MAX_LOGPROBS)
        wanted = fields.flag("logprobs")
        if n_top and not wanted:
            raise fields.refuse("top_logprobs", "used with logprobs=true")
        messages = _messages(fields)
        run, step = await self._model(fields)
        template = await asyncio.to_thread(find_template, run.path)
        if template is None:
            raise Refusal(
                400,
                f"{run.name} has no chat template: it continues text and does not chat",
                "use /v1/completions, or put chat_template.jinja beside the run's tokenizer.json",
                param="model",
                code="no_chat_template",
            )
        async with models_of(self._state).use(run, step) as worker:
            tokenizer = worker.tokenizer
            _refuse_specials(messages, tokenizer)
            text = await asyncio.to_thread(rendered, template, messages, tokenizer)
            ids = await encoded(tokenizer, text, special="all")
            _check_lengths(worker, [ids], "messages")
            room = max(1, worker.model.config.context_length - len(ids))
            name = "max_tokens" if fields.get("max_completion_tokens") is None else (
                "max_completion_tokens"
            )  # fmt: skip
            order = Order(
                prompts=[ids],
                sampling=fields.sampling(),
                max_tokens=fields.integer(name, room, 1, MAX_TOKENS),
                n=fields.integer("n", 1, 1, MAX_SAMPLES),
                stop=fields.stop(),
                # Templates end a turn with a special token, which differs between them.
                stop_ids=frozenset(tokenizer.special_tokens.values()),
                n_top=n_top if wanted else None,
            )
            form = Chat(fields.text("model"), order, tokenizer)
            options = _stream_options(fields)
            generation = worker.submit(order)
        return await _answer(request, generation, form, options)

    # --- tokens ---------------------------------------------------------------------------------

    async def _tokenizer(self, fields: Fields) -> tuple[RunEntry, Tokenizer]:
        run, _ = await self._model(fields)
        if run.tokenizer is None:
            raise Refusal(400, f"{run.name} has no tokenizer", param="model")
        return run, await asyncio.to_thread(self._state.catalog.tokenizer, run.tokenizer)

    async def tokenize(self, request: Request) -> Response:
        fields = Fields(await json_body(request))
        fields.check_names(("model", "prompt"))
        run, tokenizer = await self._tokenizer(fields)
        ids = await asyncio.to_thread(tokenizer.encode, fields.text("prompt"), special="none")
        context = run.state.config.get("model", {}).get("context_length")
        return reply({"count": len(ids), "max_model_len": context, "tokens": ids})

    async def detokenize(self, request: Request) -> Response:
        fields = Fields(await json_body(request))
        fields.check_names(("model", "tokens"))
        _, tokenizer = await self._tokenizer(fields)
        ids = fields.ids("tokens")
        return reply({"prompt": await asyncio.to_thread(tokenizer.decode, ids)})

    async def health(self, _request: Request) -> Response:
        return reply({"status": "ok"})


def _described(name: str, run: RunEntry) -> dict[str, Any]:
    try:
        created = int((run.path / "config.json").stat().st_mtime)
    except OSError:
        created = 0
    return {"id": name, "object": "model", "created": created, "owned_by": "bytemill"}


# --- the fields of a request --------------------------------------------------------------------


def _refuse_unsupported(fields: Fields) -> None:
    """Refuses options that would change the text and are not supported."""
    for name in ("presence_penalty", "frequency_penalty"):
        if fields.number(name, 0.0, -2.0, 2.0):
            raise fields.refuse(name, "0 (repetition_penalty is supported)")
    for name, supported in (
        ("suffix", (None, "")),
        ("logit_bias", (None, {})),
        ("tools", (None, [])),
        ("tool_choice", (None, "none", "auto")),
        ("response_format", (None, {"type": "text"})),
        ("modalities", (None, ["text"])),
    ):
        if fields.get(name) not in supported:
            raise Refusal(400, f"{name} is not supported", param=name, code="unsupported_parameter")


def _stream_options(fields: Fields) -> tuple[bool, bool]:
    """Whether to stream, and whether to end with the usage."""
    streams, options = fields.flag("stream"), fields.get("stream_options")
    if options is None:
        return streams, False
    if not streams or not isinstance(options, dict):
        raise fields.refuse("stream_options", "an object, with stream=true")
    chosen = Fields(options)
    # Nothing here pads chunks, so there is nothing to switch off.
    chosen.check_names(("include_obfuscation", "include_usage"))
    return streams, chosen.flag("include_usage")


def _prompts(fields: Fields) -> list[str | list[int]]:
    """`prompt`: text, ids, or a list of either; without one, a new text."""
    value = fields.get("prompt")
    found = ["" if value is None else value]
    if isinstance(value, list) and value and not is_ids(value):
        found = value
    if not all(isinstance(each, str) or is_ids(each) for each in found):
        raise fields.refuse("prompt", "a string, a list of ids, or a list of strings or of these")
    if len(found) > MAX_SAMPLES:
        raise Refusal(400, f"prompt must have ≤ {MAX_SAMPLES} entries", param="prompt")
    return found


async def _prompt_ids(tokenizer: Tokenizer, prompt: str | list[int]) -> list[int]:
    return await encoded(tokenizer, prompt) if isinstance(prompt, str) else prompt


async def encoded(tokenizer: Tokenizer, text: str, special: Any = "none") -> list[int]:
    """The ids of a prompt."""
    from ..lm.generate import prompt_ids

    if len(text) <= MAX_INLINE_TEXT:
        return prompt_ids(tokenizer, text, special)
    return await asyncio.to_thread(prompt_ids, tokenizer, text, special)


def _check_lengths(worker: ModelWorker, prompts: list[list[int]], param: str) -> None:
    context, longest = worker.model.config.context_length, max(map(len, prompts))
    if longest > context:
        raise Refusal(
            400,
            f"this model reads at most {context:,} tokens, and {param} has {longest:,}",
            "shorten it",
            param=param,
            code="context_length_exceeded",
        )


def _messages(fields: Fields) -> list[dict[str, Any]]:
    """`messages` with their contents as strings."""
    value = fields.get("messages")
    if not (isinstance(value, list) and value):
        raise fields.refuse("messages", "a list of messages")
    found = []
    for message in value:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            raise Refusal(400, "each message must have a role", param="messages")
        content = message.get("content")
        if isinstance(content, list) and all(
            isinstance(part, dict)
            and part.get("type") == "text"
            and isinstance(part.get("text"), str)
            for part in content
        ):
            content = "".join(part["text"] for part in content)
        if not isinstance(content, str):
            raise Refusal(400, "the content of a message must be text", param="messages")
        for name, field in message.items():
            # Clients send answers back with all their fields, empty ones too.
            if name not in ("role", "content") and field not in (None, "", []):
                raise Refusal(400, f"{name[:100]} of a message is not supported", param="messages")
        found.append({"role": message["role"], "content": content})
    return found


def _refuse_specials(messages: list[dict[str, Any]], tokenizer: Tokenizer) -> None:
    """Refuses special tokens in messages: they would end a turn, or speak for another role."""
    for message in messages:
        for special in tokenizer.special_tokens:
            if special in message["content"] or special in message["role"]:
                raise Refusal(400, f"a message has the special token {special!r}", param="messages")


# --- answers ------------------------------------------------------------------------------------


async def _answer(
    request: Request, generation: Generation, form: Form, options: tuple[bool, bool]
) -> Response:
    streams, with_usage = options
    if streams:
        return EventStream(_events(generation, form, with_usage), generation.cancel)
    try:
        answer = await until_gone(request.receive, _whole(generation, form))
    finally:
        generation.cancel()
    return Response(status_code=499) if answer is None else reply(answer)


async def _whole(generation: Generation, form: Form) -> dict[str, Any]:
    async for arrived in generation:
        for progress in arrived:
            form.take(progress)
    return form.whole()


async def _events(generation: Generation, form: Form, with_usage: bool) -> AsyncIterator[str]:
    # As in OpenAI's API: with usage at the end, every other chunk has none.
    usage: dict[str, Any] = {"usage": None} if with_usage else {}
    try:
        opening = form.opening()
        if opening:
            yield "".join(event(chunk | usage) for chunk in opening)
        async for arrived in generation:
            chunks = [chunk for progress in arrived for chunk in form.chunks(progress)]
            if chunks:
                yield "".join(event(chunk | usage) for chunk in chunks)
        if with_usage:
            yield event(form.closing())
        yield "data: [DONE]\n\n"
    except BytemillError as error:
        yield event({"error": refusal_fields(error)})
