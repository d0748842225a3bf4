"""The documentation site builds without a warning, and its pages load nothing from elsewhere."""

from __future__ import annotations

import html
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TOP = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. The repository is not touched: its docs may be built at the same time."""
    pytest.importorskip("zensical")
    pytest.importorskip("torch")
    here = tmp_path_factory.mktemp("site")
    for name in ("docs", "python"):
        shutil.copytree(TOP / name, here / name, ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(TOP / "zensical.toml", here)
    for command in (["docs/site.py"], ["-m", "zensical", "build", "--strict", "--clean"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=here, capture_output=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return here / "target" / "site"


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > 20
    # Elements that a browser loads by itself; links for the reader are `a`.
    loaded = re.compile(
        r"""<(?:script|img|source|iframe|embed|object|link(?! rel="canonical"))\b[^>]*?"""
        r"""\b(?:src|srcset|href|data)=["']?((?:https?:)?//[^"'> ]*)"""
    )
    assert loaded.findall('<link href="//a.b/c.css" rel="stylesheet">') == ["//a.b/c.css"]
    for page in pages:
        assert loaded.findall(page.read_text(encoding="utf-8")) == [], page.name
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", text) == [], sheet.name


@pytest.mark.slow
def test_every_command_and_every_public_name_has_a_heading(site: Path) -> None:
    import bytemill
    import bytemill.lm
    from bytemill.cli import COMMANDS

    reference = site / "reference"
    commands = (reference / "command-line.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f'id="bytemill-{name}"' in commands
    # Every paragraph of a help text is a paragraph, not code.
    assert "<p>CORPUS is files, directories," in commands
    assert "<td></td>" not in commands
    assert "[default: <|endoftext|>]" in html.unescape(commands)
    assert "<code>--counts FILE|GLOB</code>" in commands
    for page, module in (("python.html", bytemill), ("python-lm.html", bytemill.lm)):
        text = (reference / page).read_text(encoding="utf-8")
        for name in module.__all__:
            assert name.startswith("__") or f'id="{module.__name__}.{name}"' in text, name


@pytest.mark.slow
def test_pipes_in_code_show_no_backslash(site: Path) -> None:
    assert r"`<\|endoftext\|>`" in (TOP / "docs" / "design.md").read_text(encoding="utf-8")
    for page in site.rglob("*.html"):
        assert not re.search(r"<td>.*\\\|.*</td>", page.read_text(encoding="utf-8")), page.name


@pytest.mark.slow
def test_names_in_signatures_are_links(site: Path) -> None:
    plain = re.compile(r'<span title="(bytemill\.[\w.]+)">')
    assert plain.findall('<span title="bytemill.lm.model.Device">') == ["bytemill.lm.model.Device"]
    linked = 0
    for page in ("python", "python-lm", "python-types"):
        text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        linked += text.count('class="autorefs autorefs-internal"')
        # Fields are their own titles; the native module and private names have no page.
        names = {name for name in plain.findall(text) if not re.search(r"\.[A-Z]\w*\.|\._", name)}
        assert names == set(), page
    assert linked > 300


@pytest.mark.slow
def test_every_link_leads_to_a_page_a_heading_or_a_file_of_the_repository(site: Path) -> None:
    repository = "https://github.com/bytemill/bytemill/blob/main/"
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    headings = {path: set(re.findall(r'\bid="?([^"\s>]+)', text)) for path, text in pages.items()}
    broken, in_repository = [], set()
    for page, text in pages.items():
        for found in re.findall(r"""\b(?:href|src)=["']?([^"'\s>]+)""", text):
            link, _, heading = html.unescape(found).partition("#")
            if link.startswith(repository):
                in_repository.add(link)
                ok = (TOP / link.removeprefix(repository)).exists()
            elif re.match(r"https?:|/", link):
                ok = link == "https://zensical.org/" or page.name == "404.html"
            else:
                target = (page.parent / unquote(link)).resolve() if link else page
                ok = target.exists() and (not heading or unquote(heading) in headings[target])
            if not ok:
                broken.append((page.name, found))
    assert broken == []
    assert f"{repository}src/naive.rs" in in_repository
    assert len(in_repository) > 200


@pytest.mark.slow
def test_pages_work_when_opened_as_files(site: Path, browser: Browser) -> None:
    page = browser.new_page()
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("requestfailed", lambda request: problems.append(request.url))
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((site / "reference" / "python.html").as_uri())
    page.get_by_role("button", name="Search").click()
    page.get_by_role("combobox", name="Search").fill("vocabulary size")
    page.get_by_role("option", name="Choosing a vocabulary size").first.click()
    page.wait_for_url("**/vocabulary.html*")
    assert problems == []
    assert {url.partition(":")[0] for url in requests} == {"file"}
    page.close()


def test_the_drawings_are_those_of_their_script(tmp_path: Path) -> None:
    shutil.copy(TOP / "docs" / "drawings.py", tmp_path)
    subprocess.run([sys.executable, tmp_path / "drawings.py"], check=True)
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert drawn == sorted(path.name for path in (TOP / "docs").glob("inside-*.svg"))
    for name in drawn:
        assert (tmp_path / name).read_text() == (TOP / "docs" / name).read_text()


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("pty")
    monkeypatch.syspath_prepend(TOP / "docs")
    return importlib.import_module("pictures")


def test_every_picture_of_start_is_that_of_a_command(pictures: ModuleType) -> None:
    page = (TOP / "docs" / "start.md").read_text(encoding="utf-8")
    drawn = [picture for _, _, picture in pictures.BLOCK.findall(page) if picture]
    assert sorted(drawn) == sorted(path.name for path in (TOP / "docs").glob("start-*.svg"))
    assert len(drawn) == page.count("(start-")
    assert "bytemill plot run/ -o loss.svg" in page


def test_pictures_show_what_a_terminal_shows(pictures: ModuleType, tmp_path: Path) -> None:
    screen = pictures.Screen()
    screen.feed("first\rlast \r\n\x1b[1;36mhint\x1b[0m: \x1b[38;5;16;48;5;153ma<b\x1b[0m\n")
    screen.feed("-" * (pictures.COLUMNS + 1))
    assert ["".join(char for char, _ in line) for line in screen.lines] == [
        "last ", "hint: a<b", "-" * pictures.COLUMNS, "-",
    ]  # fmt: skip
    drawn = pictures.svg(screen.lines, "A <picture>")
    assert "<title>A &lt;picture&gt;</title>" in drawn
    assert 'fill="#afd7ff"' in drawn
    assert "a&lt;b</text>" in drawn
    progress = "\rtrain   3%  mfu 50%  \rtrain  50%  loss 1 \rtrain 100%"
    assert pictures.until(progress, "The training at 50 %") == progress.removesuffix("\rtrain 100%")
    assert pictures.until(progress, "The training") == progress
    assert pictures.shown("stty size", tmp_path).strip().endswith("100")
    with pytest.raises(SystemExit, match="no such thing"):
        pictures.shown("echo no such thing; exit 3", tmp_path)
