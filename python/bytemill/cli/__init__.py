"""The command line: arguments → one library call.

Stdout carries data, stderr the rest. Exit codes: 0, 1 for a known failure, 2 for wrong usage,
130 when interrupted. A reader that closes the pipe is not a failure.

A command's module is imported when the command is used, so `bytemill --help` imports click and
little else. (Start of a program with two commands, measured once on one machine: argparse 0.03 s,
click 0.08 s, typer 0.11 s.)
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import click

from .. import __version__
from .._system import address_space
from ..errors import BytemillError
from . import streams

__all__ = ["app", "main"]

NO_ROOM = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")

EXAMPLES = """\b
examples:
  bytemill demo
  bytemill train-tokenizer corpus.txt -o tokenizer.json --vocab-size 32000
  bytemill inspect tokenizer.json "Hello, world"
  bytemill encode corpus.txt -t tokenizer.json -o tokens/
  bytemill train tokens/ -o run/
  bytemill generate run/ "Once upon a time"
  bytemill serve

Help on a command: bytemill encode --help
"""


# Name → module and summary, in the order of work.
COMMANDS = {
    "train-tokenizer": ("train_tokenizer", "Learn a tokenizer from text."),
    "count": ("count", "Count the pieces of a corpus, to learn a tokenizer later."),
    "encode": ("encode", "Encode text into ids, on stdout or on disk."),
    "decode": ("encode", "Decode ids into text."),
    "verify": ("tokens", "Check tokens on disk."),
    "inspect": ("inspect", "Show a vocabulary, or the tokens of a text."),
    "compare": ("compare", "Compare tokenizers on text."),
    "convert": ("convert", "Convert a tokenizer to another file format."),
    "encodings": ("encodings", "List named encodings; download their vocabularies."),
    "train": ("train", "Train a language model on tokens."),
    "sweep": ("sweep", "Train with many settings and find the best."),
    "evaluate": ("evaluate", "Measure loss, perplexity and bits per byte."),
    "generate": ("generate", "Continue a text with a model."),
    "serve": ("serve", "Look at tokenizers, runs and text in the browser."),
    "export": ("export", "Export a model to transformers or llama.cpp."),
    "import": ("export", "Import a transformers model as a run."),
    "plot": ("plot", "Plot loss curves of runs."),
    "report": ("report", "Describe a run on one page."),
    "account": ("account", "Estimate parameters, memory and training time."),
    "demo": ("demo", "Run every step on Python's own source."),
}
# The function of a command, if its name is not that of the command.
FUNCTIONS = {"train-tokenizer": "train_tokenizer", "import": "import_"}


class _Root(click.Group):
    """The group of all commands; turns exceptions into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f".{COMMANDS[name][0]}", __name__)
        command: click.Command = getattr(module, FUNCTIONS.get(name, name))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        if address_space():
            # numpy's BLAS maps memory for each thread, and kills the process if that fails.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_args, **_more: streams.note(ctx, str(message))
            return _exit_code(ctx, lambda: super(_Root, self).invoke(ctx))


def _exit_code(ctx: click.Context | None, work: Callable[[], Any]) -> int:
    """Runs `work`, and turns exceptions into a message and an exit code."""
    try:
        code = work()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        streams.forget_stdout()
        return 0
    except (BytemillError, OSError, MemoryError) as error:
        streams.fail(ctx, error)
        return 1
    except ImportError as error:
        # The loader could not map a library into memory.
        if not any(text in str(error) for text in NO_ROOM):
            raise
        streams.fail(ctx, MemoryError())
        return 1
    except (KeyboardInterrupt, click.Abort):
        streams.interrupted(ctx)
        return 130


@click.group(
    cls=_Root,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(__version__, "-V", "--version", message="bytemill %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    """From raw text to a language model of your own: tokenizer, tokens, training, generation."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line on `argv` (None for `sys.argv`) and returns the exit code."""
    streams.set_up()

    def run() -> Any:
        try:
            return app.main(argv, prog_name="bytemill", standalone_mode=False)
        except click.ClickException as error:
            words = sys.argv[1:] if argv is None else argv
            streams.usage(error, as_json="--json" in words)
            return error.exit_code

    # Catches failures before a command starts, such as printing the help.
    return _exit_code(None, run)
