"""Gives the fuzz targets something to start from: small sound files of every kind.

    .venv/bin/python fuzz/seeds.py

What stands before a file in a seed is what its target reads first: flags and sizes.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import bytemill
from bytemill import _native

CORPUS = Path(__file__).parent / "corpus"
TEXTS = ["low lower lowest", "naïve 日本語", "\t'data' 12345\n\n", 'say "no"', "<|end|>"]
FORMATS = ("huggingface", "gpt2", "tiktoken", "minbpe")


def tokenizer_files() -> Iterator[tuple[str, bytes]]:
    """Which format, where vocab.json ends, the file."""
    for pattern in _native.PATTERNS:
        tokenizer = bytemill.train_tokenizer(iter(TEXTS[:3]), vocab_size=262, pattern=pattern)
        for number, kind in enumerate(FORMATS):
            parts = tokenizer.write(kind)
            head = bytes([number]) + len(parts[0]).to_bytes(2, "little")
            yield f"{kind}-{pattern}", head + b"".join(parts)


def json_lines() -> bytes:
    records = [{"text": text, "id": 1.5e3, "a": {"text": [None, text]}} for text in TEXTS]
    records += [{"a": {"text": text}, "a.text": text} for text in TEXTS]
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def rows() -> bytes:
    quoted = ('"' + text.replace('"', '""') + '"' for text in TEXTS)
    return ("id,text\r\n" + "".join(f"1,{text}\r\n" for text in quoted)).encode()


def json_records() -> Iterator[tuple[str, bytes]]:
    """Flags, the size of a block, the longest record, the lines."""
    for flags in (0, 1, 2, 0xF8):
        yield f"lines-{flags}", bytes([flags, 20, 60]) + json_lines()


def separated_text() -> Iterator[tuple[str, bytes]]:
    for separator in ("\n\n", "<|end|>", "aa"):
        head = bytes([1, 20, 60, len(separator.encode()) - 1]) + separator.encode()
        yield f"text-{len(separator)}", head + (separator.join(TEXTS) + "aaaa").encode()


def csv_rows() -> Iterator[tuple[str, bytes]]:
    """The same with rows."""
    for flags in (4, 5, 6, 0xFC):
        separated = rows().replace(b",", b"\t") if flags & 1 else rows()
        yield f"rows-{flags}", bytes([flags, 20, 60]) + separated


def members() -> Iterator[tuple[str, bytes]]:
    yield "a.txt", TEXTS[0].encode()
    yield "d/" + "long" * 20 + "/" + "name" * 20 + ".jsonl", json_lines()
    yield "d/b.csv", rows()
    yield ".hidden/c.txt", b"not read"


def tar_archives() -> Iterator[tuple[str, bytes]]:
    """A byte that says "as it is", the size of a block, the archive."""
    forms = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    for form, number in forms.items():
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=number) as archive:
            for name, content in members():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        yield form, bytes([0, 20]) + data.getvalue()


def zip_archives() -> Iterator[tuple[str, bytes]]:
    """The same with zip."""
    methods = {"stored": 0, "deflated": 8, "bzip2": 12, "lzma": 14}
    for name, method in methods.items():
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", compression=method) as archive:
            for member, content in members():
                # One that has its sizes in 64 bits.
                with archive.open(member, "w", force_zip64=member == "d/b.csv") as out:
                    out.write(content)
            archive.comment = b"seed"
        yield name, bytes([0, 20]) + data.getvalue()


def counts_files() -> Iterator[tuple[str, bytes]]:
    """A byte: as it is, or with a checksum that is set right."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts"
        bytemill.count_corpus(iter(TEXTS), special_tokens=["<|end|>"]).save(path)
        yield "as-it-is", b"\0" + path.read_bytes()
        yield "sealed", b"\1" + path.read_bytes()


TARGETS = (
    tokenizer_files, json_records, separated_text, csv_rows, tar_archives, zip_archives,
    counts_files,
)  # fmt: skip


def main() -> None:
    for target in TARGETS:
        folder = CORPUS / target.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for name, seed in target():
            (folder / name).write_bytes(seed)


if __name__ == "__main__":
    main()
