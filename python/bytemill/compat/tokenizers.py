"""`tokenizers.Tokenizer`, encoding and decoding at bytemill's speed.

`Tokenizer` wraps an original, which holds the configuration. The core encodes and decodes
byte-level BPE. The original handles all other methods, and every configuration and text that the
core cannot reproduce exactly; `explain` reports which. `isinstance` accepts it as a
`tokenizers.Tokenizer`.

Change the original through the wrapper only. Components read from the wrapper, such as
`tokenizer.post_processor`, may be changed in place.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import require
from ..tokenizer import Tokenizer as _Bytemill

tokenizers: Any = require("tokenizers", "bytemill.compat.tokenizers")

from . import _training  # noqa: E402
from ._encoding import Encoding, Padding, as_foreign  # noqa: E402
from ._pipeline import Explanation, Pipeline  # noqa: E402

__all__ = ["DecodeStream", "Encoding", "Explanation", "Tokenizer", "explain"]

# The original class, also after a program has put ours in its place.
_Original: Any = tokenizers.Tokenizer
SERIAL = ("0", "false", "off", "no", "f", "n")


class Tokenizer:
    """A `tokenizers.Tokenizer` that encodes and decodes with bytemill.

    >>> from tokenizers import Tokenizer as Original
    >>> from bytemill import train_tokenizer
    >>> small = train_tokenizer(iter(["low lower lowest"] * 9), vocab_size=260)
    >>> tokenizer = Tokenizer.from_bytemill(small)
    >>> encoding = tokenizer.encode("lowest")
    >>> encoding.tokens, encoding.offsets
    (['lowe', 's', 't'], [(0, 4), (4, 5), (5, 6)])
    >>> tokenizer.decode(encoding.ids)
    'lowest'
    >>> isinstance(tokenizer, Original)
    True
    """

    def __init__(self, model: Any) -> None:
        """`model` is a `tokenizers.models.Model`, as in the original."""
        self._set(_Original(model))

    def _set(self, original: Any) -> None:
        self._original = original
        self._pipeline: Pipeline | None = None
        # Components that were read, so that the caller may change them in place.
        self._shared: frozenset[str] = frozenset()
        self._truncation = original.truncation
        self._padding = original.padding
        self._encode_special_tokens: bool = original.encode_special_tokens
        # transformers calls these once per token.
        self.id_to_token = original.id_to_token
        self.token_to_id = original.token_to_id

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return _Original  # type: ignore[no-any-return]

    # --- constructors -------------------------------------------------------------------------

    @staticmethod
    def wrap(original: Any) -> Tokenizer:
        """Wraps a `tokenizers.Tokenizer`; from now on, change it through the wrapper only."""
        if type(original) is Tokenizer:
            return original
        if not isinstance(original, _Original):
            raise TypeError(f"expected a tokenizers.Tokenizer, not {type(original).__name__}")
        made = Tokenizer.__new__(Tokenizer)
        made._set(original)
        return made

    @staticmethod
    def from_bytemill(tokenizer: _Bytemill) -> Tokenizer:
        """Converts a bytemill tokenizer."""
        return Tokenizer.from_buffer(tokenizer.write("huggingface")[0])

    @staticmethod
    def from_str(json: str) -> Tokenizer:
        return Tokenizer.wrap(_Original.from_str(json))

    @staticmethod
    def from_file(path: str) -> Tokenizer:
        return Tokenizer.wrap(_Original.from_file(path))

    @staticmethod
    def from_buffer(buffer: bytes) -> Tokenizer:
        return Tokenizer.wrap(_Original.from_buffer(buffer))

    @staticmethod
    def from_pretrained(
        identifier: str, revision: str = "main", token: str | None = None
    ) -> Tokenizer:
        return Tokenizer.wrap(_Original.from_pretrained(identifier, revision, token))

    def unwrap(self) -> Any:
        """The original, as a plain `tokenizers.Tokenizer`; this object must not be used again."""
        return self._original

    # --- encoding -----------------------------------------------------------------------------

    def _ready(self) -> Pipeline:
        """The pipeline of the current configuration."""
        made = self._pipeline
        if made is None or (self._shared and not made.fits(self._original, self._shared)):
            made = self._pipeline = Pipeline(self._original)
        return made

    def _pipeline_of(self, original: Any) -> Pipeline | None:
        """A pipeline for `original` that shares our tables; None if there are none yet."""
        core = None if self._pipeline is None else self._ready().core
        return None if core is None else Pipeline(original, core)

    def encode(
        self,
        sequence: Any,
        pair: Any = None,
        is_pretokenized: bool = False,
        add_special_tokens: bool = True,
    ) -> Any:
        """The encoding of a text, or of a pair."""
        if is_pretokenized is False and isinstance(add_special_tokens, bool):
            texts = [sequence] if pair is None else [sequence, pair]
            if (made := self._one(texts, add_special_tokens)) is not None:
                return made
        return self._original.encode(sequence, pair, is_pretokenized, add_special_tokens)

    def _one(self, texts: list[Any], adds: bool, bare: bool = False) -> Encoding | None:
        """The encoding of one or two texts; None if the original must encode them."""
        pipeline = self._ready()
        if pipeline.encode_reason is not None or not all(map(pipeline.accepts, texts)):
            return None
        made = pipeline.assembled(pipeline.encoded(texts, 1, bare), self._truncation, adds)
        if made is not None and self._padding is not None:
            self._pad([made])
        return made

    def encode_batch(
        self, input: Any, is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Any]:
        """The encodings of many texts, or pairs of texts."""
        return self._batch("encode_batch", input, is_pretokenized, add_special_tokens)

    def encode_batch_fast(
        self, input: Any, is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Any]:
        """Like `encode_batch`, without tokens, offsets and words."""
        return self._batch("encode_batch_fast", input, is_pretokenized, add_special_tokens)

    def _batch(self, method: str, input: Any, is_pretokenized: bool, adds: bool) -> list[Any]:
        foreign, bare = getattr(self._original, method), method == "encode_batch_fast"
        texts: list[str] = []
        counts: list[int] = []
        plain = is_pretokenized is False and isinstance(adds, bool)
        if plain and isinstance(input, list | tuple):
            if len(input) == 1 and isinstance(input[0], str):
                if (made := self._one([*input], adds, bare)) is not None:
                    return [made]
            elif (pipeline := self._ready()).encode_reason is None:
                texts, counts = _accepted(pipeline, input)
        if not texts:
            # The core can encode none of it, or `input` is not a batch.
            return foreign(input, is_pretokenized, adds)  # type: ignore[no-any-return]
        encoded = iter(pipeline.encoded(texts, _threads(), bare))
        out: list[Any] = []
        for sample, count in zip(input, counts):
            own = list(itertools.islice(encoded, count))
            made = pipeline.assembled(own, self._truncation, adds) if own else None
            out += foreign([sample], False, adds) if made is None else [made]
        if self._padding is not None:
            self._pad(out)
        return out

    def _pad(self, encodings: Sequence[Any]) -> None:
        padding = self._padding
        length = padding["length"]
        if length is None:
            length = max(map(len, encodings), default=0)
        if multiple := padding["pad_to_multiple_of"]:
            length = -(-length // multiple) * multiple
        with_what = [padding[name] for name in ("pad_id", "pad_type_id", "pad_token")]
        made = Padding(length, padding["direction"] == "left", *with_what)
        for encoding in encodings:
            if type(encoding) is Encoding:
                encoding.pad_to(made)
            else:
                encoding.pad(
                    length,
                    direction=padding["direction"],
                    pad_id=made.id,
                    pad_type_id=made.type_id,
                    pad_token=made.token,
                )

    def post_process(self, encoding: Any, pair: Any = None, add_special_tokens: bool = True) -> Any:
        """Truncates, adds special tokens and pads, as in the original."""
        pair = None if pair is None else as_foreign(pair)
        return self._original.post_process(as_foreign(encoding), pair, add_special_tokens)

    # --- decoding -----------------------------------------------------------------------------

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        """The text of ids."""
        pipeline = self._ready()
        plain = type(ids) is list and isinstance(skip_special_tokens, bool)
        if pipeline.decode_reason is None and plain:
            try:
                kept = ids
                if skip_special_tokens and not pipeline.special_ids.isdisjoint(ids):
                    special = pipeline.special_ids
                    kept = [id for id in ids if id not in special]
                if not pipeline.odd or pipeline.odd.isdisjoint(kept):
                    return pipeline.rules.core.decode(kept)
            except (TypeError, ValueError):
                # Unknown ids, which the original skips, or not ids.
                pass
        return self._original.decode(ids, skip_special_tokens)  # type: ignore[no-any-return]

    def decode_batch(self, sequences: Any, skip_special_tokens: bool = True) -> list[str]:
        """The texts of many lists of ids."""
        if type(sequences) is list and all(type(ids) is list for ids in sequences):
            return [self.decode(ids, skip_special_tokens) for ids in sequences]
        return self._original.decode_batch(sequences, skip_special_tokens)  # type: ignore[no-any-return]

    # --- configuration ------------------------------------------------------------------------

    @property
    def truncation(self) -> dict[str, Any] | None:
        return None if self._truncation is None else dict(self._truncation)

    def enable_truncation(self, max_length: int, **options: Any) -> None:
        self._original.enable_truncation(max_length, **options)
        self._truncation = self._original.truncation

    def no_truncation(self) -> None:
        self._original.no_truncation()
        self._truncation = None

    @property
    def padding(self) -> dict[str, Any] | None:
        return None if self._padding is None else dict(self._padding)

    def enable_padding(self, **options: Any) -> None:
        self._original.enable_padding(**options)
        self._padding = self._original.padding

    def no_padding(self) -> None:
        self._original.no_padding()
        self._padding = None

    @property
    def encode_special_tokens(self) -> bool:
        return self._encode_special_tokens

    @encode_special_tokens.setter
    def encode_special_tokens(self, value: bool) -> None:
        self._original.encode_special_tokens = value
        if value != self._encode_special_tokens:
            self._encode_special_tokens = value
            self._pipeline = self._pipeline_of(self._original)

    def add_tokens(self, tokens: Any) -> int:
        return self._changed_by(self._original.add_tokens(tokens))

    def add_special_tokens(self, tokens: Any) -> int:
        return self._changed_by(self._original.add_special_tokens(tokens))

    def _changed_by(self, n_added: int) -> int:
        if n_added:
            self._pipeline = None
        return n_added

    def _component(name: str) -> Any:  # type: ignore[misc]
        def get(self: Tokenizer) -> Any:
            self._shared |= {name}
            return getattr(self._original, name)

        def put(self: Tokenizer, component: Any) -> None:
            setattr(self._original, name, component)
            self._shared |= {name}
            self._pipeline = None

        return property(get, put)

    model = _component("model")
    normalizer = _component("normalizer")
    pre_tokenizer = _component("pre_tokenizer")
    post_processor = _component("post_processor")
    decoder = _component("decoder")
    del _component

    # --- training -----------------------------------------------------------------------------

    def train(self, files: Any, trainer: Any = None) -> None:
        """Trains the model on files, line by line."""
        if not _training.train(self._original, trainer, _training.lines(files)):
            self._original.train(files, trainer)
        self._pipeline = None

    def train_from_iterator(
        self, iterator: Iterable[Any], trainer: Any = None, length: int | None = None
    ) -> None:
        """Trains the model on texts, or on batches of them."""
        if not _training.train(self._original, trainer, _training.texts(iterator)):
            self._original.train_from_iterator(iterator, trainer, length)
        self._pipeline = None

    # --- the object ---------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_original":
            raise AttributeError(name)
        return getattr(self._original, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._original)})

    def __repr__(self) -> str:
        return repr(self._original)

    def __str__(self) -> str:
        return str(self._original)

    def __reduce__(self) -> tuple[Any, ...]:
        # Not the original itself: pickle looks its class up by name, which may be ours by now.
        return Tokenizer.from_buffer, (self._original.__getstate__(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tokenizer:
        made = Tokenizer.wrap(copy.deepcopy(self._original, memo))
        made._pipeline = self._pipeline_of(made._original)
        return made

    def __copy__(self) -> Tokenizer:
        return copy.deepcopy(self)


class DecodeStream:
    """`tokenizers.decoders.DecodeStream`, for tokenizers of either kind."""

    def __init__(self, ids: list[int] | None = None, skip_special_tokens: bool = False) -> None:
        self._ids = list(ids or ())
        self._skips = bool(skip_special_tokens)
        self._prefix = ""
        self._n_prefix = 0

    def step(self, tokenizer: Any, id: int | list[int]) -> str | None:
        """The text that these ids complete; None while a character is incomplete."""
        decode = tokenizer.decode
        if not self._prefix and self._ids:
            prefix = decode(self._ids, self._skips)
            if not prefix.endswith("\ufffd"):
                self._prefix, self._n_prefix = prefix, len(self._ids)
        # A new list: copies of the stream share the old one.
        self._ids = [*self._ids, *(id if isinstance(id, list) else [id])]
        text = decode(self._ids, self._skips)
        n_old, n_new = len(self._prefix.encode()), len(text.encode())
        if n_new <= n_old or text.endswith("\ufffd"):
            return None
        if not text.startswith(self._prefix):
            raise Exception(
                "Invalid prefix encountered while decoding stream. "
                f"Token ID: {self._ids[-1]}, Expected prefix: '{self._prefix}', "
                f"Actual string: '{text}'"
            )
        new: str = text[len(self._prefix) :]
        n_prefix = len(self._ids) - self._n_prefix
        self._ids = self._ids[self._n_prefix :]
        self._prefix, self._n_prefix = decode(self._ids, self._skips), n_prefix
        return new


def explain(tokenizer: Any) -> Explanation:
    """What bytemill does, or would do, for a tokenizer of `tokenizers` or transformers."""
    return Tokenizer.wrap(getattr(tokenizer, "_tokenizer", tokenizer))._ready().explanation()


def _accepted(pipeline: Pipeline, batch: Sequence[Any]) -> tuple[list[str], list[int]]:
    """The texts of a batch that the core encodes, and the number of texts of each sample.

    No texts if a sample is neither a text nor a pair: the original reports the error.
    """
    texts: list[str] = []
    counts: list[int] = []
    for sample in batch:
        if isinstance(sample, str):
            own: Sequence[str] = (sample,) if pipeline.accepts(sample) else ()
        elif isinstance(sample, list | tuple) and len(sample) == 2:
            own = sample if all(map(pipeline.accepts, sample)) else ()
        else:
            return [], []
        texts += own
        counts.append(len(own))
    return texts, counts


def _threads() -> int | None:
    """1 if TOKENIZERS_PARALLELISM turns threads off; None for the default."""
    return 1 if os.environ.get("TOKENIZERS_PARALLELISM", "").lower() in SERIAL else None
