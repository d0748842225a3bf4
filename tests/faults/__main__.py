"""Injects faults into bytemill and reports problems. Exits with 1 if there are any."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import inject, kill, mutate, report, shim, warm

PARTS = ("inject", "kill", "mutate")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    add = parser.add_argument
    add("part", choices=[*PARTS, "all", "fuzz", "report"], help="fuzz: collect logs of cargo-fuzz")
    add(
        "--only",
        action="append",
        default=[],
        help="commands or kinds of files, as encode*; may be repeated",
    )
    add("--situation", action="append", default=[], choices=["fresh", "overwrite", "resume"])
    add("--fault", action="append", default=[], choices=shim.FAULTS)
    add("--at", action="append", default=[], type=int, help="call, or number of a mutation")
    add("--calls", type=int, default=400, help="most calls to disturb, of each situation")
    add("--learning-calls", type=int, default=25, help="the same for commands that need torch")
    add("--signals", type=int, default=1000)
    add("--mutations", type=int, default=200, help="damaged files of each kind")
    add("--seed", type=int, default=0)
    add("--no-torch", action="store_true", help="skip what needs torch")
    add("--save", action="store_true", help="write results.json and docs/reliability.md")
    add("--logs", type=Path, help="for fuzz: the directory of logs")
    return parser.parse_args()


def preload() -> None:
    """Restarts this program with the shim unless it is loaded; exits if it is not available."""
    if shim.loaded() is not None:
        return
    if reason := shim.why_not():
        print(f"skipped: {reason}")
        sys.exit(0)
    library = shim.build(Path(tempfile.gettempdir()))
    settings = {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "faults", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **settings})


def main() -> None:
    options = arguments()
    if options.part == "fuzz":
        rows = report.fuzz_rows(options.logs)
        report.save("fuzz", sum(row["seconds"] for row in rows.values()), rows)
    if options.part in ("fuzz", "report"):
        report.write_docs()
        return
    preload()
    warm.import_everything(torch=not options.no_torch)
    found = 0
    for part in PARTS if options.part == "all" else [options.part]:
        began = time.perf_counter()
        rows = {}
        for name, findings in run(part, options):
            same = report.kinds(findings.found)
            rows[name] = {"faults": findings.n_faults, "findings": same}
            print(
                f"{part} {name}: {findings.n_faults}, findings: {len(findings.found)}", flush=True
            )
            for kind in same:
                found += kind["times"]
                print(f"  {kind['times']} times: {kind['what']}")
                print(f"    python -m faults {kind['reproduce']}")
                print(*(f"    | {line}" for line in kind["detail"].splitlines()[-3:]), sep="\n")
        if options.save:
            report.save(part, time.perf_counter() - began, rows, some=bool(options.only))
            report.write_docs()
    sys.exit(1 if found else 0)


def run(part: str, options: argparse.Namespace) -> Any:
    """Yields the name and the findings of each command or reader."""
    learns = not options.no_torch
    if part == "inject":
        calls = (options.calls, options.learning_calls)
        drawn = (options.situation, options.fault, options.at, calls)
        return inject.inject(options.only, *drawn, learns=learns)
    if part == "kill":
        return kill.kill(options.only, options.signals, options.seed, learns=learns)
    drawn = (options.mutations, options.seed, options.at)
    return mutate.mutate(options.only, *drawn, learns=learns)


if __name__ == "__main__":
    main()
