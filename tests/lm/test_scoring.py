"""Evaluation with a sliding window against one position at a time; and the mistakes it reports."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import bytemill
from bytemill import lm
from bytemill.lm import evaluation, evaluation_checks
from command_line import ok, run

END = "<|endoftext|>"


def texts(n: int, seed: int) -> list[str]:
    words = ["the", "cat", "dog", "sat", "on", "mat", "log", "and", "größer", "12"]
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(3, 60))) for _ in range(n)]


@pytest.fixture(scope="module")
def here(tokenizer: bytemill.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained on `train`, and other tokens."""
    place = tmp_path_factory.mktemp("scoring")
    small = tokenizer.with_vocab_size(300)
    small.save(place / "tokenizer.json")
    tokenizer.with_vocab_size(290).save(place / "other.json")
    train, val = texts(400, 1), texts(12, 2)
    for name, documents in (("train", train), ("val", val), ("both", [*val, *train[5:9]])):
        (place / f"{name}.txt").write_text(END.join(documents))
        small.encode_files([place / f"{name}.txt"], place / name, progress=False)
    tokenizer.with_vocab_size(290).encode_files(
        [place / "val.txt"], place / "wrong", progress=False
    )
    lm.train(
        place / "train", place / "run", model="tiny", context_length=16, d_model=32,
        num_layers=1, batch_size=8, steps=100, threads=1, progress=False, tensorboard=False,
    )  # fmt: skip
    return place


def naive(model: Any, ids: list[int], context: int, stride: int) -> list[float]:
    """The loss of each id except the first, each with a forward pass of its own.

    An id is predicted by the first window, in steps of the stride, that reaches it; a window that
    would begin before the text begins at its start.
    """
    found = []
    for place in range(1, len(ids)):
        end = context + 1
        while end <= place:
            end += stride
        end = min(end, len(ids))
        start = max(0, end - 1 - context)
        logits = model(torch.tensor([ids[start:place]]))[0, -1].double()
        found.append(float(torch.logsumexp(logits, -1) - logits[ids[place]]))
    return found


@pytest.mark.parametrize("stride", [1, 5, 8, 16])
def test_the_whole_stream(here: Path, stride: int) -> None:
    model, tokenizer = lm.load(here / "run")
    ids = bytemill.Tokens(here / "val")[:].tolist()[:150]
    np.array(ids, np.uint16).tofile(here / "part.bin")
    with torch.no_grad():
        losses = naive(model, ids, 16, stride)
    found = lm.evaluate(here / "run", here / "part.bin", stride=stride, batch_size=3,
                        progress=False)  # fmt: skip
    assert found.evaluation.n_tokens == len(ids) - 1 == len(losses)
    assert found.evaluation.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found.evaluation.perplexity == pytest.approx(math.exp(found.evaluation.loss))
    assert tokenizer is not None
    special = set(tokenizer.special_tokens.values())
    n_bytes = sum(len(tokenizer.decode_bytes([i])) for i in ids[1:] if i not in special)
    bits = sum(losses) / math.log(2) / n_bytes
    assert found.evaluation.bits_per_byte == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize("stride", [3, None])
def test_documents_by_themselves(here: Path, stride: int | None) -> None:
    model, tokenizer = lm.load(here / "run")
    assert tokenizer is not None
    end = tokenizer.special_tokens[END]
    tokens = bytemill.Tokens(here / "val")
    found = lm.evaluate(here / "run", here / "val", stride=stride, per_document=True,
                        batch_size=5, progress=False)  # fmt: skip
    assert found.documents is not None
    assert len(found.documents) == len(tokens.documents) == 12
    nats = 0.0
    with torch.no_grad():
        for document, ids in zip(found.documents, tokens.documents):
            losses = naive(model, [end, *ids.tolist()], 16, stride or 8)
            assert document.evaluation.n_tokens == len(losses) == len(ids)
            assert document.evaluation.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
            nats += sum(losses)
    assert found.evaluation.loss == pytest.approx(nats / len(tokens), rel=1e-5)


@pytest.mark.parametrize("n_ids", [0, 1, 2, 5, 9, 10, 11, 40])
@pytest.mark.parametrize(("context", "stride"), [(8, 8), (8, 3), (8, 1), (1, 1)])
def test_every_id_is_scored_once(n_ids: int, context: int, stride: int) -> None:
    scored: list[int] = []
    for start, first, end in evaluation.spans(n_ids, context, stride):
        assert end - 1 - start <= context
        # The most context possible; in the first window, the first ids have less.
        assert end - 1 - start == min(context, n_ids - 1)
        scored += range(first, end)
    assert scored == list(range(1, n_ids))


def test_what_is_evaluated(here: Path) -> None:
    held_out = lm.evaluate(here / "run", here / "train", progress=False)
    total = len(bytemill.Tokens(here / "train"))
    assert held_out.evaluation.n_tokens == int(total * 0.02) - 1
    assert "held out" in held_out.tokens
    everything = lm.evaluate(here / "run", here / "train", split="all", progress=False)
    assert everything.evaluation.n_tokens == total - 1
    assert "trained on" in everything.warnings[0]


