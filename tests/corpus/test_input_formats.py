"""Corpora of every format against Python's own readers; damaged files; and skipped records."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bytemill
import generated
import reference
from bytemill import Corpus, _native, count_to_file
from bytemill.corpus import columns as columns_module
from bytemill.engines import Local
from command_line import ok, run

EOT = "<|endoftext|>"
TOKENIZER = bytemill.train_tokenizer(iter(["the cat sat on the mat, the cats"] * 3), vocab_size=270)
zstandard = pytest.importorskip("zstandard")
pyarrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


# --- writers of formats ---------------------------------------------------------------------------


def jsonl(texts: list[str], **options: Any) -> bytes:
    lines = [json.dumps({"id": n, "text": text}, **options) for n, text in enumerate(texts)]
    return "".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass")


def rows(texts: list[str], separator: str) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator)
    writer.writerow(["id", "text"])
    writer.writerows([[n, text] for n, text in enumerate(texts)])
    return out.getvalue().encode()


def tar(texts: list[str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number, text in enumerate(texts):
            # Long names take further heads, in the form of GNU or of POSIX.
            member = tarfile.TarInfo(f"folder/{'x' * (number * 40)}/{number}.txt")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def zipped(texts: list[str], method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.mkdir("folder") if hasattr(archive, "mkdir") else None
        for number, text in enumerate(texts):
            archive.writestr(f"folder/{number}.txt", text.encode())
    return out.getvalue()


def columns(texts: list[str], kind: str, rows: int) -> bytes:
    table = pyarrow.table({"id": list(range(len(texts))), "text": pyarrow.array(texts, "string")})
    out = io.BytesIO()
    if kind == "parquet":
        parquet.write_table(table, out, row_group_size=rows)
    else:
        make = pyarrow.ipc.new_file if kind == "file" else pyarrow.ipc.new_stream
        with make(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    return out.getvalue()


# --- what is expected -----------------------------------------------------------------------------


def counted(texts: list[str]) -> dict[bytes, int]:
    return reference.count([text.encode() for text in texts], [EOT], "gpt2")


def documents(texts: list[str]) -> list[list[int]]:
    """The ids of documents: each text, with an end-of-text at its end."""
    end, found = TOKENIZER.special_tokens[EOT], []
    for text in texts:
        ids = TOKENIZER.encode(text)
        ids = ids if ids[-1:] == [end] else [*ids, end]
        while ids:
            after = ids.index(end) + 1
            found.append(ids[:after])
            ids = ids[after:]
    return found


def check(folder: Path, name: str, data: bytes, texts: list[str], **options: Any) -> None:
    path = folder / name
    path.write_bytes(data)
    corpus = Corpus(path, **options)
    threads, chunk_size = options.pop("threads", 2), options.pop("chunk_size", 30)
    counts = _native.Counts(["gpt2"], [EOT], threads)
    counts.add_files(corpus.inputs(), None, chunk_size)
    assert dict(counts.items()) == counted(texts), name
    assert counts.bytes_read == sum(len(text.encode()) for text in texts)
    out = folder / f"{name}.tokens"
    if not data:
        return  # refused
    TOKENIZER.encode_files(
        corpus, out, shard_tokens=50, eot=EOT, threads=threads,
        engine=Local(unit_size=100, block_size=chunk_size), progress=False,
    )  # fmt: skip
    tokens = bytemill.Tokens(out)
    assert [document.tolist() for document in tokens.documents] == documents(texts), name
    assert b"".join(tokens.decode(TOKENIZER)) == "".join(texts).encode()
    assert bytemill.verify_tokens(out, TOKENIZER, source=path, progress=False) == []
    sample = corpus.inputs()
    found = [text for _, _, some in sample.texts([EOT], [10**9], 20) for text in some]
    assert b"".join(found) == "".join(texts).encode()


# The csv module does not read back a NUL or every way to end a line as it was written.
texts_of_rows = st.lists(
    generated.texts.map(lambda text: text.replace("\0", "").replace("\r", "")), max_size=6
)


@pytest.mark.slow
@given(st.lists(generated.texts, max_size=6), st.sampled_from(sorted(PACKINGS)), st.booleans())
@example(["\ud83d", "a\udc00b"], "", True)
def test_json_lines(texts: list[str], packing: str, ascii: bool) -> None:
    if not ascii:
        texts = [text.encode("utf-8", "replace").decode() for text in texts]
    data = PACKINGS[packing](jsonl(texts, ensure_ascii=ascii))
    read = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), f"a.jsonl{packing}", data, read)


@given(texts_of_rows, st.sampled_from([",", "\t"]), st.sampled_from(sorted(PACKINGS)))
@settings(max_examples=30)
def test_rows(texts: list[str], separator: str, packing: str) -> None:
    name = ("a.csv" if separator == "," else "a.tsv") + packing
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), name, PACKINGS[packing](rows(texts, separator)), texts)


@given(
    st.text(st.sampled_from('ab,"\n\r é;'), max_size=60),
    st.sampled_from(["text,x\n", "x,text\r\n", '"te""xt","text"\r', "text\n"]),
    st.integers(1, 40),
)
@example('"never closed\na,b', "text,x\n", 1)
@example('a,"b""', "x,text\n", 3)
@example('"a"b"c,d"\n', "text,x\n", 2)
def test_any_rows_as_the_csv_module_reads_them(data: str, names: str, chunk_size: int) -> None:
    def read(text: str) -> list[list[str]]:
        return [row for row in csv.reader(io.StringIO(text, newline="")) if row]

    head, *rows = read(names + data)
    column = head.index("text")
    skipped = {}
    # An unclosed quotation mark extends to the end of the data: bytemill skips that row.
    if read(names + data + "\nbehind")[-1:] != [["behind"]]:
        rows.pop()
        skipped["invalid_csv"] = 1
    if missing := sum(len(row) <= column for row in rows):
        skipped["missing_field"] = missing
    expected = [row[column] for row in rows if len(row) > column]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.csv")
        path.write_bytes((names + data).encode())
        inputs = Corpus(path, on_error="skip").inputs()
        found = [t.decode() for _, _, some in inputs.texts([], [10**9], chunk_size) for t in some]
        counts = _native.Counts(["gpt2"], [], 2)
        counts.add_files(inputs, None, chunk_size)
    assert found == expected
    assert counts.skipped == skipped
    assert dict(counts.items()) == reference.count([t.encode() for t in expected], [], "gpt2")


@given(
    st.lists(generated.texts.map(lambda t: t.encode("utf-8", "replace").decode()), max_size=5),
    st.sampled_from(
        [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    ),
)
@settings(max_examples=15)
def test_archives(texts: list[str], method: int) -> None:
    texts = [text for text in texts if _is_text(text)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check(folder, "a.zip", zipped(texts, method), texts)
        check(folder, "a.tar", tar(texts), texts)
        check(folder, "a.tar.gz", gzip.compress(tar(texts)), texts)
        check(folder, "a.tzst", PACKINGS[".zst"](tar(texts)), texts)


def _is_text(text: str) -> bool:
    """Whether a file with this content is read as text."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        try:
            _native.Counts(["gpt2"], [], 1).add_files([file.name])
        except bytemill.CorpusError:
            return False
        return True


