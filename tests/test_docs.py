"""The examples of the README and the guides run, and print what is shown.

Blocks of one document run in order, in one directory and one namespace. A `python` block is a
doctest if it has prompts, else plain code. In a `console` block every line after `$ ` is a command
and the lines below it what it prints; `...` stands for anything. In a `sh` block every line is a
command, of which `make` only says what it would do, and `pip` only has to name extras that exist.
Blocks of another kind (`text`) are not run. The `sh` blocks of the guides need more machines, data
or time than a test has: only their commands and options are checked. The README's language model is
trained for 3 steps in place of 300. Commands of the guides run in this process, where they need no
shell: to start Python and torch anew for each would take minutes.
"""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from bytemill.cli import app
from command_line import run

TOP = Path(__file__).parents[1]
DOCUMENTS = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
HAS_TORCH = importlib.util.find_spec("torch") is not None
FEWER_STEPS = {
    "--steps 300": "--steps 3",
    "steps=300": "steps=3",
    "step 300 of 300, 1,228,800": "step 3 of 3, 12,288",
}


class Block(NamedTuple):
    language: str
    code: str
    line: int


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    for written, run_as in FEWER_STEPS.items():
        text = text.replace(written, run_as)
    fence = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in fence.finditer(text)]


def commands(code: str) -> Iterator[tuple[str, str]]:
    """(command, what it prints); a backslash continues a command."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, output = re.split(r"(?<!\\)\n", part, maxsplit=1)
        yield command, output


def run_python(block: Block, names: dict[str, object], where: str) -> None:
    if ">>>" not in block.code:
        exec(compile(block.code, where, "exec"), names)
        return
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    test = doctest.DocTestParser().get_doctest(block.code, names, where, where, block.line)
    said: list[str] = []
    runner.run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(said)


def run_console(block: Block, where: str, in_shell: bool) -> None:
    for command, expected in commands(block.code):
        if in_shell or not command.startswith("bytemill ") or set("|<>&;$*") & set(command):
            done = subprocess.run(
                ["bash", "-c", command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
            )
            code, said = done.returncode, done.stdout
        else:
            result = run(*shlex.split(command)[1:], together=True)
            code, said = result.code, result.text
        assert code == 0, f"{where}: {command}\n{said}"
        checker = doctest.OutputChecker()
        assert checker.check_output(expected, said, FLAGS), (
            f"{where}: {command}\nexpected:\n{expected}\ngot:\n{said}"
        )


def run_sh(block: Block, where: str) -> None:
    for line in block.code.splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ["pip", "install"]:
            extras = re.findall(r"\[(.*)\]", words[-1])
            known = (TOP / "pyproject.toml").read_text(encoding="utf-8")
            assert words[-1].startswith("."), f"{where}: {line}"
            named = [extra for part in extras for extra in part.split(",")]
            assert all(f"\n{extra} = [" in known for extra in named), f"{where}: {line}"
        elif words:
            words = ["make", "-n", "-C", str(TOP), *words[1:]] if words[0] == "make" else words
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("bash") is None, reason="the examples are for a POSIX shell")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_print_what_they_say(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if document.name in ("export.md", "lm.md", "planning.md"):
        # The models of the examples are too small for a second thread.
        pytest.importorskip("torch").set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    for name, value in {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONUTF8": "1"}.items():
        monkeypatch.setenv(name, value)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(document):
        where = f"{document.name}:{block.line}"
        if block.language == "python":
            run_python(block, names, where)
        elif block.language == "sh" and document.name == "README.md":
            run_sh(block, where)
        elif block.language == "console" and (HAS_TORCH or "bytemill train " not in block.code):
            run_console(block, where, in_shell=document.name == "README.md")


def bytemill_commands(code: str) -> Iterator[list[str]]:
    """The arguments of each bytemill command of a block, wherever in a line it begins."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for n, word in enumerate(words):
            if word == "bytemill":
                ends = (i for i, end in enumerate(words) if i > n and set(end) <= set("|&;<>"))
                yield words[n + 1 : next(ends, len(words))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_of_sh_blocks_exist(document: Path) -> None:
    context = click.Context(app)
    for block in blocks(document):
        for name, *arguments in bytemill_commands(block.code) if block.language == "sh" else ():
            command = app.get_command(context, name)
            assert command is not None, f"{document.name}:{block.line}: bytemill {name}"
            command.make_parser(click.Context(command)).parse_args(arguments)


def test_a_command_that_does_not_exist_is_found() -> None:
    code = "torchrun -m bytemill train tokens/ -o run/ --stepz 3 | tee log  # bytemill no\n"
    (found,) = bytemill_commands(code)
    assert found == ["train", "tokens/", "-o", "run/", "--stepz", "3"]
    command = app.get_command(click.Context(app), "train")
    assert command is not None
    with pytest.raises(click.NoSuchOption, match="--stepz"):
        command.make_parser(click.Context(command)).parse_args(found[1:])


def test_the_readme_has_examples() -> None:
    found = blocks(TOP / "README.md")
    assert {"python", "console", "sh"} <= {block.language for block in found}
    run = "".join(block.code for block in found if block.language == "console")
    for command in ("train-tokenizer", "encode", "train", "generate"):
        assert f"$ bytemill {command} " in run
    assert "--steps 3\n" in run


@pytest.mark.parametrize("document", [*DOCUMENTS, TOP / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_links_within_the_repository_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        # The pages in reference/ are generated; test_site.py builds them and checks their links.
        assert (document.parent / target).exists() or target.startswith("reference/"), target


def test_the_annotated_trees_name_existing_files() -> None:
    for document in (TOP / "README.md", TOP / "CONTRIBUTING.md"):
        for block in blocks(document):
            if block.language == "tree":
                check_tree(block.code)


def check_tree(code: str) -> None:
    """Every name of an annotated tree exists, a Rust module as file or as directory.

    Two spaces of indent are one level.
    """
    above: list[str] = []
    for line in code.splitlines():
        match = re.match(r"( *)(\S+)", line)
        assert match
        above[len(match[1]) // 2 :] = [match[2]]
        path = TOP.joinpath(*above)
        found = path.exists() or path.with_suffix(".rs").exists()
        assert found, f"{path} is in the tree but not in the repository"
