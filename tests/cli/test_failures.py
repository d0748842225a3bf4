"""Error messages and exit codes of the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import bytemill
from command_line import run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    bytemill.train_tokenizer(iter(["a b ab abc"]), vocab_size=259).save(path)
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with only a corpus, so that messages show short names."""
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("some text for a corpus, some text\n" * 20)
    return tmp_path


def fails(*arguments: object, **options: object) -> tuple[str, str | None]:
    """Message and hint of a command that must fail with nothing on stdout."""
    result = run(*arguments, **options)  # type: ignore[arg-type]
    assert (result.code, result.data) == (1, b""), result.said
    error, *hint = result.said.splitlines()
    assert error.startswith("error: ")
    assert all(line.startswith("hint: ") for line in hint)
    assert len(hint) <= 1
    return error[7:], hint[0][6:] if hint else None


# --- usage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "--nonsense",
        "train-tokenizer",
        "train-tokenizer corpus.txt",
        "train-tokenizer corpus.txt -o a.json --vocab-size many",
        "train-tokenizer corpus.txt -o a.json --vocab-size 0",
        "train-tokenizer corpus.txt -o a.json --format nonsense",
        "train-tokenizer corpus.txt -o a.json --no-special-tokens --special-token <x>",
        "train-tokenizer corpus.txt -o a.json --extend-from b.json --pattern gpt2",
        "encode",
        "encode -t a.json --special some",
        "inspect",
        "inspect a.json text --file corpus.txt",
        "inspect a.json text --special-token <a>=1 --special-token <b>",
        "compare corpus.txt",
        "compare a.json --corpus - --corpus x=-",
        "convert a.json -o b.json",
        "convert a.json --to nonsense -o b.json",
    ],
)
def test_wrong_usage(here: Path, line: str) -> None:
    result = run(*line.split())
    assert (result.code, result.data) == (2, b"")
    error, hint = result.said.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: see bytemill")
    assert sorted(p.name for p in here.iterdir()) == ["corpus.txt"]


@pytest.mark.parametrize("line", ["count --json", "count x -o a --json --nonsense", "-x --json"])
def test_wrong_usage_as_json(here: Path, line: str) -> None:
    result = run(*line.split())
    [event] = result.events
    assert (result.code, event["event"]) == (2, "error")
    assert event["hint"].startswith("see bytemill")


def test_binary_is_not_written_to_a_terminal(saved: Path) -> None:
    result = run("encode", "-t", saved, "--format", "u16", terminal=True)
    assert result.code == 2
    assert "binary" in result.said


# --- train-tokenizer --------------------------------------------------------------------------


def test_missing_corpus(here: Path) -> None:
    message, hint = fails("train-tokenizer", "nothing.txt", "-o", "a.json", "-q")
    assert "nothing.txt" in message
    assert "no such file" in message.lower()
    assert hint == f"the path is relative to {here}"
    assert not Path("a.json").exists()


def test_output_exists(here: Path) -> None:
    Path("a.json").write_text("precious")
    message, hint = fails("train-tokenizer", "corpus.txt", "-o", "a.json")
    assert (message, hint) == ("a.json: file exists", "--overwrite replaces it")
    assert Path("a.json").read_text() == "precious"
    Path("gpt2").mkdir()
    Path("gpt2/merges.txt").touch()
    message, _ = fails("train-tokenizer", "corpus.txt", "-o", "gpt2", "--format", "gpt2")
    assert message == f"{Path('gpt2/merges.txt')}: file exists"


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_a_link_to_nothing_is_not_replaced(saved: Path, here: Path) -> None:
    Path("link").symlink_to("nothing")
    for line in (
        ["train-tokenizer", "corpus.txt"],
        ["convert", saved, "--to", "tiktoken"],
        ["count", "corpus.txt"],
    ):
        message, hint = fails(*line, "-o", "link")
        assert message.startswith("link")
        assert "exists" in message
        assert hint == "--overwrite replaces it"
    tokenizer = bytemill.Tokenizer.load(saved)
    with pytest.raises(FileExistsError):
        tokenizer.save("link")
    with pytest.raises(FileExistsError):
        bytemill.count_corpus("corpus.txt").save("link")
    assert os.readlink("link") == "nothing"


