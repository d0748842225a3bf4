"""Encodings by name in `bytemill.compat.tiktoken`, and plugins, against tiktoken."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tiktoken")

import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import bytemill
import generated
import named
import rivals
from bytemill import TokenizerError
from bytemill.compat import _plugins
from bytemill.compat import tiktoken as ours
from bytemill.compat.tiktoken import Encoding

HARMONY = ("<|endofprompt|>", "<|reserved_200018|>")

PLUGIN = """
def little():
    return {
        "name": "little",
        "pat_str": r"\\w+|\\W+",
        "mergeable_ranks": {bytes([i]): i for i in range(256)} | {b"hi": 256},
        "special_tokens": {"<|endoftext|>": 257},
        "explicit_n_vocab": 258,
    }

def broken():
    raise OSError("no such vocabulary")

ENCODING_CONSTRUCTORS = {"little": little, "broken": broken}
"""


def forget() -> None:
    """Both libraries look for plugins again."""
    for cached in (_plugins.plugin_modules, _plugins.constructors):
        cached.cache_clear()
    ours._made.clear()
    tiktoken.registry._available_plugin_modules.cache_clear()
    tiktoken.registry.ENCODING_CONSTRUCTORS = None
    tiktoken.registry.ENCODINGS.clear()
    for name in [name for name in sys.modules if name.startswith("tiktoken_ext.my_")]:
        del sys.modules[name]


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path, for modules of tiktoken_ext."""
    directory = tmp_path / "tiktoken_ext"
    directory.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield directory
    monkeypatch.undo()
    forget()


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        result = function(*arguments)
    except Exception as error:
        return type(error)
    return (result.name, result.n_vocab) if hasattr(result, "n_vocab") else result


def test_names_and_models() -> None:
    assert ours.list_encoding_names() == tiktoken.list_encoding_names()
    for model in ("gpt-4o", "gpt-4o-2024-05-13", "ft:gpt-4o:x", "gpt-oss-120b", "gpt2", "o9", ""):
        results = [outcome(each.encoding_name_for_model, model) for each in (ours, tiktoken)]
        assert results[0] == results[1]
    with pytest.raises(KeyError, match="did you mean gpt-4o"):
        ours.encoding_for_model("gpt4o")
    for name in ("nothing", "", None, 5, b"gpt2"):
        with pytest.raises(ValueError, match=r"(Unknown encoding|must be a string)"):
            ours.get_encoding(name)
        assert outcome(tiktoken.get_encoding, name) is ValueError
    assert ours.encoding_for_model("gpt-4o") is ours.get_encoding("o200k_base")
    assert isinstance(ours.get_encoding("o200k_base"), Encoding)


def test_a_missing_vocabulary_names_the_ways_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named.isolate(monkeypatch, tmp_path)
    named.forget()
    with pytest.raises(TokenizerError, match="bytemill encodings --download gpt2"):
        ours.get_encoding("gpt2")


