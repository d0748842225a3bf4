"""/api for the page Tokens: tokens of a text, and everything about one token.

Handlers that are not `async` run in threads, so that a megabyte of text does not hold up others.
"""

from __future__ import annotations

from typing import Any, get_args

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import ConfigError
from .occurrences import Occurrences
from .recent import RecentlyUsed
from .replies import Refusal, json_body, number_in_query, reply
from .state import State
from .vocabulary import SearchBy, VocabularyIndex

__all__ = ["routes"]

MAX_TEXT = 4 << 20
MAX_RESULTS = 1_000
# Vocabularies with their tables: one of 200,000 tokens takes about 60 MB.
MAX_VOCABULARIES = 6


def routes(state: State) -> list[Route]:
    """The routes under /api/tokenize and /api/tokenizers, and /api/catalog."""
    pages = _Tokens(state)
    return [
        Route("/api/catalog", pages.catalog, methods=["GET"]),
        Route("/api/tokenize", pages.tokenize, methods=["POST"]),
        Route("/api/tokenizers/{id}", pages.facts, methods=["GET"]),
        Route("/api/tokenizers/{id}/search", pages.search, methods=["GET"]),
        Route("/api/tokenizers/{id}/tokens/{token}", pages.token, methods=["GET"]),
    ]


class _Tokens:
    def __init__(self, state: State) -> None:
        self._catalog = state.catalog
        self._vocabularies = RecentlyUsed(MAX_VOCABULARIES)
        self._occurrences = Occurrences()
        state.at_exit.append(self._occurrences.close)

    def _vocabulary(self, id: str) -> VocabularyIndex:
        tokenizer = self._catalog.tokenizer(id)
        return self._vocabularies.get(tokenizer.fingerprint, lambda: VocabularyIndex(tokenizer))

    def catalog(self, _request: Request) -> Response:
        return reply(self._catalog.found().to_json())

    async def tokenize(self, request: Request) -> Response:
        return await run_in_threadpool(self._tokenize, await json_body(request))

    def _tokenize(self, body: dict[str, Any]) -> Response:
        id, text, special = body.get("tokenizer"), body.get("text"), body.get("special", "all")
        if not isinstance(id, str) or not isinstance(text, str):
            raise ConfigError("tokenizer and text must be strings")
        if special not in ("all", "none"):
            raise ConfigError("special must be all or none")
        if len(text) > MAX_TEXT or len(text.encode("utf-8", "replace")) > MAX_TEXT:
            raise Refusal(413, f"text must be ≤ {MAX_TEXT >> 20} MiB")
        vocabulary = self._vocabulary(id)
        ids = vocabulary.tokenizer.encode_array(text, special=special)
        ends = vocabulary.ends(ids).tolist()
        n_bytes = ends[-1] if ends else 0
        return reply({"ids": ids.tolist(), "ends": ends, "n_bytes": n_bytes})

    def facts(self, request: Request) -> Response:
        id = request.path_params["id"]
        entry = self._catalog.tokenizer_entry(id).to_json()
        facts = dict(self._vocabulary(id).facts)
        # The catalog has them already, as a list.
        special_tokens = facts.pop("special_tokens")
        return reply(facts | entry | {"special_ids": special_tokens})

    def search(self, request: Request) -> Response:
        by: Any = request.query_params.get("by", "text")
        if by not in get_args(SearchBy):
            raise ConfigError("by must be text, hex or id")
        query = request.query_params.get("q", "")
        limit = number_in_query(request, "limit", 50, MAX_RESULTS)
        if not query:
            return reply({"total": 0, "tokens": []})
        vocabulary = self._vocabulary(request.path_params["id"])
        total, tokens = vocabulary.search(query, by, limit)
        return reply({"total": total, "tokens": tokens})

    def token(self, request: Request) -> Response:
        vocabulary = self._vocabulary(request.path_params["id"])
        text = request.path_params["token"]
        id = int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else -1
        if id not in vocabulary.tokens:
            raise Refusal(404, f"no token {text[:50]!r}", "ids are those of the vocabulary")
        occurrence = self._occurrences.of(vocabulary, id, self._catalog.found())
        return reply(
            vocabulary.token(id)
            | {
                "tree": vocabulary.tree(id),
                "count": occurrence.count,
                "count_source": occurrence.source,
                "count_pending": occurrence.pending,
                "neighbours": vocabulary.neighbours(id),
            }
        )
