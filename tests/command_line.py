"""Runs the command line, in this process or in a process of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

from bytemill import cli
from bytemill.cli import main

COMMANDS = tuple(cli.COMMANDS)


class Result(NamedTuple):
    """The result of a command: exit code, stdout as bytes, stderr as text."""

    code: int
    data: bytes
    said: str

    @property
    def text(self) -> str:
        return self.data.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Stderr as JSON lines."""
        return [json.loads(line) for line in self.said.splitlines()]


class _Stream(io.TextIOWrapper):
    def __init__(self, data: bytes = b"", terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def run(
    *arguments: object, stdin: bytes = b"", terminal: bool = False, together: bool = False
) -> Result:
    """Runs the command line with these arguments on streams of its own, optionally a terminal's.

    If `together`, stderr is part of stdout, in the order of writing.
    """
    kept = sys.stdin, sys.stdout, sys.stderr
    streams = _Stream(stdin), _Stream(terminal=terminal), _Stream(terminal=terminal)
    if together:
        streams = streams[0], streams[1], streams[1]
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        code = main([str(argument) for argument in arguments])
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
    for stream in streams[1:]:
        stream.flush()
    _, out, err = (stream.buffer for stream in streams)
    assert isinstance(out, io.BytesIO)
    assert isinstance(err, io.BytesIO)
    return Result(code, out.getvalue(), err.getvalue().decode())


def ok(*arguments: object, **options: Any) -> Result:
    """The same for a command that must succeed."""
    result = run(*arguments, **options)
    assert result.code == 0, result.said
    return result


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """The command line as a process; its streams are pipes unless `options` say otherwise."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # Buffered, as users run it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-m", "bytemill", *map(str, arguments)],
        **pipes | {"env": environment} | options,
    )
