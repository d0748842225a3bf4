"""Comparing tokenizers, against a slow comparison of spans; and reading samples."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.corpus import samples
from bytemill.look import compare, measures

CONTINUATIONS = [bytes([byte]) for byte in range(0x80, 0xC0)]
TEXT = "".join(f"line {i} of {i * i}, 'tis naïve text <|endoftext|>\n" for i in range(200))


@pytest.fixture(scope="module")
def two(tokenizer: bytemill.Tokenizer) -> dict[str, bytemill.Tokenizer]:
    return {"a": tokenizer.with_vocab_size(600), "b": tokenizer.with_vocab_size(300)}


@pytest.fixture(scope="module")
def three(
    two: dict[str, bytemill.Tokenizer], documents: list[str]
) -> dict[str, bytemill.Tokenizer]:
    other = bytemill.train_tokenizer(iter(documents[:20]), vocab_size=500, pattern="cl100k")
    return two | {"c": other}


def bounds(tokenizer: bytemill.Tokenizer, data: bytes) -> list[tuple[int, int]]:
    found, start = [], 0
    for id in tokenizer.encode(data):
        end = start + len(tokenizer.token_bytes(id))
        found.append((start, end))
        start = end
    return found


def by_definition(
    tokenizers: dict[str, bytemill.Tokenizer], data: bytes
) -> tuple[list[float], float, Counter[bytes]]:
    """Shares, agreement and differences, from their definitions."""
    cuts = [bounds(tokenizer, data) for tokenizer in tokenizers.values()]
    shared = [len(set(cut) & set(cuts[0])) / len(cut) for cut in cuts]
    ends = [{end for _, end in cut} for cut in cuts]
    common, every = sorted(set.intersection(*ends)), set.union(*ends)
    differences: Counter[bytes] = Counter()
    stops = [end for end in common if data[end : end + 1] not in CONTINUATIONS]
    for start, end in zip([0, *stops], stops):
        if any(start < one < end and one not in common for one in every):
            differences[data[start:end]] += 1
    return shared, len(common) / len(every), differences


@given(
    st.one_of(st.text(min_size=1), st.binary(min_size=1), st.text("ab <|endoftx>\n", min_size=1))
)
def test_equals_the_definition(three: dict[str, bytemill.Tokenizer], text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    found = compare(three, iter([text]), n_differences=10_000, progress=False)
    shared, agreement, differences = by_definition(three, data)
    assert [row.shared for row in found.rows] == pytest.approx(shared)
    assert found.agreement == pytest.approx(agreement)
    assert {one.text: one.count for one in found.differences} == differences
    for one in found.differences:
        assert all(b"".join(cut) == one.text for cut in one.cuts)
        assert len(set(one.cuts)) > 1


def test_rows(two: dict[str, bytemill.Tokenizer], tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(TEXT.encode())
    found = compare(two, file)
    assert found.n_bytes == found.n_examined == len(TEXT.encode())
    for row, (name, tokenizer) in zip(found.rows, two.items()):
        assert (row.name, row.vocab_size) == (name, len(tokenizer))
        assert row.tokens == tokenizer.count(TEXT)
        assert row.bytes_per_token == found.n_bytes / row.tokens
        assert row.mb_per_second > 0
        assert row.seconds_for(825 * 10**9) == pytest.approx(825_000 / row.mb_per_second)
        assert row.tokens_for(found.n_bytes * 1000) == row.tokens * 1000
    assert found.rows[0].shared == 1
    counts = [one.count for one in found.differences]
    assert counts == sorted(counts, reverse=True)


def test_a_tokenizer_does_not_differ_from_itself(tokenizer: bytemill.Tokenizer) -> None:
    found = compare({"one": tokenizer, "same": tokenizer}, iter([TEXT]))
    assert (found.agreement, found.differences) == (1.0, [])
    assert [row.shared for row in found.rows] == [1.0, 1.0]


def test_one_tokenizer_alone(tokenizer: bytemill.Tokenizer) -> None:
    found = compare({"one": tokenizer}, iter([TEXT]))
    assert (found.agreement, found.differences) == (1.0, [])
    assert found.rows[0].tokens == tokenizer.count(TEXT)


def test_the_worst_passages(two: dict[str, bytemill.Tokenizer], tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    plain = "def function(self, value):\n    return self.value\n" * 50
    noise = random.Random(5).randbytes(600).hex().encode() + b"\n"
    file.write_bytes(plain.encode() + noise + plain.encode())
    found = compare(two, file, n_worst=2)
    for which, passages in enumerate(found.worst):
        assert len(passages) == 2
        worst = passages[0]
        assert worst.source == str(file)
        assert worst.offset <= len(plain) < worst.offset + worst.n_bytes
        rates = [one.n_bytes / one.tokens[which] for one in passages]
        assert rates == sorted(rates)
        text = file.read_bytes()[worst.offset :]
        assert text.startswith(worst.text)


def test_only_the_most_common_differences_are_kept(
    two: dict[str, bytemill.Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "HELD", 4)
    found = compare(two, iter([TEXT] * 5), n_differences=100)
    assert len(found.differences) <= 4


def test_only_a_part_is_examined(two: dict[str, bytemill.Tokenizer], tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(TEXT.encode() * 800)
    found = compare(two, file, examine=2_000_000)
    assert found.n_bytes == file.stat().st_size
    assert 1_000_000 <= found.n_examined <= 4_000_000


def test_refusals(two: dict[str, bytemill.Tokenizer], tmp_path: Path) -> None:
    with pytest.raises(bytemill.ConfigError, match="tokenizers must not be empty"):
        compare({}, iter([TEXT]))
    with pytest.raises(bytemill.CorpusError, match="no text"):
        compare(two, iter([""]))
    with pytest.raises(FileNotFoundError):
        compare(two, tmp_path / "missing")
    with pytest.raises(bytemill.TokenizerError, match="endoftext"):
        compare(two, iter([TEXT]), special="error")


# --- samples ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [TEXT, "日本語の文章。" * 500, "a" * 5000, "\n" * 5000, "x\n" * 2000, " \n\n y" * 999, ""],
    ids=lambda text: repr(text[:8]),
)
@pytest.mark.parametrize("size", [5, 7, 1000, 1 << 20])
def test_parts_are_the_file(
    text: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "PART_SIZE", size)
    file = tmp_path / "text"
    file.write_bytes(text.encode())
    total, parts, _ = samples.parts(file, None)
    found = list(parts)
    assert total == len(text.encode())
    assert b"".join(part.data for part in found) == text.encode()
    offset = 0
    for part in found:
        assert (part.source, part.offset) == (str(file), offset)
        assert part.data
        part.data.decode()  # no character is cut
        offset += len(part.data)


def test_cutting_changes_no_token(
    tokenizer: bytemill.Tokenizer, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "PART_SIZE", 5_000)
    _, parts, _ = samples.parts(corpus, 1_000_000)
    data = [part.data for part in parts]
    assert len(data) > 100
    for pattern in ("gpt2", "cl100k", "o200k"):
        other = bytemill.Tokenizer(
            tokenizer.vocab, tokenizer.merges, tokenizer.special_tokens, pattern=pattern
        )
        whole = other.encode(b"".join(data))
        assert [id for one in data for id in other.encode(one)] == whole


def test_files_share_the_limit(tmp_path: Path) -> None:
    for name, size in (("a", 10), ("b", 1000), ("c", 1000)):
        (tmp_path / name).write_bytes(b"x" * size)
    total, parts, _ = samples.parts(tmp_path, 410)
    assert total == 410
    assert [(Path(p.source).name, len(p.data)) for p in parts] == [
        ("a", 10),
        ("b", 200),
        ("c", 200),
    ]
    _, parts, _ = samples.parts(iter(["ab", b"", b"cd", "ef"]), 3)
    assert [part.data for part in parts] == [b"ab", b"cd"]
