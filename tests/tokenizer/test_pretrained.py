"""`Tokenizer.from_pretrained`: paths, the hub's cache, and the errors if neither has the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill import ConfigError, Tokenizer, TokenizerError, train_tokenizer

EOT = "<|endoftext|>"


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    return train_tokenizer(iter(["low lower lowest"] * 9), vocab_size=262)


def test_paths(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path / "tokenizer.json")
    small.save(tmp_path / "gpt2", format="gpt2")
    small.save(tmp_path / "small.model", format="minbpe")
    for path in (tmp_path, str(tmp_path), tmp_path / "tokenizer.json", tmp_path / "gpt2"):
        assert Tokenizer.from_pretrained(path) == small
    assert Tokenizer.from_pretrained(tmp_path / "small.model").encode("lowest") == small.encode(
        "lowest"
    )


def test_a_directory_comes_before_a_name(
    small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2").mkdir()
    small.save(tmp_path / "gpt2/tokenizer.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert Tokenizer.from_pretrained("gpt2") == small


def test_rank_files(small: Tokenizer, tmp_path: Path) -> None:
    small.save(tmp_path / "small.tiktoken", format="tiktoken")
    with pytest.raises(ConfigError, match="split pattern"):
        Tokenizer.from_pretrained(tmp_path)
    id = small.special_tokens[EOT]
    config: dict[str, Any] = {
        "pat_str": bytemill._native.pattern_regex("gpt2"),
        "added_tokens_decoder": {str(id): {"content": EOT}},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "small.tiktoken"):
        found = Tokenizer.from_pretrained(path)
        assert found.special_tokens == {EOT: id}
        assert found.encode(f"the lowest{EOT}") == small.encode(f"the lowest{EOT}")
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": [1]}')
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json: not a tokenizer config"):
        Tokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "missing",
    ["./gpt2", "/no/such/place", "a/b/c", "tokenizer.json", "my/ranks.tiktoken", "~/x", ""],
)
def test_a_path_is_never_looked_up(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    if missing:
        with pytest.raises(FileNotFoundError, match="no such file or directory"):
            Tokenizer.from_pretrained(missing)
    else:
        # The empty path is this directory.
        with pytest.raises(TokenizerError, match="no tokenizer file in this directory"):
            Tokenizer.from_pretrained(missing)


def test_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no tokenizer file in this directory"):
        Tokenizer.from_pretrained(tmp_path)


def test_without_huggingface_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(bytemill.MissingPackageError, match="not installed") as failure:
        Tokenizer.from_pretrained("owner/model")
    assert "hint: pip install huggingface_hub" in str(failure.value)


def cached(cache: Path, name: str, files: dict[str, bytes]) -> None:
    """Puts files into the cache of `huggingface_hub`."""
    model = cache / f"models--{name.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs/main").write_text("0" * 40)
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for file, data in files.items():
        (snapshot / file).write_bytes(data)


def offline(cache: Path, name: str, **variables: str) -> str:
    """What a new process prints for a name, by default without network access."""
    pytest.importorskip("huggingface_hub")
    code = (
        "import sys, bytemill\n"
        "try:\n"
        f"    print(bytemill.Tokenizer.from_pretrained({name!r}).fingerprint)\n"
        "except bytemill.BytemillError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    environment = os.environ | (variables or {"HF_HUB_OFFLINE": "1"}) | {"HF_HUB_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=cache,
    )
    return done.stdout.strip()


def test_the_cache_of_the_hub(small: Tokenizer, tmp_path: Path) -> None:
    cached(tmp_path, "owner/model", {"tokenizer.json": small.write("huggingface")[0]})
    assert offline(tmp_path, "owner/model") == small.fingerprint
    vocab, merges = small.write("gpt2")
    cached(tmp_path, "older", {"vocab.json": vocab, "merges.txt": merges})
    assert offline(tmp_path, "older") == small.fingerprint


def test_out_of_reach(tmp_path: Path) -> None:
    said = offline(tmp_path, "owner/model")
    assert said.startswith("TokenizerError owner/model: no such file or directory, ")
    assert "no such model in the cache of huggingface_hub, and the hub cannot be reached" in said
    assert said.endswith("hint: give the path of a tokenizer, or unset HF_HUB_OFFLINE")


@pytest.mark.timeout(20)  # with the hub's own retries this takes 48 s
def test_issue_13_an_unreachable_hub_is_given_up_at_once(tmp_path: Path, small: Tokenizer) -> None:
    # A reserved local port: refused with any network.
    said = offline(tmp_path, "gpt2", HF_ENDPOINT="http://127.0.0.1:1", HF_HUB_OFFLINE="0")
    assert said.startswith("TokenizerError gpt2: no such file or directory, ")
    assert "cannot be reached: " in said
    assert said.endswith("hint: give the path of a tokenizer, or connect to the network")
    # Files in the cache need no network.
    vocab, merges = small.write("gpt2")
    cached(tmp_path, "older", {"vocab.json": vocab, "merges.txt": merges})
    assert offline(tmp_path, "older", HF_ENDPOINT="http://127.0.0.1:1") == small.fingerprint


class Hub:
    """Answers like `huggingface_hub`, without a network."""

    class EntryNotFoundError(Exception): ...

    class LocalEntryNotFoundError(EntryNotFoundError): ...

    class RepositoryNotFoundError(Exception): ...

    class HfHubHTTPError(Exception): ...

    class HFValidationError(ValueError): ...

    class OfflineModeIsEnabled(ConnectionError): ...

    def __init__(self, found: dict[str, Path], missing: type[Exception]) -> None:
        self.found, self.missing = found, missing
        self.asked: list[str] = []
        self.errors = self

    def try_to_load_from_cache(self, name: str, file: str) -> None:
        return None

    def hf_hub_url(self, name: str, file: str) -> str:
        return f"{name}/{file}"

    def get_hf_file_metadata(self, url: str, *, timeout: float) -> None:
        assert timeout <= 10
        self.asked.append(url.rsplit("/", 1)[1])
        if self.asked[-1] not in self.found:
            raise self.missing("the hub says no")

    def hf_hub_download(self, name: str, file: str) -> str:
        return str(self.found[file])

    def installed(self, monkeypatch: pytest.MonkeyPatch) -> Hub:
        monkeypatch.setitem(sys.modules, "huggingface_hub", self)  # type: ignore[arg-type]
        monkeypatch.setitem(sys.modules, "huggingface_hub.errors", self)  # type: ignore[arg-type]
        return self


def test_older_models(small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.save(tmp_path, format="gpt2")
    found = {name: tmp_path / name for name in ("vocab.json", "merges.txt")}
    hub = Hub(found, Hub.EntryNotFoundError).installed(monkeypatch)
    assert Tokenizer.from_pretrained("owner/model") == small
    assert hub.asked == ["tokenizer.json", "vocab.json"]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (Hub.EntryNotFoundError, "has no tokenizer.json"),
        (Hub.LocalEntryNotFoundError, "the hub cannot be reached"),
        (Hub.RepositoryNotFoundError, "no such model on the hub"),
        (Hub.HfHubHTTPError, "cannot be downloaded from the hub: the hub says no"),
        (Hub.HFValidationError, "cannot be downloaded from the hub"),
        # An error of the HTTP library, of a class that huggingface_hub does not export.
        (OSError, "the hub cannot be reached: the hub says no"),
        (Hub.OfflineModeIsEnabled, "cannot be reached: HF_HUB_OFFLINE is set"),
    ],
)
def test_failures_of_the_hub(
    missing: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Hub({}, missing).installed(monkeypatch)
    with pytest.raises(TokenizerError, match=f"owner/model: .*{said}"):
        Tokenizer.from_pretrained("owner/model")


def test_nothing_is_asked_for_a_path(
    small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub({}, OSError).installed(monkeypatch)
    small.save(tmp_path / "tokenizer.json")
    Tokenizer.from_pretrained(tmp_path)
    for missing in (tmp_path / "missing", "no/such/place"):
        with pytest.raises(FileNotFoundError):
            Tokenizer.from_pretrained(missing)
    assert hub.asked == []
