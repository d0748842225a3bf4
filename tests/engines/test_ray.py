"""The Ray engine on a real Ray of several worker processes: the bytes of the local engine, also
when workers are killed in the middle of the work."""

from __future__ import annotations

import gc
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bytemill
from bytemill import Corpus, _native, count_to_file
from bytemill._system import resident_memory
from bytemill.counting import FAN_IN, CountJob, Node, Tree, count_units
from bytemill.engines import units
from bytemill.tokens import recipes
from command_line import ok, run
from ray_cluster import ray_cluster

ray: Any = pytest.importorskip("ray")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(os.name == "nt", reason="signals of POSIX"),
    pytest.mark.timeout(180),
    # Ray's own sockets and processes.
    pytest.mark.filterwarnings("ignore"),
]

UNIT = 150_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with ray_cluster(3):
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of every kind of source: some can be divided, some cannot."""
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


def test_counts_are_those_of_the_local_engine(cluster: None, data: Path, tmp_path: Path) -> None:
    local = saved(bytemill.count_corpus(corpus(data)), tmp_path / "a")
    events: list[bytemill.ProgressEvent] = []
    counts = bytemill.count_corpus(corpus(data), engine=engine(), progress=events.append)
    assert saved(counts, tmp_path / "b") == local
    # One line in b.jsonl; c.jsonl.gz ends within another.
    assert counts.skipped == {"invalid_json": 2}
    assert events[-1].phase in ("count", "gather")
    assert max(event.done for event in events if event.phase == "count") > 10**6
    with pytest.warns(UserWarning, match="skipped 2 records"):
        one = bytemill.train_tokenizer(corpus(data), vocab_size=300)
    with pytest.warns(UserWarning, match="skipped 2 records"):
        two = bytemill.train_tokenizer(corpus(data), vocab_size=300, engine=engine())
    assert one == two


def test_separators_are_those_of_the_local_engine(
    cluster: None, data: Path, tmp_path: Path
) -> None:
    reading = Corpus(data / "a.txt", separator="\n\n")
    local = saved(bytemill.count_corpus(reading), tmp_path / "a")
    assert saved(bytemill.count_corpus(reading, engine=engine()), tmp_path / "b") == local
    tokenizer = bytemill.train_tokenizer(iter(["the cat"]), vocab_size=258)
    there = tokenizer.encode_files(reading, tmp_path / "there", engine=engine())
    here = tokenizer.encode_files(reading, tmp_path / "here")
    assert len(there.documents) == len(here.documents) > 1000
    assert content(tmp_path / "there") == content(tmp_path / "here")


@pytest.mark.parametrize(
    "options",
    [
        {"shard_tokens": 100_000},
        {"format": "bin", "append_eot": False},
        {"shard_tokens": 30_000, "val_fraction": 0.2, "seed": 3},
        {"shard_tokens": 70_000, "val_fraction": 0.2, "shuffle": True, "seed": 5},
        {"format": "megatron", "shuffle": True},
    ],
    ids=["shards", "bin", "splits", "shuffled", "megatron"],
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
    with pytest.raises(bytemill.CorpusError, match=r"jsonl(\.gz)?: line .*: not JSON") as caught:
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
    """Kills worker processes that run a task of this name, until `until` returns true."""
    killed: list[int] = []

    def run() -> None:
        deadline = time.monotonic() + 60
        while len(killed) < 2 and not until() and time.monotonic() < deadline:
            for process in Path("/proc").iterdir():
                try:
                    name = (process / "cmdline").read_bytes().decode("utf-8", "replace")
                except (OSError, ValueError):
                    continue
                # Ray names a worker process after the task that it runs.
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
    """Large enough that a worker is still busy when it is killed."""
    folder = tmp_path_factory.mktemp("large")
    text = (data / "a.txt").read_text("utf-8")
    for number in range(4):
        (folder / f"{number}.txt").write_text(text * 8, "utf-8")
    return folder


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds workers by /proc")
def test_a_worker_killed_while_counting(cluster: None, large: Path, tmp_path: Path) -> None:
    from bytemill.engines import Ray

    over = False
    killed = kill_workers("count", lambda: over)
    with pytest.warns(UserWarning, match="tasks were restarted"):
        counts = bytemill.count_corpus(large, engine=Ray(unit_size=5_000_000))
    over = True
    assert killed, "no worker was killed"
    local = saved(bytemill.count_corpus(large), tmp_path / "a")
    assert saved(counts, tmp_path / "b") == local


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds workers by /proc")
@pytest.mark.parametrize("task", ["encode", "assemble"])
def test_a_worker_killed_while_encoding(
    cluster: None, large: Path, tmp_path: Path, tokenizer: bytemill.Tokenizer, task: str
) -> None:
    from bytemill.engines import Ray

    over = False
    killed = kill_workers(task, lambda: over)
    options: dict[str, Any] = {"shard_tokens": 3_000_000}
    with pytest.warns(UserWarning, match="tasks were restarted"):
        tokenizer.encode_files(large, tmp_path / "ray", engine=Ray(unit_size=5_000_000), **options)
    over = True
    assert killed, "no worker was killed"
    tokenizer.encode_files(large, tmp_path / "local", **options)
    assert content(tmp_path / "ray") == content(tmp_path / "local")


def test_the_command_line(cluster: None, data: Path, tmp_path: Path) -> None:
    ray_counts, local_counts = tmp_path / "ray.counts", tmp_path / "local.counts"
    ok("count", data, "-o", ray_counts, "--engine", "ray", "--on-error", "skip", "-q")
    ok("count", data, "-o", local_counts, "--on-error", "skip", "-q")
    assert ray_counts.read_bytes() == local_counts.read_bytes()


def test_names_that_depend_on_the_directory(
    cluster: None,
    data: Path,
    tmp_path: Path,
    tokenizer: bytemill.Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers have another working directory than the driver."""
    monkeypatch.chdir(data.parent)
    places = Corpus([f"{data.name}/a.txt", f"{data.name}/d.parquet"])
    local = saved(bytemill.count_corpus(places), tmp_path / "a")
    counts = bytemill.count_corpus(places, engine=engine(), spill_dir=".")
    assert saved(counts, tmp_path / "b") == local
    tokenizer.encode_files(places, tmp_path / "local")
    tokenizer.encode_files(places, tmp_path / "ray", engine=engine())
    assert content(tmp_path / "ray") == content(tmp_path / "local")


