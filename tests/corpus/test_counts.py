"""Counts: files, sums, learning from them, and spilling to disk under a memory limit."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bytemill
import generated
import reference
from bytemill import Counts, _native, count_corpus
from bytemill._options import LearnOptions
from bytemill.learn import TieBreak

EOT = "<|endoftext|>"


@pytest.fixture(scope="module")
def halves(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The corpus in two files."""
    folder = tmp_path_factory.mktemp("halves")
    documents = corpus.read_bytes().split(EOT.encode())
    middle = len(documents) // 2
    paths = [folder / "a.txt", folder / "b.txt"]
    for path, part in zip(paths, (documents[:middle], documents[middle:])):
        path.write_bytes(EOT.encode().join(part))
    return paths


def tight(counts: _native.Counts, folder: Path) -> _native.Counts:
    """Sets a limit so low that everything is spilled to disk at once."""
    counts.set_limit(0, 0, folder)
    return counts


# --- the class ------------------------------------------------------------------------------------


@given(st.lists(generated.data, min_size=1, max_size=4).filter(any))
@settings(max_examples=30)
def test_counts_are_those_of_the_naive_counter(documents: list[bytes]) -> None:
    expected = reference.count(documents, generated.SPECIALS, "cl100k")
    counts = count_corpus(iter(documents), pattern="cl100k", special_tokens=generated.SPECIALS)
    assert list(counts) == sorted(expected.items())
    assert len(counts) == len(expected)
    assert counts.total == sum(expected.values())
    assert counts.bytes_read == sum(map(len, documents))
    assert counts.pattern == "cl100k"
    assert counts.special_tokens == sorted(generated.SPECIALS, key=str.encode)
    order = sorted(expected.items(), key=lambda item: (-item[1], item[0]))
    assert counts.top(3) == order[:3]
    assert counts.top(10**6) == order


def test_counts_are_not_constructed_directly() -> None:
    with pytest.raises(TypeError, match="count_corpus"):
        Counts()
    counts = count_corpus(iter(["a b"]), pattern=["gpt2", r"\w"])
    assert counts.pattern == ["gpt2", r"\w"]
    assert repr(counts) == "<Counts of 3 bytes: 3 different pieces, pattern ['gpt2', '\\\\w']>"


