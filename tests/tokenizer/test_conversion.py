"""Conversion between formats is checked before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill.convert import CARRIES, PROBE, Format, convert


@pytest.mark.parametrize("format", CARRIES)
@pytest.mark.parametrize("special_tokens", [(), ("<|endoftext|>", "<|end|>")])
@pytest.mark.parametrize("pattern", ["gpt2", "o200k", r"\p{L}+|[^\p{L}]"])
def test_convert(
    documents: list[str],
    tmp_path: Path,
    format: Format,
    special_tokens: tuple[str, ...],
    pattern: str,
) -> None:
    tokenizer = bytemill.train_tokenizer(
        iter(documents[:20]), vocab_size=600, special_tokens=special_tokens, pattern=pattern
    )
    path = tmp_path / "there"
    done = convert(tokenizer, path, format=format)
    assert (done.path, done.format) == (path, format)
    assert done.n_ids > len(tokenizer)
    options: dict[str, Any] = {}
    if "pattern" in done.to_give:
        options["pattern"] = pattern
    if "special tokens" in done.to_give:
        options["special_tokens"] = tokenizer.special_tokens
    back = bytemill.Tokenizer.load(path, **options)
    for text in (PROBE, documents[30].encode()):
        assert back.encode(text) == tokenizer.encode(text)
    with pytest.raises(FileExistsError):
        convert(tokenizer, path, format=format)
    convert(tokenizer, path, format=format, overwrite=True)


def test_ids_that_would_change_are_not_written(
    tokenizer: bytemill.Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Our writers refuse what a format cannot hold; so this one drops the last merges.
    save = bytemill.Tokenizer.save

    def lossy(self: bytemill.Tokenizer, path: Path, **options: Any) -> None:
        save(self.with_vocab_size(400), path, **options)

    monkeypatch.setattr(bytemill.Tokenizer, "save", lossy)
    with pytest.raises(bytemill.TokenizerError, match="different ids"):
        convert(tokenizer, tmp_path / "there", format="huggingface")
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_cannot_hold_the_tokenizer(tmp_path: Path) -> None:
    vocab = {i: bytes([255 - i]) for i in range(256)}
    with pytest.raises(bytemill.TokenizerError):
        convert(bytemill.Tokenizer(vocab, []), tmp_path / "there", format="minbpe")
    assert list(tmp_path.iterdir()) == []
