"""Every HTML page must be well-formed and self-contained."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

# Elements without an end.
VOID = ("meta", "input", "br")


class _Balanced(HTMLParser):
    """Checks that every element is closed, and records what might load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loading: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        bad = {"src", "href", "srcset", "data", "xlink:href", "action", "style"}
        self.loading += [name for name, _ in attrs if name in bad or name.startswith("on")]
        if tag in ("script", "link", "iframe", "object", "img", "base"):
            self.loading.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(page: str) -> None:
    """Fails unless the page is well-formed, loads and runs nothing, and is light or dark."""
    parser = _Balanced()
    parser.feed(page)
    parser.close()
    assert (parser.open, parser.loading) == ([], [])
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page
    # All colors and sizes of the charts come from the page itself.
    defined = set(re.findall(r"(--[\w]+):", page))
    assert set(re.findall(r"var\((--[\w]+)\)", page)) <= defined
    drawings(page)
    page.encode()


def drawings(page: str) -> list[ElementTree.Element]:
    """The charts of a page."""
    return [ElementTree.fromstring(one) for one in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
