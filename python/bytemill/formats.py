"""Tokenizer files: detecting the format, finding the files, writing them atomically.

Rust parses and serializes the formats; this module finds the files, names them in errors and
writes them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args

from . import _native
from ._files import regular, settle, write_atomically, write_together
from ._native import Core
from .errors import ConfigError, TokenizerError, require

TokenizerFormat: TypeAlias = Literal["huggingface", "gpt2", "tiktoken", "minbpe"]
KINDS: tuple[TokenizerFormat, ...] = get_args(TokenizerFormat)
PatternName: TypeAlias = Literal["gpt2", "cl100k", "o200k", "llama3", "qwen2"]
# A name or one of its aliases, a regular expression, or several stages.
PatternLike: TypeAlias = PatternName | str | Sequence[str]
# In a directory, the first of these that exists is read.
NAMES = ("tokenizer.json", "vocab.json", "tokenizer.model", "merges.txt")


class TiktokenEncoding(Protocol):
    """A `tiktoken.Encoding`, or an object with its attributes.

    tiktoken has no public access to its ranks and pattern; its own pickling uses these names.
    """

    @property
    def name(self) -> str: ...
    @property
    def _mergeable_ranks(self) -> dict[bytes, int]: ...
    @property
    def _special_tokens(self) -> dict[str, int]: ...
    @property
    def _pat_str(self) -> str: ...


class _Backend(Protocol):
    """A `tokenizers.Tokenizer`."""

    def to_str(self) -> str: ...


class _Fast(Protocol):
    """A fast tokenizer of transformers."""

    @property
    def backend_tokenizer(self) -> _Backend: ...


HuggingFaceTokenizer: TypeAlias = "_Backend | _Fast"


def pattern_names() -> str:
    """The names of patterns, for a help text."""
    return ", ".join(_native.PATTERNS)


def stages(pattern: PatternLike) -> list[str]:
    """A pattern as a list of stages, the core's form."""
    return [pattern] if isinstance(pattern, str) else list(pattern)


def special_pairs(
    special_tokens: Iterable[str] | Mapping[str, int] | None,
) -> list[tuple[str, int | None]]:
    """Special tokens as (text, id or None for the next free one)."""
    if special_tokens is None:
        return []
    if isinstance(special_tokens, str):
        raise TypeError(
            f"special_tokens must be a list of strings, not the string {special_tokens!r}"
        )
    if isinstance(special_tokens, Mapping):
        return list(special_tokens.items())
    return [(text, None) for text in special_tokens]


@contextlib.contextmanager
def blaming(source: str) -> Iterator[None]:
    """Turns a `ConfigError` into a `TokenizerError` about `source`, where no option was given."""
    try:
        yield
    except ConfigError as error:
        raise TokenizerError(f"{source}: {error.message}", error.hint) from None


def read(
    path: Path,
    pattern: PatternLike | None,
    special_tokens: Iterable[str] | Mapping[str, int] | None,
) -> Core:
    """Reads a tokenizer file of any format."""
    settle(path if path.is_dir() else path.parent)
    if path.is_dir():
        path = in_directory(path)
    data = regular(path, TokenizerError).read_bytes()
    kind = _native.recognise(data)
    files = [(_name(path), data)]
    if kind is None:
        raise TokenizerError(
            f"{path}: unknown tokenizer format",
            "supported: tokenizer.json, GPT-2's vocab.json and merges.txt, tiktoken ranks, "
            "minbpe .model",
        )
    if kind in ("gpt2-vocab", "gpt2-merges"):
        wanted = "merges.txt" if kind == "gpt2-vocab" else "vocab.json"
        pair = [path, _sibling(path, wanted)]
        files = _read_together(pair if kind == "gpt2-vocab" else pair[::-1])
        kind = "gpt2"
    if kind in ("huggingface", "minbpe"):
        for name, value in (("pattern", pattern), ("special_tokens", special_tokens)):
            if value is not None:
                raise ConfigError(
                    f"{path}: {name} was given, but this format carries its own",
                    f"omit {name}=",
                )
    if kind == "tiktoken" and pattern is None:
        raise ConfigError(
            f"{path}: a tiktoken rank file does not contain its split pattern",
            f"give a pattern: {pattern_names()}, or a regular expression",
        )
    return Core.read(
        kind, files, stages("gpt2" if pattern is None else pattern), special_pairs(special_tokens)
    )


