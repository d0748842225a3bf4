"""Numbers of trials and findings: results.json, and the tables in docs/reliability.md."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")
DOCS = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- results: python -m faults report -->\n", "<!-- end of results -->"

Results = dict[str, Any]


def kinds(findings: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Each kind of finding once: what, how often, and how to reproduce one."""
    found: dict[str, dict[str, Any]] = {}
    for finding in findings:
        # The text after a colon varies.
        kind = found.setdefault(finding["what"].split(":")[0], {**finding, "times": 0})
        kind["times"] += 1
    return list(found.values())


def read() -> Results:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def save(part: str, seconds: float, rows: dict[str, Any], *, some: bool = False) -> None:
    """Replaces the results of a part, or some rows of it."""
    machine = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    results = read()
    if some and part in results:
        rows = results[part]["rows"] | rows
        seconds += results[part]["seconds"]
    results[part] = {"machine": machine, "seconds": round(seconds), "rows": rows}
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def fuzz_rows(logs: Path) -> dict[str, Any]:
    """What libFuzzer printed (with -print_final_stats=1), by target."""
    rows = {}
    for log in sorted(logs.glob("*.log")):
        text = log.read_text(errors="replace")
        runs = re.search(r"stat::number_of_executed_units: *(\d+)", text)
        seconds = re.search(r"Done \d+ runs in (\d+) second", text)
        if runs and seconds:
            rows[log.stem] = {"faults": int(runs[1]), "seconds": int(seconds[1]), "findings": []}
        else:
            summary = re.search(r"^SUMMARY: (.*)$", text, re.M)
            what = summary[1] if summary else "no final statistics"
            rows[log.stem] = {"faults": 0, "seconds": 0, "findings": [{"what": what, "times": 1}]}
    return rows


# The column titles of each part: the row, and the number of trials.
TABLES = {
    "inject": ("Command", "Faults", "Calls that change files: each disturbed, or as many as drawn"),
    "kill": ("Command", "Signals", "Signals at random moments"),
    "mutate": ("Files", "Reads", "Damaged files, read"),
    "fuzz": ("Target", "Inputs", "Inputs of cargo-fuzz, with AddressSanitizer"),
}


def tables(results: Results) -> str:
    """The results as Markdown."""
    text = ""
    for part, (row, tried, about) in TABLES.items():
        if part not in results:
            continue
        done = results[part]
        n = sum(one["faults"] for one in done["rows"].values())
        n_findings = sum(f["times"] for one in done["rows"].values() for f in one["findings"])
        text += f"\n**{part}.** {about}: {n:,} in {done['seconds']:,} s, {n_findings} findings"
        text += f" ({done['machine']}).\n\n"
        text += f"| {row} | {tried} | Findings |\n| --- | ---: | ---: |\n"
        for name, one in done["rows"].items():
            times = sum(finding["times"] for finding in one["findings"])
            text += f"| {name} | {one['faults']:,} | {times} |\n"
    return text + "\n"


def documented(page: str, results: Results) -> str:
    """The page with updated tables."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + tables(results) + END + after


def write_docs() -> None:
    DOCS.write_text(documented(DOCS.read_text(), read()))
