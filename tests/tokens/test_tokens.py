"""Tokens on disk against the obvious way to make them, and as a sequence."""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import bytemill
import generated
from bytemill import Tokens
from bytemill.engines import Local

EOT = "<|endoftext|>"
# Merges among the letters that the texts have many of, and overlapping special tokens.
MERGES = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b"a", b"a"), (b"\xc3", b"\xa9")]
TOKENIZER = bytemill.Tokenizer(generated.merged(MERGES), MERGES, generated.SPECIALS)
END = TOKENIZER.special_tokens[EOT]


class Document(NamedTuple):
    ids: list[int]
    appended: bool = False


def documents_of(text: bytes, append_eot: bool) -> list[Document]:
    """The documents of a file."""
    documents = []
    ids: list[int] = []
    for id in TOKENIZER.encode(text):
        ids.append(id)
        if id == END:
            documents.append(Document(ids))
            ids = []
    if ids or not text:
        documents.append(Document([*ids, END], True) if append_eot else Document(ids))
    return documents


def draw(seed: int, kind: int, number: int) -> int:
    """The number that determines a document's order and split, as in docs/formats.md."""

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    return mix((mix((seed + kind) % 2**64) + number * 0x9E3779B97F4A7C15) % 2**64)


def expected(texts: list[bytes], options: dict[str, Any]) -> dict[str, list[Document]]:
    documents = [d for text in texts for d in documents_of(text, options["append_eot"])]
    numbers = list(range(len(documents)))
    seed, fraction = options["seed"], options["val_fraction"]
    if options["shuffle"]:
        numbers.sort(key=lambda n: draw(seed, 2, n))
    if fraction is None:
        return {"all": [documents[n] for n in numbers]}
    chosen = {n for n in numbers if draw(seed, 1, n) >> 11 < int(fraction * 2**53)}
    return {
        "train": [documents[n] for n in numbers if n not in chosen],
        "val": [documents[n] for n in numbers if n in chosen],
    }


def write(folder: Path, texts: list[bytes]) -> list[Path]:
    paths = [folder / f"{number:03}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts):
        path.write_bytes(text)
    return paths


plans = st.fixed_dictionaries(
    {
        "format": st.sampled_from(["shards", "shards", "npy", "bin", "megatron"]),
        "dtype": st.sampled_from([None, "uint16"]),
        "shard_tokens": st.integers(1, 60),
        "append_eot": st.booleans(),
        "val_fraction": st.sampled_from([None, None, 0.0, 0.4, 1.0]),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 2**64 - 1),
    }
)


@pytest.mark.slow
@given(
    texts=st.lists(generated.file_data, min_size=1, max_size=5),
    plan=plans,
    threads=st.integers(1, 3),
    block_size=st.integers(1, 80),
    unit_size=st.sampled_from([15, 60, 200_000]),
)
@example(
    texts=[b"", b"the", b"", b"the" + EOT.encode()],
    plan={"format": "shards", "dtype": None, "shard_tokens": 1, "append_eot": False,
          "val_fraction": None, "shuffle": False, "seed": 0},
    threads=2, block_size=1, unit_size=15,
)  # fmt: skip
def test_equals_the_plain_implementation(
    texts: list[bytes], plan: dict[str, Any], threads: int, block_size: int, unit_size: int
) -> None:
    assume(any(texts))
    with tempfile.TemporaryDirectory() as name:
        paths, out = write(Path(name), texts), Path(name, "tokens")
        engine = Local(unit_size=unit_size, block_size=block_size)
        TOKENIZER.encode_files(
            paths, out, eot=EOT, threads=threads, engine=engine, progress=False, **plan
        )
        assert bytemill.verify_tokens(out, TOKENIZER, source=paths, progress=False) == []
        splits = expected(texts, plan)
        for name, documents in splits.items():
            tokens = Tokens(out, split=name)
            ids = [id for document in documents for id in document.ids]
            assert list(tokens) == ids
            assert [document.tolist() for document in tokens.documents] == [
                d.ids for d in documents
            ]
            appended = [n for n, document in enumerate(documents) if document.appended]
            assert tokens._appended == appended
            text = b"".join(
                TOKENIZER.decode_bytes(d.ids[:-1] if d.appended else d.ids) for d in documents
            )
            assert b"".join(tokens.decode(TOKENIZER)) == text
            if list(splits) == ["all"] and not plan["shuffle"]:
                assert text == b"".join(texts)