def in_directory(directory: Path) -> Path:
    """The tokenizer file of a directory."""
    for name in NAMES:
        if (directory / name).is_file():
            return directory / name
    candidates = [p for end in ("*.tiktoken", "*.model") for p in sorted(directory.glob(end))]
    if len(candidates) == 1:
        return candidates[0]
    raise TokenizerError(
        f"{directory}: no tokenizer file in this directory",
        f"looked for {', '.join(NAMES)}, one *.tiktoken or one *.model",
    )


def _name(path: Path) -> str:
    """A path as text for Rust's errors; U+FFFD for bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def _sibling(path: Path, wanted: str) -> Path:
    """`merges.txt` beside `vocab.json`, or `gpt2_merges.txt` beside `gpt2_vocab.json`."""
    here = "vocab" if wanted == "merges.txt" else "merges"
    there, suffix = wanted.split(".")
    names = [wanted]
    if here in path.stem:
        names.insert(0, path.stem.replace(here, there) + "." + suffix)
    for name in names:
        if (path.parent / name).is_file():
            return path.parent / name
    raise TokenizerError(
        f"{path}: {wanted} is missing beside it",
        "the GPT-2 format is two files, vocab.json and merges.txt, in one directory",
    )


def _read_together(paths: list[Path]) -> list[tuple[str, bytes]]:
    """Names and contents of files of one directory, all from the same `write_together`."""

    def stamps() -> list[tuple[int, int, int]]:
        settle(paths[0].parent)
        stats = [path.stat() for path in paths]
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]

    while True:
        before = stamps()
        files = [(_name(path), regular(path, TokenizerError).read_bytes()) for path in paths]
        if stamps() == before:
            return files


def target_paths(path: Path, kind: str) -> list[Path]:
    """The files that writing a tokenizer in this format to `path` creates."""
    return [path / "vocab.json", path / "merges.txt"] if kind == "gpt2" else [path]


def write(core: Core, path: Path, kind: str, overwrite: bool) -> None:
    """Writes a tokenizer file in the given format."""
    if kind not in KINDS:
        raise ConfigError(f"unknown tokenizer format {kind!r}", f"use one of {', '.join(KINDS)}")
    parts = core.write(kind)
    targets = target_paths(path, kind)
    if not overwrite:
        for target in targets:
            if os.path.lexists(target):
                raise FileExistsError(f"{target} exists already (overwrite=True replaces it)")
    if kind == "gpt2":
        path.mkdir(parents=True, exist_ok=True)
        write_together(path, {target.name: data for target, data in zip(targets, parts)})
    else:
        write_atomically(path, parts[0])


def from_tiktoken(encoding: TiktokenEncoding) -> Core:
    """The core of a live `tiktoken.Encoding`."""
    with blaming(type(encoding).__name__):
        specials = special_pairs(encoding._special_tokens)
        return Core.from_ranks(
            encoding._mergeable_ranks, specials, [_native.regex_stage(encoding._pat_str)]
        )


def huggingface_json(tokenizer: HuggingFaceTokenizer) -> bytes:
    """The tokenizer.json of a live `tokenizers.Tokenizer` or `transformers` fast tokenizer."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        raise TypeError(
            f"expected a tokenizers.Tokenizer or a fast transformers tokenizer, "
            f"not {type(tokenizer).__name__}"
        )
    return bytes(backend.to_str().encode())


def from_huggingface(tokenizer: HuggingFaceTokenizer) -> Core:
    """The core of a live `tokenizers.Tokenizer` or `transformers` fast tokenizer."""
    data = huggingface_json(tokenizer)
    return Core.read("huggingface", [(type(tokenizer).__name__, data)], [], [])


