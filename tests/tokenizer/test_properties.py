"""Encoding and decoding: equal to the obvious algorithm, and each other's inverse, on any input."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import generated
import reference
from bytemill import Tokenizer, _native, train_tokenizer

modes = st.one_of(
    st.sampled_from(["all", "none"]), st.sets(st.sampled_from(generated.SPECIALS), max_size=3)
)


def of_merges(merges: list[tuple[bytes, bytes]], **options: object) -> Tokenizer:
    return Tokenizer(generated.merged(merges), merges, generated.SPECIALS, **options)


@pytest.fixture(scope="module", params=["gpt2", "cl100k", "o200k", r"\p{L}+|\s+(?!\S)|."])
def trained(request: pytest.FixtureRequest, documents: list[str]) -> Tokenizer:
    """A tokenizer trained on runs, other scripts and code."""
    texts = [*documents[:30], "aaaa aaaaaaaa " * 50, "naïve déjà vu 日本語日本語 😀😀 " * 50]
    return train_tokenizer(
        iter(texts), vocab_size=1500, special_tokens=generated.SPECIALS, pattern=request.param
    )


# --- pieces ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("pattern", reference.PATTERNS)
@given(data=generated.data)
@example(data=b"\t'data' \t'd \n's")
@example(data=b"x\x0c\x0c y\x85\x85 z\xc2\x85\xc2\x85 w \n  ")
@example(data="DON'T don'T I'LL 'Ll 'ſ Ǆa aǅ ǅǅa 1234567".encode())
def test_pieces_are_those_of_the_pattern(pattern: str, data: bytes) -> None:
    expected = reference.pieces(data, pattern)
    assert _native.split([pattern], data) == expected
    assert _native.split([_native.pattern_regex(pattern)], data) == expected
    # An alternative that never matches turns it into an expression without a scanner.
    assert _native.split([_native.pattern_regex(pattern) + "|(?!)"], data) == expected


@pytest.mark.parametrize(
    "pattern", [r"\p{L}+", r"[a-z]+|\p{Nd}", r"\s", r"(?<=a)b|.", r"(?i:the)", r"a*", r"(?=b)"]
)
@given(text=generated.texts)
def test_pieces_of_other_expressions(pattern: str, text: str) -> None:
    expected = reference.pieces(text.encode(), pattern)
    assert _native.split([pattern], text) == expected
    assert b"".join(expected) == text.encode()


@given(generated.data)
def test_each_stage_cuts_the_pieces_of_the_one_before(data: bytes) -> None:
    stages = [r"\p{N}{1,3}", "gpt2"]
    expected = [
        piece for outer in reference.pieces(data, stages[0]) for piece in reference.pieces(outer)
    ]
    assert _native.split(stages, data) == expected


# --- ids ------------------------------------------------------------------------------------------


@given(generated.data, modes)
def test_decoding_restores_the_bytes(
    trained: Tokenizer, data: bytes, special: str | set[str]
) -> None:
    assert trained.decode_bytes(trained.encode(data, special=special)) == data


@pytest.mark.slow
@given(generated.data, modes)
def test_ids_are_those_of_the_naive_encoder(
    trained: Tokenizer, data: bytes, special: str | set[str]
) -> None:
    specials = {"all": generated.SPECIALS, "none": []}.get(str(special), special)
    expected = reference.encode(data, trained.merges, list(specials), str(trained.pattern))
    ids = trained.encode(data, special=special)
    assert [trained.token_bytes(id) for id in ids] == expected
    known = set(trained.special_tokens.values())
    assert [id in known for id in ids] == [
        token.decode(errors="replace") in specials for token in expected
    ]


@given(generated.merge_lists(), generated.merge_letters)
@example([(b"ab", b"c"), (b"a", b"b")], "abc ab")
@example([(b"b", b"a"), (b"a", b"b"), (b"ab", b"a"), (b"a", b"ba")], "ababababa")
def test_merges_that_no_training_produces(merges: list[tuple[bytes, bytes]], text: str) -> None:
    tokenizer = of_merges(merges)
    assert [tokenizer.token_bytes(id) for id in tokenizer.encode(text, special="none")] == (
        reference.encode(text.encode(), merges)
    )
    whole = of_merges(merges, ignore_merges=True)
    assert [whole.token_bytes(id) for id in whole.encode(text, special="none")] == [
        token
        for piece in reference.pieces(text.encode())
        for token in reference.encode_piece(piece, merges, whole=True)
    ]


@given(generated.merge_lists())
def test_unreachable_tokens_are_those_no_text_gives(merges: list[tuple[bytes, bytes]]) -> None:
    tokenizer = of_merges(merges, pattern=r"(?s).+")
    lost = {
        token
        for token in (left + right for left, right in merges)
        if reference.encode_piece(token, merges) != [token]
    }
    assert tokenizer.unreachable() == sorted(map(tokenizer.token_id, lost))


# --- equivalent calls -----------------------------------------------------------------------------


@given(st.data(), generated.texts, modes)
def test_parts_of_a_text_are_encoded_as_one(
    trained: Tokenizer, data: st.DataObject, text: str, special: str | set[str]
) -> None:
    expected = trained.encode(text, special=special)
    assert (
        list(trained.encode_iterable(data.draw(generated.splits(text)), special=special))
        == expected
    )
    parts = data.draw(generated.splits(text.encode()))
    assert list(trained.encode_iterable(parts, special=special)) == expected


@given(generated.data)
def test_single_bytes_are_encoded_as_one_text(trained: Tokenizer, data: bytes) -> None:
    parts = [data[i : i + 1] for i in range(len(data))]
    assert list(trained.encode_iterable(parts)) == trained.encode(data)


@pytest.mark.slow
@given(st.lists(generated.data, max_size=20), st.integers(1, 8), modes)
def test_a_batch_is_its_texts(
    trained: Tokenizer, texts: list[bytes], threads: int, special: str | set[str]
) -> None:
    batch = trained.encode_batch(texts, special=special, threads=threads)
    assert len(batch.offsets) == len(texts) + 1
    expected = [trained.encode(text, special=special) for text in texts]
    assert [batch.ids[a:b].tolist() for a, b in zip(batch.offsets, batch.offsets[1:])] == expected
    assert trained.encode_batch(texts, special=special, threads=threads, lists=True) == expected


@given(generated.data)
def test_offsets_are_where_the_tokens_are(trained: Tokenizer, data: bytes) -> None:
    offsets = trained.encode_with_offsets(data)
    assert offsets.ids == trained.encode(data)
    at = 0
    for id, (start, end) in zip(offsets.ids, offsets.bytes):
        assert start == at
        assert data[start:end] == trained.token_bytes(id)
        at = end
    assert at == len(data)
    # Which character each byte belongs to; a byte that is not UTF-8 is a character.
    text = data.decode("utf-8", "surrogateescape")
    owner = [i for i, c in enumerate(text) for _ in c.encode("utf-8", "surrogateescape")]
    assert offsets.chars == [(owner[a], owner[b - 1] + 1) for a, b in offsets.bytes]


@given(generated.data)
def test_decoding_step_by_step_is_decoding(trained: Tokenizer, data: bytes) -> None:
    ids = trained.encode(data)
    decoder = trained.decoder()
    assert "".join(map(decoder.push, ids)) + decoder.finish() == trained.decode(ids)
    assert trained.decode(ids) == data.decode(errors="replace")


@given(st.text(st.characters(), max_size=30), st.lists(st.sampled_from(["\ud83d", "\ude00"])))
def test_surrogates_are_joined_or_replaced(
    trained: Tokenizer, text: str, surrogates: list[str]
) -> None:
    broken = "".join(f"{s}{text[i : i + 2]}" for i, s in enumerate(surrogates)) or text
    assume(broken)
    mended = broken.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert trained.encode(broken) == trained.encode(mended)


# --- truncation -----------------------------------------------------------------------------------


def whole_characters(text: str, n_bytes: int) -> str:
    """The longest prefix of whole characters of at most `n_bytes` bytes."""
    return text.encode()[:n_bytes].decode(errors="ignore")


@given(text=generated.texts, n=st.integers(0, 30), mode=modes)
@example(text="日本語日本語 déjà vu", n=3, mode="all")
@example(text="it're", n=2, mode="none")
def test_truncated_text_is_a_prefix_that_fits(
    trained: Tokenizer, text: str, n: int, mode: str | set[str]
) -> None:
    found = trained.truncate(text, n, special=mode)
    assert text.startswith(found)
    assert trained.count(found, special=mode) <= n
    ids = trained.encode(text, special=mode)
    if len(ids) <= n:
        assert found == text
        return
    first = whole_characters(text, len(trained.decode_bytes(ids[:n])))
    if trained.count(first, special=mode) <= n:
        assert found == first
    else:
        assert len(found) < len(first)
    assert trained.truncate(text.encode(), n, special=mode) == found.encode()
    assert trained.truncate(found, n, special=mode) == found


@pytest.mark.slow
@given(data=generated.data, n=st.integers(0, 30))
@example(data=b"\xff\xc3\xa9\xc3", n=2)
def test_truncated_bytes_cut_no_character(trained: Tokenizer, data: bytes, n: int) -> None:
    found = trained.truncate(data, n)
    assert data.startswith(found)
    assert trained.count(found) <= n
    # Undecodable bytes are one character each; a character that was cut would become several.
    chars = data.decode("utf-8", "surrogateescape")
    assert chars.startswith(found.decode("utf-8", "surrogateescape"))
