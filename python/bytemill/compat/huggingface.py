"""transformers' tokenizers, encoding and decoding at bytemill's speed.

Tokenizers keep their class. Only the backend of a tokenizer, a `tokenizers.Tokenizer`, is replaced
by a `bytemill.compat.tokenizers.Tokenizer` that wraps it.
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
# The attributes that `accelerate("all")` replaced: (owner, name) → original value.
_replaced: dict[tuple[Any, str], Any] = {}


def accelerate(tokenizer: T, *, copy: bool = False) -> T:
    """Makes a fast tokenizer of transformers encode and decode with bytemill.

    Changes the tokenizer in place and returns it; with `copy`, returns an accelerated copy.
    `"all"` accelerates every tokenizer created from now on. The results do not change; `explain`
    reports what bytemill does. `restore` undoes both.
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
    """Restores the original backend of a tokenizer; `"all"` undoes `accelerate("all")`.

    Tokenizers created while `accelerate("all")` was on stay accelerated.
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

    # Unlike the original, our stream accepts both kinds of backend.
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


# transformers loads tokenizer.json unchanged only into classes that do not define __init__.
class PreTrainedTokenizerFast(_Accelerated):
    """`transformers.PreTrainedTokenizerFast`, accelerated.

    `tokenizer_object` may also be a bytemill tokenizer, and may be positional.
    """
