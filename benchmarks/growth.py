"""How the time of learning grows with the corpus, on generated text of difficult kinds.

    python benchmarks/growth.py --size 50MB     a quarter, half and all of it
    python benchmarks/growth.py --kind zipf --size 10GB --steps 3 --factor 10 --memory-limit 1GB

A row is a process of its own. The last column is the time divided by that of the size before, and
by the ratio of the sizes: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import zipf
from bytemill._numbers import parse_size, size
from compare import run

BLOCK = 1 << 20


def letters(alphabet: bytes, seed: int) -> Iterator[bytes]:
    source = np.random.default_rng(seed)
    known = np.frombuffer(alphabet, np.uint8)
    while True:
        yield known[source.integers(0, len(known), BLOCK)].tobytes()


def word(source: np.random.Generator, alphabet: bytes, n: int) -> bytes:
    return source.choice(np.frombuffer(alphabet, np.uint8), n).tobytes()


def one_piece(seed: int) -> Iterator[bytes]:
    """Syllables in a row: one piece, with something to merge."""
    source = np.random.default_rng(seed)
    syllables = [word(source, b"abcdefghijklmno", 3) for _ in range(4000)]
    while True:
        yield b"".join(syllables[i] for i in source.zipf(1.3, BLOCK // 3) % 4000)


def equal_bytes(_: int) -> Iterator[bytes]:
    while True:
        yield b"a" * BLOCK


def long_pieces(seed: int) -> Iterator[bytes]:
    """Words of fifty random letters, no two alike."""
    for block in letters(b"abcdefghijklmnopqrstuvwxyz", seed):
        rows = np.frombuffer(block[: len(block) // 51 * 51], np.uint8).reshape(-1, 51).copy()
        rows[:, 0] = ord(" ")
        yield rows.tobytes()


def dna(seed: int) -> Iterator[bytes]:
    """Letters of four, in lines of seventy."""
    for block in letters(b"ACGT", seed):
        rows = np.frombuffer(block[: len(block) // 71 * 71], np.uint8).reshape(-1, 71).copy()
        rows[:, 70] = ord("\n")
        yield rows.tobytes()


def minified(seed: int) -> Iterator[bytes]:
    """Short names, brackets and digits, without a space or a new line."""
    source = np.random.default_rng(seed)
    parts = [
        b"function(",
        b"var ",
        b"return ",
        b"this.",
        b"){",
        b"};",
        b"&&",
        b"=",
        b"(",
        b")",
        b",",
    ]
    names = [word(source, b"abcdefgxyz_$", n) for n in (1, 1, 2, 2, 3) * 800]
    numbers = [str(n).encode() for n in source.integers(0, 10**6, 1000)]
    known = parts * 200 + names + numbers
    while True:
        yield b"".join(known[i] for i in source.integers(0, len(known), BLOCK // 4))


def zipfian(seed: int) -> Iterator[bytes]:
    number = 0
    while True:
        yield zipf.block(seed, number, 1.5)
        number += 1


KINDS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "one piece": one_piece,
    "equal bytes": equal_bytes,
    "long pieces": long_pieces,
    "dna": dna,
    "minified": minified,
    "zipf": zipfian,
}


def write(path: Path, kind: str, n_bytes: int) -> None:
    left = n_bytes
    with path.open("wb") as file:
        for block in KINDS[kind](0):
            file.write(block[:left])
            left -= len(block)
            if left <= 0:
                return


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--size", default="50MB", help="of the largest corpus")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--factor", type=int, default=2)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-limit")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the figures go too")
    asked = parser.parse_args()

    rows = []
    print("| kind | size | s | peak MB | MB/s | growth |\n|---|--:|--:|--:|--:|--:|", flush=True)
    for kind in asked.kind or [name for name in KINDS if name != "zipf"]:
        before = None
        for step in reversed(range(asked.steps)):
            n_bytes = parse_size(asked.size) // asked.factor**step
            with tempfile.TemporaryDirectory() as directory:
                corpus = Path(directory) / "corpus.txt"
                write(corpus, kind, n_bytes)
                options = {
                    "corpus": str(corpus),
                    "vocab_size": asked.vocab_size,
                    "threads": asked.threads,
                    "memory_limit": asked.memory_limit,
                }
                runs = [run("train", "bytemill", options) for _ in range(asked.repeat)]
            seconds = min(one["seconds"] for one in runs)
            peak = max(one["peak_bytes"] for one in runs) / 1e6
            growth = "" if before is None else f"{seconds / before / asked.factor:.2f}"
            before = seconds
            rate = n_bytes / 1e6 / seconds
            print(
                f"| {kind} | {size(n_bytes)} | {seconds:.2f} | {peak:.0f} | {rate:.0f} ",
                f"| {growth} |",
                flush=True,
            )
            rows.append({"kind": kind, "bytes": n_bytes, "seconds": seconds, "peak_mb": peak})
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