# --- a sequence -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    folder = tmp_path_factory.mktemp("sharded")
    texts = [b"the the a b c" + EOT.encode() + b"aaaa the", b"", b"x" * 50, b"the"]
    return TOKENIZER.encode_files(write(folder, texts), folder / "tokens", shard_tokens=7)


bounds = st.none() | st.integers(-90, 90)


@given(start=bounds, stop=bounds, step=st.none() | st.integers(-12, 12).filter(bool))
def test_slices_are_those_of_a_list(
    sharded: Tokens, start: int | None, stop: int | None, step: int | None
) -> None:
    ids = list(sharded)
    part = sharded[start:stop:step]
    assert isinstance(part, np.ndarray)
    assert part.dtype == sharded.dtype
    assert part.tolist() == ids[start:stop:step]


def test_indices_are_those_of_a_list(sharded: Tokens) -> None:
    ids = list(sharded)
    n = len(ids)
    assert len(sharded) == n > 60
    assert [sharded[i] for i in range(-n, n)] == ids + ids
    assert type(sharded[0]) is int
    assert sharded[np.int64(3)] == ids[3]
    for index in (n, -n - 1):
        with pytest.raises(IndexError, match=f"token {index} of {n}"):
            sharded[index]
    with pytest.raises(TypeError):
        sharded["3"]  # type: ignore[call-overload]
    assert np.asarray(sharded).tolist() == ids
    assert np.asarray(sharded, dtype=np.int64).dtype == np.int64


def test_documents(sharded: Tokens) -> None:
    documents = sharded.documents
    assert len(documents) == 5
    assert documents[1].tolist() == [*TOKENIZER.encode("aaaa the"), END]
    assert documents[-3].tolist() == [END]
    assert [d.tolist() for d in documents[1:3]] == [d.tolist() for d in documents][1:3]
    assert documents.ends.tolist() == np.cumsum([len(d) for d in documents]).tolist()
    with pytest.raises(IndexError, match="document 5 of 5"):
        documents[5]
    assert repr(documents).startswith("<5 documents of Tokens(")


def test_the_object(sharded: Tokens) -> None:
    assert sharded.dtype == np.uint16
    assert sharded.fingerprint == TOKENIZER.fingerprint
    assert sharded.split == "all"
    assert sharded.manifest == json.loads((sharded.path / "manifest.json").read_bytes())
    assert repr(sharded) == (
        f"Tokens({str(sharded.path)!r}: {len(sharded)} tokens, 5 documents, uint16)"
    )
    again = pickle.loads(pickle.dumps(sharded))
    assert list(again) == list(sharded)
    with Tokens(sharded.path) as tokens:
        part = tokens[:5]
    assert part.tolist() == list(sharded)[:5]
    with pytest.raises(ValueError, match="closed"):
        tokens[0]
    assert not part.flags.writeable


def test_tokens_stay_what_they_are_after_a_change_of_directory(
    sharded: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sharded.path.parent)
    tokens = Tokens(sharded.path.name)
    monkeypatch.chdir(tmp_path)
    assert list(tokens) == list(sharded)
    assert tokens.tokenizer == sharded.tokenizer
    tokens.verify()


def test_files_are_mapped_on_first_access(sharded: Tokens) -> None:
    tokens = Tokens(sharded.path)
    assert not tokens._maps
    tokens[10]
    assert list(tokens._maps or ()) == ["shard-00001.npy"]


