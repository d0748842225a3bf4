"""The corpus argument: paths, globs, or an iterator of texts."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from .errors import CorpusError

__all__ = ["Corpus", "batches", "files", "refuse_no_text"]

Path: TypeAlias = "str | os.PathLike[str]"
Corpus: TypeAlias = "Path | Sequence[Path] | Iterator[str | bytes]"


def files(corpus: Corpus) -> list[str] | None:
    """The files that `corpus` names, in order, or None if it is an iterator of texts.

    A string is a path or a glob (`**` for any depth), a directory is every file below it. A list
    or tuple holds such strings; an iterator (a generator, `iter(texts)`, an open file) yields
    texts.
    """
    if isinstance(corpus, (str, os.PathLike)):
        return _expand(os.fspath(corpus))
    if isinstance(corpus, (list, tuple)):
        if not corpus:
            raise CorpusError("the corpus is an empty list", "give at least one file")
        found: list[str] = []
        for entry in corpus:
            if not isinstance(entry, (str, os.PathLike)):
                raise TypeError(
                    f"a list as corpus holds paths, not {type(entry).__name__}; "
                    "for texts, pass an iterator: iter(texts)"
                )
            found += _expand(os.fspath(entry))
        return found
    if isinstance(corpus, bytes):
        raise TypeError("a corpus is a path or an iterator, not bytes: pass iter([data])")
    if isinstance(corpus, Iterable):
        return None
    raise TypeError(f"a corpus is a path, paths, or an iterator, not {type(corpus).__name__}")


def _expand(name: str) -> list[str]:
    if os.path.isdir(name):
        inside = sorted(
            os.path.join(folder, file)
            for folder, _, entries in os.walk(name)
            for file in entries
            if not file.startswith(".")
        )
        if not inside:
            raise CorpusError(f"{name}: the directory holds no file")
        return inside
    if os.path.exists(name) or not glob.has_magic(name):
        # A missing file is reported by whoever opens it.
        return [name]
    matches = sorted(m for m in glob.glob(name, recursive=True) if os.path.isfile(m))
    if not matches:
        raise CorpusError(f"{name}: no file matches", "quote the glob only if you mean it as such")
    return matches


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
        # A text has a cost beyond its characters, so many empty ones fill a batch too.
        held += len(text) + 64
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def refuse_no_text(n_bytes: int, corpus: object) -> None:
    """An empty corpus is an error: a tokenizer learnt from nothing is never what was meant."""
    if n_bytes == 0:
        shown = repr(corpus) if isinstance(corpus, (str, list, tuple)) else "the corpus"
        raise CorpusError(f"{shown} holds no text", "check the path, or that the iterator is fresh")
