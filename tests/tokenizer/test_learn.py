"""Learning: the merges are those of the obvious algorithm, however the work is divided."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bytemill
import generated
import reference
import rivals
from bytemill import _native
from bytemill.learn import TieBreak

EOT = "<|endoftext|>"
Merges = list[tuple[bytes, bytes]]

patterns = st.sampled_from([*reference.PATTERNS, r"\p{L}+|\P{L}"])
tie_breaks = st.sampled_from(["bytes", "rustbpe"])


def learned(
    documents: Iterable[str | bytes], n_merges: int, specials: Iterable[str] = (), **options: object
) -> Merges:
    specials = list(specials)
    tokenizer = bytemill.train_tokenizer(
        iter(documents),
        vocab_size=256 + n_merges + len(specials),
        special_tokens=specials,
        **options,
    )
    return tokenizer.merges


def counted(
    files: list[Path], specials: list[str], pattern: str, threads: int, chunk_size: int | None
) -> _native.Counts:
    counts = _native.Counts([pattern], specials, threads)
    counts.add_files([str(file) for file in files], None, chunk_size)
    return counts


# --- the naive algorithm --------------------------------------------------------------------------


@pytest.mark.slow
@given(
    st.lists(generated.data, min_size=1, max_size=6).filter(any),
    patterns,
    st.integers(1, 8),
    st.integers(0, 60),
    tie_breaks,
)
@example([b"aaaaaaaaaaa aaaaaa aaaaa aaa"], "gpt2", 1, 20, "bytes")
@example([b"abababab aabb ababa bbaba"], "gpt2", 2, 20, "rustbpe")
def test_merges_are_those_of_the_naive_trainer(
    documents: list[bytes], pattern: str, threads: int, n_merges: int, tie_break: str
) -> None:
    counts = reference.count(documents, generated.SPECIALS, pattern)
    expected = reference.train(counts, n_merges, tie_break=tie_break)
    if len(expected) < n_merges:
        n_merges = len(expected)
    options = {"pattern": pattern, "threads": threads, "tie_break": tie_break}
    assert expected == learned(documents, n_merges, generated.SPECIALS, **options)


@pytest.mark.slow
@given(
    st.lists(generated.file_data, min_size=1, max_size=4).filter(any),
    patterns,
    st.integers(1, 8),
    st.one_of(st.none(), st.integers(1, 64)),
)
def test_counts_do_not_depend_on_threads_files_and_chunks(
    contents: list[bytes], pattern: str, threads: int, chunk_size: int | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / f"{i}.txt" for i in range(len(contents))]
        for file, content in zip(files, contents):
            file.write_bytes(content)
        counts = counted(files, generated.SPECIALS, pattern, threads, chunk_size)
        expected = reference.count(contents, generated.SPECIALS, pattern)
        assert dict(counts.items()) == expected
        assert len(counts) == len(expected)
        assert counts.total == expected.total()
        assert counts.bytes_read == sum(map(len, contents))


@pytest.mark.slow
@given(
    st.lists(generated.texts, min_size=1, max_size=6).filter(any),
    st.integers(1, 6),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(2, 6)),
    tie_breaks,
)
def test_limits_are_those_of_the_naive_trainer(
    documents: list[str],
    min_frequency: int,
    min_piece_count: int,
    max_token_length: int | None,
    tie_break: str,
) -> None:
    limits = {
        "tie_break": tie_break,
        "min_frequency": min_frequency,
        "min_piece_count": min_piece_count,
        "max_token_length": max_token_length,
    }
    counts = reference.count((d.encode() for d in documents), [], "gpt2")
    expected = reference.train(counts, 40, **limits)
    assert learned(documents, len(expected), **limits) == expected


@pytest.mark.slow
def test_a_real_corpus(documents: list[str]) -> None:
    some = documents[:12]
    counts = reference.count((d.encode() for d in some), [], "gpt2")
    assert learned(some, 150) == reference.train(counts, 150)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("chunk_size", [None, 10_000, 777_777])
def test_real_counts_do_not_depend_on_threads_and_chunks(
    corpus: Path, real_counts: Counter[bytes], threads: int, chunk_size: int | None
) -> None:
    assert dict(counted([corpus], [EOT], "gpt2", threads, chunk_size).items()) == real_counts


@pytest.fixture(scope="module")
def real_counts(corpus: Path) -> Counter[bytes]:
    return reference.count([corpus.read_bytes()], [EOT], "gpt2")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", reference.PATTERNS)
def test_one_document_without_a_special_token_is_cut_too(
    documents: list[str], tmp_path: Path, pattern: str
) -> None:
    data = "".join(documents[:40]).encode()
    file = tmp_path / "one.txt"
    file.write_bytes(data)
    whole = counted([file], [], pattern, 1, len(data) + 1).items()
    assert dict(whole) == reference.count([data], [], pattern)
    assert counted([file], [], pattern, 8, 5_000).items() == whole


# --- the trainer of tokenizers --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_ten_thousand_merges_are_those_of_huggingface(documents: list[str]) -> None:
    expected = rivals.huggingface_merges(documents, 10_000)
    assert len(expected) == 10_000
    assert learned(documents, 10_000, tie_break="huggingface") == expected


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(generated.runs, generated.few_letters, generated.words), min_size=1, max_size=5
    ).filter(any)
)
@example(["aaaaaaaaaaaaaaaaaaaaa"])
@example(["aaaa aaa aa", "aaaaaa aaaaa baaab aabaab"])
def test_runs_of_letters_are_merged_as_huggingface_does(documents: list[str]) -> None:
    expected = rivals.huggingface_merges(documents, 40)
    assert learned(documents, len(expected), tie_break="huggingface") == expected


# --- more, and fewer, merges ----------------------------------------------------------------------


@pytest.mark.slow
@given(
    st.lists(generated.texts, min_size=1, max_size=5).filter(any), st.integers(0, 40), tie_breaks
)
def test_truncating_and_extending_are_exact(
    documents: list[str], at: int, tie_break: TieBreak
) -> None:
    counts = reference.count((d.encode() for d in documents), [EOT], "gpt2")
    merges = reference.train(counts, 40, tie_break=tie_break)
    at = min(at, len(merges))
    small, large = (
        bytemill.train_tokenizer(iter(documents), vocab_size=257 + n, tie_break=tie_break)
        for n in (at, len(merges))
    )
    assert large.with_vocab_size(257 + at) == small
    extended = bytemill.train_tokenizer(
        iter(documents), vocab_size=257 + len(merges), tie_break=tie_break, extend_from=small
    )
    assert extended == large
    assert extended.merges == merges


@pytest.mark.parametrize("tie_break", ["bytes", "rustbpe"])
def test_extending_keeps_what_was_known(tokenizer: bytemill.Tokenizer, tie_break: TieBreak) -> None:
    texts = ["zyxzyx zyxzyx " * 50]
    more = bytemill.train_tokenizer(
        iter(texts),
        vocab_size=4005,
        special_tokens=["<|new|>"],
        tie_break=tie_break,
        extend_from=tokenizer,
    )
    known = len(tokenizer.merges)
    assert more.merges[:known] == tokenizer.merges
    assert set(more.special_tokens) == {EOT, "<|new|>"}
    counts = reference.count((t.encode() for t in texts), [EOT, "<|new|>"], "gpt2")
    assert more.merges == reference.train(
        counts, known + 4, start=tokenizer.merges, tie_break=tie_break
    )


def test_extending_needs_free_ids() -> None:
    vocab = {i: bytes([i]) for i in range(256)} | {2**32 - 4: b"ab"}
    last = bytemill.Tokenizer(vocab, [(b"a", b"b")], ["<|a|>"])
    assert (
        bytemill.train_tokenizer(iter(["abc"]), vocab_size=259, extend_from=last).max_id
        == 2**32 - 2
    )
    with pytest.raises(
        bytemill.TokenizerError, match="3 ids from 4294967293 on would exceed 4294967294"
    ):
        bytemill.train_tokenizer(iter(["abcd"]), vocab_size=260, extend_from=last)


def test_a_vocabulary_out_of_reach_ends_early_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="no pairs left.* 260 of the 1000"):
        tokenizer = bytemill.train_tokenizer(iter(["abcd"]), vocab_size=1000)
    assert len(tokenizer.merges) == 3
    assert len(tokenizer) == 260


def test_one_letter_over_and_over_stops_at_the_longest_token() -> None:
    with pytest.warns(UserWarning, match="no pairs left"):
        tokenizer = bytemill.train_tokenizer(iter(["a" * 400_000]), vocab_size=300)
    assert max(map(len, tokenizer.vocab.values())) == 65_536
    assert tokenizer.decode(tokenizer.encode("a" * 400_000)) == "a" * 400_000
