"""Makes the screenshots of serving.md: run `python docs/screenshots.py`.

Trains a tokenizer and two small models on the source of Python's library, starts the server, and
captures its pages with Chromium, driven by Playwright.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from bytemill import demo, lm
from bytemill.serve import Settings, make_app

DOCS = Path(__file__).parent
SIZE = {"width": 1280, "height": 800}
MAX_BYTES = 200_000
TEXT = '''\
def wrapped(text: str, width: int = 70) -> list[str]:
    """Cuts a text into lines: naïve, but 42 % faster."""
    return [text[at : at + width] for at in range(0, len(text), width)]
'''


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("error: chromium is not installed\nhint: apt-get install chromium")
    with tempfile.TemporaryDirectory() as directory:
        # The pages show this name.
        place = Path(directory, "python")
        place.mkdir()
        prepare(place)
        url = served(place)
        with sync_playwright() as playwright:
            sandbox = [] if os.geteuid() else ["--no-sandbox"]
            browser = playwright.chromium.launch(executable_path=chromium, args=sandbox)
            for name, take in PICTURES.items():
                page = browser.new_page(viewport=SIZE, color_scheme="light")
                take(page, url)
                save(page.screenshot(), DOCS / name)
            browser.close()


def prepare(place: Path) -> None:
    """Makes two tokenizers, and two runs that differ in their learning rate."""
    made = demo.run(place / "demo", vocab_size=4096)
    demo.run(place / "small", vocab_size=1024).tokenizer.save(place / "small.json")
    shutil.rmtree(place / "small")
    shape = {"d_model": 64, "num_layers": 2, "num_heads": 2, "context_length": 64}
    for name, lr in (("slow", 1e-3), ("fast", 8e-3)):
        lm.train(
            place / "demo" / "tokens",
            place / name,
            tokenizer=made.tokenizer,
            steps=300,
            batch_size=8,
            lr=lr,
            eval_every=50,
            eval_windows=32,
            sample_prompt="def ",
            sample_tokens=40,
            tensorboard=False,
            threads=1,
            **shape,
        )


def served(place: Path) -> str:
    """Starts the server in a thread, and returns its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(Settings(paths=[place])), log_level="error"))
    run: Callable[..., Any] = server.run
    threading.Thread(target=run, kwargs={"sockets": [listening]}, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


# --- screenshots ----------------------------------------------------------------------------------


def tokens(page: Page, url: str) -> None:
    page.goto(url)
    page.locator("#text").fill(TEXT)
    page.get_by_role("button", name="Compare with another").click()
    names = page.get_by_role("combobox", name="Tokenizer")
    for number, name in enumerate(("demo/tokenizer.json", "small.json")):
        option = names.nth(number).locator("option", has_text=name)
        names.nth(number).select_option(label=option.first.inner_text())
    column = page.locator(".column").first
    column.get_by_role("option", name="return").click()
    # Counting how often tokens occur takes a moment.
    page.locator("#card dd", has_text="×").wait_for(timeout=60_000)
    column.get_by_role("option", name="range").hover()


def write(page: Page, url: str) -> None:
    page.goto(f"{url}/write#prompt=def%20read(self%2C%20path)%3A%0A&seed=2&max_tokens=90")
    run = page.get_by_role("combobox", name="Run")
    run.select_option(label=run.locator("option", has_text="fast").inner_text())
    page.get_by_role("button", name="Write", exact=True).click()
    page.get_by_text("token limit").wait_for()
    page.locator(".text span:not(.prompt)").nth(7).click()


def runs(page: Page, url: str) -> None:
    page.goto(f"{url}/runs#smoothing=0.8")
    for name in ("slow", "fast"):
        page.get_by_role("checkbox", name=name).check()
    page.locator(".chart > svg path.curve").nth(5).wait_for()
    page.wait_for_timeout(1500)
    page.locator(".chart > svg").first.hover()


PICTURES: dict[str, Callable[[Page, str], None]] = {
    "serve-tokens.png": tokens,
    "serve-write.png": write,
    "serve-runs.png": runs,
}


def save(data: bytes, path: Path) -> None:
    """Saves a screenshot as an optimized PNG."""
    Image.open(io.BytesIO(data)).convert("RGB").save(path, optimize=True)
    size = path.stat().st_size
    assert size < MAX_BYTES, f"{path}: {size} bytes"
    print(f"saved   {path.name}: {size:,} bytes")


if __name__ == "__main__":
    main()
