"""Named encodings without their vocabularies: small rank files in place of GPT-2's."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

import bytemill
import rivals
from bytemill import encodings
from bytemill.encodings.published import RANKS

# Variables that determine where vocabularies are searched.
VARIABLES = (
    "BYTEMILL_ENCODINGS", "TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME",
    "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LOCALAPPDATA", "TEMP", "TMP",
)  # fmt: skip


class Small:
    """A vocabulary like GPT-2's, in each form that vocabularies are stored in."""

    def __init__(self, tokenizer: bytemill.Tokenizer) -> None:
        letters = {byte: letter for letter, byte in rivals.byte_letters().items()}
        pairs = [
            tuple("".join(letters[byte] for byte in side) for side in pair)
            for pair in tokenizer.merges
        ]
        tokens = [bytes([byte]) for byte in rivals.byte_letters().values()]
        tokens += [left + right for left, right in tokenizer.merges]
        self.ranks = {token: rank for rank, token in enumerate(tokens)}
        # With an id for the special token in between.
        spaces = {b" " * n: len(tokens) + n - 1 for n in range(2, 26)}
        self.p50k_ranks = self.ranks | spaces
        self.file, self.p50k_file = lines(self.ranks), lines(self.p50k_ranks)
        merges = "".join(f"{left} {right}\n" for left, right in pairs).encode()
        joined = [" ".join(pair) for pair in pairs]
        self.forms = {
            "r50k_base.tiktoken": self.file,
            "r50k_base.tiktoken.gz": gzip.compress(self.file),
            "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4": self.file,
            "merges.txt": merges,
            "vocab.bpe": b"#version: 0.2\n" + merges,
            "6d1cbeee0f20b3d9449abfede4726ed8212e3aee": b"#version: 0.2\n" + merges,
            "tokenizer.json": json.dumps({"model": {"merges": pairs}}).encode(),
            "./tokenizer.json": json.dumps({"model": {"merges": joined}}).encode(),
        }

    def publish(self, patch: pytest.MonkeyPatch) -> None:
        """Makes this the vocabulary of gpt2, r50k_base, p50k_base and p50k_edit."""
        for name, data in (("r50k_base", self.file), ("p50k_base", self.p50k_file)):
            digest = hashlib.sha256(data).hexdigest()
            n_tokens = data.count(b"\n")
            patch.setitem(
                RANKS,
                name,
                replace(RANKS[name], sha256=digest, size=len(data), n_tokens=n_tokens),
            )


def lines(ranks: dict[bytes, int]) -> bytes:
    """A rank file."""
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


def forget() -> None:
    """Clears the cache of encodings."""
    encodings._loaded.cache_clear()


def isolate(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Restricts vocabularies to those of installed packages and below `folder`."""
    for name in VARIABLES:
        patch.delenv(name, raising=False)
    for name, place in {"HOME": "home", "USERPROFILE": "home", "TMPDIR": "tmp"}.items():
        (folder / place).mkdir(exist_ok=True)
        patch.setenv(name, str(folder / place))
    patch.setattr("tempfile.tempdir", None)
