"""The memory limit, and that it holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bytemill
from bytemill import _system

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import zipf


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({f"{V2}/memory.max": "max\n"}, None),
        ({f"{V2}/memory.max": "100000000\n"}, 100_000_000),
        ({"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "1000\n"}, 1000),
        # The tightest limit of all enclosing groups counts.
        (
            {
                "proc/self/cgroup": "0::/user/job\n",
                f"{V2}/user/job/memory.max": "max",
                f"{V2}/user/memory.max": "5000",
                f"{V2}/memory.max": "9000",
            },
            5000,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/x\n2:memory,other:/docker/abc\n",
                f"{V1}/docker/abc/memory.limit_in_bytes": "7000\n",
                f"{V1}/memory.limit_in_bytes": "9223372036854771712\n",
            },
            7000,
        ),
        # In a container, the host's groups are not visible.
        (
            {
                "proc/self/cgroup": "2:memory:/docker/abc\n",
                f"{V1}/memory.limit_in_bytes": "8000\n",
            },
            8000,
        ),
        ({"proc/self/cgroup": "nonsense\n0::/../../x\n", f"{V2}/memory.max": "nonsense"}, None),
    ],
)
def test_limits_of_control_groups(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    machine = _system.allowed_memory(tmp_path / "nothing")
    assert 10**8 < machine <= sys.maxsize
    assert _system.allowed_memory(put(tmp_path, files)) == (limit or machine)


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"proc/meminfo": "MemTotal: 900 kB\nMemAvailable:  5 kB\n"}, 5 * 1024),
        ({f"{V2}/memory.max": "8000000000", f"{V2}/memory.current": "7999990000"}, 10_000),
        # The page cache can be reclaimed.
        (
            {
                "proc/self/cgroup": "0::/a\n",
                f"{V2}/a/memory.max": "8000000000",
                f"{V2}/a/memory.current": "7999990000",
                f"{V2}/a/memory.stat": "anon 1\nactive_file 1000\ninactive_file 2000\nfile 9\n",
            },
            13_000,
        ),
        (
            {
                f"{V1}/memory.limit_in_bytes": "8000000000",
                f"{V1}/memory.usage_in_bytes": "7999990000",
                f"{V1}/memory.stat": "inactive_file 7\ntotal_inactive_file 500\n",
            },
            10_500,
        ),
        ({f"{V2}/memory.max": "1000", f"{V2}/memory.current": "8000"}, None),
    ],
)
def test_memory_of_other_processes_is_not_available(
    tmp_path: Path, files: dict[str, str], left: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_system, "resident_memory", lambda: 100)
    root = put(tmp_path, files)
    if left is None:  # above the limit already: this process may keep what it has
        assert _system.available_memory(1, root) == 100
    else:
        assert _system.available_memory(1, root) == 100 + left
        assert _system.available_memory(2, root) == 100 + left // 2
    assert _system.available_memory() <= _system.allowed_memory()


def test_the_requested_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # The real figure grows with the tests that ran before this one.
    monkeypatch.setattr(_system, "resident_memory", lambda: 500_000_000)
    assert _system.memory_limit("3GB") == _system.MemoryLimit(3 * 10**9, 2_500_000_000)
    assert _system.memory_limit(2 * 10**9) == _system.MemoryLimit(2 * 10**9, 1_500_000_000)
    monkeypatch.setattr(_system, "allowed_memory", lambda: 10**10)
    assert _system.memory_limit(None).total == 7 * 10**9
    # A limit that the user did not set is raised instead of rejected.
    monkeypatch.setattr(_system, "allowed_memory", lambda: 10**6)
    assert _system.memory_limit(None).available == _system.LEAST


@pytest.mark.parametrize("limit", ["10MB", 1, 0, -5])
def test_a_limit_that_is_too_small(limit: int | str) -> None:
    with pytest.raises(bytemill.ConfigError, match="is too small") as caught:
        bytemill.train_tokenizer(iter(["a"]), vocab_size=300, memory_limit=limit)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("use at least ")


@pytest.mark.parametrize("limit", [True, 1.5, b"1GB"])
def test_a_limit_of_another_type(limit: object) -> None:
    with pytest.raises(TypeError, match="memory_limit"):
        bytemill.count_corpus(iter(["a"]), memory_limit=limit)


def test_a_limit_that_is_not_a_size(tmp_path: Path) -> None:
    with pytest.raises(bytemill.ConfigError, match="not a size"):
        bytemill.count_corpus(iter(["a"]), memory_limit="much")
    with pytest.raises(bytemill.ConfigError, match="spill_dir"):
        bytemill.count_corpus(iter(["a"]), spill_dir=tmp_path / "missing")


PEAK = """
import sys
import bytemill
limit, corpus, folder = sys.argv[1:]
options = {"memory_limit": limit, "spill_dir": folder, "threads": 2}
counts = bytemill.count_corpus(corpus, **options)
counts.save(folder + "/a.counts")
tokenizer = bytemill.train_tokenizer(corpus, vocab_size=1000, min_piece_count=20, **options)
tokenizer.save(folder + "/a.json")
# Not getrusage: its peak is also that of the process that started this one.
status = dict(line.split(":") for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_limit_holds_and_changes_nothing(tmp_path: Path) -> None:
    corpus = tmp_path / "zipf.txt"
    with open(corpus, "wb") as file:
        # A long tail: little text with many distinct pieces.
        zipf.write(file, 25_000_000, 1.08, 1)
    results = {}
    for limit in ("150MB", "4GB"):
        folder = tmp_path / limit
        folder.mkdir()
        command = [sys.executable, "-c", PEAK, limit, corpus, folder]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        results[limit] = int(done.stdout)
        assert sorted(os.listdir(folder)) == ["a.counts", "a.json"]
    # Without a tight limit it takes more; otherwise this test proves nothing.
    assert results["150MB"] <= 150_000_000 < results["4GB"], results
    for name in ("a.counts", "a.json"):
        tight, free = (tmp_path / limit / name for limit in results)
        assert tight.read_bytes() == free.read_bytes()


GROWTH = """
import sys
import bytemill

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

saved, text, out = sys.argv[1:]
tokenizer = bytemill.Tokenizer.load(saved)
bytemill.Tokens
before = peak()
tokenizer.encode_files([text], out, threads=2)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("unit", ["a", "ab", " "])
def test_a_piece_of_any_length_is_encoded_in_constant_memory(tmp_path: Path, unit: str) -> None:
    """Issue 13: 200 MB of one letter took 5.2 GB."""
    learned = bytemill.train_tokenizer(
        iter([unit * 300]), vocab_size=262, special_tokens=["<|endoftext|>"]
    )
    learned.save(tmp_path / "tokenizer.json")
    text = unit * (8_000_000 // len(unit))
    (tmp_path / "text").write_text(text)
    arguments = [tmp_path / "tokenizer.json", tmp_path / "text", tmp_path / "tokens"]
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, *arguments], capture_output=True, text=True, check=True
    )
    # Before: 26 bytes a byte, or 7 where nothing merges.
    assert int(done.stdout) < 40_000_000
    tokens = bytemill.Tokens(tmp_path / "tokens")
    ids = learned.encode(unit * 8_000)
    n = len(ids) // 2
    assert tokens[:n].tolist() == ids[:n]
    assert tokens[-n - 1 : -1].tolist() == ids[-n:]
    assert learned.decode(tokens[:-1]) == text


OUT_OF_MEMORY = """
import resource, sys
import bytemill

def mapped():
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[0]) * resource.getpagesize()

