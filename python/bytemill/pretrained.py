"""Where a tokenizer lies that is asked for by path or by name.

A path is only ever a path. A name is looked up by `huggingface_hub`, under its own settings
(`HF_HOME`, `HF_HUB_OFFLINE`, `HF_ENDPOINT`, …): in its cache, then on the hub. The hub is asked
once, with a short timeout, before anything is downloaded: `hf_hub_download` by itself retries for
most of a minute when there is no network.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _native, formats
from ._files import regular
from ._native import Core
from .errors import TokenizerError

# `name` or `owner/name`, as the hub has them.
NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
# A name that ends so is a file that is missing.
FILES = (".json", ".txt", ".model", ".tiktoken")
# Seconds for the one request that shows whether the hub can be reached.
TIMEOUT = 5


def read(path_or_name: str | os.PathLike[str]) -> Core:
    """The tokenizer at a path or, if there is nothing, of a model of that name."""
    path = Path(path_or_name)
    if not path.exists():
        path = _from_hub(str(path_or_name))
    file = formats.in_directory(path) if path.is_dir() else path
    if _native.recognise(regular(file, TokenizerError).read_bytes()) != "tiktoken":
        return formats.read(file, None, None)
    config = file.parent / "tokenizer_config.json"
    pattern, specials = _beside_ranks(config)
    if pattern is None:
        return formats.read(file, None, specials)
    with formats.blaming(str(config)):
        return formats.read(file, pattern, specials)


def _beside_ranks(config: Path) -> tuple[str | None, dict[str, int] | None]:
    """The pattern and the special tokens that a configuration names for a tiktoken rank file."""
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
    """The tokenizer file of a model, in the hub's cache, where it is put if it is not there."""
    if not NAME.fullmatch(name) or name.endswith(FILES):
        raise FileNotFoundError(f"{name}: there is no such file or directory")
    try:
        hub: Any = importlib.import_module("huggingface_hub")
        errors: Any = importlib.import_module("huggingface_hub.errors")
    except ImportError as error:
        raise TokenizerError(
            f"{name}: there is no such file or directory, and to look on the hub for a model of "
            "that name takes huggingface_hub, which is not installed",
            "pip install huggingface_hub, or give the path of a tokenizer",
        ) from error
    unreachable: Exception | None = None
    # The first is our own format; the others are what older models have.
    for wanted in (("tokenizer.json",), ("vocab.json", "merges.txt")):
        found = [hub.try_to_load_from_cache(name, file) for file in wanted]
        if all(isinstance(file, str) for file in found):
            return Path(found[0])
        if unreachable is not None:
            continue
        try:
            hub.get_hf_file_metadata(hub.hf_hub_url(name, wanted[0]), timeout=TIMEOUT)
            found = [hub.hf_hub_download(name, file) for file in wanted]
            return Path(found[0])
        except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
            unreachable = error
        except errors.EntryNotFoundError:
            continue
        except errors.RepositoryNotFoundError as error:
            raise TokenizerError(
                f"{name}: there is no such file or directory, and no such model on the hub "
                "that you may read",
                "check the spelling; a private or gated model needs a login (hf auth login)",
            ) from error
        except (errors.HfHubHTTPError, errors.HFValidationError) as error:
            raise TokenizerError(f"{name}: the hub does not give it: {error}") from error
        except Exception as error:
            # The HTTP library's own errors: which library that is depends on the hub's version.
            unreachable = error
    if unreachable is not None:
        offline = isinstance(unreachable, errors.OfflineModeIsEnabled)
        why = "HF_HUB_OFFLINE is set" if offline else unreachable
        raise TokenizerError(
            f"{name}: there is no such file or directory, no such model in the cache of "
            f"huggingface_hub, and the hub is out of reach: {why}",
            "give the path of a tokenizer, or "
            + ("unset HF_HUB_OFFLINE" if offline else "connect to the network"),
        ) from unreachable
    raise TokenizerError(
        f"{name}: the model has no tokenizer.json, nor vocab.json and merges.txt",
        "bytemill reads byte-level BPE; a SentencePiece model is another kind",
    )
