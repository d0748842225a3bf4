"""The package as a whole: its names, its version, its errors."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pickle
import re
from importlib import metadata
from pathlib import Path

import pytest

import bytemill
import reference
from bytemill import _native
from bytemill.errors import install_command, require
from bytemill.tokens.encode import encode_files

TOP = Path(__file__).parents[1]
CLASSES = [value for value in map(bytemill.__getattr__, bytemill.__all__) if inspect.isclass(value)]


def test_all_is_complete_and_begins_with_the_main_functions() -> None:
    assert bytemill.__all__[:3] == ["train_tokenizer", "train_bpe", "Tokenizer"]
    assert len(set(bytemill.__all__)) == len(bytemill.__all__)
    lazy = [name for names in bytemill._MODULES.values() for name in names]
    assert sorted(lazy) == sorted(bytemill.__all__)
    # Type checkers and editors see the same names.
    tree = ast.parse(inspect.getsource(bytemill))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (node.module, alias.name)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {(m, name) for m, names in bytemill._MODULES.items() for name in names}
    assert set(bytemill.__all__) <= set(dir(bytemill))
    for name in ("encodings", "lm", "look"):  # need no import statement
        assert bytemill.__getattr__(name) is importlib.import_module(f"bytemill.{name}")
        assert name in dir(bytemill)
    assert not any(name.startswith("_") for name in dir(bytemill) if name != "__version__")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bytemill.nothing  # noqa: B018


def test_everything_public_is_documented() -> None:
    for name in bytemill.__all__:
        value = getattr(bytemill, name)
        if isinstance(value, str):
            continue
        assert inspect.getdoc(value), name
    for name, value in vars(bytemill.Tokenizer).items():
        if not name.startswith("_"):
            assert inspect.getdoc(value), name


# Their last parameter is an argument, not an option, or the course prescribes its position.
POSITIONAL = {
    "Corpus.inputs(entries)",
    "Tokenizer(special_tokens)",
    "Tokenizer.write(format)",
    "Tokens.decode(tokenizer)",
    "Tokens.verify(tokenizer)",
    "train_tokenizer(corpus)",
    "verify_tokens(tokenizer)",
}


def test_options_are_keyword_only() -> None:
    functions = {}
    for name in bytemill.__all__:
        value = getattr(bytemill, name)
        if inspect.isclass(value) and issubclass(value, Exception):
            continue
        if callable(value):
            functions[name] = value
        for method in vars(value) if inspect.isclass(value) else ():
            function = getattr(value, method)
            if not method.startswith("_") and callable(function):
                functions[f"{name}.{method}"] = getattr(function, "__func__", function)
    found = {
        f"{name}({parameter.name})"
        for name, function in functions.items()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.default is not parameter.empty
    }
    assert found == POSITIONAL


def test_encode_files_has_one_signature() -> None:
    assert bytemill.Tokenizer.encode_files is encode_files
    function, method = (
        inspect.signature(encode_files),
        inspect.signature(
            bytemill.Tokenizer(dict(enumerate(map(bytes, zip(range(256))))), []).encode_files
        ),
    )
    assert [*function.parameters.values()][1:] == [*method.parameters.values()]
    # Every option is documented, in order.
    documented = re.findall(r"^    (\w+): ", inspect.getdoc(encode_files) or "", re.MULTILINE)
    assert documented == [*function.parameters]


def test_the_version_is_cargos() -> None:
    cargo = re.search(r'^version = "(.+)"', (TOP / "Cargo.toml").read_text(), re.MULTILINE)
    assert cargo
    assert bytemill.__version__ == metadata.version("bytemill") == cargo[1]
    assert re.search(rf"^## \[{re.escape(cargo[1])}\]", (TOP / "CHANGELOG.md").read_text(), re.M)


def test_the_unicode_version_is_available() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", bytemill.UNICODE_VERSION)


def test_the_package_is_typed() -> None:
    assert (Path(bytemill.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("error", [c for c in CLASSES if issubclass(c, Exception)])
def test_errors_carry_a_message_and_a_hint(error: type[bytemill.BytemillError]) -> None:
    plain, helpful = error("it failed"), error("it failed", "try again")
    assert str(plain) == "it failed"
    assert str(helpful) == "it failed\nhint: try again"
    assert (helpful.message, helpful.hint) == ("it failed", "try again")
    again = pickle.loads(pickle.dumps(helpful))
    assert (type(again), str(again)) == (error, str(helpful))
    assert issubclass(error, bytemill.BytemillError)


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTEMILL_THREADS", "3")
    assert _native.default_threads() == 3
    monkeypatch.setenv("BYTEMILL_THREADS", "")
    available = _native.default_threads()
    monkeypatch.delenv("BYTEMILL_THREADS")
    assert _native.default_threads() == available >= 1
    monkeypatch.setenv("BYTEMILL_THREADS", "many")
    with pytest.raises(bytemill.ConfigError, match="BYTEMILL_THREADS"):
        bytemill.train_tokenizer(iter(["text"]), vocab_size=257)


def test_named_patterns() -> None:
    assert set(_native.PATTERNS) == set(reference.PATTERNS)
    for name in _native.PATTERNS:
        assert _native.known_pattern(_native.pattern_regex(name)) == name
    with pytest.raises(bytemill.ConfigError, match="nothing"):
        _native.pattern_regex("nothing")


def test_issue_15_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert require("json", "this") is json
    with pytest.raises(bytemill.MissingPackageError) as failure:
        require("nothing_such.inside", "this", extra="some")
    assert str(failure.value) == (
        f"this needs nothing_such, which is not installed\nhint: {install_command('some')}"
    )
    # An installed package whose own dependency is missing is another failure.
    (tmp_path / "half_there.py").write_text("import nothing_such")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nothing_such") as other:
        require("half_there", "this")
    assert not isinstance(other.value, bytemill.MissingPackageError)
