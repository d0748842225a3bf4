"""bytemill beside `tokenizers` and `tiktoken`, on a corpus of your choice.

    python benchmarks/compare.py corpus.txt --vocab-size 32000 --threads 2

Every measurement is a process of its own (jobs.py). Contenders must come to the same result, or
the comparison stops. Of several runs the best counts, the spread is kept. Documents in the corpus
are separated by `<|endoftext|>`. Without a corpus, the source of Python's standard library is one.
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
from pathlib import Path
from typing import Any

from jobs import EOT, JOBS

HERE = Path(__file__).parent


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


def run(task: str, contender: str, options: dict[str, Any]) -> dict[str, Any]:
    """One measurement in a fresh process."""
    threads = str(options["threads"])
    environment = os.environ | {
        "RAYON_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "true",
    }
    command = [sys.executable, HERE / "jobs.py", task, contender, json.dumps(options)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def measure(task: str, options: dict[str, Any], repeat: int) -> list[dict[str, Any]]:
    """All contenders of a task, in turns so that a slow spell of the machine hits each alike."""
    contenders = [name for kind, name in JOBS if kind == task]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for turn in range(repeat):
        for name in contenders:
            print(f"{task}: {name}, run {turn + 1} of {repeat}", file=sys.stderr)
            runs[name].append(run(task, name, options))
        digests = {name: runs[name][-1]["digest"] for name in contenders}
        if len(set(digests.values())) > 1:
            sys.exit(f"{task}: the results differ, so the times mean nothing: {digests}")
    size = os.path.getsize(options["corpus"])
    rows = []
    for name in contenders:
        seconds = [one["seconds"] for one in runs[name]]
        rows.append(
            {
                "task": task,
                "contender": name,
                "version": metadata.version(name),
                "seconds": min(seconds),
                "all_seconds": seconds,
                "mb_per_s": size / 1e6 / min(seconds),
                "peak_mb": max(one["peak_bytes"] for one in runs[name]) / 1e6,
            }
        )
    return rows


def machine() -> dict[str, Any]:
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


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, each beside the first of its task, which is bytemill."""
    lines = ["| task | | s | MB/s | peak MB | × |", "|---|---|--:|--:|--:|--:|"]
    ours = {row["task"]: row["seconds"] for row in reversed(rows) if row["contender"] == "bytemill"}
    for row in rows:
        lines.append(
            f"| {row['task']} | {row['contender']} {row['version']} | {row['seconds']:.2f} "
            f"| {row['mb_per_s']:.1f} | {row['peak_mb']:.0f} "
            f"| {row['seconds'] / ours[row['task']]:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", nargs="?", help="a text file")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("target/compare.json"))
    asked = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        corpus = Path(asked.corpus).resolve() if asked.corpus else standard_library(directory)
        options = {
            "corpus": str(corpus),
            "vocab_size": asked.vocab_size,
            "threads": asked.threads,
            "tokenizer": str(directory / "tokenizer.json"),
        }
        rows = measure("train", options, asked.repeat)

        import bytemill

        bytemill.train_tokenizer(corpus, vocab_size=asked.vocab_size, progress=False).save(
            options["tokenizer"]
        )
        rows += measure("encode", options, asked.repeat)
        results = {
            "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": machine(),
            "corpus": {"name": corpus.name, "bytes": corpus.stat().st_size},
            "vocab_size": asked.vocab_size,
            "threads": asked.threads,
            "rows": rows,
        }
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(results, indent=2) + "\n")
    print(table(rows))
    print(f"all figures: {asked.json}", file=sys.stderr)


if __name__ == "__main__":
    main()
