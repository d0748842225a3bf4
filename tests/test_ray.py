"""The Ray engine on a real Ray of several worker processes: the bytes of the local engine, also
when workers are killed in the middle of the work."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill import Corpus, _native
from bytemill.engines import units
from command_line import ok

ray: Any = pytest.importorskip("ray")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="signals of POSIX"),
    pytest.mark.timeout(180),
    # Ray's own sockets and processes.
    pytest.mark.filterwarnings("ignore"),
]

UNIT = 150_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of every kind: with what can be divided, and what cannot."""
    folder = tmp_path_factory.mktemp("data")
    chance = random.Random(1)
    words = ["the", "cat", "größer", "1234", "<|endoftext|>", "\n\n", "naïve", "!"]
    texts = [" ".join(chance.choices(words, k=60)) for _ in range(2500)]
    (folder / "a.txt").write_text("".join(texts), "utf-8")
    records = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "b.jsonl").write_text(records + "not json\n", "utf-8")
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(records[:90_000].encode()))
    parquet.write_table(pyarrow.table({"text": texts}), folder / "d.parquet", row_group_size=300)
    for number in range(30):
        (folder / f"e{number}.txt").write_text(texts[number], "utf-8")
    (folder / "f.txt").touch()
    return folder


def engine() -> Any:
    from bytemill.engines import Ray

    return Ray(unit_size=UNIT)


def saved(counts: bytemill.Counts, path: Path) -> bytes:
    counts.save(path, overwrite=True)
    return path.read_bytes()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def corpus(data: Path) -> Corpus:
    return Corpus(data, on_error="skip")


def test_units_are_the_corpus_in_order(data: Path) -> None:
    whole = corpus(data)
    work = units.units(whole, whole.entries(), UNIT)
    assert len(work) > 8
    assert [unit.number for unit in work] == list(range(len(work)))
    total = _native.Counts(["gpt2"], ["<|endoftext|>"], 2)
    for unit in work:
        total.add_files(unit.inputs())
    assert dict(total.items()) == dict(bytemill.count_corpus(whole))
    with pytest.raises(bytemill.ConfigError, match="other processes"):
        units.units(Corpus(iter(["text"])), Corpus(iter(["text"])).entries())


def test_counts_are_those_of_the_local_engine(cluster: None, data: Path, tmp_path: Path) -> None:
    local = saved(bytemill.count_corpus(corpus(data)), tmp_path / "a")
    events: list[bytemill.ProgressEvent] = []
    counts = bytemill.count_corpus(corpus(data), engine=engine(), progress=events.append)
    assert saved(counts, tmp_path / "b") == local
    assert counts.skipped == {"invalid_json": 2}
    assert events[-1].phase in ("count", "gather")
    assert max(event.done for event in events if event.phase == "count") > 10**6
    with pytest.warns(UserWarning, match="left out 2"):
        one = bytemill.train_tokenizer(corpus(data), vocab_size=300)
    with pytest.warns(UserWarning, match="left out 2"):
        two = bytemill.train_tokenizer(corpus(data), vocab_size=300, engine=engine())
    assert one == two


@pytest.mark.parametrize(
    "options",
    [
        {"shard_tokens": 100_000},
        {"format": "bin", "append_eot": False},
        {"shard_tokens": 70_000, "val_fraction": 0.2, "shuffle": True, "seed": 5},
    ],
    ids=["shards", "bin", "shuffled"],
)
def test_tokens_are_those_of_the_local_engine(
    cluster: None, data: Path, tmp_path: Path, tokenizer: bytemill.Tokenizer, options: Any
) -> None:
    tokenizer.encode_files(corpus(data), tmp_path / "local", **options)
    tokenizer.encode_files(corpus(data), tmp_path / "ray", engine=engine(), **options)
    assert content(tmp_path / "ray") == content(tmp_path / "local")


def test_errors_come_as_themselves(
    cluster: None, data: Path, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    with pytest.raises(bytemill.CorpusError, match=r"b\.jsonl: line 2501 .*: not JSON") as caught:
        bytemill.count_corpus(data, engine=engine())
    assert caught.value.hint
    out = tmp_path / "out"
    with pytest.raises(bytemill.CorpusError, match="not JSON"):
        tokenizer.encode_files(data, out, engine=engine())
    assert not (out / "manifest.json").exists()
    with pytest.raises(bytemill.ConfigError, match="interrupted run"):
        tokenizer.encode_files(corpus(data), out, engine=engine())
    tokenizer.encode_files(corpus(data), out, engine=engine(), overwrite=True)
    tokenizer.encode_files(corpus(data), tmp_path / "local")
    assert content(out) == content(tmp_path / "local")
    with pytest.raises(FileExistsError, match="exists already"):
        tokenizer.encode_files(corpus(data), out, engine=engine())


def kill_workers(task: str, until: Callable[[], bool]) -> list[int]:
    """Kills worker processes that are at a task of this name, until it is enough."""
    killed: list[int] = []

    def run() -> None:
        deadline = time.monotonic() + 60
        while len(killed) < 2 and not until() and time.monotonic() < deadline:
            for process in Path("/proc").iterdir():
                try:
                    name = (process / "cmdline").read_bytes().decode("utf-8", "replace")
                except (OSError, ValueError):
                    continue
                # While it works, a worker of Ray is called by its task.
                if name.startswith(f"ray::{task}"):
                    try:
                        os.kill(int(process.name), signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                    killed.append(int(process.name))
                    time.sleep(0.3)
                    break
            time.sleep(0.002)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return killed


@pytest.fixture(scope="module")
def large(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough that a worker is still at it when it is killed."""
    folder = tmp_path_factory.mktemp("large")
    text = (data / "a.txt").read_text("utf-8")
    for number in range(4):
        (folder / f"{number}.txt").write_text(text * 12, "utf-8")
    return folder


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds workers by /proc")
def test_a_worker_killed_while_counting(cluster: None, large: Path, tmp_path: Path) -> None:
    from bytemill.engines import Ray

    over = False
    killed = kill_workers("_count", lambda: over)
    counts = bytemill.count_corpus(large, engine=Ray(unit_size=5_000_000))
    over = True
    assert killed, "no worker was killed"
    local = saved(bytemill.count_corpus(large), tmp_path / "a")
    assert saved(counts, tmp_path / "b") == local


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds workers by /proc")
def test_a_worker_killed_while_encoding(
    cluster: None, large: Path, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    from bytemill.engines import Ray

    over = False
    killed = kill_workers("_encode", lambda: over)
    tokenizer.encode_files(large, tmp_path / "ray", engine=Ray(unit_size=5_000_000))
    over = True
    assert killed, "no worker was killed"
    tokenizer.encode_files(large, tmp_path / "local")
    assert content(tmp_path / "ray") == content(tmp_path / "local")


def test_the_command_line(cluster: None, data: Path, tmp_path: Path) -> None:
    ray_counts, local_counts = tmp_path / "ray.counts", tmp_path / "local.counts"
    ok("count", data, "-o", ray_counts, "--engine", "ray", "--on-error", "skip", "-q")
    ok("count", data, "-o", local_counts, "--on-error", "skip", "-q")
    assert ray_counts.read_bytes() == local_counts.read_bytes()


def test_an_unknown_engine() -> None:
    with pytest.raises(bytemill.ConfigError, match="engine='spark'"):
        bytemill.count_corpus(iter(["text"]), engine="spark")
