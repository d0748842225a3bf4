"""Sizes, rates and time left are in bytes of text, also of compressed corpora and of records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill import ProgressEvent, count_to_file
from bytemill.engines import Local
from command_line import ok


@pytest.fixture
def texts(documents: list[str]) -> list[str]:
    return [text[:5000] for text in documents[:200]]


@pytest.fixture
def compressed(tmp_path: Path, texts: list[str]) -> list[Path]:
    """The texts in three compressed files; a bad line in the last."""
    paths = []
    for number in range(3):
        some = texts[number::3]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in some)
        lines += "not json\n" if number == 2 else ""
        paths.append(tmp_path / f"{number}.jsonl.gz")
        paths[-1].write_bytes(gzip.compress(lines.encode()))
    return paths


def test_results_are_in_bytes_of_text(
    tmp_path: Path, texts: list[str], compressed: list[Path]
) -> None:
    text = sum(len(one.encode()) for one in texts)
    files = sum(path.stat().st_size for path in compressed)
    assert files < text / 2
    tokenizer, out = tmp_path / "t.json", tmp_path / "tokens"
    commands: list[tuple[Any, ...]] = [
        ("count", *compressed, "-o", tmp_path / "a.counts"),
        ("train-tokenizer", *compressed, "-o", tokenizer, "--vocab-size", "1k"),
        ("encode", *compressed, "-t", tokenizer, "-o", out, "--shuffle"),
    ]
    for command in commands:
        result = ok(*command, "--on-error", "skip", "--json")
        assert (result.json["bytes"], result.json["file_bytes"]) == (text, files)
        assert result.json["skipped"] == {"invalid_json": 1}
        phase = command[0] if command[0] == "encode" else "count"
        ends = [e for e in result.events if (e["event"], e.get("phase")) == ("finished", phase)]
        assert [(end["done"], end["total"]) for end in ends] == [(text, text)]
        said = ok(*command, "--on-error", "skip", "--overwrite").said
        assert "of text (" in said
        assert "compressed)" in said
    tokens = bytemill.Tokens(out)
    assert (tokens.text_bytes, tokens.file_bytes) == (text, files)
    checked = ok("verify", out, "-t", tokenizer, "--source", *_repeated(compressed), "--json")
    last = checked.events[-1]
    assert last["done"] == last["total"]
    from_counts = ok(
        "train-tokenizer", "--counts", tmp_path / "a.counts", "-o", tmp_path / "b.json", "--json"
    )
    assert from_counts.json["bytes"] == text
    assert from_counts.json["skipped"] == {"invalid_json": 1}


def _repeated(paths: list[Path]) -> list[Any]:
    return [part for path in paths for part in ("--source", path)][1:]


def test_how_much_text_there_is_is_estimated_on_the_way(
    tmp_path: Path, texts: list[str], tokenizer: bytemill.Tokenizer
) -> None:
    # Enough for several chunks, all of the same kind.
    all_text = "".join(texts) * 8
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(all_text.encode(), 1))
    size = len(all_text.encode())
    events: list[ProgressEvent] = []
    tokenizer.encode_files(path, tmp_path / "tokens", threads=1, progress=events.append)
    bytemill.count_corpus(path, threads=1, progress=events.append)
    for phase in ("encode", "count"):
        own = [event for event in events if event.phase == phase]
        assert (own[-1].done, own[-1].total) == (size, size)
        for event in own:
            assert event.total is None or event.done <= event.total
        # Once half is read, the estimate is of the right size; compressed, it would be a third.
        for event in own:
            if event.total is not None and event.done > size / 2:
                assert event.total == pytest.approx(size, rel=0.5)


def test_text_bytes_survive_an_interruption(
    tmp_path: Path, compressed: list[Path], tokenizer: bytemill.Tokenizer
) -> None:
    corpus = bytemill.Corpus(compressed, on_error="skip")
    whole = tokenizer.encode_files(corpus, tmp_path / "whole", progress=False)
    stopped: list[int] = []

    def stop(event: ProgressEvent) -> None:
        if event.phase == "shuffle":
            stopped.append(event.done)
            raise KeyboardInterrupt

    out = tmp_path / "resumed"
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode_files(corpus, out, shuffle=True, progress=stop)
    assert stopped
    resumed = tokenizer.encode_files(corpus, out, shuffle=True, resume=True, progress=False)
    assert resumed.text_bytes == whole.text_bytes
    resumed.verify(tokenizer, source=corpus)


def test_counting_in_steps_reports_text(tmp_path: Path, compressed: list[Path]) -> None:
    corpus = bytemill.Corpus(compressed, on_error="skip")
    events: list[ProgressEvent] = []
    output = tmp_path / "a.counts"
    counts = count_to_file(corpus, output, engine=Local(unit_size=1000), progress=events.append)
    own = [event for event in events if event.phase == "count"]
    assert (own[-1].done, own[-1].total) == (counts.bytes_read, counts.bytes_read)
    assert [event.done for event in own] == sorted(event.done for event in own)


def test_a_manifest_that_lies_about_its_text(
    tmp_path: Path, compressed: list[Path], tokenizer: bytemill.Tokenizer
) -> None:
    corpus = bytemill.Corpus(compressed[:2])
    tokens = tokenizer.encode_files(corpus, tmp_path / "tokens")
    manifest = tmp_path / "tokens" / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["text_bytes"] += 1
    manifest.write_text(json.dumps(facts))
    with pytest.raises(bytemill.TokensError, match=r"manifest\.json states"):
        bytemill.Tokens(tmp_path / "tokens").verify(tokenizer, source=corpus)
    # Older manifests do not record it.
    del facts["text_bytes"]
    manifest.write_text(json.dumps(facts))
    older = bytemill.Tokens(tmp_path / "tokens")
    older.verify(tokenizer, source=corpus)
    assert older.text_bytes is None
    assert tokens.text_bytes is not None
