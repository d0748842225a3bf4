"""Tests that need another process: constant memory, long pieces, forks, lazy imports."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bytemill

# Linux has the peak in /proc; getrusage would include the parent's.
PEAK = """
import sys

def peak():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    except FileNotFoundError:
        import resource
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
"""


def python(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def saved(tokenizer: bytemill.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "tokenizer.json"
    tokenizer.save(path)
    return path


@pytest.mark.skipif(sys.platform == "win32", reason="needs getrusage")
@pytest.mark.parametrize("size", [5_000_000, 20_000_000])
def test_encoding_a_stream_takes_constant_memory(
    tokenizer: bytemill.Tokenizer, saved: Path, corpus: Path, tmp_path: Path, size: int
) -> None:
    text = corpus.read_bytes().decode().replace("<|endoftext|>", "\n")
    text = (text * (size // len(text) + 1))[:size]
    file = tmp_path / "long.txt"
    file.write_bytes(text.encode())
    script = f"""{PEAK}
import bytemill
tokenizer = bytemill.Tokenizer.load(sys.argv[1])
n = 0
with open(sys.argv[2], encoding="utf-8", newline="") as file:
    before = peak()
    for id in tokenizer.encode_iterable(file):
        n += 1
print(n, peak() - before)
"""
    n, growth = map(int, python(script, saved, file).split())
    assert n == tokenizer.count(text)
    assert growth < 1_000_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_tokenizer_works_after_a_fork(
    tokenizer: bytemill.Tokenizer, saved: Path, corpus: Path
) -> None:
    script = """
import os, sys
import bytemill
tokenizer = bytemill.Tokenizer.load(sys.argv[1])
text = open(sys.argv[2], encoding="utf-8", newline="").read()[:300_000]
texts = [text[i : i + 1000] for i in range(0, len(text), 1000)]
expected = tokenizer.encode_batch(texts, threads=4, lists=True)
for _ in range(3):
    child = os.fork()
    if child == 0:
        ok = tokenizer.encode_batch(texts, threads=4, lists=True) == expected
        ok &= tokenizer.encode(text) == list(tokenizer.encode_iterable([text]))
        ok &= len(bytemill.train_tokenizer(iter(texts), vocab_size=300, threads=2)) == 300
        os._exit(not ok)
    assert os.waitpid(child, 0)[1] == 0
print(tokenizer.count(text))
"""
    text = corpus.read_bytes().decode()[:300_000]
    assert int(python(script, saved, corpus)) == tokenizer.count(text)


def test_worker_processes_can_use_it(saved: Path) -> None:
    script = """
import multiprocessing, sys
import bytemill
if __name__ == "__main__":
    tokenizer = bytemill.Tokenizer.load(sys.argv[1])
    texts = ["hello world", "def f(): pass", ""]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(tokenizer.encode, texts) == [tokenizer.encode(text) for text in texts])
"""
    file = saved.parent / "workers.py"
    file.write_text(script)
    done = subprocess.run([sys.executable, file, saved], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_importing_is_light() -> None:
    script = """
import sys
import bytemill
print(sorted({"numpy", "torch", "click"} & set(sys.modules)))
"""
    assert python(script) == "[]"


def test_ctrl_c_ends_a_long_call(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("needs POSIX signals")
    script = """
import os, random, signal, threading, time
import bytemill
random.seed(1)
text = " ".join("%x" % random.getrandbits(80) for _ in range(200_000))
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    bytemill.train_tokenizer((text for _ in range(1000)), vocab_size=100_000)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert python(script) == "interrupted"


def test_ctrl_c_while_a_source_is_slow() -> None:
    if sys.platform == "win32":
        pytest.skip("needs POSIX signals")
    script = """
import os, signal, threading, time
from types import SimpleNamespace
from bytemill import _native
from bytemill._options import Reading

class Slow:
    size, mtime_ns, version = 1, 0, ""

    def batches(self, row_group, row):
        time.sleep(20)
        return iter([])

entry = SimpleNamespace(name="slow", format="text", range=None, reader=Slow(), path=None)
texts = _native.Inputs([entry], Reading()).texts([], [100], 100)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
try:
    next(texts)
except KeyboardInterrupt:
    print(time.monotonic() - began < 10, flush=True)
os._exit(0)
"""
    assert python(script) == "True"


def beats_during(work: Callable[[], object]) -> int:
    """How often another thread wakes up during `work`."""
    n, over = 0, threading.Event()

    def beat() -> None:
        nonlocal n
        while not over.wait(0.001):
            n += 1

    thread = threading.Thread(target=beat)
    thread.start()
    before = n
    work()
    during = n - before
    over.set()
    thread.join()
    return during


@pytest.mark.slow
@pytest.mark.parametrize("call", ["push", "finish", "offsets", "decode"])
def test_other_threads_run_meanwhile(call: str) -> None:
    by_byte = {id: bytes([id]) for id in range(256)}
    tokenizer = bytemill.Tokenizer(
        by_byte, [], pattern=r"\w+\b|\W+" if call == "finish" else "gpt2"
    )
    text = "no merges, and so many ids. " * 200_000
    stream = tokenizer._core.stream("all")
    ids = tokenizer.encode_array(text)
    work = {
        "push": lambda: stream.push(text),
        "finish": stream.finish,
        "offsets": lambda: tokenizer._core.encode_spans(text, "all"),
        "decode": lambda: tokenizer.decode(np.tile(ids, 10)),
    }[call]
    if call == "finish":
        # A regular expression without known safe cuts: everything is encoded at the end.
        assert stream.push(text) == []
    assert beats_during(work) >= 3


LONG = {
    "one letter": "'a' * 10_000_000",
    "spaces": "' ' * 10_000_000",
    "one random word": "''.join(random.choices('abcdefghijklmnopqrstuvwxyz', k=10_000_000))",
    "CJK without a break": "''.join(map(chr, random.choices(range(0x4E00, 0x5600), k=3_400_000)))",
    "two letters": "'ab' * 5_000_000",
    "punctuation": "'=-' * 5_000_000",
    "emoji": "'😀' * 2_500_000",
}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("made", LONG.values(), ids=LONG.keys())
def test_long_pieces_take_bounded_time(tokenizer: bytemill.Tokenizer, made: str) -> None:
    import random

    random.seed(1)
    text = eval(made, {"random": random})
    array = tokenizer.encode_array(text)
    assert tokenizer.decode_bytes(array) == text.encode()
    assert tokenizer.count(text) == len(array)
    parts = (text[i : i + 4096] for i in range(0, len(text), 4096))
    assert sum(1 for _ in tokenizer.encode_iterable(parts)) == len(array)