def test_a_slice_of_one_file_is_a_view(sharded: Tokens) -> None:
    part = sharded[8:13]
    assert np.shares_memory(part, sharded[7:14])


# --- files ------------------------------------------------------------------------------------


def test_shards_are_numpys_own_files(sharded: Tokens, tmp_path: Path) -> None:
    for shard in sharded.manifest["splits"][0]["shards"]:
        for entry in (shard, shard["docs"]):
            data = (sharded.path / entry["file"]).read_bytes()
            np.save(tmp_path / "array.npy", np.load(sharded.path / entry["file"]))
            assert (tmp_path / "array.npy").read_bytes() == data
            assert len(data) == entry["bytes"]
            assert f"{zlib.crc32(data):08x}" == entry["crc32"]
    assert np.load(sharded.path / "shard-00000.npy", mmap_mode="r").dtype == "<u2"


def test_raw_files_for_nanogpt(tmp_path: Path) -> None:
    [path] = write(tmp_path, [b"the" + EOT.encode() + b"a" * 999])
    TOKENIZER.encode_files(path, tmp_path / "out", format="bin", val_fraction=0.5, seed=4)
    for name in ("train", "val"):
        data = np.memmap(tmp_path / "out" / f"{name}.bin", dtype=np.uint16, mode="r")
        assert data.tolist() == list(Tokens(tmp_path / "out", split=name))


# Megatron-LM's numbers for types.
MEGATRON = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}


class MegatronReader:
    """Reads an index as Megatron-LM's IndexedDataset does."""

    def __init__(self, prefix: Path) -> None:
        index = prefix.with_suffix(".idx").read_bytes()
        assert index[:9] == b"MMIDIDX\x00\x00"
        assert int.from_bytes(index[9:17], "little") == 1
        self.dtype = MEGATRON[index[17]]
        n, n_documents = np.frombuffer(index, np.uint64, 2, 18).tolist()
        self.lengths = np.frombuffer(index, np.int32, n, 34)
        self.pointers = np.frombuffer(index, np.int64, n, 34 + 4 * n)
        self.documents = np.frombuffer(index, np.int64, n_documents, 34 + 12 * n)
        assert len(index) == 34 + 12 * n + 8 * n_documents
        self.data = prefix.with_suffix(".bin").read_bytes()

    def __getitem__(self, number: int) -> list[int]:
        pointer, length = int(self.pointers[number]), int(self.lengths[number])
        return np.frombuffer(self.data, self.dtype, length, pointer).tolist()


@pytest.mark.parametrize("large", [False, True])
def test_megatron(tmp_path: Path, large: bool) -> None:
    tokenizer = TOKENIZER
    if large:
        # From 65,500 ids on, Megatron-LM uses 32 bits.
        vocab = tokenizer.vocab | {65_499: b"never"}
        tokenizer = bytemill.Tokenizer(vocab, MERGES, {EOT: END})
    paths = write(tmp_path, [b"the cat" + EOT.encode() + b"sat", b"", EOT.encode(), b"x" * 3000])
    tokens = tokenizer.encode_files(paths, tmp_path / "out", format="megatron")
    reader = MegatronReader(tmp_path / "out" / "tokens")
    assert reader.dtype == (np.int32 if large else np.uint16)
    assert tokens.dtype == reader.dtype
    assert [reader[n] for n in range(len(reader.lengths))] == [d.tolist() for d in tokens.documents]
    assert reader.documents.tolist() == list(range(len(tokens.documents) + 1))
    assert b"".join(tokens.decode(tokenizer)) == b"".join(path.read_bytes() for path in paths)


def test_the_manifest_records_its_inputs(sharded: Tokens) -> None:
    manifest = sharded.manifest
    assert manifest["kind"] == "bytemill tokens"
    assert manifest["version"] == 1
    assert manifest["tokenizer"] == {
        "fingerprint": TOKENIZER.fingerprint,
        "vocab_size": len(TOKENIZER),
        "max_id": TOKENIZER.max_id,
    }
    assert manifest["end_of_text"] == END
    assert manifest["splits"][0]["appended"] == [1, 2, 3, 4]
    for source in manifest["sources"]:
        status = Path(source["path"]).stat()
        assert (source["size"], source["mtime_ns"]) == (status.st_size, status.st_mtime_ns)


