"""The settings of a sweep: values and ranges → combinations or random draws. No torch."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ...errors import ConfigError
from ..config import ModelConfig, TrainConfig
from ..config_checks import unknown_key
from ..presets import MODEL_KEYS, TRAIN_KEYS

__all__ = ["Range", "name_of", "parse", "trials_of"]

# Characters of a directory's name; file systems allow 255 bytes.
MAX_NAME_LENGTH = 150
# Limit of the ends of ranges: no product of two overflows.
MAX_RANGE_END = 1e150


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, drawn uniformly on a logarithmic scale if both are above 0.

    If both are whole numbers, so are the draws.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not -MAX_RANGE_END < self.low < self.high < MAX_RANGE_END:
            raise ConfigError(f"{self.low}..{self.high} is not a range", "give the lower end first")

    def draw(self, share: float) -> float | int:
        """The number at this share of the range."""
        if self.low > 0:
            found: float = self.low * (self.high / self.low) ** share
        else:
            found = self.low + share * (self.high - self.low)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return round(found)
        # Three digits are precise enough, and readable.
        return float(f"{found:.3g}")


def parse(field: str, text: str) -> list[Any] | Range:
    """The values of a field, from text such as `3e-4`, `1e-4,3e-4` or `1e-4..1e-2`.

    >>> parse("lr", "1e-4,3e-4"), parse("num_layers", "2..8"), parse("norm", "pre,none")
    ([0.0001, 0.0003], Range(low=2, high=8), ['pre', 'none'])
    """
    kinds = _kinds(field)
    if kinds == (str,):
        return [text]  # commas are part of it
    low, dots, high = text.partition("..")
    if dots:
        ends = [_value(field, end, kinds) for end in (low, high)]
        if not all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in ends):
            raise ConfigError(f"{field}: {text} is not a range of numbers", "such as 1e-4..1e-2")
        return Range(*ends)
    values = [_value(field, part, kinds) for part in text.split(",")]
    if len(set(values)) != len(values):
        raise ConfigError(f"{field}: {text} contains a value twice", "give each once")
    return values


def trials_of(
    space: Mapping[str, Sequence[Any] | Range], random: int | None, seed: int
) -> list[dict[str, Any]]:
    """The settings of each run: every combination, or `random` distinct draws."""
    for field, values in space.items():
        if field not in MODEL_KEYS and field not in TRAIN_KEYS:
            raise unknown_key(field, (*MODEL_KEYS, *TRAIN_KEYS), "settings")
        if not isinstance(values, Range) and not len(values):
            raise ConfigError(f"{field}: no values", "give at least one")
    if not space:
        raise ConfigError("nothing varies", "give several values: lr=[1e-4, 1e-3]")
    if random is None:
        ranges = [field for field, values in space.items() if isinstance(values, Range)]
        if ranges:
            raise ConfigError(
                f"{ranges[0]} is a range, which has no finite set of combinations",
                "random=20 draws from it; or list its values",
            )
        lists = [list(values) for values in space.values() if not isinstance(values, Range)]
        return [dict(zip(space, values)) for values in itertools.product(*lists)]
    if random < 1:
        raise ConfigError(f"random must be ≥ 1, got {random}")
    found: list[dict[str, Any]] = []
    # A small space may have fewer distinct draws than requested.
    for number in range(20 * random):
        drawn = {
            field: values.draw(share)
            if isinstance(values, Range)
            else values[min(int(share * len(values)), len(values) - 1)]
            for field, values in space.items()
            for share in (_share(seed, number, field),)
        }
        if drawn not in found:
            found.append(drawn)
        if len(found) == random:
            break
    return found


def name_of(settings: Mapping[str, Any]) -> str:
    """The name of a run's directory.

    >>> name_of({"lr": 0.001, "norm": "pre"})
    'lr=0.001,norm=pre'
    """
    name = ",".join(f"{key}={value}" for key, value in settings.items())
    safe = "".join(c if c.isalnum() or c in "=,._-+" else "_" for c in name)
    if safe == name and len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{safe[:MAX_NAME_LENGTH]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _share(seed: int, number: int, field: str) -> float:
    """A uniform draw from 0 to 1, by seed, number and field only: more draws, or fields in another
    order, do not change the others."""
    digest = hashlib.sha256(f"{seed} {number} {field}".encode()).digest()
    return int.from_bytes(digest[:7], "little") / 2**56


def _kinds(field: str) -> tuple[Any, ...]:
    hints = get_type_hints(ModelConfig) | get_type_hints(TrainConfig)
    if field not in hints:
        raise unknown_key(field, hints, "settings")
    hint = hints[field]
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def _value(field: str, text: str, kinds: tuple[Any, ...]) -> Any:
    text = text.strip()
    for kind in kinds:
        if get_origin(kind) is Literal and text in get_args(kind):
            return text
        if kind is type(None) and text.lower() == "none":
            return None
        if kind is bool and text.lower() in ("yes", "no", "true", "false"):
            return text.lower() in ("yes", "true")
        if kind in (int, float):
            try:
                # Not through float, which has only 53 bits.
                return kind(text)
            except ValueError:
                pass
            with contextlib.suppress(ValueError, OverflowError):
                if kind is int and float(text).is_integer():
                    return int(float(text))  # such as 1e6
    choices = [get_args(kind) for kind in kinds if get_origin(kind) is Literal]
    named = {int: "a whole number", float: "a number", bool: "yes or no"}
    rule = f"one of {', '.join(choices[0])}" if choices else named.get(kinds[0])
    raise ConfigError(f"{field} must be {rule}, got {text!r}")
