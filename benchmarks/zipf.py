"""Writes generated text whose words follow Zipf's law, with a tail that never stops growing.

    python benchmarks/zipf.py --size 10GB -o zipf.txt

The number of distinct pieces of a real corpus grows with its length; repeating a corpus adds none.
Here the rank of a word is drawn from a power law without an upper end (below 2^60), and its
letters are made from its rank, so the word of a rank is always the same and no table is needed.
Lines are of 16 words; a document ends every 64 lines. The same seed gives the same text.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

import numpy as np

from bytemill._numbers import parse_size, size

WORDS = 1 << 18  # at a time
WIDEST = 16  # letters
PER_LINE = 16
PER_DOCUMENT = 64 * PER_LINE
END = b"<|endoftext|>"
# Common letters more often, or all pairs of letters would be equally common.
LETTERS = np.frombuffer(b"etaoinshrdlucmwfeotiansyphgbvkxe", np.uint8)


def four_letters() -> np.ndarray:
    """The four letters that each 20 bits stand for, as one number."""
    bits = np.arange(1 << 20, dtype=np.uint32)
    columns = [LETTERS[(bits >> np.uint32(5 * n)) & np.uint32(31)] for n in range(4)]
    return np.stack(columns, axis=1).view(np.uint32)[:, 0]


FOUR = four_letters()


def block(seed: int, number: int, exponent: float) -> bytes:
    """The text of some words."""
    uniform = 1.0 - np.random.default_rng((seed, number)).random(WORDS)  # above 0, up to 1
    # The inverse of the distribution function of a continuous power law, as a power of two.
    log2 = np.minimum(np.log2(uniform) * (-1.0 / (exponent - 1.0)), 60.0)
    # Rank to letters: a bijection on 64 bits for their order, more letters for rarer words.
    mixed = np.exp2(log2).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    # The length must be a function of the rank, too, so of its integer part.
    whole = np.log2(np.exp2(log2).astype(np.uint64).astype(np.float64))
    lengths = 2 + (whole / 3.2).astype(np.int64) + (mixed >> np.uint64(62)).astype(np.int64)
    np.minimum(lengths, WIDEST, out=lengths)
    # A row per word: its letters, then what stands between it and the next.
    rows = np.empty((WORDS, WIDEST + 4), np.uint8)
    fours = rows.view(np.uint32)
    for column in range(WIDEST // 4):
        shift = np.uint64(20 * (column % 3) + column // 3)
        fours[:, column] = FOUR[(mixed >> shift) & np.uint64(0xFFFFF)]
    every = np.arange(WORDS)
    between = np.full(WORDS, ord(" "), np.uint8)
    between[PER_LINE - 1 :: PER_LINE] = ord("\n")
    rows[every, lengths] = between
    text = rows[np.arange(WIDEST + 4) <= lengths[:, None]].tobytes()
    ends = np.cumsum(lengths + 1)[PER_DOCUMENT - 1 :: PER_DOCUMENT].tolist()
    return b"".join(text[a:b] + END for a, b in zip([0, *ends], ends))


def write(out: BinaryIO, n_bytes: int, exponent: float, seed: int) -> None:
    """Writes exactly `n_bytes` bytes, generated on all cores."""
    threads = os.cpu_count() or 1
    left = n_bytes
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, n_bytes, 4 * threads):
            numbers = range(first, first + 4 * threads)
            for data in pool.map(lambda number: block(seed, number, exponent), numbers):
                out.write(data[:left])
                left -= min(left, len(data))
            if left == 0:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", required=True, type=parse_size, help="such as 10GB")
    parser.add_argument("-o", "--output", required=True, help="a file, or - for stdout")
    parser.add_argument("--exponent", type=float, default=1.3, help="nearer to 1: a longer tail")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.exponent <= 1:
        parser.error("--exponent must be above 1")
    began = time.perf_counter()
    if options.output == "-":
        write(sys.stdout.buffer, options.size, options.exponent, options.seed)
        return
    with open(options.output, "wb") as file:
        write(file, options.size, options.exponent, options.seed)
    seconds = time.perf_counter() - began
    print(f"{size(options.size)} in {seconds:.1f} s, {size(options.size / seconds)}/s")


if __name__ == "__main__":
    main()
