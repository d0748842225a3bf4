"""A tokenizer: ids ↔ bytes.

`Tokenizer` wraps the Rust core, which holds the tables and the loops. A call on a short text takes
a microsecond or two, so the methods that may be called once per text are one attribute lookup and
one call of the core.
"""

from __future__ import annotations

import codecs
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from . import formats
from ._native import Core
from ._numbers import check_least, parse_size
from .errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ._native import Special
    from .formats import HuggingFaceTokenizer, PatternLike, TiktokenEncoding, TokenizerFormat
    from .look.tokenized import TokenizedText
    from .tokens.encode import encode_files

__all__ = ["Batch", "Decoder", "Offsets", "Tokenizer"]


class Batch(NamedTuple):
    """Several encoded texts, end to end: text `i` is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.uint64]


class Offsets(NamedTuple):
    """Ids with the position of each in the text, as half-open spans."""

    ids: list[int]
    bytes: list[tuple[int, int]]
    chars: list[tuple[int, int]]


class _EncodeFiles:
    """`tokens.encode.encode_files` as a method, imported when it is used: loading a tokenizer needs
    none of what writes tokens."""

    def __get__(self, tokenizer: Tokenizer | None, owner: type[Tokenizer]) -> Any:
        from .tokens.encode import encode_files

        return encode_files if tokenizer is None else encode_files.__get__(tokenizer, owner)


class Tokenizer:
    """A byte-level BPE tokenizer.

    Created by [`train_tokenizer`][bytemill.train_tokenizer], by `Tokenizer.load`, or from a
    vocabulary, merges and special tokens in the format of the CS336 course. Ids need not be
    contiguous; a special token that is not in the vocabulary gets the next free id.

    Immutable, thread-safe and fork-safe; can be pickled.

    >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"he", 257: b"llo", 258: b"ll"}
    >>> merges = [(b"h", b"e"), (b"l", b"l"), (b"ll", b"o")]
    >>> tokenizer = Tokenizer(vocab, merges, ["<|endoftext|>"])
    >>> tokenizer.encode("hello<|endoftext|>")
    [256, 257, 259]
    >>> tokenizer.decode([256, 257])
    'hello'
    """

    __slots__ = ("__weakref__", "_core")

    # Code in this package that passes a tokenizer to Rust uses this attribute.
    _core: Core

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]] | None,
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
        *,
        pattern: PatternLike = "gpt2",
        ignore_merges: bool = False,
    ) -> None:
        self._core = Core.build(
            vocab.items(),
            merges=merges,
            special_tokens=formats.special_pairs(special_tokens),
            pattern=formats.stages(pattern),
            ignore_merges=ignore_merges,
        )

    @classmethod
    def _of(cls, core: Core) -> Tokenizer:
        self = object.__new__(cls)
        self._core = core
        return self

    @classmethod
    def _parse(cls, name: str, data: bytes) -> Tokenizer:
        """Parses the bytes of a tokenizer.json; errors refer to the file as `name`."""
        return cls._of(Core.read("huggingface", [(name, data)], [], []))

    # --- from elsewhere -----------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        pattern: PatternLike | None = None,
        special_tokens: Iterable[str] | Mapping[str, int] | None = None,
    ) -> Tokenizer:
        """Reads a tokenizer file; the format is detected from its contents.

        `path` is a `tokenizer.json`, a GPT-2 `vocab.json` (with `merges.txt` beside it) or
        `merges.txt`, a tiktoken rank file, a minbpe `.model`, or a directory with one of these.
        `pattern` and `special_tokens` are for formats that do not store them (GPT-2 and
        tiktoken); with the other formats they are an error.
        """
        return cls._of(formats.read(Path(path), pattern, special_tokens))

    @classmethod
    def from_pretrained(cls, path_or_name: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer of a model, from a local directory or file, or by its name on the hub.

        Local files are read as by `load`; for a tiktoken rank file, `pat_str` and
        `added_tokens_decoder` are taken from a `tokenizer_config.json` beside it. A name that is
        not a path is looked up by `huggingface_hub`, if it is installed: in its cache, then on the
        hub.
        """
        return cls._of(formats.read_pretrained(path_or_name))

    @classmethod
    def from_tiktoken(cls, encoding: TiktokenEncoding) -> Tokenizer:
        """The tokenizer of a live `tiktoken.Encoding`."""
        return cls._of(formats.from_tiktoken(encoding))

    @classmethod
    def from_huggingface(cls, tokenizer: HuggingFaceTokenizer) -> Tokenizer:
        """The tokenizer of a live `tokenizers.Tokenizer`, or of a `transformers` fast tokenizer."""
        return cls._of(formats.from_huggingface(tokenizer))

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        format: TokenizerFormat = "huggingface",
        overwrite: bool = False,
    ) -> None:
        """Writes the tokenizer; an existing file is replaced only with `overwrite`.

        `huggingface` is the default format (`tokenizer.json`); `gpt2` writes a directory with
        `vocab.json` and `merges.txt`. Files are written atomically.
        """
        formats.write(self._core, Path(path), format, overwrite)

    def write(self, format: TokenizerFormat = "huggingface") -> list[bytes]:
        """The contents of the files that `save` writes: two for `gpt2`, one otherwise."""
        return self._core.write(format)

    # --- the vocabulary -----------------------------------------------------------------------

    @property
    def vocab_size(self) -> int:
        """The number of ids, special tokens included: `len(tokenizer)`."""
        return len(self._core)

    @property
    def vocab(self) -> dict[int, bytes]:
        """Id → bytes of every token, including special tokens, by ascending id.

        A new dictionary each time; for one token, `token_bytes` is cheaper.
        """
        return self._core.vocab

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges in the order they were learned; empty for a tokenizer that merges by rank."""
        return self._core.merges

    @property
    def special_tokens(self) -> dict[str, int]:
        """Special tokens and their ids, by ascending id."""
        return self._core.special_tokens

    @property
    def pattern(self) -> str | list[str]:
        """The split pattern: a name or a regular expression, or a list of several stages."""
        return self._core.pattern

    @property
    def ignore_merges(self) -> bool:
        """Whether a piece that is itself a token becomes that token without applying merges."""
        return self._core.ignore_merges

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything that determines the ids of a text."""
        return self._core.fingerprint

    @property
    def max_id(self) -> int:
        """The largest id."""
        return self._core.max_id

    def token_bytes(self, id: int, /) -> bytes:
        """The bytes of a token."""
        return self._core.token_bytes(id)

    def token_id(self, token: str | bytes, /) -> int:
        """The id of a token, ordinary or special."""
        return self._core.token_id(token)

    def unreachable(self) -> list[int]:
        """Ids that no text encodes to, because merging their bytes does not produce them."""
        return self._core.unreachable()

    def with_vocab_size(self, vocab_size: int) -> Tokenizer:
        """The tokenizer that training with this smaller `vocab_size` would have produced."""
        check_least("vocab_size", vocab_size, 256)
        return self._of(self._core.core_with_vocab_size(vocab_size))

    # --- encoding -----------------------------------------------------------------------------

    @property
    def cache_size(self) -> int:
        """Size of each encoding thread's piece cache in bytes; 64 MiB by default.

        Can be set, also as a size such as `"16MB"`, which clears the caches. It affects speed and
        memory, never ids; it is not saved or pickled.
        """
        return self._core.cache_limit()

    @cache_size.setter
    def cache_size(self, size: int | str) -> None:
        n_bytes = parse_size(size) if isinstance(size, str) else operator.index(size)
        if n_bytes < 0:
            raise ConfigError(f"cache_size must be ≥ 0, got {size}")
        self._core.set_cache_limit(n_bytes)

    def encode(self, text: str | bytes, *, special: Special = "all") -> list[int]:
        """The ids of a text.

        Args:
            text: any text or bytes; bytes need not be UTF-8.
            special: which special tokens are recognized in the text: `"all"`, `"none"` (they are
                encoded as plain text: for untrusted input), `"error"` (they raise an error), or a
                set of them.

        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"hi"}
        >>> tokenizer = Tokenizer(vocab, [(b"h", b"i")], ["<|endoftext|>"])
        >>> tokenizer.encode("hi<|endoftext|>")
        [256, 257]
        >>> len(tokenizer.encode("hi<|endoftext|>", special="none"))
        14
        """
        return self._core.encode(text, special)

    def encode_array(
        self, text: str | bytes, *, special: Special = "all", threads: int | None = None
    ) -> npt.NDArray[np.uint32]:
        """The ids of a text as a numpy array; long texts are encoded on several threads."""
        return self._core.encode_array(text, special, threads)

    def count(self, text: str | bytes, *, special: Special = "all") -> int:
        """The number of ids of a text."""
        return self._core.count(text, special)

    @overload
    def encode_batch(
        self,
        texts: Sequence[str | bytes],
        *,
        special: Special = ...,
        threads: int | None = ...,
        lists: Literal[False] = ...,
    ) -> Batch: ...
    @overload
    def encode_batch(
        self,
        texts: Sequence[str | bytes],
        *,
        special: Special = ...,
        threads: int | None = ...,
        lists: Literal[True],
    ) -> list[list[int]]: ...
    def encode_batch(
        self,
        texts: Sequence[str | bytes],
        *,
        special: Special = "all",
        threads: int | None = None,
        lists: bool = False,
    ) -> Batch | list[list[int]]:
        """Encodes many texts on several threads.

        The result is flat, `Batch(ids, offsets)`, or with `lists` a list of lists.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError(f"texts must be a sequence of texts, not {type(texts).__name__}")
        ids, offsets = self._core.encode_flat(texts, special, threads)
        if not lists:
            return Batch(ids, offsets)
        ends = offsets.tolist()
        return [ids[a:b].tolist() for a, b in zip(ends, ends[1:])]

    def encode_iterable(
        self, iterable: Iterable[str | bytes], *, special: Special = "all"
    ) -> Iterator[int]:
        """Lazily yields the ids of a text given in chunks, as if it were one text.

        Memory does not grow with the text: ids are yielded as soon as they are final.
        """
        stream = self._core.stream(special)
        for part in iterable:
            yield from stream.push(part)
        yield from stream.finish()

    # The function is the method: one signature, one docstring.
    if TYPE_CHECKING:
        encode_files = encode_files
    else:
        encode_files = _EncodeFiles()

    def encode_with_offsets(self, text: str | bytes, *, special: Special = "all") -> Offsets:
        """The ids of `text` and the span of each, in bytes and in characters.

        A token with part of a character spans the whole character. Each byte that is not valid
        UTF-8 counts as one character.
        """
        ids, spans = self._core.encode_spans(text, special)
        byte_spans, char_spans = spans[:, :2].tolist(), spans[:, 2:].tolist()
        return Offsets(
            ids.tolist(), [(a, b) for a, b in byte_spans], [(a, b) for a, b in char_spans]
        )

    def visualize(self, text: str | bytes, *, special: Special = "all") -> TokenizedText:
        """The tokens of `text` in color: in a terminal when printed, as HTML in a notebook.

        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"hi"}
        >>> tokenizer = Tokenizer(vocab, [(b"h", b"i")])
        >>> tokenizer.visualize("hi you")
        hi│·│y│o│u
        5 tokens, 6 bytes, 1.20 bytes per token
        """
        from .look.tokenized import tokenized

        return tokenized(self, text, special=special)

    @overload
    def truncate(self, text: str, max_tokens: int, *, special: Special = ...) -> str: ...
    @overload
    def truncate(self, text: bytes, max_tokens: int, *, special: Special = ...) -> bytes: ...
    def truncate(
        self, text: str | bytes, max_tokens: int, *, special: Special = "all"
    ) -> str | bytes:
        """The start of `text`, in whole characters, that encodes to at most `max_tokens` tokens.

        The text of the first `max_tokens` ids, without a character that the last of them splits.
        A shorter text may encode differently; if that gives too many tokens, the result is
        shortened again in the same way. `special` is as in `encode`.

        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> tokenizer.truncate("née", 2)
        'n'
        """
        check_least("max_tokens", max_tokens, 0)
        ids = self.encode(text, special=special)
        if len(ids) <= max_tokens:
            return text
        # Lone surrogates have no UTF-8 form: truncate the replacement that is encoded.
        data = self.decode_bytes(ids) if isinstance(text, str) else bytes(text)
        while len(ids) > max_tokens:
            data = data[: _char_start(data, len(self.decode_bytes(ids[:max_tokens])))]
            ids = self.encode(data, special=special)
        return data.decode() if isinstance(text, str) else data

    # --- decoding -----------------------------------------------------------------------------

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; invalid UTF-8 becomes U+FFFD."""
        return self._core.decode(ids)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of ids."""
        return self._core.decode_bytes(ids)

    def decode_batch(self, batch: Iterable[Iterable[int]] | Batch) -> list[str]:
        """The texts of several lists of ids, or of a `Batch`."""
        if isinstance(batch, Batch):
            ends = batch.offsets.tolist()
            return [self.decode(batch.ids[a:b]) for a, b in zip(ends, ends[1:])]
        return [self.decode(ids) for ids in batch]

    def decoder(self) -> Decoder:
        """An incremental decoder, for ids that arrive one by one, as in generation."""
        return Decoder(self)

    # --- the object ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._core)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tokenizer):
            return NotImplemented
        return self.fingerprint == other.fingerprint and self.vocab == other.vocab

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        pattern = self.pattern
        shown = pattern if isinstance(pattern, str) and len(pattern) < 24 else "…"
        specials = list(self.special_tokens)
        listed = repr(specials) if len(specials) <= 3 else f"{len(specials)}"
        return (
            f"Tokenizer(vocab_size={len(self)}, pattern={shown!r}, special_tokens={listed}, "
            f"fingerprint={self.fingerprint[:12]!r})"
        )

    def _repr_html_(self) -> str:
        from .look.vocabulary import glance

        return glance(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._parse, ("pickled tokenizer", self.write()[0])


def _char_start(data: bytes, at: int) -> int:
    """The start of the UTF-8 character that contains byte `at`."""
    for start in range(max(at - 3, 0), at):
        for end in range(at + 1, start + 5):
            try:
                if len(data[start:end].decode()) == 1:
                    return start
            except UnicodeDecodeError:
                continue
    return at


class Decoder:
    """Decodes ids incrementally, holding back incomplete characters.

    >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    >>> decoder = tokenizer.decoder()
    >>> [decoder.push(id) for id in "né".encode()]
    ['n', '', 'é']
    >>> decoder.finish()
    ''
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._token_bytes = tokenizer._core.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The text that this id completes; `""` while a character is incomplete."""
        return self._decoder.decode(self._token_bytes(id))

    def finish(self) -> str:
        """The bytes held back, as U+FFFD if incomplete; resets the decoder."""
        rest = self._decoder.decode(b"", True)
        self._decoder.reset()
        return rest
