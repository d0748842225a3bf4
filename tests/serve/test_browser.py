"""The pages in a real browser: Debian's Chromium, driven by Playwright.

Without either, these tests are skipped; with BYTEMILL_BROWSER=required, as in continuous
integration, they fail instead. Nothing here measures time.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

if os.environ.get("BYTEMILL_BROWSER") == "required":
    import torch
    import uvicorn
else:
    torch = pytest.importorskip("torch")
    uvicorn = pytest.importorskip("uvicorn")
    pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Browser, Page, Request, expect

import small_lm
from bytemill import Tokenizer, encodings, lm, train_tokenizer
from bytemill.lm.run.config_file import read_config, write_config
from bytemill.lm.run.output_directory import writing
from bytemill.serve import Settings, make_app

pytestmark = pytest.mark.slow
# Generous: other tests may run at the same time.
expect.set_options(timeout=15_000)

TINY: dict[str, Any] = {
    "steps": 4,
    "context_length": 16,
    "d_model": 16,
    "num_layers": 1,
    "num_heads": 2,
    "vocab_size": 97,
    "batch_size": 4,
    "tensorboard": False,
    "threads": 1,
}
# The number of lines of an element's text.
LINES = """one => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return range.getClientRects().length;
}"""
# The least contrast (WCAG) of the text of elements with the background of their parents.
CONTRASTS = """selector => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const painted = (...colors) => {
        for (const color of colors) {
            canvas.fillStyle = color;
            canvas.fillRect(0, 0, 1, 1);
        }
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(part => {
            const c = part / 255;
            return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    return Math.min(...[...document.querySelectorAll(selector)].map(one => {
        const below = getComputedStyle(one.parentElement).backgroundColor;
        const pair = [painted(below), painted(below, getComputedStyle(one).color)];
        return Math.max(...pair) / Math.min(...pair);
    }));
}"""
TEXT = 'def greet(name):\n    print("hello", name)\n'


# --- the server -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(corpus: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tokenizers, two runs of small models, and a sweep of two."""
    place = tmp_path_factory.mktemp("served")
    tokenizer.save(place / "large.json")
    train_tokenizer(corpus, vocab_size=700, progress=False).save(place / "small.json")
    # Without an end of text, samples of random weights end only where the tests expect it.
    endless = train_tokenizer(corpus, vocab_size=1000, special_tokens=[], progress=False)
    for name, steps, lr in (("done", 40, 0.01), ("live", 1000, 0.02)):
        run = place / name
        small_lm.run(run, endless)
        facts = read_config(run)
        train = {"steps": steps, "batch_size": 4, "lr": lr}
        write_config(run, facts | {"train": train}, endless)
        prediction = {"step": 0, "predicted_memory": 2**28, "predicted_seconds": 0.1}
        (run / "metrics.jsonl").write_text(json.dumps(prediction) + "\n" + "".join(metrics(1, 40)))
    np.save(place / "ids.npy", small_lm.tokens())
    lm.sweep(place / "ids.npy", place / "sweep", {"lr": [1e-3, 1e-2]}, progress=False, **TINY)
    return place


def metrics(first: int, last: int) -> Iterator[str]:
    """Lines of a run whose loss falls, with an evaluation and a sample every 10 steps."""
    for step in range(first, last + 1):
        loss = 8 / step**0.3
        row = {"step": step, "loss": loss, "lr": 0.01, "grad_norm": 1.0, "tokens_per_s": 1e3}
        yield json.dumps(row | {"memory": 2**28, "seconds": 0.1}) + "\n"
        if step % 10 == 0:
            yield json.dumps({"step": step, "val_loss": loss + 0.1}) + "\n"
            yield json.dumps({"step": step, "sample": f"sample at {step}"}) + "\n"


class Server:
    """The app on a port of its own, in a thread."""

    def __init__(self, paths: list[Path], port: int = 0) -> None:
        self.socket = socket.create_server(("127.0.0.1", port))
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        app = make_app(Settings(paths=paths, port=self.port))
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        sockets = {"sockets": [self.socket]}
        self.thread = threading.Thread(target=self.server.run, kwargs=sockets, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            time.sleep(0.01)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        self.socket.close()


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    server = Server([place])
    yield server
    server.close()


# --- the browser ----------------------------------------------------------------------------------


@dataclass
class Tab:
    """A page of the app, and what it did."""

    page: Page
    url: str
    requests: list[Request] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def open(self, path: str, **state: str) -> Page:
        fragment = "&".join(f"{key}={quote(value)}" for key, value in state.items())
        self.page.goto(f"{self.url}{path}#{fragment}")
        return self.page

    def sent(self, path: str) -> list[Request]:
        return [one for one in self.requests if one.url.startswith(self.url + path)]


@pytest.fixture
def tab(browser: Browser, server: Server) -> Iterator[Tab]:
    """A tab of 1200 × 800; it must have no error, and send no request to another host."""
    yield from opened(browser, server, 1200)


@pytest.fixture
def narrow_tab(browser: Browser, server: Server) -> Iterator[Tab]:
    yield from opened(browser, server, 360)


def opened(browser: Browser, server: Server, width: int) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": width, "height": 800})
    context.set_default_timeout(15_000)
    page = context.new_page()
    tab = Tab(page, server.url)
    page.on("request", lambda request: tab.requests.append(request))
    page.on("pageerror", lambda error: tab.problems.append(str(error)))
    page.on(
        "console",
        lambda message: (
            tab.problems.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    yield tab
    page.wait_for_timeout(50)
    foreign = [one.url for one in tab.requests if not one.url.startswith(server.url + "/")]
    context.close()
    assert foreign == []
    assert tab.problems == []


def catalog(tab: Tab) -> dict[str, Any]:
    found: dict[str, Any] = tab.page.request.get(f"{tab.url}/api/catalog").json()
    return found


def tokenizer_id(tab: Tab, name: str) -> str:
    return next(t["id"] for t in catalog(tab)["tokenizers"] if t["name"].endswith(name))


def run_id(tab: Tab, name: str) -> str:
    return next(r["id"] for r in catalog(tab)["runs"] if r["name"].endswith(name))


def typed(tab: Tab, text: str) -> None:
    """Puts a text into the text area at once, as if pasted."""
    area = tab.page.locator("#text")
    area.evaluate(
        "(area, text) => { area.value = text; area.dispatchEvent(new Event('input')); }", text
    )


def fits(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    script = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    return bool(page.evaluate(script))


# --- Tokens ---------------------------------------------------------------------------------------


def test_typing_shows_tokens(tab: Tab, tokenizer: Tokenizer) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"))
    page.locator("#text").press_sequentially("hello  world", delay=5)
    expected = [tokenizer.token_bytes(id) for id in tokenizer.encode("hello  world")]
    tokens = page.locator(".row span")
    expect(tokens).to_have_text([t.decode().replace(" ", "·") for t in expected])
    expect(page.locator(".facts")).to_contain_text(f"{len(expected)} tokens")
    expect(page.locator(".facts")).to_contain_text("12 bytes")


def test_tokens_show_white_space_and_bytes(tab: Tab) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "small.json"), text="a\tb\n\u200b\u2028é\x00")
    view = page.locator(".tokens")
    expect(view).to_contain_text("→")
    expect(view).to_contain_text("↵")
    expect(view).to_contain_text("‹U+0000›")
    # A line of the text is a row of the view.
    assert page.locator(".row").count() == 2


def test_the_switch_for_special_tokens(tab: Tab, tokenizer: Tokenizer) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"), text="a<|endoftext|>")
    expect(page.locator(".row .special")).to_have_text(["<|endoftext|>"])
    page.get_by_label("Special tokens").uncheck()
    expect(page.locator(".row .special")).to_have_count(0)
    n = len(tokenizer.encode("a<|endoftext|>", special="none"))
    expect(page.locator(".row span")).to_have_count(n)
    page.wait_for_url(re.compile("special=none"))


def test_hovering_shows_ids(tab: Tab, tokenizer: Tokenizer) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"), text="hello")
    first = tokenizer.encode("hello")[0]
    page.locator(".row span").first.hover()
    hint = page.get_by_role("tooltip")
    expect(hint).to_contain_text(f"id {first}")
    expect(hint).to_contain_text(tokenizer.token_bytes(first).hex(" "))


def test_a_click_shows_the_token(tab: Tab, tokenizer: Tokenizer) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"), text="return")
    (id,) = tokenizer.encode("return")
    page.locator(".row span").click()
    card = page.locator("#card")
    expect(card.locator(".token-text")).to_have_text("return")
    expect(card.locator("dl")).to_contain_text(str(id))
    # The tree has a leaf for each byte, and its nodes are tokens too.
    leaves = card.locator(".tree li:not(:has(ul)) code")
    expect(leaves).to_have_text(list("return"))
    expect(card.locator(".chips button")).not_to_have_count(0)
    leaves.first.click()
    expect(card.locator(".token-text")).to_have_text("r")
    page.wait_for_url(re.compile(rf"token=.*{tokenizer.encode('r')[0]}"))


def test_search_in_the_vocabulary(tab: Tab) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"))
    page.get_by_label("Search the vocabulary").fill("return")
    found = page.locator("#vocabulary .chips code")
    expect(found.filter(has_text="return").first).to_be_visible()
    found.first.click()
    expect(page.locator("#card .token-text")).to_contain_text("return")


def test_tokenizers_side_by_side(tab: Tab) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"), text=TEXT)
    page.get_by_role("button", name="Compare with another").click()
    columns = page.locator(".column")
    expect(columns).to_have_count(2)
    expect(columns.nth(1).locator(".row span").first).to_be_visible()
    differing = columns.nth(1).locator(".differs")
    expect(differing.first).to_be_visible()
    # Tokens marked in one column are not tokens in the other; both columns mark the same text.
    texts = [column.locator(".differs").all_text_contents() for column in columns.all()]
    assert "".join(texts[0]) == "".join(texts[1])
    assert texts[0] != texts[1]
    columns.nth(1).get_by_role("button", name="Next difference").click()
    expect(columns.nth(1).locator(".current.differs").first).to_be_visible()
    columns.nth(1).get_by_role("button", name="Remove").click()
    expect(columns).to_have_count(1)
    expect(page.locator(".differs")).to_have_count(0)


def test_four_columns_keep_their_width(tab: Tab) -> None:
    ids = [one["id"] for one in catalog(tab)["tokenizers"]]
    page = tab.open("/", t=",".join((ids * 4)[:4]), text=TEXT)
    columns = page.locator(".column")
    expect(columns).to_have_count(4)
    expect(columns.last.get_by_role("button", name="Next difference")).to_be_visible()
    wide = """column => [...column.querySelectorAll(".bar > *")].filter(
        one => one.getBoundingClientRect().right > column.getBoundingClientRect().right + 1
    ).map(one => one.textContent)"""
    assert [column.evaluate(wide) for column in columns.all()] == [[]] * 4


def test_a_megabyte_of_text(tab: Tab, documents: list[str], tokenizer: Tokenizer) -> None:
    text = "".join(documents)[:1_000_000].replace("\r", "")
    page = tab.open("/", t=tokenizer_id(tab, "large.json"))
    expect(page.get_by_text("Tokens by length")).to_be_visible()
    typed(tab, text)
    n = len(tokenizer.encode_array(text))
    expect(page.locator(".facts")).to_contain_text(f"{n:,} tokens")
    # Only the visible rows are in the document.
    assert page.evaluate("document.querySelectorAll('*').length") < 4000
    page.locator(".tokens").evaluate("view => { view.scrollTop = view.scrollHeight; }")
    expect(page.locator(f'.row [data-i="{n - 1}"]').first).to_be_visible()
    assert page.evaluate("document.querySelectorAll('*').length") < 4000
    # Changing only the view does not tokenize again.
    page.get_by_label("Show ids").check()
    page.get_by_label("Show white space").uncheck()
    expect(page.locator(".row small").first).to_be_visible()
    assert [one.url for one in tab.sent("/api/tokenize")].count(f"{tab.url}/api/tokenize") == 1
    # The page says that the text is too long for a link.
    expect(page.locator("#share-note")).to_be_visible()
    assert len(page.url) < 1000


def test_pasting_again_aborts_the_old_request(tab: Tab) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"))
    expect(page.get_by_text("Tokens by length")).to_be_visible()
    typed(tab, "one " * 250_000)
    with page.expect_request(f"{tab.url}/api/tokenize"):
        pass
    typed(tab, "two")
    expect(page.locator(".row span")).not_to_have_count(0)
    expect(page.locator(".facts")).to_contain_text("3 bytes")


def test_the_address_restores_the_tokens_page(tab: Tab) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"))
    typed(tab, TEXT)
    page.get_by_role("button", name="Compare with another").click()
    page.get_by_label("Show ids").check()
    page.locator(".column").first.locator(".row span").first.click()
    expect(page.locator("#card .token-text")).to_be_visible()
    page.get_by_label("Search the vocabulary").fill("re")
    page.wait_for_url(re.compile("q=re"))
    address = page.url
    views = page.locator(".column .tokens")
    for number in (0, 1):
        expect(page.locator(".column").nth(number).locator(".row span").first).to_be_visible()
    before = views.all_inner_texts()
    page.goto("about:blank")
    tab.requests.pop()
    page.goto(address)
    expect(page.locator("#text")).to_have_value(TEXT)
    expect(views).to_have_text(before, use_inner_text=True)
    expect(page.get_by_label("Show ids")).to_be_checked()
    expect(page.get_by_label("Search the vocabulary")).to_have_value("re")
    expect(page.locator("#card .token-text")).to_have_text("def")


def test_keys_of_the_token_view(tab: Tab) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"), text="hello world\nagain")
    view = page.get_by_role("listbox")
    expect(page.locator(".row span").first).to_be_visible()
    view.focus()
    current = page.locator(".row .current")
    page.keyboard.press("ArrowRight")
    expect(current).to_have_attribute("data-i", "0")
    page.keyboard.press("End")
    last = page.locator(".row span").count() - 1
    expect(current).to_have_attribute("data-i", str(last))
    page.keyboard.press("ArrowUp")
    expect(current).to_have_attribute("data-i", "0")
    expect(view).to_have_attribute("aria-activedescendant", re.compile("current"))
    page.keyboard.press("Enter")
    expect(page.locator("#card .token-text")).to_have_text(
        page.locator(".row span").first.inner_text()
    )


# --- Write ----------------------------------------------------------------------------------------


def test_a_sample_streams_and_stops(tab: Tab) -> None:
    page = tab.open("/write", m=f"{run_id(tab, 'done')}:best", max_tokens="4096", prompt="hello")
    expect(page.get_by_text("parameters")).to_be_visible()
    # Stopped by a script in the page: so small a model could finish before the test reacts.
    page.evaluate(
        """() => new MutationObserver((_, observer) => {
            if (document.querySelectorAll(".text span:not(.prompt)").length < 4) return;
            observer.disconnect();
            document.getElementById("stop").click();
        }).observe(document.getElementById("samples"), { childList: true, subtree: true })"""
    )
    page.get_by_role("button", name="Write", exact=True).click()
    written = page.locator(".text span:not(.prompt)")
    expect(page.get_by_text("stopped")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    expect(page.locator(".text .prompt").first).to_be_visible()
    expect(page.locator("#rate")).to_contain_text("tokens/s")
    # Beyond the context of 32 tokens, perhaps.
    n = written.count()
    assert 4 <= n < 4096
    page.wait_for_timeout(300)
    assert written.count() == n
    # Continue adds to the stopped text.
    page.get_by_label("Tokens", exact=True).fill("5")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("token limit")).to_be_visible()
    assert written.count() == n + 5


def test_another_token_is_continued(tab: Tab) -> None:
    page = tab.open("/write", m=f"{run_id(tab, 'done')}:last", max_tokens="12", prompt="hello")
    expect(page.get_by_text("parameters")).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("token limit")).to_be_visible()
    written = page.locator(".text span:not(.prompt)")
    before = [one.inner_text() for one in written.all()]
    written.nth(4).click()
    menu = page.get_by_role("dialog", name="Alternatives")
    expect(menu.locator("button")).not_to_have_count(1)
    other = menu.locator("button:not([aria-current])").first
    other.focus()
    page.keyboard.press("Enter")
    expect(menu).to_have_count(0)
    # The focus is back in the text.
    expect(page.locator(".text")).to_be_focused()
    # The first tokens stay, the chosen one follows, then 12 new ones.
    expect(written).to_have_count(4 + 1 + 12)
    expect(page.locator(".text .chosen")).to_have_count(1)
    after = [one.inner_text() for one in written.all()]
    assert after[:4] == before[:4]
    body = tab.sent("/api/write")[-1].post_data_json
    assert isinstance(body, dict)
    assert len(body["ids"]) == page.locator(".text .prompt").count() + 5


def test_a_refused_prompt_is_kept(tab: Tab) -> None:
    prompt = "hello " * 100
    page = tab.open("/write", m=f"{run_id(tab, 'done')}:best", prompt=prompt)
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="context length")).to_be_visible()
    for name in ("Continue", "Edit", "Copy"):
        expect(page.locator(".sample").get_by_role("button", name=name)).to_be_disabled()
    expect(page.locator("#prompt")).to_have_value(prompt)
    # The browser logs the refusal, which is expected here.
    tab.problems = [one for one in tab.problems if "400" not in one]


def test_samples_and_models_side_by_side(tab: Tab) -> None:
    page = tab.open(
        "/write", m=f"{run_id(tab, 'done')}:best", max_tokens="4", n="2", prompt="hello"
    )
    page.get_by_role("button", name="Compare with another").click()
    page.get_by_role("button", name="Write", exact=True).click()
    samples = page.locator(".sample")
    expect(samples).to_have_count(4)
    expect(page.get_by_text("token limit")).to_have_count(4)
    seeds = {one.post_data_json["seed"] for one in tab.sent("/api/write") if one.post_data_json}
    assert len(seeds) == 1
    samples.first.get_by_role("button", name="Edit").click()
    expect(page.locator("#prompt")).to_have_value(re.compile("^hello(?s:.+)"))


def test_the_address_restores_the_write_page(tab: Tab) -> None:
    page = tab.open("/write", m=f"{run_id(tab, 'done')}:7", prompt="a prompt", temperature="0.5")
    expect(page.locator("#prompt")).to_have_value("a prompt")
    page.get_by_label("Seed").fill("3")
    page.get_by_label("Stop at").fill("end\\n")
    page.wait_for_url(re.compile("seed=3"))
    page.wait_for_url(re.compile("stop="))
    page.reload()
    expect(page.get_by_label("Seed")).to_have_value("3")
    expect(page.get_by_label("Temperature")).to_have_value("0.5")
    expect(page.get_by_label("Checkpoint")).to_have_value("7")
    expect(page.get_by_label("Stop at")).to_have_value("end\\n")
    page.locator("#prompt").fill("too long " * 1000)
    expect(page.locator("#share-note")).to_be_visible()
    page.wait_for_url(re.compile("^(?!.*prompt=)"))


# --- Runs -----------------------------------------------------------------------------------------


def test_curves_move_while_a_run_trains(tab: Tab, place: Path) -> None:
    run = place / "live"
    with writing(run):
        page = tab.open("/runs", runs=run_id(tab, "live"))
        curve = page.locator(".chart > svg").first.locator("path.curve:not(.faint)").first
        expect(curve).to_be_visible()
        expect(page.locator("#runs .status.training")).to_be_visible()
        expect(page.get_by_text("sample at 40")).to_be_visible()
        before = curve.get_attribute("d")
        with open(run / "metrics.jsonl", "a") as file:
            file.writelines(metrics(41, 60))
        expect(curve).not_to_have_attribute("d", before or "")
        expect(page.locator(".chart > svg").first).to_have_attribute(
            "aria-label", re.compile(re.escape(f"{8 / 60**0.3 + 0.1:.4g}"))
        )
        expect(page.get_by_text("sample at 60")).to_be_visible()
        expect(page.locator("#runs")).to_contain_text("step 60 of 1,000")


def test_curves_have_values_and_axes(tab: Tab) -> None:
    page = tab.open("/runs", runs=run_id(tab, "done"), smoothing="0")
    chart = page.locator(".chart").first
    svg = chart.locator("> svg")
    expect(svg.locator("path.curve").first).to_be_visible()
    svg.hover()
    values = chart.locator(".values")
    expect(values).to_contain_text(re.compile("step (19|20|21)"))
    expect(values).to_contain_text("training")
    svg.focus()
    page.keyboard.press("ArrowRight")
    expect(values).to_contain_text("training")
    before = svg.locator("path.curve").first.get_attribute("d")
    page.get_by_text("Log", exact=True).click()
    expect(svg.locator("path.curve").first).not_to_have_attribute("d", before or "")
    page.get_by_text("Time", exact=True).click()
    expect(chart.get_by_text("time", exact=True)).to_be_visible()
    # Keys move in the group, and it shows the focus.
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("radio", name="Tokens")).to_be_checked()
    expect(page.get_by_role("radiogroup").first).to_have_css("outline-style", "solid")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile("x=time.*y=log"))
    page.reload()
    expect(page.get_by_label("Time")).to_be_checked()
    expect(page.get_by_label("Log")).to_be_checked()


