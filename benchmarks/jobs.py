"""One measurement, in a process of its own: started by compare.py.

    python jobs.py train tokenizers '{"corpus": "…", "vocab_size": 32000, "threads": 2}'

prints a JSON object: the seconds of the work alone (not of imports), the peak memory of the
process, and digests of the result, by which compare.py checks that contenders did the same work.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

EOT = "<|endoftext|>"
Options = dict[str, Any]
# Seconds, digests of the result, and further times.
Outcome = tuple[float, dict[str, Any], dict[str, float]]

# The module and the table of each task's contenders.
TASKS = {
    "train": ("training", "CONTENDERS"),
    "encode": ("encoding", "CONTENDERS"),
    "file": ("serving", "FILE"),
    "decode": ("serving", "DECODE"),
    "calls": ("serving", "CALLS"),
    "load": ("serving", "LOAD"),
}


def contenders(task: str) -> dict[str, Callable[[Options], Outcome]]:
    module, name = TASKS[task]
    return getattr(importlib.import_module(module), name)


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


def byte_letters(letters: str) -> bytes:
    """The bytes that the letters of a tokenizer.json stand for."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printing]
    return bytes(ord(c) if ord(c) < 256 else others[ord(c) - 256] for c in letters)


def resident_memory(field: str = "VmRSS") -> int | None:
    """The resident size of this process, in bytes; None if the system does not report it."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    return None


def peak_memory() -> int:
    """The greatest resident size of this process so far, in bytes."""
    # getrusage would include the size of the process that started this one.
    peak = resident_memory("VmHWM")
    if peak is not None:
        return peak
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    task, contender, options = sys.argv[1:]
    # Some contenders print while they work; standard output is for the result.
    result = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    seconds, outcome, others = contenders(task)[contender](json.loads(options))
    told = {"seconds": seconds, "peak_bytes": peak_memory(), "outcome": outcome, "others": others}
    json.dump(told, result)


if __name__ == "__main__":
    main()
