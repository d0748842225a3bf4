"""The table of docs/benchmarks.md, from the results of lm.py; without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Task → its name on the page, the field that is compared, the unit.
TASKS = {
    "train": ("training step, nothing compiled", "best_ms", "ms"),
    "compiled": ("training step, the others compiled", "best_ms", "ms"),
    "generate": ("200 new tokens after a 32-token prompt, one sample", "best_ms", "ms"),
    "data": ("finding a batch", "best_ms", "ms"),
    "memory": ("peak memory of training", "peak_mb", "MB"),
}


def write_docs(path: Path, kept: dict[str, Any]) -> None:
    """Puts the figures between the marks in a page."""
    lines = ["| task | | best | median | × bytemill |", "|---|---|--:|--:|--:|"]
    machines = set()
    for key, result in kept.items():
        what, _, shape = key.partition(", ")
        if what not in TASKS:
            continue
        words, field, unit = TASKS[what]
        machine = result["machine"]
        machines.add(
            f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, "
            f"{machine['date']}"
        )
        first = result["rows"][0][field]
        for row in result["rows"]:
            task = f"{words}, `{shape}`" if row is result["rows"][0] else ""
            median = f"{row['median_ms']:,.0f} {unit}" if "median_ms" in row else ""
            value = f"{row[field]:,.0f}" if row[field] >= 10 else f"{row[field]:.2f}"
            lines.append(
                f"| {task} | {row['name']} | {value} {unit} | {median} | {row[field] / first:.2f} |"
            )
    text = path.read_text(encoding="utf-8")
    before, start, rest = text.partition("<!-- model figures -->\n")
    _, end, after = rest.partition("<!-- end of model figures -->")
    if not (start and end):
        raise SystemExit(f"{path} has no marks for the figures")
    figures = "\n".join([*lines, "", "; ".join(sorted(machines)) + "."]) + "\n"
    path.write_text(before + start + figures + end + after, encoding="utf-8")
