"""Reports on tokenizers: every vocabulary size at once, against encoding with each; unused
tokens; the page.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
import pages
import rivals
from bytemill import _native
from bytemill.look import PILE, Report, Result, compare, report, tokenized

TEXT = "".join(f"line {i} of {i * i}, 'tis naïve text <|endoftext|>\n" for i in range(200))
HOSTILE = "<script>alert('&')</script>"


# --- every vocabulary size ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def sizes(tokenizer: bytemill.Tokenizer) -> dict[int, bytemill.Tokenizer]:
    """A tokenizer in many sizes, including the smallest possible."""
    return {n: tokenizer.with_vocab_size(n) for n in (257, 258, 300, 400, 777, 1499, 1500)}


@given(
    st.one_of(
        st.text(min_size=1),
        st.binary(min_size=1),
        st.text("abeinrst _'1", min_size=1).map(lambda text: text * 30),
        st.text("self.retunx <|end\n", min_size=1).map(lambda text: f"def {text}<|endoftext|>"),
    ),
    st.sampled_from(["all", "none"]),
)
def test_every_size_is_what_truncating_gives(
    sizes: dict[int, bytemill.Tokenizer], text: str | bytes, special: str
) -> None:
    found = compare({"it": sizes[1500]}, iter([text]), special=special, progress=False).rows[0]
    assert (found.vocab_sizes[0], found.vocab_sizes[-1]) == (257, 1500)
    for size, smaller in sizes.items():
        n = smaller.count(text, special=special)
        assert found.tokens_by_size[size - 257] == n
        assert found.bytes_per_token_at(size) == found.n_bytes / n
    assert found.bytes_per_token_at(256) is found.bytes_per_token_at(1501) is None


def test_every_size_of_a_real_corpus(
    tokenizer: bytemill.Tokenizer, corpus: Path, sizes: dict[int, bytemill.Tokenizer]
) -> None:
    found = compare({"it": tokenizer}, corpus, limit=2_000_000).rows[0]
    data = corpus.read_bytes()[: found.n_bytes]
    for size, smaller in sizes.items():
        assert found.tokens_by_size[size - 257] == smaller.count(data)
    assert (np.diff(found.tokens_by_size) <= 0).all()


def test_published_vocabularies(openai: rivals.Published) -> None:
    def first(n: int) -> bytemill.Tokenizer:
        """The vocabulary of the first ranks, with all special tokens."""
        vocab = {id: token for token, id in openai.ranks.items() if id < n}
        specials = dict(zip(openai.special_tokens, range(n, 2 * n)))
        return bytemill.Tokenizer(vocab, None, specials, pattern=openai.name)

    whole, text = first(len(openai.ranks)), TEXT + "<|endofprompt|>"
    smaller = [first(n) for n in (256, 1256, 20_000)]
    for special in ("all", "none", ["<|endofprompt|>"]):
        found = compare({"it": whole}, iter([text]), special=special).rows[0]
        assert found.tokens == found.tokens_by_size[-1] == whole.count(text, special=special)
        assert found.vocab_sizes[-1] == len(whole)
        for one in smaller:
            rate = found.n_bytes / one.count(text, special=special)
            assert found.bytes_per_token_at(len(one)) == rate


def test_counts_of_another_pattern_are_refused(tokenizer: bytemill.Tokenizer) -> None:
    counts = _native.Counts(["cl100k"], [])
    with pytest.raises(bytemill.ConfigError, match="cl100k"):
        _native.tokens_by_size(tokenizer._core, counts)


# --- uses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [1, 1_000_003], ids=["dense", "sparse"])
def test_uses(tokenizer: bytemill.Tokenizer, spread: int) -> None:
    specials = tokenizer.special_tokens
    other = bytemill.Tokenizer(
        {id * spread: token for id, token in tokenizer.vocab.items()},
        tokenizer.merges,
        {text: id * spread for text, id in specials.items()},
    )
    # Special tokens do not count as unused.
    text = TEXT.replace("<|endoftext|>", "")
    found = report({"it": other}, {"one": iter([text]), "two": iter(["zebra"])})
    rows = [one.rows[0] for one in found.corpora.values()]
    ids = [Counter(other.encode(one)) for one in (text, "zebra")]
    learned = list(other.vocab)[256:-1]
    for row, counts in zip(rows, ids):
        assert row.uses.tolist() == [counts[id] for id in other.vocab]
        assert row.unused == sum(id not in counts for id in learned)
    about = found.vocabularies["it"]
    assert [id for id, _ in about.unused] == [id for id in learned if id not in ids[0] | ids[1]]
    assert about.unused_share == len(about.unused) / 3743
    assert all(other.token_bytes(id) == token for id, token in about.unused)
    assert (about.n_tokens, about.n_learned) == (3999, 3743)


# --- the report ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tokenizer: bytemill.Tokenizer) -> Report:
    other = bytemill.train_tokenizer(iter([HOSTILE * 99]), vocab_size=270)
    corpora = {"lines": iter([TEXT]), HOSTILE: iter([f"{HOSTILE} {i}\n" for i in range(99)])}
    return report({"large": tokenizer, f"{HOSTILE}.json": other}, corpora, n_longest=3)


def test_a_report_is_a_comparison_on_each_corpus(
    made: Report, tokenizer: bytemill.Tokenizer
) -> None:
    assert list(made.corpora) == ["lines", HOSTILE]
    assert made.extrapolated == PILE
    alone = compare({"large": tokenizer}, iter([TEXT])).rows[0]
    row = made.corpora["lines"].rows[0]
    assert (row.tokens, row.unused) == (alone.tokens, alone.unused)
    longest = made.vocabularies["large"].statistics.longest
    assert len(longest) == 3
    assert len(longest[0][1]) == max(map(len, tokenizer.vocab.values()))


def test_refusals(tokenizer: bytemill.Tokenizer) -> None:
    with pytest.raises(bytemill.ConfigError, match="corpora must not be empty"):
        report({"a": tokenizer}, {})
    with pytest.raises(bytemill.ConfigError, match="tokenizers must not be empty"):
        report({}, {"a": iter([TEXT])})
    with pytest.raises(bytemill.ConfigError, match="extrapolate"):
        report({"a": tokenizer}, {"a": iter([TEXT])}, extrapolate=0)
    with pytest.raises(bytemill.CorpusError, match="no text"):
        report({"a": tokenizer}, {"a": iter([TEXT]), "b": iter([""])})


def test_the_page_is_whole_and_loads_nothing(made: Report) -> None:
    page = made.to_html(title=f"A {HOSTILE}")
    pages.check(page)
    assert HOSTILE not in page
    assert "prefers-color-scheme: dark" in page
    # Names may be cut anywhere, but not into single letters where the window is narrow.
    assert all("min-width" in rule for rule in re.findall(r"\.left {.*?}", page))


def test_the_page_shows_the_figures(made: Report) -> None:
    page = made.to_html()
    for comparison in made.corpora.values():
        for row in comparison.rows:
            assert f"{row.bytes_per_token:.3f}" in page
            assert f"{row.tokens:,}" in page


def test_the_drawings_are_well_formed_and_to_scale(made: Report) -> None:
    page = made.to_html()
    drawings = pages.drawings(page)
    # Compression, two curves, lengths.
    assert len(drawings) == 4
    rates = [
        comparison.rows[which].bytes_per_token
        for comparison in made.corpora.values()
        for which in range(2)
    ]
    heights = [float(bar.get("height", "")) for bar in drawings[0].findall("rect")]
    assert heights == pytest.approx([heights[0] * rate / rates[0] for rate in rates], abs=0.1)
    for drawing in drawings[1:3]:
        curves = drawing.findall("./g/path[@class='curve']")
        assert len(curves) == 2
        for curve in curves:
            points = [tuple(map(float, p.split())) for p in curve.get("d", "")[1:].split("L")]
            xs, ys = zip(*points)
            assert list(xs) == sorted(xs)
            # y grows downwards: with more merges there are never more tokens.
            assert list(ys) == sorted(ys, reverse=True)


def test_more_tokenizers_than_colors(tokenizer: bytemill.Tokenizer) -> None:
    many = {f"first {n}": tokenizer.with_vocab_size(n) for n in range(257, 270)}
    page = report(many, {"a": iter([TEXT])}).to_html()
    assert page.count("stroke-dasharray") == len(many) - 8


def test_issue_15_every_result_has_three_views(made: Report, tokenizer: bytemill.Tokenizer) -> None:
    results: list[Result] = [
        made,
        made.corpora[HOSTILE],
        made.vocabularies["large"].statistics,
        tokenized(tokenizer, TEXT[:99]),
    ]
    for result in results:
        assert result.to_text().endswith("\n")
        assert result.to_text() == str(result) + "\n"
        assert json.loads(json.dumps(result.to_json()))
        pages.check(result.to_html(title=HOSTILE))
