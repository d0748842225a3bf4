"""Packaging: the source distribution is complete, and the lowest versions match the metadata."""

from __future__ import annotations

import json
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


def permitted(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be satisfied with these licenses."""

    def value(match: re.Match[str]) -> str:
        return match[0].lower() if match[0] in ("AND", "OR") else str(match[0] in allowed)

    terms = r"[\w.-]+(?: WITH [\w.-]+)?"
    return bool(eval(re.sub(terms, value, expression.replace("/", " OR "))))


def test_licenses_are_satisfied_as_a_whole() -> None:
    assert permitted("(MIT OR GPL-3.0) AND Zlib", {"MIT", "Zlib"})
    assert permitted("MIT/Apache-2.0", {"Apache-2.0"})
    assert not permitted("MIT AND Zlib", {"MIT"})
    assert not permitted("Apache-2.0 WITH LLVM-exception", {"Apache-2.0"})


def test_cargo_deny_allows_the_licenses_of_what_the_core_is_built_from() -> None:
    """CI runs `cargo deny`, which is rarely installed elsewhere."""
    cargo = shutil.which("cargo")
    if cargo is None or not (TOP / "Cargo.lock").exists():
        pytest.skip("needs cargo and a clone")
    command = [cargo, "metadata", "--format-version=1", "--all-features", "--offline", "--locked"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        pytest.skip("needs the sources of all dependencies")
    packages = json.loads(done.stdout)["packages"]
    deny = tomllib.loads((TOP / "deny.toml").read_text(encoding="utf-8"))
    allowed = set(deny["licenses"]["allow"])
    refused = {
        f"{package['name']}: {package['license']}"
        for package in packages
        if not permitted(package["license"], allowed)
    }
    assert refused == set()


def test_actions_are_pinned_to_commits() -> None:
    """A tag can be moved to other code; the comment names the version for readers."""
    workflows = sorted((TOP / ".github" / "workflows").glob("*.yml"))
    if not workflows:
        pytest.skip("needs a clone")
    uses = [line for path in workflows for line in path.read_text().splitlines() if "uses:" in line]
    assert len(uses) > 20
    pinned = re.compile(r"\s*- uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v[\d.]+")
    assert [line for line in uses if not pinned.fullmatch(line)] == []


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
