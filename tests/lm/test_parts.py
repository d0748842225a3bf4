"""The parts of the language model, each against an independent implementation."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import torch.nn.functional as F

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm import model, naive

shapes = st.lists(st.integers(1, 3), min_size=0, max_size=3).map(tuple)


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def close(a: Any, b: Any, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, check_dtype=False)


@given(shapes, st.floats(0.01, 300))
def test_softmax_silu_and_cross_entropy_are_torchs(shape: tuple[int, ...], scale: float) -> None:
    x = random(*shape, 7, scale=scale)
    close(lm.softmax(x), torch.softmax(x, -1))
    close(lm.softmax(x, 0), torch.softmax(x, 0))
    close(lm.silu(x), F.silu(x))
    targets = torch.randint(0, 7, shape, generator=torch.Generator().manual_seed(1))
    close(lm.cross_entropy(x, targets), F.cross_entropy(x.reshape(-1, 7), targets.reshape(-1)))


def test_cross_entropy_of_extreme_logits() -> None:
    huge = torch.tensor([[1e30, 0.0], [-1e30, 0.0]])
    assert lm.cross_entropy(huge, torch.tensor([0, 1])) == 0
    assert lm.cross_entropy(huge, torch.tensor([1, 0])) == pytest.approx(1e30)
    half = random(4, 9).half()
    assert lm.cross_entropy(half, torch.zeros(4, dtype=torch.long)).dtype == torch.float32


def test_perplexity() -> None:
    uniform = torch.zeros(3, 50)
    assert lm.perplexity(lm.cross_entropy(uniform, torch.arange(3))) == pytest.approx(50, rel=1e-5)
    assert lm.perplexity(1e9) == math.inf


@given(shapes, st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**20))
def test_attention_is_torchs(shape: tuple[int, ...], n: int, m: int, bits: int) -> None:
    query, key, value = random(*shape, n, 4), random(*shape, m, 4, seed=1), random(*shape, m, 6)
    close(
        lm.scaled_dot_product_attention(query, key, value),
        F.scaled_dot_product_attention(query, key, value),
    )
    mask = torch.tensor([bits >> i & 1 for i in range(n * m)]).bool().reshape(n, m)
    ours = lm.scaled_dot_product_attention(query, key, value, mask)
    sees = mask.any(-1)
    close(
        ours[..., sees, :],
        F.scaled_dot_product_attention(query, key, value, attn_mask=mask)[..., sees, :],
    )
    assert not ours[..., ~sees, :].any()


@given(shapes, st.integers(1, 9))
def test_rms_norm(shape: tuple[int, ...], d: int) -> None:
    norm = lm.RMSNorm(d, eps=1e-3, dtype=torch.float64)
    torch.nn.init.uniform_(norm.weight)
    x = random(*shape, d)
    expected = x / (x.pow(2).sum(-1, keepdim=True) / d + 1e-3) ** 0.5 * norm.weight
    close(norm(x), expected)
    close(naive.rms_norm(x, norm.weight, 1e-3), expected)


@pytest.mark.parametrize("norm", [lm.RMSNorm(64), naive.rms_norm], ids=["torch", "naive"])
def test_rms_norm_counts_in_float32(norm: Any) -> None:
    # 256² · 64 overflows float16.
    y = norm(torch.full((2, 64), 256.0, dtype=torch.float16))
    assert y.dtype == torch.float16
    close(y, torch.ones(2, 64))


def test_linear_and_embedding() -> None:
    linear = lm.Linear(5, 3, dtype=torch.float64)
    x = random(2, 4, 5)
    close(linear(x), torch.einsum("...i,oi->...o", x, linear.weight))
    embedding = lm.Embedding(10, 4)
    ids = torch.tensor([[1, 9], [0, 1]])
    assert torch.equal(embedding(ids), embedding.weight[ids])


@pytest.mark.parametrize(
    ("module", "std"),
    [(lm.Linear(300, 500), math.sqrt(2 / 800)), (lm.Embedding(400, 300), 1.0)],
    ids=["linear", "embedding"],
)
def test_weights_start_as_a_truncated_normal(module: Any, std: float) -> None:
    weight = module.weight.detach()
    assert weight.abs().max() <= 3 * std
    assert weight.abs().max() > 2.9 * std
    assert weight.mean().abs() < 0.01 * std
    # Truncating at three deviations reduces the deviation by 1.3 %.
    assert weight.std() == pytest.approx(0.9866 * std, rel=0.01)


def test_swiglu() -> None:
    layer = lm.SwiGLU(6, 10, dtype=torch.float64)
    x = random(3, 6)
    gate = x @ layer.w1.weight.T
    expected = (gate / (1 + torch.exp(-gate)) * (x @ layer.w3.weight.T)) @ layer.w2.weight.T
    close(layer(x), expected)
    close(naive.swiglu(gate, x @ layer.w3.weight.T) @ layer.w2.weight.T, expected)
    assert lm.SwiGLU(512).w1.weight.shape == (1344, 512)
    plain = lm.SiLUFeedForward(6, 10, dtype=torch.float64)
    close(plain(x), F.silu(x @ plain.w1.weight.T) @ plain.w2.weight.T)


@given(shapes, st.integers(1, 6), st.integers(1, 4))
def test_rotary_embedding_is_a_complex_product(shape: tuple[int, ...], n: int, pairs: int) -> None:
    rope = lm.RotaryEmbedding(100.0, 2 * pairs, 20)
    x = random(*shape, n, 2 * pairs)
    positions = torch.randint(0, 20, (n,), generator=torch.Generator().manual_seed(n))
    for given_positions, actual in ((None, torch.arange(n)), (positions, positions)):
        angles = actual[:, None] * 100.0 ** (-torch.arange(0, 2 * pairs, 2).double() / (2 * pairs))
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.exp(1j * angles)
        expected = torch.view_as_real(turned).flatten(-2)
        close(rope(x, given_positions), expected, 1e-6)  # the table is float32


def test_rotary_embedding_depends_on_distance_only() -> None:
    rope = lm.RotaryEmbedding(10000.0, 8, 64)
    query, key = random(8), random(8, seed=1)

    def score(a: int, b: int) -> Any:
        turned = rope(query[None], torch.tensor([a])), rope(key[None], torch.tensor([b]))
        return (turned[0] * turned[1]).sum()

    close(score(5, 2), score(40, 37), 1e-6)
    assert abs(score(5, 2) - score(5, 3)) > 1e-3


def test_rotary_embedding_refuses() -> None:
    with pytest.raises(bytemill.ConfigError, match="d_k must be even, got 5"):
        lm.RotaryEmbedding(100.0, 5, 20)
    with pytest.raises(bytemill.ConfigError, match="positions must be < 20"):
        lm.RotaryEmbedding(100.0, 4, 20)(torch.zeros(21, 4))


@pytest.mark.parametrize("n_kv", [1, 2, 4])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_attention_layer_looks_back_only(n_kv: int, qk_norm: bool) -> None:
    rope = lm.RotaryEmbedding(100.0, 6, 16)
    layer = lm.CausalSelfAttention(24, 4, n_kv, rope, qk_norm)
    x = random(2, 3, 9, 24).float()
    whole = layer(x)
    assert whole.shape == x.shape
    for n in (1, 4, 9):
        close(layer(x[..., :n, :]), whole[..., :n, :], 1e-5)
    changed = x.clone()
    changed[..., 5, :] += 1
    close(layer(changed)[..., :5, :], whole[..., :5, :], 1e-6)
    assert not torch.allclose(layer(changed)[..., 5:, :], whole[..., 5:, :], atol=1e-3)


def test_causal_mask() -> None:
    expected = [[True, True, False], [True, True, True]]
    assert model.causal_mask(2, 3).tolist() == expected


def test_rotate_keeps_lengths() -> None:
    x = random(5, 8)
    angle = random(5, 4)
    turned = naive.rotate(x, angle.cos(), angle.sin())
    close(turned.norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"num_heads": 5}, "must be a multiple of num_heads", "4, 6"),
        ({"num_heads": 16}, "must be even, got 3", "even"),
        ({"num_kv_heads": 3}, "num_kv_heads (3), got 4", "each key"),
        ({"d_model": 0}, "d_model must be ≥ 1, got 0", ""),
        ({"d_model": 2.5}, "d_model must be a whole number, got 2.5", ""),
        ({"norm": "before"}, "norm must be one of 'pre', 'post', 'none', got \"before\"", ""),
        ({"tie_embeddings": 1}, "tie_embeddings must be true or false, got 1", ""),
        ({"rope_theta": -1}, "rope_theta must be > 0, got -1.0", ""),
    ],
)
def test_impossible_configs(changes: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(bytemill.ConfigError) as caught:
        small_lm.config(**changes)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_config_round_trip() -> None:
    config = small_lm.config(num_kv_heads=2, rope_theta=500)
    assert isinstance(config.rope_theta, float)
    assert lm.ModelConfig.from_json(config.to_json()) == config
    with pytest.raises(bytemill.ConfigError, match="did you mean d_model") as caught:
        lm.ModelConfig.from_json(config.to_json() | {"d-modle": 3})
    assert "'d-modle'" in caught.value.message


def test_type_checkers_see_every_name() -> None:
    assert lm.__file__ is not None
    tree = ast.parse(Path(lm.__file__).read_text(encoding="utf-8"))
    checked = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {a.name for n in checked[0].body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert imported == set(lm.__all__)


@pytest.mark.parametrize("name", lm.__all__)
def test_every_name_exists_and_is_documented(name: str) -> None:
    value = getattr(lm, name)
    assert value.__doc__
    assert name in dir(lm)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        lm.nothing  # noqa: B018
