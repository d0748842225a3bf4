"""/v1 with OpenAI's own client against a running server."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

torch = pytest.importorskip("torch")
openai = pytest.importorskip("openai")
pytest.importorskip("starlette")
pytest.importorskip("jinja2")
httpx2 = pytest.importorskip("httpx2")

import bytemill
import serving
import small_lm
from bytemill import lm

END = "<|endoftext|>"
TURN = "<|turn|>"
TEMPLATE = """
{%- for message in messages %}
{{ "<|turn|>" + message.role + ":" + message.content }}
{%- endfor %}
{%- if messages | length > 5 %}{{ raise_exception("too many turns") }}{% endif %}
{%- if add_generation_prompt %}{{ "<|turn|>bot:" }}{% endif %}
"""


@pytest.fixture(scope="module")
def tokenizer() -> bytemill.Tokenizer:
    return bytemill.train_tokenizer(
        iter([serving.TEXT]), vocab_size=310, special_tokens=[END, TURN]
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    place = tmp_path_factory.mktemp("runs")
    small_lm.run(place / "tiny", tokenizer)
    small_lm.run(place / "chatty", tokenizer, context_length=64)
    (place / "chatty" / "chat_template.jinja").write_text(TEMPLATE)
    small_lm.run(place / "bare")
    return place


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return small_lm.model(vocab_size=tokenizer.max_id + 1).eval()


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    with serving.running(place, device="cpu", max_batch=4, max_queue=8) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    with new_client(address) as client:
        yield client


def new_client(address: str, **options: Any) -> Any:
    options = {"api_key": "none", "max_retries": 0} | options
    return openai.OpenAI(base_url=f"{address}/v1", **options)


def test_models(client: Any, place: Path) -> None:
    listed = client.models.list().data
    assert {model.id.rpartition("-")[0] for model in listed} == {"tiny", "chatty"}
    for model in listed:
        assert client.models.retrieve(model.id).id == model.id
    for name in ("tiny", "tiny@7", "tiny@last", f"{listed[0].id}@best"):
        assert client.models.retrieve(name).id == name
    for name in ("tinier", "tiny@8", "tiny@", "../tiny", "tiny@" + "7" * 5000):
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve(name)
    with pytest.raises(openai.NotFoundError, match="not a model of this server") as caught:
        client.completions.create(model="other", prompt="x")
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 3},
    {"seed": 4, "top_p": 0.8, "temperature": 0.7},
    {"seed": 5, "top_k": 10, "min_p": 0.02, "repetition_penalty": 1.2},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("stream", [False, True])
def test_texts_are_those_of_generate_text(
    client: Any, model: Any, tokenizer: Any, options: dict[str, Any], stream: bool
) -> None:
    expected = lm.generate_text(model, tokenizer, "the cat", max_tokens=60, n_samples=3, **options)
    own = {name: options[name] for name in options if name in ("top_k", "min_p")}
    penalty = {"repetition_penalty": options.get("repetition_penalty", 1.0)}
    usual = {name: options[name] for name in options if name not in {**own, **penalty}}
    found = client.completions.create(
        model="tiny", prompt="the cat", max_tokens=60, n=3, stream=stream,
        extra_body=own | penalty, **usual,
    )  # fmt: skip
    if not stream:
        assert [choice.text for choice in found.choices] == expected
        return
    texts, reasons = [""] * 3, [None] * 3
    for chunk in found:
        assert chunk.object == "text_completion"
        for choice in chunk.choices:
            assert reasons[choice.index] is None
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
    assert texts == expected
    assert set(reasons) <= {"stop", "length"}


def test_prompts_of_all_kinds(client: Any, model: Any, tokenizer: Any) -> None:
    def ask(prompt: Any, **options: Any) -> list[str]:
        found = client.completions.create(
            model="tiny", prompt=prompt, seed=1, max_tokens=9, **options
        )
        return [choice.text for choice in found.choices]

    def expected(text: str, n: int = 1) -> list[str]:
        return lm.generate_text(model, tokenizer, text, max_tokens=9, n_samples=n, seed=1)

    ids = [tokenizer.encode(text) for text in ("the cat", "a hat")]
    assert ask("the cat") == ask(ids[0]) == ask(["the cat"]) == ask([ids[0]]) == expected("the cat")
    both = [*expected("the cat", 2), *expected("a hat", 2)]
    assert ask(["the cat", "a hat"], n=2) == ask(ids, n=2) == both
    assert ask("") == ask([tokenizer.special_tokens[END]]) == expected("")
    # A special token in text is text.
    assert ask(END) == ask(tokenizer.encode(END, special="none")) != ask("")
    assert ask(["the cat", "a hat"], echo=True) == [
        f"{prompt}{expected(prompt)[0]}" for prompt in ("the cat", "a hat")
    ]
    assert ask(ids[0], echo=True, stream=False) == ["the cat" + expected("the cat")[0]]
    assert ask("the cat") != ask("the cat", extra_body={"seed": 2})
    assert ask("the cat", extra_body={"seed": -5}) == ask("the cat", extra_body={"seed": -5})


def test_echo_in_a_stream(client: Any) -> None:
    options = {"model": "tiny", "prompt": ["the cat", "a"], "seed": 1, "echo": True}
    whole = client.completions.create(**options, logprobs=1)
    for logprobs in (None, 1):
        texts = ["", ""]
        offsets: list[list[int]] = [[], []]
        for chunk in client.completions.create(**options, logprobs=logprobs, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                if choice.logprobs:
                    offsets[choice.index] += choice.logprobs.text_offset
        assert texts == [choice.text for choice in whole.choices]
        if logprobs:
            assert offsets == [choice.logprobs.text_offset for choice in whole.choices]


def test_logprobs_are_those_of_the_model(client: Any, model: Any, tokenizer: Any) -> None:
    found = client.completions.create(
        model="tiny", prompt="the cat sat", max_tokens=12, seed=2, logprobs=4, echo=True
    )
    logprobs, text = found.choices[0].logprobs, found.choices[0].text
    prompt = tokenizer.encode("the cat sat")
    ids = prompt + lm.generate_ids(model, prompt, max_tokens=12, seed=2)[0]
    expected = model(torch.tensor(ids)).log_softmax(-1).detach()
    assert logprobs.token_logprobs[0] is None
    assert logprobs.top_logprobs[0] is None
    assert logprobs.token_logprobs[1:] == pytest.approx(
        [float(row[id]) for row, id in zip(expected, ids[1:])], abs=1e-4
    )
    for token, top, own, row in zip(
        logprobs.tokens[1:], logprobs.top_logprobs[1:], logprobs.token_logprobs[1:], expected
    ):
        assert top[token] == pytest.approx(own)
        likeliest = sorted(top.values(), reverse=True)[:4]
        assert likeliest == pytest.approx(row.topk(4).values.tolist(), abs=1e-4)
        assert len(top) in (4, 5)
    assert len(logprobs.tokens) == len(logprobs.text_offset) == len(ids)
    for token, start in zip(logprobs.tokens, logprobs.text_offset):
        shown = text[start:].lstrip("\ufffd")  # bytes before it that are not UTF-8
        assert token.startswith("bytes:") or shown.startswith(token)
    # Scoring alone, as evaluation harnesses do it.
    scored = client.completions.create(
        model="tiny", prompt=["the cat sat", "a"], max_tokens=0, logprobs=0, echo=True
    )
    assert [choice.text for choice in scored.choices] == ["the cat sat", "a"]
    assert scored.choices[0].logprobs.token_logprobs == logprobs.token_logprobs[: len(prompt)]
    assert scored.usage.completion_tokens == 0


def test_stop(client: Any, model: Any, tokenizer: Any) -> None:
    whole = lm.generate_text(model, tokenizer, "the", max_tokens=40, seed=8)[0]
    stop = whole[9:12]
    expected = lm.generate_text(
        model, tokenizer, "the", max_tokens=40, seed=8, stop=[stop, "never"]
    )[0]
    options = {"model": "tiny", "prompt": "the", "max_tokens": 40, "seed": 8}
    found = client.completions.create(**options, stop=[stop, "never"], logprobs=0)
    assert (found.choices[0].text, found.choices[0].finish_reason) == (expected, "stop")
    # Tokens of the stop string are not returned.
    assert all(start < len(expected) for start in found.choices[0].logprobs.text_offset)
    chunks = list(client.completions.create(**options, stop=stop, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_usage(client: Any, tokenizer: Any) -> None:
    options = {"model": "tiny", "prompt": ["the cat", "a"], "max_tokens": 7, "n": 2}
    usage = client.completions.create(**options, temperature=0).usage
    n_prompt = len(tokenizer.encode("the cat")) + 1
    found = (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
    assert found == (n_prompt, 28, n_prompt + 28)
    chunks = list(
        client.completions.create(
            **options, temperature=0, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage == usage
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("with_usage", [False, True])
def test_the_events_of_a_stream(address: str, with_usage: bool) -> None:
    options = {"include_usage": with_usage, "include_obfuscation": False}
    asked = {"prompt": "a", "max_tokens": 2, "stream": True, "echo": True, "temperature": 0}
    body = asked | {"model": "tiny", "stream_options": options}
    request = Request(f"{address}/v1/completions", json.dumps(body).encode())
    with urlopen(request) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = response.read().decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: {") for event in events[:-2])
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    # As OpenAI documents it: null in all chunks but the last.
    assert [chunk.get("usage", "absent") is None for chunk in chunks[:-1]] == (
        [with_usage] * (len(chunks) - 1)
    )
    assert ("usage" in chunks[-1]) == with_usage


WRONG: list[tuple[dict[str, Any], str | None]] = [
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [[1], "a", None]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [9999]}, "prompt"),
    ({"prompt": "the " * 999}, "prompt"),
    ({"prompt": ["a"] * 129}, "prompt"),
    ({"prompt": ["a"] * 65, "n": 2}, "n"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"best_of": 3}, "best_of"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 10**9}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"extra_body": {"top_k": -2}}, "top_k"),
    ({"extra_body": {"min_p": 1.5}}, "min_p"),
    ({"extra_body": {"repetition_penalty": 0}}, "repetition_penalty"),
    ({"extra_body": {"seed": 2**64}}, "seed"),
    ({"extra_body": {"seeed": 1}}, "seeed"),
    ({"extra_body": {"model": None}}, "model"),
    ({"logprobs": 21}, "logprobs"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": ""}, "stop"),
    ({"extra_body": {"stop": [1]}}, "stop"),
    ({"suffix": "end"}, "suffix"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"presence_penalty": 0.5}, "presence_penalty"),
    ({"frequency_penalty": 0.5}, "frequency_penalty"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"include_costs": True}}, "include_costs"),
    ({"extra_body": {"stream": "yes"}}, "stream"),
    ({"extra_body": {"echo": 1}}, "echo"),
]


@pytest.mark.parametrize(("options", "param"), WRONG, ids=[str(w)[:60] for w, _ in WRONG])
def test_wrong_requests(client: Any, options: dict[str, Any], param: str | None) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**({"model": "tiny", "prompt": "a"} | options))
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"
    assert caught.value.message


def test_harmless_options_are_accepted(client: Any) -> None:
    found = client.completions.create(
        model="tiny", prompt="a", user="me", best_of=1, presence_penalty=0, suffix="",
        extra_body={"top_k": -1, "logit_bias": {}, "metadata": None, "temperature": 1e-30},
    )  # fmt: skip
    assert found.usage.completion_tokens <= 16


def test_a_long_prompt_has_its_code(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="at most 32 tokens") as caught:
        client.completions.create(model="tiny", prompt=[1] * 33)
    assert caught.value.code == "context_length_exceeded"


def test_a_run_without_a_tokenizer(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="has no tokenizer"):
        client.completions.create(model="bare", prompt=[1])


# --- chat ---------------------------------------------------------------------------------------

HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the cat?"}]
PROMPT = f"{TURN}system:Be brief.{TURN}user:the cat?{TURN}bot:"


@pytest.fixture(scope="module")
def chatty(tokenizer: Any) -> Any:
    return small_lm.model(vocab_size=tokenizer.max_id + 1, context_length=64).eval()


@pytest.mark.parametrize("stream", [False, True])
def test_chat(client: Any, chatty: Any, tokenizer: Any, stream: bool) -> None:
    ids = tokenizer.encode(PROMPT)
    specials = list(tokenizer.special_tokens.values())
    expected = [
        tokenizer.decode(sample)
        for sample in lm.generate_ids(
            chatty, ids, max_tokens=20, n_samples=2, seed=3, stop_ids=specials
        )
    ]
    options = {"model": "chatty", "messages": HELLO, "max_tokens": 20, "n": 2, "seed": 3}
    if not stream:
        found = client.chat.completions.create(**options, logprobs=True, top_logprobs=2)
        assert [choice.message.content for choice in found.choices] == expected
        assert {choice.message.role for choice in found.choices} == {"assistant"}
        assert found.usage.prompt_tokens == len(ids)
        for choice in found.choices:
            content = choice.logprobs.content
            data = b"".join(bytes(token.bytes) for token in content)
            assert data.decode(errors="replace") == choice.message.content
            assert all(len(token.top_logprobs) == 2 for token in content)
        return
    texts = ["", ""]
    chunks = list(
        client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
    )
    for chunk in chunks:
        assert chunk.object == "chat.completion.chunk"
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == expected
    assert [chunk.choices[0].delta.role for chunk in chunks[:2]] == ["assistant"] * 2
    assert chunks[-1].usage.prompt_tokens == len(ids)


def test_chat_without_a_limit_fills_the_context(client: Any, tokenizer: Any) -> None:
    found = client.chat.completions.create(model="chatty", messages=HELLO, temperature=0)
    assert found.usage.total_tokens <= 64
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    found = client.chat.completions.create(
        model="chatty", messages=parts, max_completion_tokens=3, temperature=0
    )
    assert found.usage.completion_tokens <= 3


def test_an_answer_can_be_sent_back(client: Any) -> None:
    options = {"model": "chatty", "max_tokens": 3, "seed": 1, "stop": "<"}
    answer = client.chat.completions.create(messages=HELLO, **options).choices[0].message
    client.chat.completions.create(messages=[*HELLO, answer], **options)
    client.chat.completions.create(messages=[*HELLO, answer.model_dump()], **options)


def test_wrong_chats(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="has no chat template") as caught:
        client.chat.completions.create(model="tiny", messages=HELLO)
    assert caught.value.code == "no_chat_template"
    user = {"role": "user", "content": "x"}
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    for options, message in (
        ({"messages": []}, "messages must be"),
        ({"messages": [{"content": "x"}]}, "must have a role"),
        ({"messages": [image]}, "must be text"),
        ({"messages": [{"role": "user", "content": f"{TURN}bot:"}]}, "special token"),
        ({"messages": [user] * 6}, "too many turns"),
        ({"messages": [user | {"name": "Ann"}]}, "name of a message is not supported"),
        ({"messages": [user | {"tool_calls": [{}]}]}, "tool_calls of a message"),
        ({"messages": [user], "tools": [{"type": "function"}]}, "tools is not supported"),
        ({"messages": [user], "top_logprobs": 3}, "logprobs=true"),
        ({"messages": [user], "response_format": {"type": "json_object"}}, "not supported"),
    ):
        with pytest.raises(openai.BadRequestError, match=message):
            client.chat.completions.create(model="chatty", **options)


# --- many at once -------------------------------------------------------------------------------


def test_clients_at_once_get_what_each_gets_alone(address: str, model: Any, tokenizer: Any) -> None:
    def ask(number: int) -> str:
        with new_client(address) as own:
            found = own.completions.create(
                model="tiny", prompt="the cat"[: 1 + number], max_tokens=40 + number, seed=number
            )
        return str(found.choices[0].text)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(8)))
    assert found == [
        lm.generate_text(model, tokenizer, "the cat"[: 1 + n], max_tokens=40 + n, seed=n)[0]
        for n in range(8)
    ]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Makes each batch step wait 5 ms; set the event to end that."""
    hurry, step = threading.Event(), lm.DecodeBatch.step

    def slower(batch: Any) -> Any:
        hurry.wait(0.005)
        return step(batch)

    monkeypatch.setattr(lm.DecodeBatch, "step", slower)
    return hurry


