"""Tokenizer files: saved tokenizers load unchanged; damaged files are refused with the position."""

from __future__ import annotations

import json
import os
import random
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import generated
import reference
from bytemill import ConfigError, Tokenizer, TokenizerError, train_tokenizer

EOT = "<|endoftext|>"
FORMATS = ["huggingface", "gpt2", "tiktoken", "minbpe"]
# Options for formats that do not store these.
TOLD = {"pattern": "gpt2", "special_tokens": [EOT]}
OPTIONS = {"huggingface": {}, "gpt2": TOLD, "tiktoken": TOLD, "minbpe": {}}


@pytest.fixture(scope="module")
def made() -> Tokenizer:
    texts = [
        "hello hello world, wonderful and strange",
        "naïve naïve 日本語日本語 Ελλάδα",
        'aaaa aaaaaaaa\n\n\tx \\ "\u2028"',
    ]
    return train_tokenizer(iter(texts * 9), vocab_size=300)


def save(tokenizer: Tokenizer, kind: str, directory: Path) -> Path:
    """Saves in the given format; the file to load."""
    path = directory / ("gpt2" if kind == "gpt2" else f"made.{kind}")
    tokenizer.save(path, format=kind)
    return path


@pytest.fixture(scope="module", params=FORMATS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def files(made: Tokenizer, kind: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The file or files of one format."""
    path = save(made, kind, tmp_path_factory.mktemp(kind))
    return [path / "vocab.json", path / "merges.txt"] if kind == "gpt2" else [path]


# --- round trips ----------------------------------------------------------------------------------


def test_saving_and_loading(made: Tokenizer, kind: str, files: list[Path]) -> None:
    for file in files:
        loaded = Tokenizer.load(file, **OPTIONS[kind])
        assert loaded.vocab == made.vocab
        assert loaded.special_tokens == made.special_tokens
        assert loaded.merges == made.merges
        assert loaded.pattern == made.pattern
        assert loaded.encode(f"hello naïve{EOT} aaaa") == made.encode(f"hello naïve{EOT} aaaa")


def test_saving_is_repeatable(
    made: Tokenizer, kind: str, files: list[Path], tmp_path: Path
) -> None:
    save(Tokenizer.load(files[0], **OPTIONS[kind]), kind, tmp_path)
    again = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.read_bytes() for path in again) == sorted(
        path.read_bytes() for path in files
    )


def test_loading_a_directory(made: Tokenizer, kind: str, files: list[Path]) -> None:
    if kind == "huggingface":
        (files[0].parent / "tokenizer.json").write_bytes(files[0].read_bytes())
    if kind in ("huggingface", "gpt2", "tiktoken"):
        loaded = Tokenizer.load(files[0].parent, **OPTIONS[kind])
        assert loaded.vocab == made.vocab


@pytest.mark.parametrize("pattern", [*reference.PATTERNS, r"\p{L}+|.", ["o200k", r"\s|\S+"]])
def test_patterns_are_stored(pattern: str | list[str], tmp_path: Path) -> None:
    tokenizer = train_tokenizer(iter(["some text some text"]), vocab_size=260, pattern=pattern)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded == tokenizer
    assert loaded.pattern == pattern


def test_ignore_merges_is_stored_or_refused(tmp_path: Path) -> None:
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"bc", 257: b"ab", 258: b"abc"}
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    for ignore_merges, ids in ((True, [258]), (False, [97, 256])):
        tokenizer = Tokenizer(vocab, merges, ignore_merges=ignore_merges)
        for kind in FORMATS:
            path = tmp_path / f"{kind}-{ignore_merges}"
            try:
                tokenizer.save(path, format=kind)
            except TokenizerError:
                assert kind != "huggingface"
                assert not path.exists()
                continue
            options = {"pattern": "gpt2"} if kind in ("gpt2", "tiktoken") else {}
            assert Tokenizer.load(path, **options).encode("abc") == ids, kind


@pytest.mark.slow
@given(generated.merge_lists(), st.booleans(), generated.merge_letters)
def test_a_format_holds_a_tokenizer_or_refuses_it(
    tmp_path_factory: pytest.TempPathFactory,
    merges: list[tuple[bytes, bytes]],
    ignore_merges: bool,
    text: str,
) -> None:
    tokenizer = Tokenizer(generated.merged(merges), merges, ignore_merges=ignore_merges)
    directory = tmp_path_factory.mktemp("held")
    for kind in FORMATS:
        path = directory / kind
        try:
            tokenizer.save(path, format=kind)
        except TokenizerError:
            assert kind != "huggingface"
            continue
        options = {"pattern": "gpt2"} if kind in ("gpt2", "tiktoken") else {}
        assert Tokenizer.load(path, **options).encode(text) == tokenizer.encode(text), kind


# --- files as files -------------------------------------------------------------------------------


def test_nothing_is_overwritten_unasked(made: Tokenizer, kind: str, tmp_path: Path) -> None:
    path = save(made, kind, tmp_path)
    with pytest.raises(FileExistsError):
        made.save(path, format=kind)
    made.with_vocab_size(280).save(path, format=kind, overwrite=True)
    assert len(Tokenizer.load(path, **OPTIONS[kind])) == 280
    assert not [p for p in tmp_path.rglob("*") if p.name.startswith(".")], "temporary files remain"


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_saved_file_has_ordinary_permissions(made: Tokenizer, tmp_path: Path) -> None:
    made.save(tmp_path / "tokenizer.json")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "tokenizer.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_missing_files_are_pythons_own_error(tmp_path: Path, made: Tokenizer) -> None:
    with pytest.raises(FileNotFoundError):
        Tokenizer.load(tmp_path / "nothing.json")
    with pytest.raises(FileNotFoundError):
        made.save(tmp_path / "nowhere" / "tokenizer.json")
    with pytest.raises(TokenizerError, match="no tokenizer file"):
        Tokenizer.load(tmp_path)
    made.save(tmp_path, format="gpt2")
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(TokenizerError, match=r"merges\.txt is missing"):
        Tokenizer.load(tmp_path / "vocab.json")


def test_options_must_fit_the_format(made: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown tokenizer format"):
        made.save(tmp_path / "x", format="pickle")
    for kind in ("huggingface", "minbpe"):
        path = save(made, kind, tmp_path)
        for name, value in TOLD.items():
            with pytest.raises(ConfigError, match=name):
                Tokenizer.load(path, **{name: value})
    with pytest.raises(ConfigError, match="pattern"):
        Tokenizer.load(save(made, "tiktoken", tmp_path))


# --- damaged files --------------------------------------------------------------------------------


def load_damaged(files: list[Path], kind: str, number: int, data: bytes, into: Path) -> str | None:
    """Loads with one file's content replaced; the message if it is refused."""
    for i, file in enumerate(files):
        (into / file.name).write_bytes(data if i == number else file.read_bytes())
    try:
        Tokenizer.load(into / files[number].name, **OPTIONS[kind])
    except (TokenizerError, ConfigError) as error:
        # Damage can make it look like another format, which takes other options: ConfigError.
        return error.message
    return None


@given(st.data())
def test_damaged_files_are_refused_or_complete(
    files: list[Path], kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(files) - 1))
    content = files[number].read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    length = data.draw(st.integers(0, 4))
    put = data.draw(
        st.binary(max_size=4)
        | st.sampled_from([b'"', b"{", b"]", b"-1", b"1e9", b"\n", b"\\", b"null", b"\xff"])
    )
    damaged = content[:at] + put + content[at + length :]
    said = load_damaged(files, kind, number, damaged, tmp_path_factory.mktemp("damaged"))
    assert said is None or any(file.name in said for file in files)


@pytest.mark.slow
def test_truncated_files_are_refused(files: list[Path], kind: str, tmp_path: Path) -> None:
    content = files[0].read_bytes()
    # Lines that are missing at the end of a rank file or a .model leave a smaller tokenizer.
    whole_lines = kind in ("tiktoken", "minbpe")
    for end in range(0, len(content) - 2, max(1, len(content) // 200)):
        refused = load_damaged(files, kind, 0, content[:end], tmp_path)
        assert refused or (whole_lines and end > 100), end


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_noise_is_not_a_tokenizer(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("noise") / "noise"
    file.write_bytes(content)
    with pytest.raises((TokenizerError, ConfigError)):
        Tokenizer.load(file)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: model["vocab"].pop("A"), "A|41|65"),
        (lambda model: model["vocab"].update(A=66), "66|B"),
        (lambda model: model["vocab"].update(A=-1), "-1"),
        (lambda model: model["vocab"].update(A=1.5), "1.5|integer|number"),
        (lambda model: model["vocab"].update({"語": 999}), "語"),
        (lambda model: model["merges"].append(["Q", "Q"]), "QQ"),
        (lambda model: model["merges"].append(["QQ", "Q"]), "QQ"),
        (lambda model: model["merges"].append(["Q"]), "merge"),
        (lambda model: model["merges"].append(7), "merge|7"),
        (lambda model: model.pop("vocab"), "vocab"),
        (lambda model: model.update(type="Unigram"), "Unigram"),
        (lambda model: model.update(dropout=0.5), "dropout"),
    ],
    ids=range(12),
)
def test_an_impossible_vocabulary_is_refused(
    made: Tokenizer, tmp_path: Path, change: object, said: str
) -> None:
    file = tmp_path / "tokenizer.json"
    made.save(file)
    content = json.loads(file.read_text())
    change(content["model"])
    file.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=said) as caught:
        Tokenizer.load(file)
    assert str(file) in caught.value.message


