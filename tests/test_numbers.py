"""Sizes and durations, written and read; memory, which never raises."""

from __future__ import annotations

import sys

import pytest

import bytemill
from bytemill import _numbers, _system


def test_memory_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1_000_000 < _system.resident_memory() < 100_000_000_000
    monkeypatch.setattr("os.path.exists", lambda path: False)
    assert 1_000_000 < _system.resident_memory() < 100_000_000_000
    monkeypatch.setitem(sys.modules, "resource", None)
    if sys.platform != "win32":
        assert _system.resident_memory() == 0


@pytest.mark.parametrize(
    ("text", "n"),
    [("0", 0), ("4096", 4096), ("1kB", 1000), ("1KiB", 1024), ("2.5 mb", 2_500_000),
     ("3G", 3_000_000_000), ("1TiB", 1 << 40)],
)  # fmt: skip
def test_sizes_are_read(text: str, n: int) -> None:
    assert _numbers.parse_size(text) == n


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 XB", "1e3", "ten"])
def test_wrong_sizes_are_refused(text: str) -> None:
    with pytest.raises(bytemill.ConfigError, match="not a size"):
        _numbers.parse_size(text)


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.00 kB"), (9_994, "9.99 kB"),
     (99_960, "100 kB"), (999_499, "999 kB"), (999_500, "1.00 MB"), (10**18, "1000 PB")],
)  # fmt: skip
def test_sizes_are_written(n: int, text: str) -> None:
    assert _numbers.size(n) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 s"), (0.996, "1.0 s"), (59.94, "59.9 s"), (59.96, "1:00"), (3599.6, "1:00:00")],
)
def test_durations_are_written(seconds: float, text: str) -> None:
    assert _numbers.duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [("32000", 32000), ("10k", 10_000), ("32K", 32_000), ("1m", 10**6), ("1.5M", 1_500_000),
     ("2_000", 2000), ("2B", 2 * 10**9), ("-1", -1), (" 7 ", 7), ("32,000", 32_000),
     ("1e3", 1000), ("2.5E3", 2500), ("100e9", 10**11)],
)  # fmt: skip
def test_counts_in_thousands(text: str, number: int) -> None:
    assert _numbers.parse_count(text) == number


@pytest.mark.parametrize(
    "text", ["", "k", "1.5", "10kB", "1e-3", "1e999", "1.5e0", "3,20", "ten", "1.0005k"]
)
def test_invalid_counts(text: str) -> None:
    with pytest.raises(bytemill.ConfigError, match="not a whole number"):
        _numbers.parse_count(text)