# --- resuming -------------------------------------------------------------------------------------


class Stopped(Exception):
    """Raised in the middle of the work."""


def stopping(phase: str, after: int) -> Callable[[bytemill.ProgressEvent], None]:
    def stop(event: bytemill.ProgressEvent) -> None:
        if event.phase == phase and event.done > after:
            raise Stopped

    return stop


@pytest.mark.parametrize(
    ("options", "phase", "dealt"),
    [
        ({"shard_tokens": 20_000}, "encode", False),
        ({"shard_tokens": 20_000}, "write", False),
        ({"shard_tokens": 20_000, "val_fraction": 0.2}, "write", False),
        ({"shard_tokens": 20_000, "shuffle": True}, "shuffle", True),
        ({"shard_tokens": 20_000, "shuffle": True, "val_fraction": 0.3}, "write", True),
        ({"shard_tokens": 20_000, "shuffle": True, "val_fraction": 0.3}, "write", False),
    ],
)
def test_encoding_resumes(
    cluster: None,
    data: Path,
    tmp_path: Path,
    tokenizer: bytemill.Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    options: Any,
    phase: str,
    dealt: bool,
) -> None:
    if dealt:
        monkeypatch.setattr(recipes, "MAX_UNDEALT_TOKENS", 0)
    out, encode = tmp_path / "ray", tokenizer.encode_files
    encode(corpus(data), tmp_path / "local", **options)
    n_bytes = sum(path.stat().st_size for path in (tmp_path / "local").glob("*[0-9].npy"))
    # Several shards: some parts lie in finished ones.
    after = n_bytes * 3 // 4 if phase == "write" else 200_000
    with pytest.raises(Stopped):
        encode(corpus(data), out, engine=engine(), progress=stopping(phase, after), **options)
    partial = out / ".partial"
    # The records of units.
    parts = sorted(partial.glob("parts-*/" + "[0-9]" * 6 + ".json"))
    assert parts
    kept = {path: path.stat().st_mtime_ns for path in partial.glob("*-*.json")}
    if phase == "write":
        assert kept
        # Parts are deleted once in shards, unless every shard needs all.
        needed = "shuffle" in options and not dealt
        assert needed or any(
            not part.with_name(f"{part.stem}-00000.npy").exists() for part in parts
        )

    def watch(event: bytemill.ProgressEvent) -> None:
        for path, made in kept.items():
            # Until all is moved to its place, whole shards stay as they are.
            assert not path.exists() or path.stat().st_mtime_ns == made

    encode(corpus(data), out, engine=engine(), resume=True, progress=watch, **options)
    assert content(out) == content(tmp_path / "local")
    encode(corpus(data), out, engine=engine(), resume=True, **options)


