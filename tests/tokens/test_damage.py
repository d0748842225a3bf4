"""Directories of tokens that contradict their manifest or are of another tokenizer."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill import Tokens

EOT = "<|endoftext|>"
MERGES = [(b"t", b"h"), (b"th", b"e")]
VOCAB = dict(enumerate([*(bytes([byte]) for byte in range(256)), b"th", b"the"]))
TOKENIZER = bytemill.Tokenizer(VOCAB, MERGES, [EOT])


def write(folder: Path, texts: list[bytes]) -> list[Path]:
    paths = [folder / f"{number:03}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts):
        path.write_bytes(text)
    return paths


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    folder = tmp_path_factory.mktemp("sharded")
    paths = write(folder, [b"the a b" + EOT.encode() + b"the", b"", b"x" * 20])
    return TOKENIZER.encode_files(paths, folder / "tokens", shard_tokens=7)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    TOKENIZER.encode_files(write(tmp_path, [b"the a b", b"c d"]), tmp_path / "out", shard_tokens=4)
    return tmp_path / "out"


def test_what_cannot_be_opened(small: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Tokens(tmp_path / "missing")
    with pytest.raises(bytemill.TokensError, match=r"has no manifest\.json"):
        Tokens(tmp_path)
    with pytest.raises(bytemill.ConfigError, match="no split 'train'"):
        Tokens(small, split="train")
    shard = small / "shard-00001.npy"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(bytemill.TokensError, match=r"shard-00001\.npy: 135 bytes, not 136"):
        Tokens(small)
    shard.unlink()
    with pytest.raises(bytemill.TokensError, match=r"shard-00001\.npy: missing"):
        Tokens(small)
    shard.write_bytes(data)
    (small / "manifest.json").write_bytes(b"\xff{")
    with pytest.raises(bytemill.TokensError, match="not a token manifest"):
        Tokens(small)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\x93NUMPY", b"garbage"),
        (b"<u2", b"<f2"),
        (b"<u2", b"|O8"),
        (b"(4,)", b"(5,)"),
        (b"(4,)", b"9**9"),
        (b"{'descr'", b"__import"),
    ],
)
def test_damaged_headers(small: Path, old: bytes, new: bytes) -> None:
    shard = small / "shard-00001.npy"
    data = shard.read_bytes()
    assert old in data
    shard.write_bytes(data.replace(old, new)[: len(data)])
    tokens = Tokens(small)
    assert len(tokens[:4]) == 4
    with pytest.raises(bytemill.TokensError, match=r"shard-00001\.npy"):
        tokens[5]
    with pytest.raises(bytemill.TokensError, match="the header does not match"):
        tokens.verify()


def test_ids_that_are_not_of_the_vocabulary(small: Path) -> None:
    shard = small / "shard-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-2] + b"\xff\xff")
    with pytest.raises(bytemill.TokensError, match="65535"):
        b"".join(Tokens(small).decode(TOKENIZER))
    [checksum, id] = sorted(bytemill.verify_tokens(small, progress=False))[::-1]
    assert "id 65535 at position 3 is not in the vocabulary" in id + checksum
    assert "the checksum does not match" in id + checksum


@given(st.data())
def test_any_manifest_is_read_or_refused(sharded: Tokens, data: st.DataObject) -> None:
    manifest = json.loads(json.dumps(sharded.manifest))
    where: Any = manifest
    while True:
        keys = list(where) if isinstance(where, dict) else range(len(where))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(where[key], (dict, list)) or not where[key] or data.draw(st.booleans()):
            break
        where = where[key]
    numbers = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0, 1, 2**63, 2**64 - 1])
    where[key] = data.draw(st.none() | st.booleans() | numbers | st.text(max_size=9) | st.just([]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in sharded.path.iterdir():
            (folder / path.name).symlink_to(path)
        (folder / "manifest.json").unlink()
        (folder / "manifest.json").write_text(json.dumps(manifest))
        try:
            tokens = Tokens(folder)
            list(tokens.documents)
            bytemill.verify_tokens(folder, TOKENIZER, progress=False)
            b"".join(tokens.decode(TOKENIZER))
        except bytemill.TokensError:
            pass


def test_another_tokenizer_is_refused(small: Path, tmp_path: Path) -> None:
    other = bytemill.Tokenizer(VOCAB, MERGES[:1], [EOT])
    tokens = Tokens(small)
    sources = sorted(tmp_path.glob("*.txt"))
    for attempt in (
        lambda: list(tokens.decode(other)),
        lambda: tokens.verify(other),
        lambda: other.encode_files(sources, small, shard_tokens=4, resume=True),
    ):
        with pytest.raises(bytemill.TokensError, match="encoded with the tokenizer"):
            attempt()
    tokens.verify(TOKENIZER)
    tokens.verify(TOKENIZER, source=sources)
    with pytest.raises(bytemill.TokensError, match="were encoded from 2"):
        tokens.verify(TOKENIZER, source=sources[0])
    sources[1].write_bytes(b"c e")
    with pytest.raises(bytemill.TokensError, match="document 1: decodes to other bytes"):
        tokens.verify(TOKENIZER, source=sources)
    sources[1].write_bytes(b"c d e")
    with pytest.raises(bytemill.TokensError, match="from byte 3 on"):
        tokens.verify(TOKENIZER, source=sources)
    sources[1].write_bytes(b"c")
    with pytest.raises(bytemill.TokensError, match="more text than the sources"):
        tokens.verify(TOKENIZER, source=sources)
