"""Learning a tokenizer: corpus → counts → merges → tokenizer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence

from . import _native, formats
from .corpus import Corpus, batches, files, refuse_no_text
from .errors import ConfigError
from .progress import ProgressOption, reporter
from .tokenizer import Tokenizer

__all__ = ["train_bpe", "train_tokenizer"]

# Texts of an iterator go to the counters in groups of this many characters: large enough to keep
# every thread busy, small enough not to matter for memory.
BATCH_SIZE = 8 << 20


def train_tokenizer(
    corpus: Corpus,
    *,
    vocab_size: int,
    special_tokens: Iterable[str] = ("<|endoftext|>",),
    pattern: str | Sequence[str] = "gpt2",
    tie_break: str = "bytes",
    min_frequency: int = 1,
    min_piece_count: int = 1,
    max_token_length: int | None = None,
    extend_from: Tokenizer | None = None,
    threads: int | None = None,
    progress: ProgressOption = None,
) -> Tokenizer:
    """Learns a byte-level BPE tokenizer from a corpus.

    Args:
        corpus: a path, a list of paths, globs, a directory, or an iterator of `str` or `bytes`,
            each a document; an iterator is streamed, never held. Special tokens separate
            documents.
        vocab_size: how many ids there will be: 256 bytes, the merges, the special tokens.
        special_tokens: strings with ids of their own, never split and never merged across.
        pattern: what cuts documents into pieces: `"gpt2"`, `"cl100k"`, `"o200k"`, a regular
            expression, or several of these, each cutting the pieces of the one before.
        tie_break: of pairs with equal counts, `"bytes"` takes the greatest pair of byte strings,
            `"huggingface"` the one that the `tokenizers` library takes.
        min_frequency: pairs that occur less often are not merged.
        min_piece_count: pieces that occur less often are dropped before merging.
        max_token_length: no token grows longer than this many bytes.
        extend_from: start from this tokenizer's merges and add to them; its pattern is used, and
            its special tokens come before the new ones.
        threads: how many threads count; None for every core the process may use.
        progress: None shows progress on a terminal, True and False force it, `"terminal"`,
            `"plain"` and `"json"` choose its form, a function gets
            [`ProgressEvent`][bytemill.ProgressEvent]s.

    If no pair is left before `vocab_size` is reached, the tokenizer is smaller and a
    `UserWarning` says so.

    >>> tokenizer = train_tokenizer(iter(["low lower lowest"] * 10), vocab_size=260)
    >>> tokenizer.merges
    [(b'o', b'w'), (b'l', b'ow'), (b'low', b'e')]
    """
    specials = _checked_specials(special_tokens)
    if extend_from is not None:
        pattern = extend_from.pattern
        known = extend_from.special_tokens
        specials = list(known) + [token for token in specials if token not in known]
    _check_vocab_size(vocab_size, specials, extend_from)
    with reporter(progress) as report:
        counts = _native.Counts(formats.stages(pattern), specials, threads)
        paths = files(corpus)
        if paths is not None:
            counts.add_files(paths, report)
        else:
            for batch in batches(corpus, BATCH_SIZE):  # type: ignore[arg-type]
                counts.add_texts(batch)
                report("count", counts.bytes_read, None)
        refuse_no_text(counts.bytes_read, corpus)
        core = _native.learn(
            counts,
            vocab_size=vocab_size,
            special_tokens=specials,
            tie_break=tie_break,
            min_frequency=min_frequency,
            min_piece_count=min_piece_count,
            max_token_length=max_token_length,
            extend_from=extend_from,
            progress=report,
        )
    _warn_if_short(len(core), vocab_size)
    return Tokenizer._of(core)


def train_bpe(
    input_path: str | os.PathLike[str],
    vocab_size: int,
    special_tokens: list[str],
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Learns a tokenizer and returns (vocabulary, merges), as the CS336 course shapes it."""
    tokenizer = train_tokenizer(input_path, vocab_size=vocab_size, special_tokens=special_tokens)
    return tokenizer.vocab, tokenizer.merges


def _checked_specials(special_tokens: Iterable[str]) -> list[str]:
    # A plain string is iterable too, letter by letter, which nobody means.
    if isinstance(special_tokens, str):
        raise TypeError(
            f"special_tokens must be a list of strings, not the string {special_tokens!r}"
        )
    specials = list(special_tokens)
    for token in specials:
        if not isinstance(token, str):
            raise TypeError(f"a special token is a string, not {type(token).__name__}")
    return specials


def _check_vocab_size(
    vocab_size: int, specials: Sequence[str], extend_from: Tokenizer | None
) -> None:
    if extend_from is None:
        least, reason = 256 + len(specials), f"256 bytes and {len(specials)} special tokens"
    else:
        added = sum(token not in extend_from.special_tokens for token in specials)
        least = len(extend_from) + added
        reason = f"the {len(extend_from)} of the tokenizer to extend and {added} special tokens"
    if vocab_size < least:
        raise ConfigError(
            f"vocab_size={vocab_size} is too small: {reason} need {least}",
            f"use at least {least}; each further id is one merge",
        )


def _warn_if_short(got: int, vocab_size: int) -> None:
    if got < vocab_size:
        warnings.warn(
            f"no pair is left to merge: the vocabulary has {got} of the {vocab_size} ids asked "
            "for (a larger corpus, or a lower min_frequency, gives more)",
            UserWarning,
            stacklevel=3,
        )
