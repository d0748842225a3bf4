"""Tokens on disk: a directory of ids as one sequence, over memory maps.

A file is mapped when it is first used, so the cost of opening does not depend on the number of
tokens.
"""

from __future__ import annotations

import bisect
import json
import operator
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from .. import _files, _native
from .._options import TokensOnDisk
from ..corpus.argument import Corpus, CorpusLike, as_corpus
from ..errors import ConfigError, TokenizerError, TokensError
from ..progress import Progress, ProgressCallback, ProgressOption
from .manifest import files, open_manifest, whole_manifest
from .plan import Plan, SplitName, check_fingerprint

if TYPE_CHECKING:
    # Imported where it is used, to keep `import bytemill` fast.
    import numpy as np
    import numpy.typing as npt

    from ..corpus.places import Entry
    from ..tokenizer import Tokenizer

__all__ = ["Documents", "Tokens", "verify_tokens"]

# Ids decoded, or converted to Python integers, at a time.
BLOCK = 1 << 20

Ids: TypeAlias = "npt.NDArray[np.unsignedinteger[Any]]"


class Tokens:
    """The tokens in a directory written by [`Tokenizer.encode_files`][bytemill.Tokenizer].

    A sequence of ids: `len`, indexing, slicing (arrays; a slice within one file is a view of its
    memory map), iteration. `documents` is the same by document. Can be pickled, and used by
    many threads and processes at once.

    Args:
        path: the directory.
        split: `"train"` or `"val"`, if the tokens are split.

    Attributes:
        path: the directory.
        split: the name of the split; `"all"` if there is only one.
        manifest: the whole manifest.
        dtype: numpy's type of the ids.
        fingerprint: fingerprint of the tokenizer.
        documents: the documents.
    """

    def __init__(self, path: str | os.PathLike[str], *, split: SplitName | None = None) -> None:
        import numpy as np

        self.path = Path(path)
        # Files are opened when they are needed, perhaps after a change of the working directory.
        self._directory = self.path.absolute()
        self.manifest: dict[str, Any] = open_manifest(self.path)
        entry = self._choose(split)
        self.split: SplitName = entry["name"]
        self.dtype = np.dtype(self.manifest["dtype"]).newbyteorder("<")
        self.fingerprint: str = self.manifest["tokenizer"]["fingerprint"]
        self._shards: list[dict[str, Any]] = entry["shards"]
        self._appended: list[int] = entry["appended"]
        # Ids before each shard, and all of them at the end; documents likewise.
        tokens = (shard["tokens"] for shard in self._shards)
        self._tokens_before: list[int] = [0, *accumulate(tokens)]
        self._documents_before: list[int] = [
            0,
            *accumulate(shard["documents"] for shard in self._shards),
        ]
        self._maps: dict[str, npt.NDArray[Any]] | None = {}
        self.documents = Documents(self)

    def _choose(self, split: SplitName | None) -> dict[str, Any]:
        entries: list[dict[str, Any]] = self.manifest["splits"]
        names = [entry["name"] for entry in entries]
        if split is None and len(entries) == 1:
            return entries[0]
        if split not in names:
            what = "several splits" if split is None else f"no split {split!r}"
            raise ConfigError(f"{self.path}: {what}", f"choose one with split=: {', '.join(names)}")
        return entries[names.index(split)]

    @property
    def skipped(self) -> dict[str, int]:
        """Number of records skipped during encoding, by reason."""
        skipped: dict[str, int] = self.manifest.get("skipped", {})
        return skipped

    @property
    def text_bytes(self) -> int | None:
        """Bytes of text that were encoded; None if the manifest does not contain it."""
        return self.manifest.get("text_bytes")

    @property
    def file_bytes(self) -> int:
        """Bytes of the source files, compressed as they were."""
        return sum(source["size"] for source in self.manifest["sources"])

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer in the directory; None if there is none.

        It is loaded on every access.
        """
        from ..tokenizer import Tokenizer

        path = self._directory / "tokenizer.json"
        if not path.exists():
            return None
        found = Tokenizer.load(path)
        if found.fingerprint == self.fingerprint:
            return found
        if "tokenizer_file" not in self.manifest:
            return None  # not written by bytemill
        raise TokensError(
            f"{path}: not the tokenizer that the tokens were encoded with",
            "run bytemill verify to list all problems",
        )

    # --- ids ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._tokens_before[-1]

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Ids: ...
    def __getitem__(self, index: int | slice) -> int | Ids:
        if not isinstance(index, slice):
            place = _place(index, len(self), "token")
            number = bisect.bisect_right(self._tokens_before, place) - 1
            return int(self._ids(number)[place - self._tokens_before[number]])
        start, stop, step = index.indices(len(self))
        places = range(start, stop, step)
        if step < 0:
            places = places[::-1]
        ids = self._take(places)
        return ids[::-1] if step < 0 else ids

    def _take(self, places: range) -> Ids:
        """The ids at these positions, which must ascend."""
        import numpy as np

        parts = []
        while places:
            number = bisect.bisect_right(self._tokens_before, places[0]) - 1
            before, after = self._tokens_before[number], self._tokens_before[number + 1]
            n = len(range(places.start, min(places.stop, after), places.step))
            parts.append(self._ids(number)[places.start - before : after - before][:: places.step])
            parts[-1] = parts[-1][:n]
            places = places[n:]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def __iter__(self) -> Iterator[int]:
        for start in range(0, len(self), BLOCK):
            yield from self[start : start + BLOCK].tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        import numpy as np

        # numpy 1 has no copy=None.
        return np.array(self[:], dtype) if copy else np.asarray(self[:], dtype)

    # --- files --------------------------------------------------------------------------------

    def _ids(self, number: int) -> Ids:
        shard = self._shards[number]
        return self._map(shard["file"], self.dtype, shard["tokens"])

    def _ends(self, number: int) -> npt.NDArray[np.uint64]:
        """The document ends of a shard."""
        import numpy as np

        shard = self._shards[number]
        return self._map(shard["docs"]["file"], np.dtype("<u8"), shard["documents"])

    def _map(self, name: str, dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
        if self._maps is None:
            raise ValueError(f"{self.path}: the tokens are closed")
        # Two threads may both map the file; either map will do.
        if name not in self._maps:
            self._maps[name] = _mapped(self._directory / name, dtype, size)
        return self._maps[name]

    def close(self) -> None:
        """Closes all files; arrays obtained before stay valid."""
        self._maps = None

    def __enter__(self) -> Tokens:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process may have another working directory.
        return partial(type(self), split=self.split), (str(self._directory),)

    def __repr__(self) -> str:
        split = "" if self.split == "all" else f", split={self.split!r}"
        return (
            f"Tokens({str(self.path)!r}{split}: {len(self):,} tokens, "
            f"{len(self.documents):,} documents, {self.dtype.name})"
        )

    # --- text ---------------------------------------------------------------------------------

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raises a `TokensError` unless the tokens were encoded with this tokenizer."""
        check_fingerprint(self.path, self.fingerprint, tokenizer.fingerprint)

    def decode(self, tokenizer: Tokenizer | None = None) -> Iterator[bytes]:
        """The text in chunks, byte for byte, without appended end-of-text tokens.

        Args:
            tokenizer: the tokenizer of the tokens; None for the one in their directory.
        """
        import numpy as np

        tokenizer = self.tokenizer if tokenizer is None else tokenizer
        if tokenizer is None:
            raise ConfigError(
                f"{self.path}: contains no tokenizer",
                "give the one the tokens were encoded with: tokenizer= (-t)",
            )
        self.check_tokenizer(tokenizer)
        left_out = self._appended_places()
        for start in range(0, len(self), BLOCK):
            ids = self[start : start + BLOCK]
            first, last = np.searchsorted(left_out, (start, start + len(ids)))
            if first < last:
                ids = np.delete(ids, left_out[first:last] - start)
            try:
                yield tokenizer.decode_bytes(ids.view(f"u{ids.itemsize}"))
            except TokenizerError as error:
                raise TokensError(
                    f"{self.path}: after id number {start}: {error.message}",
                    "the files are damaged: run bytemill verify to see where",
                ) from None

    def _appended_places(self) -> npt.NDArray[np.int64]:
        """The positions of appended end-of-text tokens."""
        import numpy as np

        numbers = np.asarray(self._appended, dtype=np.int64)
        cuts = np.searchsorted(numbers, self._documents_before)
        parts = [
            self._ends(shard)[numbers[a:b] - self._documents_before[shard]].astype(np.int64)
            + (self._tokens_before[shard] - 1)
            for shard, (a, b) in enumerate(zip(cuts, cuts[1:]))
            if a < b
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def verify(
        self,
        tokenizer: Tokenizer | None = None,
        *,
        source: CorpusLike | None = None,
        progress: ProgressOption = False,
    ) -> None:
        """Raises a `TokensError` that lists all problems of the directory, in all splits.

        The arguments are those of [`verify_tokens`][bytemill.verify_tokens].
        """
        problems = verify_tokens(self._directory, tokenizer, source=source, progress=progress)
        if problems:
            raise TokensError(
                f"{self.path}: {len(problems)} problems:\n" + "\n".join(problems),
                "encode again with overwrite=True",
            )


class Documents(Sequence["Ids"]):
    """The documents of tokens: `documents[i]` is an array of ids."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return self._tokens._documents_before[-1]

    @overload
    def __getitem__(self, index: int) -> Ids: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ids]: ...
    def __getitem__(self, index: int | slice) -> Ids | list[Ids]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = _place(index, len(self), "document")
        return self._tokens[self._end(number) : self._end(number + 1)]

    def _end(self, n: int) -> int:
        """The end of the first `n` documents."""
        if n == 0:
            return 0
        tokens = self._tokens
        shard = bisect.bisect_left(tokens._documents_before, n) - 1
        ends = tokens._ends(shard)
        return tokens._tokens_before[shard] + int(ends[n - 1 - tokens._documents_before[shard]])

    def __iter__(self) -> Iterator[Ids]:
        tokens, start = self._tokens, 0
        for shard, before in enumerate(tokens._tokens_before[:-1]):
            for end in tokens._ends(shard).tolist():
                yield tokens[start : before + end]
                start = before + end

    @property
    def ends(self) -> npt.NDArray[np.uint64]:
        """Where each document ends, in ids from the first; 8 bytes of memory per document."""
        import numpy as np

        tokens = self._tokens
        parts = [
            tokens._ends(shard) + np.uint64(before)
            for shard, before in enumerate(tokens._tokens_before[:-1])
        ]
        return np.concatenate(parts)

    def __repr__(self) -> str:
        return f"<{len(self):,} documents of {self._tokens!r}>"


def _place(index: int, size: int, what: str) -> int:
    place = operator.index(index)
    if not -size <= place < size:
        raise IndexError(f"{what} {place} of {size}")
    return place % size


def _mapped(path: Path, dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
    import numpy as np

    if size == 0:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    header = b"" if path.suffix == ".bin" else _header(dtype, size)
    with open(_files.regular(path, TokensError), "rb") as file:
        # Not numpy.load: on a damaged header it may raise anything.
        if file.read(len(header)) != header:
            raise TokensError(
                f"{path}: the header does not match the manifest",
                "run bytemill verify to list all problems",
            )
        try:
            array = np.memmap(file, dtype, "r", len(header), (size,))
        except ValueError as error:
            raise TokensError(f"{path}: {error}", "it is truncated: encode again") from None
    return array.view(np.ndarray)


def _header(dtype: np.dtype[Any], size: int) -> bytes:
    """The header of a `.npy` file, always of 128 bytes here."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({size},), }}"
    return b"\x93NUMPY\x01\x00v\x00" + text.ljust(117).encode() + b"\n"


def verify_tokens(
    path: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    *,
    source: CorpusLike | None = None,
    progress: ProgressOption = None,
) -> list[str]:
    """Lists all problems of a token directory; empty if there are none.

    Checks sizes, headers and checksums of all files, the range of ids, document ends and totals.

    Args:
        path: the directory.
        tokenizer: the tokenizer of the tokens, whose vocabulary must contain all ids; None for the
            one in the directory.
        source: the text, in the order in which it was encoded: the tokens must decode to it, byte
            for byte. Needs the tokenizer.
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer].
    """
    entries = None if source is None else (as_corpus(source), as_corpus(source).entries())
    with Progress(progress) as report:
        return _Verification(Path(path), tokenizer, report).run(entries)


class _Verification:
    """Checks a directory of tokens; the loops over ids are in Rust."""

    def __init__(self, path: Path, tokenizer: Tokenizer | None, report: ProgressCallback) -> None:
        self._path, self._tokenizer, self._report = path, tokenizer, report
        self._manifest = whole_manifest(path)
        self._plan = Plan.of(self._manifest)
        self._problems: list[str] = []
        # Bytes of files, and of text to compare.
        self._done = self._total = 0
        if tokenizer is not None:
            check_fingerprint(path, self._plan.tokenizer["fingerprint"], tokenizer.fingerprint)

    def run(self, source: tuple[Corpus, list[Entry]] | None) -> list[str]:
        manifest, plan = self._manifest, self._plan
        carried = manifest.get("tokenizer_file")
        if source is not None and self._tokenizer is None and carried is None:
            raise ConfigError(
                "comparing with the source requires the tokenizer",
                "the token directory contains none: give the one it was encoded with",
            )
        self._total = sum(size for _, size in files(manifest))
        if source is not None:
            text_bytes = manifest.get("text_bytes")
            sizes = sum(entry["size"] for entry in plan.sources)
            self._total += sizes if text_bytes is None else text_bytes
        if carried is not None:
            self._check_tokenizer_file(carried)
        for split in manifest["splits"]:
            self._check_split(split)
        # Damaged ids have been reported already.
        if self._tokenizer is not None and source is not None and not self._problems:
            self._compare(self._tokenizer, *source)
        return self._problems

    def _check_tokenizer_file(self, file: dict[str, Any]) -> None:
        """Checks the tokenizer in the directory, and uses it if none was given."""
        name, path = file["file"], self._path / file["file"]
        try:
            found = _files.regular(path, TokensError).stat().st_size
            data = path.read_bytes() if found == file["bytes"] else b""
        except TokensError:
            self._problems.append(f"{name}: not a regular file")
            return
        except OSError as error:
            self._problems.append(f"{name}: {error.strerror}")
            return
        self._done += len(data)
        if found != file["bytes"]:
            self._problems.append(f"{name}: {found} bytes, not {file['bytes']}")
        elif f"{zlib.crc32(data):08x}" != file["crc32"]:
            self._problems.append(f"{name}: the checksum does not match")
        else:
            self._check_carried(name, data)

    def _check_carried(self, name: str, data: bytes) -> None:
        from ..tokenizer import Tokenizer

        try:
            carried = Tokenizer._parse(name, data)
        except TokenizerError as error:
            self._problems.append(f"{name}: {error.message.splitlines()[0]}")
            return
        if carried.fingerprint != self._plan.tokenizer["fingerprint"]:
            self._problems.append(f"{name}: not the tokenizer named in the manifest")
        elif self._tokenizer is None:
            self._tokenizer = carried

    def _check_split(self, split: dict[str, Any]) -> None:
        plan, before, unended = self._plan, len(self._problems), 0
        core = None if self._tokenizer is None else self._tokenizer._core
        for shard in split["shards"]:
            problems, n = _native.check_shard(
                self._path, plan, json.dumps(shard), core, self._watch
            )
            self._problems += problems
            unended += n
            parts = (shard, shard["docs"], shard.get("index") or {"bytes": 0})
            self._done += sum(part["bytes"] for part in parts)
        # A text file or a record may lack an end-of-text token.
        texts = all("format" not in source for source in plan.sources)
        allowed = 0 if plan.append_eot else len(plan.sources) if texts else unended
        if plan.end_of_text is not None and unended > allowed and len(self._problems) == before:
            self._problems.append(
                f"{split['name']}: {unended} documents do not end in an end-of-text, "
                f"at most {allowed} may"
            )

    def _compare(self, tokenizer: Tokenizer, corpus: Corpus, entries: list[Entry]) -> None:
        """Decodes all documents, and compares them with the sources, read as they were."""
        manifest, sources = self._manifest, self._plan.sources
        if len(entries) != len(sources):
            self._problems.append(
                f"{len(entries)} sources were given, but the tokens were encoded from "
                f"{len(sources)}"
            )
            return
        as_then = [
            replace(
                entry,
                format=source.get("format") or "text",
                range=tuple(source["range"]) if source.get("range") else None,
            )
            for entry, source in zip(entries, sources)
        ]
        if self._plan.reading is not None:
            corpus = Corpus((), **self._plan.reading)
        else:
            corpus = replace(corpus, separator=None)
        splits, text_bytes = json.dumps(manifest["splits"]), manifest.get("text_bytes")
        difference = _native.compare_with_sources(
            tokenizer._core,
            self._plan,
            TokensOnDisk(self._path, splits, text_bytes),
            corpus.inputs(as_then),
            self._watch,
        )
        self._problems += [] if difference is None else [difference]

    def _watch(self, phase: str, n: int, of: int | None) -> None:
        self._report(phase, self._done + n, self._total)
