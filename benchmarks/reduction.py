"""What the tree reduction of counts costs: many counts files, merged eight to one.

    python benchmarks/reduction.py [N_FILES] [UNIT_MB]

Each file has the counts of a unit of text whose words follow Zipf's law with an exponent of 1.25,
by which the number of different words grows about with the 0.8th power of the text.
Printed is for every level: files, their sizes, time of one merge, memory.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bytemill import _native
from bytemill.engines.on_ray import FAN_IN

EXPONENT = 1.25


def words(seed: int, n_bytes: int) -> Iterator[bytes]:
    """Text of words drawn by Zipf's law, in parts of about a megabyte."""
    chance = np.random.default_rng(seed)
    made = 0
    while made < n_bytes:
        part = " ".join(np.base_repr(n, 36).lower() for n in chance.zipf(EXPONENT, 200_000) % 2**48)
        made += len(part)
        yield part.encode()


def count(seed: int, n_bytes: int, path: Path) -> None:
    counts = _native.Counts(["gpt2"], ["<|endoftext|>"], 1)
    for part in words(seed, n_bytes):
        counts.add_texts([part])
    counts.save(path)
    counts.clear()


def merge(paths: list[Path], target: Path) -> None:
    total = _native.Counts(["gpt2"], ["<|endoftext|>"], 1)
    total.set_limit(1 << 30, 1 << 30, target.parent)
    for path in paths:
        total.merge(_native.Counts.open(path, 1))
    total.save(target)
    total.clear()


def main(n_files: int = 64, unit_mb: int = 16) -> None:
    with tempfile.TemporaryDirectory(prefix="bytemill-") as name:
        folder = Path(name)
        paths = [folder / f"0-{number}.counts" for number in range(n_files)]
        for number, path in enumerate(paths):
            count(number, unit_mb * 10**6, path)
        level = 0
        while True:
            sizes = [path.stat().st_size for path in paths]
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"level {level}: {len(paths):5} files, {sum(sizes) / 1e6:9.1f} MB in all, "
                f"{max(sizes) / 1e6:8.1f} MB the largest, peak memory {memory:.0f} MB"
            )
            if len(paths) == 1:
                return
            level += 1
            merged = []
            began = time.perf_counter()
            for start in range(0, len(paths), FAN_IN):
                group = paths[start : start + FAN_IN]
                merged.append(folder / f"{level}-{start // FAN_IN}.counts")
                merge(group, merged[-1])
                for path in group:
                    path.unlink()
            passed = time.perf_counter() - began
            print(f"         {len(merged)} merges, {passed / len(merged):.2f} s each")
            paths = merged


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
