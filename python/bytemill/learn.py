"""Training a tokenizer: corpus → counts → merges → tokenizer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from . import _native, formats
from ._numbers import check_integer, check_least
from ._options import LearnOptions
from .corpus.argument import CorpusLike, skips
from .counts import (
    DEFAULT_PATTERN,
    DEFAULT_SPECIALS,
    Counts,
    checked_specials,
    count_into,
    set_limit,
)
from .engines import EngineLike
from .errors import ConfigError
from .formats import PatternLike
from .progress import Progress, ProgressOption
from .tokenizer import Tokenizer

__all__ = ["TieBreak", "train_bpe", "train_tokenizer"]

TieBreak: TypeAlias = Literal["bytes", "huggingface", "rustbpe"]


def train_tokenizer(
    corpus: CorpusLike | None = None,
    *,
    vocab_size: int,
    counts: Counts | None = None,
    special_tokens: Iterable[str] | None = None,
    pattern: PatternLike | None = None,
    tie_break: TieBreak = "bytes",
    min_frequency: int = 1,
    min_piece_count: int = 1,
    max_token_length: int | None = None,
    extend_from: Tokenizer | None = None,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    engine: EngineLike = "local",
    progress: ProgressOption = None,
) -> Tokenizer:
    """Trains a byte-level BPE tokenizer on a corpus.

    Args:
        corpus: a path, a list of paths, globs, a directory, URLs, a dataset, or an iterator of
            `str` or `bytes`, each a document; an iterator is streamed, not held in memory. Use a
            [`Corpus`][bytemill.Corpus] to set how any of these is read. Special tokens separate
            documents.
        vocab_size: number of ids: 256 bytes, the merges and the special tokens.
        counts: instead of a corpus, counts from [`count_corpus`][bytemill.count_corpus] or
            [`Counts.load`][bytemill.Counts.load], with their pattern and special tokens.
        special_tokens: strings with their own ids, never split and never merged across; None
            for `<|endoftext|>`, or those of `counts` in byte order.
        pattern: the split pattern, which cuts documents into pieces: `"gpt2"` (the default),
            `"cl100k"`, `"o200k"`, `"llama3"`, `"qwen2"`, an alias of one of these
            (`"cl100k_base"`, `"gpt-4"`), a regular expression, or a list of several stages, each
            cutting the pieces of the one before.
        tie_break: among pairs with equal counts, `"bytes"` merges the greatest pair of byte
            strings first, `"huggingface"` and `"rustbpe"` the pair that the `tokenizers` or the
            `rustbpe` library merges first: for the latter, the smallest pair of ids.
        min_frequency: pairs that occur less often are not merged.
        min_piece_count: pieces that occur less often are dropped before merging.
        max_token_length: maximum length of a token in bytes; at most 65,536. The option of this
            name in `tokenizers` is a limit that tokens must stay below, so `n` there is `n - 1`
            here.
        extend_from: start from this tokenizer's merges and add to them; its pattern is used, and
            its special tokens come before the new ones.
        threads: number of threads; None for every core the process may use.
        memory_limit: how much memory this process may use, in bytes or as in `"2GB"`; None for a
            safe share of what the machine or the container allows. Counts that do not fit are
            spilled to disk, and the tokenizer is the same; if merging would not fit, an error is
            raised before it starts, with the `min_piece_count` that would fit.
        spill_dir: directory for spilled counts; None for the system's temporary directory.
        engine: where to count: `"local"`, `"ray"`, or one of
            [`bytemill.engines`][bytemill.engines].
        progress: None shows progress of work that takes more than a moment: a line that is
            redrawn on a terminal, an output in a notebook, an occasional line in a log. True
            shows it from the start, False never. `"terminal"`, `"plain"` and `"json"` choose the
            display; a function receives [`ProgressEvent`][bytemill.ProgressEvent]s.

    If no pairs are left before `vocab_size` is reached, the tokenizer is smaller and a
    `UserWarning` is issued.

    >>> tokenizer = train_tokenizer(iter(["low lower lowest"] * 10), vocab_size=260)
    >>> tokenizer.merges
    [(b'o', b'w'), (b'l', b'ow'), (b'low', b'e')]
    """
    return learn(**locals()).tokenizer


@dataclass(frozen=True)
class Learned:
    """A trained tokenizer with facts about its corpus.

    Attributes:
        tokenizer: the tokenizer.
        text_bytes: bytes of text it was trained on.
        skipped: number of skipped records by reason.
    """

    tokenizer: Tokenizer
    text_bytes: int
    skipped: dict[str, int]


def learn(
    corpus: CorpusLike | None,
    *,
    vocab_size: int,
    counts: Counts | None,
    special_tokens: Iterable[str] | None,
    pattern: PatternLike | None,
    tie_break: TieBreak,
    min_frequency: int,
    min_piece_count: int,
    max_token_length: int | None,
    extend_from: Tokenizer | None,
    threads: int | None,
    memory_limit: int | str | None,
    spill_dir: str | os.PathLike[str] | None,
    engine: EngineLike,
    progress: ProgressOption,
) -> Learned:
    """Trains a tokenizer, with the arguments of [`train_tokenizer`][bytemill.train_tokenizer]."""
    if (corpus is None) == (counts is None):
        raise TypeError("give either a corpus or counts")
    if counts is None:
        default: Iterable[str] = DEFAULT_SPECIALS
    else:
        default = counts.special_tokens
    specials = checked_specials(default if special_tokens is None else special_tokens)
    if extend_from is not None:
        if not isinstance(extend_from, Tokenizer):
            kind = type(extend_from).__name__
            raise TypeError(f"extend_from must be a Tokenizer, not {kind}")
        pattern = extend_from.pattern
        known = extend_from.special_tokens
        specials = list(known) + [token for token in specials if token not in known]
    # Counting may take hours: all options are checked before it.
    _check_vocab_size(vocab_size, specials, extend_from)
    check_least("min_frequency", min_frequency, 0)
    check_least("min_piece_count", min_piece_count, 0)
    if max_token_length is not None:
        check_least("max_token_length", max_token_length, 1)
    if tie_break not in get_args(TieBreak):
        names = ", ".join(map(repr, get_args(TieBreak)))
        raise ConfigError(f"tie_break={tie_break!r} is not known", f"use one of {names}")
    if counts is None:
        stages = formats.stages(DEFAULT_PATTERN if pattern is None else pattern)
        native = _native.Counts(stages, specials, threads)
    else:
        _check_counts(counts, pattern, specials)
        native = counts._inner
    set_limit(native, memory_limit, spill_dir)
    with Progress(progress) as report:
        try:
            if corpus is not None:
                count_into(native, corpus, report, engine, memory_limit, spill_dir)
                _warn_of_skips(native.skipped)
            text_bytes, skipped = native.bytes_read, native.skipped
            native.gather(report)
            options = LearnOptions(
                vocab_size=vocab_size,
                special_tokens=specials,
                tie_break=tie_break,
                min_frequency=min_frequency,
                min_piece_count=min_piece_count,
                max_token_length=max_token_length,
                extend_from=None if extend_from is None else extend_from._core,
                free_counts=counts is None,
            )
            core = _native.learn(native, options, report)
        finally:
            if counts is None:
                native.clear()
    _warn_if_short(len(core), vocab_size)
    return Learned(Tokenizer._of(core), text_bytes, skipped)


def train_bpe(
    input_path: str | os.PathLike[str],
    vocab_size: int,
    special_tokens: list[str],
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Trains a tokenizer and returns (vocabulary, merges), in the format of the CS336 course."""
    tokenizer = train_tokenizer(input_path, vocab_size=vocab_size, special_tokens=special_tokens)
    return tokenizer.vocab, tokenizer.merges