@contextlib.contextmanager
def generating(address: str, wait: bool = True, **options: Any) -> Iterator[None]:
    """A client that requests a long text and disconnects; with `wait`, after some of it arrived."""
    host, _, port = address.removeprefix("http://").partition(":")
    asked = {"model": "tiny", "prompt": "a", "max_tokens": 30_000, "temperature": 0}
    body = json.dumps(asked | {"stream": True} | options).encode()
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        found = b""
        while wait and b'"text"' not in found:
            found += connection.recv(1000)
        yield


def test_a_full_queue_answers_429(place: Path, slow: threading.Event) -> None:
    settings = {"device": "cpu", "max_batch": 1, "max_queue": 1}
    with serving.running(place, **settings) as address, new_client(address) as client:
        refusals = []

        def refused() -> bool:
            try:
                client.completions.create(model="tiny", prompt="a", max_tokens=1, timeout=0.5)
            except openai.APITimeoutError:
                return False
            except openai.RateLimitError as error:
                refusals.append(error)
            return True

        with generating(address), generating(address, wait=False):
            # The second has arrived when a third one is refused.
            serving.until(refused)
            [refusal] = refusals
            assert refusal.response.headers["retry-after"] == "1"
            assert refusal.code == "rate_limit_exceeded"
            # The server stays responsive.
            assert len(client.models.list().data) == 2
            with urlopen(f"{address}/health") as response:
                assert json.load(response) == {"status": "ok"}
        options = {"model": "tiny", "prompt": "a", "max_tokens": 1}
        with new_client(address, max_retries=5) as patient:
            assert patient.completions.create(**options).usage.completion_tokens <= 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnected_client_frees_its_place(
    place: Path, slow: threading.Event, stream: bool
) -> None:
    settings = {"device": "cpu", "max_batch": 1, "max_queue": 8}
    with serving.running(place, **settings) as address:
        with generating(address, wait=stream, stream=stream):
            threading.Event().wait(0.5)
        # Its place is free at once: 30,000 steps of 5 ms would take minutes.
        with new_client(address, timeout=30) as client:
            found = client.completions.create(model="tiny", prompt="a", max_tokens=2)
        assert found.usage.completion_tokens <= 2


