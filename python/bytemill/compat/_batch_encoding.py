"""What `PreTrainedTokenizerFast` gives: a dictionary of columns, as lists, arrays or tensors."""

from __future__ import annotations

import importlib
from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Columns = UserDict[str, Any]
else:
    Columns = UserDict


class BatchEncoding(Columns):
    """Columns by name (`input_ids`, `attention_mask`, …), which are attributes too.

    >>> encoding = BatchEncoding({"input_ids": [[1, 2], [3, 4]]})
    >>> encoding.input_ids == encoding["input_ids"]
    True
    >>> encoding[1:]
    {'input_ids': [[3, 4]]}
    """

    def __init__(
        self, data: Mapping[str, Any] | None = None, tensor_type: str | None = None
    ) -> None:
        super().__init__(data or {})
        self.convert_to_tensors(tensor_type)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return {name: column[key] for name, column in self.data.items()}
        return self.data[key]

    def __getattr__(self, name: str) -> Any:
        # While an object is being copied or unpickled there is no data yet.
        if name != "data" and name in self.data:
            return self.data[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def convert_to_tensors(self, tensor_type: str | None = None) -> BatchEncoding:
        """Turns the columns into numpy arrays (`"np"`) or torch tensors (`"pt"`)."""
        kind = tensor_kind(tensor_type)
        if kind is not None:
            for name, column in self.data.items():
                self.data[name] = _array(column) if kind == "np" else _tensor(name, column)
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> BatchEncoding:
        """Moves tensors to a device; what is no tensor stays."""
        self.data = {
            name: column.to(device=device, non_blocking=non_blocking)
            if hasattr(column, "to")
            else column
            for name, column in self.data.items()
        }
        return self


def tensor_kind(tensor_type: str | None) -> str | None:
    """`"np"`, `"pt"` or None, of the name or of transformers' enum of them."""
    kind: str | None = getattr(tensor_type, "value", tensor_type)
    if kind not in (None, "np", "pt"):
        raise ValueError(f"return_tensors={tensor_type!r} is not 'np' or 'pt'")
    return kind


def _array(column: Any) -> np.ndarray[Any, Any]:
    if isinstance(column, np.ndarray):
        return column
    if column and isinstance(column[0], Sequence) and len({len(row) for row in column}) > 1:
        # Rows of different lengths: an array of arrays, as transformers has it.
        rows = np.empty(len(column), dtype=object)
        rows[:] = [np.asarray(row) for row in column]
        return rows
    array = np.asarray(column)
    return array if array.size else array.astype(np.int64)


def _tensor(name: str, column: Any) -> Any:
    # Imported by name, since it is there only where somebody wants tensors.
    torch: Any = importlib.import_module("torch")
    if torch.is_tensor(column):
        return column
    if isinstance(column, np.ndarray):
        return torch.from_numpy(column)
    try:
        return torch.tensor(column, dtype=None if np.size(column) else torch.int64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} cannot be a tensor: its rows differ in length or are no numbers\n"
            "hint: padding=True and truncation=True make rows equally long"
        ) from error
