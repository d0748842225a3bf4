"""Every corpus format against plain text; Ray against the local engine; memory; many files.

    python benchmarks/formats.py CORPUS.txt            rates of formats
    python benchmarks/formats.py --ray CORPUS.txt      Ray on this machine
    python benchmarks/formats.py --memory CORPUS.txt   0.1, 1 and 10 GB of it, peak memory
                                                       (--sizes 10MB,100MB for others)
    python benchmarks/formats.py --files 100000        counting many small files

Every measurement is a process of its own, the best of several; shares are relative to plain text
with the same documents. Results go to stdout as a table and, with --json FILE, as JSON.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import json
import lzma
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bytemill
from bytemill._numbers import parse_size

EOT = "<|endoftext|>"
DOCUMENT = 3000

WORK = """
import json, shutil, sys, time
import bytemill
from bytemill import Corpus
what, path, tokenizer, engine, threads = sys.argv[1:]
corpus = Corpus(path)
options = {"threads": int(threads), "progress": False, "engine": engine}
if engine == "ray":
    import ray
    ray.init("local", num_cpus=int(threads), include_dashboard=False, log_to_driver=False)
if what == "encode":
    loaded = bytemill.Tokenizer.load(tokenizer)
began = time.perf_counter()
if what == "count":
    n = bytemill.count_corpus(corpus, **options).bytes_read
else:
    n = len(loaded.encode_files(corpus, path + ".tokens", overwrite=True, **options))
