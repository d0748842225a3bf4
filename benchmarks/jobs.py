"""One measurement, in a process of its own: started by compare.py.

    python jobs.py train tokenizers '{"corpus": "…", "vocab_size": 32000, "threads": 2}'

prints a JSON object: the seconds of the work alone (not of imports, nor of reading what the
contender wants to be handed in memory), the peak memory of the process, and a digest of the
result, by which compare.py knows that contenders did the same work.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

EOT = "<|endoftext|>"
Options = dict[str, Any]
# What was done, in seconds, and a digest of the outcome.
Outcome = tuple[float, str]


def documents(options: Options) -> list[str]:
    text = Path(options["corpus"]).read_bytes().decode(errors="replace")
    return [document for document in text.split(EOT) if document]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def digest(values: Iterable[Any]) -> str:
    sha = hashlib.sha256()
    for value in values:
        sha.update(repr(value).encode())
    return sha.hexdigest()


def digest_ids(rows: Iterable[Any]) -> str:
    import numpy as np

    sha = hashlib.sha256()
    for row in rows:
        sha.update(np.asarray(row, dtype=np.uint32).tobytes())
    return sha.hexdigest()


# --- learning: from a file, or from documents in memory, to merges --------------------------------


def train_bytemill(options: Options) -> Outcome:
    import bytemill

    # The tie rule of tokenizers, so that the merges can be compared.
    seconds, tokenizer = timed(
        lambda: bytemill.train_tokenizer(
            options["corpus"],
            vocab_size=options["vocab_size"],
            special_tokens=[EOT],
            tie_break="huggingface",
            threads=options["threads"],
            progress=False,
        )
    )
    return seconds, digest(tokenizer.merges)


def train_tokenizers(options: Options) -> Outcome:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=options["vocab_size"],
        special_tokens=[EOT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = documents(options)
    seconds, _ = timed(lambda: tokenizer.train_from_iterator(texts, trainer))
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return seconds, digest(tuple(map(_bytes, pair)) for pair in merges)


def _bytes(letters: str) -> bytes:
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printing]
    return bytes(ord(c) if ord(c) < 256 else others[ord(c) - 256] for c in letters)


# --- encoding: documents in memory to ids, caches cold --------------------------------------------


def encode_bytemill(options: Options) -> Outcome:
    import bytemill

    tokenizer = bytemill.Tokenizer.load(options["tokenizer"])
    texts = documents(options)
    seconds, batch = timed(lambda: tokenizer.encode_batch(texts, threads=options["threads"]))
    return seconds, digest_ids([batch.ids])


def encode_tokenizers(options: Options) -> Outcome:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(options["tokenizer"])
    texts = documents(options)
    seconds, rows = timed(lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    return seconds, digest_ids(row.ids for row in rows)


def encode_tiktoken(options: Options) -> Outcome:
    import tiktoken

    import bytemill

    ours = bytemill.Tokenizer.load(options["tokenizer"])
    specials = ours.special_tokens
    encoding = tiktoken.Encoding(
        "ours",
        pat_str=bytemill._native.pattern_regex(ours.pattern),
        mergeable_ranks={t: i for i, t in ours.vocab.items() if i not in specials.values()},
        special_tokens=specials,
    )
    texts = documents(options)
    seconds, rows = timed(
        lambda: encoding.encode_ordinary_batch(texts, num_threads=options["threads"])
    )
    return seconds, digest_ids(rows)


JOBS = {
    ("train", "bytemill"): train_bytemill,
    ("train", "tokenizers"): train_tokenizers,
    ("encode", "bytemill"): encode_bytemill,
    ("encode", "tokenizers"): encode_tokenizers,
    ("encode", "tiktoken"): encode_tiktoken,
}


def peak_memory() -> int:
    """The greatest resident size of this process so far, in bytes."""
    try:
        # getrusage would include the size of the process that started this one.
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    task, contender, options = sys.argv[1:]
    seconds, result = JOBS[task, contender](json.loads(options))
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_memory(), "digest": result}))


if __name__ == "__main__":
    main()
