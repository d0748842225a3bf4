"""The drop-in interfaces against the originals, in one process and in turns.

    python benchmarks/dropin.py tokenizer.json corpus.txt
    python benchmarks/dropin.py tokenizer.json corpus.txt --json benchmarks/dropin.json --docs

Each pair does the same work, and its results must be equal before anything is timed. The best of
several rounds counts. The texts are cut from the corpus; both sides have encoded them before.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from compare import machine, put_between, shown
from encoding import as_tiktoken
from jobs import timed

SHORT = 100
LONG = 2000
N_CALLS = 500
N_TEXTS = 2000
# Name of the work, repetitions per round, original, ours.
Pair = tuple[str, int, Callable[[], Any], Callable[[], Any]]


def texts(corpus: Path, n: int, length: int) -> list[str]:
    text = corpus.read_text(encoding="utf-8", errors="replace")
    step = len(text) // n
    return [text[i * step : i * step + length] for i in range(n)]


def transformers_pairs(path: str, short: list[str], long: list[str]) -> list[Pair]:
    import transformers

    from bytemill.compat import huggingface

    kinds = transformers.PreTrainedTokenizerFast, huggingface.PreTrainedTokenizerFast
    theirs, ours = (kind(tokenizer_file=path) for kind in kinds)
    ids = theirs(long)["input_ids"]

    def load(kind: type) -> Callable[[], Any]:
        return lambda: len(kind(tokenizer_file=path))

    def first_call(kind: type) -> Callable[[], Any]:
        return lambda: kind(tokenizer_file=path)("low")["input_ids"]

    def called(tokenizer: Any) -> Callable[[], Any]:
        return lambda: [tokenizer(text)["input_ids"] for text in short]

    return [
        ("load", 1, load(kinds[0]), load(kinds[1])),
        ("load, and a first call", 1, first_call(kinds[0]), first_call(kinds[1])),
        ("a call with 100 characters", len(short), called(theirs), called(ours)),
        (
            f"a call with {len(long):,} texts",
            1,
            lambda: theirs(long)["input_ids"],
            lambda: ours(long)["input_ids"],
        ),
        (
            f"batch_decode of {len(long):,} texts",
            1,
            lambda: theirs.batch_decode(ids),
            lambda: ours.batch_decode(ids),
        ),
    ]


def tokenizers_pairs(path: str, short: list[str], long: list[str]) -> list[Pair]:
    import tokenizers

    from bytemill.compat.tokenizers import Tokenizer

    theirs, ours = tokenizers.Tokenizer.from_file(path), Tokenizer.from_file(path)

    def load(kind: Any) -> Callable[[], Any]:
        return lambda: kind.from_file(path).get_vocab_size()

    def first_call(kind: Any) -> Callable[[], Any]:
        return lambda: kind.from_file(path).encode("low").ids

    def called(tokenizer: Any) -> Callable[[], Any]:
        return lambda: [tokenizer.encode(text).ids for text in short]

    def batch(tokenizer: Any) -> Callable[[], Any]:
        return lambda: [row.ids for row in tokenizer.encode_batch_fast(long)]

    return [
        ("load", 1, load(tokenizers.Tokenizer), load(Tokenizer)),
        ("load, and a first call", 1, first_call(tokenizers.Tokenizer), first_call(Tokenizer)),
        ("encode of 100 characters", len(short), called(theirs), called(ours)),
        (f"encode_batch_fast of {len(long):,} texts", 1, batch(theirs), batch(ours)),
    ]


def tiktoken_pairs(path: str, short: list[str], long: list[str]) -> list[Pair]:
    import tiktoken

    from bytemill.compat.tiktoken import Encoding

    theirs = as_tiktoken(path)
    parts = {
        "name": "ours",
        "pat_str": theirs._pat_str,
        "mergeable_ranks": theirs._mergeable_ranks,
        "special_tokens": theirs._special_tokens,
    }
    ours = Encoding(**parts)

    def made(kind: Any) -> Callable[[], Any]:
        return lambda: kind(**parts).encode_ordinary("low")

    def called(encoding: Any) -> Callable[[], Any]:
        return lambda: [encoding.encode(text) for text in short]

    return [
        ("constructor", 1, made(tiktoken.Encoding), made(Encoding)),
        ("encode of 100 characters", len(short), called(theirs), called(ours)),
        (
            f"encode_ordinary_batch of {len(long):,} texts",
            1,
            lambda: theirs.encode_ordinary_batch(long),
            lambda: ours.encode_ordinary_batch(long),
        ),
    ]


PAIRS = {
    "transformers": transformers_pairs,
    "tokenizers": tokenizers_pairs,
    "tiktoken": tiktoken_pairs,
}


def measure(library: str, pairs: list[Pair], rounds: int) -> list[dict[str, Any]]:
    rows = []
    for work, n, theirs, ours in pairs:
        if theirs() != ours():
            raise SystemExit(f"{library}, {work}: the results differ, so the times mean nothing")
        seconds = [(timed(theirs)[0] / n, timed(ours)[0] / n) for _ in range(rounds)]
        original, bytemill = (min(times) for times in zip(*seconds, strict=True))
        rows.append(
            {
                "library": library,
                "version": metadata.version(library),
                "work": work,
                "original": original,
                "bytemill": bytemill,
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown; the ratio is how many times as long the original takes."""
    lines = ["| | | original | bytemill | ratio |", "| --- | --- | --: | --: | --: |"]
    for row in rows:
        ratio = row["original"] / row["bytemill"]
        lines.append(
            f"| {row['library']} {row['version']} | {row['work']} "
            f"| {shown(row['original'])} | {shown(row['bytemill'])} | {ratio:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokenizer", type=Path, help="a tokenizer.json")
    parser.add_argument("corpus", type=Path, help="a text file")
    parser.add_argument("--library", action="append", choices=PAIRS, help="default: all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--docs", action="store_true", help="put them into docs/benchmarks.md")
    asked = parser.parse_args()

    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    short, long = texts(asked.corpus, N_CALLS, SHORT), texts(asked.corpus, N_TEXTS, LONG)
    rows = [
        row
        for library in asked.library or PAIRS
        for row in measure(library, PAIRS[library](str(asked.tokenizer), short, long), asked.rounds)
    ]
    print(table(rows))
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    found = {"when": when, "machine": machine(), "rows": rows}
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if asked.docs:
        page = Path(__file__).parents[1] / "docs" / "benchmarks.md"
        on = found["machine"]
        note = f"{on['processor']}, {on['cores']} cores, Python {on['python']}, {when[:10]}"
        put_between(
            page, "drop-in figures", f"{table(rows)}\n\n{note}; the best of {asked.rounds} rounds."
        )


if __name__ == "__main__":
    main()
