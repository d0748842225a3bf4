"""Faults while tokens are written: all files stay complete, and the work can be resumed."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import bytemill
import soak_tokens
from bytemill import Tokens
from command_line import start

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
EOT = "<|endoftext|>"


@pytest.fixture(scope="module")
def sources(documents: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Some files of a few documents each."""
    folder = tmp_path_factory.mktemp("sources")
    paths = []
    for number in range(8):
        path = folder / f"{number}.txt"
        path.write_bytes(EOT.join(documents[number * 8 : number * 8 + 8]).encode())
        paths.append(str(path))
    return paths


@pytest.fixture(scope="module")
def saved(tokenizer: bytemill.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(path)
    return path


@pytest.mark.slow
@POSIX
@pytest.mark.parametrize(
    "options",
    [
        {"shard_tokens": 20_000},
        {"shard_tokens": 50_000, "val_fraction": 0.3, "shuffle": True},
        {"shard_tokens": 50_000, "val_fraction": 0.3, "shuffle": True, "dealt": True},
        {"format": "megatron", "append_eot": False},
    ],
    ids=["shards", "shuffled", "dealt", "megatron"],
)
def test_killed_anywhere(
    sources: list[str], saved: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    plan = {"format": "shards", "dtype": None, "shard_tokens": 10**8, "append_eot": True,
            "val_fraction": None, "shuffle": False, "seed": 1} | options  # fmt: skip
    midway = soak_tokens.killed(saved, sources[:4], tmp_path, plan, 6, 1)
    assert midway > 0
    split = "all" if plan["val_fraction"] is None else "train"
    Tokens(tmp_path / "disturbed", split=split).verify(
        bytemill.Tokenizer.load(saved), source=sources[:4]
    )


def undisturbed(tokenizer: bytemill.Tokenizer, sources: list[str], out: Path) -> dict[str, bytes]:
    tokenizer.encode_files(sources, out, shard_tokens=100_000)
    return soak_tokens.content(out)


def resumed(tokenizer: bytemill.Tokenizer, sources: list[str], out: Path) -> dict[str, bytes]:
    tokenizer.encode_files(sources, out, shard_tokens=100_000, resume=True)
    return soak_tokens.content(out)


LIMITED = """
import resource, signal, sys
import bytemill
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
tokenizer = bytemill.Tokenizer.load(sys.argv[1])
try:
    tokenizer.encode_files(sys.argv[3:], sys.argv[2], format="bin")
except OSError as error:
    print(error.errno, error.filename)
"""


@POSIX
def test_a_file_that_cannot_grow(
    tokenizer: bytemill.Tokenizer, sources: list[str], saved: Path, tmp_path: Path
) -> None:
    """Simulates a full disk where mounting is not allowed."""
    out = tmp_path / "out"
    command = [sys.executable, "-c", LIMITED, str(saved), str(out), *sources]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    number, name = done.stdout.split()
    assert (int(number), Path(name).name) == (errno.EFBIG, "tokens.bin")
    assert [path.name for path in out.iterdir()] == [".partial"]
    tokenizer.encode_files(sources, out, format="bin", resume=True).verify(
        tokenizer, source=sources
    )


@POSIX
def test_a_full_disk(
    tokenizer: bytemill.Tokenizer, sources: list[str], saved: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("no file system may be mounted here")
    try:
        out = disk / "tokens"
        with pytest.raises(OSError, match="No space left") as caught:
            tokenizer.encode_files(sources, out, shard_tokens=100_000)
        assert caught.value.errno == errno.ENOSPC
        assert os.listdir(out) == [".partial"]
        process = start("encode", *sources, "-t", saved, "-o", out, "--resume", "--shard-tokens",
                        100_000)  # fmt: skip
        _, said = process.communicate()
        assert process.returncode == 1
        assert "no space left" in said.decode()
        subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
        assert resumed(tokenizer, sources, out) == undisturbed(
            tokenizer, sources, tmp_path / "whole"
        )
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def during(action: Any) -> Any:
    """A progress callback that runs `action` once the work has started."""
    done = []

    def progress(event: bytemill.ProgressEvent) -> None:
        if event.done and not done:
            done.append(True)
            action()

    return progress


def test_a_source_that_vanishes(
    tokenizer: bytemill.Tokenizer, sources: list[str], tmp_path: Path
) -> None:
    copies = [tmp_path / Path(source).name for source in sources]
    for source, copy in zip(sources, copies):
        copy.write_bytes(Path(source).read_bytes())
    last, elsewhere = copies[-1], tmp_path / "elsewhere"
    # Large enough that the last is not read before the first progress.
    many = [*map(str, copies)] * 40
    with pytest.raises(FileNotFoundError, match=last.name):
        tokenizer.encode_files(many, tmp_path / "out", threads=1,
                               progress=during(lambda: last.rename(elsewhere)))  # fmt: skip
    assert os.listdir(tmp_path / "out") == [".partial"]
    elsewhere.rename(last)
    tokens = tokenizer.encode_files(many, tmp_path / "out", resume=True)
    tokens.verify(tokenizer, source=many)


@pytest.mark.parametrize("size", [10, 10**7], ids=["shrinks", "grows"])
def test_a_source_that_changes(
    tokenizer: bytemill.Tokenizer, documents: list[str], tmp_path: Path, size: int
) -> None:
    path = tmp_path / "large.txt"
    # Large enough that it is not read to its end before the first progress.
    path.write_bytes(EOT.join(documents).encode() * 10)
    with pytest.raises(
        bytemill.CorpusError, match=r"changed since|unexpected end of file"
    ) as caught:
        tokenizer.encode_files(path, tmp_path / "out", threads=1,
                               progress=during(lambda: os.truncate(path, size)))  # fmt: skip
    assert caught.value.hint
    with pytest.raises(bytemill.ConfigError, match=r"large\.txt has changed"):
        tokenizer.encode_files(path, tmp_path / "out", resume=True)
    tokens = tokenizer.encode_files(path, tmp_path / "out", overwrite=True, threads=1)
    tokens.verify(tokenizer, source=path)


class Stopped(Exception):
    """Raised in the middle of the work."""


def stop() -> None:
    raise Stopped


def test_the_old_tokens_stay_until_the_new_are_complete(
    tokenizer: bytemill.Tokenizer, sources: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    # Enough that the work is not finished at the first progress event.
    many = sources * 40
    before = undisturbed(tokenizer, sources[:2], out)
    with pytest.raises(FileExistsError, match="out: exists already"):
        tokenizer.encode_files(sources, out)
    with pytest.raises(Stopped):
        tokenizer.encode_files(many, out, overwrite=True, threads=1, progress=during(stop))
    assert dict(soak_tokens.shown(out)) == before
    assert len(Tokens(out)) > 0
    with pytest.raises(bytemill.ConfigError, match="of an interrupted run") as caught:
        tokenizer.encode_files(many, out)
    assert "resume=True" in str(caught.value.hint)
    with pytest.raises(bytemill.ConfigError, match="started with 320 sources"):
        tokenizer.encode_files(sources, out, resume=True)
    tokens = tokenizer.encode_files(many, out, resume=True)
    tokens.verify(tokenizer, source=many)
    assert sorted(os.listdir(out)) == [
        "manifest.json", "shard-00000.docs.npy", "shard-00000.npy", "tokenizer.json",
    ]  # fmt: skip
    # Complete already: nothing is done.
    stamp = (out / "manifest.json").stat().st_mtime_ns
    tokenizer.encode_files(many, out, resume=True)
    assert (out / "manifest.json").stat().st_mtime_ns == stamp


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


@POSIX
def test_two_writers(
    tokenizer: bytemill.Tokenizer, sources: list[str], saved: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start("encode", *sources * 40, "-t", saved, "-o", out, "--quiet", "--threads", 1)
    try:
        deadline = time.monotonic() + 20
        # Once locked, the file contains the id of the process.
        while not _read(out / ".lock") and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGSTOP)
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(bytemill.TokensError, match=f"process {process.pid} is writing"):
                tokenizer.encode_files(sources, out, **options)
    finally:
        process.kill()
        process.communicate()
    # The lock of a dead process does not count.
    assert (out / ".lock").exists()
    tokenizer.encode_files(sources, out, overwrite=True).verify(tokenizer, source=sources)


@POSIX
def test_ctrl_c(sources: list[str], saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["encode", *sources * 40, "-t", saved, "-o", out, "--threads", 1]
    process = start(*arguments)
    try:
        deadline = time.monotonic() + 20
        while not (out / ".partial" / "shard-00000.npy").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, said = process.communicate(timeout=10)
    finally:
        process.kill()
    if process.returncode == 0:
        pytest.skip("too fast to be interrupted")
    assert process.returncode == 130
    assert time.monotonic() - began < 5
    assert "--resume continues it" in said.decode()
    assert os.listdir(out) == [".partial"]


MEMORY = """
import sys
import bytemill

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

tokenizer = bytemill.Tokenizer.load(sys.argv[1])
bytemill.Tokens
tokenizer.encode_files(sys.argv[3:4], sys.argv[2] + "-first", threads=2)
before = peak()
tokenizer.encode_files(sys.argv[3:], sys.argv[2], threads=2, shuffle="-shuffle" in sys.argv[2])
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
@pytest.mark.parametrize("mode", ["", "-shuffle"])
def test_memory_does_not_grow(corpus: Path, saved: Path, tmp_path: Path, mode: str) -> None:
    out = tmp_path / f"out{mode}"
    command = [sys.executable, "-c", MEMORY, str(saved), str(out), *[str(corpus)] * 8]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    # 48 MB of text; in memory, its ids alone would be 25 MB, or 50 MB before they are narrowed.
    assert int(done.stdout) < (12 << 20 if not mode else 40 << 20)


def test_random_plans_are_possible() -> None:
    chance = random.Random(1)
    formats = {soak_tokens.draw_plan(chance)["format"] for _ in range(50)}
    assert formats == {"shards", "npy", "bin", "megatron"}