def test_charts_have_curves_and_labels_that_fit(tab: Tab) -> None:
    page = tab.open("/runs", runs=run_id(tab, "done"))
    expect(page.locator(".chart > svg path.curve").first).to_be_visible()
    expect(page.locator(".chart figcaption", has_text="Memory")).to_be_visible()
    # Predictions are single values, not curves.
    expect(page.locator(".chart figcaption", has_text="predicted")).to_have_count(0)
    cut = page.evaluate(
        """() => [...document.querySelectorAll(".chart > svg")].flatMap((picture) => {
            const edge = picture.getBoundingClientRect();
            return [...picture.querySelectorAll("text")].filter((one) => {
                const at = one.getBoundingClientRect();
                return at.left < edge.left - 1 || at.right > edge.right + 1;
            }).map((one) => one.textContent);
        })"""
    )
    assert cut == []


def test_differences_between_runs(tab: Tab) -> None:
    page = tab.open("/runs", runs=f"{run_id(tab, 'done')},{run_id(tab, 'live')}")
    table = page.locator("#details table")
    expect(table).to_contain_text("train.lr")
    expect(table).to_contain_text("0.02")
    expect(table).not_to_contain_text("batch_size")
    page.get_by_role("checkbox", name="done").uncheck()
    expect(page.get_by_role("heading", name="Config")).to_be_visible()


