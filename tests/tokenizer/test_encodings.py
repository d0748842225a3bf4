"""Named encodings: their definitions against tiktoken; where their vocabularies are found."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tiktoken")

import tiktoken
import tiktoken.model
import tiktoken_ext.openai_public as public
from hypothesis import given
from hypothesis import strategies as st

import bytemill
import generated
import named
import rivals
from bytemill import ConfigError, Tokenizer, TokenizerError, _native, encodings
from bytemill.encodings import sources
from bytemill.encodings.published import ENCODINGS, GPT2_MERGES_URL, RANKS
from bytemill.errors import install_command
from command_line import ok, run

NAMES = list(public.ENCODING_CONSTRUCTORS)
# A package that only tests install has their vocabularies.
SHIPPED = ["cl100k_base", "o200k_base", "o200k_harmony"]
GPT2 = ["gpt2", "r50k_base", "p50k_base", "p50k_edit"]


@pytest.fixture(scope="module")
def small(documents: list[str]) -> named.Small:
    # Runs of spaces are not in r50k, but in p50k.
    text = " ".join("".join(documents[:9]).split())
    return named.Small(bytemill.train_tokenizer(iter([text]), vocab_size=700, special_tokens=[]))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The only folder in which vocabularies are found; packages are not searched."""
    named.isolate(monkeypatch, tmp_path)
    find_spec = sources.importlib.util.find_spec
    monkeypatch.setattr(
        sources.importlib.util,
        "find_spec",
        lambda name: None if name == "bpe_openai" else find_spec(name),
    )
    named.forget()
    yield tmp_path
    named.forget()


