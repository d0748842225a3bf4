"""The figures of benchmarks.md and the README are those of the result files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
BENCHMARKS = TOP / "benchmarks"
PAGE = (TOP / "docs" / "benchmarks.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def test_figures_of_tokenizers() -> None:
    compare = importlib.import_module("compare")
    known = json.loads((BENCHMARKS / "results.json").read_text(encoding="utf-8"))
    assert f"<!-- figures -->\n{compare.table(known)}\n\n{compare.note(known)}\n" in PAGE
    readme = (TOP / "README.md").read_text(encoding="utf-8")
    assert f"<!-- short figures -->\n{compare.short_table(known)}\n\n" in readme
    assert compare.note(known) in readme


def test_figures_of_the_language_model(tmp_path: Path) -> None:
    copy = tmp_path / "benchmarks.md"
    copy.write_text(PAGE, encoding="utf-8")
    figures = importlib.import_module("lm_figures")
    figures.write_docs(copy, json.loads((BENCHMARKS / "lm.json").read_text(encoding="utf-8")))
    assert copy.read_text(encoding="utf-8") == PAGE