def test_a_large_corpus(corpus: Path, tokenizer: bytemill.Tokenizer, tmp_path: Path) -> None:
    text = corpus.read_bytes()
    one = tokenizer.encode_files(corpus, tmp_path / "one", threads=1, shard_tokens=300_000)
    assert np.array_equal(np.asarray(one)[:-1], tokenizer.encode_array(text))
    assert one[-1] == tokenizer.special_tokens[EOT]
    assert len(one.documents) == text.count(EOT.encode()) + 1
    assert b"".join(one.decode(tokenizer)) == text
    tokenizer.encode_files(corpus, tmp_path / "many", threads=4, shard_tokens=300_000)
    for path in (tmp_path / "one").iterdir():
        assert (tmp_path / "many" / path.name).read_bytes() == path.read_bytes()
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "val_fraction": 0.2}
    train = tokenizer.encode_files(corpus, tmp_path / "shuffled", **options)
    val = Tokens(tmp_path / "shuffled", split="val")
    assert len(train) + len(val) == len(one)
    assert 0 < len(val.documents) < len(one.documents) // 2
    assert train.documents[0].tolist() != one.documents[0].tolist()
    as_set = lambda *parts: sorted(d.tobytes() for p in parts for d in p.documents)  # noqa: E731
    assert as_set(train, val) == as_set(one)
    train.verify(tokenizer, source=corpus)


# --- which end-of-text, which type ------------------------------------------------------------


def tokenizer_with(*specials: str) -> bytemill.Tokenizer:
    return bytemill.Tokenizer({i: bytes([i]) for i in range(256)}, [], specials)


def test_the_end_of_text(tmp_path: Path) -> None:
    [path] = write(tmp_path, [b"a</s>b<x>"])

    def documents(tokenizer: bytemill.Tokenizer, **options: Any) -> int:
        tokens = tokenizer.encode_files(path, tmp_path / "out", overwrite=True, **options)
        return len(tokens.documents)

    assert documents(tokenizer_with("</s>", "<x>")) == 2
    assert documents(tokenizer_with("<x>")) == 1
    assert documents(tokenizer_with("<x>", "<y>", "</s>"), eot="<x>") == 1
    assert documents(tokenizer_with("<x>", "<y>"), append_eot=False) == 1
    assert documents(tokenizer_with(), append_eot=False) == 1
    for tokenizer, named in [
        (tokenizer_with(), "no special token"),
        (tokenizer_with("<x>", "<y>"), "several special tokens"),
        (tokenizer_with("</s>", "<eos>"), "several special tokens"),
    ]:
        with pytest.raises(bytemill.ConfigError, match=named) as caught:
            documents(tokenizer)
        assert "append_eot=False" in str(caught.value.hint)
    with pytest.raises(bytemill.ConfigError, match="'<z>' is not a special token"):
        documents(tokenizer_with("<x>"), eot="<z>")