def test_a_sweep_is_a_table_with_plots(tab: Tab) -> None:
    page = tab.open("/runs")
    page.get_by_role("button", name="sweep").click()
    table = page.locator(".trials")
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(2)
    # The best run first; all runs drawn; the loss over the varied setting.
    expect(rows.first).to_have_class("best")
    expect(page.locator(".plots circle")).to_have_count(2)
    expect(page.locator("#runs input:checked")).to_have_count(3)
    rates = rows.locator("td:nth-child(2)")
    table.get_by_role("button", name="lr").click()
    expect(rates).to_have_text(["0.001", "0.01"])
    table.get_by_role("button", name="lr").click()
    expect(rates).to_have_text(["0.01", "0.001"])
    box = rows.first.get_by_role("checkbox")
    box.uncheck()
    expect(page.locator("#runs input:checked")).to_have_count(2)
    # Both lists show the same runs in the same colors, and a checkbox keeps the focus.
    colors = "one => one.querySelector('path').getAttribute('stroke')"
    drawn = page.locator("#runs label:has(:checked)").last
    shown = table.locator("label:has(:checked)")
    expect(shown).to_have_count(1)
    assert shown.evaluate(colors) == drawn.evaluate(colors)
    expect(box).to_be_focused()
    drawn.locator("input").click()
    expect(table.locator("input:checked, .swatch path")).to_have_count(0)
    page.wait_for_url(re.compile("sweep="))
    page.reload()
    expect(rows).to_have_count(2)