def test_an_empty_name_is_a_name(saved: Path, here: Path) -> None:
    assert run("encode", "corpus.txt", "-t", saved, "-o", "tokens").code == 0
    message, _ = fails("inspect", saved, "--file", "", stdin=b"not read")
    assert message == "'': no such file or directory"
    fails("verify", "tokens", "-t", "")


@pytest.mark.skipif(os.name == "nt", reason="other limits")
def test_a_name_that_is_too_long_fails_at_once(here: Path) -> None:
    # Its temporary has a longer name.
    long = "n" * 250
    message, _ = fails("train-tokenizer", "nothing.txt", "-o", long)
    assert message == f"{long}: file name too long"


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_names_that_are_not_text(saved: Path, here: Path) -> None:
    name, page = os.fsdecode(b"\xff.json"), Path("page.html")
    Path(name).write_bytes(saved.read_bytes())
    assert run("encode", "-t", name, name, "--input-format", "text").code == 0
    for line in (["inspect", name], ["compare", name, "corpus.txt"]):
        assert run(*line, "--html", page, "--overwrite").code == 0
        assert "?.json" in page.read_text("utf-8")


def test_the_output_is_checked_before_the_corpus_is_read(here: Path) -> None:
    message, _ = fails("train-tokenizer", "nothing.txt", "-o", "missing/a.json")
    assert message == "missing: no such file or directory"
    message, hint = fails("train-tokenizer", "nothing.txt", "-o", here)
    assert message == f"{here}: is a directory"
    assert hint == "give a file in it"
    message, _ = fails("train-tokenizer", "nothing.txt", "-o", "corpus.txt/a.json")
    assert message == "corpus.txt: not a directory"
    message, _ = fails("train-tokenizer", "x", "-o", "corpus.txt/a/b", "--format", "gpt2")
    assert message == f"{here / 'corpus.txt'}: not a directory"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission_to_write_the_output(here: Path) -> None:
    Path("locked").mkdir(0o500)
    message, hint = fails("train-tokenizer", "corpus.txt", "-o", "locked/a.json")
    assert message == "locked: permission denied"
    assert hint is not None


def test_vocabulary_too_small(here: Path) -> None:
    message, hint = fails("train-tokenizer", "corpus.txt", "-o", "a.json", "--vocab-size", 100)
    assert message.startswith("--vocab-size must be ≥ 257")
    assert hint is not None
    assert "257" in hint


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF\x02\x01\x01\0\0\0\0", "text".encode("utf-16")], ids=str
)
def test_input_that_is_not_text(here: Path, data: bytes) -> None:
    Path("corpus.bin").write_bytes(data * 50)
    message, _ = fails("train-tokenizer", "corpus.bin", "-o", "a.json", "-q")
    assert "corpus.bin" in message
    assert not Path("a.json").exists()


def test_bad_pattern(here: Path) -> None:
    message, _ = fails("train-tokenizer", "corpus.txt", "-o", "a.json", "--pattern", "(", "-q")
    assert "(" in message


# --- tokenizer files --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    ["encode -t X", "decode -t X", "inspect X", "convert X --to gpt2 -o new", "compare X X c",
     "train-tokenizer corpus.txt -o new --extend-from X"],
)  # fmt: skip
@pytest.mark.parametrize("content", [None, b"", b"{", b"\0\1\2", b'{"model": {}}'], ids=str)
def test_bad_tokenizer_file(here: Path, line: str, content: bytes | None) -> None:
    if content is not None:
        Path("X").write_bytes(content)
    message, hint = fails(*line.split())
    assert message.startswith("X: ")
    if content is None:
        assert hint == f"the path is relative to {here}"
    assert not Path("new").exists()


def test_options_for_formats_that_do_not_need_them(saved: Path, here: Path) -> None:
    message, _ = fails("inspect", saved, "text", "--pattern", "gpt2")
    assert "carries its own" in message
    # The option is accepted if at least one of the files needs it.
    bytemill.Tokenizer.load(saved).save("ranks.tiktoken", format="tiktoken")
    message, hint = fails("compare", saved, "ranks.tiktoken", "corpus.txt")
    assert message.startswith("ranks.tiktoken: ")
    assert hint is not None
    assert run("compare", saved, "ranks.tiktoken", "corpus.txt", "--pattern", "gpt2").code == 0


