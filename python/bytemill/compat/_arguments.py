"""What a `PreTrainedTokenizerFast` may be called with, in all its shapes."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _json
from ..errors import TokenizerError
from ._rows import Row

log = logging.getLogger("bytemill.compat.huggingface")


def samples_of(text: Any, pair: Any) -> tuple[list[tuple[str, ...]], bool]:
    """Samples of one text or two, and whether they came as a batch."""
    samples: list[tuple[str, ...]]
    batched = isinstance(text, list | tuple)
    if not batched:
        samples = [(text, pair)] if pair else [(text,)]
    elif pair is None:
        samples = [tuple(each) if isinstance(each, list | tuple) else (each,) for each in text]
    elif isinstance(pair, str):
        raise TypeError("with a batch of texts, text_pair must be a batch too")
    elif len(pair) != len(text):
        raise ValueError(f"there are {len(text)} texts, but {len(pair)} in text_pair")
    else:
        samples = list(zip(text, pair))
    for sample in samples:
        if not 1 <= len(sample) <= 2 or not all(isinstance(each, str) for each in sample):
            raise ValueError(
                "text must be a string, a pair of strings, or a list of either, "
                f"but one is {sample if len(sample) > 1 else sample[0]!r}"
            )
    return samples, batched


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of the choices: the first for True, the last for False and None."""
    if value is True:
        return choices[0]
    if value is False or value is None:
        return choices[-1]
    value = getattr(value, "value", value)
    if value not in choices:
        raise ValueError(f"{name}={value!r} is none of {', '.join(choices)}, True and False")
    return str(value)


def room(length: int, n_added: int, stride: int) -> int:
    """How many ids of a text fit into a row, beside special tokens."""
    left = length - n_added
    if left < 0:
        raise ValueError(f"max_length={length} has no room for {n_added} special tokens")
    if stride and stride >= left:
        raise ValueError(
            f"stride={stride} must be less than the {left} ids that a row has room for"
        )
    return left


def columns_of(inputs: Any) -> Row:
    """Columns by name, of columns or of a list of rows."""
    if isinstance(inputs, Mapping):
        return dict(inputs.items())
    if len(inputs) == 0:
        return {"input_ids": []}
    return {name: [row[name] for row in inputs] for name in inputs[0]}


def kind_of(column: Any) -> str | None:
    """Whether a column holds numpy arrays or torch tensors; None for plain numbers."""
    first = column[0]
    if isinstance(first, list | tuple):
        first = next((row[0] for row in column if len(row)), 0)
    if isinstance(first, int | list | tuple):
        return None
    if isinstance(first, np.ndarray | np.integer):
        return "np"
    if type(first).__module__.partition(".")[0] == "torch":
        return "pt"
    raise ValueError(f"input_ids must be numbers, arrays or tensors, not {type(first).__name__}")


def as_list(value: Any) -> Any:
    """A list, of an array or a tensor; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def as_lists(column: Any) -> Any:
    """A column as lists, of arrays or tensors or lists of them."""
    column = as_list(column)
    return [as_list(row) for row in column] if isinstance(column, list | tuple) else column


def read_json(path: Path) -> Row:
    """What a JSON file says; nothing if there is none."""
    return _json.read_object(path, TokenizerError) if path.is_file() else {}


@functools.lru_cache(maxsize=128)
def warn_once(message: str) -> None:
    """Logs what is worth saying, but not at every call."""
    log.warning(message)
