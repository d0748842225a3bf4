"""`bytemill count` and `train-tokenizer --counts`: steps that survive an interruption."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bytemill
from bytemill import count_corpus, count_to_file
from bytemill.engines import Local
from command_line import ok, run, start

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


@pytest.fixture(scope="module")
def parts(documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a file per document."""
    folder = tmp_path_factory.mktemp("parts")
    for number, document in enumerate(documents[:60]):
        (folder / f"{number:03}.txt").write_text(document, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def expected(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("expected") / "a.counts"
    bytemill.count_corpus(parts).save(path)
    return path.read_bytes()


class Stopped(Exception):
    """Raised in the middle of the work."""


def interrupted(parts: Path, output: Path, after: int, unit_size: int = 200_000) -> None:
    """Counts some units and stops."""

    def stop(event: bytemill.ProgressEvent) -> None:
        if event.done > after:
            raise Stopped

    with pytest.raises(Stopped):
        count_to_file(parts, output, engine=Local(unit_size=unit_size), progress=stop)


@pytest.mark.parametrize("unit_size", [5_000, 300_000, 10**9])
def test_units_do_not_matter(parts: Path, tmp_path: Path, expected: bytes, unit_size: int) -> None:
    counts = count_to_file(parts, tmp_path / "a.counts", engine=Local(unit_size=unit_size))
    assert (tmp_path / "a.counts").read_bytes() == expected
    assert os.listdir(tmp_path) == ["a.counts"]
    assert counts.bytes_read == sum(path.stat().st_size for path in parts.iterdir())


def test_an_interrupted_run_resumes(parts: Path, tmp_path: Path, expected: bytes) -> None:
    output = tmp_path / "a.counts"
    interrupted(parts, output, 600_000)
    partial = tmp_path / "a.counts.partial"
    assert os.listdir(tmp_path) == [partial.name]
    kept = {path.name: path.stat().st_mtime_ns for path in partial.glob("*.counts")}
    assert kept
    with pytest.raises(bytemill.ConfigError, match="of an interrupted run") as caught:
        count_to_file(parts, output)
    assert "resume=True" in str(caught.value.hint)
    # Leftovers of a killed process do no harm: a temporary file, a spill directory.
    (partial / ".a.counts.01234567.bytemill").write_bytes(b"half")
    (partial / "bytemill-spill-1-0").mkdir()
    reported = []

    def watch(event: bytemill.ProgressEvent) -> None:
        if event.phase == "count":
            assert all(
                (partial / name).stat().st_mtime_ns == changed for name, changed in kept.items()
            )
            reported.append(event.done)

    count_to_file(parts, output, resume=True, engine=Local(unit_size=200_000), progress=watch)
    # What the first run counted is part of the progress, as soon as its text can be estimated.
    assert reported[-1] == sum(path.stat().st_size for path in parts.iterdir())
    assert reported[0] == 0 or reported[0] > 600_000
    assert output.read_bytes() == expected
    assert os.listdir(tmp_path) == [output.name]


def test_what_changed_is_counted_again(parts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for path in sorted(parts.iterdir())[:40]:
        (folder / path.name).write_bytes(path.read_bytes())
    output = tmp_path / "a.counts"
    first = folder / "000.txt"
    interrupted(folder, output, 600_000, 100_000)

    def resume(**options: object) -> None:
        count_to_file(folder, output, resume=True, engine=Local(unit_size=100_000), **options)

    with pytest.raises(bytemill.ConfigError, match="a different pattern"):
        resume(pattern="o200k")
    # A file that is gone, one that has changed, and a new one.
    (folder / "001.txt").unlink()
    first.write_text("something else")
    (folder / "later.txt").write_text("some more")
    resume()
    bytemill.count_corpus(folder).save(tmp_path / "b.counts")
    assert output.read_bytes() == (tmp_path / "b.counts").read_bytes()
    interrupted(folder, tmp_path / "c.counts", 600_000, 100_000)
    count_to_file(folder, tmp_path / "c.counts", overwrite=True)
    assert (tmp_path / "c.counts").read_bytes() == output.read_bytes()


KILLED = """
import sys
from bytemill import count_to_file
from bytemill.engines import Local
engine = Local(unit_size=100_000)
count_to_file(sys.argv[1], sys.argv[2], resume=True, engine=engine, progress=False)
"""


@pytest.mark.slow
@POSIX
def test_killed_anywhere(parts: Path, tmp_path: Path, expected: bytes) -> None:
    output = tmp_path / "a.counts"
    command = [sys.executable, "-c", KILLED, parts, output]
    began = time.perf_counter()
    subprocess.run(command, check=True)
    whole = time.perf_counter() - began
    output.unlink()
    chance = random.Random(1)
    partial = tmp_path / "a.counts.partial"
    for _ in range(8):
        process = subprocess.Popen(command)
        time.sleep(chance.uniform(0.2, 1.1) * whole)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if output.exists():
            # The file is complete, even if its parts are still there.
            assert output.read_bytes() == expected
            if not partial.exists():
                output.unlink()
    # The next run removes all leftovers of a killed process.
    subprocess.run(command, check=True)
    assert output.read_bytes() == expected
    assert os.listdir(tmp_path) == [output.name]


def test_resuming_finished_work_leaves_it_as_it_is(parts: Path, tmp_path: Path) -> None:
    """Issue 13, 12."""
    output = tmp_path / "a.counts"
    ok("count", parts, "-o", output, "-q")
    stamp = output.stat().st_mtime_ns
    result = ok("count", parts, "-o", output, "--resume", "--json")
    assert result.json["bytes"] == sum(path.stat().st_size for path in parts.iterdir())
    assert output.stat().st_mtime_ns == stamp
    assert os.listdir(tmp_path) == [output.name]
    first = min(parts.iterdir())
    for words, said in (
        ([parts, "--pattern", "cl100k"], "a different pattern"),
        ([first], "bytes of text, not"),
    ):
        result = run("count", *words, "-o", output, "--resume")
        assert (result.code, said in result.said) == (1, True), result.said
        assert "--overwrite" in result.said
    times = first.stat().st_atime_ns, first.stat().st_mtime_ns
    os.utime(first, ns=(times[0], stamp + 1))
    try:
        assert "changed since" in run("count", parts, "-o", output, "--resume").said
    finally:
        os.utime(first, ns=times)
    output.write_bytes(b"something else")
    assert "not a counts file" in run("count", parts, "-o", output, "--resume").said


@POSIX
def test_two_writers(parts: Path, tmp_path: Path) -> None:
    """Issue 13, 8."""
    output = tmp_path / "a.counts"
    process = start("count", *[parts] * 100, "-o", output, "-q", "--threads", 1)
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "a.counts.partial").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGSTOP)
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(bytemill.ConfigError, match=f"process {process.pid} is writing"):
                count_to_file(parts, output, **options)
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / ".a.counts.lock").exists()
    count_to_file(parts, output, overwrite=True)
    assert os.listdir(tmp_path) == [output.name]


