"""Inspecting a tokenizer: its vocabulary, its tokens in a text, and how both are displayed."""

from __future__ import annotations

import html
import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
from bytemill.look import Span, TokenizedText, statistics, tokenized, vocabulary
from bytemill.look.result import visible
from bytemill.look.tokenized import to_terminal

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def bytes_only(**options: object) -> bytemill.Tokenizer:
    return bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], **options)  # type: ignore[arg-type]


# --- the vocabulary ---------------------------------------------------------------------------


def test_statistics_of_a_small_vocabulary() -> None:
    tokens = [b" a", b"12", b" 12", b"  ", "é".encode(), "é".encode()[:1] + b"x", "я".encode(),
              "的".encode(), b"abcdef", b"abcdeg"]  # fmt: skip
    vocab = {i: bytes([i]) for i in range(256)} | dict(enumerate(tokens, 256))
    tokenizer = bytemill.Tokenizer(vocab, None, {"<x>": 300, "<y>": 299}, pattern=["gpt2", "."])
    found = statistics(tokenizer, n_longest=3)
    assert found.vocab_size == 268
    assert found.special_tokens == {"<y>": 299, "<x>": 300}
    assert list(found.special_tokens) == ["<y>", "<x>"]
    assert found.pattern == ["gpt2", "."]
    assert found.longest == [(264, b"abcdef"), (265, b"abcdeg"), (258, b" 12")]
    assert found.lengths == {1: 256, 2: 6, 3: 2, 6: 2}
    assert found.mean_length == pytest.approx((256 + 12 + 6 + 12) / 266)
    assert found.not_utf8 == 128 + 1
    assert found.leading_space == 1 + 3
    assert found.white_space == 6 + 1 + 4  # with the separators that str.isspace knows
    assert found.digits == 10 + 2
    assert found.scripts == {"Latin": 52 + 4, "Cyrillic": 1, "Cjk": 1}
    assert found.fingerprint == tokenizer.fingerprint


def test_statistics_of_a_real_vocabulary(tokenizer: bytemill.Tokenizer) -> None:
    found = statistics(tokenizer)
    assert found.vocab_size == 4000
    assert found.n_merges == len(tokenizer.merges)
    assert sum(found.lengths.values()) == 3999
    assert len(found.longest) == 20
    assert found.longest == sorted(found.longest, key=lambda x: (-len(x[1]), x[0]))
    # The rules can reach every token that was learned by the rules.
    assert found.unreachable == []


def test_tokens_that_no_text_encodes_to() -> None:
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"abc", 258: b"bc"}
    # "abc" is never created: b and c merge first, and a does not merge with bc.
    tokenizer = bytemill.Tokenizer(vocab, [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")])
    assert statistics(tokenizer).unreachable == [257]


def test_no_longest() -> None:
    assert statistics(bytes_only(), n_longest=0).longest == []


# --- spans ------------------------------------------------------------------------------------


@given(st.one_of(st.text(), st.binary()), st.sampled_from(["all", "none"]))
def test_spans_are_the_text(tokenizer: bytemill.Tokenizer, text: str | bytes, special: str) -> None:
    found = tokenized(tokenizer, text, special=special).spans
    data = text.encode() if isinstance(text, str) else text
    assert b"".join(span.token for span in found) == data
    assert [span.id for span in found] == tokenizer.encode(text, special=special)
    assert all(data[span.start : span.end] == span.token for span in found)


def test_special_tokens_are_marked(tokenizer: bytemill.Tokenizer) -> None:
    text = "a<|endoftext|>"
    assert [span.special for span in tokenized(tokenizer, text).spans] == [False, True]
    assert not any(span.special for span in tokenized(tokenizer, text, special="none").spans)


# --- invisible characters ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (b"", ""),
        (b" a\tb\r\n", "·a→b␍↵"),
        ("né".encode(), "né"),
        ("日本".encode(), "日本"),
        (b"\xe2\x80", "‹e2›‹80›"),
        (b"\xed\xb2\x80", "‹ed›‹b2›‹80›"),  # a surrogate is not UTF-8 either
        (b"\x00\x1b[31m", "‹U+0000›‹U+001B›[31m"),
        ("\u200b\u202e\u00a0\u3000\ue000\u2028".encode(),
         "‹U+200B›‹U+202E›‹U+00A0›‹U+3000›‹U+E000›‹U+2028›"),
        ("\u0301x".encode(), "◌\u0301x"),
        ("x\u0301".encode(), "x\u0301"),
    ],
)  # fmt: skip
def test_visible(token: bytes, shown: str) -> None:
    assert visible(token) == shown


