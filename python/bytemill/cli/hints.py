"""The library's messages in the words of the command line.

The library writes its messages for Python: a hint names options as keywords, always with the sign,
`overwrite=True`, `on_error="skip"`, `text_field=`. Here those become options: `--overwrite`,
`--on-error skip`, `--text-field`. Only names that are options of some command are touched, those of
the running command first. Names without the sign may be anything, such as the keys of a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import click

# A keyword, with a value where there is one: a word or number, a quoted text, or a list. What is
# part of a path or between quotes is none.
KEYWORD = re.compile(
    r"""(?<![\w/.,'"`<-])(?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)*)"""
    r"""(?P<value>=(?:"[^"]*"|'[^']*'|\[[^\]]*\]|[\w.+-]*\w)?)?(?![\w/='"`])"""
)
QUOTES = "\"'"
# Keywords whose options have another name.
ALIASES = {"special_tokens": "special_token", "n_longest": "longest", "out": "output"}


def in_hint(text: str, ctx: click.Context | None) -> str:
    """A hint with its keywords as options."""
    return _translated(text, ctx, lambda found: found["value"] is not None)


def in_message(text: str, ctx: click.Context | None) -> str:
    """A message with its keywords as options, where they surely are those of the command line.

    That is at the start (`vocab_size=100 is too small`); after the name of a file they may be what
    is in the file.
    """

    def is_option(found: re.Match[str]) -> bool:
        if found["value"] in ("=True", "=False"):
            return True
        rule = text.startswith(" must be", found.end())
        return found.start() == 0 and (bool(found["value"]) or rule)

    return _translated(text, ctx, is_option)


def _translated(
    text: str, ctx: click.Context | None, is_option: Callable[[re.Match[str]], bool]
) -> str:
    def option(found: re.Match[str]) -> str:
        option = _find(found["name"], ctx) if is_option(found) else None
        return found[0] if option is None else _spelled(option, found["value"] or "=")

    return KEYWORD.sub(option, text)


def _find(name: str, ctx: click.Context | None) -> click.Option | None:
    """The option of that name: of the running command, else of any."""
    if ctx is None:
        return None  # no command has started
    root = ctx.find_root()
    commands = dict(getattr(root.command, "commands", {}))
    running = commands.pop(root.invoked_subcommand, root.command)
    for command in (running, *commands.values()):
        for param in command.params:
            if isinstance(param, click.Option) and param.name == ALIASES.get(name, name):
                return param
    return None


def _spelled(option: click.Option, value: str) -> str:
    name = option.opts[-1]
    value = value.removeprefix("=")
    if value in ("", "True"):
        return name
    if value in ("False", "None"):
        return option.secondary_opts[-1] if option.secondary_opts else f"no {name}"
    if value.startswith("["):
        return f"{name} {','.join(each.strip(' ' + QUOTES) for each in value[1:-1].split(','))}"
    return f"{name} {shlex.quote(value.strip(QUOTES))}"
