"""The command in the hint for a missing extra installs from where bytemill was installed from."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from bytemill.errors import install_command

FROM_INDEX = "pip install 'bytemill[lm]'"


def installed_from(monkeypatch: pytest.MonkeyPatch, record: str | None) -> None:
    """As if `direct_url.json` were this; None if there is none."""
    found = SimpleNamespace(read_text=lambda name: record)
    monkeypatch.setattr(metadata, "distribution", lambda name: found)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    path = tmp_path / "a clone"
    path.mkdir()
    (path / "pyproject.toml").touch()
    return path


@pytest.mark.parametrize(
    "record",
    [
        None,
        json.dumps({"url": "file:///tmp/bytemill-0.1.0-cp310-abi3-linux.whl", "archive_info": {}}),
        json.dumps({"url": "https://github.com/a/b", "vcs_info": {"vcs": "git"}}),
        json.dumps({"url": "file:///no/such/clone", "dir_info": {}}),
        "not JSON",
        "[]",
        json.dumps({"dir_info": {}}),
        json.dumps({"url": 1, "dir_info": {}}),
        json.dumps({"url": "file:///", "dir_info": 7}),
    ],
)
def test_from_an_index_or_a_wheel(monkeypatch: pytest.MonkeyPatch, record: str | None) -> None:
    installed_from(monkeypatch, record)
    assert install_command("lm") == FROM_INDEX


@pytest.mark.parametrize(("info", "option"), [({}, ""), ({"editable": True}, "-e ")])
def test_from_a_clone(
    monkeypatch: pytest.MonkeyPatch, clone: Path, info: dict[str, bool], option: str
) -> None:
    installed_from(monkeypatch, json.dumps({"url": clone.as_uri(), "dir_info": info}))
    assert install_command("lm") == f"pip install {option}'{clone}[lm]'"
    monkeypatch.chdir(clone)
    assert install_command("plot") == f"pip install {option}'.[plot]'"


def test_imported_from_a_clone_without_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    top = Path(install_command.__code__.co_filename).resolve().parents[2]
    expected = f"pip install -e '{top}[lm]'"
    monkeypatch.chdir(Path(top.anchor))
    assert install_command("lm") == (expected if (top / "pyproject.toml").is_file() else FROM_INDEX)


def test_in_a_directory_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clone: Path
) -> None:
    installed_from(monkeypatch, json.dumps({"url": clone.as_uri(), "dir_info": {}}))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    try:
        gone.rmdir()
    except OSError:
        pytest.skip("this system keeps the current directory of a process")
    assert install_command("lm") == f"pip install '{clone}[lm]'"