def test_the_place_of_a_syntax_error_is_named(made: Tokenizer, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    made.save(file)
    file.write_text(file.read_text()[:-40])
    with pytest.raises(TokenizerError, match=r"line \d+|byte \d+|column \d+"):
        Tokenizer.load(file)
    ranks = tmp_path / "made.tiktoken"
    made.save(ranks, format="tiktoken")
    lines = ranks.read_text().splitlines()
    lines[16] = "!!! 16"
    ranks.write_text("\n".join(lines))
    with pytest.raises(TokenizerError, match=r"line 17|:17"):
        Tokenizer.load(ranks, pattern="gpt2")


LOADED = """
import sys
import bytemill

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

bytemill.Tokenizer
before = peak()
tokenizer = bytemill.Tokenizer.load(sys.argv[1])
ids = tokenizer.encode("x" + sys.argv[2] + "x")
assert tokenizer.decode(ids) == "x" + sys.argv[2] + "x"
print(len(ids), peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_very_many_added_tokens_take_little_time_and_memory(
    made: Tokenizer, tmp_path: Path
) -> None:
    """Issue 13: an automaton of 10⁶ of them took 16 s to build, and a gigabyte."""
    path = save(made, "huggingface", tmp_path)
    file = json.loads(path.read_text())
    chance = random.Random(1)
    for i in range(200_000):
        content = "".join(chance.choices(string.ascii_lowercase, k=12)) + str(i)
        file["added_tokens"].append({"id": 1000 + i, "content": content, "special": True})
    path.write_text(json.dumps(file))
    command = [sys.executable, "-c", LOADED, path, content]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    n_ids, growth = map(int, done.stdout.split())
    assert n_ids == 3
    # The file is 13 MB; two automata took 230 MB.
    assert growth < 130_000_000