@pytest.fixture
def own(alone: Path, small: named.Small, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory BYTEMILL_ENCODINGS, still empty; GPT-2's vocabulary is a small one."""
    small.publish(monkeypatch)
    directory = alone / "own"
    directory.mkdir()
    monkeypatch.setenv("BYTEMILL_ENCODINGS", str(directory))
    return directory


# --- definitions ----------------------------------------------------------------------------------


def test_the_names_are_tiktokens() -> None:
    assert bytemill.list_encoding_names() == list(ENCODINGS) == NAMES
    assert bytemill.encodings is encodings


@pytest.mark.parametrize("name", NAMES)
def test_patterns_and_special_tokens_are_tiktokens(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ENCODINGS[name], rivals.tiktoken_definition(name)
    assert _native.pattern_regex(ours.pattern) == theirs.pattern
    assert {**ours.special_tokens, **ours.aliases} == theirs.special_tokens
    assert len(set(ours.special_tokens.values())) == len(ours.special_tokens)
    asked: dict[str, str] = {}

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        asked[url] = expected_hash
        return {}

    def load_gpt2(vocab_bpe_file: str, **_: str) -> dict[bytes, int]:
        # Its hash is not that of the rank file: test_every_form compares the content.
        asked[vocab_bpe_file] = ""
        return {}

    monkeypatch.setattr(public, "load_tiktoken_bpe", load)
    monkeypatch.setattr(public, "data_gym_to_mergeable_bpe_ranks", load_gpt2)
    said = getattr(public, name)()
    ranks = RANKS[ours.ranks]
    assert asked == ({GPT2_MERGES_URL: ""} if name == "gpt2" else {ranks.url: ranks.sha256})
    assert said.get("explicit_n_vocab", ours.vocab_size) == ours.vocab_size


def test_models_are_tiktokens() -> None:
    from bytemill.encodings.published import MODELS, PREFIXES

    assert MODELS == tiktoken.model.MODEL_TO_ENCODING
    assert PREFIXES == tiktoken.model.MODEL_PREFIX_TO_ENCODING


known = [*tiktoken.model.MODEL_TO_ENCODING, *tiktoken.model.MODEL_PREFIX_TO_ENCODING]


@given(
    st.sampled_from(known), st.integers(0, 30), st.sampled_from(["", "-", "o", "-mini", "x", "é"])
)
def test_names_of_models(name: str, n: int, rest: str) -> None:
    model = name[:n] + rest
    try:
        expected = tiktoken.model.encoding_name_for_model(model)
    except KeyError:
        with pytest.raises(ConfigError, match="unknown model"):
            encodings.encoding_name_for_model(model)
    else:
        assert encodings.encoding_name_for_model(model) == expected


def test_unknown_names_come_with_suggestions() -> None:
    for name, meant in {"cl100k": "did you mean cl100k_base", "nothing": "known: gpt2, "}.items():
        with pytest.raises(ConfigError, match=f"unknown encoding '{name}'\nhint: {meant}"):
            bytemill.get_encoding(name)
    with pytest.raises(ConfigError, match="did you mean gpt-4o"):
        bytemill.encoding_for_model("gpt4o")
    with pytest.raises(ConfigError, match="unknown encoding"):
        encodings.status(["nothing"])


# --- ids ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=SHIPPED)
def published(request: pytest.FixtureRequest) -> tuple[Tokenizer, tiktoken.Encoding]:
    name = request.param
    ranks = rivals.published(ENCODINGS[name].ranks.removesuffix("_base")).ranks
    theirs = rivals.tiktoken_definition(name)._replace(ranks=ranks).tiktoken()
    return bytemill.get_encoding(name), theirs


special_texts = st.lists(
    st.sampled_from(["<|endoftext|>", "<|endofprompt|>", "<|fim_middle|>", "<|start|>", "a ", "<|"])
).map("".join)


@given(generated.texts | special_texts)
def test_ids_are_tiktokens(published: tuple[Tokenizer, tiktoken.Encoding], text: str) -> None:
    ours, theirs = published
    assert ours.encode(text) == theirs.encode(text, allowed_special="all")
    assert ours.encode(text, special="none") == theirs.encode(text, disallowed_special=())


def test_real_text(published: tuple[Tokenizer, tiktoken.Encoding], documents: list[str]) -> None:
    ours, theirs = published
    for text in documents[:20]:
        ids = theirs.encode_ordinary(text)
        assert ours.encode(text, special="none") == ids
        assert ours.decode(ids) == text
    assert ours.max_id + 1 == theirs.n_vocab
    assert len(ours) == ENCODINGS[theirs.name].vocab_size


def test_the_fingerprint_is_that_of_the_live_encoding(
    published: tuple[Tokenizer, tiktoken.Encoding],
) -> None:
    ours, theirs = published
    if theirs.name != "o200k_harmony":
        assert ours == Tokenizer.from_tiktoken(theirs)
        assert bytemill.get_encoding(theirs.name) is ours


@pytest.mark.parametrize("name", GPT2)
def test_every_form(name: str, own: Path, small: named.Small) -> None:
    """The rank file itself, compressed, as tiktoken's cache names it, GPT-2's merges."""
    definition = rivals.tiktoken_definition(name)
    theirs = definition._replace(
        ranks=small.p50k_ranks if name.startswith("p50k") else small.ranks
    ).tiktoken()
    for form, data in small.forms.items():
        (own / form).write_bytes(data)
        named.forget()
        ours = bytemill.get_encoding(name)
        assert ours == Tokenizer.from_tiktoken(theirs)
        text = "the  def    naïve<|endoftext|> <|fim_prefix|>x"
        assert ours.encode(text) == theirs.encode(text, allowed_special="all")
        (at,) = encodings.status([name])
        assert (at.place, at.path) == ("BYTEMILL_ENCODINGS", own / form)
        (own / form).unlink()


def test_p50k_has_a_file_of_its_own(own: Path, small: named.Small) -> None:
    (own / "p50k_base.tiktoken").write_bytes(small.p50k_file)
    assert encodings.available() == ["p50k_base", "p50k_edit"]
    assert bytemill.get_encoding("p50k_edit").token_id(" " * 25) == len(small.ranks) + 24
    (own / "r50k_base.tiktoken").write_bytes(small.file)
    assert encodings.available() == GPT2


# --- places ---------------------------------------------------------------------------------------


def test_places_are_searched_in_order(
    alone: Path, small: named.Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.publish(monkeypatch)
    hub = "models--openai-community--gpt2/snapshots/0123"
    cached = "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4"
    last_first = [
        ("openai-community/gpt2 in the Hugging Face cache", {},
         f"home/.cache/huggingface/hub/{hub}/merges.txt"),
        ("openai-community/gpt2 in the Hugging Face cache", {"XDG_CACHE_HOME": "xdg"},
         f"xdg/huggingface/hub/{hub}/tokenizer.json"),
        ("openai-community/gpt2 in the Hugging Face cache", {"HF_HOME": "hf"},
         f"hf/hub/{hub}/merges.txt"),
        ("openai-community/gpt2 in the Hugging Face cache", {"HF_HUB_CACHE": "hub"},
         f"hub/{hub}/merges.txt"),
        ("bytemill's cache", {}, "xdg/bytemill/encodings/r50k_base.tiktoken"),
        ("tiktoken's cache", {}, f"tmp/data-gym-cache/{cached}"),
        ("tiktoken's cache", {"DATA_GYM_CACHE_DIR": "gym"}, f"gym/{cached}"),
        ("tiktoken's cache", {"TIKTOKEN_CACHE_DIR": "tiktoken"}, f"tiktoken/{cached}"),
        ("BYTEMILL_ENCODINGS", {"BYTEMILL_ENCODINGS": "own"}, "own/r50k_base.tiktoken"),
    ]  # fmt: skip
    if sys.platform != "linux":
        last_first = [each for each in last_first if "xdg" not in each[2]]
    for place, variables, name in last_first:
        path = alone / name
        path.parent.mkdir(parents=True)
        path.write_bytes(small.forms[path.name])
        for variable, value in variables.items():
            monkeypatch.setenv(variable, str(alone / value))
        (found,) = encodings.status(["gpt2"])
        assert (found.place, found.path) == (place, path)
    # To tiktoken, an empty variable means no cache.
    monkeypatch.delenv("BYTEMILL_ENCODINGS")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert encodings.status(["gpt2"])[0].place != "tiktoken's cache"


def test_damaged_files_are_skipped_and_named(own: Path, small: named.Small) -> None:
    data = small.file
    damaged = {
        "r50k_base.tiktoken": data[:-1],
        "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4": data.replace(b"Ig==", b"Iw==", 1),
        "r50k_base.tiktoken.gz": small.forms["r50k_base.tiktoken.gz"][:-30],
        "merges.txt": b"\xff\xfe",
        "vocab.bpe": "日 本\n".encode(),
        "tokenizer.json": b'{"model": {"merges": [[1, 2]]}}',
    }
    for name, content in damaged.items():
        (own / name).write_bytes(content)
    with pytest.raises(TokenizerError) as failure:
        bytemill.get_encoding("r50k_base")
    for name in damaged:
        assert f"{own / name} is not the published file" in failure.value.message
    (own / "6d1cbeee0f20b3d9449abfede4726ed8212e3aee").write_bytes(small.forms["vocab.bpe"])
    assert bytemill.get_encoding("r50k_base").token_id(b"!") == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b'{"model": 1}', b'{"model": {}}', b'{"model": {"merges": 5}}',
     b'{"model": {"merges": [null]}}', b"\x1f\x8b", b"[" * 100_000, b"#version: 0.2", b"\0" * 99],
)  # fmt: skip
def test_no_content_of_a_file_is_a_traceback(own: Path, small: named.Small, content: bytes) -> None:
    for name in small.forms:
        (own / name).write_bytes(content)
    assert encodings.available() == []


def test_everything_but_regular_files_is_skipped(
    own: Path, small: named.Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own / "r50k_base.tiktoken").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(own / "r50k_base.tiktoken.gz")
    (own / "merges.txt").write_bytes(b"x")
    os.truncate(own / "merges.txt", 1 << 34)
    assert encodings.available() == []
    # A compressed file may expand to anything.
    monkeypatch.setattr(sources, "MAX_BYTES", 1 << 16)
    shutil.rmtree(own)
    own.mkdir()
    (own / "r50k_base.tiktoken.gz").write_bytes(named.gzip.compress(bytes(1 << 22)))
    assert encodings.available() == []


def test_a_missing_vocabulary_names_the_ways_to_get_it(alone: Path) -> None:
    assert encodings.available() == []
    for name in NAMES:
        with pytest.raises(TokenizerError) as failure:
            bytemill.get_encoding(name)
        assert failure.value.message == f"{name}: its vocabulary is not on this machine"
        hint = failure.value.hint or ""
        gpt2 = name in GPT2
        for way in (
            "openai-community/gpt2" if gpt2 else install_command("encodings"),
            f"bytemill encodings --download {name};",
            f"set BYTEMILL_ENCODINGS to a directory with {ENCODINGS[name].ranks}.tiktoken;",
            "set TIKTOKEN_CACHE_DIR",
        ):
            assert way in hint
    # The next call looks again.
    (alone / "tmp" / "data-gym-cache").mkdir()
    cached = alone / "tmp" / "data-gym-cache" / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
    cached.write_bytes(rivals.rank_file("cl100k"))
    assert bytemill.get_encoding("cl100k_base").encode("hello world") == [15339, 1917]


def test_no_home(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert encodings.available() == []


def test_the_package_is_found_but_not_imported() -> None:
    code = """
import sys, bytemill
heavy = {"bpe_openai", "tiktoken", "huggingface_hub", "requests", "urllib.request", "http.client"}
print(bytemill.encoding_for_model("gpt-4o").encode("hello"), heavy & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[24912] set()\n"


def test_threads_share_one_object(own: Path, small: named.Small) -> None:
    (own / "r50k_base.tiktoken").write_bytes(small.file)
    first = bytemill.get_encoding("gpt2")
    found: list[Tokenizer] = []
    threads = [
        threading.Thread(target=lambda: found.append(bytemill.get_encoding("gpt2")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each is first for each in found)


# --- where a tokenizer may be named ---------------------------------------------------------------


def test_a_file_wins_over_an_encoding(
    own: Path, small: named.Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own / "r50k_base.tiktoken").write_bytes(small.file)
    monkeypatch.chdir(own.parent)
    assert encodings.load("gpt2") is bytemill.get_encoding("gpt2")
    other = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    other.save("gpt2")
    assert encodings.load("gpt2") == other
    assert ok("encode", "-t", "gpt2", stdin=b"\x01\x02").text == "1 2\n"
    assert encodings.load("./gpt2") == encodings.load(Path("gpt2")) == other
    Path("gpt2").unlink()
    # A path that does not exist is not a name.
    for path in ("./gpt2", Path("gpt2"), "gpt3"):
        with pytest.raises(FileNotFoundError):
            encodings.load(path)
    with pytest.raises(FileNotFoundError):
        Tokenizer.load("gpt2")


def test_misspelled_names_come_with_suggestions(tmp_path: Path) -> None:
    for name, meant in (("cl100k_bas", "cl100k_base"), ("o200kbase", "o200k_base")):
        with pytest.raises(FileNotFoundError, match=rf"did you mean the encoding {meant}\?"):
            encodings.load(name)
        assert f"did you mean the encoding {meant}?" in run("inspect", name, "x").said
    for path in (tmp_path / "none.json", "tokenizer.json"):
        with pytest.raises(FileNotFoundError) as failed:
            encodings.load(path)
        assert "did you mean" not in str(failed.value)


def test_encodings_have_their_own_pattern(own: Path, small: named.Small) -> None:
    (own / "r50k_base.tiktoken").write_bytes(small.file)
    for option in ({"pattern": "gpt2"}, {"special_tokens": ["<|x|>"]}):
        with pytest.raises(ConfigError, match="an encoding has its own"):
            encodings.load("r50k_base", **option)
    result = run("encode", "-t", "r50k_base", "--pattern", "gpt2", stdin=b"a")
    assert "r50k_base: pattern was given, but an encoding has its own" in result.said
    assert "hint: omit --pattern\n" in result.said


def test_commands_take_names(
    own: Path, small: named.Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own / "r50k_base.tiktoken").write_bytes(small.file)
    monkeypatch.chdir(own.parent)
    text = "the  def naïve<|endoftext|>".encode()
    Path("text.txt").write_bytes(text)
    tokenizer = bytemill.get_encoding("p50k_edit")
    ids = " ".join(map(str, tokenizer.encode(text)))
    assert ok("encode", "-t", "p50k_edit", "text.txt").text == f"{ids}\n"
    assert ok("decode", "-t", "p50k_edit", stdin=ids.encode()).data == text
    assert "tokens" in ok("inspect", "p50k_edit", "the def").text
    ok("compare", "gpt2", "p50k_edit", "text.txt", "--pattern", "cl100k")
    ok("convert", "p50k_edit", "--to", "huggingface", "-o", "tokenizer.json")
    assert Tokenizer.load("tokenizer.json").encode(text) == tokenizer.encode(text)
    ok("encode", "text.txt", "-t", "p50k_edit", "-o", "tokens")
    ok("verify", "tokens", "-t", "p50k_edit")
    assert ok("decode", "tokens").data == text
    result = run("encode", "-t", "cl100k_base", "text.txt")
    assert result.code == 1
    assert f"hint: one of: {install_command('encodings')}; bytemill encodings" in result.said


def test_the_table_of_encodings(own: Path, small: named.Small) -> None:
    (own / "r50k_base.tiktoken").write_bytes(small.file)
    lines = ok("encodings").text.splitlines()
    assert re.split(r"  +", lines[0]) == ["encoding", "ids", "found"]
    assert [line.split()[0] for line in lines[1:]] == NAMES
    n_ids = len(small.ranks)
    path = own / "r50k_base.tiktoken"
    assert lines[1].split(maxsplit=2) == ["gpt2", f"{n_ids + 1}", f"BYTEMILL_ENCODINGS: {path}"]
    assert lines[5].split() == ["cl100k_base", "100,261", "-"]
    found = {each["name"]: each for each in ok("encodings", "--json").json}
    assert list(found) == NAMES
    assert found["p50k_edit"] == {
        "name": "p50k_edit",
        "vocab_size": n_ids + 24 + 4,
        "ranks": "p50k_base",
        "available": True,
        "place": "BYTEMILL_ENCODINGS",
        "path": str(path),
    }
    assert found["o200k_base"]["available"] is False
    assert len(bytemill.get_encoding("p50k_edit")) == n_ids + 28


def test_models_take_names(own: Path, small: named.Small, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from bytemill.lm.plan.sweeping import tokenizer_for_workers
    from bytemill.lm.run.sources import open_sources

    (own / "r50k_base.tiktoken").write_bytes(small.file)
    monkeypatch.chdir(own.parent)
    Path("train.bin").write_bytes(bytes(2000))
    sources = open_sources("train.bin", tokenizer="gpt2")
    assert sources.tokenizer is bytemill.get_encoding("gpt2")
    # A sweep runs in other directories.
    assert tokenizer_for_workers("gpt2") == "gpt2"
    assert tokenizer_for_workers("tokenizer.json") == str(own.parent / "tokenizer.json")
    assert tokenizer_for_workers(None) is None