def test_files_round_trip_and_equal_counts_give_equal_files(
    halves: list[Path], tmp_path: Path
) -> None:
    whole = count_corpus(halves)
    whole.save(tmp_path / "whole.counts")
    loaded = Counts.load(tmp_path / "whole.counts")
    assert list(loaded) == list(whole)
    for name in ("bytes_read", "total", "pattern", "special_tokens", "fingerprint"):
        assert getattr(loaded, name) == getattr(whole, name)
    first, second = count_corpus(halves[0], threads=1), count_corpus(halves[1])
    first.merge(second)
    first.save(tmp_path / "sum.counts")
    assert (tmp_path / "sum.counts").read_bytes() == (tmp_path / "whole.counts").read_bytes()
    assert len(second) < len(first)
    with pytest.raises(FileExistsError, match=r"sum\.counts"):
        first.save(tmp_path / "sum.counts")
    # A file may be replaced while its counts are in use: they are read from it to its end first.
    loaded.save(tmp_path / "whole.counts", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["sum.counts", "whole.counts"]


def test_counts_of_another_kind_are_not_merged(tmp_path: Path) -> None:
    counts = count_corpus(iter(["a b"]))
    for options in ({"pattern": "o200k"}, {"special_tokens": ["<x>"]}):
        other = count_corpus(iter(["a b"]), **options)
        with pytest.raises(bytemill.ConfigError, match="cannot be merged") as caught:
            counts.merge(other)
        assert "gpt2" in caught.value.message
        assert (options.get("pattern") or "<x>") in caught.value.message
    with pytest.raises(bytemill.ConfigError, match="themselves"):
        counts.merge(counts)


@given(data=st.data())
@settings(max_examples=60)
def test_damaged_files_are_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("damaged") / "a.counts"
    count_corpus(iter(["some words and some more words"])).save(path)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    path.write_bytes(content)
    with pytest.raises((bytemill.CorpusError, bytemill.ConfigError), match=r"a\.counts") as caught:
        Counts.load(path)
    assert caught.value.hint


def test_a_file_that_is_not_a_counts_file(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(bytemill.CorpusError, match="not a counts file"):
        Counts.load(corpus)
    with pytest.raises(FileNotFoundError, match="missing"):
        Counts.load(tmp_path / "missing.counts")
    with pytest.raises(bytemill.CorpusError, match="not a regular file"):
        Counts.load(tmp_path)


# --- learning -------------------------------------------------------------------------------------


def test_learning_from_counts_is_learning_from_the_corpus(
    halves: list[Path], tmp_path: Path
) -> None:
    expected = bytemill.train_tokenizer(halves, vocab_size=1000)
    counts = count_corpus(halves)
    assert bytemill.train_tokenizer(counts=counts, vocab_size=1000) == expected
    counts.save(tmp_path / "a.counts")
    loaded = Counts.load(tmp_path / "a.counts")
    assert bytemill.train_tokenizer(counts=loaded, vocab_size=1000) == expected
    # The counts are kept, for another vocabulary size.
    assert bytemill.train_tokenizer(counts=counts, vocab_size=600) == expected.with_vocab_size(600)
    larger = bytemill.train_tokenizer(counts=loaded, vocab_size=1100, extend_from=expected)
    assert larger.merges[:743] == expected.merges


def test_options_must_agree_with_the_counts() -> None:
    counts = count_corpus(iter(["a b a b"]), special_tokens=["<b>", "<a>"])
    learn = bytemill.train_tokenizer
    assert learn(counts=counts, vocab_size=259).special_tokens == {"<a>": 257, "<b>": 258}
    tokenizer = learn(counts=counts, vocab_size=259, special_tokens=["<b>", "<a>"], pattern="gpt2")
    assert tokenizer.special_tokens == {"<b>": 257, "<a>": 258}
    for options, named in [
        ({"pattern": "o200k"}, "pattern is 'o200k'"),
        ({"special_tokens": ["<a>"]}, "special tokens are <a>, but"),
        ({"special_tokens": []}, "special tokens are none, but"),
    ]:
        with pytest.raises(bytemill.ConfigError, match=named):
            learn(counts=counts, vocab_size=300, **options)
    for both in ({}, {"corpus": iter(["a"]), "counts": counts}):
        with pytest.raises(TypeError, match="either a corpus or counts"):
            learn(vocab_size=300, **both)


# --- memory ---------------------------------------------------------------------------------------


@given(
    st.lists(generated.data, min_size=1, max_size=5).filter(any),
    st.sampled_from(["gpt2", "o200k"]),
    st.integers(1, 4),
)
@settings(max_examples=40)
def test_spilled_counts_are_complete(
    tmp_path_factory: pytest.TempPathFactory, documents: list[bytes], pattern: str, threads: int
) -> None:
    folder = tmp_path_factory.mktemp("spill")
    counts = tight(_native.Counts([pattern], generated.SPECIALS, threads), folder)
    for document in documents:
        counts.add_texts([document])
    assert dict(counts.items()) == reference.count(documents, generated.SPECIALS, pattern)
    assert all(name.startswith("bytemill-spill-") for name in os.listdir(folder))
    counts.clear()
    assert os.listdir(folder) == []
    assert len(counts) == 0


def test_a_limit_does_not_change_the_tokenizer(halves: list[Path], tmp_path: Path) -> None:
    counts = tight(_native.Counts(["gpt2"], [EOT], 2), tmp_path)
    for half in halves:
        counts.add_files([str(half)])
    spilled = Counts._of(counts)
    for tie_break in get_args(TieBreak):
        expected = bytemill.train_tokenizer(halves, vocab_size=1000, tie_break=tie_break)
        assert expected == bytemill.train_tokenizer(
            counts=spilled, vocab_size=1000, tie_break=tie_break
        )


def test_counts_too_large_to_merge_are_refused_early(corpus: Path) -> None:
    counts = _native.Counts(["gpt2"], [EOT], 2)
    counts.add_files([str(corpus)])
    options = LearnOptions(vocab_size=1000, special_tokens=[EOT])
    counts.set_limit(6_000_000, 50_000_000)
    with pytest.raises(bytemill.ConfigError, match="the limit is 50 MB") as caught:
        _native.learn(counts, options)
    assert caught.value.hint is not None
    least = int(caught.value.hint.partition("min_piece_count=")[2].split()[0])
    assert least > 1
    with pytest.raises(bytemill.ConfigError):
        _native.learn(counts, replace(options, min_piece_count=least - 1))
    _native.learn(counts, replace(options, min_piece_count=least))


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_a_disk_that_fills_up_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    # A file size limit fails writes like a full disk, but with another errno.
    script = """
import resource, sys
from bytemill import _native
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
counts = _native.Counts(["gpt2"], [], 2)
counts.set_limit(0, 0, sys.argv[1])
text = " ".join("%x" % (n * 0x9e3779b97f4a7c15 % 2**64) for n in range(50_000))
try:
    counts.add_texts([text])
    counts.add_texts([text])
    len(counts)
except OSError as error:
    print(error.errno, error.filename == sys.argv[1])
"""
    command = [sys.executable, "-c", script, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split() == [str(errno.EFBIG), "True"], done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("step", ["spill", "gather", "save"])
def test_ctrl_c_while_on_disk(tmp_path: Path, step: str) -> None:
    script = """
import os, signal, sys, threading, time
from bytemill import _native
step, folder = sys.argv[1:]
counts = _native.Counts(["gpt2"], [], 2)
counts.set_limit(0, 0, folder)
def text(seed):
    return " ".join("%x" % (n * (seed * 2 + 0x9e3779b97f4a7c15) % 2**64) for n in range(100_000))
texts = [text(n) for n in range(4)]
if step != "spill":
    for n in range(12):
        counts.add_texts([texts[n % 4]])
if step == "save":
    len(counts)
def interrupt():
    global sent
    sent = time.perf_counter()
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.15, interrupt).start()
try:
    while True:
        if step == "spill":
            counts.add_texts(texts)
        elif step == "gather":
            len(counts)
            counts.add_texts(["a"])
        else:
            counts.save(folder + "/a.counts")
            os.unlink(folder + "/a.counts")
except KeyboardInterrupt:
    print(time.perf_counter() - sent)
counts.clear()
"""
    command = [sys.executable, "-c", script, step, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert float(done.stdout) < 0.5, done.stderr
    # The interruption may have come between two calls, when the file was whole.
    assert set(os.listdir(tmp_path)) <= ({"a.counts"} if step == "save" else set())


def test_temporary_files_are_removed_with_the_object_or_at_exit(tmp_path: Path) -> None:
    script = """
import sys, os
from bytemill import Counts, _native
native = _native.Counts(["gpt2"], [], 1)
native.set_limit(0, 0, sys.argv[1])
native.add_texts(["a b c"])
native.add_texts(["a b c"])
counts = Counts._of(native)
print(len(os.listdir(sys.argv[1])))
keep = [counts]; keep.append(keep)
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr
    assert os.listdir(tmp_path) == []


SPILLS = """
import os, signal, sys
from bytemill import _native
counts = _native.Counts(["gpt2"], [], 1)
counts.set_limit(0, 0, sys.argv[1])
counts.add_texts(["a b c"])
counts.add_texts(["a b c"])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_the_next_run_removes_temporaries_of_a_killed_process(tmp_path: Path) -> None:
    """Issue 13, 10: spilled counts, and half a counts file."""
    (tmp_path / "bytemill-spill-notes.txt").write_text("mine")
    living = tight(_native.Counts(["gpt2"], [], 1), tmp_path)
    living.add_texts(["a b c"])
    living.add_texts(["a b c"])
    before = sorted(os.listdir(tmp_path))
    assert len(before) == 2
    subprocess.run([sys.executable, "-c", SPILLS, tmp_path], check=False)
    assert len(os.listdir(tmp_path)) == 3
    tight(_native.Counts(["gpt2"], [], 1), tmp_path)
    assert sorted(os.listdir(tmp_path)) == before
    assert len(living) == 3
    living.clear()
    (tmp_path / ".a.counts.01234567.bytemill").write_bytes(b"half")
    count_corpus(iter(["a b c"])).save(tmp_path / "a.counts")
    assert sorted(os.listdir(tmp_path)) == ["a.counts", "bytemill-spill-notes.txt"]
