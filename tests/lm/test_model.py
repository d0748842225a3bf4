"""The whole model against transformers' Llama, its own plain version and finite differences."""

from __future__ import annotations

import copy
import shutil
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm


def halves(weight: Any, n_heads: int) -> Any:
    """Reorders the rows of a projection: rotary pairs are halves there, adjacent numbers here."""
    heads = weight.unflatten(0, (n_heads, -1))
    return torch.cat((heads[:, 0::2], heads[:, 1::2]), 1).flatten(0, 1)


def as_llama(model: lm.TransformerLM) -> Any:
    transformers = pytest.importorskip("transformers")
    config = model.config
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            intermediate_size=config.d_ff,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            max_position_embeddings=config.context_length,
            rms_norm_eps=config.norm_eps,
            rope_theta=config.rope_theta,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tie_embeddings,
        )
    )
    state = {
        "model.embed_tokens.weight": model.embedding.weight,
        "model.norm.weight": model.final_norm.weight,
        "lm_head.weight": model.head_weight,
    }
    for number, block in enumerate(model.layers):
        attention, inner = block.attention, block.feed_forward
        state |= {
            f"model.layers.{number}.{name}.weight": weight
            for name, weight in {
                "input_layernorm": block.attention_norm.weight,
                "self_attn.q_proj": halves(attention.query.weight, config.num_heads),
                "self_attn.k_proj": halves(attention.key.weight, config.n_kv),
                "self_attn.v_proj": attention.value.weight,
                "self_attn.o_proj": attention.output.weight,
                "post_attention_layernorm": block.feed_forward_norm.weight,
                "mlp.gate_proj": inner.w1.weight,
                "mlp.up_proj": inner.w3.weight,
                "mlp.down_proj": inner.w2.weight,
            }.items()
        }
    llama.load_state_dict({name: value.detach() for name, value in state.items()})
    return llama.eval()


