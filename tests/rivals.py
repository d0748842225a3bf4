"""Other libraries' tokenizers, configured to follow our rules.

They are imported when they are used, and tests that need a missing one are skipped: not every
version of Python has all of them.
"""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    import tiktoken


class Published(NamedTuple):
    """A vocabulary as its makers publish it."""

    name: str
    pattern: str
    ranks: dict[bytes, int]
    special_tokens: dict[str, int]

    def tiktoken(self) -> tiktoken.Encoding:
        return pytest.importorskip("tiktoken").Encoding(
            self.name,
            pat_str=self.pattern,
            mergeable_ranks=self.ranks,
            special_tokens=self.special_tokens,
        )


@cache
def tiktoken_definition(name: str) -> Published:
    """tiktoken's definition of an encoding, without the ranks, which it would have to download."""
    public = pytest.importorskip("tiktoken_ext.openai_public")

    readers = ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks")
    kept = {reader: getattr(public, reader) for reader in readers}
    vars(public).update(dict.fromkeys(readers, lambda *_, **__: {}))
    try:
        said = getattr(public, name)()
    finally:
        vars(public).update(kept)
    return Published(name, said["pat_str"], {}, said["special_tokens"])


def package(name: str) -> Path:
    """The directory of an installed package, which is not imported."""
    found = importlib.util.find_spec(name)
    if found is None:
        pytest.skip(f"needs {name}")
    assert found.origin
    return Path(found.origin).parent


@cache
def rank_file(name: str) -> bytes:
    """The rank file of cl100k or o200k, from a package that ships it."""
    return gzip.decompress((package("bpe_openai") / f"data/{name}_base.tiktoken.gz").read_bytes())


@cache
def published(name: str) -> Published:
    """cl100k or o200k, with ranks and special tokens."""
    ranks = {}
    for line in rank_file(name).splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return tiktoken_definition(f"{name}_base")._replace(ranks=ranks)


def byte_letters() -> dict[str, int]:
    """The letter that stands for each byte in the files of GPT-2 and its descendants.

    Bytes that print as Latin-1 stand for themselves, the others for letters from U+0100 on.
    """
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printing]
    return {chr(b): b for b in printing} | {chr(256 + i): b for i, b in enumerate(others)}


def huggingface_merges(
    texts: Iterable[str], n_merges: int, **options: int
) -> list[tuple[bytes, bytes]]:
    """What the trainer of `tokenizers` learns with GPT-2's pattern."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + n_merges,
        initial_alphabet=sorted(byte_letters()),
        show_progress=False,
        **options,
    )
    tokenizer.train_from_iterator(texts, trainer)
    letters = byte_letters()
    return [
        tuple(bytes(letters[letter] for letter in side) for side in pair)
        for pair in json.loads(tokenizer.to_str())["model"]["merges"]
    ]
