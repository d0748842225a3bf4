"""Output of commands: data to stdout, everything else to stderr.

With `--json`, everything on stderr is JSON lines: objects with the key `"event"`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import click

from .. import _numbers, progress
from .._files import naming
from .._system import address_space
from .._tables import use_color
from ..corpus.names import redacted
from ..errors import BytemillError
from . import hints

HINTS = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "your disk quota is used up: free some space, or write elsewhere",
    errno.EROFS: "the file system is mounted read-only: write elsewhere",
}

# Bytes per block: large enough for few calls into the core, small enough for memory.
BLOCK_SIZE = 1 << 20


def set_up() -> None:
    """Makes the standard streams accept any text, and replaces closed ones.

    A stream in a narrow encoding (a redirected one on Windows, or LC_ALL=C) would raise on the
    first character it lacks; a question mark is written instead.

    The descriptor of a closed stream (`>&-`) would be reused for the next file that is opened, and
    libraries that print would write into that file. So a closed stream gets a descriptor that
    cannot be read or written; for stderr, one that discards everything.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            flags = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)[number]
            _reopen(number, flags)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout = _named(sys.stdout)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class _Stdout(io.FileIO):
    """Stdout with its name in errors: "no space left on device" alone does not say where."""

    def write(self, data: Any) -> int:
        with naming("stdout"):
            return super().write(data)


