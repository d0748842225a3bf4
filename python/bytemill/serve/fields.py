"""The fields of a JSON request, read with their types and ranges."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import lm
from .replies import Refusal

if TYPE_CHECKING:
    from ..lm import Sampling

__all__ = ["MAX_SAMPLES", "MAX_TOKENS", "Fields"]

MAX_TOKENS = 32_768
# Samples of a request: prompts times samples of each.
MAX_SAMPLES = 128
MIN_TEMPERATURE = 1e-4
MAX_STOPS = 16
MAX_STOP_LENGTH = 1000


class Fields:
    """The fields of a JSON object; null counts as absent. Each refusal names its field."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body

    def check_names(self, known: Sequence[str]) -> None:
        """Refuses fields that are not known."""
        for name in self._body:
            if name not in known:
                raise Refusal(400, f"unknown field {name[:100]!r}", param=name[:100])

    def get(self, name: str) -> Any:
        """Any value; None if absent."""
        return self._body.get(name)

    def refuse(self, name: str, rule: str) -> Refusal:
        """The error to raise for a field that breaks a rule."""
        shown = repr(self._body.get(name))
        return Refusal(
            400, f"{name} must be {rule}, got {shown[:100]}", param=name, code="invalid_value"
        )

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refuse(name, f"a whole number from {least:,} to {most:,}")
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        value = self.get(name)
        if value is None:
            return default
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or not (math.isfinite(value) and least <= value <= most):
            raise self.refuse(name, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return bool(value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.get(name)
        value = default if value is None else value
        if not isinstance(value, str):
            raise self.refuse(name, "a string")
        return value

    def ids(self, name: str) -> list[int]:
        value = self.get(name)
        if not is_ids(value):
            raise self.refuse(name, "a list of token ids")
        return list(value)

    def stop(self) -> tuple[str, ...]:
        """`stop`: a string or a list of strings."""
        value = self.get("stop")
        found = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(found, list) or len(found) > MAX_STOPS:
            raise self.refuse("stop", f"a string or a list of at most {MAX_STOPS} strings")
        for text in found:
            if not (isinstance(text, str) and 0 < len(text) <= MAX_STOP_LENGTH):
                raise self.refuse("stop", f"strings of 1 to {MAX_STOP_LENGTH:,} characters")
        return tuple(found)

    def sampling(self) -> Sampling:
        """The sampling options; a random seed if there is none."""
        seed = self.get("seed")
        if seed is not None:
            # Seeds of OpenAI's API may be negative.
            seed = self.integer("seed", 0, -(2**63), 2**64 - 1) % 2**64
        top_k = self.integer("top_k", 0, -1, 2**31)
        temperature = self.number("temperature", 1.0, 0.0, 100.0)
        return lm.Sampling(
            # Smaller ones would make logits infinite.
            temperature=temperature if temperature >= MIN_TEMPERATURE else 0.0,
            # In other servers, 0 and -1 mean all ids.
            top_k=top_k if top_k > 0 else None,
            top_p=self.number("top_p", 1.0, 0.0, 1.0),
            min_p=self.number("min_p", 0.0, 0.0, 1.0),
            repetition_penalty=self.number("repetition_penalty", 1.0, 0.01, 100.0),
            # Small enough for the numbers of JavaScript.
            seed=secrets.randbelow(2**32) if seed is None else seed,
        )


def is_ids(value: object) -> bool:
    """Whether a value is a list of numbers that may be ids."""
    return isinstance(value, list) and all(type(id) is int and 0 <= id < 2**32 for id in value)