def test_the_type_of_ids(tmp_path: Path) -> None:
    [path] = write(tmp_path, [b"some text"])
    vocab = {i: bytes([i]) for i in range(256)}
    for largest, name in ((65_535, "uint16"), (65_536, "uint32")):
        tokenizer = bytemill.Tokenizer(vocab, [], {EOT: largest})
        tokens = tokenizer.encode_files(path, tmp_path / name)
        assert (tokens.dtype.name, tokens[-1]) == (name, largest)
    with pytest.raises(bytemill.ConfigError, match="ids up to 65536 do not fit"):
        tokenizer.encode_files(path, tmp_path / "no", dtype=np.uint16)
    wide = tokenizer_with(EOT).encode_files(path, tmp_path / "wide", dtype=np.uint32)
    assert wide.dtype == np.uint32
    huge = bytemill.Tokenizer(vocab, [], {EOT: 2**31})
    with pytest.raises(bytemill.ConfigError, match="do not fit"):
        huge.encode_files(path, tmp_path / "no", format="megatron")
    for dtype in ("int32", "float64", np.int64):
        with pytest.raises(bytemill.ConfigError, match="dtype"):
            TOKENIZER.encode_files(path, tmp_path / "no", dtype=dtype)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"format": "parquet"}, bytemill.ConfigError, "format"),
        ({"shard_tokens": 0}, bytemill.ConfigError, "shard_tokens must be ≥ 1"),
        ({"shard_tokens": -1}, bytemill.ConfigError, "shard_tokens must be from 0"),
        ({"seed": -1}, bytemill.ConfigError, "seed must be from 0"),
        ({"val_fraction": 1.5}, bytemill.ConfigError, "val_fraction"),
        ({"val_fraction": float("nan")}, bytemill.ConfigError, "val_fraction"),
        ({"threads": 0}, bytemill.ConfigError, "threads must be"),
        ({"shard_tokens": 1.5}, TypeError, "shard_tokens must be an integer, not float"),
        ({"shard_tokens": "1M"}, TypeError, "shard_tokens must be an integer, not str"),
        ({"seed": 1.5}, TypeError, "seed must be an integer, not float"),
        ({"threads": "2"}, TypeError, "threads must be an integer, not str"),
        ({"resume": True, "overwrite": True}, bytemill.ConfigError, "contradicts"),
        ({"out": "tokens.bin"}, bytemill.ConfigError, "directory"),
        ({"out": "."}, bytemill.ConfigError, "is in the output directory"),
        ({"out": "missing/tokens"}, FileNotFoundError, "missing"),
        ({"out": "000.txt/"}, OSError, "000.txt"),
        ({"corpus": "missing.txt"}, FileNotFoundError, "missing"),
        ({"corpus": "001.txt"}, bytemill.CorpusError, "no text"),
        ({"corpus": "002.txt"}, bytemill.CorpusError, "binary"),
        ({"corpus": iter(["text"]), "resume": True}, bytemill.ConfigError, "read again"),
        ({"corpus": iter(["text", 7])}, TypeError, "item 1 is int"),
    ],
)
def test_impossible_requests(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    error: type[Exception],
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(), [b"some text", b"", b"PK\x03\x04\x00\x00"])
    with pytest.raises(error, match=named):
        TOKENIZER.encode_files(**{"corpus": "000.txt", "out": "tokens"} | options)
    assert not Path("tokens/manifest.json").exists()


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("content", [b"\n\n", b'{"text": null}\n'])
def test_no_documents_replace_no_tokens(tmp_path: Path, content: bytes, shuffle: bool) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    write(tmp_path, [b"some text"])
    corpus = bytemill.Corpus(tmp_path / "x.jsonl", null="skip")
    empty = TOKENIZER.encode_files(corpus, tmp_path / "empty", shuffle=shuffle)
    assert (len(empty), len(empty.documents)) == (0, 0)
    tokens = TOKENIZER.encode_files(tmp_path / "000.txt", tmp_path / "tokens")
    with pytest.raises(bytemill.CorpusError, match="contains no"):
        TOKENIZER.encode_files(corpus, tmp_path / "tokens", shuffle=shuffle, overwrite=True)
    assert not (tmp_path / "tokens/.partial").exists()
    assert bytemill.verify_tokens(tmp_path / "tokens") == []
    assert len(bytemill.Tokens(tmp_path / "tokens")) == len(tokens)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_pipes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(bytemill.CorpusError, match=r"no text|not a regular file"):
        TOKENIZER.encode_files(tmp_path / "pipe", tmp_path / "out")
    write(tmp_path, [b"text"])
    with pytest.raises(bytemill.CorpusError, match="not a regular file"):
        TOKENIZER.encode_files([tmp_path / "000.txt", tmp_path / "pipe"], tmp_path / "out")
