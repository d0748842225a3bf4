"""Which files of a directory are read, how the others are reported, and dry runs."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill import Corpus
from bytemill.corpus import choosing
from bytemill.corpus.choosing import Candidate, SkippedFile
from command_line import ok, run

RECORDS = "".join(json.dumps({"text": f"record {n}"}) + "\n" for n in range(20)).encode()
N_TEXT = sum(len(f"record {n}") for n in range(20))


def make(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """JSONL shards among files that Spark, Git and people leave in a directory."""
    return make(
        tmp_path / "data",
        {
            "part-0.jsonl": RECORDS,
            "deep/part-1.jsonl.gz": gzip.compress(RECORDS),
            "extra.txt": b"plain",
            "README.md": b"# About these data",
            "LICENSE.txt": b"free",
            "_SUCCESS": b"",
            ".part-0.jsonl.crc": b"crc",
            "_delta_log/0.json": b'{"commitInfo": {}}\n',
            "notes.log": b"some notes",
            "deep/empty.jsonl": b"",
            "empty": b"",
        },
    )


SKIPPED = {
    "LICENSE.txt": "about the corpus",
    "README.md": "about the corpus",
    "_SUCCESS": "empty",
    "_delta_log/0.json": "in a folder whose name begins with _",
    "empty": "empty",
    "notes.log": "unknown format",
}


def listed(corpus: Corpus, folder: Path) -> tuple[list[str], dict[str, str]]:
    """What is read of a folder, and what is skipped and why."""
    found = corpus.listing()
    start = len(str(folder)) + 1
    read = [entry.name[start:] for entry in found.entries]
    return read, {file.name[start:]: file.reason for file in found.skipped}


def test_stray_files_beside_records_are_not_documents(shards: Path) -> None:
    read, skipped = listed(Corpus(shards), shards)
    assert read == ["deep/empty.jsonl", "deep/part-1.jsonl.gz", "extra.txt", "part-0.jsonl"]
    assert skipped == SKIPPED
    with pytest.warns(UserWarning, match=r"skipped 6 files: .*README.md \(about the corpus\)"):
        counts = bytemill.count_corpus(shards)
    assert counts.bytes_read == 2 * N_TEXT + len("plain")


def test_skipped_files_are_named_in_notes_and_json(shards: Path, tmp_path: Path) -> None:
    commands: dict[str, tuple[Any, ...]] = {
        "count": (shards, "-o", tmp_path / "a.counts"),
        "train-tokenizer": (shards, "-o", tmp_path / "t.json", "--vocab-size", 262),
        "encode": (shards, "-t", tmp_path / "t.json", "-o", tmp_path / "tokens"),
    }
    for command, arguments in commands.items():
        result = ok(command, *arguments, "--json")
        named = {Path(file["file"]): file["reason"] for file in result.json["skipped_files"]}
        assert named == {shards / name: reason for name, reason in SKIPPED.items()}
        notes = [event["message"] for event in result.events if event["event"] == "note"]
        # The first few by name.
        assert "skipped 6 files" in notes[0]
        assert "README.md" in notes[0]
        assert "and 1 more" in notes[0]
        assert result.json["bytes"] == 2 * N_TEXT + len("plain")
    # The user excluded files with globs, so there is no note about them.
    exclude = [part for name in SKIPPED for part in ("--exclude", name)]
    quiet = ok("count", shards, "-o", tmp_path / "b.counts", "--json", *exclude)
    assert len(quiet.json["skipped_files"]) == 6
    assert not [event for event in quiet.events if event["event"] == "note"]


def test_a_file_that_is_named_is_always_read(shards: Path) -> None:
    for place in (shards / "README.md", str(shards / "README*"), [str(shards / "_SUCCESS")]):
        assert len(Corpus(place).entries()) == 1


def test_source_code_is_a_corpus(tmp_path: Path) -> None:
    folder = make(
        tmp_path / "src",
        {
            "pkg/__init__.py": b"import this\n",
            "pkg/_private.py": b"x = 1\n",
            "pkg/__pycache__/a.pyc": bytes(range(64)),
            "README.md": b"# Code\n",
            "Makefile": b"all:\n",
            "empty.py": b"",
        },
    )
    read, skipped = listed(Corpus(folder), folder)
    assert read == ["Makefile", "README.md", "pkg/__init__.py", "pkg/_private.py"]
    assert skipped["empty.py"] == "empty"
    assert "binary data" in skipped["pkg/__pycache__/a.pyc"]
    read, _ = listed(Corpus(folder, include="*.py"), folder)
    assert read == ["empty.py", "pkg/__init__.py", "pkg/_private.py"]


def test_texts_of_any_name(tmp_path: Path) -> None:
    # Names of WikiExtractor's files; and a README among .txt files is not read.
    wiki = make(tmp_path / "wiki", {"AA/wiki_00": b"a", "AA/wiki_01": b"b"})
    assert listed(Corpus(wiki), wiki)[0] == ["AA/wiki_00", "AA/wiki_01"]
    texts = make(tmp_path / "texts", {"train.txt": b"a", "README.md": b"b", "more": b"c"})
    assert listed(Corpus(texts), texts) == (
        ["more", "train.txt"],
        {"README.md": "about the corpus"},
    )


def test_an_input_format_is_for_files_of_any_name(tmp_path: Path) -> None:
    folder = make(tmp_path / "out", {"part-00000": RECORDS, "_SUCCESS": b"", "README": b"x"})
    read, skipped = listed(Corpus(folder, input_format="jsonl"), folder)
    assert read == ["part-00000"]
    assert set(skipped) == {"_SUCCESS", "README"}


def test_saved_datasets(tmp_path: Path) -> None:
    names = ("data-00000-of-00001.arrow", "dataset_info.json", "state.json")
    folder = make(tmp_path / "saved", dict.fromkeys(names, b"{}"))
    assert listed(Corpus(folder, input_format="text"), folder)[0] == [names[0]]


def test_include_and_exclude(shards: Path, tmp_path: Path) -> None:
    read, _ = listed(Corpus(shards, include=["*.md", "deep/*"]), shards)
    assert read == ["README.md", "deep/empty.jsonl", "deep/part-1.jsonl.gz"]
    read, _ = listed(Corpus(shards, include="*.jsonl*", exclude="deep/*"), shards)
    assert read == ["part-0.jsonl"]
    read, _ = listed(Corpus(str(shards / "*"), exclude="*.log"), shards)
    assert "notes.log" not in read
    assert "README.md" in read
    with pytest.raises(bytemill.CorpusError, match="all of its files are skipped") as caught:
        Corpus(shards, include="*.parquet").entries()
    assert "include=" in str(caught.value.hint)
    with pytest.raises(bytemill.ConfigError, match="include"):
        Corpus(shards, include=[""])
    # On the command line, and when the tokens are checked against their source.
    ok("train-tokenizer", shards, "--include", "*.md", "-o", tmp_path / "t.json")
    out = tmp_path / "tokens"
    chosen = ("--include", "*.md", "--include", "*.log", "--exclude", "notes*")
    ok("encode", shards, *chosen, "-t", tmp_path / "t.json", "-o", out)
    tokens = bytemill.Tokens(out)
    assert [Path(source["path"]).name for source in tokens.manifest["sources"]] == ["README.md"]
    ok("verify", out, "-t", tmp_path / "t.json", "--source", shards, *chosen)
    assert run("verify", out, "-t", tmp_path / "t.json", "--source", shards).code == 1


def test_remote_directories_have_the_same_rule(shards: Path) -> None:
    fsspec: Any = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    try:
        for path in shards.rglob("*"):
            if path.is_file():
                system.pipe_file(f"/chosen/{path.relative_to(shards)}", path.read_bytes())
        found = Corpus("memory://chosen").listing()
        names = [entry.name.removeprefix("memory:///chosen/") for entry in found.entries]
        assert names == ["deep/empty.jsonl", "deep/part-1.jsonl.gz", "extra.txt", "part-0.jsonl"]
        reasons = {f.name.removeprefix("memory:///chosen/"): f.reason for f in found.skipped}
        assert reasons == SKIPPED
        one = Corpus("memory://chosen", include="*.md").listing()
        assert [entry.name for entry in one.entries] == ["memory:///chosen/README.md"]
    finally:
        system.store.clear()


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_members_of_archives(kind: str, tmp_path: Path) -> None:
    members = {
        "README.md": b"# About",
        "data/part.jsonl": RECORDS,
        "data/_SUCCESS": b"",
        "data/more.txt": b"plain",
        "code/a.py": b"x = 1",
    }
    path = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    counts = bytemill.count_corpus(path)
    assert counts.bytes_read == N_TEXT + len("plain") + len("x = 1")
    assert counts.skipped == {"stray_file": 2}
    only = bytemill.count_corpus(Corpus(path, include="*.md"))
    assert (only.bytes_read, only.skipped) == (len("# About"), {})
    some = bytemill.count_corpus(Corpus(path, exclude=["*.md", "code/*", "_*"]))
    assert (some.bytes_read, some.skipped) == (N_TEXT + len("plain"), {})


def test_files_are_chosen_by_name_size_and_content() -> None:
    def reasons(*files: Candidate, **how: Any) -> list[str | None]:
        return choosing.chosen(files, how.pop("include", ()), how.pop("exclude", ()), **how)

    # Where contents are expensive to look at, they are not.
    assert reasons(Candidate("a"), Candidate("b.bin", 9)) == [None, None]
    assert reasons(Candidate("a.zip"), Candidate("b.py")) == [None, "unknown format"]
    assert reasons(Candidate("LICENSE"), Candidate("b.py")) == [None, None]
    assert reasons(Candidate("a.json", 0), by_globs_alone=True) == [None]
    many = [SkippedFile(f"{n}", "empty") for n in range(9)]
    assert choosing.describe(many).endswith("4 (empty) and 4 more")


# --- dry runs -------------------------------------------------------------------------------------


def test_a_dry_run_lists_and_estimates_and_writes_nothing(shards: Path, tmp_path: Path) -> None:
    tokenizer = tmp_path / "t.json"
    bytemill.train_tokenizer(iter(["some text"]), vocab_size=260).save(tokenizer)
    before = sorted(tmp_path.rglob("*"))
    commands: list[tuple[Any, ...]] = [
        ("count", shards, "-o", tmp_path / "a.counts"),
        ("train-tokenizer", shards, "-o", tmp_path / "new.json", "--vocab-size", "1k"),
        ("encode", shards, "-t", tokenizer, "-o", tmp_path / "tokens"),
        ("compare", tokenizer, shards),
    ]
    for command in commands:
        result = ok(*command, "--dry-run", "--json")
        facts = result.json
        assert facts["dry_run"] is True
        named = [(Path(f["file"]).name, f["format"]) for f in facts["files"]]
        assert named == [
            ("empty.jsonl", "jsonl"),
            ("part-1.jsonl.gz", "jsonl.gz"),
            ("extra.txt", "text"),
            ("part-0.jsonl", "jsonl"),
        ]
        assert len(facts["skipped_files"]) == 6
        # All of it is within the sample.
        assert facts["bytes"] == 2 * N_TEXT + len("plain")
        assert facts["file_bytes"] == sum(file["file_bytes"] for file in facts["files"])
        assert facts["estimate"]["seconds"] >= 0
        assert facts["estimate"]["memory"] > 1_000_000
        text = ok(*command, "--dry-run").text
        for part in ("part-0.jsonl", "README.md", "about the corpus", "total: 4 files", "estimate"):
            assert part in text
    assert sorted(tmp_path.rglob("*")) == before
    assert run("count", "-", "-o", tmp_path / "x", "--dry-run", stdin=b"text").code == 2


def test_the_text_of_compressed_files_is_estimated_from_a_sample(
    tmp_path: Path, documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bytemill import preview

    text = "".join(documents)[:3_000_000].encode()
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(text, 1))
    # Less than the file, but more than one read.
    monkeypatch.setattr(preview, "FILE_SAMPLE", 1_800_000)
    work = preview.CountingWork(["gpt2"], [], 1, None)
    found = preview.preview(Corpus(path), work)
    assert 1_500_000 < found.sample_bytes < 2_400_000
    assert found.text_bytes == pytest.approx(len(text), rel=0.3)


def test_warnings_name_nothing_if_nothing_is_skipped(tmp_path: Path) -> None:
    make(tmp_path, {"a.txt": b"x", ".hidden": b"y"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Corpus(tmp_path).entries()) == 1