@pytest.mark.parametrize("changes", [{}, {"num_kv_heads": 2}, {"tie_embeddings": True}])
@pytest.mark.parametrize("kernels", ["plain", "torch", "fused"])
def test_logits_and_gradients_are_llamas(changes: dict[str, Any], kernels: Any) -> None:
    model = small_lm.with_kernels(small_lm.model(rope_theta=1000.0, **changes), kernels)
    llama = as_llama(model)
    ids = small_lm.ids(3, 33)
    theirs = llama(ids[:, :-1]).logits
    torch.testing.assert_close(model(ids[:, :-1]), theirs, rtol=1e-4, atol=1e-4)
    loss = model.loss(ids[:, :-1], ids[:, 1:])
    expected = torch.nn.functional.cross_entropy(theirs.flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    loss.backward()
    expected.backward()
    theirs = {
        "embed": (model.embedding.weight, llama.model.embed_tokens.weight),
        "norm": (model.final_norm.weight, llama.model.norm.weight),
        "down": (
            model.layers[0].feed_forward.w2.weight,
            llama.model.layers[0].mlp.down_proj.weight,
        ),
        "value": (
            model.layers[1].attention.value.weight,
            llama.model.layers[1].self_attn.v_proj.weight,
        ),
    }
    for name, (ours, other) in theirs.items():
        torch.testing.assert_close(
            ours.grad,
            other.grad,
            rtol=1e-3,
            atol=1e-6,
            msg=lambda text, name=name: f"{name}: {text}",
        )
    query = model.layers[0].attention.query.weight.grad
    torch.testing.assert_close(
        halves(query, model.config.num_heads),
        llama.model.layers[0].self_attn.q_proj.weight.grad,
        rtol=1e-3,
        atol=1e-6,
    )


@small_lm.ablations
def test_the_three_implementations_agree(changes: dict[str, Any]) -> None:
    model = small_lm.model(**changes)
    ids, targets = small_lm.ids(2, 3, 20), small_lm.ids(2, 3, 20, seed=1)
    ids, targets = ids.flatten(0, 1), targets.flatten(0, 1)
    results = {}
    for kernels in ("plain", "torch", "fused"):
        small_lm.with_kernels(model, kernels)
        loss = model.loss(ids, targets)
        results[kernels] = model(ids).detach(), loss.detach(), small_lm.gradients(model, loss)
    for kernels in ("torch", "fused"):
        torch.testing.assert_close(results[kernels][0], results["plain"][0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(results[kernels][1], results["plain"][1], rtol=1e-5, atol=1e-6)
        for name, expected in results["plain"][2].items():
            torch.testing.assert_close(
                results[kernels][2][name], expected, rtol=1e-3, atol=1e-6,
                msg=lambda text, name=name: f"{name}: {text}",
            )  # fmt: skip


@small_lm.ablations
def test_gradients_are_finite_differences(changes: dict[str, Any]) -> None:
    model = small_lm.with_kernels(
        small_lm.model(
            dtype=torch.float64, d_model=16, num_heads=4, d_ff=24, vocab_size=11, **changes
        ),
        "plain",
    )
    ids, targets = small_lm.ids(2, 5, below=11), small_lm.ids(2, 5, below=11, seed=3)
    found = small_lm.gradients(model, model.loss(ids, targets))
    draws = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            direction = torch.randn(parameter.shape, generator=draws, dtype=torch.float64)
            step = 1e-5
            parameter += step * direction
            above = model.loss(ids, targets)
            parameter -= 2 * step * direction
            below = model.loss(ids, targets)
            parameter += step * direction
            slope = (above - below) / (2 * step)
            torch.testing.assert_close(
                (found[name] * direction).sum(), slope, rtol=1e-5, atol=1e-8,
                msg=lambda text, name=name: f"{name}: {text}",
            )  # fmt: skip


def test_any_leading_dimensions() -> None:
    model = small_lm.model()
    ids = small_lm.ids(2, 3, 7)
    assert model(ids).shape == (2, 3, 7, 97)
    torch.testing.assert_close(model(ids)[1, 2], model(ids[1, 2]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.loss(ids[0], ids[0]), model.loss(ids[0, :, :], ids[0]))


def test_a_block_makes_its_own_positions() -> None:
    block = lm.TransformerBlock(small_lm.config())
    x = torch.randn(1, 6, 48, generator=torch.Generator().manual_seed(0))
    # The last token sees the same tokens in another order: that must make a difference ...
    other = x[:, [2, 0, 1, 3, 4, 5]]
    assert not torch.allclose(block(x)[:, 5], block(other)[:, 5], atol=1e-4)
    blind = lm.TransformerBlock(small_lm.config(positions="none"))
    assert torch.allclose(blind(x)[:, 5], blind(other)[:, 5], atol=1e-4)
    # ... and continuing after a cache gives the same as reading everything at once.
    cache = lm.TransformerLM(small_lm.config(num_layers=1)).new_cache().layers[0]
    parts = torch.cat([block(x[:, :4], cache), block(x[:, 4:], cache)], 1)
    torch.testing.assert_close(parts, block(x), rtol=1e-4, atol=1e-5)


def test_too_long() -> None:
    for kernels in ("plain", "torch", "fused"):
        model = small_lm.with_kernels(small_lm.model(), kernels)
        with pytest.raises(bytemill.ConfigError, match="must have ≤ 32 ids"):
            model(small_lm.ids(1, 33))


def test_tied_embeddings_are_one_matrix() -> None:
    tied, untied = small_lm.model(tie_embeddings=True), small_lm.model()
    assert untied.n_parameters - tied.n_parameters == 97 * 48
    assert tied.head_weight is tied.embedding.weight
    # Logits must not start out huge.
    assert tied(small_lm.ids(4, 32)).std() < 3


def test_the_number_of_parameters() -> None:
    shape = {"vocab_size": 10000, "context_length": 256, "d_model": 512, "num_layers": 4}
    with torch.device("meta"):
        model = lm.TransformerLM(lm.ModelConfig(**shape, num_heads=16))
    assert model.n_parameters == 22_696_448


@pytest.mark.parametrize("kernels", ["plain", "torch", "fused"])
def test_one_batch_is_overfitted(kernels: Any) -> None:
    model = small_lm.with_kernels(small_lm.model(), kernels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    ids = small_lm.ids(4, 17)
    for _ in range(60):
        optimizer.zero_grad()
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
    assert loss < 0.02


@pytest.mark.parametrize("chunk_rows", [1, 4, 7, 100])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_head_and_loss_in_chunks(chunk_rows: int, scale: float) -> None:
    made = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 7, 12, generator=made, requires_grad=True)
    weight = torch.randn(50, 12, generator=made, requires_grad=True)
    targets = torch.randint(0, 50, (3, 7), generator=made)
    plain = lm.cross_entropy(hidden @ weight.T, targets)
    (plain * scale).backward()
    expected = hidden.grad.clone(), weight.grad.clone()
    hidden.grad = weight.grad = None
    ours = lm.linear_cross_entropy(hidden, weight, targets, chunk_rows=chunk_rows)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)
    (ours * scale).backward()
    torch.testing.assert_close(hidden.grad, expected[0], rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(weight.grad, expected[1], rtol=1e-4, atol=1e-6)


def test_head_and_loss_by_differences_and_in_part() -> None:
    made = torch.Generator().manual_seed(1)
    hidden = torch.randn(5, 6, generator=made, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(9, 6, generator=made, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 9, (5,), generator=made)

    def loss(h: Any, w: Any) -> Any:
        return lm.linear_cross_entropy(h, w, targets, chunk_rows=2)

    assert torch.autograd.gradcheck(loss, (hidden, weight))
    assert torch.autograd.gradcheck(lambda h: loss(h, weight.detach()), (hidden,))
    assert torch.autograd.gradcheck(lambda w: loss(hidden.detach(), w), (weight,))
    with torch.no_grad():
        torch.testing.assert_close(
            loss(hidden, weight), lm.cross_entropy(hidden @ weight.T, targets)
        )
    # Logits beyond what exp can take.
    far = lm.linear_cross_entropy(hidden.float() * 1e4, weight.float(), targets)
    torch.testing.assert_close(
        far, lm.cross_entropy((hidden.float() * 1e4) @ weight.float().T, targets)
    )


def test_the_fused_path_keeps_less() -> None:
    """Bytes that autograd holds between forward and backward."""

    def kept(kernels: Any) -> int:
        model = small_lm.with_kernels(small_lm.model(d_model=64), kernels)
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        seen: dict[int, int] = {}

        def note(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        ids = small_lm.ids(8, 32)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            hidden = model.hidden(ids)
        assert hidden.requires_grad
        return sum(seen.values())

    assert kept("fused") < 0.6 * kept("torch") < 0.6 * kept("plain")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_compiled_body_agrees() -> None:
    model = small_lm.model()
    ids = small_lm.ids(2, 32)
    expected = small_lm.gradients(model, model.loss(ids, ids))
    for block in model.layers:
        block.compile(dynamic=False)
    try:
        # These warnings are the compiler's own.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = small_lm.gradients(model, model.loss(ids, ids))
    except Exception as error:
        if shutil.which("g++") or shutil.which("clang++"):
            raise
        pytest.skip(f"nothing to compile with: {type(error).__name__}")
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-3, atol=1e-6)


@small_lm.ablations
def test_attaching_keeps_parameters_and_can_be_undone(changes: dict[str, Any]) -> None:
    model, untouched = small_lm.model(**changes), small_lm.model(**changes)
    parameters = dict(model.named_parameters())
    ids = small_lm.ids(2, 20)
    expected = untouched.loss(ids, ids)
    for kernels in ("plain", "fused", "torch"):
        small_lm.with_kernels(model, kernels)
        assert {name: id(p) for name, p in model.named_parameters()} == {
            name: id(p) for name, p in parameters.items()
        }
        assert list(model.state_dict()) == list(untouched.state_dict())
        again = copy.deepcopy(model)
        torch.testing.assert_close(again.loss(ids, ids), expected, rtol=1e-5, atol=1e-6)
    assert [type(module) for module in model.modules()] == [
        type(module) for module in untouched.modules()
    ]
    assert torch.equal(model.loss(ids, ids), expected)


def test_attaching_leaves_the_blocks_to_the_compiler() -> None:
    model = lm.attach(small_lm.model(), blocks=False)
    assert {type(block) for block in model.layers} == {lm.TransformerBlock}
    ids = small_lm.ids(2, 20)
    torch.testing.assert_close(
        model.loss(ids, ids), small_lm.model().loss(ids, ids), rtol=1e-5, atol=1e-6
    )
