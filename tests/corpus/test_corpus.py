"""What a corpus may be, and what is refused before any work is done."""

from __future__ import annotations

import codecs
import gzip
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bytemill
import reference
from bytemill import _native
from bytemill.corpus import places

EOT = "<|endoftext|>"


def test_paths_globs_directories_and_iterators_are_the_same_corpus(
    tmp_path: Path, documents: list[str]
) -> None:
    for i, text in enumerate(documents[:5]):
        (tmp_path / f"part-{i}.txt").write_bytes(text.encode())
    parts = sorted(tmp_path.iterdir())
    made = [
        bytemill.train_tokenizer(corpus, vocab_size=400)
        for corpus in (
            tmp_path,
            str(tmp_path / "*.txt"),
            [str(part) for part in parts],
            parts,
            iter(documents[:5]),
            (text.encode() for text in documents[:5]),
        )
    ]
    assert len({tokenizer.fingerprint for tokenizer in made}) == 1


def test_directories(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("a.txt", "inner/b.txt", "inner/.hidden", ".git/objects/c", "../other/d.txt"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("x")
    (data / "link").symlink_to(tmp_path / "other")
    (data / "inner" / "round").symlink_to(data)
    found = [str(Path(path).relative_to(data)) for path in places.expand(str(data))]
    assert found == ["a.txt", "inner/b.txt", "link/d.txt"]
    # `**` follows links, too.
    found = [str(Path(path).relative_to(data)) for path in places.expand(f"{data}/**/*.txt")]
    assert found == ["a.txt", "inner/b.txt", "link/d.txt"]
    (data / "inner" / "again").symlink_to("../inner/round/inner")
    found = [str(Path(path).relative_to(data)) for path in places.expand(f"{data}/**/b.txt")]
    assert found == ["inner/b.txt"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_directory_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(PermissionError):
        bytemill.count_corpus(tmp_path)


@pytest.mark.parametrize("text", ["some text", "long " * 1000, "with\0zero"])
def test_a_list_of_texts(text: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"iter\(texts\)") as caught:
        bytemill.count_corpus([text])
    assert len(str(caught.value)) < 300


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(bytemill.CorpusError, match="not a regular file"):
        bytemill.count_corpus(tmp_path / "pipe")


def test_an_iterator_is_streamed() -> None:
    held = 0

    def texts() -> Iterator[str]:
        nonlocal held
        for i in range(300):
            text = Text("word " * 20_000 + str(i))
            yield text
            assert held < 200, "the texts pile up"

    class Text(str):
        def __init__(self, _: str) -> None:
            nonlocal held
            held += 1

        def __del__(self) -> None:
            nonlocal held
            held -= 1

    assert len(bytemill.train_tokenizer(texts(), vocab_size=262)) == 262


def test_train_bpe_has_the_shape_of_the_course(corpus: Path) -> None:
    vocab, merges = bytemill.train_bpe(corpus, 500, [EOT])
    assert [vocab[i] for i in range(256)] == [bytes([i]) for i in range(256)]
    assert [vocab[256 + i] for i in range(len(merges))] == [a + b for a, b in merges]
    assert vocab[499] == EOT.encode()
    assert len(vocab) == 500
    bytemill.Tokenizer(vocab, merges, [EOT])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (codecs.BOM_UTF16_LE + "plain text".encode("utf-16-le"), "UTF-16"),
        ("plain text, no mark at its head\n".encode("utf-16-le") * 9, "UTF-16"),
        ("plain text, no mark at its head\n".encode("utf-16-be") * 9, "UTF-16"),
        (codecs.BOM_UTF32_LE + "plain text".encode("utf-32-le"), "UTF-32"),
        ("plain text, no mark at its head\n".encode("utf-32-le") * 9, "UTF-32"),
        ("plain text, no mark at its head\n".encode("utf-32-be") * 9, "UTF-32"),
        (b"\x7fELF\x02\x01\x01" + random.Random(1).randbytes(5000), "binary"),
        (gzip.compress(random.Random(2).randbytes(5000)), "binary"),
    ],
)
def test_a_file_that_is_not_text_is_refused_by_name(
    tmp_path: Path, content: bytes, named: str
) -> None:
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("some text")
    bad.write_bytes(content)
    with pytest.raises(bytemill.CorpusError, match=named) as caught:
        bytemill.train_tokenizer([good, bad], vocab_size=257)
    assert str(bad) in caught.value.message
    assert caught.value.hint


def test_text_that_is_not_utf_8_is_counted_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes("déjà vu, déjà vu, déjà vu\n".encode("latin-1") * 40)
    counts = _native.Counts(["gpt2"], [], 2)
    counts.add_files([str(file)])
    assert dict(counts.items()) == reference.count([file.read_bytes()], [], "gpt2")


def test_an_empty_corpus_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    for corpus in (empty, [empty, empty], iter([]), iter(["", b""])):
        with pytest.raises(bytemill.CorpusError, match="no text"):
            bytemill.train_tokenizer(corpus, vocab_size=300)
    with pytest.raises(bytemill.CorpusError, match="empty list"):
        bytemill.train_tokenizer([], vocab_size=300)
    with pytest.raises(bytemill.CorpusError, match="no file matches"):
        bytemill.train_tokenizer(str(tmp_path / "*.nothing"), vocab_size=300)
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        bytemill.train_tokenizer(tmp_path / "missing.txt", vocab_size=300)


class _Unread:
    """An iterator that must not be read."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> str:
        raise AssertionError("the corpus was read before the options were checked")


UNREAD = _Unread()


# --- impossible options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"vocab_size": 256},
        {"vocab_size": 0},
        {"vocab_size": 258, "special_tokens": ["a", "b", "c"]},
        {"special_tokens": ["a", "a"]},
        {"special_tokens": [""]},
        {"tie_break": "alphabet"},
        {"vocab_size": 2**70},
        {"min_frequency": -1},
        {"min_piece_count": -1},
        {"max_token_length": 0},
        {"max_token_length": -1},
        {"threads": 0},
        {"threads": -1},
        {"pattern": "("},
        {"pattern": "no-such-name("},
        {"pattern": []},
    ],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(bytemill.ConfigError) as caught:
        bytemill.train_tokenizer(UNREAD, **({"vocab_size": 260} | options))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "options",
    [
        {"vocab_size": "32k"},
        {"vocab_size": 3e4},
        {"vocab_size": None},
        {"min_frequency": 1.5},
        {"min_piece_count": "2"},
        {"max_token_length": 4.0},
        {"extend_from": "tokenizer.json"},
    ],
    ids=str,
)
def test_options_of_a_wrong_type_are_refused_before_the_corpus_is_read(
    options: dict[str, object],
) -> None:
    with pytest.raises(TypeError, match=f"^{next(iter(options))} must be an? "):
        bytemill.train_tokenizer(UNREAD, **({"vocab_size": 300} | options))


@pytest.mark.parametrize(
    ("corpus", "options"),
    [
        (b"bytes", {}),
        (7, {}),
        (["a", 7], {}),
        (iter(["text", 7]), {}),
        (iter(["text"]), {"special_tokens": "<|endoftext|>"}),
        (iter(["text"]), {"special_tokens": [7]}),
        (iter(["text"]), {"vocab_size": "many"}),
    ],
)
def test_wrong_types_are_type_errors(corpus: object, options: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        bytemill.train_tokenizer(corpus, **({"vocab_size": 300} | options))


def test_an_exception_of_the_iterator_comes_through() -> None:
    def texts() -> Iterator[str]:
        yield "some text"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        bytemill.train_tokenizer(texts(), vocab_size=300)