def test_models_that_generate_stay_in_memory(place: Path, slow: threading.Event) -> None:
    settings = {"device": "cpu", "max_models": 1}
    with serving.running(place, **settings) as address, new_client(address) as client:

        def other() -> bool:
            try:
                client.completions.create(model="chatty", prompt="a", max_tokens=1)
            except openai.RateLimitError:
                return False
            return True

        busy = pytest.raises(openai.RateLimitError, match="all models in memory are generating")
        with generating(address), busy:
            client.completions.create(model="chatty", prompt="a")
        serving.until(other)
        client.completions.create(model="tiny", prompt="a", max_tokens=1)


def test_tokenize_and_detokenize(address: str, tokenizer: Any) -> None:
    with httpx2.Client(base_url=address) as http:
        text = f"naïve café {END}"
        found = http.post("/tokenize", json={"model": "tiny", "prompt": text}).json()
        ids = tokenizer.encode(text, special="none")
        assert found == {"count": len(ids), "max_model_len": 32, "tokens": ids}
        empty = http.post("/tokenize", json={"model": "tiny", "prompt": ""}).json()
        assert (empty["count"], empty["tokens"]) == (0, [])
        body = {"model": "tiny", "tokens": ids}
        assert http.post("/detokenize", json=body).json() == {"prompt": text}
        for path, wrong in (
            ("/tokenize", {"model": "tiny"}),
            ("/tokenize", {"model": "tiny", "prompt": 5}),
            ("/detokenize", {"model": "tiny", "tokens": [99999]}),
            ("/detokenize", {"model": "tiny", "tokens": "x"}),
            ("/detokenize", {"model": "bare", "tokens": [1]}),
        ):
            serving.error_of(http.post(path, json=wrong), 400)
