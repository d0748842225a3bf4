"""The command line as a process: pipes that close, Ctrl-C, a full disk, and how it starts."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bytemill
from command_line import COMMANDS, start

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals and pipes of POSIX")


@pytest.fixture(scope="module")
def saved(tokenizer: bytemill.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(path)
    return path


def test_streams_of_a_process(saved: Path) -> None:
    process = start("encode", "-t", saved)
    out, err = process.communicate(b"def f():")
    ids = bytemill.Tokenizer.load(saved).encode("def f():")
    assert (process.returncode, err) == (0, b"")
    assert out.split() == [b"%d" % id for id in ids]
    process = start("inspect", "missing.json")
    out, err = process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert err.startswith(b"error: missing.json: ")


@POSIX
@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("command", ["encode", "inspect"])
def test_a_closed_pipe_is_not_a_failure(
    saved: Path, corpus: Path, command: str, unbuffered: bool
) -> None:
    line = ["encode", "-t", saved, corpus] if command == "encode" else ["inspect", saved]
    environment = os.environ | {"PYTHONUNBUFFERED": "1" if unbuffered else ""}
    with start(*line, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # The statistics are short: close the pipe before they are printed.
        if command == "encode":
            assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["encode", "inspect"])
def test_a_full_disk_is_a_failure(saved: Path, corpus: Path, command: str) -> None:
    line = ["encode", "-t", saved, corpus] if command == "encode" else ["inspect", saved]
    with open("/dev/full", "wb") as full:
        process = start(*line, stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err.startswith(b"error: stdout: no space left on device\nhint: free some space")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["encode", "--help"]])
def test_help_on_a_full_disk_is_a_failure(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        process = start(*arguments, stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err.startswith(b"error: stdout: no space left on device\n")


@POSIX
@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        ("--help >&-", 1, b"error: stdout: bad file descriptor\n"),
        ("encode -t {tokenizer} {corpus} >&-", 1, b"error: stdout: bad file descriptor\n"),
        ("inspect {tokenizer} text >&-", 1, b"error: stdout: bad file descriptor\n"),
        ("encode -t {tokenizer} - <&-", 1, b"error: stdin: bad file descriptor\n"),
        ("nonsense 2>&-", 2, b""),
        ("nonsense 2>/dev/full", 2, b""),
    ],
)
def test_closed_streams(
    saved: Path, corpus: Path, redirection: str, code: int, said: bytes
) -> None:
    if "/dev/full" in redirection and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    line = redirection.format(tokenizer=saved, corpus=corpus)
    done = subprocess.run(f"{sys.executable} -m bytemill {line}", shell=True, capture_output=True)
    assert (done.returncode, done.stderr) == (code, said)


@POSIX
def test_a_closed_stderr_does_not_write_into_our_files(corpus: Path, tmp_path: Path) -> None:
    """The next file opened would get descriptor 2, and everything written to stderr."""
    out = tmp_path / "a.json"
    code = (
        "import os, sys; from bytemill.cli import main\n"
        "import bytemill.formats as f; real = f.write_atomically\n"
        "def noisy(path, data): os.write(2, b'noise'); real(path, data)\n"
        "f.write_atomically = noisy\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    line = [sys.executable, "-c", code, "train-tokenizer", corpus, "-o", out, "--vocab-size", 260]
    shell = " ".join(shlex.quote(str(word)) for word in line)
    assert subprocess.run(f"{shell} 2>&-", shell=True).returncode == 0
    assert b"noise" not in out.read_bytes()
    assert len(bytemill.Tokenizer.load(out)) == 260


@POSIX
@pytest.mark.parametrize(
    "module", ["bytemill.cli", "click", "bytemill._native", "bytemill.tokenizer"]
)
def test_ctrl_c_during_imports(module: str) -> None:
    code = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == os.environ['AT']: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from bytemill.__main__ import main\n"
        "sys.argv[:] = ['bytemill', 'count', '--help']\n"
        "sys.exit(main())"
    )
    environment = os.environ | {"AT": module}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    # Once the command line runs, it reports the interruption.
    expected = b"interrupted\n" if module == "bytemill.tokenizer" else b""
    assert (done.returncode, done.stderr) == (130, expected)


@POSIX
def test_the_error_names_a_read_only_file_system(tmp_path: Path) -> None:
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", tmp_path], check=True,
                       capture_output=True)  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not mount here")
    try:
        (tmp_path.parent / "text").write_text("some text")
        line = ("train-tokenizer", tmp_path.parent / "text", "-o", tmp_path / "a.json")
        process = start(*line, "--vocab-size", "260")
        _, err = process.communicate()
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert process.returncode == 1
    assert b"read-only file system" in err
    assert b"hint: the file system is mounted read-only" in err


@pytest.mark.slow
@POSIX
@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_leaves_nothing_behind(corpus: Path, tmp_path: Path, as_json: bool) -> None:
    # The same file many times: work for a long while on any machine.
    out = tmp_path / "tokenizer.json"
    options = ["-o", out, "--vocab-size", "30000", *(["--json"] if as_json else [])]
    process = start("train-tokenizer", *[corpus] * 2000, *options)
    try:
        time.sleep(1.5)
        began = time.perf_counter()
        process.send_signal(signal.SIGINT)
        printed, err = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 130
    assert time.perf_counter() - began < 2
    assert printed == b""
    assert err.splitlines()[-1] == (b'{"event": "interrupted"}' if as_json else b"interrupted")
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@POSIX
@pytest.mark.parametrize("command", ["train-tokenizer - -o a.json", "encode - -t {} -o tokens"])
def test_ctrl_c_while_waiting_for_input(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = start(*command.format(saved).split(), "--json", env=environment)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"some text")
    process.stdin.flush()
    # It has started, and waits for more input.
    assert b"progress" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err.splitlines()[-1]) == (130, b'{"event": "interrupted"}')
    assert [path.name for path in tmp_path.iterdir()] in ([], ["tokens"])


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_loads_nothing_heavy(command: str) -> None:
    code = (
        "import sys; from bytemill.cli import main; "
        f"main({[*command.split(), '--help']}); "
        "heavy = {'numpy', 'torch', 'rich', 'tokenizers', 'tiktoken'} & set(sys.modules); "
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_encode_and_decode_use_little_memory(saved: Path, corpus: Path) -> None:
    """Ids of megabytes of text as Python objects would be hundreds of megabytes."""
    code = (
        "import sys; from bytemill.cli import main; code = main(sys.argv[1:]); "
        "peak = [x for x in open('/proc/self/status') if x.startswith('VmHWM')][0].split()[1]; "
        "print(peak, file=sys.stderr); sys.exit(code)"
    )

    def peak(*arguments: object, stdin: bytes) -> tuple[int, bytes]:
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)], input=stdin, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        return int(done.stderr), done.stdout

    text = corpus.read_bytes()
    small, _ = peak("encode", "-t", saved, stdin=text[:2_000_000])
    large, ids = peak("encode", "-t", saved, stdin=text * 3)
    assert large - small < 8_000
    small, _ = peak("decode", "-t", saved, stdin=ids[:2_000_000])
    large, out = peak("decode", "-t", saved, stdin=ids)
    assert large - small < 8_000
    assert out == text * 3


@POSIX
def test_on_a_terminal(saved: Path, corpus: Path, tmp_path: Path) -> None:
    """Progress is one line that is redrawn; the totals of each phase stay."""
    pty = pytest.importorskip("pty")
    main, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    process = start("train-tokenizer", *[corpus] * 40, "-o", tmp_path / "a.json", "--vocab-size",
                    "5000", stdin=terminal, stdout=terminal, stderr=terminal,
                    env=environment)  # fmt: skip
    os.close(terminal)
    seen = b""
    try:
        while data := os.read(main, 1 << 16):
            seen += data
    except OSError:  # on Linux: the other side is closed
        pass
    os.close(main)
    assert process.wait() == 0
    text = seen.decode()
    assert "\rcount   █" in text
    drawn = [part for part in text.replace("\n", "\r").split("\r") if "cpu" in part]
    assert drawn
    assert max(map(len, drawn)) < 100
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    assert [line.split()[0] for line in lines if line] == ["count", "merge", "saved", "next"]
