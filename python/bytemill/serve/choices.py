"""Answers in OpenAI's form: choices, log-probabilities and usage, whole or in chunks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .worker import Order, SampleProgress, Token, token_bytes

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = ["Chat", "Completion", "Form"]

FINISH_REASONS = {"end": "stop", "stop": "stop", "length": "length"}


@dataclass
class _Choice:
    """A sample so far."""

    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    n_tokens: int = 0
    done: str | None = None


class Form:
    """The form of an answer, and its choices so far.

    Args:
        model: the model, as the client names it.
        order: the request.
        tokenizer: the model's.

    Attributes:
        id_prefix: what ids of answers start with.
        kinds: the `object` of a whole answer, and that of a chunk.
    """

    id_prefix = ""
    kinds = ("", "")

    def __init__(self, model: str, order: Order, tokenizer: Tokenizer) -> None:
        self.order, self.tokenizer = order, tokenizer
        self.choices = [_Choice() for _ in range(order.n_samples)]
        self._head = {
            "id": f"{self.id_prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    # --- of the form ----------------------------------------------------------------------------

    def opening(self) -> list[dict[str, Any]]:
        """Chunks before the first token."""
        return []

    def taken(self, progress: SampleProgress) -> list[Token]:
        """The tokens of this progress that are part of the answer."""
        return progress.tokens

    def part(self, index: int, start: int, text: str, tokens: list[Token]) -> dict[str, Any]:
        """The fields of a choice in a chunk; `start` is where its text starts."""
        raise NotImplementedError

    def choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        """The fields of a whole choice."""
        raise NotImplementedError

    # --- in any form ----------------------------------------------------------------------------

    def take(self, progress: SampleProgress) -> tuple[str, list[Token]]:
        """Adds the new tokens of a sample; returns their text and the tokens."""
        choice, tokens = self.choices[progress.sample], self.taken(progress)
        text = "".join(token.text for token in tokens)
        choice.text += text
        choice.tokens += tokens
        choice.n_tokens = progress.n_tokens
        choice.done = None if progress.done is None else FINISH_REASONS[progress.done]
        return text, tokens

    def chunks(self, progress: SampleProgress) -> list[dict[str, Any]]:
        """The new tokens of a sample, as chunks."""
        index = progress.sample
        start = len(self.choices[index].text)
        text, tokens = self.take(progress)
        done = self.choices[index].done
        if not (text or done or (tokens and self.order.n_top is not None)):
            return []
        return [self.chunk(index, self.part(index, start, text, tokens), done)]

    def chunk(self, index: int, fields: dict[str, Any], done: str | None = None) -> dict[str, Any]:
        choice = {"index": index, "logprobs": None} | fields | {"finish_reason": done}
        return self._head | {"object": self.kinds[1], "choices": [choice]}

    def closing(self) -> dict[str, Any]:
        """The chunk with the usage."""
        return self._head | {"object": self.kinds[1], "choices": [], "usage": self.usage()}

    def whole(self) -> dict[str, Any]:
        """The whole answer."""
        choices = [
            {"index": index, "logprobs": None}
            | self.choice(index, choice)
            | {"finish_reason": choice.done}
            for index, choice in enumerate(self.choices)
        ]
        return self._head | {"object": self.kinds[0], "choices": choices, "usage": self.usage()}

    def usage(self) -> dict[str, int]:
        """Tokens of the prompts, each once, and of the samples."""
        read = sum(map(len, self.order.prompts))
        new = sum(choice.n_tokens for choice in self.choices)
        return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}

    def named(self, id: int) -> str:
        """A token as text; `bytes:\\x…`, as in OpenAI's API, if it is not valid UTF-8."""
        data = token_bytes(self.tokenizer, id)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class Completion(Form):
    """/v1/completions; `prompts` are the texts to repeat before the samples, None for none."""

    id_prefix = "cmpl"
    kinds = ("text_completion", "text_completion")

    def __init__(
        self, model: str, order: Order, tokenizer: Tokenizer, prompts: Sequence[str] | None
    ) -> None:
        super().__init__(model, order, tokenizer)
        self._prompts = prompts
        # With scores, the prompt comes as tokens.
        if prompts is not None and not order.score_prompts:
            for index, choice in enumerate(self.choices):
                choice.text = prompts[index // order.n]

    def opening(self) -> list[dict[str, Any]]:
        if self._prompts is None or self.order.score_prompts:
            return []
        return [
            self.chunk(index, {"text": choice.text}) for index, choice in enumerate(self.choices)
        ]

    def taken(self, progress: SampleProgress) -> list[Token]:
        return [*(progress.prompt or ()), *progress.tokens]

    def part(self, index: int, start: int, text: str, tokens: list[Token]) -> dict[str, Any]:
        return {"text": text, "logprobs": self._logprobs(start, tokens)}

    def choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        start = len(choice.text) - sum(len(token.text) for token in choice.tokens)
        return {"text": choice.text, "logprobs": self._logprobs(start, choice.tokens)}

    def _logprobs(self, start: int, tokens: list[Token]) -> dict[str, Any] | None:
        if self.order.n_top is None:
            return None
        offsets = []
        for token in tokens:
            offsets.append(start)
            start += len(token.text)
        return {
            "tokens": [self.named(token.id) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": offsets,
        }

    def _top(self, token: Token) -> dict[str, float] | None:
        if token.logprob is None:
            return None
        found: dict[str, float] = {}
        for id, logprob in [*token.top, (token.id, token.logprob)]:
            found.setdefault(self.named(id), logprob)
        return found


class Chat(Form):
    """/v1/chat/completions."""

    id_prefix = "chatcmpl"
    kinds = ("chat.completion", "chat.completion.chunk")

    def opening(self) -> list[dict[str, Any]]:
        delta = {"role": "assistant", "content": ""}
        return [self.chunk(index, {"delta": delta}) for index in range(len(self.choices))]

    def part(self, index: int, start: int, text: str, tokens: list[Token]) -> dict[str, Any]:
        delta = {"content": text} if text else {}
        return {"delta": delta, "logprobs": self._logprobs(tokens)}

    def choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        return {"message": message, "logprobs": self._logprobs(choice.tokens)}

    def _logprobs(self, tokens: list[Token]) -> dict[str, Any] | None:
        if self.order.n_top is None:
            return None
        return {
            "content": [
                self._entry(token.id, token.logprob)
                | {"top_logprobs": [self._entry(id, logprob) for id, logprob in token.top]}
                for token in tokens
            ]
        }

    def _entry(self, id: int, logprob: float | None) -> dict[str, Any]:
        data = token_bytes(self.tokenizer, id)
        return {"token": self.named(id), "logprob": logprob, "bytes": list(data)}
