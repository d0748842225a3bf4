"""A quick subset of `make faults`: some faults, some signals, some damaged files.

In processes of their own, because the library that fails system calls must be loaded at startup.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from faults import commands, mutations, report, shim

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shim.why_not() is not None, reason=f"{shim.why_not()}"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "inject --calls 5 --fault kill --fault full --only train-tokenizer* --only convert-gpt2",
        "inject --calls 5 --fault kill --fault io --only encode --situation overwrite",
        "kill --signals 20",
        "mutate --mutations 3 --only token* --only counts* --only corpus-zip",
    ],
)
def test_nothing_is_found(arguments: str) -> None:
    line = [sys.executable, "-m", "faults", *arguments.split(), "--no-torch"]
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        line, cwd=Path(__file__).parent, env=here, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fault_is_found(tmp_path: Path) -> None:
    """The n-th call fails, those before it succeed, and calls elsewhere do not count."""
    program = """
import os, sys
from pathlib import Path
from faults import shim
watched, elsewhere = Path(sys.argv[1]), Path(sys.argv[2])
shim.arm(watched, 4, shim.FAULTS["full"])
(elsewhere / "file").write_text("does not count")
(watched / "file").write_text("open and write")
os.rename(watched / "file", watched / "other")
for name in ("a", "b"):
    try:
        (watched / name).write_text("no space")
    except OSError as error:
        print(error.errno, os.path.exists(watched / name))
os.unlink(watched / "other")
print(shim.seen())
"""
    watched, elsewhere = tmp_path / "watched", tmp_path / "elsewhere"
    watched.mkdir()
    elsewhere.mkdir()
    here = {"LD_PRELOAD": str(shim.build(tmp_path)), "PYTHONPATH": str(Path(__file__).parent)}
    line = [sys.executable, "-c", program, str(watched), str(elsewhere)]
    done = subprocess.run(
        line, env={**os.environ, **here}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["28 False", "28 False", "6", ""]


def test_every_writing_command_is_disturbed() -> None:
    names = {command.arguments.split()[0] for command in commands.commands()}
    assert names >= {"train-tokenizer", "count", "encode", "train", "export", "convert", "sweep"}


def test_the_tables_are_made_from_the_results() -> None:
    page = report.DOCS.read_text()
    assert report.documented(page, report.read()) == page


@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda m: m.__name__)
def test_a_mutation_changes_a_file(mutation: mutations.Mutation) -> None:
    for data in (b'{"a": [1, 2, {"b": 3}]}', b"\x00\x01plain", b""):
        assert any(mutation(data, random.Random(i)) != data for i in range(20)) or data == b""
