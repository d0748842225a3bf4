"""bytemill against other libraries, on corpora of your choice.

    python benchmarks/compare.py corpus.txt --vocab-size 32000 --threads 2
    python benchmarks/compare.py --task train a.txt b.txt --repeat 5 --json results.json
    python benchmarks/compare.py --docs --json benchmarks/results.json

Every measurement is a process of its own (jobs.py), and contenders take turns; of several runs the
best counts, and the spread is recorded. Contenders with the same rules must have the same result,
or the comparison stops. Documents in a corpus are separated by `<|endoftext|>`. Without a
corpus, the source of Python's standard library is used. Contenders that are not installed are
skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from datetime import datetime, timezone
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jobs import EOT, TASKS, contenders

HERE = Path(__file__).parent
Record = dict[str, Any]


def standard_library(directory: Path) -> Path:
    """The source of the standard library as one corpus file."""
    top = Path(sysconfig.get_paths()["stdlib"])
    texts = [
        path.read_bytes()
        for path in sorted(top.rglob("*.py"))
        if not {"site-packages", "dist-packages"} & set(path.parts)
    ]
    corpus = directory / "standard-library.txt"
    corpus.write_bytes(EOT.encode().join(texts))
    return corpus


def run(task: str, contender: str, options: Record) -> Record:
    """One measurement in a fresh process."""
    environment = os.environ | {
        "RAYON_NUM_THREADS": str(options["threads"]),
        "TOKENIZERS_PARALLELISM": "true",
        # No contender uses BLAS, whose threads spin on all cores after numpy is imported.
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, HERE / "jobs.py", task, contender, json.dumps(options)]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{task}: {contender} failed\n{done.stderr.decode(errors='replace')}")
    return json.loads(done.stdout)


def check(task: str, outcomes: dict[str, Record]) -> None:
    """Facts that two contenders both report about their results must be equal."""
    for key in {key for outcome in outcomes.values() for key in outcome}:
        told = {name: outcome[key] for name, outcome in outcomes.items() if key in outcome}
        if len(set(told.values())) > 1:
            sys.exit(f"{task}: the results differ in {key}, so the times mean nothing: {told}")


def measure(task: str, options: Record, repeat: int, only: list[str]) -> list[Record]:
    """All contenders of a task, in turns, so that a slow spell of the machine affects all alike."""
    runs: dict[str, list[Record]] = {
        name: []
        for name in contenders(task)
        if find_spec(name.split("-")[0]) and (not only or name in ("bytemill", *only))
    }
    for turn in range(repeat):
        for name in runs:
            print(f"{task}: {name}, run {turn + 1} of {repeat}", file=sys.stderr)
            runs[name].append(run(task, name, options))
        check(task, {name: some[-1]["outcome"] for name, some in runs.items()})
    size = os.path.getsize(options["corpus"])
    rows = []
    for name, some in runs.items():
        seconds = [one["seconds"] for one in some]
        rows.append(
            {
                "contender": name,
                "version": metadata.version(name.split("-")[0]),
                "seconds": min(seconds),
                "all_seconds": seconds,
                "mb_per_s": size / 1e6 / min(seconds),
                "others": {
                    key: min(one["others"][key] for one in some) for key in some[0]["others"]
                },
                "peak_mb": max(one["peak_bytes"] for one in some) / 1e6,
                "checked": sorted(some[-1]["outcome"]),
            }
        )
    return rows


def machine() -> Record:
    processor = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    except FileNotFoundError:
        pass
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def shown(seconds: float | None) -> str:
    """A time in a unit that suits it."""
    if seconds is None:
        return ""
    for unit, size in (("s", 1), ("ms", 1e-3)):
        if seconds >= size / 10:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e6:.2f} µs"


# Tasks whose time is not that of the whole corpus.
WITHOUT_RATE = {"calls", "load"}
WITH_TOKENIZER = {"encode", "file", "decode", "calls", "load"}


def table(records: list[Record]) -> str:
    """The records as a Markdown table; × is how many times longer than bytemill it took."""
    lines = [
        "| task | | time | MB/s | peak MB | × bytemill | second pass |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for record in records:
        threads = "1 thread" if record["threads"] == 1 else f"{record['threads']} threads"
        size = record["corpus"]["bytes"] / 1e6
        what = f"{record['task']} {record['corpus']['name']}, {size:.0f} MB, "
        what += f"{record['vocab_size']:,}, {threads}"
        ours = next(r["seconds"] for r in record["rows"] if r["contender"] == "bytemill")
        for row in record["rows"]:
            rate = "" if record["task"] in WITHOUT_RATE else f"{row['mb_per_s']:.1f}"
            lines.append(
                f"| {what} | {row['contender']} {row['version']} | {shown(row['seconds'])} "
                f"| {rate} | {row['peak_mb']:.0f} | {row['seconds'] / ours:.1f} "
                f"| {shown(row['others'].get('warm'))} |"
            )
            what = ""
    return "\n".join(lines)


def put_between(path: Path, name: str, text: str) -> None:
    """Replaces the text between two marks of a page."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    page = path.read_text(encoding="utf-8")
    before, found, rest = page.partition(first)
    _, found_end, after = rest.partition(last)
    if not found or not found_end:
        sys.exit(f"{path}: {first} … {last} is not there")
    path.write_text(f"{before}{first}\n{text}\n{last}{after}", encoding="utf-8")