seconds = time.perf_counter() - began
shutil.rmtree(path + ".tokens", ignore_errors=True)
# Not getrusage: its peak is also that of the process that started this one.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) * 1024
print(json.dumps({"seconds": seconds, "n": n, "peak": peak}))
"""


def measured(
    what: str, path: Path, tokenizer: Path, engine: str = "local", threads: int = 2, repeat: int = 3
) -> dict[str, Any]:
    best: dict[str, Any] = {}
    for _ in range(repeat):
        given = [what, str(path), str(tokenizer), engine, str(threads)]
        done = subprocess.run([sys.executable, "-c", WORK, *given], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        result = json.loads(done.stdout.splitlines()[-1])
        if not best or result["seconds"] < best["seconds"]:
            best = result
    return best


def documents(text: str) -> list[str]:
    if EOT in text:
        return [part for part in text.split(EOT) if part]
    return [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]


def write_formats(folder: Path, texts: list[str]) -> dict[str, Path]:
    plain, lines = folder / "a.txt", folder / "a.jsonl"
    plain.write_text(EOT.join(texts), "utf-8", newline="")
    lines.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), "utf-8", newline="")
    raw = folder / "raw.jsonl"
    dump: Callable[[str], str] = lambda t: json.dumps({"text": t}, ensure_ascii=False)  # noqa: E731
    raw.write_text("".join(dump(t) + "\n" for t in texts), "utf-8", newline="")
    with open(folder / "a.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text"])
        writer.writerows([t] for t in texts)
    data = plain.read_bytes()
    found = {"text": plain, "jsonl": lines, "jsonl, UTF-8": raw, "csv": folder / "a.csv"}
    packers: dict[str, Callable[[bytes], bytes]] = {
        "gz": lambda d: gzip.compress(d, 6),
        "xz": lambda d: lzma.compress(d, preset=3),
        "bz2": bz2.compress,
    }
    try:
        import zstandard

        packers["zst"] = zstandard.ZstdCompressor(3).compress
    except ImportError:
        pass
    for ending, pack in packers.items():
        for name, content in (("text", data), ("jsonl", lines.read_bytes())):
            path = folder / f"{name}.{'txt' if name == 'text' else name}.{ending}"
            path.write_bytes(pack(content))
            found[f"{name}.{ending}"] = path
    try:
        import pyarrow
        import pyarrow.parquet as parquet

        table = pyarrow.table({"text": texts})
        parquet.write_table(table, folder / "a.parquet", row_group_size=5000)
        found["parquet"] = folder / "a.parquet"
        with pyarrow.ipc.new_file(str(folder / "a.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=5000)
        found["arrow"] = folder / "a.arrow"
    except ImportError:
        pass
    return found


def rates(corpus: Path, folder: Path, threads: int) -> list[dict[str, Any]]:
    texts = documents(corpus.read_text("utf-8", "replace"))
    size = sum(len(text.encode()) for text in texts)
    tokenizer = folder / "tokenizer.json"
    bytemill.train_tokenizer(iter(texts), vocab_size=32_000, progress=False).save(tokenizer)
    found = write_formats(folder, texts)
    rows: list[dict[str, Any]] = []
    for name, path in found.items():
        row: dict[str, Any] = {"format": name, "bytes": path.stat().st_size}
        for what in ("count", "encode"):
            row[what] = size / 1e6 / measured(what, path, tokenizer, threads=threads)["seconds"]
            row[f"{what} share"] = row[what] / rows[0][what] if rows else 1.0
        rows.append(row)
        print(
            f"{name:14} count {row['count']:8.1f} MB/s ({row['count share']:5.0%})   "
            f"encode {row['encode']:8.1f} MB/s ({row['encode share']:5.0%})",
            flush=True,
        )
    return rows


def ray(corpus: Path, folder: Path, threads: int) -> list[dict[str, Any]]:
    tokenizer = folder / "tokenizer.json"
    bytemill.train_tokenizer(corpus, vocab_size=32_000, progress=False).save(tokenizer)
    rows = []
    for what in ("count", "encode"):
        seconds = {
            engine: measured(what, corpus, tokenizer, engine, threads)["seconds"]
            for engine in ("local", "ray")
        }
        rows.append({"what": what, **seconds, "overhead": seconds["ray"] / seconds["local"] - 1})
        print(
            f"{what:8} local {seconds['local']:.2f} s, ray {seconds['ray']:.2f} s "
            f"({rows[-1]['overhead']:+.0%})",
            flush=True,
        )
    return rows


def memory(corpus: Path, folder: Path, threads: int, sizes: list[int]) -> list[dict[str, Any]]:
    tokenizer = folder / "tokenizer.json"
    bytemill.train_tokenizer(corpus, vocab_size=32_000, progress=False).save(tokenizer)
    data, rows = corpus.read_bytes(), []
    for size in sizes:
        path = folder / "large.txt"
        with open(path, "wb") as file:
            while file.tell() < size:
                file.write(data[: size - file.tell()])
        for what in ("count", "encode"):
            peak = measured(what, path, tokenizer, threads=threads, repeat=1)["peak"]
            rows.append({"what": what, "bytes": size, "peak": peak})
            print(f"{what:8} {size / 1e9:6.2f} GB  peak {peak / 1e6:.0f} MB", flush=True)
    return rows


def files(n_files: int, folder: Path, threads: int) -> list[dict[str, Any]]:
    many = folder / "many"
    for number in range(n_files):
        part = many / f"{number // 1000:03}"
        if number % 1000 == 0:
            part.mkdir(parents=True)
        (part / f"{number:06}.txt").write_text(f"file number {number}: some words\n" * 30)
    found = measured("count", many, folder / "none", threads=threads)
    print(f"{n_files} files counted in {found['seconds']:.2f} s", flush=True)
    return [{"files": n_files, **found}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--sizes", default="100MB,1GB,10GB")
    parser.add_argument("--files", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.corpus is None and arguments.files is None:
        parser.error("give a corpus, or --files")
    with tempfile.TemporaryDirectory(prefix="bytemill-") as name:
        folder = Path(name)
        if arguments.files is not None:
            rows = files(arguments.files, folder, arguments.threads)
        elif arguments.memory:
            sizes = [parse_size(size) for size in arguments.sizes.split(",")]
            rows = memory(arguments.corpus, folder, arguments.threads, sizes)
        else:
            run = ray if arguments.ray else rates
            rows = run(arguments.corpus, folder, arguments.threads)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