def _named(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """The same stream over a `_Stdout`, unless it does not go to a file or pipe."""
    buffer: Any = stream.buffer
    if not isinstance(getattr(buffer, "raw", buffer), io.FileIO):
        return stream
    raw = _Stdout(stream.fileno(), "w", closefd=False)
    # Python run with -u has no buffer.
    below: Any = raw if buffer is getattr(buffer, "raw", buffer) else io.BufferedWriter(raw)
    return io.TextIOWrapper(below, stream.encoding, write_through=below is raw)


def _reopen(number: int, flags: int) -> None:
    """Opens the null device under the number of a standard stream."""
    null = os.open(os.devnull, flags)
    if null != number:
        os.dup2(null, number)
        os.close(null)


# --- stderr -----------------------------------------------------------------------------------


def say(text: str) -> None:
    """Prints a line for the person at the terminal, above a progress bar if one is drawn.

    Credentials in URLs are removed.
    """
    # A stderr that cannot be written (closed, on a full disk) must not hide the exit code.
    with contextlib.suppress(OSError):
        progress.clear_line(sys.stderr)
        click.echo(redacted(text), err=True)


def note(ctx: click.Context | None, message: str) -> None:
    """Prints something the user should know that is not a failure."""
    _event(_is_json(ctx), "note", hints.in_hint(message, ctx), None, "yellow")


def fail(ctx: click.Context | None, error: BaseException) -> None:
    """Prints an error and, if there is one, its hint."""
    message, hint = message_of(error)
    hint = None if hint is None else hints.in_hint(hint, ctx)
    _event(_is_json(ctx), "error", hints.in_message(message, ctx), hint, "red")
    try:
        sys.stdout.flush()
    except OSError:
        forget_stdout()


def interrupted(ctx: click.Context | None) -> None:
    """Reports Ctrl-C."""
    say(json.dumps({"event": "interrupted"}) if _is_json(ctx) else "interrupted")


def usage(error: click.ClickException, *, as_json: bool) -> None:
    """Reports a usage error."""
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx is not None else "bytemill"
    # click writes sentences, on several lines if it lists choices; our messages are one clause.
    message = " ".join(error.format_message().split()).removesuffix(".")
    hint = f"see {command} --help"
    if isinstance(error, click.NoSuchOption) and ctx is not None:
        meant = _meant(error.option_name, ctx.command)
        if meant is not None:
            message, hint = f"no such option '{error.option_name}'", meant
    _event(as_json, "error", message[:1].lower() + message[1:], hint, "red")


def _meant(option: str, command: click.Command) -> str | None:
    """A hint for an option that other programs have: `--lr` for `--learning-rate`."""
    from ..lm.config_checks import ABSENT, SYNONYMS

    flags = {param.name: param.opts[-1] for param in command.params}
    name = option.lstrip("-").replace("-", "_")
    if name in ABSENT and "lr" in flags:
        return ABSENT[name]
    flag = flags.get(SYNONYMS.get(name, ""))
    return None if flag is None else f"did you mean {flag}?"


def _event(as_json: bool, kind: str, message: str, hint: str | None, color: str) -> None:
    if as_json:
        fields = {"event": kind, "message": message}
        say(json.dumps(fields if hint is None else fields | {"hint": hint}))
        return
    plain = not use_color(sys.stderr)
    say(f"{kind if plain else click.style(kind, fg=color, bold=True)}: {message}")
    if hint is not None:
        say(f"{'hint' if plain else click.style('hint', fg='cyan', bold=True)}: {hint}")


def message_of(error: BaseException) -> tuple[str, str | None]:
    """Message and hint of an expected failure."""
    if isinstance(error, BytemillError):
        return error.message, error.hint
    if isinstance(error, MemoryError):
        limit = address_space()
        return (
            f"out of memory: {error}" if str(error) else "out of memory",
            f"this process may use {_numbers.size(limit)} (ulimit -v)" if limit else None,
        )
    hint = None
    if isinstance(error, FileNotFoundError):
        hint = f"the path is relative to {os.getcwd()}" if _relative(error) else "check the path"
    elif isinstance(error, FileExistsError):
        hint = "overwrite=True replaces it"
    elif isinstance(error, IsADirectoryError):
        hint = "give a file in it"
    elif isinstance(error, PermissionError):
        hint = "check its permissions: ls -l"
    elif isinstance(error, OSError):
        hint = HINTS.get(error.errno or 0)
    if not isinstance(error, OSError) or error.strerror is None:
        # In Python, the hint is part of the message.
        return str(error).removesuffix(f" ({hint})"), hint
    # The system's message starts with a capital and ends with the quoted name.
    words = error.strerror[:1].lower() + error.strerror[1:]
    return words if error.filename is None else f"{_name(error)}: {words}", hint


def _name(error: OSError) -> str:
    name = error.filename
    return (os.fsdecode(name) if isinstance(name, bytes) else str(name)) or "''"


def _relative(error: OSError) -> bool:
    name = _name(error)
    return error.filename is not None and "://" not in name and not os.path.isabs(name)


def _is_json(ctx: click.Context | None) -> bool:
    return ctx is not None and bool(ctx.meta.get("json"))


def inform(text: str) -> None:
    """Prints a line about the work, unless `--quiet` or `--json` was given."""
    meta = click.get_current_context().meta
    if not (meta.get("json") or meta.get("quiet")):
        say(text)


# --- stdout -----------------------------------------------------------------------------------


def emit(
    facts: object,
    *,
    text: Iterable[str] = (),
    color: bool | None = None,
    summary: str = "",
    next: Sequence[object] = (),
) -> None:
    """Prints the result of a command.

    Args:
        facts: printed to stdout as JSON with `--json`, instead of the following.
        text: printed to stdout otherwise.
        color: whether `text` keeps its colors; None: on a terminal.
        summary: a line for stderr, unless `--quiet`.
        next: arguments of the command that usually follows; shown after the summary.
    """
    if _is_json(click.get_current_context()):
        put_json(facts)
        return
    put(text, color=color)
    if summary:
        inform(summary)
    if next:
        inform(f"next    {shlex.join(['bytemill', *map(str, next)])}")


def forget_stdout() -> None:
    """Discards buffered output, which would fail again when the program ends."""
    _reopen(sys.stdout.fileno(), os.O_WRONLY)


def put(parts: Iterable[str], *, color: bool | None = None) -> None:
    """Writes text to stdout, part by part."""
    for part in parts:
        click.echo(part, nl=False, color=color)


def put_json(value: object) -> None:
    """Writes a value to stdout as JSON."""
    click.echo(json.dumps(value, indent=2))


# --- stdin ------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_input(name: str) -> Iterator[BinaryIO]:
    """The file of that name; for `-`, stdin."""
    if name != "-":
        with open(name, "rb") as file:
            yield file
        return
    tell_of_terminal()
    with naming("stdin"):
        yield sys.stdin.buffer


def tell_of_terminal() -> None:
    """Prints that the program waits for input, if stdin is a terminal."""
    if sys.stdin.isatty():
        say("reading from the terminal; end with Ctrl-D (Windows: Ctrl-Z, Enter)")


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file, in blocks."""
    # read1 returns what has arrived, so a slow writer's text is processed at once.
    read = getattr(file, "read1", file.read)
    while block := read(BLOCK_SIZE):
        yield block