def test_a_foreign_directory_of_parts_is_kept(parts: Path, tmp_path: Path) -> None:
    output, foreign = tmp_path / "a.counts", tmp_path / "a.counts.partial" / "notes.txt"
    foreign.parent.mkdir()
    foreign.write_text("mine")
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(bytemill.ConfigError, match=r"such as notes\.txt"):
            count_to_file(parts, output, **options)
    assert foreign.read_text() == "mine"


def test_edited_or_damaged_parts_are_refused(parts: Path, tmp_path: Path) -> None:
    output, partial = tmp_path / "a.counts", tmp_path / "a.counts.partial"
    interrupted(parts, output, 600_000)
    for path in (partial / "options.json", next(partial.glob("*.counts"))):
        whole = path.read_bytes()
        for damaged in (whole[:-3], whole.replace(b"text", b"test", 1), b"{}\n"):
            assert damaged != whole
            path.write_bytes(damaged)
            with pytest.raises(bytemill.CorpusError, match=path.name):
                count_to_file(parts, output, resume=True, engine=Local(unit_size=200_000))
        path.write_bytes(whole)
    count_to_file(parts, output, resume=True, engine=Local(unit_size=200_000))


# --- the command line -----------------------------------------------------------------------------


def test_count_then_train(parts: Path, tmp_path: Path) -> None:
    files = sorted(parts.iterdir())
    for name, some in (("a", files[:30]), ("b", files[30:])):
        result = ok("count", *some, "-o", tmp_path / f"{name}.counts", "--memory-limit", "8GB")
        assert "saved " in result.said
        assert f"--counts {tmp_path / name}.counts" in result.said
    ok("train-tokenizer", "--counts", tmp_path / "*.counts", "-o", tmp_path / "t.json",
       "--vocab-size", 700, "-q")  # fmt: skip
    ok("train-tokenizer", parts, "-o", tmp_path / "u.json", "--vocab-size", 700, "-q")
    assert (tmp_path / "t.json").read_bytes() == (tmp_path / "u.json").read_bytes()
    assert len(os.listdir(tmp_path)) == 4
    message = run("train-tokenizer", "--counts", tmp_path / "a.counts", "-o", tmp_path / "v.json",
                  "--pattern", "o200k").said  # fmt: skip
    assert "the counts were made with 'gpt2'" in message