def test_resuming_with_other_options_is_refused(
    cluster: None, data: Path, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    from bytemill.engines import Ray

    out, encode = tmp_path / "out", tokenizer.encode_files
    with pytest.raises(Stopped):
        encode(corpus(data), out, engine=engine(), progress=stopping("write", 0))
    with pytest.raises(bytemill.ConfigError, match="another part of the corpus"):
        encode(corpus(data), out, engine=Ray(unit_size=UNIT * 2), resume=True)
    with pytest.raises(bytemill.ConfigError, match="other options"):
        encode(corpus(data), out, engine=engine(), resume=True, shuffle=True)
    # The local engine resumes the directory, if not the parts.
    encode(corpus(data), out, resume=True)
    encode(corpus(data), tmp_path / "local")
    assert content(out) == content(tmp_path / "local")


DRIVER = """
import sys
import bytemill
from bytemill.engines import Ray
tokenizer, corpus, out, address = sys.argv[1:]
engine = Ray(address, unit_size=2_000_000)
options = {"engine": engine, "shard_tokens": 500_000, "progress": print}
bytemill.Tokenizer.load(tokenizer).encode_files(corpus, out, **options)
"""


@pytest.mark.slow
def test_a_killed_driver(
    cluster: None, large: Path, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    from bytemill.engines import Ray

    tokenizer.save(tmp_path / "t.json")
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", DRIVER, tmp_path / "t.json", large, tmp_path / "ray", address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(4):
        process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    assert list((tmp_path / "ray" / ".partial").iterdir())
    options: dict[str, Any] = {"shard_tokens": 500_000}
    again = Ray(unit_size=2_000_000)
    tokenizer.encode_files(large, tmp_path / "ray", engine=again, resume=True, **options)
    tokenizer.encode_files(large, tmp_path / "local", **options)
    assert content(tmp_path / "ray") == content(tmp_path / "local")


def test_counting_resumes(cluster: None, data: Path, tmp_path: Path) -> None:
    # A copy, because sources change below.
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    output, partial = tmp_path / "a.counts", tmp_path / "a.counts.partial"
    stop = stopping("count", 700_000)
    with pytest.raises(Stopped):
        count_to_file(corpus(folder), output, engine=engine(), progress=stop)
    assert list(partial.glob("*.counts"))
    with pytest.raises(bytemill.ConfigError, match="of an interrupted run"):
        count_to_file(corpus(folder), output, engine=engine())
    # Changed and new sources are counted again.
    (folder / "e0.txt").write_text("something else")
    (folder / "z.txt").write_text("something more")
    first: list[int] = []

    def watch(event: bytemill.ProgressEvent) -> None:
        if event.phase == "count":
            first.append(event.done)

    count_to_file(corpus(folder), output, engine=engine(), resume=True, progress=watch)
    assert first[0] > 2 * UNIT, "nothing was kept"
    expected = saved(bytemill.count_corpus(corpus(folder)), tmp_path / "b")
    assert output.read_bytes() == expected
    assert not partial.exists()


def test_a_source_that_is_listed_twice(cluster: None, data: Path, tmp_path: Path) -> None:
    again = Corpus([data / "a.txt"] * 9)
    count_to_file(again, tmp_path / "a.counts", engine=engine())
    count_to_file(again, tmp_path / "b.counts")
    assert (tmp_path / "a.counts").read_bytes() == (tmp_path / "b.counts").read_bytes()


# --- limits and refusals --------------------------------------------------------------------------


def test_a_memory_limit_is_of_each_task(cluster: None, data: Path, tmp_path: Path) -> None:
    with pytest.raises(bytemill.ConfigError, match="no node of the cluster has more") as caught:
        bytemill.count_corpus(corpus(data), engine=engine(), memory_limit="900TB")
    assert caught.value.hint
    # Refused by the task: it has looked at its own memory.
    job = CountJob(["gpt2"], ["<|endoftext|>"], 50_000_000)
    work = units.units(corpus(data), corpus(data).entries(), UNIT)
    with pytest.raises(bytemill.ConfigError, match="too small"):
        count_units(engine(), job, work, None, lambda *_: None)
    spill = tmp_path / "spill"
    spill.mkdir()
    # The driver looks at its own memory too, and the tests before this one have left some there.
    limit = resident_memory() + 500_000_000
    limited = bytemill.count_corpus(
        corpus(data), engine=engine(), memory_limit=limit, spill_dir=spill
    )
    assert saved(limited, tmp_path / "a") == saved(
        bytemill.count_corpus(corpus(data)), tmp_path / "b"
    )
    del limited
    gc.collect()
    assert list(spill.iterdir()) == []


SAVE_DATASET = """
import sys
import datasets
rows = {"text": [f"row {n}: the cat\\n" * 9 for n in range(3000)], "n": list(range(3000))}
datasets.Dataset.from_dict(rows).save_to_disk(sys.argv[1], num_shards=2)
"""


def test_datasets(cluster: None, data: Path, tmp_path: Path, tokenizer: bytemill.Tokenizer) -> None:
    datasets = pytest.importorskip("datasets")
    # In a process without Ray: datasets cannot always save one beside it.
    command = [sys.executable, "-c", SAVE_DATASET, tmp_path / "saved"]
    subprocess.run(command, check=True, capture_output=True)
    dataset = datasets.load_from_disk(tmp_path / "saved")
    local = saved(bytemill.count_corpus(dataset), tmp_path / "a")
    assert saved(bytemill.count_corpus(dataset, engine=engine()), tmp_path / "b") == local
    tokenizer.encode_files(dataset, tmp_path / "local", shard_tokens=10_000)
    tokenizer.encode_files(dataset, tmp_path / "ray", shard_tokens=10_000, engine=engine())
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    several = datasets.concatenate_datasets([dataset, dataset])
    local = saved(bytemill.count_corpus(several), tmp_path / "a")
    assert saved(bytemill.count_corpus(several, engine=engine()), tmp_path / "b") == local
    for other in (
        datasets.load_from_disk(tmp_path / "saved", keep_in_memory=True),
        dataset.to_iterable_dataset(),
        dataset.shuffle(seed=1),
        dataset.select(range(10)),
        dataset.rename_column("text", "body").rename_column("n", "text"),
    ):
        with pytest.raises(bytemill.ConfigError, match="not stored as Arrow files") as caught:
            bytemill.count_corpus(other, engine=engine())
        assert "to_parquet" in str(caught.value.hint)


def test_what_only_this_process_can_read(
    cluster: None, tmp_path: Path, tokenizer: bytemill.Tokenizer
) -> None:
    for read in (
        lambda: bytemill.count_corpus(iter(["text"]), engine=engine()),
        lambda: tokenizer.encode_files((t for t in ["text"]), tmp_path / "out", engine=engine()),
    ):
        with pytest.raises(bytemill.ConfigError, match="an iterator cannot be read by") as caught:
            read()
        assert "local" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()
    result = run("count", "-", "-o", tmp_path / "a.counts", "--engine", "ray", stdin=b"some text")
    assert (result.code, "stdin cannot be read by other processes" in result.said) == (1, True)


# --- plans ----------------------------------------------------------------------------------------


@given(st.integers(1, 100), st.data())
@settings(max_examples=30)
def test_trees(n: int, choice: st.DataObject) -> None:
    names = [f"unit {number}" for number in range(n)]
    tree, sums = Tree(names), dict.fromkeys(names, 1)
    there: set[Node] = set()
    # An earlier run has made some of the tree.
    for _ in range(choice.draw(st.integers(0, 3))):
        level = choice.draw(st.integers(0, tree.root[0]))
        place = choice.draw(st.integers(0, (n - 1) // FAN_IN**level))
        there.add((level, place))
    left = set(range(n))
    made: list[Node] = []
    for node in tree.existing(there.__contains__):
        left -= set(tree.units(node))
        sums[tree.name(node)] = len(tree.units(node))
        made.append(node)
    made += [(0, number) for number in left]
    choice.draw(st.randoms(use_true_random=False)).shuffle(made)
    while made:
        parent = tree.finish(made.pop())
        if parent is not None:
            children = tree.children(parent)
            assert 1 <= len(children) <= FAN_IN
            sums[tree.name(parent)] = sum(sums[tree.name(child)] for child in children)
            made.append(parent)
    assert sums[tree.name(tree.root)] == n


shares = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=12)


@given(shares, st.one_of(st.none(), st.integers(1, 12)))
def test_recipes_name_all_that_a_shard_is_made_of(
    shares: list[tuple[int, int]], room: int | None
) -> None:
    total = sum(tokens for tokens, _ in shares)
    made = recipes.recipes(1, shares, room)
    assert sum(recipe.tokens for recipe in made) == total
    for recipe in made:
        at = documents = 0
        for number, (tokens, ends) in enumerate(shares):
            if number == recipe.first:
                assert recipe.before == (at, documents)
            # Where ids and ends may lie, and the shards that these belong to.
            ids = {place // (room or total) for place in range(at, at + tokens)}
            places = range(at, at + tokens + 1) if ends else ()
            of_ends = {max(place - 1, 0) // (room or max(total, 1)) for place in places}
            if recipe.number in ids | of_ends:
                assert recipe.first <= number <= recipe.last
            at, documents = at + tokens, documents + ends


def test_buckets_stay_small() -> None:
    assert [recipes.bucket_bits(n) for n in (0, 1, 1 << 24, (1 << 24) + 1, 1 << 30)] == [
        0, 0, 0, 1, 6,
    ]  # fmt: skip
    assert recipes.bucket_bits(1 << 60) == recipes.MOST_BITS


def test_only_many_or_large_parts_are_dealt() -> None:
    few, most = recipes.MAX_UNDEALT_PARTS, recipes.MAX_UNDEALT_TOKENS
    assert not recipes.Buckets.of([]).dealt
    assert recipes.Buckets.of([most // few] * few) == recipes.Buckets(3, dealt=False)
    assert recipes.Buckets.of([most, 1]) == recipes.Buckets(4, dealt=True)
    assert recipes.Buckets.of([1] * (few + 1)) == recipes.Buckets(0, dealt=True)


def test_an_unknown_engine() -> None:
    with pytest.raises(bytemill.ConfigError, match="got 'spark'"):
        bytemill.count_corpus(iter(["text"]), engine="spark")