@given(st.binary())
def test_nothing_invisible_is_left(token: bytes) -> None:
    kinds = {unicodedata.category(char) for char in visible(token)}
    assert not kinds & {"Cc", "Cf", "Cs", "Co", "Zs", "Zl", "Zp"}


# --- pictures ---------------------------------------------------------------------------------


def made(*tokens: bytes, special: bytes = b"<x>") -> list[Span]:
    start, found = 0, []
    for number, token in enumerate(tokens):
        found.append(Span(number, start, start + len(token), token, token == special))
        start += len(token)
    return found


@pytest.mark.parametrize(
    ("tokens", "plain", "with_ids"),
    [
        ((), "", ""),
        ((b"a", b" b"), "a│·b", "a⟨0⟩│·b⟨1⟩"),
        ((b"a", b"\n", b"b"), "a│↵\nb", "a⟨0⟩│↵⟨1⟩\nb⟨2⟩"),
        ((b"\n\n", b"b"), "↵\n↵\nb", "↵\n↵⟨0⟩\nb⟨1⟩"),
        ((b"a", b"\n  ", b"b"), "a│↵\n··│b", "a⟨0⟩│↵\n··⟨1⟩│b⟨2⟩"),
        ((b"<x>", b"|"), "<x>│|", "<x>⟨0⟩│|⟨1⟩"),
    ],
)
def test_without_color(tokens: tuple[bytes, ...], plain: str, with_ids: str) -> None:
    assert "".join(to_terminal(made(*tokens), color=False)) == plain
    assert "".join(to_terminal(made(*tokens), color=False, ids=True)) == with_ids


@given(st.lists(st.binary(min_size=1), max_size=9), st.booleans())
def test_colors_end_before_every_newline(tokens: list[bytes], ids: bool) -> None:
    text = "".join(to_terminal(made(*tokens), ids=ids))
    for row in text.split("\n"):
        codes = ESCAPE.findall(row)
        assert not codes or codes[-1] == "\x1b[0m"
    if not ids:
        bare = "".join(to_terminal(made(*tokens), color=False)).replace("│", "")
        assert ESCAPE.sub("", text).replace("│", "") == bare


def test_colors_depend_on_position_only() -> None:
    tokens = [b"same"] * 12
    colors = [ESCAPE.findall(part)[0] for part in to_terminal(made(*tokens))]
    assert all(one != next_ for one, next_ in zip(colors, colors[1:]))
    assert colors[:5] == colors[5:10]
    special = ESCAPE.findall("".join(to_terminal(made(b"<x>"))))[0]
    assert special not in colors


def test_summary() -> None:
    assert text_of(b"ab", b"c").summary == "2 tokens, 3 bytes, 1.50 bytes per token"
    assert text_of().summary == "0 tokens, 0 bytes, – bytes per token"


def text_of(*tokens: bytes) -> TokenizedText:
    return TokenizedText(made(*tokens), 300, "0123456789abcdef")


