"""Options of calls into the Rust core: it reads the attributes of one object by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._native import Core, Inputs

__all__ = ["EncodeRange", "LearnOptions", "Reading", "TokensOnDisk"]


@dataclass(frozen=True)
class Reading:
    """How records are read: the options of `Corpus`, with sizes in bytes; None for the default."""

    text_field: str = "text"
    on_error: str = "stop"
    null: str = "error"
    separator: str | None = None
    max_document: int | None = None
    max_ratio: int | None = None
    max_window: int | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()


@dataclass(frozen=True)
class LearnOptions:
    """The tokenizer to learn: the options of `train_tokenizer`.

    Attributes:
        free_counts: whether the counts may be freed before merging.
    """

    vocab_size: int
    special_tokens: Sequence[str]
    tie_break: str = "bytes"
    min_frequency: int = 1
    min_piece_count: int = 1
    max_token_length: int | None = None
    extend_from: Core | None = None
    free_counts: bool = False


@dataclass(frozen=True)
class EncodeRange:
    """A range of a corpus to encode.

    Attributes:
        sources: the expected state of the inputs, as JSON.
        open: the unfinished shards to continue, as JSON.
        is_last: whether the shards are closed.
    """

    inputs: Inputs
    sources: str
    open: str = "[]"
    is_last: bool = True
    threads: int | None = None
    block_size: int | None = None


@dataclass(frozen=True)
class TokensOnDisk:
    """Tokens as their manifest describes them.

    Attributes:
        splits: the splits, as JSON.
    """

    directory: str | PathLike[str]
    splits: str
    text_bytes: int | None
