"""/api/write: events of samples, with probabilities and alternatives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("starlette")

import bytemill
import serving
import small_lm
from bytemill import lm


@pytest.fixture(scope="module")
def tokenizer() -> bytemill.Tokenizer:
    return serving.small_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return small_lm.model(vocab_size=tokenizer.max_id + 1).eval()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Iterator[Any]:
    place = tmp_path_factory.mktemp("runs")
    small_lm.run(place / "tiny", tokenizer)
    with serving.client(place, device="cpu") as client:
        yield client


@pytest.fixture(scope="module")
def run(client: Any) -> str:
    return str(client.get("/api/catalog").json()["runs"][0]["id"])


def events(client: Any, run: str, **body: Any) -> list[dict[str, Any]]:
    response = client.post("/api/write", json={"run": run} | body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    texts = response.text.split("\n\n")
    assert texts.pop() == ""
    return [json.loads(text.removeprefix("data: ")) for text in texts]


def of_kind(found: list[dict[str, Any]], kind: str, **fields: Any) -> list[dict[str, Any]]:
    return [
        each
        for each in found
        if each["type"] == kind and all(each[name] == value for name, value in fields.items())
    ]


def test_samples_with_probabilities(client: Any, run: str, model: Any, tokenizer: Any) -> None:
    found = events(
        client, run, prompt="the cat", max_tokens=30, n=3, seed=4, alternatives=5, top_p=0.9,
        step="last",
    )  # fmt: skip
    prompt = tokenizer.encode("the cat")
    assert found[0]["type"] == "start"
    assert found[0]["seed"] == 4
    assert [token["id"] for token in found[0]["prompt"]] == prompt
    assert "".join(token["text"] for token in found[0]["prompt"]) == "the cat"
    expected = lm.generate_ids(model, prompt, max_tokens=30, n_samples=3, seed=4, top_p=0.9)
    for sample, ids in enumerate(expected):
        tokens = of_kind(found, "token", sample=sample)
        assert [token["id"] for token in tokens] == ids
        assert "".join(token["text"] for token in tokens) == tokenizer.decode(ids)
        assert b"".join(bytes.fromhex(token["hex"]) for token in tokens) == (
            tokenizer.decode_bytes(ids)
        )
        shares = model(torch.tensor(prompt + ids)[:32]).softmax(-1).detach()[len(prompt) - 1 :]
        for token, row in zip(tokens, shares):
            assert token["p"] == pytest.approx(float(row[token["id"]]), rel=1e-3)
            top = row.topk(5)
            assert [each["id"] for each in token["top"]] == top.indices.tolist()
            assert [each["p"] for each in token["top"]] == pytest.approx(
                top.values.tolist(), rel=1e-3
            )
            assert set(token["top"][0]) == {"id", "hex", "text", "p"}
        assert of_kind(found, "end", sample=sample) == [
            {"type": "end", "sample": sample, "reason": "length"}
        ]
    assert found[-1]["type"] == "done"
    assert found[-1]["n_tokens"] == 90
    assert found[-1]["seconds"] > 0
    assert found[-1]["tokens_per_second"] > 0


def test_another_token_is_chosen(client: Any, run: str, model: Any, tokenizer: Any) -> None:
    """A sample continues from ids: those before the replaced token, and its replacement."""
    first = events(client, run, prompt="the cat", max_tokens=10, temperature=0, alternatives=2)
    tokens = of_kind(first, "token")
    other = tokens[4]["top"][1]["id"]
    ids = [
        *(token["id"] for token in first[0]["prompt"]), *(t["id"] for t in tokens[:4]), other
    ]  # fmt: skip
    found = events(client, run, ids=ids, max_tokens=5, temperature=0)
    assert [token["id"] for token in found[0]["prompt"]] == ids
    expected = lm.generate_ids(model, ids, max_tokens=5, temperature=0)[0]
    assert [token["id"] for token in of_kind(found, "token")] == expected
    assert all(token["top"] == [] for token in of_kind(found, "token"))


def test_seeds(client: Any, run: str) -> None:
    first, second = (events(client, run, prompt="a", max_tokens=20) for _ in range(2))
    assert first[0]["seed"] != second[0]["seed"]
    again = events(client, run, prompt="a", max_tokens=20, seed=first[0]["seed"])
    assert of_kind(again, "token") == of_kind(first, "token")


def test_stop(client: Any, run: str, model: Any, tokenizer: Any) -> None:
    whole = lm.generate_text(model, tokenizer, "the", max_tokens=30, seed=1)[0]
    found = events(client, run, prompt="the", max_tokens=30, seed=1, stop=[whole[8:11]])
    text = "".join(token["text"] for token in of_kind(found, "token"))
    assert text == whole[: whole.index(whole[8:11])]
    assert of_kind(found, "end")[0]["reason"] == "stop"


def test_wrong_requests(client: Any, run: str) -> None:
    good = {"run": run, "prompt": "a", "max_tokens": 1}
    for wrong, status, message in (
        ({"run": "other"}, 404, "no run"),
        ({"run": None}, 400, "run must be"),
        ({"step": "first"}, 404, "no checkpoint"),
        ({"step": 8}, 404, "no checkpoint"),
        ({"step": True}, 400, "step must be"),
        ({"prompt": 5}, 400, "prompt must be"),
        ({"prompt": "the " * 99}, 400, "≤ 32 tokens"),
        ({"ids": [1]}, 400, "ids must be"),
        ({"prompt": None, "ids": [999]}, 400, "id 999"),
        ({"prompt": None, "ids": []}, 400, "the prompt is empty"),
        ({"n": 17}, 400, "n must be"),
        ({"alternatives": 21}, 400, "alternatives must be"),
        ({"temperature": float("inf")}, 400, ""),
        ({"colour": 1}, 400, "unknown field"),
    ):
        body = json.dumps(good | wrong)
        response = client.post("/api/write", content=body)
        assert message in serving.error_of(response, status), wrong
    assert events(client, **good, step=7)[-1]["n_tokens"] == 1


def test_a_new_text(client: Any, run: str, tokenizer: Any) -> None:
    for prompt in ({}, {"prompt": ""}):
        found = events(client, run, max_tokens=2, **prompt)
        ids = [token["id"] for token in found[0]["prompt"]]
        assert ids == [tokenizer.special_tokens["<|endoftext|>"]]


def test_surrogates(client: Any, run: str) -> None:
    response = client.post(
        "/api/write",
        content=f'{{"run":"{run}","prompt":"a\\ud800","max_tokens":2,"stop":"\\udc00"}}',
    )
    assert response.status_code == 200
