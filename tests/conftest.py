"""Shared by many tests: a real corpus, tokenizers built once, and hypothesis profiles."""

from __future__ import annotations

import os
import shutil
import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import bytemill
import rivals

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Time limits are pytest-timeout's; a test that starts several trainers is slow to begin with.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", max_examples=100, **_COMMON)
settings.register_profile(
    "fuzz", max_examples=int(os.environ.get("FUZZ_EXAMPLES", "5000")), **_COMMON
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Shells ignore Ctrl-C in background jobs, and processes that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

EOT = "<|endoftext|>"


def standard_library() -> list[Path]:
    """The source files of Python's standard library: real text that every machine has."""
    top = Path(sysconfig.get_paths()["stdlib"])
    left_out = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}
    found = (p for p in top.rglob("*.py") if not left_out & set(p.relative_to(top).parts))
    return sorted(found)


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """About six megabytes of real text, a document per file."""
    texts: list[str] = []
    size = 0
    for path in standard_library():
        if size > 6_000_000:
            break
        data = path.read_bytes()
        try:
            texts.append(data.decode())
        except UnicodeDecodeError:
            continue
        size += len(data)
    assert size > 2_000_000, "the standard library's source is not installed"
    return texts


@pytest.fixture(scope="session")
def corpus(documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same text as one file, its documents separated by a special token."""
    path = tmp_path_factory.mktemp("corpus") / "library.txt"
    path.write_bytes(EOT.join(documents).encode())
    return path


@pytest.fixture(scope="session")
def tokenizer(corpus: Path) -> bytemill.Tokenizer:
    """A tokenizer of 4,000 ids learned from the corpus with the default options."""
    return bytemill.train_tokenizer(corpus, vocab_size=4000)


@pytest.fixture(scope="session", params=["cl100k", "o200k"])
def openai(request: pytest.FixtureRequest) -> rivals.Published:
    """A published vocabulary with its pattern and special tokens."""
    return rivals.published(request.param)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright. Without either, tests are skipped, unless
    BYTEMILL_BROWSER=required, as in continuous integration.
    """
    chromium = shutil.which("chromium")
    if os.environ.get("BYTEMILL_BROWSER") != "required":
        pytest.importorskip("playwright.sync_api")
        if chromium is None:
            pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    assert chromium is not None, "chromium is not installed"
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"] if root else []
        )
        yield browser
        browser.close()
