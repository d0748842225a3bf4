"""Generation: logits → the next id, ids that continue ids, text that continues text.

Sampling applies repetition penalty, temperature, top-k, top-p and min-p, in this order. Draws
depend only on the seed and the number of the sample, so a sample does not depend on the size of its
batch. When the context is full, the model reads its second half again and generation continues. The
ids are the same with and without a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from .._numbers import check_least
from ..errors import ConfigError
from ..tokens.encode import end_of_text
from .config_checks import check_seed, check_types, from_mapping
from .keywords import SamplingOptions, Special, TextOptions, with_fields
from .model import TransformerLM

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..tokenizer import Tokenizer

__all__ = [
    "CachedStep",
    "DecodeStep",
    "GeneratedText",
    "Sampler",
    "Sampling",
    "TextStream",
    "as_prompt",
    "check_prompt",
    "end_id",
    "generate_ids",
    "generate_text",
    "id_steps",
    "new_step",
    "prompt_ids",
    "stream_text",
]


# Below this temperature, the likeliest id is taken: logits divided by it would not be finite.
MIN_TEMPERATURE = 1e-30


# --- logits → the next id -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next id is chosen.

    Attributes:
        temperature: divisor of the logits; 0 takes the likeliest id.
        top_k: sample from the k likeliest ids.
        top_p: sample from the likeliest ids whose probabilities sum to this.
        min_p: drop ids less likely than this share of the likeliest's probability.
        repetition_penalty: above 1, ids that occurred become less likely.
        seed: seed of the draws; None for a random one.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.seed is not None:
            check_seed(self.seed)
        if not self.temperature >= 0:
            raise ConfigError(f"temperature must be ≥ 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k must be ≥ 1, got {self.top_k}", "omit it to use all ids")
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{name} must be between 0 and 1, got {value}")
        if not self.repetition_penalty > 0:
            raise ConfigError(
                f"repetition_penalty must be > 0, got {self.repetition_penalty}", "1 is no penalty"
            )


class Sampler:
    """Chooses the next ids of a batch of samples.

    Args:
        sampling: the options.
        n_samples: B.
        max_tokens: maximum number of calls of `choose`.
        first: the number of the first sample; draws depend on the number.
        n_ids: ids from this one on are never chosen, such as those that pad the vocabulary of the
            model; None for all ids.
    """

    def __init__(
        self,
        sampling: Sampling,
        n_samples: int,
        max_tokens: int,
        device: torch.device,
        first: int = 0,
        n_ids: int | None = None,
    ) -> None:
        self.sampling, self._n_ids = sampling, n_ids
        self._seen: Tensor | None = None
        self._number = 0
        seed = sampling.seed
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        # All draws in advance: none is made, or moved to a device, between two steps.
        numbers = range(first, first + n_samples)
        draws = [np.random.default_rng([seed, n]).random(max_tokens) for n in numbers]
        self._draws = torch.tensor(np.array(draws), dtype=torch.float32, device=device)

    def observe(self, ids: Tensor, vocab_size: int) -> None:
        """Marks ids (B, T) as having occurred."""
        if self.sampling.repetition_penalty == 1.0:
            return
        if self._seen is None:
            self._seen = torch.zeros(
                len(self._draws), vocab_size, dtype=torch.bool, device=ids.device
            )
        self._seen.scatter_(1, ids, True)

    def choose(self, logits: Tensor) -> Tensor:
        """The next ids (B,) from logits (B, V)."""
        sampling = self.sampling
        logits = logits[:, : self._n_ids].float()
        if self._seen is not None:
            penalty = sampling.repetition_penalty
            lowered = torch.where(logits > 0, logits / penalty, logits * penalty)
            logits = torch.where(self._seen[:, : self._n_ids], lowered, logits)
        if sampling.temperature < MIN_TEMPERATURE or sampling.top_k == 1:
            chosen = logits.argmax(-1)
        else:
            chosen = self._draw(logits)
        self.observe(chosen.unsqueeze(-1), logits.shape[-1])
        self._number += 1
        return chosen

    def _draw(self, logits: Tensor) -> Tensor:
        sampling = self.sampling
        if sampling.temperature != 1.0:
            logits = logits / sampling.temperature
        places = None
        if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
            logits, places = logits.topk(sampling.top_k, sorted=True)
        shares = torch.softmax(logits, -1)
        if sampling.top_p is not None and sampling.top_p < 1:
            if places is None and shares.device.type == "cpu":
                shares = self._cut_by_value(shares, sampling.top_p)
            else:
                if places is None:
                    shares, places = shares.sort(-1, descending=True)
                # An id stays if those before it sum to less than top_p; the likeliest always does.
                before = shares.cumsum(-1) - shares
                shares = shares.masked_fill(before >= max(sampling.top_p, 1e-9), 0.0)
        if sampling.min_p:
            shares = shares.masked_fill(
                shares < sampling.min_p * shares.amax(-1, keepdim=True), 0.0
            )
        sums = shares.cumsum(-1)
        drawn = self._draws[:, self._number, None] * sums[:, -1:]
        # The first place whose sum exceeds the draw: never one with a share of zero.
        index = torch.searchsorted(sums, drawn, right=True)
        n = shares.shape[-1]
        # Rounding may push a draw past the last nonzero place. On a GPU, checking for that takes
        # longer than the correction.
        if index.device.type != "cpu" or int(index.max()) == n:
            last = (shares > 0).long().mul_(torch.arange(n, device=shares.device))
            index = torch.minimum(index, last.amax(-1, keepdim=True))
        if places is not None:
            index = places.gather(-1, index)
        return index.squeeze(-1)

    def _cut_by_value(self, shares: Tensor, top_p: float) -> Tensor:
        """Zeroes the shares below the smallest that `top_p` needs; equal ones stay.

        numpy sorts the values of a row in a tenth of the time of torch's sort, which also returns
        places.
        """
        kept = torch.empty_like(shares)
        for row, left in zip(shares.numpy(), kept.numpy()):
            falling = np.sort(row)[::-1]
            needed = np.count_nonzero(falling.cumsum() - falling < max(top_p, 1e-9))
            # Faster than filling by mask.
            np.multiply(row, row >= falling[needed - 1], out=left)
        return kept


# --- ids → logits of the next -------------------------------------------------------------------


class DecodeStep(Protocol):
    """Reads ids and predicts the next."""

    def read(self, ids: Tensor) -> Tensor:
        """Starts over with ids (B, T), or (1, T) for all samples; returns next logits (B, V)."""

    def step(self, ids: Tensor) -> Tensor:
        """Reads one more id of every sample, (B,); returns next logits (B, V)."""


class CachedStep:
    """The model's own forward pass with a key-value cache.

    Args:
        model: the model.
        n_samples: B.
        capacity: maximum number of ids.
    """

    def __init__(self, model: TransformerLM, n_samples: int, capacity: int) -> None:
        self.model, self.n_samples = model, n_samples
        self.cache = model.new_cache(n_samples, capacity)

    def read(self, ids: Tensor) -> Tensor:
        self.cache.set_length(0)
        hidden = self.model.hidden(ids, self.cache)
        return self.model.logits(hidden[:, -1]).expand(self.n_samples, -1)

    def step(self, ids: Tensor) -> Tensor:
        hidden = self.model.hidden(ids.unsqueeze(-1), self.cache)
        return self.model.logits(hidden[:, -1])


class _UncachedStep:
    """Reads all ids again at each step: the slow version that tests compare the others with."""

    def __init__(self, model: TransformerLM, n_samples: int, capacity: int) -> None:
        self.model, self.n_samples = model, n_samples
        self.ids = torch.empty(n_samples, 0, dtype=torch.long)

    def read(self, ids: Tensor) -> Tensor:
        self.ids = ids.expand(self.n_samples, -1)
        return self.model(self.ids)[:, -1]  # type: ignore[no-any-return]

    def step(self, ids: Tensor) -> Tensor:
        return self.read(torch.cat((self.ids, ids.unsqueeze(-1)), -1))


def new_step(model: TransformerLM, n_samples: int, capacity: int) -> DecodeStep:
    """The fastest step for this model."""
    from .fast.decode import NativeStep, can_run  # it imports this module

    made = NativeStep if can_run(model) else CachedStep
    return made(model, n_samples, capacity)


# --- ids that continue ids ----------------------------------------------------------------------


@with_fields(SamplingOptions)
def generate_ids(
    model: TransformerLM,
    ids: Sequence[int] | Tensor,
    *,
    max_tokens: int = 256,
    n_samples: int = 1,
    stop_ids: Sequence[int] = (),
    use_cache: bool = True,
    **sampling: Unpack[SamplingOptions],
) -> list[list[int]]:
    """Continues `ids`; returns the new ids of each sample.

    Args:
        model: the model.
        ids: the prompt.
        max_tokens: maximum number of new ids.
        n_samples: number of samples, generated as a batch.
        stop_ids: a sample ends before any of these.
        use_cache: False reads all ids again at each step, for comparison.
        sampling: the fields of [`Sampling`][bytemill.lm.Sampling]: `temperature`, `top_k`,
            `top_p`, `min_p`, `repetition_penalty`, `seed`.
    """
    samples: list[list[int]] = [[] for _ in range(n_samples)]
    stops = set(stop_ids)
    open_ = set(range(n_samples))
    chosen = from_mapping(Sampling, sampling, "options")
    for new in id_steps(model, ids, max_tokens, n_samples, chosen, use_cache=use_cache):
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
    n_ids: int | None = None,
) -> Iterator[list[int]]:
    """Yields the next id of every sample, below `n_ids`, `max_tokens` times."""
    prompt = as_prompt(ids).to(model.device)
    check_prompt(model, prompt, max_tokens, n_samples)
    context = model.config.context_length
    n_read = len(prompt)  # ids in the context
    history = torch.empty(n_samples, n_read + max_tokens, dtype=torch.long, device=model.device)
    history[:, :n_read] = prompt
    sampler = Sampler(sampling, n_samples, max_tokens, model.device, n_ids=n_ids)
    sampler.observe(history[:, :n_read], model.config.vocab_size)
    make = new_step if use_cache else _UncachedStep
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


def as_prompt(ids: Sequence[int] | Tensor) -> Tensor:
    """The ids of a prompt, (T,) or (1, T), as a tensor (T,)."""
    prompt = torch.as_tensor(ids)
    if prompt.numel() and (prompt.is_floating_point() or prompt.dtype == torch.bool):
        raise TypeError(f"ids must be integers, not {str(prompt.dtype).removeprefix('torch.')}")
    if prompt.numel() and prompt.numel() != prompt.shape[-1]:
        raise ConfigError(
            f"ids must be one prompt, got an array of the shape {tuple(prompt.shape)}",
            "call it once per prompt; n_samples= continues one prompt several times",
        )
    return prompt.reshape(-1).long()


def check_prompt(model: TransformerLM, prompt: Tensor, max_tokens: int, n_samples: int) -> None:
    """Raises unless the model can continue the ids of this prompt."""
    for name, value in (("max_tokens", max_tokens), ("n_samples", n_samples)):
        check_least(name, value, 1)
    config = model.config
    if len(prompt) == 0:
        raise ConfigError("the prompt is empty", "give some text")
    if len(prompt) > config.context_length:
        raise ConfigError(
            f"the prompt must have ≤ {config.context_length} tokens, the context length, "
            f"got {len(prompt)}",
            "shorten the prompt, or train with a longer context",
        )
    least, most = int(prompt.min()), int(prompt.max())
    if least < 0 or most >= config.vocab_size:
        wrong = least if least < 0 else most
        raise ConfigError(
            f"id {wrong} of the prompt is not below vocab_size={config.vocab_size}",
            "was it encoded with another tokenizer?",
        )


# --- text that continues text -------------------------------------------------------------------


@dataclass(frozen=True)
class GeneratedText:
    """The next text of a sample.

    Attributes:
        sample: the number of the sample, from 0.
        text: the text, in whole characters.
        done: None, or why the sample ended: `"end"` (end-of-text), `"stop"` (a stop string),
            `"length"` (`max_tokens`).
    """

    sample: int
    text: str
    done: Literal["end", "stop", "length"] | None = None


def prompt_ids(tokenizer: Tokenizer, prompt: str, special: Special = "none") -> list[int]:
    """The ids of a prompt; an empty prompt is the end-of-text token, which starts a new text."""
    ids = tokenizer.encode(prompt, special=special)
    if not ids:
        end = end_id(tokenizer)
        if end is None:
            raise ConfigError(
                "the prompt is empty, and the tokenizer has no end-of-text token to start from",
                "give some text",
            )
        ids = [end]
    return ids


def end_id(tokenizer: Tokenizer) -> int | None:
    """The id of the end-of-text token; None if there is none."""
    end = end_of_text(tokenizer, None, append_eot=False)
    return None if end is None else tokenizer.special_tokens[end]


@with_fields(SamplingOptions)
def stream_text(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int = 256,
    n_samples: int = 1,
    stop: Sequence[str] = (),
    special: Special = "none",
    use_cache: bool = True,
    **sampling: Unpack[SamplingOptions],
) -> Iterator[GeneratedText]:
    """Continues a prompt and yields text as it is generated. Samples end at the end-of-text token.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        prompt: the text to continue; an empty one starts a new text.
        max_tokens: maximum number of new tokens.
        n_samples: number of samples, generated as a batch.
        stop: a sample ends before any of these strings.
        special: special tokens to recognize in the prompt, as in `Tokenizer.encode`.
        use_cache: as in `generate_ids`.
        sampling: the fields of [`Sampling`][bytemill.lm.Sampling].
    """
    if isinstance(stop, str):
        raise TypeError(f"stop must be a list of strings, not the string {stop!r}")
    if any(not text for text in stop):
        raise ConfigError("stop strings must not be empty", "omit it")
    end = end_id(tokenizer)
    texts = [TextStream(tokenizer, tuple(stop)) for _ in range(n_samples)]
    open_ = list(range(n_samples))
    steps = id_steps(
        model,
        prompt_ids(tokenizer, prompt, special),
        max_tokens,
        n_samples,
        from_mapping(Sampling, sampling, "options"),
        use_cache=use_cache,
        n_ids=tokenizer.max_id + 1,
    )
    for new in steps:
        for number in list(open_):
            if new[number] == end:
                yield GeneratedText(number, texts[number].finish(), "end")
                open_.remove(number)
                continue
            text, stopped = texts[number].push(new[number])
            if stopped:
                open_.remove(number)
                yield GeneratedText(number, text, "stop")
            elif text:
                yield GeneratedText(number, text)
        if not open_:
            return
    for number in open_:
        yield GeneratedText(number, texts[number].finish(), "length")


@with_fields(TextOptions)
def generate_text(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int = 256,
    **options: Unpack[TextOptions],
) -> list[str]:
    """The complete texts of [`stream_text`][bytemill.lm.stream_text], one per sample."""
    texts = [""] * options.get("n_samples", 1)
    for piece in stream_text(model, tokenizer, prompt, max_tokens=max_tokens, **options):
        texts[piece.sample] += piece.text
    return texts


class TextStream:
    """Ids → text: whole characters only, and no part of a stop string."""

    def __init__(self, tokenizer: Tokenizer, stops: tuple[str, ...]) -> None:
        self._decoder = tokenizer.decoder()
        self._stops = stops
        self._held = ""

    def push(self, id: int) -> tuple[str, bool]:
        """The text that is complete, and whether a stop string was found."""
        self._held += self._decoder.push(id)
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            return self._held[: min(found)], True
        # The start of a possible stop string is held back.
        waiting = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - waiting
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def finish(self) -> str:
        rest, self._held = self._held + self._decoder.finish(), ""
        found = [at for stop in self._stops if (at := rest.find(stop)) >= 0]
        return rest[: min(found)] if found else rest


def _overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