def test_options_that_cannot_be(here: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="stride must be an integer, not float"):
        lm.evaluate(here / "run", here / "val", stride=1.5)  # type: ignore[arg-type]
    np.save(tmp_path / "ids.npy", np.arange(40, dtype=np.uint16))
    with pytest.raises(bytemill.ConfigError, match="split='val' applies to a directory of tokens"):
        lm.evaluate(here / "run", tmp_path / "ids.npy", split="val")


def test_training_documents_are_reported(here: Path) -> None:
    # There are only ten words, but two documents of 16 tokens are not equal by chance.
    clean = lm.evaluate(here / "run", here / "val", progress=False)
    assert clean.warnings == []
    train = {tuple(ids.tolist()) for ids in bytemill.Tokens(here / "train").documents}
    both = bytemill.Tokens(here / "both").documents
    expected = [n for n, ids in enumerate(both) if len(ids) >= 16 and tuple(ids.tolist()) in train]
    assert expected
    found = lm.evaluate(here / "run", here / "both", progress=False)
    assert found.warnings[0].startswith(f"{len(expected)} of ")
    assert f"document {expected[0]}:" in found.warnings[0]
    unchecked = lm.evaluate(here / "run", here / "both", check=False, progress=False)
    assert unchecked.warnings == []
    # Raw ids are cut at the end-of-text.
    bytemill.Tokens(here / "both")[:].astype(np.uint16).tofile(here / "both.bin")
    raw = lm.evaluate(here / "run", here / "both.bin", progress=False)
    assert raw.warnings == found.warnings


def test_white_space_around_a_document_is_ignored(here: Path) -> None:
    train = (here / "train.txt").read_text().split(END)
    long = [text for text in train if len(text.split()) > 30][:3]
    # A copy with line breaks around it, and one at the end of a file, without an end-of-text.
    (here / "copies.txt").write_text(f"\n{long[0]}\n\n{END}\n{long[1]}\n{END}{long[2]}")
    _, tokenizer = lm.load(here / "run")
    assert tokenizer is not None
    tokenizer.encode_files([here / "copies.txt"], here / "copies", progress=False)
    found = lm.evaluate(here / "run", here / "copies", progress=False)
    assert found.warnings[0].startswith("3 of 3 documents (100.0% of the tokens)")


def test_the_training_data_of_an_imported_model_is_unknown(here: Path) -> None:
    lm.export_run(here / "run", here / "exported", progress=False)
    lm.import_run(here / "exported", here / "imported", progress=False)
    found = lm.evaluate(here / "imported", here / "val", progress=False)
    assert ["imported" in warning for warning in found.warnings] == [True]
    ours = lm.evaluate(here / "run", here / "val", progress=False)
    assert found.evaluation.loss == pytest.approx(ours.evaluation.loss, rel=1e-6)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (9.3, "above ln(10,000) = 9.21"),
        (9.1, "close to ln"),
        (0.01, "below 0.1"),
        (math.nan, "nan"),
    ],
)
def test_losses_that_indicate_a_mistake(loss: float, words: str) -> None:
    (warning,) = evaluation_checks.of_loss(loss, 10000)
    assert words in warning
    assert evaluation_checks.of_loss(4.0, 10000) == []


def test_a_wrong_dtype_is_reported(here: Path) -> None:
    # 32-bit ids read as 16-bit ones: every other is 0.
    ids = bytemill.Tokens(here / "val")[:]
    ids.astype(np.uint32).tofile(here / "wide.bin")
    found = lm.evaluate(here / "run", here / "wide.bin", progress=False)
    assert "above ln(300)" in found.warnings[0]


@pytest.mark.parametrize("per_document", [False, True])
def test_impossible_ids_are_named(here: Path, tmp_path: Path, per_document: bool) -> None:
    """Issue 13, 5."""
    ids = np.asarray(lm.open_tokens(here / "val")[:200]).astype(np.int32)
    for wrong, rule in ((-100, "is negative"), (70_000, "is not below vocab_size=")):
        ids[77] = wrong
        np.save(tmp_path / "tokens.npy", ids)
        with pytest.raises(bytemill.TokensError, match=f"id {wrong} at token 77 {rule}"):
            lm.evaluate(here / "run", tmp_path / "tokens.npy", check=False,
                        per_document=per_document, progress=False)  # fmt: skip


def test_the_command(here: Path) -> None:
    found = ok("evaluate", here / "run", here / "val", "--json")
    assert found.json["n_tokens"] == len(bytemill.Tokens(here / "val")) - 1
    assert {"evaluate", "overlap"} <= {event.get("phase") for event in found.events}
    text = ok("evaluate", here / "run", here / "both", "--per-document", "--stride", 4)
    assert "bits per byte" in text.text
    assert text.text.count("\n") > 16 + 5
    assert "are also in the training tokens" in text.said
    for arguments, message in (
        (["run", "wrong"], "but the model was trained with"),
        (["run", "val", "--stride", "17"], "from 1 to the context length, 16"),
        (["run", "nothing"], "no such file"),
        (["val", "val"], "not a run"),
        (["run", "val", "--step", "first"], "best, last or a number"),
        (["run", "val", "--split", "test"], "no split"),
    ):
        failed = run("evaluate", here / arguments[0], here / arguments[1], *arguments[2:])
        assert failed.code in (1, 2)
        assert message in failed.said
