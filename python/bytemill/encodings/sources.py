"""Finding rank files on this machine, without network.

The directories are searched in order. Each stored form (rank file, compressed, GPT-2's merges) is
converted to the published rank file, whose SHA-256 is known. Files that do not match are skipped,
so sources need not be trusted.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from .. import _json
from .._alphabet import BYTES
from ..errors import TokenizerError
from .published import GPT2_MERGES_URL, RANKS, Ranks

__all__ = ["DIRECTORY", "FoundRanks", "Place", "cache_directory", "find", "places"]

# The environment variable with the user's directory.
DIRECTORY = "BYTEMILL_ENCODINGS"
# tiktoken's cache: the first of these variables that is set; an empty value disables the cache.
TIKTOKEN_CACHES = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
# Models on the Hugging Face hub with GPT-2's merges.
GPT2_MODELS = (
    *(f"openai-community/{name}" for name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")),
    *("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"),
    *("distilbert/distilgpt2", "distilgpt2", "FacebookAI/roberta-base", "roberta-base"),
)
# Larger than every rank file; bounds the expansion of compressed files.
MAX_BYTES = 16 << 20
# The first line of merges.txt, which some files lack.
VERSION = b"#version"


class Place(NamedTuple):
    """A directory that may contain rank files, and its name for display."""

    name: str
    path: Path


class FoundRanks(NamedTuple):
    """A rank file that was found: its contents, its path, and the name of its place."""

    data: bytes
    path: Path
    place: str


def find(ranks: Ranks) -> tuple[FoundRanks | None, list[Path]]:
    """The first match, and the files before it with the right name but other contents."""
    rejected: list[Path] = []
    for place in places():
        for name, read in _forms(ranks):
            path = place.path / name
            data = _read(path, read)
            if data is not None and ranks.matches(data):
                return FoundRanks(data, path, place.name), rejected
            if os.path.isfile(path):
                rejected.append(path)
    if ranks.name == "p50k_base":
        below, _ = find(RANKS["r50k_base"])
        data = None if below is None else _with_spaces(below.data)
        if below is not None and data is not None and ranks.matches(data):
            return FoundRanks(data, below.path, below.place), rejected
    return None, rejected


# --- places -------------------------------------------------------------------------------------


def places() -> Iterator[Place]:
    """The directories, in the order in which they are searched."""
    if own := os.environ.get(DIRECTORY):
        yield Place(DIRECTORY, _path(own))
    shared = [os.environ[name] for name in TIKTOKEN_CACHES if name in os.environ]
    cache = shared[0] if shared else os.path.join(tempfile.gettempdir(), "data-gym-cache")
    if cache:
        yield Place("tiktoken's cache", Path(cache))
    yield Place("bytemill's cache", cache_directory())
    # Importing the package would load its 70 MB library.
    package = importlib.util.find_spec("bpe_openai")
    for location in (package and package.submodule_search_locations) or ():
        yield Place("bpe-openai", Path(location) / "data")
    for model in GPT2_MODELS:
        snapshots = _hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
        for directory in sorted(snapshots.glob("*")):
            yield Place(f"{model} in the Hugging Face cache", directory)


def cache_directory() -> Path:
    """The directory of downloaded rank files."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _path(base) / "bytemill" / "encodings"


def _hub_cache() -> Path:
    """The cache of `huggingface_hub`, which need not be installed."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return _path(os.environ[name])
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or os.path.join(base, "huggingface")
    return _path(home) / "hub"


def _path(name: str) -> Path:
    # Unlike Path.expanduser, this does not fail where the user has no home.
    return Path(os.path.expanduser(name))


# --- forms --------------------------------------------------------------------------------------


def _forms(ranks: Ranks) -> Iterator[tuple[str, Callable[[bytes], bytes]]]:
    """File names, each with the function that converts its contents to a rank file."""
    yield ranks.file, bytes
    yield _cached_name(ranks.url), bytes
    yield f"{ranks.file}.gz", _decompressed
    if ranks.name == "r50k_base":
        for name in ("merges.txt", "vocab.bpe", _cached_name(GPT2_MERGES_URL)):
            yield name, _from_merges
        yield "tokenizer.json", _from_tokenizer_json


def _cached_name(url: str) -> str:
    """The name of a file in tiktoken's cache."""
    return hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()


def _read(path: Path, read: Callable[[bytes], bytes]) -> bytes | None:
    """A file, converted to a rank file; None if it is missing, unreadable or malformed."""
    try:
        # Opening a pipe would block.
        if not os.path.isfile(path) or path.stat().st_size > MAX_BYTES:
            return None
        return read(path.read_bytes())
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError):
        return None


def _decompressed(data: bytes) -> bytes:
    expand = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    return expand.decompress(data, MAX_BYTES)


def _from_merges(data: bytes) -> bytes:
    """The rank file of GPT-2's merges: the bytes in the order of its alphabet, then the merges."""
    text = data.decode()
    if data.startswith(VERSION):
        text = text.partition("\n")[2]
    return _ranked(text.replace(" ", "").split())


def _from_tokenizer_json(data: bytes) -> bytes:
    model = _json.parse_object(data, "tokenizer.json", TokenizerError)["model"]
    merges = ("".join(pair).replace(" ", "") for pair in model["merges"])
    return _ranked(list(merges))


def _ranked(tokens: list[str]) -> bytes:
    letters = {ord(letter): byte for letter, byte in BYTES.items()}
    # translate yields code points below 256, which Latin-1 maps to bytes.
    spelled = (token.translate(letters).encode("latin-1") for token in tokens)
    return _lines([*map(_byte, BYTES.values()), *spelled])


def _byte(value: int) -> bytes:
    return bytes((value,))


def _lines(tokens: list[bytes], first: int = 0) -> bytes:
    return b"".join(
        b"%b %d\n" % (base64.b64encode(token), id) for id, token in enumerate(tokens, first)
    )


def _with_spaces(r50k: bytes) -> bytes:
    """p50k: r50k, a gap of one id for a special token, then runs of 2 to 25 spaces."""
    first = RANKS["r50k_base"].n_tokens + 1
    return r50k + _lines([b" " * n for n in range(2, 26)], first)
