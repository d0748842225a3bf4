"""GGUF files, read by llama.cpp's own reader, and by llama.cpp if it is installed."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_export import shapes, small

import small_lm
from bytemill import ConfigError, Tokenizer
from bytemill.convert import PROBE
from command_line import ok, run

torch = pytest.importorskip("torch")

from bytemill import lm
from bytemill.lm.exchange.gguf import PRE_TOKENIZERS, pre_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")
__all__ = ["small"]  # a fixture


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What llama.cpp's reader finds: pairs, and tensors as arrays with their types."""
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(path)
    pairs = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {t.name: (t.tensor_type.name, np.array(t.data)) for t in reader.tensors}
    return pairs, tensors


def test_the_reader_finds_all(small: Tokenizer, tmp_path: Path) -> None:
    model = small_lm.run(tmp_path / "run", small, vocab_size=403, num_kv_heads=2, rope_theta=700.0)
    done = lm.export_run(tmp_path / "run", tmp_path / "m.gguf", to="gguf")
    assert (done.architecture, done.pre_tokenizer) == ("llama", "gpt-2")
    pairs, tensors = read(tmp_path / "m.gguf")
    expected = {
        "GGUF.version": 3, "general.architecture": "llama", "general.name": "run",
        "general.file_type": 0, "llama.block_count": 2, "llama.embedding_length": 48,
        "llama.feed_forward_length": 128, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.rope.dimension_count": 12,
        "llama.rope.freq_base": 700.0, "llama.context_length": 32, "llama.vocab_size": 403,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.eos_token_id": 398,
        "tokenizer.ggml.bos_token_id": 398,
    }  # fmt: skip
    assert {name: pairs[name] for name in expected} == expected
    assert pairs["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)
    texts = pairs["tokenizer.ggml.tokens"]
    assert texts[32] == "Ġ"
    assert texts[398:] == ["<|endoftext|>", "<|pad|>", "[PAD400]", "[PAD401]", "[PAD402]"]
    assert pairs["tokenizer.ggml.token_type"][-6:] == [1, 3, 3, 5, 5, 5]
    assert len(pairs["tokenizer.ggml.merges"]) == len(small.merges)
    # llama.cpp rotates adjacent pairs too: no row is moved.
    weights = {
        "token_embd.weight": model.embedding.weight,
        "blk.1.attn_q.weight": model.layers[1].attention.query.weight,
        "blk.1.attn_k.weight": model.layers[1].attention.key.weight,
        "blk.0.ffn_norm.weight": model.layers[0].feed_forward_norm.weight,
        "output.weight": model.head_weight,
    }
    assert len(tensors) == 3 + 2 * 9
    for name, weight in weights.items():
        kind, found = tensors[name]
        assert kind == "F32"
        assert np.array_equal(found, weight.detach().numpy()), name


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_smaller_types(dtype: str, small: Tokenizer, tmp_path: Path) -> None:
    model = small_lm.run(tmp_path / "run", small, tie_embeddings=True)
    out = tmp_path / "m.gguf"
    found = ok("export", tmp_path / "run", "--to", "gguf", "--dtype", dtype, "-o", out, "--json")
    assert found.json["pre_tokenizer"] == "gpt-2"
    pairs, tensors = read(out)
    assert pairs["general.file_type"] == {"f16": 1, "bf16": 32}[dtype]
    assert "output.weight" not in tensors
    kind, data = tensors["token_embd.weight"]
    assert kind == dtype.upper()
    assert tensors["output_norm.weight"][0] == "F32"
    rounded = model.embedding.weight.detach().to({"f16": torch.half, "bf16": torch.bfloat16}[dtype])
    assert data.tobytes() == rounded.view(torch.uint8).numpy().tobytes()
    assert run("export", tmp_path / "run", "--to", "gguf", "-o", out).code == 1
    ok("export", tmp_path / "run", "--to", "gguf", "-o", out, "--overwrite")


# --- the tokenizer ------------------------------------------------------------------------------


def with_pattern(tokenizer: Tokenizer, pattern: Any, **options: Any) -> Tokenizer:
    plain = {i: t for i, t in tokenizer.vocab.items() if t != b"<|endoftext|>"}
    specials = ["<|endoftext|>"]
    return Tokenizer(plain, tokenizer.merges, specials, pattern=pattern, **options)


def test_names_of_patterns(tokenizer: Tokenizer, small: Tokenizer, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="differs slightly"):
        names = {p: pre_tokenizer(with_pattern(tokenizer, list(p))) for p in PRE_TOKENIZERS}
    assert names == PRE_TOKENIZERS
    for pattern in ("cl100k", r"\w+|\W+"):
        with pytest.raises(ConfigError, match="has no name for the split pattern"):
            pre_tokenizer(with_pattern(tokenizer, pattern))
    # A token that no merges create: only llama-bpe encodes it as a whole.
    odd = {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"abc"}
    merges = [(b"a", b"b")]
    assert (
        pre_tokenizer(Tokenizer(odd, merges, pattern="llama3", ignore_merges=True)) == "llama-bpe"
    )
    assert pre_tokenizer(Tokenizer(odd, merges, pattern="llama3")) == "smaug-bpe"
    assert pre_tokenizer(Tokenizer(odd, merges)) == "gpt-2"
    with pytest.raises(ConfigError, match="uses merges alone"):
        pre_tokenizer(Tokenizer(odd, merges, ignore_merges=True))
    small_lm.run(tmp_path / "run", with_pattern(small, "cl100k"))
    out = tmp_path / "m.gguf"
    said = run("export", tmp_path / "run", "--to", "gguf", "-o", out).said
    assert "cl100k" in said
    assert "--pre-tokenizer" in said
    ok("export", tmp_path / "run", "--to", "gguf", "-o", out, "--pre-tokenizer", "llama-bpe")
    assert read(out)[0]["tokenizer.ggml.pre"] == "llama-bpe"


def test_two_tokens_of_one_text_are_refused(tmp_path: Path) -> None:
    vocab = {i: bytes([i]) for i in range(256)}
    small_lm.run(tmp_path / "run", Tokenizer(vocab, [], ["[PAD257]"]), vocab_size=258)
    with pytest.raises(ConfigError, match="has the text"):
        lm.export_run(tmp_path / "run", tmp_path / "m.gguf", to="gguf")


# --- llama.cpp ----------------------------------------------------------------------------------


def text_of(theirs: Any, ids: list[int]) -> bytes:
    """llama.cpp's text of ids. (The package's own function fails on tokens of over 32 bytes.)"""
    package = pytest.importorskip("llama_cpp")
    vocab = package.llama_model_get_vocab(theirs.model)
    buffer = (ctypes.c_char * 4096)()
    sizes = (package.llama_token_to_piece(vocab, id, buffer, 4096, 0, False) for id in ids)
    return b"".join(buffer.raw[:n] for n in sizes)


def llama_cpp(path: Path, **options: Any) -> Any:
    package = pytest.importorskip("llama_cpp")
    # By default its cache is float16, which rounds where we do not.
    return package.Llama(
        str(path), n_ctx=32, n_threads=1, verbose=False, type_k=0, type_v=0, **options
    )


@shapes
def test_llama_cpp_computes_the_same(
    changes: dict[str, Any], small: Tokenizer, tmp_path: Path
) -> None:
    model = small_lm.run(tmp_path / "run", small, **changes)
    lm.export_run(tmp_path / "run", tmp_path / "m.gguf", to="gguf")
    theirs = llama_cpp(tmp_path / "m.gguf", logits_all=True)
    prompt = small.encode("def main(x):\n    return", special="none")
    theirs.eval(prompt)
    with torch.no_grad():
        logits = model(torch.tensor(prompt)[None])[0].numpy()
    np.testing.assert_allclose(theirs.scores[: len(prompt)], logits, rtol=0, atol=1e-4)
    ours = model.generate(prompt, max_tokens=12, temperature=0)[0]
    theirs.reset()
    written = []
    for id in theirs.generate(prompt, temp=0.0):
        written.append(id)
        if len(written) == 12:
            break
    assert written == ours


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_llama_cpp_reads_smaller_types(dtype: Any, small: Tokenizer, tmp_path: Path) -> None:
    model = small_lm.run(tmp_path / "run", small)
    lm.export_run(tmp_path / "run", tmp_path / "m.gguf", to="gguf", dtype=dtype)
    theirs = llama_cpp(tmp_path / "m.gguf", logits_all=True)
    prompt = small.encode("def main(x):\n    return", special="none")
    theirs.eval(prompt)
    with torch.no_grad():
        logits = model(torch.tensor(prompt)[None])[0].numpy()
    np.testing.assert_allclose(theirs.scores[: len(prompt)], logits, rtol=0, atol=0.2)


@pytest.mark.parametrize("pattern", PRE_TOKENIZERS, ids=" ".join)
def test_llama_cpp_gives_the_same_ids(
    pattern: tuple[str, ...], tokenizer: Tokenizer, documents: list[str], tmp_path: Path
) -> None:
    ours = with_pattern(tokenizer, list(pattern))
    small_lm.run(tmp_path / "run", ours)
    lm.export_run(tmp_path / "run", tmp_path / "m.gguf", to="gguf")
    theirs = llama_cpp(tmp_path / "m.gguf", vocab_only=True)
    texts = [text[:20_000].encode() for text in documents[:8]] + [b"one <|endoftext|> two"]
    texts += PROBE.partition(b"\xff")[0].splitlines(keepends=True)
    for text in texts:
        assert theirs.tokenize(text, add_bos=False, special=True) == ours.encode(text), text[:80]
        plain = theirs.tokenize(text, add_bos=False, special=False)
        assert plain == ours.encode(text, special="none"), text[:80]
        assert text_of(theirs, plain) == text


def test_llama_cpp_ends_where_ours_ends(small: Tokenizer, tmp_path: Path) -> None:
    small_lm.run(tmp_path / "run", small)
    bare = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    small_lm.run(tmp_path / "bare", bare)
    for name, end in (("run", 398), ("bare", 255)):
        lm.export_run(tmp_path / name, tmp_path / f"{name}.gguf", to="gguf")
        theirs = llama_cpp(tmp_path / f"{name}.gguf", vocab_only=True)
        assert (theirs.token_eos(), theirs.token_bos()) == (end, end)
