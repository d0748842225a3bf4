"""Smoke test of an installed bytemill: `python tests/smoke_wheel.py`, in any environment.

For wheels and source distributions, in environments without Rust and pytest: only bytemill is
imported. Import, train, encode, decode, save, the command line; training and generating
with a model if torch is installed, otherwise the hint that names the extra. Runs in a directory
that is removed. Prints a line for every part and exits with 1 at the first that fails.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import bytemill

TEXT = "the cat sat on the mat, the dog sat on the log: été, 東京\n"


def command(*arguments: str, code: int = 0) -> str:
    """Runs `bytemill` as a program; returns what it prints to both streams."""
    program = Path(sys.executable).with_name("bytemill" + (".exe" if os.name == "nt" else ""))
    line = [str(program)] if program.exists() else [sys.executable, "-m", "bytemill"]
    done = subprocess.run(
        [*line, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1", "NO_COLOR": "1"},
    )
    assert done.returncode == code, f"{arguments} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def installation() -> str:
    found = Path(bytemill.__file__).resolve()
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return (
        f"bytemill {bytemill.__version__} in {found.parent}, Python {platform.python_version()}"
        f"{'' if gil else ' without the GIL'}, numpy {np.__version__}, {platform.machine()}"
    )


def tokenizer() -> str:
    text = TEXT * 200
    Path("text.txt").write_text(text, encoding="utf-8")
    learned = bytemill.train_tokenizer("text.txt", vocab_size=280)
    ids = learned.encode(text + "<|endoftext|>")
    assert learned.decode(ids) == text + "<|endoftext|>"
    assert ids == learned.encode_array(text + "<|endoftext|>").tolist()
    batch, offsets = learned.encode_batch([TEXT, text], threads=2)
    assert batch[: offsets[1]].tolist() == learned.encode(TEXT)
    assert learned.decode_bytes(learned.encode("\U0001f98a")) == "\U0001f98a".encode()
    learned.save("tokenizer.json")
    assert bytemill.Tokenizer.load("tokenizer.json") == learned
    return f"{learned.vocab_size} ids, {len(text) / len(ids):.1f} characters per token"


def command_line() -> str:
    assert command("--version").split() == ["bytemill", bytemill.__version__]
    command("train-tokenizer", "text.txt", "-o", "again.json", "--vocab-size", "280", "-q")
    assert Path("again.json").read_bytes() == Path("tokenizer.json").read_bytes()
    command("encode", "text.txt", "-t", "again.json", "-o", "tokens", "-q")
    command("verify", "tokens", "-q")
    assert "missing.txt" in command("count", "missing.txt", "-o", "counts", code=1)
    return "train-tokenizer, encode, verify; errors have exit code 1"


def language_model() -> str:
    if importlib.util.find_spec("torch") is None:
        said = command("train", "tokens", "-o", "run", code=1)
        assert "hint: pip install" in said, said
        return f"no torch: {said.splitlines()[-1]}"
    import torch

    from bytemill import lm

    torch.set_num_threads(1)
    lm.train("tokens", "run", model="tiny", steps=5, tensorboard=False, progress=False)
    model, learned = lm.load("run")
    written = lm.generate_text(model, learned, "the cat", max_tokens=8, temperature=0)
    command("generate", "run", "the cat", "--max-tokens", "8")
    return f"torch {torch.__version__}: {written[0]!r}"


def main() -> None:
    parts: list[Callable[[], str]] = [installation, tokenizer, command_line, language_model]
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        try:
            for part in parts:
                print(f"{part.__name__.replace('_', ' '):15} {part()}", flush=True)
        finally:
            os.chdir(here)


if __name__ == "__main__":
    main()
