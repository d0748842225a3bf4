"""The demo: the whole pipeline on the source of Python's standard library."""

from __future__ import annotations

import json
import os
import shlex
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._files import write_atomically
from .errors import BytemillError, ConfigError, CorpusError
from .learn import train_tokenizer
from .look import Span, statistics, tokenized
from .progress import ProgressOption
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .lm import TrainResult

__all__ = ["Demo", "ModelDemo", "library_files", "run", "run_model"]

# Third-party packages are inside the library directory on some systems. Tests are full of data, and
# encodings are tables of code pages, which a small model would learn to imitate.
SKIPPED = frozenset(
    ("site-packages", "dist-packages", "__pycache__", "encodings", "test", "tests", "idle_test")
)
# A well-known file with prose, code, numbers and deep indentation.
SAMPLE = "textwrap.py"
# All of ASCII but the letters.
SIGNS = bytes(b for b in range(128) if not chr(b).isalpha())
# This file marks a directory as a demo, which may be replaced without asking.
MARK = "demo.json"


@dataclass(frozen=True)
class Demo:
    """The result of `run`.

    Attributes:
        tokenizer: the trained tokenizer.
        n_files: number of files it was trained on.
        n_bytes: bytes of text in them.
        n_tokens: number of tokens of that text.
        learn_seconds: time to train the tokenizer.
        encode_seconds: time to encode the text.
        longest: the longest tokens that contain a letter.
        sample: some tokenized lines.
        written: file → description.
        next_commands: commands to try next.
    """

    tokenizer: Tokenizer
    n_files: int
    n_bytes: int
    n_tokens: int
    learn_seconds: float
    encode_seconds: float
    longest: list[bytes]
    sample: list[Span]
    written: dict[Path, str]
    next_commands: list[str]


def run(
    out: str | os.PathLike[str], *, vocab_size: int = 4096, progress: ProgressOption = None
) -> Demo:
    """Trains a tokenizer on Python's library, encodes it, checks it, and writes to `out`.

    A directory with an earlier demo is replaced; one with anything else is refused.
    """
    directory = Path(out)
    if directory.exists() and not (directory / MARK).exists() and any(directory.iterdir()):
        raise ConfigError(
            f"{directory}: the directory contains files that are not from a demo",
            "choose a new or empty directory",
        )
    directory.mkdir(parents=True, exist_ok=True)
    files = library_files()
    began = time.perf_counter()
    tokenizer = train_tokenizer(
        [str(path) for path in files], vocab_size=vocab_size, progress=progress
    )
    learned = time.perf_counter()
    texts = [path.read_bytes() for path in files]
    read = time.perf_counter()
    batch = tokenizer.encode_batch(texts)
    encoded = time.perf_counter()
    if tokenizer.decode_bytes(batch.ids) != b"".join(texts):
        raise BytemillError("the decoded text differs from the original; please report this bug")
    sample = next((text for path, text in zip(files, texts) if path.name == SAMPLE), texts[0])
    shown = _lines(sample, after=b"def wrap", n=6)
    facts = {
        "python": sys.version.split()[0],
        "files": len(files),
        "bytes": sum(map(len, texts)),
        "tokens": len(batch.ids),
        "vocab_size": len(tokenizer),
        "fingerprint": tokenizer.fingerprint,
        "learn_seconds": round(learned - began, 3),
        "encode_seconds": round(encoded - read, 3),
    }
    # The mark first, so that an interrupted demo can be run again.
    write_atomically(directory / MARK, json.dumps(facts, indent=2).encode() + b"\n")
    written = _write(directory, tokenizer, files, sample)
    return Demo(
        tokenizer=tokenizer,
        n_files=len(files),
        n_bytes=sum(map(len, texts)),
        n_tokens=len(batch.ids),
        learn_seconds=learned - began,
        encode_seconds=encoded - read,
        longest=_longest(tokenizer, 6),
        sample=tokenized(tokenizer, shown).spans,
        written=written | {directory / MARK: "these figures"},
        next_commands=_next_commands(written),
    )


def library_files() -> list[Path]:
    """The UTF-8 Python files of the standard library, in order, without tests and tables."""
    root = sysconfig.get_path("stdlib")
    found = [path for path in _python_files(root) if _is_utf8(path)]
    if not found:
        raise CorpusError(
            f"{root}: no source files of Python's standard library",
            "use any text of yours: bytemill train-tokenizer corpus.txt -o tokenizer.json",
        )
    return found


