"""A dataset of your own, encoded in batches: JSON lines in, one numpy file of ids out.

    python examples/encode_dataset.py TOKENIZER.json OUT.npy FILE.jsonl...

`Tokenizer.encode_files` does this on all cores, with shards, checksums and resuming. This script
shows the parts, for pipelines that filter or transform text on the way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

import bytemill

BATCH = 1000


def texts(files: Iterable[str]) -> Iterator[str]:
    """The field `text` of every line; put your own filter here."""
    for file in files:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]


def encoded(tokenizer: bytemill.Tokenizer, documents: Iterable[str]) -> Iterator[np.ndarray]:
    """Ids of a batch of documents, each with an end-of-text after it."""
    end = tokenizer.special_tokens["<|endoftext|>"]
    # Ids below 65,536 fit in two bytes.
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    rest = iter(documents)
    while batch := list(islice(rest, BATCH)):
        # Special tokens in a document are plain text: documents end where we say.
        ids, offsets = tokenizer.encode_batch(batch, special="none")
        yield np.insert(ids, offsets[1:].astype(np.intp), end).astype(dtype)


def main() -> None:
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    tokenizer = bytemill.Tokenizer.load(sys.argv[1])
    parts = list(encoded(tokenizer, texts(sys.argv[3:])))
    if not parts:
        raise SystemExit("no documents")
    ids = np.concatenate(parts)
    np.save(sys.argv[2], ids)
    print(f"{len(ids):,} ids ({ids.dtype}) in {sys.argv[2]}")


if __name__ == "__main__":
    main()