def test_count_as_json(parts: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.counts"
    result = ok("count", parts, "-o", output, "--json", "--special-token", "<x>", "--pattern",
                "cl100k")  # fmt: skip
    counts = bytemill.Counts.load(output)
    shown = result.json
    assert shown.pop("seconds") >= 0
    assert shown == {
        "counts": str(output),
        "bytes": counts.bytes_read,
        "file_bytes": counts.bytes_read,
        "pieces": len(counts),
        "total": counts.total,
        "skipped": {},
        "skipped_files": [],
        "pattern": "cl100k",
        "special_tokens": ["<x>"],
        "fingerprint": counts.fingerprint,
    }
    assert {event["phase"] for event in result.events} <= {"count", "gather"}


def test_count_from_stdin(tmp_path: Path) -> None:
    ok("count", "-", "-o", tmp_path / "a.counts", "-q", "--no-special-tokens", stdin=b"a b a")
    counts = bytemill.Counts.load(tmp_path / "a.counts")
    assert dict(counts) == {b"a": 1, b" a": 1, b" b": 1}
    assert counts.special_tokens == []


@pytest.mark.parametrize(
    ("line", "code", "named"),
    [
        ("count -o a.counts", 2, "missing argument"),
        ("count x.txt", 2, "missing option"),
        ("count x.txt -o a.counts --resume --overwrite", 2, "contradicts"),
        ("count - -o a.counts --resume", 2, "stdin"),
        ("count x.txt -o a.counts --memory-limit lots", 1, "not a size"),
        ("count x.txt -o a.counts --memory-limit 5MB", 1, "too small"),
        ("count missing.txt -o a.counts", 1, "missing.txt"),
        ("count x.txt -o missing/a.counts", 1, "missing"),
        ("count x.txt -o y.counts", 1, "y.counts"),
        ("train-tokenizer -o t.json", 2, "--counts"),
        ("train-tokenizer x.txt --counts y.counts -o t.json", 2, "not both"),
        ("train-tokenizer --counts y.counts -o t.json", 1, "not a counts file"),
        ("train-tokenizer --counts *.none -o t.json", 1, "no file matches"),
    ],
)
def test_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.txt").write_text("some text")
    Path("y.counts").write_text("not counts, but long enough to be looked at")
    result = run(*line.split())
    assert (result.code, named in result.said) == (code, True), result.said
    assert sorted(os.listdir()) == ["x.txt", "y.counts"]


@pytest.mark.parametrize(
    "content", ["\n\n", '{"text": ""}\n', '{"text": null}\n', '{"other": 1}\n']
)
def test_a_failure_keeps_the_old_output(tmp_path: Path, content: str) -> None:
    corpus, output = tmp_path / "x.jsonl", tmp_path / "a.counts"
    corpus.write_text(content)
    options = {"null": "skip"} if "null" in content else {}
    with pytest.raises(bytemill.CorpusError):
        count_to_file(bytemill.Corpus(corpus, **options), output)
    # Nothing was finished, so there is nothing to resume or to overwrite.
    assert os.listdir(tmp_path) == [corpus.name]
    good = bytemill.count_corpus(iter(["some text"]))
    good.save(output)
    with pytest.raises(bytemill.CorpusError):
        count_to_file(bytemill.Corpus(corpus, **options), output, overwrite=True)
    assert dict(bytemill.Counts.load(output)) == dict(good)
    assert sorted(os.listdir(tmp_path)) == [output.name, corpus.name]


@POSIX
def test_ctrl_c_keeps_finished_units(parts: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.counts"
    process = start("count", *[parts] * 100, "-o", output, "--json")
    try:
        assert process.stderr is not None
        partial = tmp_path / "a.counts.partial"
        deadline = time.monotonic() + 20
        while not list(partial.glob("*.counts")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    finally:
        process.kill()
    if process.returncode == 0:
        pytest.skip("too fast to be interrupted")
    assert process.returncode == 130
    assert json.loads(err.splitlines()[-1]) == {"event": "interrupted"}
    assert os.listdir(tmp_path) == ["a.counts.partial"]
    names = os.listdir(partial)
    assert "options.json" in names
    assert all(name == "options.json" or name.endswith(".counts") for name in names)


@pytest.mark.parametrize("to_file", [False, True])
def test_a_source_that_changes_while_it_is_counted(tmp_path: Path, to_file: bool) -> None:
    source = tmp_path / "a.txt"
    source.write_text("some words " * 1000)

    def change(_: object) -> None:
        os.utime(source, (1, 1))

    def count() -> object:
        if to_file:
            return count_to_file(source, tmp_path / "a.counts", progress=change)
        return count_corpus(source, progress=change)

    with pytest.warns(UserWarning, match=r"a\.txt: changed while it was counted"):
        count()
