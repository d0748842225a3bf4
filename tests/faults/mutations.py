"""Ways to damage a file: each takes its bytes and a random generator, and returns other bytes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

Mutation = Callable[[bytes, random.Random], bytes]

NUMBERS = ("0", "-1", "4294967296", "9223372036854775807", "1" + "0" * 30, "1e400", "0.5")
VALUES = (None, True, -1, 2**63, 1e308, float("inf"), float("nan"), "", "x", [], {}, [[]])
DEEP = 20_000


def _span(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    # Short ones more often than long ones.
    return start, min(len(data), start + int(2 ** chance.uniform(0, 12)))


def flip_bit(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return b"\1"
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def set_byte(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.choice((0, 0xFF, 0x80, 10, 34))]) + data[at + 1 :]


def truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def delete_span(data: bytes, chance: random.Random) -> bytes:
    start, end = _span(data, chance)
    return data[:start] + data[end:]


def repeat_span(data: bytes, chance: random.Random) -> bytes:
    start, end = _span(data, chance)
    return data[:end] + data[start:end] * chance.choice((1, 1, 3)) + data[end:]


def zero_span(data: bytes, chance: random.Random) -> bytes:
    start, end = _span(data, chance)
    return data[:start] + bytes(end - start) + data[end:]


def insert_noise(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.randbytes(chance.randint(1, 64)) + data[at:]


def append_noise(data: bytes, chance: random.Random) -> bytes:
    return data + chance.randbytes(chance.randint(1, 64))


def nothing(data: bytes, chance: random.Random) -> bytes:
    return b""


def other_number(data: bytes, chance: random.Random) -> bytes:
    """Replaces a number in text; without any, overwrites eight bytes that may be one."""
    found = list(re.finditer(rb"\d+", data[:200_000]))
    if not found:
        at = chance.randrange(len(data) + 1)
        return data[:at] + chance.choice((b"\xff" * 8, bytes(7) + b"\x7f")) + data[at + 8 :]
    one = chance.choice(found)
    return data[: one.start()] + chance.choice(NUMBERS).encode() + data[one.end() :]


def other_value(data: bytes, chance: random.Random) -> bytes:
    """Replaces a value somewhere in JSON by one of any type, even a deeply nested one."""
    try:
        value = json.loads(data)
    except ValueError:
        return other_number(data, chance)
    places: list[tuple[object, object]] = []

    def walk(inside: object) -> None:
        keys = (
            inside
            if isinstance(inside, dict)
            else range(len(inside))
            if isinstance(inside, list)
            else ()
        )
        for key in keys:
            places.append((inside, key))
            walk(inside[key])  # type: ignore[index]

    walk(value)
    if not places:
        return b"null"
    inside, key = chance.choice(places)
    if chance.random() < 0.1 and isinstance(inside, dict):
        del inside[key]
        return json.dumps(value).encode()
    inside[key] = chance.choice((*VALUES, "\0deep"))  # type: ignore[index]
    nested = b"[" * DEEP + b"]" * DEEP
    return json.dumps(value).encode().replace(b'"\\u0000deep"', nested)


MUTATIONS: tuple[Mutation, ...] = (
    flip_bit,
    set_byte,
    truncate,
    delete_span,
    repeat_span,
    zero_span,
    insert_noise,
    append_noise,
    nothing,
    other_number,
    other_value,
)