def test_convert_does_not_overwrite(saved: Path, here: Path) -> None:
    Path("there").touch()
    message, hint = fails("convert", saved, "--to", "tiktoken", "-o", "there")
    assert (message, hint) == ("there: file exists", "--overwrite replaces it")


# --- ids and texts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (b"97 98 x99", "stdin: 'x99' at byte 6 is not an id"),
        (b"97\n-1", "stdin: '-1' at byte 3 is not an id"),
        (b"1_0", "stdin: '1_0' at byte 0 is not an id"),
        (b"97 1.5", "stdin: '1.5' at byte 3 is not an id"),
        (b"97 " + b"9" * 5000, "stdin: '99999999999999999999…' at byte 3 is not an id"),
        (b"97 98 259", "stdin: id 259 at index 2 is not in the vocabulary"),
        (b"97 4294967296", "stdin: id 4294967296 at index 1 is not in the vocabulary"),
        (b"9" * 30, f"stdin: id {'9' * 30} at index 0 is not in the vocabulary"),
    ],
)
@pytest.mark.parametrize("block_size", [4, 1 << 20])
def test_bad_ids(
    saved: Path, ids: bytes, message: str, block_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bytemill.cli.streams.BLOCK_SIZE", block_size)
    result = run("decode", "-t", saved, stdin=ids)
    assert result.code == 1
    assert result.said.splitlines()[0] == f"error: {message}"


@pytest.mark.parametrize(
    ("format", "data", "message"),
    [
        ("u16", b"a\0b", "ends inside an id, at byte 2: 1 of 2 bytes"),
        ("u32", b"a\0\0\0b\0", "ends inside an id, at byte 4: 2 of 4 bytes"),
        ("u16", b"\xff\xff", "id 65535 at index 0 is not in the vocabulary"),
        ("json", b"[97, -1]", "element 1 of the array, -1, is not an id"),
        ("json", b"[97, true]", "element 1 of the array, True, is not an id"),
        ("json", b"[97, 98", "not JSON: "),
        ("json", b"\xff", "not JSON: "),
        ("json", b"97", "the JSON is not an array of ids"),
    ],
)
def test_bad_ids_in_other_forms(saved: Path, format: str, data: bytes, message: str) -> None:
    result = run("decode", "-t", saved, "--format", format, stdin=data)
    assert result.code == 1
    assert result.said.startswith(f"error: stdin: {message}")


def test_ids_that_do_not_fit(tmp_path: Path) -> None:
    tokens = {i: bytes([i]) for i in range(256)} | {70_000: b"ab"}
    bytemill.Tokenizer(tokens, [(b"a", b"b")]).save(tmp_path / "large.json")
    arguments = ("encode", "-t", tmp_path / "large.json", "--format")
    message, hint = fails(*arguments, "u16", stdin=b"ab")
    assert message == "ids up to 70000 do not fit in u16"
    assert hint == "use --format u32"
    assert run(*arguments, "u32", stdin=b"ab").data == (70_000).to_bytes(4, "little")


def test_bad_limit(saved: Path, here: Path) -> None:
    message, _ = fails("compare", saved, saved, "corpus.txt", "--limit", "lots")
    assert message == "'lots' is not a size"


def test_missing_input(saved: Path, here: Path) -> None:
    for command in ("encode", "decode"):
        message, _ = fails(command, "-t", saved, "missing.txt")
        assert message == "missing.txt: no such file or directory"
    message, _ = fails("inspect", saved, "--file", "missing.txt")
    assert message == "missing.txt: no such file or directory"


# --- the rest ---------------------------------------------------------------------------------


def test_failures_as_json(here: Path) -> None:
    result = run("train-tokenizer", "corpus.txt", "-o", "a", "--json", "--vocab-size", "9")
    assert (result.code, result.data) == (1, b"")
    (event,) = result.events
    assert (event["event"], "--vocab-size must be" in event["message"]) == ("error", True)
    assert event["hint"]


def test_the_demo_overwrites_only_its_own_output(here: Path) -> None:
    message, _ = fails("demo", "--out", here)
    assert "not from a demo" in message
    assert [path.name for path in here.iterdir()] == ["corpus.txt"]


def test_color_of_errors(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in run("inspect", "nothing", terminal=True).said
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("inspect", "nothing", terminal=True).said
