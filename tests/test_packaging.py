"""What is packaged: the source distribution is complete, the lowest versions are those promised."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = Path(__file__).parents[1]


def test_the_lowest_versions_are_those_that_the_package_promises() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    promised = {}
    for requirement in [*project["dependencies"], *(each for extra in extras for each in extra)]:
        name, version = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
        promised[name] = version
    lines = (TOP / "tests" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    lowest = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert sorted(lowest) == sorted(promised)
    for name, version in promised.items():
        # 2.6.0 is the lowest 2.6.
        assert re.fullmatch(re.escape(version) + r"(\.0)*", lowest[name]), name


@pytest.mark.slow
def test_the_source_distribution_has_every_file_and_no_other(tmp_path: Path) -> None:
    maturin = shutil.which("maturin", path=str(Path(sys.executable).parent))
    if maturin is None or shutil.which("git") is None or not (TOP / ".git").exists():
        pytest.skip("needs maturin and a clone")
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=TOP, check=True, capture_output=True, encoding="utf-8"
    ).stdout.split()
    subprocess.run([maturin, "sdist", "--out", tmp_path], cwd=TOP, check=True, capture_output=True)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        packed = {name.partition("/")[2] for name in members.getnames()}
    hidden = {name for name in tracked if name.startswith(".")}
    # Files of this clone that are not committed yet may be in it, but nothing that was built.
    assert set(tracked) - hidden - packed == set()
    built = re.compile(r"__pycache__|\.(pyc|so|pyd|whl)$|(^|/)target/")
    assert [name for name in packed if built.search(name)] == []
