"""The code walkthrough names files, line counts and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
TEXT = (TOP / "docs" / "walkthrough.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| (\d+) \| \[\w+\.py\]\(\.\./(\S+)\) \| (\d+) \| (.*) \|$", TEXT, re.MULTILINE
)
# The files whose lines the last line adds up: model, data, optimizers, training loop, generation.
COUNTED = ("model", "data", "optim", "trainer", "training", "generate")


def lines(path: str) -> int:
    return len((TOP / path).read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(("number", "path", "count", "text"), ROWS)
def test_files_have_what_the_walk_says(number: str, path: str, count: str, text: str) -> None:
    assert lines(path) == pytest.approx(int(count), rel=0.05), f"{path}: update the number of lines"
    code = (TOP / path).read_text(encoding="utf-8")
    for name in re.findall(r"`([\w.]+)`", text):
        if not name.startswith("lm."):
            assert re.search(rf"(class|def) {name.rpartition('.')[2]}\b", code), name


def test_the_reading_is_counted() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 11))
    found = sum(lines(f"python/bytemill/lm/{name}.py") for name in COUNTED)
    said = re.search(r"are ([\d,]+) lines", TEXT)
    assert said is not None
    assert found == pytest.approx(int(said[1].replace(",", "")), rel=0.05)
    assert found < 2300
