"""Optimizers, clipping and schedules against torch's own and the formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm import optim


def weights() -> list[Any]:
    made = torch.Generator().manual_seed(0)
    shapes = [(4, 3), (5,), (2, 2)]
    return [torch.nn.Parameter(torch.randn(s, generator=made, dtype=torch.float64)) for s in shapes]


def trained(optimizer: Any, params: list[Any], steps: int = 7) -> list[Any]:
    made = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        for p in params:
            p.grad = torch.randn(p.shape, generator=made, dtype=p.dtype)
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.8, 0.0)])
def test_adamw_is_torchs(weight_decay: float, betas: tuple[float, float]) -> None:
    ours, theirs = weights(), weights()
    options = {"lr": 0.02, "betas": betas, "eps": 1e-6, "weight_decay": weight_decay}
    found = trained(lm.AdamW(ours, **options), ours)
    expected = trained(torch.optim.AdamW(theirs, **options), theirs)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_sgd() -> None:
    ours, theirs = weights(), weights()
    found = trained(lm.SGD(ours, lr=0.1, decay=False), ours)
    expected = trained(torch.optim.SGD(theirs, lr=0.1), theirs)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b)


def test_the_learning_rate_exercise() -> None:
    """Mean square of a 10×10 matrix, rate lr/√(t+1): 10 falls, 100 falls fast, 1000 diverges."""

    def last(lr: float) -> tuple[float, float]:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(5 * torch.randn(10, 10))
        optimizer = lm.SGD([weight], lr=lr)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = weight.square().mean()
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
        return losses[0], losses[-1]

    start, slow = last(1e1)
    assert 0.01 * start < slow < 0.5 * start
    assert last(1e2)[1] < 1e-6 * start
    assert last(1e3)[1] > 1e6 * start


@pytest.mark.parametrize(
    "make",
    [
        lambda p: lm.SGD(p, lr=-1),
        lambda p: lm.AdamW(p, eps=-1),
        lambda p: lm.AdamW(p, betas=(1, 0)),
    ],
)
def test_impossible_optimizers(make: Any) -> None:
    with pytest.raises(bytemill.ConfigError, match="must be"):
        make(weights())


def test_muon_makes_directions_orthogonal() -> None:
    made = torch.Generator().manual_seed(0)
    for shape in ((1, 6, 6), (3, 8, 5), (2, 5, 8)):
        found = optim.orthogonalized(torch.randn(shape, generator=made), 12)
        values = torch.linalg.svdvals(found)
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_muon_is_torchs() -> None:
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    made = torch.Generator().manual_seed(0)
    shapes = [(8, 8), (8, 8), (12, 8), (8, 12)]
    ours = [torch.nn.Parameter(torch.randn(shape, generator=made)) for shape in shapes]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    before = [p.detach().clone() for p in ours]
    found = trained(lm.Muon(ours, lr=0.05, weight_decay=0.1), ours, 4)
    expected = trained(
        torch.optim.Muon(theirs, lr=0.05, weight_decay=0.1, momentum=0.95), theirs, 4
    )
    for a, b, start in zip(found, expected, before):
        # Torch's multiplies in bfloat16, of eight bits.
        assert (a - b).norm() < 0.03 * (b - start).norm()


def test_muon_refuses_vectors() -> None:
    with pytest.raises(bytemill.ConfigError, match="Muon requires matrices"):
        lm.Muon(weights())


@given(st.floats(0.01, 100), st.integers(1, 4))
def test_clipping_is_torchs(max_norm: float, n: int) -> None:
    both = [weights()[:n], weights()[:n]]
    for params in both:
        for number, p in enumerate(params):
            p.grad = torch.full_like(p, number + 1.0)
    ours = lm.clip_gradients(both[0], max_norm)
    theirs = torch.nn.utils.clip_grad_norm_(both[1], max_norm)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(*both):
        torch.testing.assert_close(a.grad, b.grad)
    assert lm.clip_gradients([torch.nn.Parameter(torch.ones(2))], 1.0) == 0


@given(st.integers(0, 30), st.integers(0, 10), st.integers(1, 20))
def test_cosine(step: int, warmup: int, length: int) -> None:
    total = warmup + length
    found = lm.cosine_schedule(step, 2.0, 0.5, warmup, total)
    if step < warmup:
        expected = 2.0 * step / warmup
    elif step > total:
        expected = 0.5
    else:
        angle = math.pi * (step - warmup) / length
        expected = 0.5 + 0.5 * (1 + math.cos(angle)) * 1.5
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("name", ["cosine", "wsd", "constant"])
def test_the_schedules_of_a_run(name: Any) -> None:
    config = lm.TrainConfig(schedule=name, lr=1.0, min_lr=0.1, warmup=5, decay=10, steps=50)
    rates = [optim.learning_rate(config, step) for step in range(50)]
    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == rates[5] == 1.0
    assert all(0 < rate <= 1 for rate in rates)
    if name == "constant":
        assert rates[-1] == 1.0
    else:
        assert rates[-1] < 0.2
        assert rates[5:] == sorted(rates[5:], reverse=True)
    if name == "wsd":
        assert rates[5:40] == [1.0] * 35


def test_groups() -> None:
    model = small_lm.model()
    made = optim.make_optimizers(model, lm.TrainConfig(lr=0.1, weight_decay=0.3))
    decays = {id(p): g["weight_decay"] for g in made.param_groups for p in g["params"]}
    for p in model.parameters():
        assert decays[id(p)] == (0.3 if p.dim() == 2 else 0.0)
    muon = lm.TrainConfig(optimizer="muon", lr=0.1, muon_lr=0.02)
    made = optim.make_optimizers(model, muon)
    assert isinstance(made.owner(model.layers[0].attention.query.weight), lm.Muon)
    assert isinstance(made.owner(model.embedding.weight), torch.optim.AdamW)
    made.set_lr(0.05)
    assert {type(o): o.param_groups[0]["lr"] for o in made.optimizers} == {
        torch.optim.AdamW: 0.05, lm.Muon: pytest.approx(0.01),
    }  # fmt: skip
    with pytest.raises(KeyError):
        made.owner(torch.zeros(1))


@pytest.mark.parametrize(
    ("name", "given", "tied", "expected"),
    [("muon", None, False, 1.5), ("muon", 0.2, False, 0.2), ("muon", None, True, 0.05),
     ("adamw", None, False, 0.05), ("adamw", 0.2, False, 0.2)],
)  # fmt: skip
def test_the_rate_of_the_embedding(name: Any, given: float, tied: bool, expected: float) -> None:
    model = small_lm.model(tie_embeddings=tied)
    made = optim.make_optimizers(model, lm.TrainConfig(optimizer=name, lr=0.05, embedding_lr=given))
    rates = {id(p): g["lr"] for g in made.param_groups for p in g["params"]}
    assert set(rates) == {id(p) for p in model.parameters()}
    assert rates[id(model.embedding.weight)] == expected
    assert rates[id(model.final_norm.weight)] == 0.05
    assert rates[id(model.head_weight)] == 0.05
    made.set_lr(0.01)
    rates = {id(p): g["lr"] for g in made.param_groups for p in g["params"]}
    assert rates[id(model.embedding.weight)] == pytest.approx(expected / 5)


@pytest.mark.parametrize("name", ["adamw", "muon", "sgd"])
def test_the_optimizers_of_a_run_learn(name: Any) -> None:
    model = small_lm.model()
    config = lm.TrainConfig(optimizer=name, lr=0.5 if name == "sgd" else 0.01)
    made = optim.make_optimizers(model, config)
    ids = small_lm.ids(4, 17)
    losses = []
    for _ in range(25):
        made.zero_grad()
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        loss.backward()
        lm.clip_gradients(model.parameters(), 1.0)
        made.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
