"""tiktoken's `Encoding` and named encodings: methods, results and exceptions, without tiktoken.

The core encodes and decodes; this module implements tiktoken's policy. Text that looks like a
special token is an error unless the caller allows it, and unknown tokens are a `KeyError`.

A few results differ, where tiktoken's are errors or depend on chance. If special tokens overlap,
the longest wins; tiktoken uses the one it tries first. `encode_to_numpy` and `encode_with_unstable`
accept surrogates, as `encode` does. Text that the pattern does not match is encoded, not dropped.
The constructor rejects a vocabulary that cannot encode every text.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .. import _native, encodings
from .._native import Core
from ..encodings.published import ENCODINGS
from ..errors import ConfigError, TokenizerError
from ..formats import TiktokenEncoding, special_pairs
from ..tokenizer import Tokenizer
from ._plugins import constructors, plugin_modules
from ._special import any_of, as_set, refuse, without_aliases
from ._unstable import encode_bytes, with_unstable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .._native import Special

__all__ = [
    "Encoding",
    "encoding_for_model",
    "encoding_name_for_model",
    "get_encoding",
    "list_encoding_names",
]

T = TypeVar("T")
Allowed = Literal["all"] | AbstractSet[str]
Disallowed = Literal["all"] | Collection[str]
NOTHING: frozenset[str] = frozenset()
NO_ALIASES: Mapping[str, int] = {}


class Encoding:
    """A tokenizer with tiktoken's interface.

    >>> from bytemill import train_tokenizer
    >>> tokenizer = train_tokenizer(iter(["low lower lowest"] * 9), vocab_size=260)
    >>> encoding = Encoding.from_tokenizer(tokenizer)
    >>> encoding.encode("low<|endoftext|>", allowed_special="all")
    [257, 259]
    >>> encoding.encode("low<|endoftext|>", disallowed_special=())[:3]
    [257, 60, 124]
    """

    name: str
    max_token_value: int

    def __init__(
        self,
        name: str,
        *,
        pat_str: str,
        mergeable_ranks: dict[bytes, int],
        special_tokens: dict[str, int],
        explicit_n_vocab: int | None = None,
    ) -> None:
        """Builds an encoding from tokens and their ranks.

        `explicit_n_vocab`, if given, must be the number of tokens, with consecutive ids.
        """
        specials, aliases = without_aliases(special_tokens)
        core = Core.from_ranks(mergeable_ranks, special_pairs(specials), [pat_str])
        self._set(Tokenizer._of(core), name, aliases)
        if explicit_n_vocab:
            assert len(mergeable_ranks) + len(special_tokens) == explicit_n_vocab
            assert self.max_token_value == explicit_n_vocab - 1

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, name: str = "bytemill") -> Encoding:
        """Wraps a bytemill tokenizer."""
        made = cls.__new__(cls)
        made._set(tokenizer, name)
        return made

    @classmethod
    def from_tiktoken(cls, encoding: TiktokenEncoding) -> Encoding:
        """Converts a `tiktoken.Encoding`."""
        return cls(
            encoding.name,
            pat_str=_native.regex_stage(encoding._pat_str),
            mergeable_ranks=encoding._mergeable_ranks,
            special_tokens=encoding._special_tokens,
        )

    @classmethod
    def _published(cls, name: str) -> Encoding:
        """A named encoding that shares the tables of `bytemill.get_encoding`."""
        made = cls.__new__(cls)
        made._set(encodings.get_encoding(name), name, ENCODINGS[name].aliases)
        return made

    def _set(
        self, tokenizer: Tokenizer, name: str, aliases: Mapping[str, int] = NO_ALIASES
    ) -> None:
        self.name = name
        self._tokenizer = tokenizer
        # Special tokens that share their id with another; the tokenizer does not have them.
        self._aliases = aliases
        self._special_tokens = tokenizer.special_tokens | dict(aliases)
        self._special_token_values = set(self._special_tokens.values())
        self.max_token_value = tokenizer.max_id

    # --- encoding -----------------------------------------------------------------------------

    def encode_ordinary(self, text: str) -> list[int]:
        """The ids of a text; special tokens in it are plain text."""
        return self._tokenizer._core.encode(_checked(text), "none")

    def encode(
        self,
        text: str,
        *,
        allowed_special: Allowed = NOTHING,
        disallowed_special: Disallowed = "all",
    ) -> list[int]:
        """The ids of a text.

        Special tokens in `allowed_special` become their ids. Those in `disallowed_special` (by
        default, all that are not allowed) raise a `ValueError`. Others are plain text.
        """
        encode = self._tokenizer._core.encode
        return self._guarded(
            [text],
            allowed_special,
            disallowed_special,
            lambda special: encode(text, special),
            lambda lists: lists[0],
        )

    def encode_to_numpy(
        self,
        text: str,
        *,
        allowed_special: Allowed = NOTHING,
        disallowed_special: Disallowed = "all",
    ) -> npt.NDArray[np.uint32]:
        """Like `encode`, but returns an array of uint32."""
        import numpy as np

        encode = self._tokenizer._core.encode_array
        return self._guarded(
            [text],
            allowed_special,
            disallowed_special,
            lambda special: encode(text, special),
            lambda lists: np.array(lists[0], np.uint32),
        )

    def encode_ordinary_batch(self, text: list[str], *, num_threads: int = 8) -> list[list[int]]:
        """Like `encode_ordinary`, for many texts, on several threads."""
        texts = [_checked(each) for each in text]
        return self._batch(texts, "none", num_threads)

    def encode_batch(
        self,
        text: list[str],
        *,
        num_threads: int = 8,
        allowed_special: Allowed = NOTHING,
        disallowed_special: Disallowed = "all",
    ) -> list[list[int]]:
        """Like `encode`, for many texts, on several threads."""
        _check_threads(num_threads)
        if disallowed_special != "all":
            # Raises a TypeError for None, as in tiktoken.
            disallowed_special = frozenset(disallowed_special)
        texts = list(text)
        return self._guarded(
            texts,
            allowed_special,
            disallowed_special,
            lambda special: self._batch(texts, special, num_threads),
            lambda lists: lists,
        )

    def encode_with_unstable(
        self,
        text: str,
        *,
        allowed_special: Allowed = NOTHING,
        disallowed_special: Disallowed = "all",
    ) -> tuple[list[int], list[list[int]]]:
        """The ids that further text cannot change, and the possible ids of the rest.

        The second value holds, sorted, the lists of ids that may encode the rest of the text when
        more text follows.
        """
        allowed, _ = self._policy(allowed_special, disallowed_special)
        ids = self.encode(
            text, allowed_special=allowed_special, disallowed_special=disallowed_special
        )
        specials = {id for token, id in self._special_tokens.items() if token in as_set(allowed)}
        return with_unstable(self._tokenizer, self._merger, self._sorted_tokens, ids, specials)

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """The id of a token, special or not; a `KeyError` if it is unknown."""
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else text_or_bytes
        if not isinstance(token, bytes):
            raise TypeError(f"a token must be str or bytes, not {type(token).__name__}")
        try:
            return self._tokenizer.token_id(token)
        except TokenizerError:
            for alias, id in self._aliases.items():
                if token == alias.encode():
                    return id
            raise KeyError(token) from None

    # Private in tiktoken, too, but programs call them.

    def _encode_single_piece(self, text_or_bytes: str | bytes) -> list[int]:
        piece = text_or_bytes.encode() if isinstance(text_or_bytes, str) else text_or_bytes
        return self._tokenizer._core.encode_piece(piece)

    def _encode_only_native_bpe(self, text: str) -> list[int]:
        return self._tokenizer._core.encode(_checked(text).encode(), "none")

    def _encode_bytes(self, text: bytes) -> list[int]:
        if not isinstance(text, bytes):
            raise TypeError(f"text must be bytes, not {type(text).__name__}")
        return encode_bytes(self._tokenizer, text)

    def _batch(self, texts: Sequence[str], special: Special, num_threads: int) -> list[list[int]]:
        _check_threads(num_threads)
        return self._tokenizer.encode_batch(texts, special=special, threads=num_threads, lists=True)

    def _policy(
        self, allowed: Allowed, disallowed: Disallowed
    ) -> tuple[AbstractSet[str], frozenset[str]]:
        """The special tokens to recognize, and those that are errors."""
        known = self.special_tokens_set
        if allowed == "all":
            allowed = known
        if disallowed == "all":
            disallowed = known - as_set(allowed)
        # As in tiktoken, None disallows nothing.
        return allowed, frozenset(disallowed or ())

    def _guarded(
        self,
        texts: Sequence[str],
        allowed: Allowed,
        disallowed: Disallowed,
        encode: Callable[[Special], T],
        result: Callable[[list[list[int]]], T],
    ) -> T:
        """Encodes, unless a text contains a disallowed special token.

        `result` converts lists of ids, one per text, to what `encode` returns.
        """
        special, refused = self._policy(allowed, disallowed)
        for text in texts:
            _checked(text)
        with_alias = bool(self._aliases) and any(
            alias in text for alias in self._aliases for text in texts
        )
        if special == NOTHING and not with_alias and refused == self.special_tokens_set:
            # By far the most common call. The core detects special tokens while it encodes, which
            # saves a search.
            try:
                return encode("error")
            except TokenizerError:
                refuse(texts, refused)
                # The core joins surrogate pairs; here, what they spell is not a special token.
                return encode("none")
        for text in texts if refused else ():
            refuse([text], refused)
            as_set(special)  # after each text, to raise tiktoken's exceptions in its order
        special = self.special_tokens_set & as_set(special)
        if with_alias and special:
            return result([self._encode_parts(text, special) for text in texts])
        return encode(special - self._aliases.keys() or "none")

    def _encode_parts(self, text: str, special: AbstractSet[str]) -> list[int]:
        """Encodes a text in which aliases are special, too."""
        encode = self._tokenizer._core.encode
        ids: list[int] = []
        at = 0
        for found in any_of(frozenset(special)).finditer(text):
            ids += encode(text[at : found.start()], "none")
            ids.append(self._special_tokens[found[0]])
            at = found.end()
        return ids + encode(text[at:], "none")

    # --- decoding -----------------------------------------------------------------------------

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """The bytes of ids; an unknown id is a `KeyError`."""
        if isinstance(tokens, str | AbstractSet | Mapping):
            raise TypeError(f"tokens must be a sequence of ids, not {type(tokens).__name__}")
        try:
            return self._tokenizer.decode_bytes(tokens)
        except TokenizerError:
            for token in tokens:
                _check_range(token)
            unknown = next(token for token in tokens if not self._knows(token))
            raise KeyError(f"Invalid token for decoding: {unknown}") from None

    def decode(self, tokens: Sequence[int], errors: str = "replace") -> str:
        """The text of ids; `errors` is as in `bytes.decode`."""
        return self.decode_bytes(tokens).decode("utf-8", errors=errors)

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one id, special or not; an unknown id is a `KeyError`."""
        try:
            return self._tokenizer.token_bytes(token)
        except TokenizerError:
            _check_range(token)
            raise KeyError(str(token)) from None

    def decode_tokens_bytes(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes of each id."""
        return [self.decode_single_token_bytes(token) for token in tokens]

    def decode_with_offsets(self, tokens: Sequence[int]) -> tuple[str, list[int]]:
        """The text of ids, and for each id the index of the character that has its first byte.

        The text must be valid UTF-8.
        """
        parts = self.decode_tokens_bytes(tokens)
        starts: list[int] = []
        n_chars = 0
        for part in parts:
            # A continuation byte belongs to the character before.
            starts.append(max(0, n_chars - _continues(part[0])))
            n_chars += sum(not _continues(byte) for byte in part)
        return b"".join(parts).decode("utf-8"), starts

    def decode_batch(
        self, batch: Iterable[Sequence[int]], *, errors: str = "replace", num_threads: int = 8
    ) -> list[str]:
        """Like `decode`, for many, on one thread: decoding is too fast for threads to help."""
        return self._each(batch, num_threads, lambda tokens: self.decode(tokens, errors))

    def decode_bytes_batch(
        self, batch: Iterable[Sequence[int]], *, num_threads: int = 8
    ) -> list[bytes]:
        """Like `decode_bytes`, for many."""
        return self._each(batch, num_threads, self.decode_bytes)

    def _each(
        self, batch: Iterable[Sequence[int]], num_threads: int, decode: Callable[[Sequence[int]], T]
    ) -> list[T]:
        _check_threads(num_threads)
        return [decode(tokens) for tokens in batch]

    def _knows(self, token: int) -> bool:
        try:
            self._tokenizer.token_bytes(token)
        except TokenizerError:
            return False
        return True

    # --- vocabulary ---------------------------------------------------------------------------

    def token_byte_values(self) -> list[bytes]:
        """The bytes of every ordinary token, sorted."""
        return list(self._sorted_tokens)

    @property
    def eot_token(self) -> int:
        """The id of `<|endoftext|>`; a `KeyError` if there is none."""
        return self._special_tokens["<|endoftext|>"]

    @functools.cached_property
    def special_tokens_set(self) -> set[str]:
        """The texts of the special tokens."""
        return set(self._special_tokens)

    def is_special_token(self, token: int) -> bool:
        """Whether an id is that of a special token."""
        assert isinstance(token, int)
        return token in self._special_token_values

    @property
    def n_vocab(self) -> int:
        """One more than the largest id."""
        return self.max_token_value + 1

    # Private attributes of tiktoken that programs read.

    @functools.cached_property
    def _mergeable_ranks(self) -> dict[bytes, int]:
        special = self._special_token_values
        return {token: id for id, token in self._tokenizer.vocab.items() if id not in special}

    @property
    def _pat_str(self) -> str:
        pattern = self._tokenizer.pattern
        if not isinstance(pattern, str):
            raise TokenizerError(
                f"the tokenizer splits text in {len(pattern)} steps, and pat_str is one pattern"
            )
        return _native.pattern_regex(pattern) if pattern in _native.PATTERNS else pattern

    @functools.cached_property
    def _sorted_tokens(self) -> list[bytes]:
        return sorted(self._mergeable_ranks)

    @functools.cached_property
    def _merger(self) -> Tokenizer:
        """Merges its input as one piece, even if the input is a token."""
        tokens = {id: token for token, id in self._mergeable_ranks.items()}
        merges = None if self._tokenizer.ignore_merges else self._tokenizer.merges
        return Tokenizer(tokens, merges, pattern=r"[\s\S]+")

    def __repr__(self) -> str:
        return f"<Encoding {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._tokenizer, self.name, dict(self._aliases))


def _restored(
    kind: type[Encoding], tokenizer: Tokenizer, name: str, aliases: dict[str, int]
) -> Encoding:
    made = kind.__new__(kind)
    made._set(tokenizer, name, aliases)
    return made


# --- by name ------------------------------------------------------------------------------------

_lock = threading.RLock()
_made: dict[str, Encoding] = {}


def get_encoding(encoding_name: str) -> Encoding:
    """The encoding of a name; an unknown name is a `ValueError`.

    Names are those of `bytemill.get_encoding` and of tiktoken plugins. Later calls return the same
    object.
    """
    if not isinstance(encoding_name, str):
        raise ValueError(f"encoding_name must be a string, not {type(encoding_name).__name__}")
    with _lock:
        if encoding_name not in _made:
            known = constructors()
            if encoding_name not in known:
                raise ValueError(
                    f"Unknown encoding {encoding_name}.\n"
                    f"hint: known: {', '.join(known)}; plugins: "
                    f"{', '.join(plugin_modules()) or 'none'}"
                )
            constructor = known[encoding_name]
            _made[encoding_name] = (
                Encoding._published(encoding_name)
                if constructor is None
                else Encoding(**constructor())
            )
        return _made[encoding_name]


def list_encoding_names() -> list[str]:
    """The names that `get_encoding` knows."""
    with _lock:
        return list(constructors())


def encoding_name_for_model(model_name: str) -> str:
    """The name of the encoding that a model uses; an unknown model is a `KeyError`."""
    try:
        return encodings.encoding_name_for_model(model_name)
    except ConfigError as error:
        raise KeyError(str(error)) from None


def encoding_for_model(model_name: str) -> Encoding:
    """The encoding that a model uses; an unknown model is a `KeyError`."""
    return get_encoding(encoding_name_for_model(model_name))


def _checked(text: str) -> str:
    # The core also accepts bytes.
    if not isinstance(text, str):
        raise TypeError(f"text must be str, not {type(text).__name__}")
    return text


def _check_threads(num_threads: int | None) -> None:
    if num_threads is not None and num_threads <= 0:
        raise ValueError("max_workers must be greater than 0")


def _check_range(token: int) -> None:
    if not 0 <= operator.index(token) < 1 << 32:
        raise OverflowError(f"{token} is not an id: out of range")


def _continues(byte: int) -> bool:
    return 0x80 <= byte < 0xC0
