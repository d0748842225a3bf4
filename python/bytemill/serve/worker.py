"""Model workers: one thread per loaded model, in which requests are decoded together.

    handler ── submit ──► waiting ──► batch, a step at a time ──► progress ──► handler
    (asyncio)             (a queue)   (the worker thread)         (asyncio)

Requests wait in a queue of limited length; another one is refused with 429. Between two steps the
worker removes the samples of clients that went away and admits new ones, one of each waiting
request in turn. The tokens of a step reach asyncio in one call that does not block. If a step
fails, every request gets the error, and the next one loads the model again.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .. import lm
from ..errors import BytemillError, TokenizerError
from .replies import Refusal

if TYPE_CHECKING:
    from torch import Tensor

    from ..lm import BatchSample, Sampling, TransformerLM
    from ..tokenizer import Tokenizer

__all__ = ["Generation", "ModelWorker", "Order", "SampleProgress", "Token", "busy", "token_bytes"]

log = logging.getLogger(__name__)

# Bytes of the cache of a batch.
MAX_CACHE = 2 << 30
RETRY_SECONDS = 1
MIN_LOGPROB = -9999.0
# Positions of a prompt whose logits are in memory at a time.
SCORED_ROWS = 64

Reason = Literal["end", "stop", "length"]


@dataclass(frozen=True)
class Order:
    """A request for generated text.

    Attributes:
        prompts: ids to continue.
        sampling: how ids are chosen, with a seed.
        max_tokens: maximum number of new ids of a sample.
        n: samples per prompt; those of prompt p are numbered from p · n.
        stop: a sample ends before any of these strings.
        stop_ids: a sample ends before any of these ids.
        n_top: the likeliest ids to report with each id; None for no probabilities at all.
        score_prompts: whether to report those of the prompts too.
    """

    prompts: Sequence[Sequence[int]]
    sampling: Sampling
    max_tokens: int
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    n_top: int | None = None
    score_prompts: bool = False

    @property
    def n_samples(self) -> int:
        return len(self.prompts) * self.n


@dataclass
class Token:
    """A new token.

    Attributes:
        id: its id.
        text: the characters that it completes.
        logprob: the log-probability that the model gave it, at temperature 1.
        top: the likeliest ids and their log-probabilities.
    """

    id: int
    text: str
    logprob: float | None = None
    top: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True)
class SampleProgress:
    """The next tokens of a sample.

    Attributes:
        sample: its number.
        tokens: the tokens; none that a stop string may still cut off.
        n_tokens: ids chosen so far.
        done: None, or why the sample ended, as in `GeneratedText`.
        prompt: the tokens of the prompt with their probabilities; None unless they were scored.
    """

    sample: int
    tokens: list[Token]
    n_tokens: int
    done: Reason | None = None
    prompt: list[Token] | None = None


class Generation:
    """The progress of a request, step by step; belongs to one event loop."""

    def __init__(self, worker: ModelWorker, order: Order) -> None:
        self.order = order
        self.cancelled = False
        self.loop = asyncio.get_running_loop()
        self.arrived: asyncio.Queue[list[SampleProgress] | BytemillError] = asyncio.Queue()
        self._worker = worker

    async def __aiter__(self) -> AsyncIterator[list[SampleProgress]]:
        n_open = self.order.n_samples
        while n_open:
            steps = [await self.arrived.get()]
            # Steps that piled up are one write, not many without a turn of the event loop, which
            # would not notice that the client has disconnected.
            while not self.arrived.empty():
                steps.append(self.arrived.get_nowait())
            arrived: list[SampleProgress] = []
            for step in steps:
                if isinstance(step, BytemillError):
                    if arrived:
                        yield arrived
                    raise step
                arrived += step
            n_open -= sum(progress.done is not None for progress in arrived)
            yield arrived

    def cancel(self) -> None:
        """Stops the work; nothing happens if it is done."""
        self.cancelled = True
        self._worker.forget(self)


# --- tokens of a sample -------------------------------------------------------------------------


class _Output:
    """Ids → tokens with their text: whole characters, and no part of a stop string."""

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown = lm.TextStream(tokenizer, stop)
        # Tokens that wait for a character's last byte or may be part of a stop string, each with
        # whether a character ends with it.
        self._held: deque[tuple[Token, bool]] = deque()
        # Characters of theirs that are no part of a stop string.
        self._n_clear = 0

    def push(self, token: Token) -> tuple[list[Token], bool]:
        """Adds a token and its text.

        Returns the tokens that can be shown, and whether a stop string was found.
        """
        token.text = self._decoder.decode(self._tokenizer.decode_bytes([token.id]))
        self._held.append((token, not self._decoder.getstate()[0]))
        text, stopped = self._shown.push(token.id)
        self._n_clear += len(text)
        return self._cut() if stopped else self._clear(), stopped

    def finish(self) -> list[Token]:
        """The remaining tokens."""
        if self._held:
            # An incomplete character at the end becomes U+FFFD.
            self._held[-1][0].text += self._decoder.decode(b"", True)
        self._n_clear += len(self._shown.finish())
        if self._n_clear >= sum(len(token.text) for token, _ in self._held):
            return [token for token, _ in self._held]
        return self._cut()

    def _clear(self) -> list[Token]:
        """Takes the tokens whose characters are complete and clear."""
        n, n_tokens = 0, 0
        for number, (token, ends) in enumerate(self._held, 1):
            n += len(token.text)
            if n > self._n_clear:
                break
            if ends:
                n_tokens, n_shown = number, n
        if n_tokens == 0:
            return []
        self._n_clear -= n_shown
        return [self._held.popleft()[0] for _ in range(n_tokens)]

    def _cut(self) -> list[Token]:
        """The tokens before a stop string; the last may have lost a part of its text."""
        found = []
        for token, _ in self._held:
            if self._n_clear == 0:
                break
            token.text = token.text[: self._n_clear]
            self._n_clear -= len(token.text)
            found.append(token)
        return found


# --- the worker ---------------------------------------------------------------------------------


class _Work:
    """A request that is not done, as the worker sees it."""

    def __init__(self, generation: Generation) -> None:
        self.generation, self.order = generation, generation.order
        # Samples that are not in the batch yet, and those that are not done.
        self.waiting = deque(range(self.order.n_samples))
        self.n_open = self.order.n_samples
        # The tokens of prompts, by their number.
        self.scored: dict[int, list[Token]] = {}


@dataclass
class _Open:
    """A sample in the batch."""

    work: _Work
    number: int
    output: _Output
    n_tokens: int = 0


class ModelWorker:
    """A loaded model and the thread in which it generates.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        max_batch: samples that are decoded together.
        max_queue: requests that wait beyond those that can be admitted at once.
    """

    def __init__(
        self,
        model: TransformerLM,
        tokenizer: Tokenizer,
        *,
        max_batch: int = 16,
        max_queue: int = 64,
    ) -> None:
        self.model, self.tokenizer, self.max_queue = model, tokenizer, max_queue
        config = model.config
        per_row = 2 * config.num_layers * config.context_length * config.n_kv * config.d_head
        # Used by the worker thread only.
        self._batch = lm.DecodeBatch(model, max(1, min(max_batch, MAX_CACHE // (4 * per_row))))
        self._open: dict[BatchSample, _Open] = {}
        # Guards the fields below.
        self._changed = threading.Condition()
        self._works: dict[Generation, _Work] = {}
        self._waiting: deque[_Work] = deque()
        self._n_free = self._batch.n_free
        self._failure: BytemillError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="bytemill-worker", daemon=True)
        self._thread.start()

    # --- for handlers ---------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether it has no request."""
        return not self._works

    @property
    def is_usable(self) -> bool:
        """Whether it takes requests."""
        return not self._closing and self._failure is None

    @property
    def end_ids(self) -> frozenset[int]:
        """The end-of-text token, if the tokenizer has one."""
        from ..lm.generate import end_id

        end = end_id(self.tokenizer)
        return frozenset() if end is None else frozenset([end])

    @property
    def n_free(self) -> int:
        """Samples that can be admitted at once."""
        return self._n_free

    def submit(self, order: Order) -> Generation:
        """Queues a request; raises if it is invalid, or a 429 if the queue is full."""
        self._check(order)
        generation = Generation(self, order)
        with self._changed:
            if not self.is_usable:
                raise self._failure or _stopping()
            if len(self._waiting) >= self.max_queue + self._n_free:
                raise busy(f"{len(self._waiting)} requests are waiting already")
            work = self._works[generation] = _Work(generation)
            self._waiting.append(work)
            self._changed.notify()
        return generation

    def _check(self, order: Order) -> None:
        import torch

        from ..lm.generate import check_prompt

        try:
            for prompt in order.prompts:
                ids = torch.tensor(prompt, dtype=torch.long)
                check_prompt(self.model, ids, max(1, order.max_tokens), 1)
        except BytemillError as error:
            raise Refusal(400, error.message, error.hint, param="prompt") from None

    def forget(self, generation: Generation) -> None:
        """Ends the work for a cancelled request, at the latest after the step in progress."""
        with self._changed:
            work = self._works.pop(generation, None)
            if work is not None and work in self._waiting:
                self._waiting.remove(work)
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread; requests that are not done get an error."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    # --- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        failure: BytemillError = _stopping()
        try:
            while self._admit():
                self._advance()
        except Exception as error:
            log.exception("a model worker failed")
            failure = Refusal(500, f"the model failed: {type(error).__name__}")
        with self._changed:
            self._failure = failure
            works, self._works = list(self._works), {}
            self._waiting.clear()
        _hand_over((generation, failure) for generation in works)

    def _admit(self) -> bool:
        """Waits for work, and admits samples; false when the worker closes."""
        admitted = []
        with self._changed:
            while True:
                for sample, open_ in list(self._open.items()):
                    if open_.work.generation.cancelled:
                        self._leave(sample)
                self._n_free = self._batch.n_free
                if self._closing:
                    return False
                if self._open or self._waiting:
                    break
                self._changed.wait()
            while self._waiting and self._n_free:
                work = self._waiting.popleft()
                admitted.append((work, work.waiting.popleft()))
                self._n_free -= 1
                if work.waiting:
                    self._waiting.append(work)
                if work.order.score_prompts:
                    break  # one prompt at a time: the others must not wait long
        for work, number in admitted:
            try:
                self._start(work, number)
            except BytemillError as error:
                self._drop(work.generation, error)
        return True

    def _drop(self, generation: Generation, error: BytemillError) -> None:
        """Ends one request with an error, such as an id that the tokenizer does not have."""
        generation.cancel()
        _hand_over([(generation, error)])

    def _start(self, work: _Work, number: int) -> None:
        """Starts a sample: scores its prompt if requested, and adds it to the batch."""
        order = work.order
        which, number_of_prompt = divmod(number, order.n)
        prompt = order.prompts[which]
        if order.score_prompts:
            if which not in work.scored:
                work.scored[which] = self._scored(prompt, order.n_top or 0)
            done: Reason | None = None if order.max_tokens else "length"
            _hand_over(
                [(work.generation, [SampleProgress(number, [], 0, done, work.scored[which])])]
            )
        elif order.max_tokens == 0:
            _hand_over([(work.generation, [SampleProgress(number, [], 0, "length")])])
        if order.max_tokens == 0:
            self._close(work)
            return
        sample = self._batch.join(
            prompt,
            order.sampling,
            order.max_tokens,
            number=number_of_prompt,
            n_ids=self.tokenizer.max_id + 1,
        )
        self._open[sample] = _Open(work, number, _Output(self.tokenizer, order.stop))

    def _scored(self, prompt: Sequence[int], n_top: int) -> list[Token]:
        """The tokens of a prompt with their probabilities; the first has none."""
        import torch

        ids = torch.tensor([prompt], dtype=torch.long, device=self.model.device)
        output = _Output(self.tokenizer, ())
        found = output.push(Token(prompt[0], ""))[0]
        with torch.inference_mode():
            hidden = self.model.hidden(ids)[0, :-1]
            # Not the logits of all positions at once, which may take much memory.
            for start in range(0, len(hidden), SCORED_ROWS):
                logits = self.model.logits(hidden[start : start + SCORED_ROWS])
                following = ids[0, start + 1 : start + 1 + len(logits)]
                for token in _likelihoods(logits, following, n_top):
                    found += output.push(token)[0]
        return found + output.finish()

    def _leave(self, sample: BatchSample) -> None:
        self._batch.leave(sample)
        del self._open[sample]

    def _advance(self) -> None:
        """Decodes one token of each sample in the batch."""
        arrived: dict[Generation, list[SampleProgress]] = {}
        for sample, id, logits in self._batch.step():
            open_ = self._open[sample]
            generation = open_.work.generation
            if generation.cancelled:
                continue
            try:
                progress = self._progress(open_, id, logits)
            except BytemillError as error:
                self._drop(generation, error)
                continue
            if progress.tokens or progress.done:
                arrived.setdefault(generation, []).append(progress)
            if progress.done:
                self._leave(sample)
                self._close(open_.work)
        _hand_over(arrived.items())

    def _close(self, work: _Work) -> None:
        """Records that a sample is done; forgets its request after the last one."""
        work.n_open -= 1
        if work.n_open == 0:
            with self._changed:
                self._works.pop(work.generation, None)

    def _progress(self, open_: _Open, id: int, logits: Tensor) -> SampleProgress:
        import torch

        order, output = open_.work.order, open_.output
        if id in order.stop_ids:
            return SampleProgress(open_.number, output.finish(), open_.n_tokens, "end")
        open_.n_tokens += 1
        token = Token(id, "")
        if order.n_top is not None:
            chosen = logits.new_tensor([id], dtype=torch.long)
            [token] = _likelihoods(logits.unsqueeze(0), chosen, order.n_top)
        tokens, stopped = output.push(token)
        done: Reason | None = "stop" if stopped else None
        if not stopped and open_.n_tokens == order.max_tokens:
            tokens, done = tokens + output.finish(), "length"
        return SampleProgress(open_.number, tokens, open_.n_tokens, done)