def _warn_of_skips(skipped: dict[str, int]) -> None:
    if skipped:
        warnings.warn(skips(skipped), UserWarning, stacklevel=4)


def _check_counts(counts: Counts, pattern: PatternLike | None, specials: Sequence[str]) -> None:
    """Rejects a pattern or special tokens that differ from those of the counts."""
    if pattern is not None:
        given = [_native.known_pattern(stage) or stage for stage in formats.stages(pattern)]
        if given != formats.stages(counts.pattern):
            raise ConfigError(
                f"the pattern is {pattern!r}, but the counts were made with {counts.pattern!r}",
                "omit the pattern, or count again with it",
            )
    if sorted(specials, key=str.encode) != counts.special_tokens:
        raise ConfigError(
            f"the special tokens are {', '.join(specials) or 'none'}, but the counts were made "
            f"with {', '.join(counts.special_tokens) or 'none'}",
            "omit the special tokens, or count again with them",
        )


def _check_vocab_size(
    vocab_size: int, specials: Sequence[str], extend_from: Tokenizer | None
) -> None:
    check_integer("vocab_size", vocab_size)
    if extend_from is None:
        least, reason = 256 + len(specials), f"256 bytes and {len(specials)} special tokens"
    else:
        added = sum(token not in extend_from.special_tokens for token in specials)
        least = len(extend_from) + added
        reason = f"{len(extend_from)} of the tokenizer to extend and {added} special tokens"
    if vocab_size < least:
        raise ConfigError(
            f"vocab_size must be ≥ {least} ({reason}), got {vocab_size}",
            f"use {least} or more; each further id is one merge",
        )

    if vocab_size > _native.MAX_TOKENS:
        raise ConfigError(f"vocab_size must be ≤ {_native.MAX_TOKENS}, got {vocab_size}")


def _warn_if_short(got: int, vocab_size: int) -> None:
    if got < vocab_size:
        warnings.warn(
            f"no pairs left to merge: the vocabulary has {got} of the {vocab_size} ids requested "
            "(a larger corpus or a lower min_frequency gives more)",
            UserWarning,
            stacklevel=4,
        )
