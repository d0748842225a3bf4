"""Downloading rank files, only when the user asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

from .._files import write_atomically
from ..corpus.names import redacted
from ..errors import ConfigError, TokenizerError
from ..progress import Progress, ProgressOption
from .published import RANKS, Ranks, definition
from .sources import DIRECTORY, cache_directory, find

__all__ = ["download"]

# Seconds without data after which the download fails.
TIMEOUT = 30
BLOCK_SIZE = 1 << 16


def download(name: str, *, mirror: str | None = None, progress: ProgressOption = None) -> Path:
    """Downloads the vocabulary of an encoding, unless it is found on this machine.

    Args:
        name: of the encoding, such as `cl100k_base`.
        mirror: address of a directory with the rank file (`https:`, `http:` or `file:`); None for
            the one that its makers publish it in.
        progress: as in `train_tokenizer`; the phase is `"download"`, in bytes.

    Returns:
        the rank file; if it was downloaded, in the user's cache.
    """
    wanted = RANKS[definition(name).ranks]
    url = wanted.url if mirror is None else f"{mirror.rstrip('/')}/{wanted.file}"
    if not url.startswith(("https://", "http://", "file://")):
        raise ConfigError(
            f"mirror must start with https://, http:// or file://, got {redacted(mirror or '')!r}"
        )
    found, _ = find(wanted)
    if found is not None:
        return found.path
    target = cache_directory() / wanted.file
    if not target.is_absolute():
        raise ConfigError(f"{target}: the user has no home directory", "set XDG_CACHE_HOME")
    data = _fetched(url, wanted, progress)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, data)
    return target


def _fetched(url: str, ranks: Ranks, progress: ProgressOption) -> bytes:
    """The contents of the file, checked: it is small enough for memory."""
    data = bytearray()
    with Progress(progress) as report, contextlib.closing(_blocks(url, ranks)) as blocks:
        for block in blocks:
            data += block
            report("download", len(data), ranks.size)
            if len(data) > ranks.size:
                break
    if not ranks.matches(data):
        read = (
            f"{len(data):,} bytes of {ranks.size:,} were read"
            if len(data) != ranks.size
            else f"its SHA-256 is not {ranks.sha256[:12]}…"
        )
        raise TokenizerError(f"{redacted(url)}: not the published file: {read}", _elsewhere(ranks))
    return bytes(data)


def _blocks(url: str, ranks: Ranks) -> Generator[bytes, None, None]:
    # Imported here: slow, and rarely needed.
    import http.client
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
            while block := response.read(BLOCK_SIZE):
                yield block
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # an HTTPError is also the open response
        # urllib wraps network errors.
        reason = getattr(error, "reason", None)
        why = reason if isinstance(reason, OSError) else error
        raise TokenizerError(
            f"{redacted(url)}: cannot be downloaded: {why}", _elsewhere(ranks)
        ) from error


def _elsewhere(ranks: Ranks) -> str:
    return (
        f"download {ranks.url} on another machine, and set {DIRECTORY} to the directory of the file"
    )
