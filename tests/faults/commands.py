"""The commands that write: what each reads, and what it writes."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SMALL = (
    "--context 8 --d-model 8 --num-layers 1 --num-heads 2 --d-ff 16 --batch-size 2"
    " --eval-windows 2 --sample-tokens 4 --kernels plain --dtype float32 --compile off --threads 1"
)
TRAIN = f"{SMALL} --steps 4 --checkpoint-every 2 --eval-every 2 --no-tensorboard"


@dataclass(frozen=True)
class Command:
    """A command line that writes `out`.

    It runs in a folder with `inputs`, which it reads, and `area`, which contains everything that it
    writes.
    """

    name: str
    arguments: str
    # Relative to `area`.
    out: str
    # A command line whose output is replaced by this one's.
    old: str
    resumes: bool = False
    # Whether the output may contain foreign files, which must then be kept.
    shares: bool = False
    # Whether it needs torch, and takes a second instead of milliseconds.
    learns: bool = False
    # Reads the output: fails if it is unfinished, or finishes the commit of a killed writer.
    reader: str = ""

    def line(self, option: str = "") -> str:
        return f"{self.arguments} {option}".strip()


def commands() -> Iterator[Command]:
    """All commands, the quick ones first."""
    yield from _tokenizer_commands()
    yield from _token_commands()
    yield from _model_commands()


def _tokenizer_commands() -> Iterator[Command]:
    train = "train-tokenizer inputs/corpus --threads 1 --vocab-size"
    yield Command(
        "train-tokenizer",
        f"{train} 300 -o area/tokenizer.json",
        "tokenizer.json",
        f"{train} 290 -o area/tokenizer.json",
    )
    yield Command(
        "train-tokenizer-pair",
        f"{train} 300 -o area/pair --format gpt2",
        "pair",
        f"{train} 290 -o area/pair --format gpt2",
        shares=True,
        reader="inspect area/pair",
    )
    outs = {
        "huggingface": "tokenizer.json",
        "gpt2": "pair",
        "tiktoken": "ranks.tiktoken",
        "minbpe": "a.model",
    }
    for to, out in outs.items():
        yield Command(
            f"convert-{to}",
            f"convert inputs/tokenizer.json --to {to} -o area/{out}",
            out,
            f"convert inputs/other.json --to {to} -o area/{out}",
            shares=to == "gpt2",
            reader="inspect area/pair" if to == "gpt2" else "",
        )


def _token_commands() -> Iterator[Command]:
    count = "count inputs/corpus -o area/some.counts --threads 1"
    yield Command("count", count, "some.counts", f"{count} --pattern cl100k", resumes=True)
    files = "encode inputs/corpus -t inputs/tokenizer.json -o area/tokens --threads 1"
    records = "encode inputs/records.jsonl.gz -t inputs/tokenizer.json -o area/tokens --threads 1"
    old = "encode inputs/corpus -t inputs/other.json -o area/tokens --shard-tokens 2000"
    for name, line in {
        "encode": f"{files} --shard-tokens 3000",
        "encode-shuffled": f"{files} --shuffle --seed 3",
        "encode-split": f"{files} --val-fraction 0.2 --shard-tokens 3000",
        "encode-jsonl": records,
        "encode-bin": f"{files} --format bin",
    }.items():
        yield Command(
            name, line, "tokens", old, resumes=True, shares=True, reader="verify area/tokens"
        )


def _model_commands() -> Iterator[Command]:
    train = f"train inputs/tokens -o area/run {TRAIN}"
    yield Command("train", train, "run", f"{train} --seed 5", resumes=True, learns=True)
    export = "export inputs/run -o area/model"
    yield Command("export", export, "model", f"{export} --dtype f16", learns=True)
    gguf = "export inputs/run --to gguf -o area/model.gguf"
    yield Command("export-gguf", gguf, "model.gguf", f"{gguf} --dtype f16", learns=True)
    import_ = "import inputs/model -o area/run"
    yield Command("import", import_, "run", "import inputs/model16 -o area/run", learns=True)
    sweep = f"sweep inputs/tokens -o area/sweep --lr 1e-3,1e-2 --steps 2 {SMALL} --tensorboard no"
    yield Command("sweep", sweep, "sweep", f"{sweep} --seed 5", resumes=True, learns=True)


def write_inputs(folder: Path, run: Callable[[str], Any], learns: bool) -> None:
    """Makes the inputs of the commands, where possible with commands."""
    inputs = folder / "inputs"
    corpus = inputs / "corpus"
    corpus.mkdir(parents=True)
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefghij", k=chance.randint(1, 9))) for _ in range(300)]

    def text(n: int) -> str:
        return " ".join(chance.choices([*words, "<|endoftext|>"], [1] * 300 + [4], k=n))

    for number in range(4):
        (corpus / f"{number}.txt").write_text(text(800))
    records = "".join(json.dumps({"text": text(60)}) + "\n" for _ in range(40))
    (inputs / "records.jsonl.gz").write_bytes(gzip.compress(records.encode(), mtime=0))
    for name, size in {"tokenizer": 300, "other": 280}.items():
        run(f"train-tokenizer inputs/corpus -o inputs/{name}.json --vocab-size {size}")
    run("encode inputs/corpus -t inputs/tokenizer.json -o inputs/tokens")
    if learns:
        run(f"train inputs/tokens -o inputs/run -t inputs/tokenizer.json {TRAIN}")
        run("export inputs/run -o inputs/model")
        run("export inputs/run -o inputs/model16 --dtype f16")
