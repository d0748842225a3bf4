"""Checks for common mistakes of an evaluation: another tokenizer, training documents in the
evaluation tokens, an implausible loss."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BytemillError, TokensError
from ..progress import ProgressCallback
from ..tokenizer import Tokenizer
from ..tokens.view import Tokens
from .data import TokenArray
from .run.sources import TokenSlice, open_tokens, splits_of

__all__ = ["check_same_tokenizer", "document_ends", "of_loss", "overlap"]

# Shorter documents may be equal by chance.
MIN_DOCUMENT_TOKENS = 16
# Copies of a document may differ in length by this many surrounding tokens.
MAX_SURROUNDING = 4
# Lower losses come from memorized or trivial text.
MIN_PLAUSIBLE_LOSS = 0.1


def check_same_tokenizer(
    facts: dict[str, Any], tokenizer: Tokenizer | None, ids: TokenArray, name: str
) -> None:
    """Raises if the tokens were encoded with another tokenizer than the run's."""
    inner = ids.tokens if isinstance(ids, TokenSlice) else ids
    if not isinstance(inner, Tokens):
        return  # raw ids have no fingerprint
    trained = facts.get("tokens", {})
    own = tokenizer.fingerprint if tokenizer is not None else trained.get("fingerprint")
    if own not in (None, inner.fingerprint):
        raise TokensError(
            f"{name}: encoded with the tokenizer {inner.fingerprint[:12]}…, "
            f"but the model was trained with {own[:12]}…",
            "encode the text again with the tokenizer.json of the run",
        )


def of_loss(loss: float, vocab_size: int) -> list[str]:
    """Warnings about an implausible loss."""
    guessing = math.log(vocab_size)
    if not math.isfinite(loss):
        return [f"the loss is {loss}: the weights are broken; evaluate an earlier checkpoint"]
    if loss > guessing:
        return [
            f"the loss is above ln({vocab_size:,}) = {guessing:.2f}, that of uniform guessing: the "
            "tokens are likely from another tokenizer or of another dtype, or the run has diverged"
        ]
    if loss > 0.97 * guessing:
        return [
            f"the loss is close to ln({vocab_size:,}) = {guessing:.2f}, that of uniform guessing: "
            "the model has hardly been trained, or the tokens are from another tokenizer"
        ]
    if loss < MIN_PLAUSIBLE_LOSS:
        return [
            f"the loss is below {MIN_PLAUSIBLE_LOSS}: training text or repetitive text gives such "
            "losses"
        ]
    return []


# --- overlap -------------------------------------------------------------------------------------


def document_ends(ids: TokenArray, end_id: int | None) -> npt.NDArray[np.int64]:
    """End offsets of the documents; the last is the number of tokens.

    Raw ids are split after each end-of-text token, if it is known.
    """
    if isinstance(ids, TokenSlice):
        ends = document_ends(ids.tokens, end_id)
        ends = ends[(ends > ids.start) & (ends <= ids.stop)] - ids.start
    elif isinstance(ids, Tokens):
        ends = ids.documents.ends.astype(np.int64)
    elif end_id is not None:
        ends = np.flatnonzero(np.asarray(ids[:]) == end_id) + 1
    else:
        ends = np.empty(0, np.int64)
    if len(ids) and (len(ends) == 0 or ends[-1] != len(ids)):
        ends = np.append(ends, len(ids))
    return ends


def overlap(
    facts: dict[str, Any],
    ids: TokenArray,
    end_id: int | None,
    tokenizer: Tokenizer | None,
    report: ProgressCallback,
) -> list[str]:
    """Warns if documents of `ids` are also in the training tokens of the run.

    End-of-text tokens and white space around a document are ignored: they depend on its file.
    """
    if "imported" in facts:
        return ["cannot check whether the model was trained on these documents: it was imported"]
    trained = facts.get("tokens", {})
    place = Path(trained.get("path") or "")
    if not trained.get("path") or not place.exists():
        return [
            "cannot check whether the run was trained on these documents: its tokens are missing"
        ]
    try:
        names = splits_of(place) if place.is_dir() else []
        train: Any = open_tokens(
            place, split="train" if "train" in names else None, dtype=trained["dtype"]
        )
    except (BytemillError, OSError, KeyError):
        return [
            "cannot check whether the run was trained on these documents: its tokens are damaged"
        ]
    if isinstance(ids, TokenSlice) and _same(ids.tokens, train):
        train = TokenSlice(train, 0, ids.start)
    elif _same(ids, train):
        held_out = trained.get("val") is None and trained.get("held_out")
        most = "on most of them" if held_out else "on all of them"
        return [f"the run was trained on these tokens ({most}): this is not an evaluation"]
    ends = document_ends(ids, end_id)
    around = _around(tokenizer, end_id)
    own = _hashes(ids, ends, None, around, report)
    # Equal documents have equal lengths, apart from surrounding tokens: of a large corpus, few
    # documents need to be read.
    lengths = np.unique(
        np.diff(ends, prepend=0)[:, None] + np.arange(-MAX_SURROUNDING, MAX_SURROUNDING + 1)
    )
    theirs = set(_hashes(train, document_ends(train, end_id), lengths, around, report).values())
    both = [n for n, key in own.items() if key in theirs]
    if not both:
        return []
    n_tokens = int(np.diff(ends, prepend=0)[both].sum())
    return [
        f"{len(both):,} of {len(own):,} documents ({n_tokens / len(ids):.1%} of the tokens) are "
        f"also in the training tokens, such as document {both[0]}: the loss is too optimistic"
    ]


def _around(tokenizer: Tokenizer | None, end_id: int | None) -> set[int]:
    """Ids that do not count at the start or end of a document."""
    blank = set() if end_id is None else {end_id}
    if tokenizer is not None:
        blank |= {id for id, token in tokenizer.vocab.items() if not token.strip()}
    return blank


def _inner(data: npt.NDArray[Any], around: set[int]) -> npt.NDArray[Any]:
    start, stop = 0, len(data)
    while start < stop and int(data[start]) in around:
        start += 1
    while stop > start and int(data[stop - 1]) in around:
        stop -= 1
    return data[start:stop]


def _same(a: TokenArray, b: TokenArray) -> bool:
    if isinstance(a, Tokens) and isinstance(b, Tokens):
        return os.path.abspath(a.path) == os.path.abspath(b.path) and a.split == b.split
    names = [getattr(array, "filename", None) for array in (a, b)]
    return names[0] is not None and names[0] == names[1]


def _hashes(
    ids: TokenArray,
    ends: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64] | None,
    around: set[int],
    report: ProgressCallback,
) -> dict[int, bytes]:
    """A hash of each document that is long enough and, if lengths are given, has one of them."""
    found = np.diff(ends, prepend=0)
    wanted = found >= MIN_DOCUMENT_TOKENS
    if lengths is not None:
        wanted &= np.isin(found, lengths)
    hashes: dict[int, bytes] = {}
    for number in np.flatnonzero(wanted).tolist():
        end = int(ends[number])
        data = _inner(np.asarray(ids[end - int(found[number]) : end]).astype("<u4"), around)
        if len(data) < MIN_DOCUMENT_TOKENS:
            continue
        hashes[number] = hashlib.blake2b(data.tobytes(), digest_size=16).digest()
        if number % 256 == 0:
            report("overlap", end, len(ids))
    return hashes