bytemill.count_corpus(iter(["all that is loaded late"]))
resource.setrlimit(resource.RLIMIT_AS, (mapped() + 40_000_000, resource.RLIM_INFINITY))
try:
    bytemill.count_corpus(sys.argv[1], memory_limit="4GB", threads=int(sys.argv[2]))
except MemoryError as error:
    print(error)
# The process lives, and what it had is free again.
print(len(bytemill.count_corpus(iter(["a b b"]))))
"""


@pytest.fixture(scope="module")
def many_pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pieces") / "pieces.txt"
    numbers = " ".join(f"{i * 2654435761 % 2**32:x}" for i in range(1_500_000))
    path.write_text(numbers.translate(str.maketrans("0123456789", "ghijklmnop")))
    return path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS")
@pytest.mark.parametrize("threads", [1, 2])
def test_failed_allocations_are_memory_errors(many_pieces: Path, threads: int) -> None:
    command = [sys.executable, "-c", OUT_OF_MEMORY, many_pieces, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    message, n = done.stdout.splitlines()
    assert message.endswith("bytes could not be allocated") or "thread" in message
    assert n == "2"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS")
@pytest.mark.parametrize("limit", [200, 400])
@pytest.mark.parametrize("options", [(), ("--memory-limit", "4GB")])
def test_a_limited_address_space_causes_no_abort(
    many_pieces: Path, tmp_path: Path, limit: int, options: tuple[str, ...]
) -> None:
    """Issue 13: `ulimit -v` ended in an abort with a backtrace."""
    import resource

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit * 10**6, resource.RLIM_INFINITY))

    line = ["train-tokenizer", many_pieces, "-o", tmp_path / "tokenizer.json", "--threads", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "bytemill", *line, "--vocab-size", "300", *options],
        capture_output=True,
        text=True,
        preexec_fn=restrict,
        env=os.environ | {"RUST_BACKTRACE": "1"},
    )
    assert done.returncode in (0, 1), done.stderr
    assert "backtrace" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or "error: " in done.stderr
    if limit == 200 and options:
        assert "error: out of memory" in done.stderr
