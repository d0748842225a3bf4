"""The cost of reducing counts as a tree: many counts files, merged eight to one as on a cluster.

    python benchmarks/reduction.py [--files 64] [--unit-size 16MB] [--exponent 1.15] [--json FILE]

Each file has the counts of a unit of text whose words follow Zipf's law with a tail that never ends
(`zipf.py`), so that the number of distinct pieces grows with the text. For every level it prints
the number of files, their sizes, and the time and peak memory of a process that does one merge.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import jobs
import zipf
from bytemill import _native
from bytemill._numbers import parse_size, size
from bytemill.counting import FAN_IN, CountJob, Merge, count_or_merge

PATTERN, SPECIALS = ["gpt2"], ["<|endoftext|>"]


def count(folder: str, seed: int, n_bytes: int, exponent: float) -> str:
    """Makes a unit of text and counts it."""
    text, target = Path(folder, f"{seed}.txt"), Path(folder, f"0-{seed}.counts")
    with open(text, "wb") as file:
        zipf.write(file, n_bytes, exponent, seed)
    counts = _native.Counts(PATTERN, SPECIALS, 1)
    counts.add_files([str(text)])
    counts.save(target)
    counts.clear()
    text.unlink()
    return str(target)


def merged(target: str, parts: list[str]) -> tuple[float, int]:
    """Seconds and peak memory of a merge."""
    began = time.perf_counter()
    count_or_merge(CountJob(PATTERN, SPECIALS), None, Merge((1, 0), target, parts))
    seconds = time.perf_counter() - began
    return seconds, jobs.peak_memory()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--unit-size", default="16MB")
    parser.add_argument("--exponent", type=float, default=1.15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    unit_size = parse_size(arguments.unit_size)
    levels: list[dict[str, Any]] = []
    # One process per merge, so that peaks do not include earlier merges.
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="bytemill-") as folder,
        context.Pool(1, maxtasksperchild=1) as pool,
    ):
        paths = [
            pool.apply(count, (folder, seed, unit_size, arguments.exponent))
            for seed in range(arguments.files)
        ]
        while True:
            sizes = [Path(path).stat().st_size for path in paths]
            level: dict[str, Any] = {"files": len(paths), "bytes": sum(sizes), "most": max(sizes)}
            levels.append(level)
            print(
                f"level {len(levels) - 1}: {len(paths):5} files, {size(sum(sizes)):>8} in all, "
                f"{size(max(sizes)):>8} the largest",
                flush=True,
            )
            if len(paths) == 1:
                break
            groups = [paths[i : i + FAN_IN] for i in range(0, len(paths), FAN_IN)]
            targets = [f"{folder}/{len(levels)}-{n}.counts" for n in range(len(groups))]
            costs = [pool.apply(merged, work) for work in zip(targets, groups)]
            level["seconds"] = [seconds for seconds, _ in costs]
            level["peak"] = max(peak for _, peak in costs)
            print(
                f"         {len(costs)} merges, {sum(level['seconds']) / len(costs):.2f} s each, "
                f"peak memory {size(level['peak'])}",
                flush=True,
            )
            paths = targets
    if arguments.json:
        arguments.json.write_text(json.dumps(levels, indent=2) + "\n")


if __name__ == "__main__":
    main()