def token_bytes(tokenizer: Tokenizer, id: int) -> bytes:
    """The bytes of a token; none for an id that only the model has."""
    try:
        return tokenizer.decode_bytes([id])
    except TokenizerError:
        return b""


def _likelihoods(logits: Tensor, ids: Tensor, n_top: int) -> list[Token]:
    """Tokens of ids (T), and the likeliest ids, with their log-probabilities by logits (T, V)."""
    # A model that has diverged gives NaN, which JSON cannot represent.
    logprobs = logits.float().log_softmax(-1).nan_to_num(MIN_LOGPROB, neginf=MIN_LOGPROB)
    own = logprobs.gather(-1, ids.unsqueeze(-1)).squeeze(-1).tolist()
    values, top = logprobs.topk(min(n_top, logprobs.shape[-1]))
    return [
        Token(id, "", logprob, list(zip(top_ids, top_logprobs)))
        for id, logprob, top_ids, top_logprobs in zip(
            ids.tolist(), own, top.tolist(), values.tolist()
        )
    ]


def _hand_over(
    arrived: Iterable[tuple[Generation, list[SampleProgress] | BytemillError]]
    | Iterable[tuple[Generation, list[SampleProgress]]],
) -> None:
    """Sends the tokens of a step to the event loops of the requests, in one call per loop."""
    by_loop: dict[
        asyncio.AbstractEventLoop, list[tuple[Generation, list[SampleProgress] | BytemillError]]
    ] = {}
    for generation, items in arrived:
        by_loop.setdefault(generation.loop, []).append((generation, items))
    for loop, found in by_loop.items():
        # The loop may have ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_receive, found)


def _receive(found: list[tuple[Generation, list[SampleProgress] | BytemillError]]) -> None:
    for generation, items in found:
        generation.arrived.put_nowait(items)


def busy(reason: str) -> Refusal:
    """The refusal of a request because of other requests: a 429."""
    return Refusal(
        429,
        f"the server is busy: {reason}",
        "try again later",
        code="rate_limit_exceeded",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


def _stopping() -> Refusal:
    return Refusal(503, "the server is stopping", headers={"Retry-After": str(RETRY_SECONDS)})
