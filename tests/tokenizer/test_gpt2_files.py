"""`vocab.json` and `merges.txt`: two files that belong together, on disk and at every instant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bytemill import Tokenizer, TokenizerError, train_tokenizer

TEXT = "low lower lowest newer wider slow slowly "


@pytest.fixture(scope="module")
def old() -> Tokenizer:
    return train_tokenizer(iter([TEXT * 9]), vocab_size=270)


@pytest.fixture(scope="module")
def new() -> Tokenizer:
    return train_tokenizer(
        iter([TEXT[::-1] * 9]), vocab_size=266, special_tokens=["<|end|>", "<|pad|>"]
    )


def load(path: Path) -> Tokenizer:
    return Tokenizer.load(path)


# --- files of two tokenizers ----------------------------------------------------------------------


def test_a_mixed_pair_is_refused(old: Tokenizer, new: Tokenizer, tmp_path: Path) -> None:
    smaller = old.with_vocab_size(264)
    for name, tokenizer in {"old": old, "new": new, "smaller": smaller}.items():
        tokenizer.save(tmp_path / name, format="gpt2")
        assert load(tmp_path / name).encode(TEXT) == tokenizer.encode(TEXT)
    for vocab, merges in [("old", "new"), ("new", "old"), ("old", "smaller"), ("smaller", "old")]:
        mixed = tmp_path / f"{vocab}-{merges}"
        mixed.mkdir()
        for name, source in {"vocab.json": vocab, "merges.txt": merges}.items():
            (mixed / name).write_bytes((tmp_path / source / name).read_bytes())
        for path in (mixed, mixed / "vocab.json", mixed / "merges.txt"):
            with pytest.raises(TokenizerError, match=r"vocab\.json: "):
                load(path)
    with pytest.raises(TokenizerError, match=r"270 tokens and merges\.txt 7 merges"):
        load(tmp_path / "old-smaller")


@pytest.mark.parametrize("content", ["", "\n", "#version: 0.2\n"])
def test_empty_merges_are_refused(old: Tokenizer, tmp_path: Path, content: str) -> None:
    old.save(tmp_path, format="gpt2")
    (tmp_path / "merges.txt").write_text(content)
    for path in (tmp_path, tmp_path / "vocab.json"):
        with pytest.raises(TokenizerError, match=r"270 tokens and merges\.txt 0 merges"):
            load(path)


def test_a_byte_tokenizer_has_no_merges(tmp_path: Path) -> None:
    made = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    made.save(tmp_path, format="gpt2")
    assert load(tmp_path) == made


def test_tokens_without_merges_that_real_files_have(old: Tokenizer, tmp_path: Path) -> None:
    old.save(tmp_path, format="gpt2")
    vocab = json.loads((tmp_path / "vocab.json").read_text())
    # RoBERTa's four special tokens come first, and fairseq's fillers and the mask last.
    vocab = {token: id + 4 for token, id in vocab.items()}
    vocab |= {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    vocab |= {f"madeupword000{i}": 300 + i for i in range(3)} | {"<mask>": 303, "<fim_prefix>": 304}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    loaded = load(tmp_path)
    assert loaded.special_tokens["<mask>"] == 303
    assert loaded.encode("lower") == [id + 4 for id in old.encode("lower")]


# --- at every instant -----------------------------------------------------------------------------

# Forks a writer and kills it after each possible step, which it prints.
WRITER = """
    import builtins, os, signal, sys
    from pathlib import Path
    from bytemill import Tokenizer

    old, new, into = map(Path, sys.argv[1:])
    replacement = Tokenizer.load(new)

    def write(directory, killed_at):
        n = 0
        def counting(real):
            def call(*given, **named):
                nonlocal n
                n += 1
                if n == killed_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **named)
            return call
        for name in ("open", "replace", "fsync", "unlink", "stat", "listdir", "mkdir"):
            setattr(os, name, counting(getattr(os, name)))
        builtins.open = counting(builtins.open)
        replacement.save(directory, format="gpt2", overwrite=True)
        os._exit(0)

    for step in range(1, 200):
        for start in ("over", "fresh"):
            directory = into / f"{start}-{step}"
            if start == "over":
                Tokenizer.load(old).save(directory, format="gpt2")
            child = os.fork()
            if child == 0:
                write(directory, step)
            status = os.waitpid(child, 0)[1]
            print(directory.name, os.WIFSIGNALED(status))
        if not os.WIFSIGNALED(status):
            break
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of POSIX")
@pytest.mark.timeout(120)
def test_the_pair_is_replaced_together(old: Tokenizer, new: Tokenizer, tmp_path: Path) -> None:
    old.save(tmp_path / "old.json")
    new.save(tmp_path / "new.json")
    (tmp_path / "out").mkdir()
    places = [tmp_path / "old.json", tmp_path / "new.json", tmp_path / "out"]
    command = [sys.executable, "-c", textwrap.dedent(WRITER), *map(str, places)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) > 20
    found = set()
    for number, (name, killed) in enumerate(lines):
        directory = tmp_path / "out" / name
        # Loading any of the three first finishes or ignores the interrupted write.
        paths = [directory, directory / "vocab.json", directory / "merges.txt"]
        paths = paths[number // 2 % 3 :] + paths[: number // 2 % 3]
        try:
            loaded = [load(path) for path in paths]
        except (FileNotFoundError, TokenizerError):
            # Only if there was no file before, and there is none now.
            assert name.startswith("fresh")
            assert not list(directory.glob("[vm]*"))
            assert killed == "True"
            loaded = []
        assert len(set(loaded)) <= 1
        found |= {"old" if loaded[:1] == [old] else "new" if loaded[:1] == [new] else "none"}
        assert killed == "True" or loaded[:1] == [new]
        new.save(directory, format="gpt2", overwrite=True)
        assert sorted(os.listdir(directory)) == ["merges.txt", "vocab.json"]
        assert load(directory) == new
    assert found == {"old", "new", "none"}
