"""The files of tokens, byte for byte: version 1 of the format must not change."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill import Corpus
from bytemill.engines import Local
from bytemill.tokens import recipes

EOT = "<|endoftext|>"
MERGES = [
    (b"t", b"h"),
    (b"th", b"e"),
    (b" ", b"the"),
    (b"a", b"a"),
    (b"\xc3", b"\xa9"),
    (b"i", b"n"),
]
VOCAB = [*(bytes([byte]) for byte in range(256)), *(left + right for left, right in MERGES)]
TOKENIZER = bytemill.Tokenizer(dict(enumerate(VOCAB)), MERGES, [EOT, "<|pad|>"])
LARGE = bytemill.Tokenizer(dict(enumerate(VOCAB)), MERGES, {EOT: 70_000})
WORDS = ["the", "then", "caf\u00e9", "aaaa", "in", "12345", "!?", "\n\n", "x" * 40, EOT]

CASES: dict[str, dict[str, Any]] = {
    "plain": {"shard_tokens": 100_000},
    "one-shard": {},
    "no-eot": {"shard_tokens": 33_333, "append_eot": False},
    "split": {"shard_tokens": 50_000, "val_fraction": 0.2, "seed": 3},
    "shuffle": {"shard_tokens": 50_000, "shuffle": True, "seed": 5},
    "split-shuffle": {"shard_tokens": 70_000, "val_fraction": 0.1, "shuffle": True, "seed": 7},
    "npy": {"format": "npy", "dtype": "uint32"},
    "bin": {"format": "bin", "val_fraction": 0.5, "seed": 2**64 - 1},
    "megatron": {"format": "megatron"},
    "megatron-shuffle": {"format": "megatron", "shuffle": True},
    "large-ids": {"tokenizer": LARGE, "shard_tokens": 100_000},
    "large-megatron": {"tokenizer": LARGE, "format": "megatron", "val_fraction": 0.0},
    "records": {"corpus": ["c.jsonl.gz", "b.jsonl"], "shard_tokens": 9_000},
    "records-shuffle": {"corpus": ["b.jsonl", "c.jsonl.gz"], "shuffle": True, "seed": 1},
    "tiny-shards": {"corpus": ["d.txt", "empty.txt", "d.txt"], "shard_tokens": 3},
}  # fmt: skip

# SHA-256 of the names and contents of all files, in the order of the names.
EXPECTED = {
    "plain": "410d4137f96efcb8443e602195ec4d4735addc5c6b13d523a8b105aa5e11688a",
    "one-shard": "a5c097b5770b58c65f9e8e1ac647ba988b58a1dd78faca97c1de137cda3085fc",
    "no-eot": "5e478e408c3ed5852d256361bcb73eb6daac7ff373d2d948044a5a8e4c6e69b7",
    "split": "45660f092065a90f82119660584ac5d81df06739cb47e2ce79f455002564e645",
    "shuffle": "7be8a1b9895a0b629731211d56a9e9b574bde222cc7e8c3978fad6499037ed63",
    "split-shuffle": "4c425fa586859a808fc071174726b8144283b5e75c9ccc80ad25b421b21dc780",
    "npy": "5183f478ec1128963c14d72c62382aa1ab14d5a8b38ece9dcd7461a5a856821d",
    "bin": "49c2c9ce215a723735d3d8e8ee1733e3ed9d6bf17f096ae229f5992adc5c96ec",
    "megatron": "228fdb6b3d49b707f217fc96423d28d82988b08d58021ea61dc233e07936aa03",
    "megatron-shuffle": "980a3a82728080c6952a1e978671295633b1a5a2b1c5ebceb452546d564423b4",
    "large-ids": "5e2583f91991a09bf10325b9fa2fd76a4fb7b4ea912286f14de482f20c906474",
    "large-megatron": "f12f6327f82de85cf176e749bbf2275fa0ce30314aca4c06dc7f3285a0e0ec71",
    "records": "713a539eddc46953d634543e4b0277260355da95e161dd2b3221b0eca28bae62",
    "records-shuffle": "d5da6abb3fd3b10077c81326c2eada39bf5df5c8d8b7a8d3d0ae4040816b078d",
    "tiny-shards": "a5a05d404c3ab640920f55d138c4206b5f8949974ad33d2a7907945cc7ecdd8c",
}


def stored_gzip(data: bytes) -> bytes:
    """A .gz file of stored blocks: the same bytes with every zlib."""
    blocks = [data[at : at + 65_535] for at in range(0, len(data), 65_535)]
    stored = b"".join(
        struct.pack("<BHH", number + 1 == len(blocks), len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    )
    head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    return head + stored + struct.pack("<II", zlib.crc32(data), len(data))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    chance = random.Random(1)
    texts = [" ".join(chance.choices(WORDS, k=60)) for _ in range(3000)]
    records = "".join(json.dumps({"text": text}) + "\n" for text in texts[:300])
    contents = {
        "a.txt": "".join(texts).encode() + b"\xff\xfe",
        "b.jsonl": (records + "not json\n").encode(),
        "c.jsonl.gz": stored_gzip(records[:90_000].encode()),
        "d.txt": f"the caf\u00e9 {EOT}{EOT} in".encode(),
        "empty.txt": b"",
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        os.utime(folder / name, ns=(10**18, 10**18))
    return folder


def digest(directory: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        found.update(f"{path.name} {len(data)}\n".encode() + data)
    return found.hexdigest()


def encode(out: Path, case: dict[str, Any], **further: Any) -> str:
    options = dict(case)
    tokenizer = options.pop("tokenizer", TOKENIZER)
    names = options.pop("corpus", ["a.txt", "empty.txt", "d.txt"])
    corpus = Corpus(names, on_error="skip" if "b.jsonl" in names else "stop")
    tokenizer.encode_files(corpus, out, progress=False, **options, **further)
    return digest(out)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_bytes_have_not_changed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(folder)
    assert encode(tmp_path / "out", CASES[name]) == EXPECTED[name]
    small = Local(unit_size=70_000, block_size=9_000)
    assert encode(tmp_path / "small", CASES[name], engine=small) == EXPECTED[name]
    if CASES[name].get("shuffle"):
        monkeypatch.setattr(recipes, "MAX_UNDEALT_TOKENS", 0)
        assert encode(tmp_path / "dealt", CASES[name]) == EXPECTED[name]
        assert encode(tmp_path / "small-dealt", CASES[name], engine=small) == EXPECTED[name]