def test_one_object_in_every_thread() -> None:
    forget()
    found: list[Encoding] = []
    threads = [
        threading.Thread(target=lambda: found.append(ours.get_encoding("cl100k_base")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert found[0]._tokenizer is bytemill.get_encoding("cl100k_base")


# --- the published encodings ----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["cl100k_base", "o200k_base", "o200k_harmony"])
def pair(request: pytest.FixtureRequest) -> tuple[Encoding, tiktoken.Encoding]:
    name = request.param
    ranks = rivals.published(name.split("_")[0]).ranks
    theirs = rivals.tiktoken_definition(name)._replace(ranks=ranks).tiktoken()
    return ours.get_encoding(name), theirs


def test_tables_are_tiktokens(pair: tuple[Encoding, tiktoken.Encoding]) -> None:
    for name in (
        "name", "n_vocab", "max_token_value", "eot_token", "special_tokens_set", "_pat_str",
        "_special_tokens", "_mergeable_ranks",
    ):  # fmt: skip
        assert getattr(pair[0], name) == getattr(pair[1], name)


special_texts = st.lists(
    st.sampled_from([*HARMONY, "<|endoftext|>", "<|start|>", "<|reserved_200013|>", "a ", "<|"])
).map("".join)
allowed = st.just("all") | st.sets(st.sampled_from([*HARMONY, "<|endoftext|>"]))
disallowed = st.just("all") | st.sets(st.sampled_from(HARMONY)) | st.just(())


@given(special_texts | generated.texts, allowed, disallowed)
def test_special_tokens_that_share_an_id(
    pair: tuple[Encoding, tiktoken.Encoding], text: str, allowed: Any, disallowed: Any
) -> None:
    options = {"allowed_special": allowed, "disallowed_special": disallowed}
    results = []
    for each in pair:
        try:
            ids = each.encode(text, **options)
            assert each.encode_batch([text], **options) == [ids]
            assert each.encode_to_numpy(text, **options).tolist() == ids
            results.append((ids, each.decode(ids)))
        except ValueError as error:
            results.append(str(error).splitlines()[0])
    assert results[0] == results[1]


def test_aliases_are_part_of_an_encoding() -> None:
    first, alias = HARMONY
    theirs = rivals.tiktoken_definition("o200k_harmony")._replace(ranks=byte_ranks()).tiktoken()
    made = Encoding(
        "o200k_harmony",
        pat_str=theirs._pat_str,
        mergeable_ranks=theirs._mergeable_ranks,
        special_tokens=theirs._special_tokens,
    )
    for each in (made, Encoding.from_tiktoken(theirs)):
        for again in (each, pickle.loads(pickle.dumps(each)), copy.deepcopy(each)):
            assert again.encode(f"a{alias}{first}", allowed_special="all") == [97, 200018, 200018]
            assert again.encode_single_token(alias) == theirs.encode_single_token(alias) == 200018
            assert again.encode_single_token(alias.encode()) == 200018
            assert again.decode([200018]) == theirs.decode([200018]) == first
            assert again._special_tokens == theirs._special_tokens
            assert again.special_tokens_set == theirs.special_tokens_set
            assert again.n_vocab == theirs.n_vocab
            with pytest.raises(KeyError):
                again.encode_single_token("<|reserved_300000|>")


def byte_ranks() -> dict[bytes, int]:
    return {bytes([i]): i for i in range(256)}


# --- plugins --------------------------------------------------------------------------------------


def test_plugins_are_found(plugins: Path) -> None:
    (plugins / "my_plugin.py").write_text(PLUGIN)
    assert ours.list_encoding_names() == tiktoken.list_encoding_names()
    for each in (ours, tiktoken):
        made = each.get_encoding("little")
        assert made.encode("hi there<|endoftext|>", allowed_special="all")[::7] == [256, 257]
        assert each.get_encoding("little") is made
    assert outcome(ours.get_encoding, "little") == outcome(tiktoken.get_encoding, "little")
    for each in (ours, tiktoken):
        with pytest.raises(OSError, match="no such vocabulary"):
            each.get_encoding("broken")
    with pytest.raises(ValueError, match=r"little.*tiktoken_ext\.my_plugin"):
        ours.get_encoding("nothing")


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"my_a.py": "x = 1"}, ValueError),
        ({"my_a.py": PLUGIN, "my_b.py": PLUGIN}, ValueError),
        ({"my_a.py": PLUGIN.replace('"little":', '"gpt2":')}, ValueError),
        ({"my_a.py": "import no_such_module"}, ModuleNotFoundError),
        ({"my_a.py": "raise OSError('x')"}, OSError),
        ({"my_a.py": "ENCODING_CONSTRUCTORS = {}"}, None),
        ({"my_a/__init__.py": PLUGIN}, None),
        ({"my_a.txt": "x"}, None),
    ],
)
def test_plugins_that_fail(
    plugins: Path, files: dict[str, str], error: type[Exception] | None
) -> None:
    for name, code in files.items():
        (plugins / name).parent.mkdir(exist_ok=True)
        (plugins / name).write_text(code)
    for _ in range(2):  # a failure is not remembered
        results = [outcome(each.list_encoding_names) for each in (ours, tiktoken)]
        assert results[0] == results[1]
        assert error is None or results[0] is error


def test_without_tiktoken(plugins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tiktoken, its encodings are listed before those of plugins."""
    (plugins / "my_plugin.py").write_text(PLUGIN)
    monkeypatch.setattr("sys.path", [str(plugins.parent)])
    monkeypatch.delitem(sys.modules, "tiktoken_ext")
    monkeypatch.delitem(sys.modules, "tiktoken_ext.openai_public")
    assert ours.list_encoding_names() == [*bytemill.list_encoding_names(), "little", "broken"]
