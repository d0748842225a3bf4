"""The commands that made a run, as far as its config and the manifest of its tokens record them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...corpus.names import redacted
from ...corpus.places import is_url
from ...counts import DEFAULT_PATTERN, DEFAULT_SPECIALS
from ...errors import ConfigError
from ...tokens.encode import SHARD_TOKENS
from .. import presets
from ..config import ModelConfig, TrainConfig
from ..presets import DEFAULT_PRESET, PRESETS

if TYPE_CHECKING:
    from ...look import Statistics

__all__ = ["Command", "encode_command", "made_by", "tokenizer_command", "train_command"]

# More sources are shown by the directory they are in.
MAX_SOURCES = 4
# Fields that follow from others.
DERIVED = ("d_ff", "num_kv_heads")


class Command(NamedTuple):
    """A command line, without credentials, and a remark on it."""

    remark: str
    line: str


def made_by(
    run: str,
    config: Mapping[str, Any],
    model: ModelConfig,
    train: TrainConfig | None,
    tokenizer: Statistics | None,
    manifest: Mapping[str, Any] | None,
) -> Iterator[Command]:
    """The commands in order, and one that uses the run.

    Args:
        run: its name.
        config: the contents of its config.
        model: the model.
        train: how it was trained; None for an imported run.
        tokenizer: statistics of its tokenizer; None without one.
        manifest: that of its tokens; None if they are elsewhere, or no directory.
    """
    imported = config.get("imported")
    if isinstance(imported, dict):
        yield _command("Import.", "import", str(imported.get("path")), "-o", run)
    if train is not None:
        if tokenizer is not None and tokenizer.n_merges:
            yield tokenizer_command(tokenizer, manifest)
        if manifest is not None:
            yield encode_command(config["tokens"]["path"], manifest)
        yield train_command(run, config, model, train, has_tokenizer=tokenizer is not None)
    prompt = "" if train is None else train.sample_prompt
    yield _command("Text from the model.", "generate", run, prompt or "Once upon a time")


def tokenizer_command(found: Statistics, manifest: Mapping[str, Any] | None) -> Command:
    """The command that learned a tokenizer; its corpus is not recorded."""
    options = ["-o", "tokenizer.json", "--vocab-size", str(found.vocab_size)]
    if found.pattern != [DEFAULT_PATTERN]:
        options += [word for stage in found.pattern for word in ("--pattern", stage)]
    specials = list(found.special_tokens)
    if not specials:
        options.append("--no-special-tokens")
    elif specials != list(DEFAULT_SPECIALS):
        options += [word for text in specials for word in ("--special-token", text)]
    remark = "The tokenizer, if bytemill learned it. Its corpus is not recorded"
    sources = ["CORPUS"]
    if manifest is not None and manifest["sources"]:
        sources, _ = _sources(manifest)
        remark += "; this is the one that was encoded"
    return _command(f"{remark}.", "train-tokenizer", *sources, *options)


def encode_command(tokens: str, manifest: Mapping[str, Any]) -> Command:
    """The command that encoded the tokens."""
    sources, remark = _sources(manifest)
    options = ["-t", "tokenizer.json", "-o", tokens]
    if manifest["format"] != "shards":
        options += ["--format", manifest["format"]]
    elif manifest["shard_tokens"] != SHARD_TOKENS:
        options += ["--shard-tokens", str(manifest["shard_tokens"])]
    if not manifest["append_eot"]:
        options.append("--no-append-eot")
    if manifest["val_fraction"] is not None:
        options += ["--val-fraction", str(manifest["val_fraction"])]
    if manifest["shuffle"]:
        options.append("--shuffle")
    if manifest["seed"]:
        options += ["--seed", str(manifest["seed"])]
    reading = manifest.get("reading") or {}
    if reading.get("text_field", "text") != "text":
        options += ["--text-field", reading["text_field"]]
    if reading.get("on_error", "stop") != "stop":
        options += ["--on-error", reading["on_error"]]
    for name in ("include", "exclude"):
        options += [word for glob in reading.get(name, []) for word in (f"--{name}", glob)]
    return _command(f"The tokens{remark}.", "encode", *sources, *options)


def _sources(manifest: Mapping[str, Any]) -> tuple[list[str], str]:
    """The sources of tokens, and a remark on their number."""
    paths = list(dict.fromkeys(str(entry["path"]) for entry in manifest["sources"]))
    if not paths:
        return ["CORPUS"], ", whose corpus is not recorded"
    if len(paths) <= MAX_SOURCES:
        return paths, ""
    if not any(map(is_url, paths)) and all(map(os.path.isabs, paths)):
        above = os.path.commonpath(paths)
        if above != os.path.dirname(above):
            return [above], f", of {len(paths):,} files below one directory"
    return paths[:MAX_SOURCES], f", of {len(paths):,} sources, the first of which are named"


# --- training -----------------------------------------------------------------------------------


def train_command(
    run: str,
    config: Mapping[str, Any],
    model: ModelConfig,
    train: TrainConfig,
    *,
    has_tokenizer: bool,
) -> Command:
    """The command that trained a run, with a preset and the options that differ from it."""
    tokens = config["tokens"]
    path = str(tokens.get("path"))
    words = [path, "-o", run]
    if has_tokenizer and not _has_tokenizer(Path(path)):
        words += ["-t", os.path.join(run, "tokenizer.json")]
    val = tokens.get("val")
    beside = os.path.join(os.path.dirname(path), "val.bin")
    if val not in (None, path, beside):
        words += ["--val", str(val)]
    if tokens.get("dtype", "uint16") != "uint16":
        words += ["--token-dtype", str(tokens["dtype"])]
    if config.get("start_from") is not None:
        words += ["--start-from", str(config["start_from"])]
    preset, options = preset_and_options(model, train)
    if preset != DEFAULT_PRESET:
        words += ["--preset", preset]
    if not has_tokenizer:
        options = {"vocab_size": model.vocab_size} | options
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif str(value).startswith("-"):
            words.append(f"--{flag}={value}")
        else:
            words += [f"--{flag}", str(value)]
    ranks = config.get("ranks", 1)
    if ranks == 1:
        return _command("The run.", "train", *words)
    launcher = ["torchrun", "--nproc-per-node", str(ranks), "-m", "bytemill"]
    return _command(f"The run, on {ranks} ranks.", "train", *words, launcher=launcher)


def _has_tokenizer(tokens: Path) -> bool:
    """Whether training finds the tokenizer by itself."""
    return any((place / "tokenizer.json").is_file() for place in (tokens, tokens.parent))


def preset_and_options(model: ModelConfig, train: TrainConfig) -> tuple[str, dict[str, Any]]:
    """The preset nearest to these configs, and the options that differ from it.

    >>> tiny = presets.preset_model("tiny", vocab_size=300, num_layers=3)
    >>> preset_and_options(tiny, TrainConfig(lr=5e-3, batch_size=16, steps=9))
    ('tiny', {'num_layers': 3, 'steps': 9})
    """
    found = ((name, _differences(name, model, train)) for name in PRESETS)
    # There is always one: every field that the default preset sets can be given another value.
    return min(
        ((name, options) for name, options in found if options is not None),
        key=lambda one: len(one[1]),
    )


def _differences(preset: str, model: ModelConfig, train: TrainConfig) -> dict[str, Any] | None:
    """The options that turn a preset into these configs; None if there are none that do."""
    wanted = model.to_json() | train.to_json()
    options: dict[str, Any] = {}
    for derived in (False, True):
        try:
            made = presets.to_configs(presets.merged(preset, None, options), model.vocab_size)
        except ConfigError:
            return None
        given = made[0].to_json() | made[1].to_json()
        options |= {
            name: value
            for name, value in wanted.items()
            if value != given[name] and (derived or name not in DERIVED)
        }
    return None if None in options.values() else options


def _command(
    remark: str, name: str, *words: str, launcher: Sequence[str] = ("bytemill",)
) -> Command:
    return Command(remark, shlex.join([*launcher, name, *map(redacted, words)]))