# --- every page -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/write", "/runs"])
def test_narrow_windows_do_not_scroll_sideways(narrow_tab: Tab, path: str) -> None:
    state = {"text": TEXT * 3, "ids": "1"} if path == "/" else {}
    page = narrow_tab.open(path, **state)
    expect(page.locator("#page")).to_be_visible()
    ready = {"/": ".row span", "/write": ".setting", "/runs": ".chart > svg path.curve"}[path]
    expect(page.locator(ready).first).to_be_visible()
    assert fits(page)
    for label in page.locator("nav a").all():
        expect(label).to_be_visible()
        # The name of a page is in one line.
        assert label.evaluate(LINES) == 1
    if path == "/runs":
        page.locator(".chart > svg").first.hover()
        expect(page.locator(".values").first).to_be_visible()
        assert fits(page)


@pytest.mark.parametrize("path", ["/", "/write", "/runs"])
def test_every_control_has_a_name(tab: Tab, path: str) -> None:
    page = tab.open(path, text="hello")
    expect(page.locator("#page")).to_be_visible()
    page.wait_for_load_state("networkidle" if path == "/" else "load")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea")].filter((one) =>
            one.checkVisibility() && !one.labels?.length && !one.ariaLabel &&
            !one.textContent.trim()
        ).map((one) => one.outerHTML)"""
    )
    assert unnamed == []


def test_the_color_switch(tab: Tab) -> None:
    page = tab.open("/")
    page.emulate_media(color_scheme="light")

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert light != dark
    switch = page.get_by_role("button", name="Colors")
    switch.click()
    assert background() == light
    page.reload()
    assert background() == light
    switch.click()
    assert background() == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ids_are_readable_on_every_color(tab: Tab, scheme: Any) -> None:
    page = tab.open("/", t=tokenizer_id(tab, "large.json"), text=TEXT, ids="1")
    page.emulate_media(color_scheme=scheme)
    expect(page.locator(".row small").nth(5)).to_be_visible()
    assert page.evaluate(CONTRASTS, ".row small") >= 4.5


def test_a_directory_without_files(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encodings, "available", list)
    server = Server([tmp_path])
    try:
        for tab in opened(browser, server, 900):
            for path, message in [("/", "No tokenizer"), ("/write", "No run"), ("/runs", "No run")]:
                page = tab.open(path)
                expect(page.get_by_text(message)).to_be_visible()
                expect(page.get_by_text("bytemill serve")).to_be_visible()
    finally:
        server.close()


def test_the_server_stops_and_returns(browser: Browser, place: Path) -> None:
    server = Server([place])
    for tab in opened(browser, server, 900):
        page = tab.open("/", text="hello")
        expect(page.locator(".row span").first).to_be_visible()
        server.close()
        typed(tab, "hello again")
        expect(page.locator("#offline")).to_be_visible()
        expect(page.get_by_role("alert").filter(has_text="does not answer").first).to_be_visible()
        server = Server([place], server.port)
        expect(page.locator("#offline")).to_be_hidden()
        expect(page.locator(".facts")).to_contain_text("11 bytes")
        # The browser logs requests that fail, which is expected here.
        tab.problems = [one for one in tab.problems if "ERR_" not in one]
    server.close()