def note(records: list[Record]) -> str:
    about = records[-1]["machine"]
    runs = {len(record["rows"][0]["all_seconds"]) for record in records}
    n_runs = " to ".join(map(str, sorted({min(runs), max(runs)})))
    return (
        f"{about['processor']}, {about['cores']} cores, Python {about['python']}, "
        f"{records[-1]['when'][:10]}; the best of {n_runs} runs."
    )


# The rows of the README: task, corpus, threads, vocabulary.
SHORT = [
    ("train", "english-80m", 2, 32_000),
    ("train", "multilingual-20m", 2, 32_000),
    ("encode", "english-80m", 1, 50_257),
    ("encode", "english-80m", 2, 50_257),
    ("encode", "english-80m", 1, 100_257),
    ("encode", "code-20m", 1, 199_999),
    ("encode", "cjk-10m", 1, 199_999),
    ("encode", "randomwords-20m", 1, 50_257),
    ("file", "english-80m", 2, 50_257),
    ("calls", "english-20m", 1, 50_257),
]


def short_table(records: list[Record]) -> str:
    """Ours and the best other, first and second pass."""
    lines = [
        "| | MB/s | best other | ratio | ratio, second pass |",
        "| --- | --: | --- | --: | --: |",
    ]
    for task, corpus, threads, vocab_size in SHORT:
        record = next(
            r
            for r in records
            if (r["task"], r["corpus"]["name"], r["threads"], r["vocab_size"])
            == (task, corpus, threads, vocab_size)
        )
        ours = next(row for row in record["rows"] if row["contender"] == "bytemill")
        others = [row for row in record["rows"] if row is not ours]
        other = min(others, key=lambda row: row["seconds"])
        rate = "" if task in WITHOUT_RATE else f"{ours['mb_per_s']:.0f}"
        warm = [row["others"]["warm"] for row in others if row["others"].get("warm")]
        second = f"{min(warm) / ours['others']['warm']:.2f}" if warm else ""
        size = f"{record['corpus']['bytes'] / 1e6:.0f} MB"
        what = f"{task} {corpus}, {size}, {vocab_size:,}, {threads} thread{'s' * (threads > 1)}"
        ratio = f"{other['seconds'] / ours['seconds']:.2f}"
        lines.append(f"| {what} | {rate} | {other['contender']} | {ratio} | {second} |")
    return "\n".join(lines)


def same_case(a: Record, b: Record) -> bool:
    return all(a[key] == b[key] for key in ("task", "vocab_size", "threads")) and (
        a["corpus"]["name"] == b["corpus"]["name"]
    )


def compare(corpus: Path, asked: argparse.Namespace, directory: Path) -> list[Record]:
    import bytemill

    options = {
        "corpus": str(corpus),
        "vocab_size": asked.vocab_size,
        "threads": asked.threads,
        "tokenizer": str(directory / "tokenizer.json"),
    }
    if asked.tokenizer:
        options["tokenizer"] = str(asked.tokenizer.resolve())
    elif WITH_TOKENIZER & set(asked.task):
        bytemill.train_tokenizer(corpus, vocab_size=asked.vocab_size, progress=False).save(
            options["tokenizer"], overwrite=True
        )
    return [
        {
            "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": machine(),
            "task": task,
            "corpus": {"name": corpus.stem, "bytes": corpus.stat().st_size},
            "vocab_size": len(bytemill.Tokenizer.load(options["tokenizer"]))
            if task in WITH_TOKENIZER
            else asked.vocab_size,
            "threads": asked.threads,
            "rows": measure(task, options, asked.repeat, asked.contender),
        }
        for task in asked.task
    ]


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", nargs="*", type=Path, help="text files, each measured by itself")
    parser.add_argument("--task", action="append", choices=TASKS, help="default: all")
    parser.add_argument(
        "--contender", action="append", default=[], help="only this one beside bytemill; repeatable"
    )
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--tokenizer", type=Path, help="to encode with; otherwise one is learned")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("target/compare.json"))
    parser.add_argument(
        "--docs", action="store_true", help="put the figures of --json into README.md and docs/"
    )
    asked = parser.parse_args()
    asked.task = asked.task or list(TASKS)

    known: list[Record] = json.loads(asked.json.read_text()) if asked.json.exists() else []
    if not asked.docs or asked.corpus:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            for corpus in asked.corpus or [standard_library(directory)]:
                for record in compare(corpus.resolve(), asked, directory):
                    print(table([record]), flush=True)
                    known = [other for other in known if not same_case(other, record)]
                    known.append(record)
                asked.json.parent.mkdir(parents=True, exist_ok=True)
                asked.json.write_text(json.dumps(known, indent=1) + "\n")
        print(f"all figures: {asked.json}", file=sys.stderr)
    if asked.docs:
        top = Path(__file__).parents[1]
        whole = f"{table(known)}\n\n{note(known)}"
        put_between(top / "docs" / "benchmarks.md", "figures", whole)
        about = "The ratio is the other's time divided by bytemill's: above 1, bytemill is faster. "
        put_between(
            top / "README.md", "short figures", f"{short_table(known)}\n\n{about}{note(known)}"
        )


if __name__ == "__main__":
    main()
