"""What no command reads with: calls of the Python interface, named as commands are.

api compat-minbpe area/a.model
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(name: str, path: str) -> int:
    """Makes a call; what bytemill foresees is reported as the command line does."""
    from bytemill import BytemillError

    try:
        CALLS[name](Path(path))
    except (BytemillError, OSError, MemoryError) as error:
        print(f"error: {error or 'out of memory'}", file=sys.stderr)
        return 1
    return 0


def _tokens(path: Path) -> None:
    from bytemill import Tokens

    with Tokens(path, "train") as tokens:
        for document in tokens.documents:
            len(document)
        tokens[len(tokens) // 2 :].sum()


def _counts(path: Path) -> None:
    from bytemill import Counts

    Counts.load(path).top(3)


def _minbpe(path: Path) -> None:
    from bytemill.compat.minbpe import RegexTokenizer

    tokenizer = RegexTokenizer()
    tokenizer.load(str(path))
    tokenizer.encode("Hello, world", allowed_special="all")


def _checkpoint(path: Path) -> None:
    from bytemill.lm import load_checkpoint

    load_checkpoint(path)


CALLS = {
    "tokens": _tokens,
    "counts": _counts,
    "compat-minbpe": _minbpe,
    "checkpoint": _checkpoint,
}
