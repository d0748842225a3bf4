"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from .._numbers import parse_count
from ..engines import EngineLike
from ..errors import ConfigError
from ..formats import KINDS, pattern_names
from ..lm.presets import DEFAULT_PRESET, PRESETS
from ..progress import ProgressOption

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS = click.Choice(KINDS)


class WholeNumber(click.types.IntParamType):
    """A whole number, also as `10k`, `1.5M` or `1e9`."""

    def __init__(self, least: int | None = None) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str):
            try:
                value = parse_count(value)
            except ConfigError as error:
                self.fail(f"{error.message}: {error.hint}", param, ctx)
        if self._least is not None and value < self._least:
            self.fail(f"must be ≥ {self._least}, got {value}", param, ctx)
        return int(value)


class Escaped(click.types.StringParamType):
    """A string with the escapes \\n, \\r, \\t, \\0 and \\\\."""

    letters: ClassVar = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        def letter(found: re.Match[str]) -> str:
            if found[1] not in self.letters:
                self.fail(
                    f"{found[0]} is not an escape: use \\n, \\r, \\t, \\0 or \\\\", param, ctx
                )
            return self.letters[found[1]]

        return re.sub(r"\\(.?)", letter, value, flags=re.DOTALL)


def all_of(*decorators: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """The decorators as one, in the order in which `--help` shows them."""

    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _remember(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Stores `--json` and `--quiet` for `streams` and `progress`."""
    ctx.meta[str(param.name)] = value


def _not_both(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    # Called for each of the two: the second sees the first.
    other = "overwrite" if param.name == "resume" else "resume"
    if value and ctx.params.get(other):
        raise click.UsageError("--resume contradicts --overwrite")
    return value


def _step(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if value not in ("best", "last") and not value.isdecimal():
        raise click.UsageError(f"--step must be best, last or a number of steps, got {value}")
    return value


json_option = click.option(
    "--json",
    is_flag=True,
    callback=_remember,
    expose_value=False,
    is_eager=True,  # before options that may fail
    help="Print the result as JSON on stdout, and everything else as JSON lines on stderr.",
)
quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    callback=_remember,
    expose_value=False,
    help="Print no progress and no summary, only notes and errors.",
)
# For every command that writes a result.
report_options = all_of(quiet_option, json_option)
overwrite_option = click.option(
    "--overwrite", is_flag=True, callback=_not_both, help="Replace existing output."
)
resume_option = click.option(
    "--resume",
    is_flag=True,
    callback=_not_both,
    help="Resume interrupted work; finished work is kept.",
)
step_option = click.option(
    "--step",
    default="best",
    show_default=True,
    metavar="NAME",
    callback=_step,
    help="Checkpoint to use: best, last, or a step number.",
)
token_dtype_option = click.option(
    "--token-dtype",
    type=click.Choice(["uint16", "uint32", "int32"]),
    default="uint16",
    show_default=True,
    help="Type of raw ids (.bin).",
)
tokenizer_option = click.option(
    "-t",
    "--tokenizer",
    required=True,
    metavar="FILE|NAME",
    help="Tokenizer file of any known format, a directory with one, or an encoding by name, such "
    "as cl100k_base.",
)
# For a run, which usually has its own.
run_tokenizer_option = click.option(
    "-t",
    "--tokenizer",
    metavar="FILE|NAME",
    help="Tokenizer the model was trained with, for a run without one.  "
    "[default: the run's tokenizer.json]",
)
device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Device: auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.",
)
force_option = click.option(
    "--force", is_flag=True, help="Train even if the run is predicted not to fit into memory."
)
special_option = click.option(
    "--special",
    type=click.Choice(["all", "none", "error"]),
    default="all",
    show_default=True,
    help="How to encode special tokens in the text: as such, as plain text (for untrusted text), "
    "or stop with an error.",
)
# For count and train-tokenizer.
special_tokens_option = click.option(
    "--special-token",
    multiple=True,
    metavar="TEXT",
    help="String with an id of its own that separates documents; may be repeated. "
    "[default: <|endoftext|>]",
)
no_special_tokens_option = click.option(
    "--no-special-tokens", is_flag=True, help="Use no special tokens."
)
pattern_option = click.option(
    "--pattern",
    multiple=True,
    metavar="NAME|REGEX",
    help=f"Split pattern that cuts documents into pieces: {pattern_names()} (or an alias such "
    "as cl100k_base) or a regular expression; repeated for several stages, each cutting the "
    "pieces of the one before.  [default: gpt2]",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of threads.  [default: all available cores]",
)
memory_limit_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    help="Memory limit, such as 2GB; counts that do not fit are spilled to disk. "
    "[default: 70% of what the machine or container allows]",
)


dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    help="List the files to be read and skipped, estimate time and memory; write nothing.",
)


# For train and sweep: the data, and the source of settings.
training_options = all_of(
    click.option(
        "-t",
        "--tokenizer",
        metavar="FILE|NAME",
        help="Tokenizer of the tokens.  [default: tokenizer.json in their directory or beside it]",
    ),
    click.option(
        "--val",
        metavar="TOKENS",
        help="Tokens to evaluate on.  [default: the split val, or the last of TOKENS]",
    ),
    token_dtype_option,
    click.option(
        "--preset",
        metavar="NAME",
        help=f"Model shape by name: {', '.join(PRESETS)}.  [default: {DEFAULT_PRESET}]",
    ),
    click.option(
        "--config",
        metavar="FILE",
        help="TOML file with any of the options below, such as d_model = 256; options on the "
        "command line take precedence.",
    ),
)


def output_option(help: str) -> Callable[[Function], Function]:
    """Adds the required `-o`."""
    return click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help=help)


def progress() -> ProgressOption:
    """The progress option for `--quiet` and `--json`; the default shows progress, also in a log."""
    meta = click.get_current_context().meta
    return False if meta.get("quiet") else "json" if meta.get("json") else True


def load_options(function: Function) -> Function:
    """Adds `--pattern` and `--special-token`, for formats that do not store them."""
    pattern = click.option(
        "--pattern",
        multiple=True,
        metavar="NAME|REGEX",
        help="Split pattern, for files that do not store one (tiktoken, GPT-2): "
        f"{pattern_names()} (or an alias such as cl100k_base) or a regular "
        "expression; repeated for several stages.",
    )
    special = click.option(
        "--special-token",
        multiple=True,
        metavar="TEXT[=ID]",
        help="Special token, for files that do not store them; may be repeated.",
    )
    return pattern(special(function))


CHOICES = [
    click.option(
        "--include",
        multiple=True,
        metavar="GLOB",
        help="Read only files with matching names from directories, globs and archives, whatever "
        "their format; may be repeated.  [default: files of known formats, or all text "
        "if there are none]",
    ),
    click.option(
        "--exclude",
        multiple=True,
        metavar="GLOB",
        help="Skip files with matching names; may be repeated.",
    ),
]


choice_options = all_of(*CHOICES)


# Options for reading a corpus; see `arguments.corpus_of`.
corpus_options = all_of(
    click.option(
        "--text-field",
        default="text",
        show_default=True,
        metavar="NAME",
        help="Field or column that holds the text of a record; dotted if nested.",
    ),
    click.option(
        "--input-format",
        metavar="FORMAT",
        help="text, jsonl, csv, tsv, tar, zip, parquet or arrow; compressed: jsonl.gz and so on "
        "with gz, zst, xz, bz2.  [default: by file name]",
    ),
    click.option(
        "--on-error",
        type=click.Choice(["stop", "skip"]),
        default="stop",
        show_default=True,
        help="Stop at a record that cannot be read, or skip and count it.",
    ),
    click.option(
        "--null",
        type=click.Choice(["keep", "skip", "error"]),
        default="error",
        show_default=True,
        help="Treat a record whose text is null as an empty document, skip and count it, or treat "
        "it as unreadable.",
    ),
    click.option(
        "--separator",
        type=Escaped(),
        metavar="TEXT",
        help="String that separates the documents of text files and is no part of them; \\n, \\r, "
        "\\t, \\0 and \\\\ are escapes.  [default: special tokens separate them]",
    ),
    click.option(
        "--max-document",
        default="128MB",
        show_default=True,
        metavar="SIZE",
        help="Maximum size of a record.",
    ),
    click.option(
        "--max-ratio",
        type=click.IntRange(min=1),
        default=250,
        show_default=True,
        metavar="N",
        help="Maximum ratio of decompressed to compressed size.",
    ),
    click.option(
        "--max-window",
        default="128MB",
        show_default=True,
        metavar="SIZE",
        help="Maximum memory for decompressing a file.",
    ),
    *CHOICES,
)


def engine_options(function: Function) -> Function:
    """Adds `--engine` and `--ray-address`; see `engine_of`."""
    engine = click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Where to run the work: in this process, or on a Ray cluster.",
    )
    address = click.option(
        "--ray-address",
        metavar="ADDRESS",
        help="Ray cluster: auto, or ray://host:10001.  [default: RAY_ADDRESS, or a new local one]",
    )
    return engine(address(function))


def engine_of(options: dict[str, Any]) -> EngineLike:
    """Takes the engine from `options`."""
    engine, address = options.pop("engine"), options.pop("ray_address")
    if address is None:
        return "ray" if engine == "ray" else "local"
    if engine != "ray":
        raise click.UsageError("--ray-address needs --engine ray")
    from ..engines import Ray

    return Ray(address)
