"""Generation: ids behind ids, and text behind text.

When a context is full, its later half is read anew and generation goes on behind it; with a cache
or without, the ids are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import ConfigError
from ..tokens.encode import end_of_text
from .fast.decode import DecodeStep, new_step
from .model import TransformerLM
from .sampling import Sampler, Sampling

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = ["Piece", "generate_ids", "generate_text", "id_steps", "prompt_ids", "stream_text"]


def generate_ids(
    model: TransformerLM,
    ids: Sequence[int] | Tensor,
    max_tokens: int = 256,
    *,
    n_samples: int = 1,
    stop_ids: Sequence[int] = (),
    use_cache: bool = True,
    **sampling: Any,
) -> list[list[int]]:
    """Goes on behind `ids`; gives the new ids of each sample.

    Args:
        model: the model.
        ids: the prompt.
        max_tokens: the most ids of a sample.
        n_samples: how many samples, made side by side.
        stop_ids: a sample ends before any of these.
        use_cache: False reads everything anew for each id, to check against.
        sampling: the fields of [`Sampling`][bytemill.lm.Sampling]: `temperature`, `top_k`,
            `top_p`, `min_p`, `repetition_penalty`, `seed`.
    """
    samples: list[list[int]] = [[] for _ in range(n_samples)]
    stops = set(stop_ids)
    open_ = set(range(n_samples))
    steps = id_steps(model, ids, max_tokens, n_samples, Sampling(**sampling), use_cache=use_cache)
    for new in steps:
        for number in list(open_):
            if new[number] in stops:
                open_.discard(number)
            else:
                samples[number].append(new[number])
        if not open_:
            break
    return samples


def id_steps(
    model: TransformerLM,
    ids: Sequence[int] | Tensor,
    max_tokens: int,
    n_samples: int,
    sampling: Sampling,
    *,
    use_cache: bool = True,
) -> Iterator[list[int]]:
    """The next id of every sample, again and again."""
    prompt = torch.as_tensor(ids, dtype=torch.long, device=model.device).reshape(-1)
    _check_prompt(model, prompt, max_tokens, n_samples)
    context = model.config.context_length
    n_read = len(prompt)  # how many ids the model has before it
    history = torch.empty(n_samples, n_read + max_tokens, dtype=torch.long, device=model.device)
    history[:, :n_read] = prompt
    sampler = Sampler(sampling, n_samples, max_tokens, model.device)
    sampler.observe(history[:, :n_read], model.config.vocab_size)
    make = new_step if use_cache else _Rereading
    with torch.inference_mode():
        step: DecodeStep = make(model, n_samples, min(context, n_read + max_tokens))
        logits = step.read(prompt.unsqueeze(0))
        for end in range(n_read, n_read + max_tokens):
            new = sampler.choose(logits)
            history[:, end] = new
            yield new.tolist()
            if end + 1 == history.shape[1]:
                return
            if n_read < context:
                n_read += 1
                logits = step.step(new)
            else:
                n_read = max(1, context // 2)
                logits = step.read(history[:, end + 1 - n_read : end + 1])


def _check_prompt(model: TransformerLM, prompt: Tensor, max_tokens: int, n_samples: int) -> None:
    for name, value in (("max_tokens", max_tokens), ("n_samples", n_samples)):
        if value < 1:
            raise ConfigError(f"{name}={value} cannot be", "use 1 or more")
    config = model.config
    if len(prompt) == 0:
        raise ConfigError("the prompt is empty", "begin with some text")
    if len(prompt) > config.context_length:
        raise ConfigError(
            f"the prompt has {len(prompt)} tokens, and the model reads {config.context_length}",
            "shorten the prompt, or train with a longer context",
        )
    least, most = int(prompt.min()), int(prompt.max())
    if least < 0 or most >= config.vocab_size:
        wrong = least if least < 0 else most
        raise ConfigError(
            f"id {wrong} of the prompt is not below vocab_size={config.vocab_size}",
            "was it made with another tokenizer?",
        )


class _Rereading:
    """The step without a cache: what is slow and surely right."""

    def __init__(self, model: TransformerLM, n_samples: int, capacity: int) -> None:
        self.model, self.n_samples = model, n_samples
        self.ids = torch.empty(n_samples, 0, dtype=torch.long)

    def read(self, ids: Tensor) -> Tensor:
        self.ids = ids.expand(self.n_samples, -1)
        return self.model(self.ids)[:, -1]  # type: ignore[no-any-return]

    def step(self, ids: Tensor) -> Tensor:
        return self.read(torch.cat((self.ids, ids.unsqueeze(-1)), -1))


# --- text --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """Some text of a sample.

    Attributes:
        sample: the number of the sample, from 0.
        text: what comes next of it; whole characters only.
        done: None, or why nothing follows: `"end"` (end-of-text), `"stop"` (a stop string),
            `"length"` (`max_tokens`).
    """

    sample: int
    text: str
    done: str | None = None


def prompt_ids(tokenizer: Tokenizer, prompt: str, special: Any = "none") -> list[int]:
    """The ids of a prompt; of an empty one, the end-of-text, behind which a text begins."""
    ids = tokenizer.encode(prompt, special)
    if not ids:
        end = end_of_text(tokenizer, None, append_eot=False)
        if end is None:
            raise ConfigError(
                "the prompt is empty, and the tokenizer has no end-of-text to begin behind",
                "begin with some text",
            )
        ids = [tokenizer.special_tokens[end]]
    return ids


def stream_text(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    max_tokens: int = 256,
    *,
    n_samples: int = 1,
    stop: Sequence[str] = (),
    special: Any = "none",
    use_cache: bool = True,
    **sampling: Any,
) -> Iterator[Piece]:
    """Text behind a prompt, as it comes. Samples end at the end-of-text.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        prompt: the text to go on from; if empty, a new text begins.
        max_tokens: the most tokens of a sample.
        n_samples: how many samples, made side by side.
        stop: a sample ends before any of these texts.
        special: which special tokens of the prompt count as such, as in `Tokenizer.encode`.
        use_cache: as in `generate_ids`.
        sampling: the fields of [`Sampling`][bytemill.lm.Sampling].
    """
    if any(not text for text in stop):
        raise ConfigError("an empty stop string would stop before it begins", "leave it out")
    end = end_of_text(tokenizer, None, append_eot=False)
    end_id = None if end is None else tokenizer.special_tokens[end]
    texts = [_Text(tokenizer, tuple(stop)) for _ in range(n_samples)]
    open_ = list(range(n_samples))
    steps = id_steps(
        model,
        prompt_ids(tokenizer, prompt, special),
        max_tokens,
        n_samples,
        Sampling(**sampling),
        use_cache=use_cache,
    )
    for new in steps:
        for number in list(open_):
            if new[number] == end_id:
                yield Piece(number, texts[number].finish(), "end")
                open_.remove(number)
                continue
            text, stopped = texts[number].push(new[number])
            if stopped:
                open_.remove(number)
                yield Piece(number, text, "stop")
            elif text:
                yield Piece(number, text)
        if not open_:
            return
    for number in open_:
        yield Piece(number, texts[number].finish(), "length")


def generate_text(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    max_tokens: int = 256,
    *,
    n_samples: int = 1,
    **options: Any,
) -> list[str]:
    """The texts of `stream_text`, whole."""
    texts = [""] * n_samples
    for piece in stream_text(model, tokenizer, prompt, max_tokens, n_samples=n_samples, **options):
        texts[piece.sample] += piece.text
    return texts


class _Text:
    """Ids → text that may be shown: no half characters, nothing of a stop string."""

    def __init__(self, tokenizer: Tokenizer, stops: tuple[str, ...]) -> None:
        self._decoder = tokenizer.decoder()
        self._stops = stops
        self._held = ""

    def push(self, id: int) -> tuple[str, bool]:
        """What may be shown now, and whether a stop string was met."""
        self._held += self._decoder.push(id)
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            return self._held[: min(found)], True
        # What may yet become a stop string waits.
        waiting = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - waiting
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def finish(self) -> str:
        rest, self._held = self._held + self._decoder.finish(), ""
        found = [at for stop in self._stops if (at := rest.find(stop)) >= 0]
        return rest[: min(found)] if found else rest


def _overlap(text: str, stop: str) -> int:
    """How long the longest end of `text` is that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
