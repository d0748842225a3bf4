"""/api for the page Tokens."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bytemill
import serving
from bytemill.serve.vocabulary import VocabularyIndex


@pytest.fixture(scope="module")
def tokenizer() -> bytemill.Tokenizer:
    return serving.small_tokenizer()


@pytest.fixture(scope="module")
def place(tokenizer: bytemill.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tokens")
    tokenizer.save(place / "tokenizer.json")
    return place


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[Any]:
    with serving.client(place) as client:
        yield client


@pytest.fixture(scope="module")
def id(client: Any) -> str:
    entries = client.get("/api/catalog").json()["tokenizers"]
    return str(next(entry["id"] for entry in entries if entry["kind"] == "file"))


def tokenize(client: Any, id: str, text: str, **options: Any) -> Any:
    # Not json=, which refuses lone surrogates.
    body = json.dumps({"tokenizer": id, "text": text} | options)
    return client.post("/api/tokenize", content=body)


@pytest.mark.parametrize("text", ["", "the cat", "naïve — 猫 🐈\n", "a<|endoftext|>b", "\0\x1b"])
@pytest.mark.parametrize("special", ["all", "none"])
def test_tokens_of_a_text(
    client: Any, id: str, tokenizer: bytemill.Tokenizer, text: str, special: Any
) -> None:
    found = tokenize(client, id, text, special=special).json()
    ids = tokenizer.encode(text, special=special)
    assert found["ids"] == ids
    ends, end = [], 0
    for each in ids:
        end += len(tokenizer.token_bytes(each))
        ends.append(end)
    assert found["ends"] == ends
    assert found["n_bytes"] == len(text.encode())


def test_lone_surrogates(client: Any, id: str, tokenizer: bytemill.Tokenizer) -> None:
    found = tokenize(client, id, "a\ud800b").json()
    assert found["ids"] == tokenizer.encode("a\ud800b")
    assert found["n_bytes"] == 5


def test_a_megabyte(client: Any, id: str, tokenizer: bytemill.Tokenizer) -> None:
    text = (serving.TEXT * 2000)[:1_000_000]
    began = time.perf_counter()
    found = tokenize(client, id, text).json()
    assert found["ids"] == tokenizer.encode(text)
    assert time.perf_counter() - began < 20


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("", 400, "not JSON"),
        ("[]", 400, "must be a JSON object"),
        ("{}", 400, "must be strings"),
        ('{"tokenizer": "ID", "text": 3}', 400, "must be strings"),
        ('{"tokenizer": ["ID"], "text": ""}', 400, "must be strings"),
        ('{"tokenizer": "ID", "text": "", "special": "error"}', 400, "must be all or none"),
        ('{"tokenizer": "ID", "text": "", "special": ["x"]}', 400, "must be all or none"),
        ('{"tokenizer": "none such", "text": ""}', 404, "no tokenizer 'none such'"),
        ('{"text": NaN}', 400, "not JSON"),
        ("[" * 100_000, 400, "nested too deeply"),
        ('{"text": ' + "1" * 10_000 + "}", 400, "digits"),
        (b"\xff\xfe", 400, "not JSON"),
    ],
)
def test_refused_bodies(client: Any, id: str, body: Any, status: int, message: str) -> None:
    if isinstance(body, str):
        body = body.replace("ID", id)
    assert message in serving.error_of(client.post("/api/tokenize", content=body), status)


def test_a_text_that_is_too_long(client: Any, id: str) -> None:
    serving.error_of(tokenize(client, id, "x" * ((4 << 20) + 1)), 413)
    # The limit is in bytes.
    serving.error_of(client.post(
        "/api/tokenize",
        content=json.dumps({"tokenizer": id, "text": "é" * (3 << 20)}, ensure_ascii=False).encode(),
    ), 413)  # fmt: skip


def test_facts(client: Any, id: str) -> None:
    found = client.get(f"/api/tokenizers/{id}").json()
    assert found["id"] == id
    assert found["vocab_size"] == 300
    assert found["special_tokens"] == ["<|endoftext|>"]
    assert found["special_ids"] == {"<|endoftext|>": 299}
    assert sum(found["lengths"].values()) == 299
    assert "Latin" in found["scripts"]
    serving.error_of(client.get("/api/tokenizers/none"), 404)


def test_a_token_and_its_merges(client: Any, id: str, tokenizer: bytemill.Tokenizer) -> None:
    number = tokenizer.token_id(" the")
    found = client.get(f"/api/tokenizers/{id}/tokens/{number}").json()
    assert found["text"] == " the"
    assert found["hex"] == "20746865"
    assert not found["special"]
    merges = tokenizer.merges

    def check(node: dict[str, Any]) -> bytes:
        token = bytes.fromhex(node["hex"])
        assert tokenizer.token_bytes(node["id"]) == token
        if not node["parts"]:
            assert len(token) == 1
            assert node["rank"] is None
            return token
        left, right = map(check, node["parts"])
        assert merges[node["rank"]] == (left, right)
        assert left + right == token
        return token

    assert check(found["tree"]) == b" the"
    near = [each["id"] for each in found["neighbours"]]
    assert near == [*range(number - 5, number), *range(number + 1, number + 6)]
    last = client.get(f"/api/tokenizers/{id}/tokens/299").json()
    assert last["special"]
    assert last["tree"]["parts"] == []
    assert [each["id"] for each in last["neighbours"]] == [294, 295, 296, 297, 298]
    assert (last["count"], last["count_source"], last["count_pending"]) == (None, None, False)
    part = client.get(f"/api/tokenizers/{id}/tokens/195").json()
    assert (part["hex"], part["text"]) == ("c3", None)


@pytest.mark.parametrize("number", ["300", "-1", "x", "1.0", "٣", "9" * 5000, "1e3"])
def test_unknown_tokens(client: Any, id: str, number: str) -> None:
    serving.error_of(client.get(f"/api/tokenizers/{id}/tokens/{number}"), 404)


def test_ids_with_gaps_and_tokens_without_a_merge() -> None:
    vocab = {i: bytes([i]) for i in range(256)}
    vocab |= {1000: b"he", 1001: b"ll", 1002: b"llo", 1003: b"hello", 70_000: b"unreachable"}
    vocabulary = VocabularyIndex(bytemill.Tokenizer(vocab, None, {"<|end|>": 100_000}))
    tree = vocabulary.tree(1003)
    assert [part["text"] for part in tree["parts"]] == ["he", "llo"]
    assert [part["text"] for part in tree["parts"][1]["parts"]] == ["ll", "o"]
    assert vocabulary.tree(70_000)["parts"] == []
    ids = vocabulary.tokenizer.encode_array("hello<|end|>!")
    assert ids.tolist() == [1003, 100_000, 33]
    assert vocabulary.ends(ids).tolist() == [5, 12, 13]
    assert [each["id"] for each in vocabulary.neighbours(100_000, 2)] == [1003, 70_000]
    assert vocabulary.search("1000-1002", "id", 9)[0] == 3


def test_a_tree_is_bounded() -> None:
    vocab = {i: bytes([i]) for i in range(256)} | {256 + i: b"a" * (i + 2) for i in range(2000)}
    merges = [(b"a" * (i + 1), b"a") for i in range(2000)]
    vocabulary = VocabularyIndex(bytemill.Tokenizer(vocab, merges))
    json.dumps(vocabulary.tree(2255))


def test_search(client: Any, id: str, tokenizer: bytemill.Tokenizer) -> None:
    def search(**query: Any) -> Any:
        return client.get(f"/api/tokenizers/{id}/search", params=query)

    found = search(q="at").json()
    wanted = [id for id, token in tokenizer.vocab.items() if b"at" in token]
    assert found["total"] == len(wanted)
    assert sorted(token["id"] for token in found["tokens"]) == wanted
    # The best match comes first.
    assert found["tokens"][0]["text"] == "at"
    assert len(search(q="at", limit=2).json()["tokens"]) == 2
    assert search(q="at", limit=0).json() == {"total": len(wanted), "tokens": []}
    assert search(q="61 74", by="hex").json() == found
    assert search(q="C3", by="hex").json()["tokens"][0] == {
        "id": 195, "hex": "c3", "text": None, "special": False
    }  # fmt: skip
    assert [t["id"] for t in search(q="256-258", by="id").json()["tokens"]] == [256, 257, 258]
    assert search(q="299", by="id").json()["tokens"][0]["special"]
    assert search(q="300", by="id").json() == {"total": 0, "tokens": []}
    assert search(q="").json() == {"total": 0, "tokens": []}
    assert search(q="<|end").json()["total"] == 1
    for query, message in [
        ({"q": "abc", "by": "hex"}, "not bytes in hex"),
        ({"q": "x", "by": "id"}, "not an id"),
        ({"q": "1-", "by": "id"}, "not an id"),
        ({"q": "x", "by": "regex"}, "by must be"),
        ({"q": "x", "limit": "-1"}, "limit must be"),
        ({"q": "x", "limit": "1001"}, "limit must be"),
    ]:
        assert message in serving.error_of(search(**query), 400)


# --- occurrences ----------------------------------------------------------------------------------


def occurrences(client: Any, tokenizer: bytemill.Tokenizer, token: bytes) -> dict[str, Any]:
    entries = client.get("/api/catalog").json()["tokenizers"]
    (id,) = (e["id"] for e in entries if e["fingerprint"] == tokenizer.fingerprint)
    url = f"/api/tokenizers/{id}/tokens/{tokenizer.token_id(token)}"
    for _ in range(500):
        found: dict[str, Any] = client.get(url).json()
        if not found["count_pending"]:
            return found
        time.sleep(0.02)
    raise AssertionError("the counting does not end")


def test_occurrences_in_counts(tmp_path: Path, tokenizer: bytemill.Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    # Skipped: another pattern, and a damaged file.
    bytemill.count_corpus(iter(["x"]), pattern="o200k").save(tmp_path / "a.counts")
    (tmp_path / "b.counts").write_bytes(b"BMCOUNTS?")
    bytemill.count_corpus(iter([serving.TEXT])).save(tmp_path / "c.counts")
    truth = Counter(tokenizer.encode(serving.TEXT))
    with serving.client(tmp_path) as client:
        for token in (b" the", b"t", b"<|endoftext|>"):
            found = occurrences(client, tokenizer, token)
            assert found["count"] == truth[tokenizer.token_id(token)]
            assert found["count_source"] == f"{tmp_path.name}/c.counts"


@pytest.mark.parametrize("val_fraction", [0, 0.5])
def test_occurrences_in_tokens(
    tmp_path: Path, tokenizer: bytemill.Tokenizer, val_fraction: float
) -> None:
    for i in range(8):
        (tmp_path / f"{i}.txt").write_text(serving.TEXT * 3)
    options: dict[str, Any] = {"val_fraction": val_fraction} if val_fraction else {}
    tokenizer.encode_files(
        sorted(tmp_path.glob("*.txt")), tmp_path / "tokens", progress=False, **options
    )
    with serving.client(tmp_path) as client:
        found = occurrences(client, tokenizer, b" the")
        truth = Counter(tokenizer.encode(serving.TEXT * 3))
        assert found["count"] == 8 * truth[tokenizer.token_id(b" the")]
        assert found["count_source"] == f"{tmp_path.name}/tokens"
