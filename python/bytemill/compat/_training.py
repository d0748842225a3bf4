"""Training a `tokenizers` model: the same merges and ids as with its `BpeTrainer`, but faster.

The original trains where bytemill's trainer cannot reproduce it exactly: normalizers, other models
and pre-tokenizers, word prefixes and suffixes, a limited alphabet, and special tokens that could
also be learned from the text.
"""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tokenizers

from .. import _native
from .._alphabet import BYTES, spelled
from ..counts import Counts, count_corpus
from ..errors import TokenizerError
from ..learn import train_tokenizer

LETTERS = sorted(BYTES)
# Pairs of single bytes are merged even if `max_token_length` is smaller.
MIN_TOKEN_LENGTH = 2
KEPT_SETTINGS = ("dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges")


def train(original: Any, trainer: Any, texts: Iterator[str]) -> bool:
    """Trains a `tokenizers.Tokenizer`; False, before reading any text, if it must train itself."""
    if trainer is None:
        trainer = original.model.get_trainer()
    stages = _stages(original)
    if stages is None or not _is_plain(trainer, stages):
        return False
    first = next((text for text in texts if text), None)
    if first is None:
        # No text: the vocabulary is the alphabet.
        original.train_from_iterator([], trainer)
        return True
    progress = None if trainer.show_progress else False
    corpus = itertools.chain([first], texts)
    counts = count_corpus(corpus, pattern=stages, special_tokens=[], progress=progress)
    specials = list(dict.fromkeys(token.content for token in trainer.special_tokens))
    vocab = _alphabet(specials, counts, trainer.initial_alphabet)
    merges = []
    for left, right in _merges(counts, trainer, len(vocab)):
        pair = spelled(left), spelled(right)
        if vocab.setdefault("".join(pair), len(vocab)) < len(specials):
            raise TokenizerError(
                f"the special token {''.join(pair)!r} occurs in the text as an ordinary one",
                "train with tokenizers.Tokenizer",
            )
        merges.append(pair)
    old = original.model
    kept = {name: getattr(old, name) for name in KEPT_SETTINGS}
    kept = {name: value for name, value in kept.items() if value is not None}
    original.model = tokenizers.models.BPE(vocab=vocab, merges=merges, **kept)
    original.add_special_tokens(trainer.special_tokens)
    return True


def _stages(original: Any) -> list[str] | None:
    """The split pattern; None if the configuration is not supported."""
    if (
        type(original.model).__name__ != "BPE"
        or original.normalizer is not None
        or original.pre_tokenizer is None
        # They would be split off the texts.
        or original.get_added_tokens_decoder()
    ):
        return None
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(LETTERS)}, "merges": []}
    try:
        state: bytes = original.pre_tokenizer.__getstate__()
        data = b'{"model":%b,"pre_tokenizer":%b}' % (json.dumps(model).encode(), state)
        pattern = _native.Core.read("huggingface", [("", data)], [], []).pattern
    except Exception:
        # Not supported, or written in Python.
        return None
    return [pattern] if isinstance(pattern, str) else pattern


def _is_plain(trainer: Any, stages: Sequence[str]) -> bool:
    return (
        type(trainer).__name__ == "BpeTrainer"
        and not trainer.continuing_subword_prefix
        and not trainer.end_of_word_suffix
        and (trainer.limit_alphabet is None or trainer.limit_alphabet >= len(LETTERS))
        and set(trainer.initial_alphabet) <= BYTES.keys()
        and getattr(trainer, "progress_format", "indicatif") == "indicatif"
        # A special token within one piece could be learned too, and then would have two ids.
        and all(len(_native.split(stages, t.content)) > 1 for t in trainer.special_tokens)
    )


def _alphabet(specials: Sequence[str], counts: Counts, initial: Sequence[str]) -> dict[str, int]:
    """Token → id: special tokens, then the bytes that occur or are in `initial`."""
    letters = set(initial)
    if len(letters) < len(LETTERS):
        seen: set[int] = set()
        for piece, _ in counts:
            seen.update(piece)
        letters.update(spelled(bytes(seen)))
    tokens = dict.fromkeys([*specials, *sorted(letters)])
    return {token: id for id, token in enumerate(tokens)}


def _merges(counts: Counts, trainer: Any, taken: int) -> list[tuple[bytes, bytes]]:
    room = trainer.vocab_size - taken
    if room <= 0:
        return []
    longest = trainer.max_token_length
    with warnings.catch_warnings():
        # The warning that the vocabulary is smaller than requested.
        warnings.simplefilter("ignore", UserWarning)
        learned = train_tokenizer(
            counts=counts,
            vocab_size=256 + room,
            special_tokens=[],
            tie_break="huggingface",
            min_frequency=trainer.min_frequency,
            # The original's limit is exclusive.
            max_token_length=None if longest is None else max(MIN_TOKEN_LENGTH, longest - 1),
            progress=None if trainer.show_progress else False,
        )
    return learned.merges


# --- texts ----------------------------------------------------------------------------------------


def lines(files: Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    """The lines of files, with line ends."""
    for file in files:
        with open(file, encoding="utf-8", newline="\n") as opened:
            yield from opened


def texts(iterator: Iterable[Any]) -> Iterator[str]:
    """Texts, from texts or batches of them."""
    for item in iterator:
        if isinstance(item, str):
            yield item
        else:
            yield from item
