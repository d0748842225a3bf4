"""Export to transformers: it computes the same; models it cannot represent are refused."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest

import bytemill
import small_lm
from bytemill import CheckpointError, ConfigError, Tokenizer
from command_line import ok, run

torch = pytest.importorskip("torch")
from safetensors.torch import load_file

from bytemill import lm
from bytemill.lm.run.tensors import Deferred, write_safetensors

# transformers warns about packages that are not installed, and about its own deprecations.
pytestmark = pytest.mark.filterwarnings("ignore")

SHAPES: list[dict[str, Any]] = [
    {},
    {"num_kv_heads": 2},
    {"tie_embeddings": True},
    {"d_ff": 72, "rope_theta": 300.0},
    {"norm_eps": 0.01},
    {"qk_norm": True, "num_kv_heads": 1},
]
shapes = pytest.mark.parametrize("changes", SHAPES, ids=lambda c: ",".join(c) or "plain")
TEXT = "def naïve(x): <|endoftext|>\n\n\n  return 12345 * x  <|pad|>you'll see 👩‍💻 \t"


@pytest.fixture(scope="module")
def small(tokenizer: Tokenizer) -> Tokenizer:
    """400 ids, two of them special tokens."""
    cut = tokenizer.with_vocab_size(399)
    plain = {id: token for id, token in cut.vocab.items() if token != b"<|endoftext|>"}
    return Tokenizer(plain, cut.merges, ["<|endoftext|>", "<|pad|>"])


def transformers_model(directory: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(directory, local_files_only=True)


@shapes
def test_transformers_computes_the_same(
    changes: dict[str, Any], small: Tokenizer, tmp_path: Path
) -> None:
    model = small_lm.run(tmp_path / "run", small, **changes)
    done = lm.export_run(tmp_path / "run", tmp_path / "model")
    assert done.architecture == ("qwen3" if "qk_norm" in changes else "llama")
    assert (done.step, done.n_bytes) == (7, 4 * model.n_parameters)
    theirs = transformers_model(tmp_path / "model")
    assert type(theirs).__name__.lower() == f"{done.architecture}forcausallm"
    ids = small_lm.ids(3, 32, below=400)
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, model(ids), rtol=0, atol=1e-5)
    ours = model.generate(ids[0, :8], max_tokens=12, temperature=0)[0]
    written = theirs.generate(ids[:1, :8], max_new_tokens=12, do_sample=False)
    end = small.special_tokens["<|endoftext|>"]
    assert written[0, 8:].tolist() == ours[: ours.index(end) + 1 if end in ours else None]


def test_transformers_reads_the_tokenizer(small: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small_lm.run(tmp_path / "run", small)
    lm.export_run(tmp_path / "run", tmp_path / "model")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model", local_files_only=True)
    ids = small.encode(TEXT)
    assert theirs(TEXT)["input_ids"] == ids
    assert theirs.decode(ids) == TEXT
    assert theirs.decode(ids, skip_special_tokens=True) == small.decode(
        [id for id in ids if id < 398]
    )
    assert theirs.eos_token == theirs.bos_token == "<|endoftext|>"
    assert theirs.model_max_length == 32
    words = json.loads((tmp_path / "model" / "generation_config.json").read_text())
    assert words["eos_token_id"] == theirs.eos_token_id == 398
    assert Tokenizer.load(tmp_path / "model") == small


@pytest.mark.parametrize(("dtype", "kind"), [("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_smaller_types(dtype: Any, kind: Any, small: Tokenizer, tmp_path: Path) -> None:
    model = small_lm.run(tmp_path / "run", small)
    lm.export_run(tmp_path / "run", tmp_path / "model", dtype=dtype)
    written = load_file(tmp_path / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in written.values()} == {kind}
    assert torch.equal(written["lm_head.weight"], model.head_weight.detach().to(kind))
    assert transformers_model(tmp_path / "model").dtype == kind


def test_a_weight_beyond_float16_is_refused(small: Tokenizer, tmp_path: Path) -> None:
    small_lm.run(tmp_path / "run", small)
    step = tmp_path / "run" / "step-00000007"
    weights = load_file(step / "model.safetensors")
    weights["head.weight"][3, 4] = -70000.0
    facts = json.loads((step / "state.json").read_text())
    lm_facts = {name: facts[name] for name in ("model", "tokenizer")}
    small_lm.write_step(tmp_path / "run", 8, weights, None, lm_facts)
    with pytest.raises(ConfigError, match="for float16, got 70000"):
        lm.export_run(tmp_path / "run", tmp_path / "model", dtype="f16")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    lm.export_run(tmp_path / "run", tmp_path / "model", dtype="bf16")


@pytest.mark.parametrize("target", ["huggingface", "gguf"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"norm": "post"}, "norm='post' cannot be exported: Llama and Qwen3 have a norm before"),
        ({"norm": "none"}, "norm='none' cannot be exported"),
        ({"positions": "none"}, "have rotary positions"),
        ({"feed_forward": "silu"}, "have a gate"),
    ],
)
def test_models_that_the_target_cannot_represent_are_refused(
    changes: dict[str, Any], reason: str, target: Any, small: Tokenizer, tmp_path: Path
) -> None:
    small_lm.run(tmp_path / "run", small, **changes)
    with pytest.raises(ConfigError, match=reason):
        lm.export_run(tmp_path / "run", tmp_path / "out.gguf", to=target)
    assert not (tmp_path / "out.gguf").exists()


def test_an_export_is_complete_or_absent(
    small: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_lm.run(tmp_path / "run", small)
    other = tmp_path / "precious"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError):
        lm.export_run(tmp_path / "run", other)
    with pytest.raises(ConfigError, match="not part of an exported model"):
        lm.export_run(tmp_path / "run", other, overwrite=True)
    with pytest.raises(ConfigError, match="not part of an exported model"):
        lm.export_run(tmp_path / "run", tmp_path / "run", overwrite=True)
    lm.export_run(tmp_path / "run", tmp_path / "model")
    before = (tmp_path / "model" / "config.json").stat().st_ino
    monkeypatch.setattr("bytemill.lm.exchange.exporting._write_json_files", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lm.export_run(tmp_path / "run", tmp_path / "model", overwrite=True)
    assert (tmp_path / "model" / "config.json").stat().st_ino == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "precious", "run"]
    monkeypatch.undo()
    lm.export_run(tmp_path / "run", tmp_path / "model", overwrite=True)
    assert (tmp_path / "model" / "config.json").stat().st_ino != before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "precious", "run"]


def test_a_damaged_checkpoint_is_not_exported(small: Tokenizer, tmp_path: Path) -> None:
    small_lm.run(tmp_path / "run", small)
    path = tmp_path / "run" / "step-00000007" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        lm.export_run(tmp_path / "run", tmp_path / "model")


def test_one_tensor_at_a_time_is_in_memory(tmp_path: Path) -> None:
    alive: list[Any] = []

    def load() -> Any:
        assert sum(reference() is not None for reference in alive) <= 1
        made = torch.ones(100)
        alive.append(weakref.ref(made))
        return made

    tensors = {str(n): Deferred((100,), torch.float32, load) for n in range(5)}
    with open(tmp_path / "x", "wb") as file:
        write_safetensors(file, tensors)
    assert {name: t.shape for name, t in load_file(tmp_path / "x").items()} == dict.fromkeys(
        map(str, range(5)), (100,)
    )


def test_a_run_without_a_tokenizer(tmp_path: Path) -> None:
    small_lm.run(tmp_path / "run")
    said = ok("export", tmp_path / "run", "-o", tmp_path / "model").said
    assert "no tokenizer" in said
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json", "generation_config.json", "model.safetensors",
    ]  # fmt: skip
    result = run("export", tmp_path / "run", "--to", "gguf", "-o", tmp_path / "model.gguf")
    assert (result.code, "needs one" in result.said) == (1, True)


def test_the_command(small: Tokenizer, tmp_path: Path) -> None:
    small_lm.run(tmp_path / "run", small, qk_norm=True)
    result = ok("export", tmp_path / "run", "-o", tmp_path / "model", "--dtype", "bf16", "--json")
    assert result.json == {
        "path": str(tmp_path / "model"), "to": "huggingface", "architecture": "qwen3", "step": 7,
        "bytes": result.json["bytes"], "tokenizer": True, "pre_tokenizer": None,
    }  # fmt: skip
    assert result.events[-1]["phase"] == "export"
    assert result.events[-1]["done"] == result.json["bytes"]
    again = run("export", tmp_path / "run", "-o", tmp_path / "model")
    assert again.code == 1
    assert "--overwrite" in again.said
    said = ok("export", tmp_path / "run", "-o", tmp_path / "model", "--overwrite").said
    assert "saved   " in said
    assert "qwen3, step 7" in said
    assert "9" in run("export", tmp_path / "run", "-o", tmp_path / "x", "--step", "9").said
    assert run("export", tmp_path / "run", "-o", tmp_path / "x", "--step", "first").code == 2
    assert run("export", tmp_path / "none", "-o", tmp_path / "x").code == 1
    nothing = run("export", tmp_path / "run", "--to", "gguf", "-o", tmp_path / "dir")
    assert (nothing.code, "must end in .gguf" in nothing.said) == (1, True)
    with pytest.raises(ConfigError, match="got 'onnx'"):
        lm.export_run(tmp_path / "run", tmp_path / "x", to="onnx")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="gguf only"):
        lm.export_run(tmp_path / "run", tmp_path / "x", pre_tokenizer="gpt-2")
    assert bytemill.Tokenizer.load(tmp_path / "model") == small