# --- by path or by name -----------------------------------------------------------------------
#
# A path is only ever a path. A name is looked up by `huggingface_hub`, under its own settings
# (`HF_HOME`, `HF_HUB_OFFLINE`, `HF_ENDPOINT`, …): in its cache, then on the hub. The hub is asked
# once, with a short timeout, before anything is downloaded: `hf_hub_download` by itself retries for
# most of a minute when there is no network.

# `name` or `owner/name`, as the hub has them.
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
# A name with one of these endings is a missing file, not a model.
FILE_ENDINGS = (".json", ".txt", ".model", ".tiktoken")
# Timeout in seconds of the request that checks whether the hub can be reached.
HUB_TIMEOUT = 5


def read_pretrained(path_or_name: str | os.PathLike[str]) -> Core:
    """The tokenizer at a path or, if it does not exist, of the model of that name."""
    path = Path(path_or_name)
    if not path.exists():
        path = _from_hub(str(path_or_name))
    file = in_directory(path) if path.is_dir() else path
    if _native.recognise(regular(file, TokenizerError).read_bytes()) != "tiktoken":
        return read(file, None, None)
    config = file.parent / "tokenizer_config.json"
    pattern, specials = _beside_ranks(config)
    if pattern is None:
        return read(file, None, specials)
    with blaming(str(config)):
        return read(file, pattern, specials)


def _beside_ranks(config: Path) -> tuple[str | None, dict[str, int] | None]:
    """The pattern and special tokens that a tokenizer_config.json sets for a tiktoken rank file."""
    if not config.is_file():
        return None, None
    try:
        said = json.loads(config.read_bytes())
        pattern = said.get("pat_str", said.get("pattern"))
        added: Mapping[str, Any] = said.get("added_tokens_decoder", {})
        return pattern, {token["content"]: int(id) for id, token in added.items()} or None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TokenizerError(f"{config}: not a tokenizer configuration ({error})") from error


def _from_hub(name: str) -> Path:
    """The tokenizer file of a model in the hub's cache, downloaded if needed."""
    if not HUB_NAME.fullmatch(name) or name.endswith(FILE_ENDINGS):
        raise FileNotFoundError(f"{name}: no such file or directory")
    purpose = f"{name}: no such file or directory; looking up that name on the hub"
    hub = require("huggingface_hub", purpose)
    errors = require("huggingface_hub.errors", purpose)
    unreachable: Exception | None = None
    # The first is the default format; the others are for older models.
    for wanted in (("tokenizer.json",), ("vocab.json", "merges.txt")):
        found = [hub.try_to_load_from_cache(name, file) for file in wanted]
        if all(isinstance(file, str) for file in found):
            return Path(found[0])
        if unreachable is not None:
            continue
        try:
            hub.get_hf_file_metadata(hub.hf_hub_url(name, wanted[0]), timeout=HUB_TIMEOUT)
            found = [hub.hf_hub_download(name, file) for file in wanted]
            return Path(found[0])
        except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
            unreachable = error
        except errors.EntryNotFoundError:
            continue
        except errors.RepositoryNotFoundError as error:
            raise TokenizerError(
                f"{name}: no such file or directory, and no such model on the hub "
                "that you may read",
                "check the spelling; a private or gated model needs a login (hf auth login)",
            ) from error
        except (errors.HfHubHTTPError, errors.HFValidationError) as error:
            raise TokenizerError(f"{name}: cannot be downloaded from the hub: {error}") from error
        except Exception as error:
            # Errors of the HTTP library, which depends on the version of huggingface_hub.
            unreachable = error
    if unreachable is not None:
        offline = isinstance(unreachable, errors.OfflineModeIsEnabled)
        why = "HF_HUB_OFFLINE is set" if offline else unreachable
        raise TokenizerError(
            f"{name}: no such file or directory, no such model in the cache of "
            f"huggingface_hub, and the hub cannot be reached: {why}",
            "give the path of a tokenizer, or "
            + ("unset HF_HUB_OFFLINE" if offline else "connect to the network"),
        ) from unreachable
    raise TokenizerError(
        f"{name}: the model has no tokenizer.json, nor vocab.json and merges.txt",
        "bytemill reads byte-level BPE tokenizers; SentencePiece models are not supported",
    )
