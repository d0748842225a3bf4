"""Kills `encode_files` at random moments, again and again: `make soak`, or with other numbers
`python tests/soak_tokens.py ROUNDS KILLS`.

Every round draws options, makes the tokens undisturbed, then makes them again with a SIGKILL at
some random moments and `resume`. The result must be the same, byte for byte, and every file in
between must be complete or absent.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bytemill

# The work as a process of its own, in many small units.
WORK = """
import json, sys
import bytemill
from bytemill.engines import Local
from bytemill.tokens import recipes
tokenizer = bytemill.Tokenizer.load(sys.argv[1])
paths, out, plan = json.loads(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
if plan.pop("dealt", False):
    recipes.MAX_UNDEALT_TOKENS = 0
engine = Local(unit_size=60_000, block_size=4000)
print("begin", flush=True)
tokenizer.encode_files(paths, out, threads=2, engine=engine, progress=False, **plan)
"""


def command(tokenizer: Path, paths: list[str], out: Path, plan: dict[str, Any]) -> list[str]:
    arguments = [str(tokenizer), json.dumps(paths), str(out), json.dumps(plan)]
    return [sys.executable, "-c", WORK, *arguments]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def killed(
    tokenizer: Path, paths: list[str], folder: Path, plan: dict[str, Any], n_kills: int, seed: int
) -> int:
    """Compares killed and resumed work with undisturbed work; returns how often it was killed."""
    undisturbed, disturbed = folder / "undisturbed", folder / "disturbed"
    process = begun(command(tokenizer, paths, undisturbed, plan))
    began = time.perf_counter()
    assert process.wait() == 0
    took = time.perf_counter() - began
    chance = random.Random(seed)
    midway = 0
    resume = command(tokenizer, paths, disturbed, plan | {"resume": True})
    for _ in range(n_kills):
        process = begun(resume)
        time.sleep(chance.uniform(0, 0.8) * took)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (disturbed / "manifest.json").exists():
            # Finished; only hidden files may be left to clean up.
            assert dict(shown(disturbed)) == content(undisturbed)
            shutil.rmtree(disturbed)
        else:
            midway += 1
            assert being_moved(disturbed) or not list(shown(disturbed))
    subprocess.run(resume, check=True, stdout=subprocess.DEVNULL)
    assert content(disturbed) == content(undisturbed)
    return midway


def begun(arguments: list[str]) -> subprocess.Popen[bytes]:
    """Starts the process and waits until Python has started."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def shown(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that is not hidden."""
    if folder.exists():
        for path in folder.iterdir():
            if not path.name.startswith("."):
                yield path.name, path.read_bytes()


def being_moved(folder: Path) -> bool:
    """Whether it was killed while moving finished files into place."""
    return (folder / ".partial" / "manifest.json").exists()


def draw_plan(chance: random.Random) -> dict[str, Any]:
    return {
        "format": chance.choice(["shards", "shards", "shards", "npy", "bin", "megatron"]),
        "dtype": None,
        "shard_tokens": chance.choice([3_000, 50_000, 10**8]),
        "append_eot": chance.random() < 0.7,
        "val_fraction": chance.choice([None, 0.2]),
        "shuffle": chance.random() < 0.5,
        # Whether shuffling deals parts, as it does if they are large.
        "dealt": chance.random() < 0.5,
        "seed": chance.randrange(2**64),
    }


def write_corpus(folder: Path, chance: random.Random, n_words: int) -> list[str]:
    words = [bytes(chance.choices(b"abcdefghij", k=chance.randint(1, 9))) for _ in range(2000)]
    paths = []
    for number in range(12):
        path = folder / f"{number:02}.txt"
        some = chance.choices([*words, b"<|endoftext|>"], [1] * 2000 + [20], k=n_words)
        path.write_bytes(b" ".join(some) if chance.random() < 0.9 else b"")
        paths.append(str(path))
    return paths


def main() -> None:
    rounds, kills = (int(argument) for argument in [*sys.argv[1:], "20", "12"][:2])
    seed = int(os.environ.get("SEED", str(time.time_ns())))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    midway = 0
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            paths = write_corpus(folder, chance, 30_000)
            tokenizer = folder / "tokenizer.json"
            bytemill.train_tokenizer(paths, vocab_size=400).save(tokenizer)
            plan = draw_plan(chance)
            midway += killed(tokenizer, paths, folder, plan, kills, chance.randrange(2**32))
        print(f"round {number}: {midway} kills midway; {json.dumps(plan)}", flush=True)


if __name__ == "__main__":
    main()