@given(
    st.lists(generated.texts.map(lambda t: t.encode("utf-8", "replace").decode()), max_size=8),
    st.sampled_from(["parquet", "file", "stream"]),
    st.integers(1, 5),
)
@settings(max_examples=30)
def test_columns(texts: list[str], kind: str, rows: int) -> None:
    name = "a.parquet" if kind == "parquet" else "a.arrow"
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), name, columns(texts, kind, rows), texts)


@given(st.lists(generated.file_data, min_size=1, max_size=3), st.sampled_from(sorted(PACKINGS)))
def test_compressed_text_in_several_members(parts: list[bytes], packing: str) -> None:
    text = b"".join(parts).decode("utf-8", "replace")
    packed = b"".join(PACKINGS[packing](part) for part in parts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.txt{packing}")
        path.write_bytes(packed)
        counts = _native.Counts(["gpt2"], [EOT], 2)
        counts.add_files(Corpus(path).inputs(), None, 25)
        assert dict(counts.items()) == reference.count([b"".join(parts)], [EOT], "gpt2"), text


def test_a_damaged_arrow_file_is_a_corpus_error_wherever_the_damage_is(tmp_path: Path) -> None:
    """Lengths in it may ask for more memory than there is, which pyarrow reports otherwise."""
    path = tmp_path / "a.arrow"
    feather.write_feather(pyarrow.table({"text": ["some text " * 3] * 50}), str(path))
    data = path.read_bytes()
    n_refused = 0
    for at in range(0, len(data) - 8, 3):
        path.write_bytes(data[:at] + struct.pack("<q", 1 << 46) + data[at + 8 :])
        try:
            bytemill.count_corpus(path)
        except bytemill.CorpusError:  # else it was read as well as before
            n_refused += 1
    assert n_refused > 0


def test_kinds_of_columns(tmp_path: Path) -> None:
    texts = ["one", None, "three", ""]
    for number, array in enumerate(
        [
            pyarrow.array(texts, "large_string"),
            pyarrow.array(texts).dictionary_encode(),
            pyarrow.array(texts, "binary"),
            pyarrow.array(texts, "string_view"),
            pyarrow.chunked_array([texts[:2], [], texts[2:]], "string"),
        ]
    ):
        path = tmp_path / f"{number}.arrow"
        table = pyarrow.table({"text": array})
        with pyarrow.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
        counts = bytemill.count_corpus(Corpus(path, on_error="skip"))
        assert dict(counts) == {b"one": 1, b"three": 1}
        assert counts.skipped == {"missing_field": 1}
        with pytest.raises(bytemill.CorpusError, match="null") as caught:
            bytemill.count_corpus(path)
        assert str(path) in caught.value.message


def test_rows_that_are_too_long_or_not_utf_8(tmp_path: Path) -> None:
    texts = [b"one", b"x" * 2000, b"t\xffo", None, b"three"]
    ends = [0, *(sum(len(text or b"") for text in texts[: n + 1]) for n in range(len(texts)))]
    for kind, width in (("string", 4), ("large_string", 8), ("binary", 4)):
        bounds = b"".join(end.to_bytes(width, "little") for end in ends)
        buffers = [b"\x17", bounds, b"".join(text or b"" for text in texts)]
        column = pyarrow.Array.from_buffers(
            getattr(pyarrow, kind)(), len(texts), [pyarrow.py_buffer(some) for some in buffers]
        )
        parquet.write_table(pyarrow.table({"text": column}), tmp_path / f"{kind}.parquet")
        corpus = Corpus(tmp_path / f"{kind}.parquet", max_document=1000, on_error="skip")
        counts = bytemill.count_corpus(corpus)
        assert dict(counts) == {b"one": 1, b"three": 1}
        assert counts.skipped == {"invalid_utf8": 1, "missing_field": 1, "too_long": 1}
    path = tmp_path / "string.parquet"
    with pytest.raises(
        bytemill.CorpusError, match="row group 0, row 2: longer than 1000"
    ) as caught:
        bytemill.count_corpus(Corpus(path, max_document=1000))
    assert "max_document" in str(caught.value.hint)
    with pytest.raises(bytemill.CorpusError, match="row group 0, row 3: not UTF-8"):
        bytemill.count_corpus(path)
    # Texts that the caller passes may be any bytes, of any length.
    assert bytemill.count_corpus(Corpus(iter([b"t\xffo" * 9]), max_document=5)).bytes_read == 27


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_compressed_batches_are_not_all_kept_in_memory(
    form: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_module, "AHEAD", 1)
    path = tmp_path / "a.arrow"
    table = pyarrow.table({"text": [f"{n} " + "x" * 100_000 for n in range(300)], "n": range(300)})
    make = pyarrow.ipc.new_file if form == "file" else pyarrow.ipc.new_stream
    packed = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with make(str(path), table.schema, options=packed) as writer:
        writer.write_table(table, max_chunksize=10)
    del table
    where: Path | str = path
    if place == "elsewhere":
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("memory").pipe_file("/packed/a.arrow", path.read_bytes())
        where = "memory://packed/a.arrow"
    reader = Corpus(where).entries()[0].reader
    before = most = pyarrow.total_allocated_bytes()
    seen = 0
    for batch in reader.batches(0, 0):  # type: ignore[union-attr]
        seen += len(batch[0])
        most = max(most, pyarrow.total_allocated_bytes())
    assert (seen, reader.n_parts()) == (300, 30)  # type: ignore[union-attr]
    assert most - before < 10_000_000
    assert bytemill.count_corpus(where).bytes_read == 300 * 100_000 + sum(
        len(f"{n} ") for n in range(300)
    )
    # Cut short, it is damaged, whole batches before that or not.
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(bytemill.CorpusError, match="incomplete arrow file"):
        bytemill.count_corpus(path)


def test_dictionary_encoded_strings(tmp_path: Path) -> None:
    texts = pyarrow.array(["one", "two", "one"] * 50).dictionary_encode()
    for make in (pyarrow.ipc.new_file, pyarrow.ipc.new_stream):
        table = pyarrow.table({"text": texts})
        with make(str(tmp_path / "a.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=30)
        assert dict(bytemill.count_corpus(tmp_path / "a.arrow")) == {b"one": 100, b"two": 50}


def test_input_format_without_its_compression(tmp_path: Path) -> None:
    for packing, pack in PACKINGS.items():
        (tmp_path / f"part-0000{packing}").write_bytes(pack(jsonl(["one"])))
    (tmp_path / "plain.gz").write_bytes(jsonl(["one"]))
    counts = bytemill.count_corpus(Corpus(tmp_path, input_format="jsonl"))
    assert dict(counts) == {b"one": len(PACKINGS) + 1}


def test_nested_fields(tmp_path: Path) -> None:
    records = [{"meta": {"body": "one"}, "body": "no"}, {"meta": {"body": "two"}, "body": "no"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        counts = bytemill.count_corpus(Corpus(tmp_path / name, text_field="meta.body"))
        assert dict(counts) == {b"one": 1, b"two": 1}
        with pytest.raises(bytemill.CorpusError) as caught:
            bytemill.count_corpus(Corpus(tmp_path / name, text_field="meta.title"))
        assert "text_field" in str(caught.value.hint)
    # A name may have a dot in it.
    (tmp_path / "b.jsonl").write_text('{"meta.body": "one"}')
    parquet.write_table(pyarrow.table({"meta.body": ["one"]}), tmp_path / "b.parquet")
    for name in ("b.jsonl", "b.parquet"):
        counts = bytemill.count_corpus(Corpus(tmp_path / name, text_field="meta.body"))
        assert dict(counts) == {b"one": 1}


# --- what cannot be read --------------------------------------------------------------------------

BAD = (
    b'{"text": "one"}\n{"text": "t\n{"texts": "x"}\n{"text": 3}\n\n{"text": "\xff"}\n'
    b'{"text": "six"}\n'
)
SKIPPED = {"invalid_json": 1, "invalid_utf8": 1, "missing_field": 1, "wrong_type": 1}


@pytest.mark.parametrize("packing", sorted(PACKINGS))
def test_bad_records_stop_or_are_counted(packing: str, tmp_path: Path) -> None:
    path = tmp_path / f"bad.jsonl{packing}"
    path.write_bytes(PACKINGS[packing](BAD))
    with pytest.raises(bytemill.CorpusError, match=r"line 2 \(byte 16\): not JSON") as caught:
        bytemill.count_corpus(path)
    assert str(path) in caught.value.message
    assert "skip" in str(caught.value.hint)
    corpus = Corpus(path, on_error="skip")
    counts = bytemill.count_corpus(corpus)
    assert (dict(counts), counts.skipped) == ({b"one": 1, b"six": 1}, SKIPPED)
    counts.save(tmp_path / "a.counts")
    again = bytemill.Counts.load(tmp_path / "a.counts")
    assert again.skipped == SKIPPED
    again.merge(counts)
    assert again.skipped == {kind: 2 * n for kind, n in SKIPPED.items()}
    tokens = TOKENIZER.encode_files(corpus, tmp_path / "tokens")
    assert tokens.skipped == tokens.manifest["skipped"] == SKIPPED
    assert len(tokens.documents) == 2
    tokens.verify(TOKENIZER, source=path)
    with pytest.warns(UserWarning, match="skipped 4 records: 1 not JSON"):
        bytemill.train_tokenizer(corpus, vocab_size=257)


@pytest.mark.parametrize("packing", sorted(set(PACKINGS) - {""}))
@pytest.mark.parametrize("format", ["txt", "jsonl", "csv", "tar"])
def test_cut_short(packing: str, format: str, tmp_path: Path) -> None:
    texts = [f"text number {n}, of some words" for n in range(3000)]
    whole = {"txt": "\n".join(texts).encode(), "jsonl": jsonl(texts), "csv": rows(texts, ","),
             "tar": tar(["\n".join(texts)])}[format]  # fmt: skip
    packed = PACKINGS[packing](whole)
    path = tmp_path / f"a.{format}{packing}"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(bytemill.CorpusError, match=path.name) as caught:
        bytemill.count_corpus(path)
    assert caught.value.hint
    corpus = Corpus(path, on_error="skip")
    found = {}
    for threads in (1, 2, 3):
        tokens = TOKENIZER.encode_files(corpus, tmp_path / f"out{threads}", threads=threads)
        assert tokens.skipped == {"damaged": 1}
        found[threads] = b"".join(tokens.decode(TOKENIZER))
    assert len(set(found.values())) == 1
    kept = found[1].decode()
    assert "".join(texts).startswith(kept) or "\n".join(texts).startswith(kept)


def test_a_truncated_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(columns(["one", "two"], "parquet", 1)[:-9])
    with pytest.raises(bytemill.CorpusError, match="incomplete parquet file") as caught:
        bytemill.count_corpus(path)
    assert caught.value.hint
    (tmp_path / "b.txt").write_text("text")
    counts = bytemill.count_corpus(Corpus(tmp_path, on_error="skip"))
    assert counts.skipped == {"damaged": 1}


def test_a_damaged_row_group_does_not_affect_others(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"text {n}" for n in range(40)]
    table = pyarrow.table({"text": texts})
    parquet.write_table(table, path, row_group_size=10, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    damaged = parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data[damaged : damaged + 20] = b"\xff" * 20
    path.write_bytes(data)
    with pytest.raises(bytemill.CorpusError, match="row group 1"):
        bytemill.count_corpus(path)
    counts = bytemill.count_corpus(Corpus(path, on_error="skip"))
    assert dict(counts) == counted(texts[:10] + texts[20:])
    assert counts.skipped == {"damaged": 1}
    tokens = TOKENIZER.encode_files(Corpus(path, on_error="skip"), tmp_path / "tokens")
    assert (len(tokens.documents), tokens.skipped) == (30, {"damaged": 1})


def test_zeros_after_gzip_data_are_padding(tmp_path: Path) -> None:
    packed = gzip.compress(b"one ") + b"\0" * 100 + gzip.compress(b"two") + b"\0" * 100_000
    (tmp_path / "a.txt.gz").write_bytes(packed)
    assert dict(bytemill.count_corpus(tmp_path / "a.txt.gz")) == counted(["one two"])
    (tmp_path / "a.txt.gz").write_bytes(packed + b"more")
    with pytest.raises(bytemill.CorpusError, match="decompression failed"):
        bytemill.count_corpus(tmp_path / "a.txt.gz")


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.csv", "c.txt"):
        (tmp_path / name).touch()
    (tmp_path / "d.jsonl").write_text('{"text": "one"}')
    tokens = TOKENIZER.encode_files(tmp_path, tmp_path / "tokens")
    # Of a text, an empty document; of records, none.
    assert [len(document) for document in tokens.documents] == [1, len(TOKENIZER.encode("one")) + 1]
    with pytest.raises(bytemill.CorpusError, match="no text"):
        bytemill.count_corpus(tmp_path / "a.jsonl")


def test_huge_documents_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(["one", "x" * 200_000, "two"]))
    with pytest.raises(bytemill.CorpusError, match="longer than 100000 bytes") as caught:
        bytemill.count_corpus(Corpus(path, max_document=100_000))
    assert "max_document" in str(caught.value.hint)
    counts = bytemill.count_corpus(Corpus(path, max_document="100kB", on_error="skip"))
    assert (counts.skipped, len(counts)) == ({"too_long": 1}, 2)
    assert len(bytemill.count_corpus(path)) == 3


def test_bombs_are_stopped(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b" " * (20 << 20), 9))
    with pytest.raises(bytemill.CorpusError, match="times its size") as caught:
        bytemill.count_corpus(path)
    assert "max_ratio" in str(caught.value.hint)
    assert bytemill.count_corpus(Corpus(path, max_ratio=5000)).bytes_read == 20 << 20


def test_archives_that_are_bombs(tmp_path: Path) -> None:
    """Many small members, each of which passes the limit for single members."""
    spaces = b" " * (4 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(8):
            archive.writestr(f"{number}.txt", spaces)
    member = tarfile.TarInfo("a.txt.bz2")
    packed = bz2.compress(spaces)
    member.size = len(packed)
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        for _ in range(8):
            archive.addfile(member, io.BytesIO(packed))
    for name in ("a.zip", "b.tar.gz"):
        with pytest.raises(bytemill.CorpusError, match="times its size") as caught:
            bytemill.count_corpus(tmp_path / name)
        assert "max_ratio" in str(caught.value.hint)
        counts = bytemill.count_corpus(Corpus(tmp_path / name, max_ratio=1_000_000))
        assert counts.bytes_read == 8 * len(spaces)


def test_hostile_archives(tmp_path: Path) -> None:
    """Paths of members are harmless: nothing is extracted."""
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("../../../outside.txt", "/etc/passwd.txt"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"text"))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert dict(bytemill.count_corpus(tmp_path / "a.tar")) == {b"text": 2}
    assert sorted(os.listdir(tmp_path)) == ["a.tar"]


# --- the command line -----------------------------------------------------------------------------


def test_options_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.data").write_bytes(gzip.compress(BAD.replace(b'"text"', b'"body"')))
    TOKENIZER.save("t.json")
    TOKENIZER.with_vocab_size(260).save("u.json")
    reading = ["--input-format", "jsonl.gz", "--text-field", "body", "--on-error", "skip"]
    shown = ok("count", "a.data", "-o", "a.counts", "--json", *reading).json
    assert shown["skipped"] == {"invalid_json": 1, "invalid_utf8": 1, "missing_field": 1,
                                "wrong_type": 1}  # fmt: skip
    result = ok("encode", "a.data", "-t", "t.json", "-o", "tokens", *reading)
    assert "note: skipped 4 records: 1 not JSON" in result.said
    ok("verify", "tokens", "-t", "t.json", "--source", "a.data")
    ok("train-tokenizer", "a.data", "-o", "new.json", "--vocab-size", 257, *reading)
    result = ok("compare", "t.json", "u.json", "a.data", "--html", "a.html", *reading)
    assert "note: skipped 4 records: 1 not JSON" in result.said
    assert "skipped 4 records: 1 not JSON" in Path("a.html").read_text("utf-8")
    shown = ok("compare", "t.json", "u.json", "a.data", "--json", *reading).json
    assert shown["corpora"]["a.data"]["skipped"] == SKIPPED
    assert "differences" in ok("compare", "t.json", "u.json", "a.data", *reading).text
    result = run("count", "a.data", "-o", "b.counts", *reading[:-2])
    assert result.code == 1
    assert "line 2 (byte 16)" in result.said
    result = run("count", "a.data", "-o", "b.counts", "--input-format", "xml")
    assert (result.code, "input_format='xml'" in result.said or "xml" in result.said) == (1, True)
    # The compression of stdin is detected by its first bytes.
    ok("count", "-", "-o", "c.counts", "--text-field", "body", "--on-error", "skip",
       "--input-format", "jsonl.gz", stdin=Path("a.data").read_bytes())  # fmt: skip
    ok("count", "-", "-o", "e.counts", "--text-field", "body", "--on-error", "skip",
       "--input-format", "jsonl", stdin=Path("a.data").read_bytes())  # fmt: skip
    assert Path("e.counts").read_bytes() == Path("c.counts").read_bytes()
    ok("count", "-", "-o", "d.counts", stdin=gzip.compress(b"some text"))
    assert bytemill.Counts.load("d.counts").bytes_read == 9


def test_stdin_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every format that can be read from front to back, without a file in between."""
    monkeypatch.chdir(tmp_path)
    texts = [f"text {n}, with 'quotes' and a line\n" * 20 for n in range(60)]
    TOKENIZER.save("t.json")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a temporary file")

    contents = {"txt": "".join(texts).encode(), "jsonl": jsonl(texts), "csv": rows(texts, ","),
                "tar": tar(texts)}  # fmt: skip
    for name, content in contents.items():
        for packing, pack in PACKINGS.items():
            data = pack(content)
            Path("a." + name + packing).write_bytes(data)
            format = ["--input-format", ("text" if name == "txt" else name) + packing]
            if name == "txt":
                format = []  # known by its first bytes
            ok("count", "a." + name + packing, "-o", "a.counts", "-q", "--overwrite")
            with monkeypatch.context() as patched:
                patched.setattr(tempfile, "TemporaryDirectory", refuse)
                patched.setattr(tempfile, "NamedTemporaryFile", refuse)
                ok("count", "-", "-o", "b.counts", "-q", "--overwrite", *format, stdin=data)
                if packing in ("", ".zst"):
                    ok("encode", "-", "-t", "t.json", "-o", "b", "-q", "--overwrite", *format,
                       stdin=data)  # fmt: skip
            assert Path("b.counts").read_bytes() == Path("a.counts").read_bytes(), format
            if packing not in ("", ".zst"):
                continue
            ok("encode", "a." + name + packing, "-t", "t.json", "-o", "a", "-q", "--overwrite")
            for file in ("shard-00000.npy", "shard-00000.docs.npy"):
                assert Path("b", file).read_bytes() == Path("a", file).read_bytes(), format
            assert bytemill.Tokens("b").manifest["sources"][0]["path"] == "stdin"
            assert bytemill.verify_tokens("b", progress=False) == []
    ok("train-tokenizer", "-", "-o", "u.json", "--vocab-size", 300, "-q", stdin=contents["txt"])
    ok("train-tokenizer", "a.txt", "-o", "v.json", "--vocab-size", 300, "-q")
    assert Path("u.json").read_bytes() == Path("v.json").read_bytes()
    # A format with its directory at the end is first copied to a file.
    packed, table = zipped(texts, zipfile.ZIP_DEFLATED), columns(texts, "parquet", 50)
    for name, data in (("zip", packed), ("parquet", table)):
        Path("a." + name).write_bytes(data)
        ok("count", "a." + name, "-o", "a.counts", "-q", "--overwrite")
        ok("count", "-", "--input-format", name, "-o", "b.counts", "-q", "--overwrite", stdin=data)
        assert Path("b.counts").read_bytes() == Path("a.counts").read_bytes()


def test_stdin_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    send(b"one two two")
    assert dict(bytemill.count_corpus("-")) == {b"one": 1, b" two": 2}
    send(b"")
    with pytest.raises(bytemill.CorpusError, match="stdin contains no text"):
        bytemill.count_corpus("-")
    send(b"PAR1")
    with pytest.raises(bytemill.CorpusError, match="read from its end"):
        bytemill.count_corpus(Corpus("-", input_format="parquet"))
    send(b"one two")
    inputs = Corpus(["-"]).inputs()
    _native.Counts(["gpt2"], [], 1).add_files(inputs)
    with pytest.raises(bytemill.ConfigError, match="cannot be read again"):
        _native.Counts(["gpt2"], [], 1).add_files(inputs)
    for resume in (
        lambda: TOKENIZER.encode_files("-", tmp_path / "out", resume=True),
        lambda: count_to_file(["-"], tmp_path / "a.counts", resume=True),
    ):
        with pytest.raises(bytemill.ConfigError, match="stdin cannot be read again"):
            resume()
    broken = io.BytesIO(gzip.compress(b"some text" * 100)[:-10])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(broken))
    with pytest.raises(bytemill.CorpusError, match=r"stdin: after .* decompressed bytes"):
        bytemill.count_corpus("-")


def test_records_do_not_go_to_stdout(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "t.json")
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(["the cat"]))
    result = run("encode", "-t", tmp_path / "t.json", path)
    assert (result.code, "jsonl is encoded into a directory" in result.said) == (2, True)
    command = ["encode", "-t", tmp_path / "t.json", path, "--input-format", "text"]
    ids = list(map(int, ok(*command).text.split()))
    assert TOKENIZER.decode_bytes(ids) == path.read_bytes()
    result = run(*command, "--text-field", "body")
    assert (result.code, "--text-field needs -o" in result.said) == (2, True)


def test_impossible_options_of_a_corpus(tmp_path: Path) -> None:
    for options in (
        {"on_error": "ignore"}, {"input_format": "xml"}, {"text_field": ""}, {"max_document": 0},
        {"max_ratio": 0}, {"max_window": "much"},
    ):  # fmt: skip
        with pytest.raises(bytemill.ConfigError):
            Corpus(tmp_path, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be another corpus"):
        Corpus(Corpus(tmp_path))
