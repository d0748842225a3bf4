"""What is a document: text between separators, nulls, empty files; however the work is divided."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bytemill
import generated
import reference
from bytemill import Corpus, _native, count_to_file
from bytemill.engines import Local, units
from command_line import ok, run

EOT = "<|endoftext|>"
TOKENIZER = bytemill.train_tokenizer(iter(["the cat sat on the mat, the cats"] * 3), vocab_size=270)
SEPARATORS = ["\n\n", "\n", "ab", "aa", "the", EOT, "\t<|"]


def plain(text: str) -> str:
    """Removes the characters that make a file binary."""
    return re.sub(r"[\x00-\x08\x0e-\x1f\x7f]", "", text.encode("utf-8", "replace").decode())


texts = st.one_of(
    generated.texts.map(plain),
    st.lists(st.sampled_from(["a", "b", "\n", "\n\n", "the", " the cat", EOT, "é"])).map("".join),
)


def encoded(corpus: Corpus, folder: Path, **options: Any) -> list[str]:
    tokens = TOKENIZER.encode_files(corpus, folder, **options)
    assert bytemill.verify_tokens(folder, TOKENIZER, source=corpus) == []
    return [TOKENIZER.decode(document) for document in tokens.documents]


def ended(document: str) -> Iterator[str]:
    """A document as the tokens have it: special tokens in it end documents too."""
    parts = re.findall(rf"(?s).*?{re.escape(EOT)}|.+\Z", document)
    yield from (part if part.endswith(EOT) else part + EOT for part in parts)


# --- separators -----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(texts, st.sampled_from(SEPARATORS), st.integers(1, 60), st.integers(1, 40))
@example("a\n\n\n\nb\n\n", "\n\n", 3, 2)
@example("a" * 50, "aa", 1, 1)
@example("", "\n", 1, 1)
def test_documents_are_those_of_split(
    text: str, separator: str, block_size: int, unit_size: int
) -> None:
    expected = reference.documents(text.encode(), separator)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "a.txt")
        path.write_bytes(text.encode())
        packed = Path(name, "b.txt.gz")
        packed.write_bytes(gzip.compress(text.encode()))
        archive = Path(name, "c.tar")
        with tarfile.open(archive, "w") as file:
            member = tarfile.TarInfo("d.txt")
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))
        for place in (path, packed, archive):
            corpus = Corpus(place, separator=separator)
            assert documents(corpus.inputs(), block_size) == expected
            counts = _native.Counts(["gpt2"], [EOT], 3)
            counts.add_files(corpus.inputs(), None, block_size)
            assert dict(counts.items()) == reference.count(expected, [EOT], "gpt2")
        # Parts of a file, for other processes.
        corpus = Corpus(path, separator=separator)
        parts = units.units(corpus, corpus.entries(), unit_size)
        assert [d for part in parts for d in documents(part.inputs(), block_size)] == expected


def documents(inputs: _native.Inputs, block_size: int) -> list[bytes]:
    limits = [10**9] * len(inputs)
    return [text for _, _, some in inputs.texts([EOT], limits, block_size) for text in some]


@settings(max_examples=25)
@given(texts.filter(bool), st.sampled_from(SEPARATORS), st.integers(1, 4), st.integers(5, 60))
def test_tokens_have_a_document_between_two_separators(
    text: str, separator: str, threads: int, unit_size: int
) -> None:
    parts = reference.documents(text.encode(), separator)
    expected = [each for part in parts for each in ended(part.decode())]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "a.txt")
        path.write_bytes(text.encode())
        corpus = Corpus(path, separator=separator)
        assert encoded(corpus, Path(name, "a"), threads=threads) == expected
        engine = Local(unit_size=unit_size)
        assert encoded(corpus, Path(name, "b"), engine=engine) == expected
        for shard in Path(name, "a").glob("*.npy"):
            assert shard.read_bytes() == Path(name, "b", shard.name).read_bytes()


def test_a_document_that_is_too_long_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("short||" + "x" * 5000 + "||short too||" + "y" * 3000)
    corpus = Corpus(path, separator="||", max_document=2000)
    with pytest.raises(bytemill.CorpusError, match=r"byte 7: .* longer than 2000") as caught:
        bytemill.count_corpus(corpus)
    assert "max_document" in str(caught.value.hint)
    for block_size in (1, 100, 10**6):
        counts = _native.Counts(["gpt2"], [], 2)
        skipping = Corpus(path, separator="||", max_document=2000, on_error="skip")
        counts.add_files(skipping.inputs(), None, block_size)
        assert counts.skipped == {"too_long": 2}
        assert counts.bytes_read == len("short" + "short too")


def test_work_resumes_only_with_the_same_separator(tmp_path: Path) -> None:
    """Work resumes only if the documents are the same."""
    path = tmp_path / "a.txt"
    path.write_text("one\n\ntwo\n\n\n\nthree\n")
    for corpus in (Corpus(path), Corpus(path, null="keep")):
        tokens = TOKENIZER.encode_files(corpus, tmp_path / "t", overwrite=True)
        assert len(tokens.documents) == 1
        assert "reading" not in json.loads((tmp_path / "t/manifest.json").read_text())
    with pytest.raises(bytemill.ConfigError, match="other options"):
        TOKENIZER.encode_files(Corpus(path, separator="\n\n"), tmp_path / "t", resume=True)
    tokens = TOKENIZER.encode_files(Corpus(path, separator="\n\n"), tmp_path / "u")
    assert len(tokens.documents) == 3
    manifest = json.loads((tmp_path / "u/manifest.json").read_text())
    assert manifest["reading"]["separator"] == "\n\n"
    assert TOKENIZER.encode_files(
        Corpus(path, separator="\n\n"), tmp_path / "u", resume=True
    ).fingerprint == tokens.fingerprint  # fmt: skip
    # Tokens are verified with the separator they were made with, whatever the corpus says now.
    for folder, separator in (("t", "\n"), ("u", None), ("u", "\n\n")):
        corpus = Corpus(path, separator=separator)
        assert bytemill.verify_tokens(tmp_path / folder, TOKENIZER, source=corpus) == []
    for key, value in (("separator", ""), ("separator", 1), ("null", "drop")):
        damaged = manifest | {"reading": manifest["reading"] | {key: value}}
        (tmp_path / "u/manifest.json").write_text(json.dumps(damaged))
        with pytest.raises(bytemill.TokensError, match=key):
            bytemill.Tokens(tmp_path / "u")


def test_counts_with_a_separator_are_finished_once(tmp_path: Path) -> None:
    path, output = tmp_path / "a.txt", tmp_path / "a.counts"
    path.write_text("one\n\ntwo\n\nthree\n")
    corpus = Corpus(path, separator="\n\n")
    count_to_file(corpus, output)
    before = output.read_bytes()
    assert count_to_file(corpus, output, resume=True).bytes_read == len("onetwothree\n")
    assert output.read_bytes() == before


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("\\n\\n", "\n\n"),
        ("|", "|"),
        ("\\t", "\t"),
        ("a\\\\n", "a\\n"),
        ("\n", "\n"),
        ("\\r", "\r"),
    ],
)
def test_separators_on_the_command_line(tmp_path: Path, given: str, means: str) -> None:
    text = f"one two{means}one{means}{means}two"
    (tmp_path / "a.txt").write_bytes(text.encode())
    counts = tmp_path / "a.counts"
    options = ("--separator", given, "-o", counts, "--quiet", "--overwrite")
    for corpus, stdin in ((tmp_path / "a.txt", b""), ("-", text.encode())):
        ok("count", corpus, *options, stdin=stdin)
        assert dict(bytemill.Counts.load(counts)) == {b"one": 2, b" two": 1, b"two": 1}
    TOKENIZER.save(tmp_path / "t.json")
    ok("encode", "-", "-t", tmp_path / "t.json", "-o", tmp_path / "t", "--separator", given,
       stdin=text.encode())  # fmt: skip
    assert len(bytemill.Tokens(tmp_path / "t").documents) == 3


def test_invalid_separators_are_refused(tmp_path: Path) -> None:
    for separator in ("", "\ud800", 1):
        with pytest.raises(bytemill.ConfigError, match="separator"):
            Corpus(tmp_path, separator=separator)  # type: ignore[arg-type]
    (tmp_path / "a.txt").write_text("text")
    for separator in ("", "\\x", "\\"):
        result = run("count", tmp_path / "a.txt", "-o", tmp_path / "c", "--separator", separator)
        assert result.code in (1, 2)
        assert "separator" in result.said
        assert "Traceback" not in result.said


# --- nulls ----------------------------------------------------------------------------------------


def null_files(folder: Path) -> list[Path]:
    pyarrow = pytest.importorskip("pyarrow")
    feather = pytest.importorskip("pyarrow.feather")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"id": [1, 2, 3, 4], "text": ["one", None, "", "two"]})
    nulls = pyarrow.table({"id": [1, 2], "text": pyarrow.nulls(2)})
    parquet.write_table(table, folder / "a.parquet", row_group_size=3)
    feather.write_feather(table, str(folder / "b.arrow"), compression="uncompressed")
    parquet.write_table(nulls, folder / "c.parquet")
    lines = [{"text": "one"}, {"text": None}, {"text": ""}, {"text": "two"}]
    (folder / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "e.csv").write_text("id,text\n1,one\n2\n3,\n4,two\n")
    return sorted(folder.iterdir())


def test_nulls_are_kept_skipped_or_errors(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in null_files(tmp_path / "in"):
        only = path.name == "c.parquet"
        n_nulls = 2 if only else 1
        some = [] if only else ["one" + EOT, EOT, "two" + EOT]
        kept = [EOT, EOT] if only else ["one" + EOT, EOT, EOT, "two" + EOT]
        for null, expected, skipped in (("keep", kept, {}), ("skip", some, n_nulls)):
            corpus = Corpus(path, null=null)  # type: ignore[arg-type]
            folder = tmp_path / f"{path.name}-{null}"
            assert encoded(corpus, folder) == expected
            tokens = bytemill.Tokens(folder)
            assert tokens.skipped == ({"missing_field": skipped} if skipped else {})
            reading = json.loads((folder / "manifest.json").read_text())["reading"]
            assert reading["null"] == null
        for corpus in (Corpus(path), Corpus(path, null="error")):
            with pytest.raises(bytemill.CorpusError, match=r"null|no value") as caught:
                bytemill.count_corpus(corpus)
            assert 'null="keep"' in str(caught.value.hint)
        assert encoded(Corpus(path, on_error="skip"), tmp_path / f"{path.name}-old") == some


def test_nulls_in_parts_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in null_files(tmp_path / "in"):
        corpus = Corpus(path, null="keep")
        whole = encoded(corpus, tmp_path / f"{path.name}-a")
        parts = encoded(corpus, tmp_path / f"{path.name}-b", engine=Local(unit_size=10))
        assert whole == parts


def test_a_missing_column_is_not_null(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in null_files(tmp_path / "in"):
        corpus = Corpus(path, text_field="other", null="keep")
        with pytest.raises(bytemill.CorpusError, match="other"):
            bytemill.count_corpus(corpus)
        skipping = Corpus(path, text_field="other", null="keep", on_error="skip")
        n_rows = 2 if path.name == "c.parquet" else 4
        assert skipped(skipping) == {"missing_field": n_rows}, path


def skipped(corpus: Corpus) -> dict[str, int]:
    counts = _native.Counts(["gpt2"], [], 2)
    counts.add_files(corpus.inputs())
    return counts.skipped


def test_nulls_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": null}\n{"text": "one"}\n')
    command = ("count", tmp_path / "a.jsonl", "-o", tmp_path / "c", "--overwrite")
    result = run(*command)
    assert result.code == 1
    assert "--null keep" in result.said
    assert ok(*command, "--null", "skip", "--json").json["skipped"] == {"missing_field": 1}
    assert ok(*command, "--null", "keep", "--json").json["skipped"] == {}
    with pytest.raises(bytemill.ConfigError, match="null must be"):
        Corpus(tmp_path, null="drop")  # type: ignore[arg-type]


# --- empty files ----------------------------------------------------------------------------------


def test_an_empty_file_is_an_empty_part(tmp_path: Path) -> None:
    """Of text, an empty document; of records, none."""
    zipped = b"PK\5\6" + bytes(18)
    empty = {
        "a.txt": b"", "b.txt.gz": gzip.compress(b""), "c.jsonl": b"",
        "d.jsonl.gz": gzip.compress(b""), "e.csv": b"", "f.tar": b"",
        "g.tar": bytes(10240), "h.zip": zipped,
    }  # fmt: skip
    (tmp_path / "last.txt").write_text("last")
    for name, data in empty.items():
        path = tmp_path / name
        path.write_bytes(data)
        corpus = Corpus([path, tmp_path / "last.txt"])
        counts = bytemill.count_corpus(corpus)
        assert (dict(counts), counts.skipped) == ({b"last": 1}, {})
        before = [EOT] if ".txt" in name else []
        assert encoded(corpus, tmp_path / f"{name}-a") == [*before, "last" + EOT]
        separated = Corpus([path, tmp_path / "last.txt"], separator="\n")
        assert encoded(separated, tmp_path / f"{name}-b") == ["last" + EOT]
        with pytest.raises(bytemill.CorpusError, match="no text"):
            bytemill.count_corpus(path)
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = pyarrow.table({"text": pyarrow.array([], pyarrow.string())})
    parquet.write_table(rows, tmp_path / "i.parquet")
    corpus = Corpus([tmp_path / "i.parquet", tmp_path / "last.txt"])
    assert encoded(corpus, tmp_path / "i") == ["last" + EOT]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.zip", "a.txt.gz", "a.jsonl.zst"])
def test_a_file_cut_off_at_its_beginning_is_damaged(tmp_path: Path, name: str) -> None:
    """These formats have no empty files: an empty one was truncated."""
    if name in ("a.parquet", "a.arrow"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).touch()
    with pytest.raises(bytemill.CorpusError, match=r"damaged|decompress|directory"):
        bytemill.count_corpus(tmp_path / name)
    (tmp_path / "last.txt").write_text("last")
    corpus = Corpus([tmp_path / name, tmp_path / "last.txt"], on_error="skip")
    assert bytemill.count_corpus(corpus).skipped == {"damaged": 1}
