"""Tokens → batches: their order, and the files they are read from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm import data


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_a_permutation(n: int, key: int) -> None:
    found = data.permuted(np.arange(n), n, key)
    assert np.array_equal(np.sort(found), np.arange(n))


def test_permutations_differ_and_mix() -> None:
    a, b = (data.permuted(np.arange(1000), 1000, key) for key in (1, 2))
    assert (a == b).sum() < 20
    # As many neighbors stay in order as by chance, and positions are uncorrelated.
    assert 400 < (np.diff(a) > 0).sum() < 600
    assert abs(np.corrcoef(np.arange(1000), a)[0, 1]) < 0.1


@given(st.integers(20, 400), st.integers(1, 19), st.integers(0, 9))
def test_an_epoch_sees_each_window_once(n: int, context: int, seed: int) -> None:
    windows = lm.Windows(np.arange(n, dtype=np.uint16), context, seed=seed)
    for epoch in range(3):
        starts = windows.starts(epoch * windows.per_epoch, windows.per_epoch)
        places = np.sort(starts)
        assert places[0] >= 0
        assert places[-1] + context + 1 <= n
        assert np.array_equal(np.diff(places), np.full(len(places) - 1, context))


def test_each_epoch_has_its_own_order_and_cuts() -> None:
    windows = lm.Windows(np.arange(5000, dtype=np.uint16), 10)
    first, second = (windows.starts(e * windows.per_epoch, windows.per_epoch) for e in (0, 1))
    assert first.tolist() != second.tolist()
    assert first[0] % 10 != second[0] % 10 or sorted(first) != sorted(second)
    other = lm.Windows(np.arange(5000, dtype=np.uint16), 10, seed=1)
    assert other.starts(0, 20).tolist() != windows.starts(0, 20).tolist()


@given(st.integers(0, 200), st.integers(1, 12), st.integers(1, 4))
def test_rows_of_a_batch_do_not_depend_on_the_rank(step: int, size: int, ranks: int) -> None:
    windows = lm.Windows(small_lm.tokens(400), 8, seed=3)
    size *= ranks
    whole = windows.batch(step, size)
    part = size // ranks
    for rank in range(ranks):
        rows = range(rank * part, (rank + 1) * part)
        for a, b in zip(windows.batch(step, size, rows=rows), whole):
            assert torch.equal(a, b[rows.start : rows.stop])
    assert torch.equal(whole[0][:, 1:], whole[1][:, :-1])


def test_random_batches() -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    ids, targets = lm.get_batch(tokens, 64, 16, "cpu", generator=np.random.default_rng(0))
    assert ids.shape == targets.shape == (64, 16)
    assert ids.dtype == torch.int64
    assert torch.equal(ids + 1, targets)
    assert len(set(ids[:, 0].tolist())) > 40
    # The last position is drawn too, but none after it.
    chance = np.random.default_rng(1)
    lasts = {int(lm.get_batch(np.arange(6), 1, 4, generator=chance)[1].max()) for _ in range(40)}
    assert lasts == {4, 5}
    with pytest.raises(bytemill.TokensError, match="got 16"):
        lm.get_batch(tokens[:16], 1, 16)
    with pytest.raises(bytemill.ConfigError, match="context_length must be ≥ 1, got 0"):
        lm.get_batch(tokens, 1, 0)


def test_fixed_windows() -> None:
    tokens = np.arange(101)
    assert data.fixed_windows(tokens, 10, 3).tolist() == [0, 40, 90]
    assert len(data.fixed_windows(tokens, 10, 99)) == 10
    windows = data.take_windows(tokens, data.fixed_windows(tokens, 10, 99), 10)
    assert np.array_equal(windows[:, :-1].ravel(), tokens[:-1])


def test_every_kind_of_file(tmp_path: Path, tokenizer: bytemill.Tokenizer) -> None:
    ids = small_lm.tokens(300)
    ids.tofile(tmp_path / "train.bin")
    ids.astype("<u4").tofile(tmp_path / "wide.bin")
    np.save(tmp_path / "tokens.npy", ids)
    assert np.array_equal(lm.open_tokens(tmp_path / "train.bin"), ids)
    assert np.array_equal(lm.open_tokens(tmp_path / "wide.bin", dtype="uint32"), ids)
    assert np.array_equal(lm.open_tokens(tmp_path / "tokens.npy"), ids)
    (tmp_path / "text.txt").write_text("some text, and some more of it\n" * 50)
    made = tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "tokens", shard_tokens=37)
    opened = lm.open_tokens(tmp_path / "tokens")
    assert np.array_equal(opened[:], made[:])
    # Windows across the ends of shards are the same as in one array.
    shards, whole = lm.Windows(made, 16), lm.Windows(np.asarray(made[:]), 16)
    for a, b in zip(shards.batch(1, 4), whole.batch(1, 4)):
        assert torch.equal(a, b)


def test_files_that_are_not_tokens(tmp_path: Path) -> None:
    (tmp_path / "odd.bin").write_bytes(b"abc")
    np.save(tmp_path / "float.npy", np.zeros(3))
    (tmp_path / "text.npy").write_text("text")
    np.save(tmp_path / "huge.npy", np.zeros(99_999, np.uint16))
    huge = (tmp_path / "huge.npy").read_bytes()
    huge = huge.replace(b"(99999,), }" + b" " * 20, b"(9" + b"9" * 24 + b",), }", 1)
    (tmp_path / "huge.npy").write_bytes(huge)
    for name, message in {
        "odd.bin": "3 bytes is not a multiple of the id size, 2",
        "float.npy": "is float64",
        "text.npy": "not a numpy array",
        "huge.npy": "not a numpy array",
    }.items():
        with pytest.raises(bytemill.TokensError, match=message):
            lm.open_tokens(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        lm.open_tokens(tmp_path / "nothing.bin")


@pytest.mark.parametrize("dtype", ["<i2", "<i4", "<i8", ">i4", "<u8"])
def test_negative_ids_are_refused(tmp_path: Path, dtype: str) -> None:
    """Issue 13, 5: -100, as labels are padded with, and what does not fit."""
    ids = np.zeros(100, dtype)
    ids[50] = 2**64 - 100 if dtype == "<u8" else -100
    np.save(tmp_path / "tokens.npy", ids)
    ids.tofile(tmp_path / "tokens.bin")
    found = [lm.open_tokens(tmp_path / "tokens.npy")]
    if dtype[0] == "<":
        found.append(lm.open_tokens(tmp_path / "tokens.bin", dtype=ids.dtype.name))
    for tokens in found:
        windows = lm.Windows(tokens, 10, vocab_size=97)
        with pytest.raises(bytemill.TokensError, match="id -100 at token 50 is negative"):
            windows.batch(0, windows.per_epoch)
        with pytest.raises(bytemill.TokensError, match="id -100 at token 5 is negative"):
            lm.get_batch(tokens[45:56], 64, 9)


def test_raw_ids_are_whole_numbers_of_the_type_that_a_manifest_names(
    tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    (tmp_path / "text.txt").write_text("some text, and some more of it\n" * 50)
    made = tokenizer.encode_files(
        tmp_path / "text.txt", tmp_path / "tokens", format="bin", dtype="uint32"
    )
    path = tmp_path / "tokens" / "tokens.bin"
    with pytest.raises(bytemill.ConfigError, match="an integer type, got float32"):
        lm.open_tokens(path, dtype="float32")
    with pytest.raises(bytemill.TokensError, match="the ids are uint32 according to the manifest"):
        lm.open_tokens(path)
    assert np.array_equal(lm.open_tokens(path, dtype="uint32"), made[:])


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_pipes_are_refused(tmp_path: Path) -> None:
    for name in ("pipe.npy", "pipe.bin"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(bytemill.TokensError, match="not a regular file"):
            lm.open_tokens(tmp_path / name)


def test_ids_beyond_the_vocabulary() -> None:
    tokens = np.zeros(100, np.uint16)
    tokens[50] = 97
    windows = lm.Windows(tokens, 10, vocab_size=97)
    with pytest.raises(bytemill.TokensError, match="id 97 at token 50 is not below vocab_size=97"):
        windows.batch(0, windows.per_epoch)
    lm.Windows(tokens, 10, vocab_size=98).batch(0, windows.per_epoch)
