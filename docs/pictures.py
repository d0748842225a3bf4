"""The pictures of start.md: `python docs/pictures.py` runs its commands and draws what they show.

Takes the time that the page states. Commands run in a temporary directory, on a pseudo-terminal of
100 columns. A `console` block that is followed by a picture `start-*.svg` is drawn with its
prompts, in colors, as it ended or, if the picture's text says "at 50 %", as it was when the
training had progressed that far. The loss curve is what `bytemill plot` writes.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import tempfile
import termios
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent
COLUMNS, MAX_ROWS = 100, 24
CHAR, LINE, MARGIN = 8.0, 18, 14
# The colors that are used, of the 16 of a terminal with a dark background.
INK, SCREEN, PALETTE = "#e6edf3", "#0d1117", {16: "#000000", 31: "#ff7b72", 36: "#76e3ea"}
CODE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b])", re.DOTALL)
BLOCK = re.compile(
    r"^```console\n(.*?)^```\n(?:\n!\[([^\]]*)\]\((start-[\w-]+\.svg)\))?", re.M | re.S
)


class Style(NamedTuple):
    ink: str = INK
    page: str | None = None
    bold: bool = False


class Screen:
    """What a terminal shows after some output: lines of (character, style)."""

    def __init__(self) -> None:
        self.lines: list[list[tuple[str, Style]]] = [[]]
        self._at = 0
        self._style = Style()

    def feed(self, text: str) -> None:
        for codes, command, back, down, char in CODE.findall(text):
            if command == "m":
                self._set_style([int(code) for code in codes.split(";") if code])
            elif command == "K":
                del self.lines[-1][self._at :]
            elif back:
                self._at = 0
            elif down:
                self._new_line()
            elif char:
                if self._at == COLUMNS:
                    self._new_line()
                self.lines[-1][self._at : self._at + 1] = [(char, self._style)]
                self._at += 1

    def _new_line(self) -> None:
        self.lines.append([])
        self._at = 0

    def _set_style(self, codes: list[int]) -> None:
        if not codes or codes[0] == 0:
            self._style = Style()
            return
        while codes:
            code = codes.pop(0)
            if code in (38, 48) and len(codes) > 1:
                color = indexed(codes[1])
                del codes[:2]
                new = {"ink": color} if code == 38 else {"page": color}
                self._style = self._style._replace(**new)
            elif code == 1:
                self._style = self._style._replace(bold=True)
            elif code in PALETTE:
                self._style = self._style._replace(ink=PALETTE[code])


def indexed(number: int) -> str:
    """A color of the 256: of the cube or the grays."""
    if number in PALETTE:
        return PALETTE[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    levels = (0, 95, 135, 175, 215, 255)
    number -= 16
    return "#" + "".join(f"{levels[number // 6**i % 6]:02x}" for i in (2, 1, 0))


def svg(lines: list[list[tuple[str, Style]]], about: str) -> str:
    """The lines of a screen as a picture; of too many, those in the middle are skipped."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    if len(lines) > MAX_ROWS:
        gap = [("…", Style())]
        lines = [*lines[: MAX_ROWS // 2], gap, *lines[-MAX_ROWS // 2 + 1 :]]
    width, height = COLUMNS * CHAR + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    parts = [part for y, line in enumerate(lines) for part in drawn(line, MARGIN + y * LINE)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" '
        f'width="{width:g}" height="{height}" role="img"><title>{escape(about)}</title>\n'
        "<style>text { font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre }"
        "</style>\n"
        f'<rect width="100%" height="100%" rx="6" fill="{SCREEN}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def drawn(line: list[tuple[str, Style]], y: int) -> Iterator[str]:
    """Runs of one style, each with a fixed position and length, whatever the font."""
    start = 0
    while start < len(line):
        style = line[start][1]
        end = start
        while end < len(line) and line[end][1] == style:
            end += 1
        text = "".join(char for char, _ in line[start:end])
        x, length = MARGIN + start * CHAR, len(text) * CHAR
        if style.page:
            yield (
                f'<rect x="{x:g}" y="{y}" width="{length:g}" height="{LINE}" fill="{style.page}"/>'
            )
        if text.strip():
            weight = ' font-weight="bold"' if style.bold else ""
            yield (
                f'<text x="{x:g}" y="{y + 13}" textLength="{length:g}" fill="{style.ink}"{weight} '
                f'xml:space="preserve">{escape(text)}</text>'
            )
        start = end


def shown(command: str, where: Path) -> str:
    """What a command shows on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=where, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    text = b"".join(parts).decode("utf-8", "replace")
    if process.wait() != 0:
        raise SystemExit(f"{command}\n{text}")
    return text


def until(text: str, about: str) -> str:
    """The output up to the progress that the description of a picture names, or all of it."""
    wanted = re.search(r" at (\d+) %", about)
    if wanted is None:
        return text
    reached = re.search(rf"\rtrain [^\r%]* {wanted[1]}%[^\r]*", text)
    return text[: reached.end()] if reached else text


def main() -> None:
    here = Path(tempfile.mkdtemp())
    try:
        for code, about, picture in BLOCK.findall((DOCS / "start.md").read_text(encoding="utf-8")):
            screen = Screen()
            for found in re.finditer(r"^\$ (.*(?:\\\n.*)*)", code, re.MULTILINE):
                print(found[0], flush=True)
                text = shown(found[1], here)
                screen.feed(f"{found[0]}\n" + until(text, about))
            if picture:
                (DOCS / picture).write_text(svg(screen.lines, about), encoding="utf-8")
        shutil.copy(here / "loss.svg", DOCS / "quickstart.svg")
    finally:
        shutil.rmtree(here)


if __name__ == "__main__":
    main()
