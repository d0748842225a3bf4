"""The directory of tokens: work stops anywhere and resumes to the same bytes; foreign files are
kept; changed manifests and records are refused."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bytemill
import generated
from bytemill import Tokens, _native
from bytemill.engines import Local
from bytemill.tokens import manifest as manifests
from bytemill.tokens import recipes
from bytemill.tokens.plan import Plan

EOT = "<|endoftext|>"
MERGES = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b"a", b"a"), (b"\xc3", b"\xa9")]
TOKENIZER = bytemill.Tokenizer(generated.merged(MERGES), MERGES, generated.SPECIALS)
SMALLER = bytemill.Tokenizer(generated.merged(MERGES[:2]), MERGES[:2], generated.SPECIALS)
TEXTS = [b"the cat sat on the mat" + EOT.encode() + b"the", b"", b"aaaa \xc3\xa9 the " * 9, b"x"]
OPTIONS: dict[str, Any] = {"shard_tokens": 7, "eot": EOT, "progress": False}
# Every file is a unit, and the larger ones are several.
SMALL = Local(unit_size=20, block_size=10)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return write(tmp_path, TEXTS)


def write(folder: Path, texts: list[bytes]) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts):
        path.write_bytes(text)
    return paths


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def encode(paths: list[Path], out: Path, **options: Any) -> Tokens:
    return TOKENIZER.encode_files(paths, out, **{"engine": SMALL, **OPTIONS, **options})


class Stopped(Exception):
    """Raised in the middle of the work."""


def stopped(
    monkeypatch: pytest.MonkeyPatch, paths: list[Path], out: Path, n: int, **how: Any
) -> bool:
    """Resumes, and stops at the n-th call into Rust; False if the work was done before that."""
    calls = 0

    def counted(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == n:
                raise Stopped
            return function(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("encode_range", "deal_part", "assemble_shard"):
            patch.setattr(_native, name, counted(getattr(_native, name)))
        try:
            encode(paths, out, resume=True, **how)
        except Stopped:
            return True
    return False


KINDS: dict[str, dict[str, Any]] = {
    "shards": {},
    "split": {"val_fraction": 0.4, "seed": 2},
    "shuffled": {"shuffle": True, "val_fraction": 0.4, "seed": 2},
    "dealt": {"shuffle": True, "val_fraction": 0.4, "seed": 2},
    "megatron": {"format": "megatron", "append_eot": False},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_stopped_after_every_step(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    options = KINDS[kind]
    encode(paths, tmp_path / "whole", **options)
    if kind == "dealt":
        monkeypatch.setattr(recipes, "MAX_UNDEALT_TOKENS", 0)
    # Each attempt does one more step than the one before, and is stopped in the next.
    out, attempts = tmp_path / "out", 1
    while stopped(monkeypatch, paths, out, 2, **options):
        attempts += 1
        assert os.listdir(out) == [".partial"]
        # What a killed process may leave after the last record.
        for path in (out / ".partial").glob("*.npy"):
            if path.read_bytes()[:1] == b"\0":
                path.write_bytes(path.read_bytes() + b"debris")
    assert attempts > 5
    assert content(out) == content(tmp_path / "whole")
    assert bytemill.verify_tokens(out, TOKENIZER, source=paths, progress=False) == []
    usual = TOKENIZER.encode_files(paths, tmp_path / "usual", **OPTIONS, **options)
    assert content(usual.path) == content(out)


def test_the_core_refuses_options_that_it_does_not_know() -> None:
    options = {"format": "npy", "dtype": "uint16", "max_id": 255, "end_of_text": None,
               "append_eot": False, "shard_tokens": None, "val_fraction": None, "shuffle": True,
               "seed": 0, "stems": ["tokens"]}  # fmt: skip
    part = SimpleNamespace(ids="", docs="", tokens=0, documents=0, appended=[], before=0)
    with pytest.raises(RuntimeError, match="33 bits"):
        _native.deal_part(SimpleNamespace(**options), part, [], 33)
    for name in ("format", "dtype"):
        with pytest.raises(RuntimeError, match="other"):
            _native.deal_part(SimpleNamespace(**options | {name: "other"}), part, [], 1)
    source = SimpleNamespace(split=0, number=0, before=(0, 0), parts=[], dealt=[], buckets=None)
    with pytest.raises(RuntimeError, match="without buckets"):
        _native.assemble_shard(SimpleNamespace(**options), source, "")


@pytest.mark.slow
def test_moving_into_place_can_stop_anywhere(paths: list[Path], tmp_path: Path) -> None:
    out, partial = tmp_path / "out", tmp_path / "out" / ".partial"
    encode(paths, out)
    whole = content(out)
    # The first files have been moved; the others are of an older, longer run.
    for n in range(len(whole)):
        partial.mkdir()
        for name in [*sorted(set(whole) - {"manifest.json"})[n:], "manifest.json"]:
            (out / name).rename(partial / name)
            if name != "manifest.json":
                (out / name).write_text("old")
        (out / "shard-00077.npy").write_text("old")
        names = ["shard-00077.npy", "../0.txt", "notes.txt"]
        shards = [{"file": name} for name in names]
        replaced = {"kind": "bytemill tokens", "splits": [{"shards": shards}]}
        (partial / "replaced.json").write_text(json.dumps(replaced))
        for name in ("notes.txt", "shard-00078.npy"):
            (out / name).write_text("not ours")
        with pytest.raises(bytemill.ConfigError, match="interrupted run"):
            encode(paths, out)
        if n % 2 == 0:
            encode(paths, out, resume=True)
        else:
            # Finishes moving, too, and then finds a foreign file.
            with pytest.raises(bytemill.ConfigError, match=r"such as shard-00078\.npy"):
                encode(paths, out, overwrite=True)
        assert paths[0].exists()
        for name in ("notes.txt", "shard-00078.npy"):
            (out / name).unlink()
        assert content(out) == whole
        encode(paths, out, overwrite=True)
        assert content(out) == whole


def test_a_damaged_plan_can_be_overwritten(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert stopped(monkeypatch, paths, out, 2)
    # A crash of the machine may leave this of a file that was not flushed.
    (out / ".partial" / "plan.json").write_bytes(b"")
    with pytest.raises(bytemill.TokensError, match="start over"):
        encode(paths, out, resume=True)
    encode(paths, out, overwrite=True)
    encode(paths, tmp_path / "whole")
    assert content(out) == content(tmp_path / "whole")


def test_foreign_directories_are_not_touched(paths: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("not ours")
    for how in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises((FileExistsError, bytemill.ConfigError)):
            encode(paths, out, **how)
        assert os.listdir(out) == ["notes.txt"]
    (out / "notes.txt").unlink()
    encode(paths, out)
    whole = content(out)
    with pytest.raises(FileExistsError, match="exists already"):
        encode(paths, out)
    encode(paths, out, resume=True)
    with pytest.raises(bytemill.ConfigError, match="other options"):
        encode(paths, out, resume=True, append_eot=False)
    assert content(out) == whole
    encode(paths, out, overwrite=True, format="bin")
    assert sorted(os.listdir(out)) == [
        "manifest.json", "tokenizer.json", "tokens.bin", "tokens.docs.npy",
    ]  # fmt: skip


def test_files_of_others_are_never_overwritten(paths: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"format": "bin", "val_fraction": 0.5, "overwrite": True}
    for name, text in [
        ("manifest.json", '{"files": ["train.bin"]}'),
        ("manifest.json", "not JSON"),
        ("train.bin", "not ours"),
        ("tokenizer.json", "{}"),
        (".partial/notes.txt", "not ours"),
    ]:
        (out / ".partial").mkdir(parents=True)
        (out / name).write_text(text)
        with pytest.raises(bytemill.ConfigError, match="contains files that are not"):
            encode(paths, out, **options)
        assert (out / name).read_text() == text
        (out / name).unlink()
        for left in (out / ".partial", out):
            if left.exists():
                left.rmdir()
    # Beside tokens, too, if their names could conflict.
    encode(paths, out, **options)
    (out / "tokens.bin").write_text("not ours")
    with pytest.raises(bytemill.ConfigError, match=r"such as tokens\.bin"):
        encode(paths, out, **options)
    (out / "tokens.bin").rename(out / "notes.bin")
    encode(paths, out, **options)
    assert (out / "notes.bin").read_text() == "not ours"
    # A manifest of ours may be of another version, or contradict itself.
    manifest = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(manifest.replace('"version": 1', '"version": 99'))
    encode(paths, out, **options)
    assert (out / "manifest.json").read_text() == manifest


def test_changed_sources_are_refused(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert stopped(monkeypatch, paths, out, 3)
    status, text = paths[0].stat(), paths[0].read_bytes()
    for changed in (text.replace(b"cat", b"dog"), b"the"):
        paths[0].write_bytes(changed)
        os.utime(paths[0], ns=(0, status.st_mtime_ns + 10**6))
        with pytest.raises(bytemill.ConfigError, match=r"0\.txt has changed"):
            encode(paths, out, resume=True)
    with pytest.raises(bytemill.ConfigError, match=r"0\.txt, not"):
        encode(paths[1:], out, resume=True)
    with pytest.raises(bytemill.TokensError, match="encoded with the tokenizer"):
        SMALLER.encode_files(paths, out, resume=True, **OPTIONS)
    paths[0].write_bytes(text)
    os.utime(paths[0], ns=(0, status.st_mtime_ns))
    with pytest.raises(bytemill.ConfigError, match="another part of the corpus"):
        encode(paths, out, resume=True, engine=Local(unit_size=10**6))
    encode(paths, out, resume=True).verify(TOKENIZER, source=paths)


@pytest.mark.slow
def test_edited_records_are_refused(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, options in KINDS.items():
        out = tmp_path / kind
        assert stopped(monkeypatch, paths, out, 5, **options)
        found = (out / ".partial").rglob("*.json")
        # The tokenizer is no record: a resumed job writes it again.
        records = sorted(path for path in found if path.name != "tokenizer.json")
        assert len(records) > 3
        for path in records:
            data = path.read_bytes()
            for at in range(0, len(data), 7):
                changed = bytes([data[at] ^ 1])
                path.write_bytes(data[:at] + changed + data[at + 1 :])
                with pytest.raises(bytemill.TokensError, match="damaged"):
                    encode(paths, out, resume=True, **options)
            # Another unit's record in its place is refused too.
            path.write_bytes(records[path == records[0]].read_bytes())
            with pytest.raises(bytemill.TokensError, match="damaged"):
                encode(paths, out, resume=True, **options)
            path.write_bytes(data)
        encode(paths, out, resume=True, **options).verify(TOKENIZER, source=paths)


def test_missing_shards_are_not_resumed(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, error in [("shard-00000.npy", "bytes, not"), ("*", "shorter than|bytes, not")]:
        out = tmp_path / f"out-{len(name)}"
        assert stopped(monkeypatch, paths, out, 4)
        found = sorted((out / ".partial").glob(f"{name}" if name != "*" else "shard-*[0-9].npy"))
        os.truncate(found[-1], 10)
        with pytest.raises(bytemill.TokensError, match=error):
            encode(paths, out, resume=True)
        encode(paths, out, overwrite=True)


def test_the_tokenizer_goes_with_the_tokens(paths: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    encode(paths, out)
    data = TOKENIZER.write("huggingface")[0]
    assert (out / "tokenizer.json").read_bytes() == data

    def problems() -> list[str]:
        return bytemill.verify_tokens(out, None, source=paths, progress=False)

    assert problems() == []
    # Another tokenizer with a matching checksum is still not the one that made the tokens.
    manifest = json.loads((out / "manifest.json").read_bytes())
    other = SMALLER.write("huggingface")[0]
    for changed, problem in [(other, "not the tokenizer named in the manifest"), (b"{}", "")]:
        (out / "tokenizer.json").write_bytes(changed)
        crc32 = f"{zlib.crc32(changed):08x}"
        manifest["tokenizer_file"] |= {"bytes": len(changed), "crc32": crc32}
        (out / "manifest.json").write_text(json.dumps(manifest))
        [found] = problems()
        assert found.startswith("tokenizer.json: ")
        assert problem in found
    (out / "tokenizer.json").write_bytes(b"")
    assert problems()[0].startswith("tokenizer.json: 0 bytes, not 2")
    # Tokens of earlier versions have none.
    (out / "tokenizer.json").unlink()
    del manifest["tokenizer_file"]
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(bytemill.ConfigError, match="requires the tokenizer"):
        problems()
    assert bytemill.verify_tokens(out, TOKENIZER, source=paths, progress=False) == []


# --- manifests ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    encode(write(folder, TEXTS), folder / "out")
    return folder / "out"


def test_hostile_manifests_are_refused(finished: Path) -> None:
    path = finished / "manifest.json"
    whole = path.read_text()

    def refused(text: str) -> str:
        with pytest.raises(bytemill.TokensError) as caught:
            manifests.parse(text.encode(), path)
        assert caught.value.hint
        return str(caught.value)

    for text in ("", "{", "[]", "null", '{"kind": "bytemill tokens"}', "\0\1", "[" * 10**5):
        refused(text)
    assert "version 2" in refused(whole.replace('"version": 1', '"version": 2'))
    found = json.loads(whole)
    documents, max_id = found["splits"][0]["documents"], found["tokenizer"]["max_id"]
    for old, new in [
        ('"shard-00000.npy"', '"../shard-00000.npy"'),
        ('"shard-00000.npy"', '"/etc/passwd"'),
        ('"shard-00001.npy"', '"shard-00000.npy"'),
        ('"shard-00000.docs.npy"', '"shard-00001.docs.npy"'),
        ('"uint16"', '"uint32"'),
        ('"uint16"', '"int32"'),
        ('"uint16"', '"float64"'),
        ('"format": "shards"', '"format": "bin"'),
        ('"shard_tokens": 7', '"shard_tokens": 8'),
        ('"shard_tokens": 7', '"shard_tokens": 0'),
        ('"shard_tokens": 7', '"shard_tokens": null'),
        ('"tokens": 7', '"tokens": 18446744073709551615'),
        ('"tokens": 7', '"tokens": -1'),
        ('"tokens": 7', '"tokens": 7.0'),
        ('"documents": 1', '"documents": 4611686018427387904'),
        (f'"documents": {documents}', f'"documents": {documents + 1}'),
        ('"bytes": 142', '"bytes": 143'),
        ('"val_fraction": null', '"val_fraction": 0.5'),
        ('"val_fraction": null', '"val_fraction": 1e999'),
        ('"val_fraction": null', '"val_fraction": true'),
        ('"name": "all"', '"name": "train"'),
        (f'"max_id": {max_id}', '"max_id": 70000'),
        ('"path": "', '"path": "\\ud800'),
        ('"appended": [', '"appended": [5, 4, '),
        ('"appended": [', '"appended": [true, '),
    ]:
        assert old in whole, old
        refused(whole.replace(old, new, 1))
    found["splits"][0]["appended"].append(documents)
    assert "appended" in refused(json.dumps(found))
    assert manifests.to_json(manifests.parse(whole.encode(), path)) == whole.encode()


@given(st.data())
def test_any_bytes_are_a_manifest_or_refused(finished: Path, data: st.DataObject) -> None:
    whole = (finished / "manifest.json").read_bytes()
    for _ in range(data.draw(st.integers(1, 3))):
        at, size = data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, 9))
        whole = whole[:at] + data.draw(st.binary(max_size=5)) + whole[at + size :]
    try:
        manifest = manifests.parse(whole, finished / "manifest.json")
    except bytemill.TokensError:
        return
    for name, _ in manifests.files(manifest):
        assert os.path.basename(name) == name
    assert Plan.of(manifest).id
    again = manifests.parse(manifests.to_json(manifest), finished)
    assert again == manifest
