"""Checks that all merges, in order, are those of rustbpe, and of gigatoken with raw ids.

    python benchmarks/ties.py english.txt code.txt --megabytes 10 --merges 10000

Each file is learned from with `tie_break="rustbpe"`, with rustbpe's own pattern (GPT-4's) and with
GPT-2's. Exits with 1 at the first difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import gigatoken
import rustbpe

import bytemill
from bytemill import _native

EOT = "<|endoftext|>"


def ours(documents: list[str], n_merges: int, pattern: str) -> list[bytes]:
    """The tokens that merges create, in order; the pairs follow from them."""
    tokenizer = bytemill.train_tokenizer(
        iter(documents),
        vocab_size=256 + n_merges,
        special_tokens=[],
        pattern=pattern,
        tie_break="rustbpe",
        progress=False,
    )
    return [left + right for left, right in tokenizer.merges]


def of_rustbpe(documents: list[str], n_merges: int, pattern: str | None) -> tuple[str, list[bytes]]:
    """Its pattern, and its tokens; None for its own pattern."""
    tokenizer = rustbpe.Tokenizer()
    options: dict[str, Any] = {} if pattern is None else {"pattern": pattern}
    tokenizer.train_from_iterator(iter(documents), 256 + n_merges, **options)
    ranks = sorted(tokenizer.get_mergeable_ranks(), key=lambda item: item[1])
    return tokenizer.get_pattern(), [bytes(token) for token, _ in ranks[256:]]


def of_gigatoken(documents: list[str], n_merges: int) -> list[bytes]:
    """Its tokens, with GPT-2's pattern."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corpus.txt")
        path.write_bytes(EOT.join(documents).encode())
        _, merges = gigatoken.train_bpe(path, 257 + n_merges, [EOT], tie_breaking="raw_token_ids")
    return [left + right for left, right in merges]


def same(what: str, expected: list[bytes], found: list[bytes]) -> bool:
    """Prints how far two lists of tokens agree."""
    n = next((n for n, (a, b) in enumerate(zip(expected, found)) if a != b), None)
    if n is None and len(expected) == len(found):
        print(f"{what}: {len(found):,} merges are equal", flush=True)
        return True
    n = min(len(expected), len(found)) if n is None else n
    print(f"{what}: merge {n} is {found[n : n + 1]}, not {expected[n : n + 1]}", flush=True)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--merges", type=int, default=10_000)
    options = parser.parse_args()
    gpt2 = _native.pattern_regex("gpt2")
    good = True
    for path in options.files:
        with path.open("rb") as file:
            text = file.read(int(options.megabytes * 1e6)).decode(errors="ignore")
        documents = [document for document in text.split(EOT) if document]
        pattern, expected = of_rustbpe(documents, options.merges, None)
        good &= same(f"{path.name}, rustbpe", expected, ours(documents, options.merges, pattern))
        found = ours(documents, options.merges, "gpt2")
        _, expected = of_rustbpe(documents, options.merges, gpt2)
        good &= same(f"{path.name}, rustbpe with the pattern of GPT-2", expected, found)
        expected = of_gigatoken(documents, options.merges)
        good &= same(f"{path.name}, gigatoken", expected, found)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
