"""Gives the fuzz target tokenizer_files something to start from: a small file of every kind.

    .venv/bin/python fuzz/seeds.py

The target reads a byte (which kind), two bytes (where vocab.json ends) and the file.
"""

from __future__ import annotations

from pathlib import Path

import bytemill
from bytemill import _native

CORPUS = Path(__file__).parent / "corpus" / "tokenizer_files"
KINDS = ("huggingface", "gpt2", "tiktoken", "minbpe")


def main() -> None:
    CORPUS.mkdir(parents=True, exist_ok=True)
    texts = ["low lower lowest", "naïve 日本語", "\t'data' 12345\n\n"]
    for pattern in _native.PATTERNS:
        tokenizer = bytemill.train_tokenizer(iter(texts), vocab_size=262, pattern=pattern)
        for number, kind in enumerate(KINDS):
            parts = tokenizer.write(kind)
            head = bytes([number]) + len(parts[0]).to_bytes(2, "little")
            (CORPUS / f"{kind}-{pattern}").write_bytes(head + b"".join(parts))


if __name__ == "__main__":
    main()
