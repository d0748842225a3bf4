"""Evaluation: how well a model predicts tokens that it was not trained on.

During training, on fixed windows (`Evaluator`); afterwards, each token once, with as much context
as requested (`evaluate`):

ids      0 1 2 3 4 5 6 7 8 9     context 4, stride 2
window   0 1 2 3 → 1 2 3 4       the first window scores all its predictions,
             2 3 4 5 → 5 6       the others only the new ones
                 4 5 6 7 → 7 8
                   5 6 7 8 → 9   the last window has a whole context, too
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn

from .._numbers import check_integer
from ..errors import ConfigError, TokensError
from ..progress import Progress, ProgressCallback, ProgressOption
from ..tokenizer import Tokenizer
from ..tokens.encode import end_of_text
from ..tokens.plan import SplitName
from . import evaluation_checks
from .config import TrainConfig
from .data import TokenArray, check_ids, fixed_windows, take_windows
from .devices import ComputePlan
from .keywords import StepName, TokenDtype
from .model import TransformerLM
from .naive import perplexity
from .parallel import World
from .run.config_file import read_config
from .run.directory import load
from .run.sources import TokenSlice, open_tokens, splits_of
from .trainer import prepare

__all__ = [
    "DocumentScore",
    "Evaluation",
    "Evaluator",
    "Scores",
    "evaluate",
    "spans",
    "token_lengths",
]

# Rows whose logits are in memory at a time.
HEAD_ROWS = 1024


@dataclass(frozen=True)
class Evaluation:
    """Loss and what follows from it.

    Attributes:
        loss: mean cross-entropy per token, in nats.
        perplexity: exp of the loss.
        bits_per_byte: bits needed for the text, per byte of it; comparable across tokenizers. None
            without a tokenizer.
        n_tokens: number of predicted tokens.
    """

    loss: float
    perplexity: float
    bits_per_byte: float | None
    n_tokens: int


def token_lengths(tokenizer: Tokenizer, vocab_size: int) -> npt.NDArray[np.int64]:
    """Bytes of text per id; 0 for special tokens."""
    lengths = np.zeros(vocab_size, np.int64)
    for id, token in tokenizer.vocab.items():
        lengths[id] = len(token)
    lengths[list(tokenizer.special_tokens.values())] = 0
    return lengths


class Evaluator:
    """Evaluates models on the same windows each time.

    Args:
        tokens: held-out tokens.
        context_length: context length of the model.
        n_windows: number of windows, evenly spaced.
        lengths: bytes per id, for bits per byte.
        at_once: windows per batch on each rank.
        vocab_size: ids must be below this.
    """

    def __init__(
        self,
        tokens: TokenArray,
        context_length: int,
        n_windows: int,
        lengths: npt.NDArray[np.int64] | None = None,
        at_once: int = 32,
        vocab_size: int | None = None,
    ) -> None:
        starts = fixed_windows(tokens, context_length, n_windows)
        self.windows = take_windows(tokens, starts, context_length, vocab_size)
        self.at_once = at_once
        self.n_tokens = int(self.windows[:, 1:].size)
        self.n_bytes = None if lengths is None else int(lengths[self.windows[:, 1:]].sum())

    def __call__(self, model: nn.Module, world: World, autocast: Any) -> Evaluation:
        """Evaluates a model; all ranks must call this, and each computes its share."""
        nats = 0.0
        stride = self.at_once * world.size
        was_training = model.training
        model.eval()
        with torch.no_grad(), autocast:
            for start in range(0, len(self.windows), stride):
                begin = start + world.rank * self.at_once
                mine = self.windows[begin : begin + self.at_once]
                # A rank without windows computes one anyway: FSDP needs all ranks.
                ids = torch.from_numpy(mine if len(mine) else self.windows[:1]).to(world.device)
                loss = float(model(ids[:, :-1], ids[:, 1:]))
                nats += loss * mine[:, 1:].size
        model.train(was_training)
        world.put_back(model)
        nats = world.sum([nats])[0]
        loss = nats / self.n_tokens
        bits = None if not self.n_bytes else nats / math.log(2) / self.n_bytes
        return Evaluation(loss, perplexity(loss), bits, self.n_tokens)


# --- after training -----------------------------------------------------------------------------


@dataclass(frozen=True)
class DocumentScore:
    """The score of a document.

    Attributes:
        number: its number among the documents, from 0.
        evaluation: of this document alone.
        n_bytes: bytes of the predicted text; None without a tokenizer.
    """

    number: int
    evaluation: Evaluation
    n_bytes: int | None


@dataclass(frozen=True)
class Scores:
    """The result of `evaluate`.

    Attributes:
        evaluation: of all tokens together.
        tokens: a description of the tokens.
        context_length: maximum context of a token.
        stride: tokens scored per window.
        documents: the score of each document, with `per_document`.
        warnings: likely mistakes, as text.
    """

    evaluation: Evaluation
    tokens: str
    context_length: int
    stride: int
    documents: list[DocumentScore] | None
    warnings: list[str]


def evaluate(
    run: str | os.PathLike[str],
    tokens: str | os.PathLike[str],
    *,
    split: SplitName | None = None,
    step: StepName = "best",
    stride: int | None = None,
    per_document: bool = False,
    batch_size: int = 16,
    token_dtype: TokenDtype = "uint16",
    device: str = "auto",
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    check: bool = True,
    progress: ProgressOption = None,
) -> Scores:
    """Evaluates the model of a run on tokens.

    Args:
        run: its directory.
        tokens: a directory of tokens, a `.npy`, or raw ids.
        split: the split of a directory that has several; None for `val` if there is one. For the
            tokens that the run was trained on, None means those it held out, `"all"` all of them.
        step: the checkpoint: `"best"`, `"last"`, or a number.
        stride: tokens scored per window; a smaller stride gives tokens more context and takes
            longer. None for half the context.
        per_document: score each document separately, with only an end-of-text token before it.
        batch_size: windows per batch.
        token_dtype: type of raw ids.
        device: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1` or `mps`.
        tokenizer: the tokenizer the model was trained with, for a run that has none.
        check: look for documents that the run was trained on; this reads its training tokens.
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
    """
    # Always in float32, so that the result does not depend on the machine.
    train = TrainConfig(device=device, dtype="float32", batch_size=batch_size)
    model, tokenizer = load(run, step=step, device=train.device, tokenizer=tokenizer)
    config = model.config
    stride = max(1, config.context_length // 2) if stride is None else stride
    check_integer("stride", stride)
    if not 1 <= stride <= config.context_length:
        raise ConfigError(
            f"stride must be from 1 to the context length, {config.context_length}, got {stride}"
        )
    facts = read_config(Path(run))
    ids, name = _chosen(facts, Path(tokens), split, token_dtype)
    evaluation_checks.check_same_tokenizer(facts, tokenizer, ids, str(tokens))
    # The prediction is for training; evaluation stores neither gradients nor activations.
    plan = prepare(config, train, force=True, warm=False).plan
    plan.attach(model)
    lengths = None if tokenizer is None else token_lengths(tokenizer, config.vocab_size)
    end = _end_id(tokenizer)
    scorer = _Scorer(model, plan, lengths, stride, batch_size)
    with Progress(progress) as report:
        if per_document:
            ends = evaluation_checks.document_ends(ids, end)
            parts = scorer.documents(ids, ends, end, report)
        else:
            parts = scorer.whole(ids, report)
        overlap = evaluation_checks.overlap(facts, ids, end, tokenizer, report) if check else None
    total = sum(parts, _Sums())
    if total.n_tokens == 0:
        raise TokensError(f"{tokens}: at least two tokens are needed to predict one")
    found = total.evaluation(lengths is not None)
    return Scores(
        evaluation=found,
        tokens=name,
        context_length=config.context_length,
        stride=stride,
        documents=[
            DocumentScore(
                n, part.evaluation(lengths is not None), part.n_bytes if tokenizer else None
            )
            for n, part in enumerate(parts)
            if part.n_tokens
        ]
        if per_document
        else None,
        warnings=evaluation_checks.of_loss(found.loss, config.vocab_size) + (overlap or []),
    )


def spans(n_ids: int, context_length: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Windows over `n_ids`: (start, first id that is scored, end).

    >>> list(spans(10, 4, 2))
    [(0, 1, 5), (2, 5, 7), (4, 7, 9), (5, 9, 10)]
    """
    first, end = 1, min(context_length + 1, n_ids)
    while first < n_ids:
        yield max(0, end - 1 - context_length), first, end
        first, end = end, min(end + stride, n_ids)


def _chosen(
    facts: dict[str, Any], place: Path, split: SplitName | None, dtype: TokenDtype
) -> tuple[TokenArray, str]:
    """The tokens to evaluate on, and a description of them."""
    is_directory = place.is_dir()
    if split not in (None, "all") and not is_directory:
        raise ConfigError(f"split={split!r} applies to a directory of tokens, not to {place}")
    names = splits_of(place) if is_directory else []
    if split is None and "val" in names:
        split = "val"
    if split not in (None, "all") or len(names) > 1:
        return open_tokens(place, split=split, dtype=dtype), f"{place}, split {split}"
    found: Any = open_tokens(place, dtype=dtype)
    trained = facts.get("tokens", {})
    held_out = int(trained.get("held_out") or 0)
    same = os.path.abspath(place) == trained.get("path") and trained.get("val") is None
    if same and split is None and held_out and len(found) == trained["tokens"] + held_out:
        part = TokenSlice(found, trained["tokens"], len(found))
        return part, f"{place}, the last {held_out:,} tokens, which the run held out"
    return found, str(place)


def _end_id(tokenizer: Tokenizer | None) -> int | None:
    if tokenizer is None:
        return None
    end = end_of_text(tokenizer, None, append_eot=False)
    return None if end is None else tokenizer.special_tokens[end]


# --- scoring -------------------------------------------------------------------------------------


class _Sums(NamedTuple):
    nats: float = 0.0
    n_tokens: int = 0
    n_bytes: int = 0

    def __add__(self, other: Any) -> _Sums:
        return _Sums(*(a + b for a, b in zip(self, other)))

    def evaluation(self, with_bytes: bool) -> Evaluation:
        loss = self.nats / self.n_tokens
        bits = self.nats / math.log(2) / self.n_bytes if with_bytes and self.n_bytes else None
        return Evaluation(loss, perplexity(loss), bits, self.n_tokens)


class _Window(NamedTuple):
    owner: int
    start: int  # offset in the tokens
    ids: npt.NDArray[np.int64]
    n_scored: int


class _Scorer:
    """Scores windows in batches and sums the scores per owner: a document, or the whole stream."""

    def __init__(
        self,
        model: TransformerLM,
        plan: ComputePlan,
        lengths: npt.NDArray[np.int64] | None,
        stride: int,
        batch_size: int,
    ) -> None:
        self.model, self.plan, self.lengths = model, plan, lengths
        self.stride, self.batch_size = stride, batch_size

    def whole(self, ids: TokenArray, report: ProgressCallback) -> list[_Sums]:
        windows = (
            _Window(0, start, np.asarray(ids[start:end]).astype(np.int64), end - first)
            for start, first, end in self._spans(len(ids))
        )
        return self._scored(windows, 1, len(ids) - 1, report)

    def documents(
        self,
        ids: TokenArray,
        ends: npt.NDArray[np.int64],
        end_id: int | None,
        report: ProgressCallback,
    ) -> list[_Sums]:
        def windows() -> Iterator[_Window]:
            begin = 0
            for owner, end in enumerate(ends.tolist()):
                document, at = np.asarray(ids[begin:end]).astype(np.int64), begin
                begin = end
                if end_id is not None:
                    document, at = np.concatenate([[end_id], document]), at - 1
                for start, first, stop in self._spans(len(document)):
                    yield _Window(owner, at + start, document[start:stop], stop - first)

        return self._scored(windows(), len(ends), len(ids), report)

    def _spans(self, n_ids: int) -> Iterator[tuple[int, int, int]]:
        return spans(n_ids, self.model.config.context_length, self.stride)

    def _scored(
        self, windows: Iterator[_Window], n_owners: int, total: int, report: ProgressCallback
    ) -> list[_Sums]:
        sums = [_Sums()] * n_owners
        done = 0
        batch: list[_Window] = []
        for window in windows:
            batch.append(window)
            if len(batch) == self.batch_size:
                done += self._score(batch, sums)
                report("evaluate", done, total)
                batch = []
        if batch:
            done += self._score(batch, sums)
            report("evaluate", done, total)
        return sums

    def _score(self, batch: list[_Window], sums: list[_Sums]) -> int:
        """Adds the scores of a batch to the sums of its owners; returns the tokens scored."""
        # Shorter windows are padded at the end, where causal attention does not see it.
        width = max(len(window.ids) for window in batch)
        ids = np.zeros((len(batch), width), np.int64)
        scored = np.zeros((len(batch), width - 1), bool)
        for row, window in enumerate(batch):
            n = len(window.ids)
            ids[row, :n] = window.ids
            scored[row, n - 1 - window.n_scored : n - 1] = True
        starts = np.array([window.start for window in batch])
        check_ids(ids, starts, self.model.config.vocab_size)
        nats = self._nats(torch.from_numpy(ids).to(self.plan.device), torch.from_numpy(scored))
        targets = ids[:, 1:][scored]
        n_bytes = np.zeros(len(targets)) if self.lengths is None else self.lengths[targets]
        places = np.cumsum([0, *(window.n_scored for window in batch)])
        for window, start, stop in zip(batch, places, places[1:]):
            sums[window.owner] += _Sums(
                float(nats[start:stop].sum()), int(stop - start), int(n_bytes[start:stop].sum())
            )
        return len(targets)

    @torch.inference_mode()
    def _nats(self, ids: torch.Tensor, scored: torch.Tensor) -> npt.NDArray[np.float64]:
        """The loss of each scored token, in order."""
        with self.plan.autocast():
            # Only scored rows go through the head.
            rows = self.model.hidden(ids[:, :-1])[scored.to(ids.device)]
            targets = ids[:, 1:][scored.to(ids.device)]
            parts = [
                F.cross_entropy(
                    F.linear(rows[i : i + HEAD_ROWS], self.model.head_weight).float(),
                    targets[i : i + HEAD_ROWS],
                    reduction="none",
                )
                for i in range(0, len(rows), HEAD_ROWS)
            ]
        found: npt.NDArray[np.float64] = torch.cat(parts).double().cpu().numpy()
        return found
