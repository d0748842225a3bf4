"""Contenders in the other tasks of a tokenizer: loading, short strings, decoding, and from a text
file to a file of ids.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import Options, Outcome, digest_ids, peak_memory, resident_memory, timed

# Short strings: how many, and how long.
N_STRINGS, LENGTH = 400, 100


def load_bytemill(path: str) -> Any:
    import numpy as np  # noqa: F401  # imported with the first array; imports do not count

    import bytemill

    return bytemill.Tokenizer.load(path)


def load_gigatoken(path: str) -> Any:
    import gigatoken

    return gigatoken.Tokenizer.from_json(Path(path).read_bytes())


def loading(load: Callable[[str], Any], imports: Callable[[], Any]) -> Callable[[Options], Outcome]:
    def job(options: Options) -> Outcome:
        imports()
        seconds, tokenizer = timed(lambda: load(options["tokenizer"]))
        return seconds, {"ids": digest_ids([tokenizer.encode("How it is loaded.")])}, {}

    return job


def calls(load: Callable[[str], Any], name: str) -> Callable[[Options], Outcome]:
    """The mean time of a call: seconds for a string that was not seen before, warm for one that
    was."""

    def job(options: Options) -> Outcome:
        tokenizer = load(options["tokenizer"])
        encode = getattr(tokenizer, name)
        encode("The first call may have something to set up.")
        text = Path(options["corpus"]).read_text(encoding="utf-8", errors="replace")
        step = len(text) // N_STRINGS
        strings = [text[i * step : i * step + LENGTH] for i in range(N_STRINGS)]

        def all_of_them() -> None:
            for string in strings:
                encode(string)

        unseen, _ = timed(all_of_them)
        seen = min(timed(all_of_them)[0] for _ in range(7))
        outcome = {"ids": digest_ids(encode(string) for string in strings)}
        return unseen / N_STRINGS, outcome, {"warm": seen / N_STRINGS}

    return job


def decode_bytemill(options: Options) -> Outcome:
    tokenizer = load_bytemill(options["tokenizer"])
    ids = tokenizer.encode_array(Path(options["corpus"]).read_bytes())
    return decoded(lambda: tokenizer.decode_bytes(ids))


def decode_gigatoken(options: Options) -> Outcome:
    tokenizer = load_gigatoken(options["tokenizer"])
    ids = tokenizer.encode(Path(options["corpus"]).read_text(encoding="utf-8"))
    return decoded(lambda: tokenizer.decode(ids))


def decode_tiktoken(options: Options) -> Outcome:
    from encoding import as_tiktoken

    encoding = as_tiktoken(options["tokenizer"])
    ids = load_bytemill(options["tokenizer"]).encode(Path(options["corpus"]).read_bytes())
    return decoded(lambda: encoding.decode_bytes(ids))


def decoded(work: Callable[[], bytes]) -> Outcome:
    seconds, text = timed(work)
    warm = min(timed(work)[0] for _ in range(3))
    return seconds, {"text": hashlib.sha256(text).hexdigest()}, {"warm": warm}


def written(work: Callable[[Path], Path]) -> Outcome:
    """The outcome of writing a file of uint16 ids, with the memory it took beyond the start."""
    import numpy as np

    # Beside the corpus, as for real tokens; a temporary directory may be in memory.
    with tempfile.TemporaryDirectory(dir=".") as name:
        before = resident_memory()
        seconds, path = timed(lambda: work(Path(name)))
        grown = peak_memory() - (before or 0)
        ids = digest_ids([np.fromfile(path, np.uint16)])
        return seconds, {"ids": ids}, {"grown_mb": grown / 1e6}


def file_bytemill(options: Options) -> Outcome:
    import bytemill.tokens.encode  # noqa: F401  # imported when used; imports do not count

    tokenizer = load_bytemill(options["tokenizer"])

    def work(directory: Path) -> Path:
        tokenizer.encode_files(
            options["corpus"],
            directory / "tokens",
            append_eot=False,
            threads=options["threads"],
            progress=False,
            format="bin",
        )
        (path,) = (directory / "tokens").glob("*.bin")
        return path

    return written(work)


def file_gigatoken(options: Options) -> Outcome:
    import awkward
    import numpy as np

    tokenizer = load_gigatoken(options["tokenizer"])
    tokenizer.encode_batch(["imports and threads"])

    def work(directory: Path) -> Path:
        # One document: the end-of-text tokens are in the text, and it encodes them.
        ids = tokenizer.encode_files([options["corpus"]], parallel=options["threads"] > 1)
        path = directory / "ids.bin"
        with path.open("wb") as file:
            awkward.to_numpy(awkward.flatten(ids)).astype(np.uint16).tofile(file)
            # Flushed to the disk, like ours.
            os.fsync(file.fileno())
        return path

    return written(work)


def import_bytemill() -> None:
    import numpy as np  # noqa: F401

    import bytemill

    # bytemill imports modules on first use; the others import everything at once.
    _ = bytemill.Tokenizer


def import_gigatoken() -> None:
    import gigatoken  # noqa: F401


LOAD = {
    "bytemill": loading(load_bytemill, import_bytemill),
    "gigatoken": loading(load_gigatoken, import_gigatoken),
}
CALLS = {
    "bytemill": calls(load_bytemill, "encode_array"),
    "gigatoken": calls(load_gigatoken, "encode"),
}
DECODE = {
    "bytemill": decode_bytemill,
    "gigatoken": decode_gigatoken,
    "tiktoken": decode_tiktoken,
}
FILE = {"bytemill": file_bytemill, "gigatoken": file_gigatoken}