def test_issue_15_tokens_are_shown_where_they_are_looked_at(
    tokenizer: bytemill.Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = tokenizer.visualize("the cat\n")
    assert str(shown) == repr(shown)
    assert repr(shown).splitlines()[-1] == shown.summary
    assert not ESCAPE.search(repr(shown))
    assert shown.to_json()["tokens"] == len(tokenizer.encode("the cat\n"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert ESCAPE.search(repr(shown))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not ESCAPE.search(repr(shown))
    # The notebook gets the page in a frame.
    frame = shown._repr_html_()
    assert html.escape(shown.to_html()) in frame
    assert "<script" not in frame


def test_issue_15_a_tokenizer_at_a_glance(tokenizer: bytemill.Tokenizer) -> None:
    text = tokenizer._repr_html_()
    rows = dict(Tables(text).rows)
    assert rows["vocabulary"] == "4,000 ids"
    assert rows["pattern"] == "gpt2"
    assert rows["special tokens"] == "<|endoftext|> = 3999"
    assert len(rows["some tokens"].split(", ")) >= 12
    assert "<|endoftext|>" not in text
    assert "none" in bytes_only()._repr_html_()


class Page(HTMLParser):
    """Reads a page strictly: every element is closed, in order."""

    VOID = frozenset(("meta", "input"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tokens: list[dict[str, str | None]] = []
        self.texts: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not {"src", "href", "onclick", "style"} & dict(attrs).keys()
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "span":
            self.tokens.append(dict(attrs))
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "span":
            self.texts[-1] += data


def test_a_page_is_well_formed_and_complete(tokenizer: bytemill.Tokenizer) -> None:
    text = "<script>alert('x')</script>\n\t&amp; \"quoted\" é日<|endoftext|>".encode() + b"\xff"
    result = tokenized(tokenizer, text)
    found = result.spans
    page = result.to_html(title="<b>&'\"", ids=True)
    read = Page(page)
    assert read.seen == {"html", "head", "meta", "title", "style", "body", "h1", "p", "input",
                         "label", "div", "span"}  # fmt: skip
    assert "<title>&lt;b&gt;&amp;&#x27;&quot;</title>" in page
    assert "url(" not in page
    assert "://" not in page
    assert "prefers-color-scheme: dark" in page
    assert [one["data-id"] for one in read.tokens] == [str(span.id) for span in found]
    assert [one["title"] for one in read.tokens] == [
        f"id {span.id}: {span.token.hex(' ')}" for span in found
    ]
    assert "".join(read.texts).replace("\n", "") == "".join(visible(span.token) for span in found)
    assert [one["class"] for one in read.tokens if one["class"] == "s"] == ["s"]
    assert html.escape(result.summary) in page


@given(st.lists(st.binary(min_size=1), max_size=9), st.text())
def test_any_tokens_make_a_page(tokens: list[bytes], title: str) -> None:
    read = Page(text_of(*tokens).to_html(title=title))
    assert len(read.tokens) == len(tokens)
    assert "script" not in read.seen


class Tables(Page):
    """The cells of the rows of a page."""

    def __init__(self, text: str) -> None:
        self.rows: list[list[str]] = []
        super().__init__(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_issue_13_a_page_of_a_vocabulary_shows_every_token(tokenizer: bytemill.Tokenizer) -> None:
    found = statistics(tokenizer, n_longest=3)
    text = found.to_html(title="<b>")
    read = Tables(text)
    assert "<title>&lt;b&gt;</title>" in text
    assert "url(" not in text.split("</style>")[0]
    assert "script" not in read.seen
    labels = [row[0] for row in read.rows if len(row) == 2]
    assert {"vocabulary", "merges", "pattern", "fingerprint", "scripts"} <= set(labels)
    special = set(tokenizer.special_tokens.values())
    assert [row for row in read.rows if len(row) == 5 and row[0] != "id"] == [
        [
            str(id),
            str(len(token)),
            visible(token),
            token.hex(" "),
            "special" if id in special else "",
        ]
        for id, token in tokenizer.vocab.items()
    ]
    longest = [[str(id), str(len(token)), visible(token)] for id, token in found.longest]
    at = read.rows.index(["id", "bytes", "token"]) + 1
    assert read.rows[at : at + 3] == longest
    assert text.count("<details>") == -(-len(tokenizer) // vocabulary.PART)
