"""Human-readable sizes and durations; sizes, counts and integers that users give."""

from __future__ import annotations

import operator
import re

from .errors import ConfigError

__all__ = [
    "check_integer",
    "check_least",
    "duration",
    "estimated_text",
    "parse_count",
    "parse_size",
    "size",
    "text_size",
]

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def size(n: float) -> str:
    """A number of bytes with about three digits, in powers of 1000.

    >>> size(999), size(1234), size(56_789_000)
    ('999 bytes', '1.23 kB', '56.8 MB')
    """
    value, unit = float(n), 0
    # 999.5 would be rounded to 1000 of its unit.
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    if unit == 0:
        return f"{value:.0f} bytes"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {UNITS[unit]}"


def text_size(text: int, files: int) -> str:
    """A number of bytes of text and, if it differs, of the files they come from.

    >>> text_size(5000, 5000), text_size(5000, 1200), text_size(5000, 6100)
    ('5.00 kB', '5.00 kB of text (1.20 kB compressed)', '5.00 kB of text (6.10 kB of files)')
    """
    if files in (0, text):
        return size(text)
    return f"{size(text)} of text ({size(files)} {'compressed' if files < text else 'of files'})"


def estimated_text(text: int, read: float, files: float) -> int | None:
    """Estimates the bytes of text in `files` bytes of files after `read` bytes gave `text`; None if
    nothing was read.

    >>> estimated_text(300, 100, 1000), estimated_text(0, 0, 1000)
    (3000, None)
    """
    return max(round(text * files / read), text) if text and read else None


def duration(seconds: float) -> str:
    """A duration: seconds below a minute, then h:mm:ss.

    >>> duration(0.042), duration(75), duration(7384)
    ('0.04 s', '1:15', '2:03:04')
    """
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def parse_size(text: str) -> int:
    """Parses a size such as `100MB`, `1.5 GB`, `64k` or `4096` into bytes.

    `MiB` and similar units are powers of 1024.

    >>> parse_size("100MB"), parse_size("1.5k"), parse_size("2MiB")
    (100000000, 1500, 2097152)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgtp]?)(i?)b?\s*", text, re.IGNORECASE)
    if found is None:
        raise ConfigError(f"{text!r} is not a size", "write 100MB, 1.5GB, 64KiB or a number")
    number, letter, binary = found.groups()
    power = " kmgtp".index(letter.lower() or " ")
    unit: int = (1024 if binary else 1000) ** power
    return round(float(number) * unit)


def parse_count(text: str) -> int:
    """Parses a count such as `32000`, `10k`, `1.5M` or `1e9`; suffixes are powers of 1000.

    >>> parse_count("10k"), parse_count("1.5M"), parse_count("32,000"), parse_count("2e3")
    (10000, 1500000, 32000, 2000)
    """
    from decimal import Decimal

    whole = r"-?(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)"
    # Few digits in the exponent: the number is written out below.
    found = re.fullmatch(rf"\s*({whole})(\.\d+)?(e\d\d?|[kmgbt])?\s*", text, re.IGNORECASE)
    if found is not None:
        digits, part, suffix = found[1], found[2] or "", (found[3] or "").lower()
        # 10⁹ is B (billion) when counting tokens, and G (giga) elsewhere.
        powers = {"": 0, "k": 3, "m": 6, "g": 9, "b": 9, "t": 12}
        power = powers[suffix] if suffix in powers else int(suffix[1:])
        number = Decimal(re.sub("[,_]", "", digits) + part) * 10**power
        if number == int(number):
            return int(number)
    raise ConfigError(f"{text!r} is not a whole number", "write 32000, 32k or 1.5M")


def check_integer(name: str, value: object) -> None:
    """Raises a TypeError unless the value of the option `name` is an integer."""
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None


def check_least(name: str, value: int, least: int) -> None:
    """Raises unless the value of the option `name` is an integer of at least `least`."""
    check_integer(name, value)
    if value < least:
        raise ConfigError(f"{name} must be ≥ {least}, got {value}")
