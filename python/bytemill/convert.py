"""Converting a tokenizer to another file format, with a check that its ids stay the same."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import TokenizerError
from .formats import TokenizerFormat
from .tokenizer import Tokenizer

__all__ = ["CARRIES", "Conversion", "Format", "convert"]

Format = TokenizerFormat

# What each format stores besides the tokens. The rest must be given when the file is loaded.
CARRIES: dict[Format, frozenset[str]] = {
    "huggingface": frozenset(("pattern", "special tokens")),
    "gpt2": frozenset(),
    "tiktoken": frozenset(),
    "minbpe": frozenset(("pattern", "special tokens")),
}

# Covers what split patterns distinguish: words, contractions, numbers, many kinds of white space,
# scripts with and without case, marks, emoji, and invalid UTF-8.
PROBE = (
    "The quick brown fox doesn't jump; it'll've 1234567 reasons, I'M TOLD.\n\n"
    "\tdef f(x):\r\n        return x**2  # 3.14\u00a0€ \u2028 \f end   \n"
    "Größe, naïve, CamelCaseWords, e\u0301 and \u01c5; Привет, мир! Γειά σου. "
    "안녕하세요 你好，世界。ありがとう नमस्ते שלום مرحبا ไทย 👩\u200d💻🎉 aaaaaaaa======\n"
).encode() + b"\xff\xfe \xe2\x82 \x00 \xc3"


@dataclass(frozen=True)
class Conversion:
    """The result of `convert`.

    Attributes:
        path: the file written; for `gpt2` a directory.
        format: its format.
        n_ids: number of ids compared and found equal.
        to_give: what the format does not store and must be given to `Tokenizer.load`.
    """

    path: Path
    format: Format
    n_ids: int
    to_give: list[str]


def convert(
    tokenizer: Tokenizer,
    path: str | os.PathLike[str],
    *,
    format: Format,
    overwrite: bool = False,
) -> Conversion:
    """Writes `tokenizer` in another format after checking that its ids stay the same.

    A copy is written to a temporary directory and loaded back; both encode a varied sample text
    and the bytes of every token. If the ids differ, TokenizerError is raised and nothing is
    written.
    """
    n_ids = _check(tokenizer, format)
    tokenizer.save(path, format=format, overwrite=overwrite)
    missing = {"pattern", "special tokens"} - CARRIES[format]
    if not tokenizer.special_tokens:
        missing.discard("special tokens")
    return Conversion(Path(path), format, n_ids, sorted(missing))


def _check(tokenizer: Tokenizer, format: Format) -> int:
    with tempfile.TemporaryDirectory(prefix="bytemill-") as directory:
        copy = Path(directory) / "copy"
        tokenizer.save(copy, format=format)
        carried = CARRIES[format]
        back = Tokenizer.load(
            copy,
            pattern=None if "pattern" in carried else tokenizer.pattern,
            special_tokens=None if "special tokens" in carried else tokenizer.special_tokens,
        )
    n_ids = 0
    for text in _probes(tokenizer):
        ids = tokenizer.encode(text)
        if ids != back.encode(text):
            raise TokenizerError(
                f"in the format {format} this tokenizer would give different ids for {text[:40]!r}",
                "choose another format; huggingface stores everything",
            )
        n_ids += len(ids)
    return n_ids


def _probes(tokenizer: Tokenizer) -> Iterator[bytes]:
    yield "".join(tokenizer.special_tokens).encode() + PROBE
    # All tokens concatenated, in groups to bound memory.
    tokens = list(tokenizer.vocab.values())
    for start in range(0, len(tokens), 10_000):
        yield b" ".join(tokens[start : start + 10_000])
