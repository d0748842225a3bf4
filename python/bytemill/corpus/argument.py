"""The corpus argument: what to read, and how.

Every function that reads text takes the same argument: a path, a glob, a directory, a URL, a list
of these, a dataset, an iterator of texts, or a [`Corpus`][bytemill.Corpus] with further options.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from .. import _native
from .._numbers import parse_size
from .._options import Reading
from ..errors import ConfigError, CorpusError
from .names import redacted
from .stdin import STDIN, Piped

if TYPE_CHECKING:
    from .places import Entry, Listing

__all__ = ["Corpus", "CorpusLike", "as_corpus", "batches", "has_stdin", "refuse_no_text", "skips"]

Path: TypeAlias = "str | os.PathLike[str]"


class DatasetLike(Protocol):
    """A `datasets.Dataset` or `IterableDataset`, recognized by its attributes."""

    @property
    def column_names(self) -> list[str] | None: ...
    def with_format(self, type: str | None = None, /) -> object: ...


# The types of `Corpus.places` and of a corpus argument.
Places: TypeAlias = "Path | Sequence[Path | Entry] | Iterable[str | bytes] | DatasetLike"
CorpusLike: TypeAlias = "Corpus | Places"


@dataclass(frozen=True, repr=False)
class Corpus:
    """What to read, and how.

    Plain text is split into documents by special tokens and by `separator`. In the other formats
    every record is a document: a line of JSONL, a row of CSV, Parquet, Arrow or a dataset, an item
    of an iterator.

    Args:
        places: a path, a glob (`**` for any depth), a directory (the files below it whose format
            is known, or all text files if there are none), a URL that `fsspec` supports, `"-"`
            for stdin, a list of these; a Hugging Face `datasets` object; an iterator of `str` or
            `bytes`, which is streamed, not held in memory.
        text_field: the field or column with the text of a record; dotted if nested, as in
            `"meta.text"`.
        input_format: the file format, instead of detecting it by name: `"text"`, `"jsonl"`,
            `"csv"`, `"tsv"`, `"tar"`, `"zip"`, `"parquet"`, `"arrow"`; compressed, `"jsonl.gz"`
            and so on with `gz`, `zst`, `xz` and `bz2`.
        on_error: an unreadable record raises an error (`"stop"`), or is skipped and counted
            (`"skip"`).
        null: a record whose text is null is an empty document (`"keep"`), is skipped and counted
            (`"skip"`), or counts as unreadable (`"error"`), so that `on_error` applies.
        separator: a string that separates the documents of text files, such as `"\\n\\n"`, and is
            no part of them; nothing between two separators is not a document.
        max_document: maximum size of a record, in bytes or as in `"128MB"`.
        max_ratio: maximum ratio of decompressed to compressed size.
        max_window: maximum memory for decompressing a file.
        include: globs such as `"*.py"`: in directories, globs and archives, read only files that
            match one, whatever their format. Matched against the name of a file and its path
            below the directory; `*` also matches `/`.
        exclude: globs of files to skip, even if `include` matches them.

    >>> Corpus("data/*.jsonl.zst", text_field="content", on_error="skip").text_field
    'content'
    """

    places: Places
    _: KW_ONLY
    text_field: str = "text"
    input_format: str | None = None
    on_error: Literal["stop", "skip"] = "stop"
    null: Literal["keep", "skip", "error"] = "error"
    separator: str | None = None
    max_document: int | str = 128 << 20
    max_ratio: int = 250
    max_window: int | str = 128 << 20
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.places, Corpus):
            raise TypeError("the places of a corpus cannot be another corpus: pass its places")
        if not isinstance(self.text_field, str) or not self.text_field:
            raise ConfigError("text_field must be the name of a field", 'the usual one is "text"')
        if self.on_error not in ("stop", "skip"):
            raise ConfigError(f"on_error must be 'stop' or 'skip', got {self.on_error!r}")
        if self.null not in ("keep", "skip", "error"):
            raise ConfigError(f"null must be 'keep', 'skip' or 'error', got {self.null!r}")
        if self.separator is not None:
            if not isinstance(self.separator, str) or not self.separator:
                raise ConfigError(
                    f"separator must be a string that is not empty, got {self.separator!r}",
                    'for an empty line, "\\n\\n"; for none, None',
                )
            if self.separator.encode(errors="replace").decode() != self.separator:
                raise ConfigError(f"separator={self.separator!r} cannot be written as UTF-8")
        for name in ("max_document", "max_ratio", "max_window"):
            if self._bytes(name) <= 0:
                raise ConfigError(f"{name} must be ≥ 1, got {getattr(self, name)!r}")
        if self.input_format is not None:
            _native.input_format("", self.input_format)  # raises if unknown
        for name in ("include", "exclude"):
            globs = getattr(self, name)
            globs = (globs,) if isinstance(globs, str) else tuple(globs)
            if not all(isinstance(glob, str) and glob for glob in globs):
                raise ConfigError(f"{name} must be a list of globs such as '*.txt', got {globs!r}")
            object.__setattr__(self, name, globs)

    def __repr__(self) -> str:
        fields = (
            f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self)
        )
        return redacted(f"Corpus({', '.join(fields)})")

    def _bytes(self, name: str) -> int:
        value = getattr(self, name)
        return parse_size(value) if isinstance(value, str) else int(value)

    @property
    def texts(self) -> Iterable[str | bytes] | None:
        """The texts, if the corpus is an iterator of texts."""
        from .iterables import is_dataset

        places = self.places
        if isinstance(places, (str, os.PathLike, list, tuple)) or is_dataset(places):
            return None
        if isinstance(places, bytes):
            raise TypeError("a corpus must be a path or an iterator, not bytes: pass iter([data])")
        if isinstance(places, Mapping):
            raise TypeError(
                "a corpus must be one dataset, not a dictionary of them: choose a split, as in "
                'dataset["train"]'
            )
        if isinstance(places, Iterable):
            return cast("Iterable[str | bytes]", places)
        raise TypeError(
            f"a corpus must be a path, paths or an iterator, not {type(places).__name__}"
        )

    def entries(self) -> list[Entry]:
        """The sources, in order; warns about skipped files."""
        from . import places

        return places.entries(self)

    def listing(self) -> Listing:
        """The sources, in order, and the skipped files."""
        from . import places

        return places.listing(self)

    def inputs(self, entries: Sequence[Entry] | None = None) -> _native.Inputs:
        """The sources for Rust; all of them, or some."""
        settings = {**self.settings}
        del settings["input_format"]  # the entries have formats
        return _native.Inputs(self.entries() if entries is None else entries, Reading(**settings))

    @property
    def changes_of_documents(self) -> dict[str, Any]:
        """`null` and `separator`, unless they have their defaults.

        Left out then, so that work that was begun before they existed can be resumed.
        """
        usual = {"null": "error", "separator": None}
        return {
            name: getattr(self, name)
            for name, value in usual.items()
            if getattr(self, name) != value
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The reading options as plain data."""
        return {
            "text_field": self.text_field,
            "input_format": self.input_format,
            "on_error": self.on_error,
            **self.changes_of_documents,
            "max_document": self._bytes("max_document"),
            "max_ratio": self.max_ratio,
            "max_window": self._bytes("max_window"),
            "include": list(self.include),
            "exclude": list(self.exclude),
        }


