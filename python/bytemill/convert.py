"""A tokenizer into another format, checked before it is put in place."""

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

# What each format says besides the tokens. What it does not say must be given when it is loaded.
CARRIES: dict[Format, frozenset[str]] = {
    "huggingface": frozenset(("pattern", "special tokens")),
    "gpt2": frozenset(),
    "tiktoken": frozenset(),
    "minbpe": frozenset(("pattern", "special tokens")),
}

# A little of everything a pattern tells apart: words, contractions, numbers, white space of many
# kinds, scripts with and without case, marks, emoji, and bytes that are no text.
PROBE = (
    "The quick brown fox doesn't jump; it'll've 1234567 reasons, I'M TOLD.\n\n"
    "\tdef f(x):\r\n        return x**2  # 3.14\u00a0€ \u2028 \f end   \n"
    "Größe, naïve, CamelCaseWords, e\u0301 and \u01c5; Привет, мир! Γειά σου. "
    "안녕하세요 你好，世界。ありがとう नमस्ते שלום مرحبا ไทย 👩\u200d💻🎉 aaaaaaaa======\n"
).encode() + b"\xff\xfe \xe2\x82 \x00 \xc3"


@dataclass(frozen=True)
class Conversion:
    """What `convert` did.

    Attributes:
        path: what was written; for `gpt2` a directory.
        format: in which format.
        n_ids: how many ids were compared and found equal.
        to_give: what the format does not carry and must be given to `Tokenizer.load`.
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
    """Writes `tokenizer` in another format, once its ids are found to survive it.

    A copy in a temporary directory is loaded back and both encode a text that holds a little of
    everything, and every token's own bytes. If the ids differ, TokenizerError is raised and
    nothing is written.
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
    # All tokens end to end, in groups that bound the memory.
    tokens = list(tokenizer.vocab.values())
    for start in range(0, len(tokens), 10_000):
        yield b" ".join(tokens[start : start + 10_000])
