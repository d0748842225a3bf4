"""Messages of the library, with command-line options instead of Python keywords.

In the library's messages, a hint names options as keywords, always with `=`: `overwrite=True`,
`on_error="skip"`, `text_field=`. Here they become `--overwrite`, `--on-error skip`, `--text-field`.
A hint may refer to another command; options of the running command take precedence. Names without
`=` are left alone: they may be anything, such as the keys of a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import click

# A keyword, with a value where there is one: a word or number, a quoted text, or a list. Not in
# a path or between quotes.
KEYWORD = re.compile(
    r"""(?<![\w/.,'"`<-])(?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)*)"""
    r"""(?P<value>=(?:"[^"]*"|'[^']*'|\[[^\]]*\]|[\w.+-]*\w)?)?(?![\w/='"`])"""
)
QUOTES = "\"'"
# Keywords whose options have another name.
ALIASES = {"special_tokens": "special_token", "n_longest": "longest", "out": "output"}


def in_hint(text: str, ctx: click.Context | None) -> str:
    """A hint with its keywords as options; unchanged if no command has started (None)."""
    if ctx is None or "=" not in text:
        return text
    commands = [_running(ctx), *_others(ctx)]
    return _translated(text, commands, lambda found: found["value"] is not None)


def in_message(text: str, ctx: click.Context | None) -> str:
    """A message with its keywords as options, if they are certainly those of the running command.

    That is at the start (`vocab_size=100 is too small`); after a file name they may be keys of the
    file.
    """

    if ctx is None:
        return text

    def is_option(found: re.Match[str]) -> bool:
        if found["value"] in ("=True", "=False"):
            return True
        after = text[found.end() :]
        says = after.startswith((" ", ",")) if found["value"] else after.startswith(" must be")
        return found.start() == 0 and says

    return _translated(text, [_running(ctx)], is_option)


def _running(ctx: click.Context) -> click.Command:
    root = ctx.find_root()
    name, group = root.invoked_subcommand, root.command
    found = group.get_command(root, name) if name and isinstance(group, click.Group) else None
    return found or group


def _others(ctx: click.Context) -> list[click.Command]:
    """All commands. Importing them takes a moment."""
    root = ctx.find_root()
    group = root.command
    if not isinstance(group, click.Group):
        return []
    found = (group.get_command(root, name) for name in group.list_commands(root))
    return [command for command in found if command is not None]


def _translated(
    text: str, commands: list[click.Command], is_option: Callable[[re.Match[str]], bool]
) -> str:
    options = {
        param.name: param
        for command in reversed(commands)
        for param in command.params
        if isinstance(param, click.Option)
    }

    def translated(found: re.Match[str]) -> str:
        option = options.get(ALIASES.get(found["name"], found["name"]))
        if option is None or not is_option(found):
            return found[0]
        return _spelled(option, found["value"] or "=")

    return KEYWORD.sub(translated, text)


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
