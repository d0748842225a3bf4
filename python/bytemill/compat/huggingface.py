"""transformers' tokenizers, encoding and decoding at bytemill's speed.

The classes stay transformers' own. Only the backend of a tokenizer, a `tokenizers.Tokenizer`, is
exchanged for a `bytemill.compat.tokenizers.Tokenizer` that wraps it.
"""

from __future__ import annotations

import copy as copies
import functools
from typing import Any, TypeVar

from ..errors import require
from ..tokenizer import Tokenizer as _Bytemill

transformers: Any = require("transformers", "bytemill.compat.huggingface")

from . import tokenizers as compat  # noqa: E402
from .tokenizers import Explanation, explain  # noqa: E402

__all__ = ["Explanation", "PreTrainedTokenizerFast", "accelerate", "explain", "restore"]

T = TypeVar("T")
_Original: Any = transformers.PreTrainedTokenizerFast
# What `accelerate("all")` has replaced, by where it belongs.
_replaced: dict[tuple[Any, str], Any] = {}


def accelerate(tokenizer: T, *, copy: bool = False) -> T:
    """Makes a fast tokenizer of transformers encode and decode with bytemill.

    The tokenizer is changed in place and returned; with `copy`, a copy is. The results stay the
    same: `explain` tells what is done by bytemill. `"all"` stands for every tokenizer that is
    created from now on. `restore` undoes either.
    """
    if isinstance(tokenizer, str):
        _accelerate_all(tokenizer)
        return tokenizer
    backend = _backend(tokenizer)
    if copy:
        tokenizer = copies.deepcopy(tokenizer)
        backend = _backend(tokenizer)
    tokenizer._tokenizer = compat.Tokenizer.wrap(backend)  # type: ignore[attr-defined]
    return tokenizer


def restore(tokenizer: T) -> T:
    """Gives a tokenizer its own backend again; `"all"` ends what `accelerate("all")` began.

    Tokenizers that were accelerated before stay so.
    """
    if isinstance(tokenizer, str):
        _check_word(tokenizer)
        for (owner, name), value in _replaced.items():
            setattr(owner, name, value)
        _replaced.clear()
    elif type(backend := _backend(tokenizer)) is compat.Tokenizer:
        tokenizer._tokenizer = backend.unwrap()  # type: ignore[attr-defined]
    return tokenizer


def _backend(tokenizer: Any) -> Any:
    backend = getattr(tokenizer, "_tokenizer", None)
    if backend is None or not isinstance(tokenizer, _Original):
        raise TypeError(
            f"expected a fast tokenizer of transformers or 'all', not {type(tokenizer).__name__}"
        )
    return backend


def _check_word(word: str) -> None:
    if word != "all":
        raise ValueError(f"expected a tokenizer or 'all', got {word!r}")


def _accelerate_all(word: str) -> None:
    _check_word(word)
    if _replaced:
        return
    created = _Original.__init__

    @functools.wraps(created)
    def create(self: Any, *args: Any, **options: Any) -> None:
        created(self, *args, **options)
        accelerate(self)

    # The stream takes backends of either kind, unlike the original.
    for owner, name, value in (
        (_Original, "__init__", create),
        (compat.tokenizers.decoders, "DecodeStream", compat.DecodeStream),
    ):
        _replaced[owner, name] = getattr(owner, name)
        setattr(owner, name, value)


class _Accelerated(_Original):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        given = options.get("tokenizer_object")
        if args:
            given, *args = args  # type: ignore[assignment]
        if isinstance(given, _Bytemill):
            given = compat.Tokenizer.from_bytemill(given)
        if given is not None:
            options["tokenizer_object"] = given
        super().__init__(*args, **options)
        accelerate(self)


# transformers reads the tokenizer.json as it is only for classes without a constructor of their
# own.
class PreTrainedTokenizerFast(_Accelerated):
    """`transformers.PreTrainedTokenizerFast`, accelerated.

    `tokenizer_object` may be a bytemill tokenizer, too, and may be given by position.
    """