def _python_files(root: str) -> Iterator[Path]:
    for directory, below, names in os.walk(root):
        below[:] = sorted(set(below) - SKIPPED)
        for name in sorted(names):
            if name.endswith(".py"):
                yield Path(directory, name)


def _is_utf8(path: Path) -> bool:
    # A few files are deliberately in other encodings, and some contain bytes that are not text.
    try:
        return "\0" not in path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _lines(text: bytes, after: bytes, n: int) -> bytes:
    """`n` lines starting with the one that contains `after`, or the first `n` lines."""
    lines = text.splitlines(keepends=True)
    start = next((number for number, line in enumerate(lines) if after in line), 0)
    return b"".join(lines[start : start + n])


def _longest(tokenizer: Tokenizer, n: int) -> list[bytes]:
    # Without letters, the longest would be indentation and rows of dashes.
    found = statistics(tokenizer, n_longest=500).longest
    return [token for _, token in found if token.translate(None, SIGNS)][:n]


def _write(
    directory: Path, tokenizer: Tokenizer, files: list[Path], sample: bytes
) -> dict[Path, str]:
    tokenizer.save(directory / "tokenizer.json", overwrite=True)
    tokens = directory / "tokens"
    tokenizer.encode_files([str(path) for path in files], tokens, overwrite=True, progress=False)
    page = directory / "sample.html"
    write_atomically(page, tokenized(tokenizer, sample).to_html(title=SAMPLE).encode())
    return {
        directory / "tokenizer.json": "the tokenizer; the tokenizers library loads it too",
        tokens: "the library as tokens, to train on",
        page: f"{SAMPLE} in color, for the browser",
    }


def _next_commands(written: dict[Path, str]) -> list[str]:
    tokenizer, tokens, _ = map(str, written)
    return [
        shlex.join(["bytemill", "inspect", tokenizer, "def main(): return 42", "--ids"]),
        shlex.join(["bytemill", "decode", "-t", tokenizer, tokens]) + " | head",
    ]


# --- the model ----------------------------------------------------------------------------------

# Small enough to learn visibly in a minute on two cores; Muon with a trapezoidal schedule learns
# fastest.
MODEL_SHAPE: dict[str, Any] = {
    "context_length": 128,
    "d_model": 128,
    "num_layers": 4,
    "num_heads": 4,
}
MODEL_TRAINING: dict[str, Any] = {
    "batch_size": 16,
    "optimizer": "muon",
    "lr": 6e-3,
    "schedule": "wsd",
    "seed": 1,
}
PROMPT = "def "


@dataclass(frozen=True)
class ModelDemo:
    """The result of `run_model`.

    Attributes:
        result: the result of training.
        n_parameters: number of parameters of the model.
        prompt: the prompt of the sample.
        sample: the model's continuation.
    """

    result: TrainResult
    n_parameters: int
    prompt: str
    sample: str


def run_model(
    tokens: Path, tokenizer: Tokenizer, run: Path, *, seconds: float, progress: ProgressOption
) -> ModelDemo:
    """Trains for about `seconds`, then continues a prompt."""
    from . import lm

    steps = _steps_within(seconds, tokens, len(tokenizer))
    result = lm.train(
        tokens,
        run,
        tokenizer=tokenizer,
        overwrite=run.exists(),
        steps=steps,
        eval_every=max(1, steps // 4),
        eval_windows=64,
        sample_prompt=PROMPT,
        sample_tokens=24,
        checkpoint_every=max(1, steps // 2),
        tensorboard=False,
        progress=progress,
        model="tiny",
        **MODEL_SHAPE,
        **MODEL_TRAINING,
    )
    model, _ = lm.load(run)
    text = lm.generate_text(
        model,
        tokenizer,
        PROMPT,
        max_tokens=160,
        temperature=0.7,
        top_k=100,
        min_p=0.02,
        seed=1,
    )[0]
    return ModelDemo(result, model.n_parameters, PROMPT, text)


def _steps_within(seconds: float, tokens: Path, vocab_size: int) -> int:
    """The number of steps that take about `seconds`, measured with three steps."""
    import torch

    from . import lm

    config = lm.ModelConfig(vocab_size=vocab_size, **MODEL_SHAPE)
    model = lm.attach(lm.TransformerLM(config))
    windows = lm.Windows(lm.open_tokens(tokens), config.context_length)
    took = []
    for step in range(3):
        began = time.perf_counter()
        torch.autograd.backward(model.loss(*windows.batch(step, MODEL_TRAINING["batch_size"])))
        took.append(time.perf_counter() - began)
    # The optimizer, evaluations and samples take about a quarter more.
    return max(2, min(3000, round(seconds / (1.25 * min(took)))))
