"""Scans: tokenizers, runs and sweeps that are found, and files that are skipped."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import serving
from bytemill import ConfigError, encodings
from bytemill.serve import loading
from bytemill.serve import scan as scans
from bytemill.serve.catalog import Catalog
from bytemill.serve.found import Found
from bytemill.serve.replies import Refusal


def found(*paths: Path) -> Found:
    return Catalog(paths).found()


def names(found: Found) -> list[str]:
    return [entry.name for entry in found.tokenizers.values() if entry.kind != "encoding"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "things"
    place.mkdir()
    return place


def test_tokenizers_of_every_format(place: Path) -> None:
    tokenizer = serving.small_tokenizer()
    tokenizer.save(place / "mine.json")
    tokenizer.save(place / "gpt2", format="gpt2")
    tokenizer.save(place / "old.model", format="minbpe")
    (place / "below").mkdir()
    serving.small_tokenizer(290).save(place / "below" / "tokenizer.json")
    result = found(place)
    assert names(result) == [
        "things/mine.json",
        "things/old.model",
        "things/below/tokenizer.json",
        "things/gpt2/vocab.json",
    ]
    first = next(iter(result.tokenizers.values()))
    assert first.to_json() == {
        "id": first.id,
        "name": "things/mine.json",
        "kind": "file",
        "vocab_size": 300,
        "pattern": "gpt2",
        "special_tokens": ["<|endoftext|>"],
        "fingerprint": tokenizer.fingerprint,
    }
    assert result.notes == []
    # One file can be given, too.
    assert names(found(place / "mine.json")) == ["mine.json"]


def test_a_tiktoken_file_needs_its_pattern_beside_it(place: Path) -> None:
    serving.small_tokenizer().save(place / "ranks.tiktoken", format="tiktoken")
    result = found(place)
    assert names(result) == []
    assert result.notes == [
        f"things/ranks.tiktoken: {place}/ranks.tiktoken: a tiktoken rank file does not contain its "
        "split pattern"
    ]
    (place / "tokenizer_config.json").write_text(json.dumps({"pat_str": r"\w+|\W+"}))
    # The same note again, because the file has not changed.
    assert names(found(place)) == ["things/ranks.tiktoken"]


def test_copies_in_tokens_are_shown_only_if_they_are_the_only_ones(place: Path) -> None:
    tokenizer = serving.small_tokenizer()
    text = place / "text.txt"
    text.write_text(serving.TEXT)
    tokenizer.encode_files([text], place / "tokens", progress=False)
    result = found(place)
    assert names(result) == ["things/tokens"]
    assert list(result.tokens.values()) == ["things/tokens"]
    tokenizer.save(place / "tokenizer.json")
    assert names(found(place)) == ["things/tokenizer.json"]


def test_unreadable_files_have_notes(place: Path) -> None:
    (place / "tokenizer.json").write_text('{"model": 1}')
    (place / "run").mkdir()
    (place / "run" / "config.json").write_text('{"kind": "bytemill run", "model": []}')
    (place / "sweep").mkdir()
    (place / "sweep" / "sweep.json").write_text('{"kind": "bytemill sweep"}')
    (place / "some.json").write_text('{"added_tokens": 1}')
    # Not tokenizers: no notes.
    (place / "package.json").write_text('{"name": "x"}')
    (place / "sentencepiece.model").write_bytes(b"\n\x0b\n\x05<unk>")
    result = found(place)
    assert not result.runs
    assert not result.sweeps
    assert names(result) == []
    assert sorted(note.partition(":")[0] for note in result.notes) == [
        "things/run",
        "things/some.json",
        "things/sweep",
        "things/tokenizer.json",
    ]


def test_links_in_circles_and_strange_files(place: Path) -> None:
    tokenizer = serving.small_tokenizer()
    tokenizer.save(place / "tokenizer.json")
    (place / "below").mkdir()
    if os.name != "nt":
        (place / "below" / "up").symlink_to(place)
        (place / "itself").symlink_to(place / "itself")
        (place / "gone.json").symlink_to(place / "nothing")
        os.mkfifo(place / "pipe.json")
        os.mkfifo(place / "config.json")
    assert names(found(place)) == ["things/tokenizer.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_names_that_are_not_text(place: Path) -> None:
    strange = os.fsdecode(b"\xff<b>\n\x1b[2J")
    (place / strange).mkdir()
    serving.small_tokenizer().save(place / strange / "tokenizer.json")
    (place / strange / "damaged.json").write_text('{"added_tokens": 1}')
    with serving.client(place) as client:
        found = client.get("/api/catalog").json()
        (entry,) = (entry for entry in found["tokenizers"] if entry["kind"] == "file")
        assert entry["name"] == f"things/{strange}/tokenizer.json"
        assert entry["id"].isascii()
        assert len(found["notes"]) == 1
        assert client.get(f"/api/tokenizers/{entry['id']}").status_code == 200


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions of POSIX")
def test_a_directory_that_may_not_be_read(place: Path) -> None:
    (place / "closed").mkdir(mode=0)
    assert found(place).notes == ["things/closed: Permission denied"]


def test_a_scan_ends(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving.small_tokenizer().save(place / "tokenizer.json")
    deep = place
    for level in range(scans.MAX_DEPTH + 2):
        deep = deep / f"d{level}"
        deep.mkdir()
        serving.small_tokenizer(280 + level).save(deep / "tokenizer.json")
    assert len(names(found(place))) == scans.MAX_DEPTH + 1
    monkeypatch.setattr(scans, "MAX_DIRECTORIES", 3)
    result = found(place)
    # Directories near the root come first.
    assert names(result) == [
        "things/tokenizer.json",
        "things/d0/tokenizer.json",
        "things/d0/d1/tokenizer.json",
    ]
    assert "too many files" in result.notes[0]
    monkeypatch.setattr(scans, "MAX_TOKENIZERS", 2)
    assert len(names(found(place))) == 2


def test_ids_stay_and_a_new_file_is_found(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving.scan_always(monkeypatch)
    serving.small_tokenizer().save(place / "tokenizer.json")
    catalog = Catalog([place])
    (id,) = (entry.id for entry in catalog.found().tokenizers.values() if entry.path is not None)
    assert id in found(place).tokenizers
    assert str(place) not in id
    assert "/" not in id
    serving.small_tokenizer(280).save(place / "other.json")
    assert names(catalog.found()) == ["things/other.json", "things/tokenizer.json"]
    # A file that is replaced keeps its id.
    serving.small_tokenizer(270).save(place / "tokenizer.json", overwrite=True)
    assert catalog.tokenizer_entry(id).facts["vocab_size"] == 270
    assert len(catalog.tokenizer(id)) == 270
    (place / "tokenizer.json").unlink()
    with pytest.raises(Refusal) as refusal:
        catalog.tokenizer(id)
    assert refusal.value.status == 404


def test_a_scan_is_kept_for_a_second(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog([place])
    before = catalog.found()
    assert catalog.found() is before
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert catalog.found() is not before


def test_a_long_scan_does_not_block_requests(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving.scan_always(monkeypatch)
    catalog = Catalog([place])
    before = catalog.found()
    started, done = threading.Event(), threading.Event()

    def slow(self: Any, roots: Any) -> Found:
        started.set()
        assert done.wait(60)
        return Found()

    monkeypatch.setattr(scans.Scan, "over", slow)
    scanning = threading.Thread(target=catalog.found)
    scanning.start()
    assert started.wait(60)
    assert catalog.found() is before
    done.set()
    scanning.join()


def test_named_encodings(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = serving.small_tokenizer()
    about = {"vocab_size": 300, "pattern": "gpt2", "special_tokens": {"<|endoftext|>": 299}}
    monkeypatch.setattr(encodings, "available", lambda: ["small_base"])
    monkeypatch.setattr(encodings, "get_encoding", lambda _: tokenizer)
    monkeypatch.setattr(loading, "definition", lambda _: SimpleNamespace(**about))
    with serving.client(place) as client:
        (entry,) = client.get("/api/catalog").json()["tokenizers"]
        assert (entry["id"], entry["kind"], entry["vocab_size"]) == ("small_base", "encoding", 300)
        body = {"tokenizer": "small_base", "text": "the cat"}
        assert client.post("/api/tokenize", json=body).json()["ids"] == tokenizer.encode("the cat")
        facts = client.get("/api/tokenizers/small_base").json()
        assert facts["fingerprint"] == entry["fingerprint"]


def test_a_file_that_vanishes_between_scan_and_use(place: Path) -> None:
    serving.small_tokenizer().save(place / "tokenizer.json")
    catalog = Catalog([place])
    (id,) = (entry.id for entry in catalog.found().tokenizers.values() if entry.path is not None)
    (place / "tokenizer.json").unlink()
    with pytest.raises(Refusal, match=r"things/tokenizer.json: No such file"):
        catalog.tokenizer(id)


def test_paths_of_clients_open_nothing(place: Path) -> None:
    serving.small_tokenizer().save(place / "tokenizer.json")
    with serving.client(place) as client:
        for id in (
            str(place / "tokenizer.json"), "things/tokenizer.json", "..%2f..%2fetc%2fpasswd",
            "tokenizer.json", "%00", "gpt2",
        ):  # fmt: skip
            response = client.get(f"/api/tokenizers/{id}/tokens/1")
            assert response.status_code == 404, id
        response = client.post(
            "/api/tokenize", json={"tokenizer": str(place / "tokenizer.json"), "text": "x"}
        )
        serving.error_of(response, 404)
        for path in (
            "/static/../app.py",
            "/static/%2e%2e/app.py",
            "/static//etc/passwd",
            "/static",
        ):
            assert client.get(path).status_code == 404, path


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="needs a key"):
        serving.client(host="0.0.0.0")
    serving.client(host="0.0.0.0", insecure=True)
    serving.client(host="0.0.0.0", api_key="a-long-key")
    for host in ("127.0.0.1", "127.3.2.1", "::1", "localhost"):
        serving.client(host=host)
    with pytest.raises(ConfigError, match="must be ≥ 8 printable"):
        serving.client(api_key="short")
    with pytest.raises(ConfigError, match="ASCII characters without spaces"):
        serving.client(api_key="ein schlüssel")
    with pytest.raises(ConfigError, match="must be an origin"):
        serving.client(cors=["example.org"])
