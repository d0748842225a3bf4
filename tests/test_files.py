"""Files appear completely or not at all, whatever is killed, and one process writes at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bytemill import TokensError, _files

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals and locks of POSIX")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def in_child(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


KILLED_WHILE_WRITING = """
    import os, signal, sys
    from pathlib import Path
    from bytemill import _files
    with _files.replacing(Path(sys.argv[1])) as file:
        file.write(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@POSIX
def test_the_next_write_removes_the_temporary_of_a_killed_process(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    assert in_child(KILLED_WHILE_WRITING, target).returncode == -signal.SIGKILL
    assert target.read_bytes() == b"old"
    assert len(names(tmp_path)) == 2
    _files.write_atomically(target, b"new")
    assert (names(tmp_path), target.read_bytes()) == (["file"], b"new")


def test_temporaries_of_live_writers_and_foreign_files_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "file"
    foreign = tmp_path / ".file.0123456789.bytemill.txt"
    foreign.write_bytes(b"mine")
    with _files.replacing(target) as file:
        file.write(b"slow")
        _files.write_atomically(target, b"fast")
    assert names(tmp_path) == [foreign.name, "file"]
    assert target.read_bytes() == b"slow"


def test_a_failure_leaves_the_old_file_and_names_it(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(OSError, match="No space") as caught, _files.replacing(target):
        raise OSError(28, "No space left on device")
    assert caught.value.filename == str(target)
    assert (names(tmp_path), target.read_bytes()) == (["file"], b"old")


KILLED_AT_A_RENAME = """
    import os, signal, sys
    from pathlib import Path
    from bytemill import _files
    at, real, calls = int(sys.argv[2]), os.replace, 0
    def replace(old, new):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        real(old, new)
    os.replace = replace
    _files.write_together(Path(sys.argv[1]), {"a": b"new a", "b": b"new b"})
"""


@POSIX
@pytest.mark.parametrize(("at", "expected"), [(1, b"old"), (2, b"new"), (3, b"new")])
def test_files_that_belong_together_are_replaced_together(
    tmp_path: Path, at: int, expected: bytes
) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"old " + name.encode())
    assert in_child(KILLED_AT_A_RENAME, tmp_path, at).returncode == -signal.SIGKILL
    _files.settle(tmp_path)
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [expected + b" a", expected + b" b"]
    _files.write_together(tmp_path, {"a": b"x", "b": b"y"})
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("commit", ["", "[]", '{"x": "../y"}', '{"../.a.01234567.bytemill": "a"}'])
def test_a_damaged_commit_moves_nothing(tmp_path: Path, commit: str) -> None:
    (tmp_path / _files.COMMIT).write_text(commit)
    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(Exception, match="damaged"):
        _files.settle(tmp_path)
    assert (tmp_path / "x").exists()


def test_a_directory_is_exchanged(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for content in ("old", "new"):
        with _files.replacing_directory(target) as directory:
            (directory / "file").write_text(content)
        assert (names(tmp_path), (target / "file").read_text()) == (["out"], content)
    with pytest.raises(FileNotFoundError), _files.replacing_directory(target) as directory:
        (directory / "missing").rename(directory / "file")
    assert (names(tmp_path), (target / "file").read_text()) == (["out"], "new")


@POSIX
def test_one_writer_at_a_time(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    code = """
        import sys
        from pathlib import Path
        from bytemill import TokensError, _files
        try:
            with _files.writer_lock(Path(sys.argv[1]), Path("out"), TokensError):
                print("written")
        except TokensError as error:
            print(error.message)
    """
    with _files.writer_lock(lock, tmp_path, TokensError):
        assert in_child(code, lock).stdout == f"out: process {os.getpid()} is writing there\n"
    assert in_child(code, lock).stdout == "written\n"
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", ["my notes", "12 34"])
def test_a_lock_of_another_program_stays(tmp_path: Path, content: str) -> None:
    lock = tmp_path / ".lock"
    lock.write_text(content)
    with (
        pytest.raises(TokensError, match="not a bytemill lock file"),
        _files.writer_lock(lock, tmp_path, TokensError),
    ):
        pass
    assert lock.read_text() == content
    lock.write_text("123")
    with _files.writer_lock(lock, tmp_path, TokensError):
        assert lock.read_text() == str(os.getpid())
    assert names(tmp_path) == []


@POSIX
def test_a_pipe_in_place_of_a_lock_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with (
        pytest.raises(TokensError, match="not a bytemill lock"),
        _files.writer_lock(tmp_path / ".lock", tmp_path, TokensError),
    ):
        pass
    assert names(tmp_path) == [".lock"]


@POSIX
def test_a_directory_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failure:
        _files.remove_tree(tmp_path / "gone")
    assert failure.value.filename == str(tmp_path / "gone")
