"""Import from transformers: the inverse of export; models we cannot represent are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_export import TEXT, shapes, small

import small_lm
from bytemill import CheckpointError, ConfigError, Tokenizer, TokensError
from command_line import ok, run

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file

from bytemill import lm

pytestmark = pytest.mark.filterwarnings("ignore")
__all__ = ["small"]  # a fixture


def edit(path: Path, **changes: Any) -> None:
    """Changes fields of a JSON file; None removes one."""
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: v for name, v in fields.items() if v is not None}))


@pytest.fixture
def exported(small: Tokenizer, tmp_path: Path) -> Path:
    """An exported model in transformers' format."""
    small_lm.run(tmp_path / "run", small, num_kv_heads=2)
    lm.export_run(tmp_path / "run", tmp_path / "model")
    return tmp_path / "model"


@shapes
def test_export_and_import_give_the_same_bits(
    changes: dict[str, Any],
    small: Tokenizer,
    tmp_path: Path,
) -> None:
    before = small_lm.run(tmp_path / "run", small, **changes)
    lm.export_run(tmp_path / "run", tmp_path / "model")
    done = lm.import_run(tmp_path / "model", tmp_path / "back")
    after, tokenizer = lm.load(tmp_path / "back")
    assert (after.config, tokenizer) == (before.config, small)
    assert done.parameters == before.n_parameters
    weights = dict(before.named_parameters())
    for name, weight in after.named_parameters():
        assert torch.equal(weight, weights[name]), name


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float32"},
        {"dtype": "bfloat16", "tie_word_embeddings": True},
        {"dtype": "float16", "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    ],
    ids=["plain", "tied", "theta"],
)
def test_a_llama_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", minversion="5")
    dtype = getattr(torch, changes.pop("dtype"))
    torch.manual_seed(0)
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, **changes,
        )
    ).to(dtype)  # fmt: skip
    llama.save_pretrained(tmp_path / "model", max_shard_size="40KB")
    assert len(list((tmp_path / "model").glob("model-*.safetensors"))) > 1
    lm.import_run(tmp_path / "model", tmp_path / "run", tokenizer=False)
    model, tokenizer = lm.load(tmp_path / "run")
    assert tokenizer is None
    assert model.config.norm_eps == llama.config.rms_norm_eps
    ids = small_lm.ids(2, 32)
    with torch.no_grad():
        expected = llama.float()(ids).logits
        torch.testing.assert_close(model(ids), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"attention_bias": True}, "attention_bias is set, but bytemill's layers have no biases"),
        ({"mlp_bias": True}, "mlp_bias is set"),
        ({"hidden_act": "gelu"}, "hidden_act must be 'silu', is 'gelu'"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            r"scaled rotary frequencies \(llama3\)",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            r"scaled rotary frequencies \(linear\)",
        ),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
            r"scaled rotary frequencies \(yarn\)",
        ),
        ({"partial_rotary_factor": 0.5}, "only 0.5 of each head"),
        ({"head_dim": 64}, "head_dim=64 times 4 heads must equal hidden_size=48"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"num_attention_heads": 5, "head_dim": None}, "must be a multiple of num_heads"),
        ({"num_hidden_layers": None}, "'num_hidden_layers' is missing"),
        ({"hidden_size": "wide"}, "not a model config"),
        ({"num_hidden_layers": 1}, "no weight for model.layers.1"),
        ({"num_hidden_layers": 3}, "model.layers.2.* is missing"),
        ({"intermediate_size": 96}, "config.json implies"),
        ({"vocab_size": 300}, "ids up to 399, but the model's vocab_size is 300"),
        ({"model_type": "qwen3"}, "q_norm.* is missing"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_models_that_ours_cannot_represent_are_refused(
    changes: dict[str, Any], reason: str, exported: Path
) -> None:
    edit(exported / "config.json", **changes)
    with pytest.raises(CheckpointError, match=reason):
        lm.import_run(exported, exported.parent / "back")
    assert sorted(path.name for path in exported.parent.iterdir()) == ["model", "run"]


def test_missing_and_unsafe_files(exported: Path) -> None:
    back = exported.parent / "back"
    weights = load_file(exported / "model.safetensors")
    # A bias that config.json does not mention; and an extra tensor of older files.
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file(weights | {name: torch.ones(6)}, exported / "model.safetensors")
    lm.import_run(exported, back)
    bias = {"model.layers.0.self_attn.q_proj.bias": torch.ones(48)}
    save_file(weights | bias, exported / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no weight for .*q_proj\.bias"):
        lm.import_run(exported, back, overwrite=True)
    whole = weights | {"lm_head.weight": weights["lm_head.weight"].to(torch.int8)}
    save_file(whole, exported / "model.safetensors")
    with pytest.raises(CheckpointError, match="has type I8"):
        lm.import_run(exported, back, overwrite=True)
    (exported / "model.safetensors").write_bytes(b"PK\x03\x04")
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        lm.import_run(exported, back, overwrite=True)
    (exported / "model.safetensors").unlink()
    index = exported / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "../run/config.json"}}))
    with pytest.raises(CheckpointError, match=r"shard '\.\./run/config\.json' is missing"):
        lm.import_run(exported, back, overwrite=True)
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="no weight_map"):
        lm.import_run(exported, back, overwrite=True)
    index.unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors"):
        lm.import_run(exported, back, overwrite=True)
    (exported / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    with pytest.raises(CheckpointError, match=r"pickled \(pytorch_model\.bin\)"):
        lm.import_run(exported, back, overwrite=True)
    (exported / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="JSON object"):
        lm.import_run(exported, back, overwrite=True)
    lm.load(back)  # the old run is intact


def test_only_a_run_is_replaced(exported: Path) -> None:
    with pytest.raises(FileExistsError):
        lm.import_run(exported, exported)
    with pytest.raises(CheckpointError, match="not the config of a bytemill run"):
        lm.import_run(exported, exported, overwrite=True)
    lm.import_run(exported, exported.parent / "run", overwrite=True)
    assert not list((exported.parent / "run").glob("step-00000007"))


def test_the_command(exported: Path) -> None:
    back = exported.parent / "back"
    result = ok("import", exported, "-o", back)
    assert "llama, " in result.said
    assert "next    bytemill generate" in result.said
    text = ok("generate", back, "def", "--max-tokens", 5, "--temperature", 0).text
    assert text == ok("generate", exported.parent / "run", "def", "--max-tokens", 5,
                      "--temperature", 0).text  # fmt: skip
    found = ok("import", exported, "-o", back, "--overwrite", "--json").json
    assert (found["architecture"], found["tokenizer"]) == ("llama", True)
    (exported / "tokenizer.json").unlink()
    result = run("import", exported, "-o", back, "--overwrite")
    assert (result.code, "--no-tokenizer" in result.said) == (1, True)
    ok("import", exported, "-o", back, "--overwrite", "--no-tokenizer", "-q")
    assert lm.load(back)[1] is None
    assert run("import", exported / "nowhere", "-o", back).code == 1


# --- training an imported model -----------------------------------------------------------------


def test_training_starts_from_a_run(exported: Path, small: Tokenizer) -> None:
    top = exported.parent
    (top / "text.txt").write_text(TEXT * 60)
    tokens = small.encode_files(top / "text.txt", top / "tokens", progress=False)
    lm.import_run(exported, top / "imported")
    options: Any = {"batch_size": 2, "progress": False, "tensorboard": False, "threads": 1}
    options |= {"sample_every": 0, "eval_every": 0, "compile": "off"}
    result = lm.train(
        top / "tokens", top / "tuned", start_from=top / "imported", steps=2, lr=1e-12, **options
    )
    start, _ = lm.load(top / "imported")
    tuned, tokenizer = lm.load(top / "tuned")
    assert (tuned.config, tokenizer) == (start.config, small)
    torch.testing.assert_close(tuned.head_weight, start.head_weight, rtol=0, atol=1e-6)
    assert result.loss > 0
    # It is a run like any other: it resumes without the weights it started from.
    (top / "imported").rename(top / "elsewhere")
    lm.train(top / "tokens", top / "tuned", resume=True, steps=3, **options)
    (top / "elsewhere").rename(top / "imported")
    # Another context needs no other weights.
    lm.train(
        top / "tokens", top / "short", start_from=top / "imported", steps=1, context_length=16,
        **options,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="num_layers=2, not num_layers=3"):
        lm.train(top / "tokens", top / "x", start_from=top / "imported", num_layers=3)
    with pytest.raises(ConfigError, match="is inside the run to be replaced"):
        lm.train(top / "tokens", top / "tuned", start_from=top / "tuned", overwrite=True)
    with pytest.raises(ConfigError, match=r"nothing to resume\n.*start_from="):
        lm.train(top / "tokens", top / "imported", resume=True)
    other = small.with_vocab_size(300)
    other.encode_files(top / "text.txt", top / "others", progress=False)
    with pytest.raises(TokensError, match="encoded with the tokenizer"):
        lm.train(top / "others", top / "x", tokenizer=other, start_from=top / "imported")
    assert not (top / "x").exists()
    assert np.asarray(tokens[:3]).tolist() == small.encode(TEXT)[:3]