def has_stdin(corpus: Corpus) -> bool:
    """Whether the corpus includes stdin, which can be read only once."""
    places = corpus.places if isinstance(corpus.places, (list, tuple)) else (corpus.places,)
    return any(
        isinstance(getattr(place, "reader", None), Piped)
        or (isinstance(place, str) and place == STDIN)
        for place in places
    )


def as_corpus(corpus: CorpusLike) -> Corpus:
    """The corpus argument as a `Corpus`."""
    return corpus if isinstance(corpus, Corpus) else Corpus(corpus)


def batches(texts: Iterable[str | bytes], size: int) -> Iterator[list[str | bytes]]:
    """Groups texts into lists of about `size` characters, so that Rust is called rarely."""
    batch: list[str | bytes] = []
    held = 0
    for number, text in enumerate(texts):
        if not isinstance(text, (str, bytes)):
            raise TypeError(
                f"the corpus iterator must yield str or bytes; item {number} is "
                f"{type(text).__name__}"
            )
        batch.append(text)
        # Each text has a fixed cost, so a batch of many empty texts must end too.
        held += len(text) + 64
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def refuse_no_text(
    n_bytes: int, corpus: CorpusLike, skipped: Mapping[str, int] | None = None
) -> None:
    """Raises if the corpus was empty."""
    if n_bytes == 0:
        places = as_corpus(corpus).places
        shown = repr(places) if isinstance(places, str) else "the corpus"
        if isinstance(places, (list, tuple)):
            names = [getattr(place, "name", place) for place in places[:3]]
            shown = ", ".join(map(repr, names)) + (", …" if len(places) > 3 else "")
        shown = redacted(shown)
        if skipped:
            raise CorpusError(f"{shown} contains no readable text: {skips(skipped)}")
        raise CorpusError(
            f"{shown} contains no text", "check the path, or that the iterator is not exhausted"
        )


# Reasons for skipping records, as words for messages.
KINDS = {
    "invalid_json": "not JSON",
    "missing_field": "without text in its field",
    "wrong_type": "whose text is not a string",
    "invalid_utf8": "not UTF-8",
    "invalid_csv": "with an unclosed quote",
    "damaged": "damaged",
    "too_packed": "compressed too much",
    "too_long": "too long",
    "not_text": "not text",
    "stray_file": "stray files in archives",
}


def skips(skipped: Mapping[str, int]) -> str:
    """A phrase about skipped records.

    >>> skips({"invalid_json": 2, "damaged": 1})
    'skipped 3 records: 2 not JSON, 1 damaged'
    """
    kinds = ", ".join(f"{n:,} {KINDS.get(kind, kind)}" for kind, n in skipped.items())
    n = sum(skipped.values())
    return f"skipped {n:,} record{'' if n == 1 else 's'}: {kinds}"
