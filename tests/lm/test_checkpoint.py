"""Checkpoints: what is restored, what is refused, what a kill leaves on disk."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import _files, lm
from bytemill.lm import optim
from bytemill.lm.run import checkpoint
from bytemill.lm.run.steps import find_step

OPTIMIZERS = {
    "torch": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01),
    "fused": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, fused=True),
    "ours": lambda m: lm.AdamW(m.parameters(), lr=0.01),
    "sgd": lambda m: lm.SGD(m.parameters(), lr=0.01),
    "muon": lambda m: optim.make_optimizers(m, lm.TrainConfig(optimizer="muon", lr=0.01)),
}


def steps(model: Any, optimizer: Any, first: int, last: int) -> None:
    for number in range(first, last):
        ids = small_lm.ids(2, 17, seed=number)
        optimizer.zero_grad()
        model.loss(ids[:, :-1], ids[:, 1:]).backward()
        optimizer.step()


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("way", ["path", "stream"])
def test_resuming_is_exact(name: str, way: str, tmp_path: Path) -> None:
    model = small_lm.model()
    optimizer = OPTIMIZERS[name](model)
    steps(model, optimizer, 0, 3)
    place: Any = tmp_path / "checkpoint.safetensors" if way == "path" else io.BytesIO()
    lm.save_checkpoint(model, optimizer, 3, place)
    steps(model, optimizer, 3, 6)
    other = small_lm.model(seed=9)
    assert not same(model, other)
    again = OPTIMIZERS[name](other)
    if way == "stream":
        place.seek(0)
    assert lm.load_checkpoint(place, other, again) == 3
    steps(other, again, 3, 6)
    assert same(model, other)


def test_the_model_from_the_file_alone(tmp_path: Path) -> None:
    model = small_lm.model(num_kv_heads=2, tie_embeddings=True)
    lm.save_checkpoint(model, None, 7, tmp_path / "c")
    found = lm.load_checkpoint(tmp_path / "c")
    assert found.config == model.config
    assert same(found, model)
    with pytest.raises(bytemill.CheckpointError, match="no optimizer state"):
        lm.load_checkpoint(tmp_path / "c", model, torch.optim.AdamW(model.parameters()))


def test_any_module_will_do(tmp_path: Path) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    lm.save_checkpoint(layer, None, 1, tmp_path / "c")
    other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    assert lm.load_checkpoint(tmp_path / "c", other) == 1
    assert same(layer, other)
    with pytest.raises(bytemill.CheckpointError, match="contains no model config"):
        lm.load_checkpoint(tmp_path / "c")


def test_refusals(tmp_path: Path) -> None:
    model = small_lm.model()
    lm.save_checkpoint(model, None, 1, tmp_path / "c")
    for changes, message in (
        ({"d_model": 96}, "but .* in this model"),
        ({"num_layers": 3}, "another model: it lacks blocks.2"),
        ({"num_layers": 1}, "another model: it has an unexpected blocks.1"),
    ):
        with pytest.raises(bytemill.CheckpointError, match=message):
            lm.load_checkpoint(tmp_path / "c", small_lm.model(**changes))
    with pytest.raises(FileNotFoundError):
        lm.load_checkpoint(tmp_path / "nothing", model)
    with pytest.raises(bytemill.CheckpointError, match="contains no checkpoint"):
        lm.load_checkpoint(tmp_path, model)


class Trap:
    """Code that would run if it were unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("trapped",)


def test_no_pickle_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Trap()}, "torch.pt")
    Path("plain.pkl").write_bytes(pickle.dumps(Trap()))
    for name in ("torch.pt", "plain.pkl"):
        with pytest.raises(bytemill.CheckpointError, match="not a checkpoint"):
            lm.load_checkpoint(name, small_lm.model())
    assert not Path("trapped").exists()


@pytest.mark.parametrize("place", [0, 3, 100, 3000, -1, -2000])
def test_any_changed_byte_of_a_file_is_noticed(place: int, tmp_path: Path) -> None:
    path = tmp_path / "c"
    lm.save_checkpoint(small_lm.model(), None, 1, path)
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)
    with pytest.raises((bytemill.CheckpointError, bytemill.ConfigError)):
        lm.load_checkpoint(path)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(bytemill.CheckpointError):
        lm.load_checkpoint(path)


def written(run: Path, iteration: int, model: Any, optimizer: Any = None) -> Path:
    moments, facts = (
        (None, None) if optimizer is None else checkpoint.optimizer_state(model, optimizer)
    )
    return checkpoint.write_step(
        run, iteration, checkpoint.weights_of(model), moments,
        {"model": model.config.to_json(), "optimizer": facts},
    )  # fmt: skip


def test_step_directories(tmp_path: Path) -> None:
    model = small_lm.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number in range(1, 5):
        steps(model, optimizer, number, number + 1)
        written(tmp_path, number, model, optimizer)
    assert [p.name for p in checkpoint.step_directories(tmp_path)] == [
        f"step-0000000{n}" for n in range(1, 5)
    ]
    other = small_lm.model(seed=5)
    again = torch.optim.AdamW(other.parameters(), lr=0.01)
    assert lm.load_checkpoint(tmp_path, other, again) == 4
    assert same(model, other)
    steps(model, optimizer, 9, 10)
    steps(other, again, 9, 10)
    assert same(model, other)
    assert not same(model, lm.load_checkpoint(tmp_path / "step-00000002"))
    # Saving a step again replaces it.
    written(tmp_path, 4, model)
    assert same(model, lm.load_checkpoint(tmp_path))
    checkpoint.prune_steps(tmp_path, 2, also=tmp_path / "step-00000001")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "step-00000001", "step-00000003", "step-00000004",
    ]  # fmt: skip


@pytest.mark.parametrize("step", ["x", "-1", "", -1, 5.5, None, True])
def test_names_of_steps(tmp_path: Path, step: Any) -> None:
    written(tmp_path, 5, small_lm.model())
    assert find_step(tmp_path, 5) == find_step(tmp_path, "5") == find_step(tmp_path, "best")
    with pytest.raises(bytemill.ConfigError, match="step must be 'best', 'last' or the number"):
        find_step(tmp_path, step)


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_damage_to_a_step_is_noticed(name: str, tmp_path: Path) -> None:
    place = written(tmp_path, 1, small_lm.model())
    path = place / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(bytemill.CheckpointError):
        lm.load_checkpoint(place)
    path.unlink()
    with pytest.raises(bytemill.CheckpointError, match=r"contains no checkpoint|missing"):
        lm.load_checkpoint(place)


def test_a_failure_while_writing_leaves_the_step_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_lm.model()
    written(tmp_path, 1, model)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for module, name in ((_files, "sync"), (checkpoint, "_file_checksum")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(OSError, match="No space"):
                written(tmp_path, 2, small_lm.model(seed=3))
        assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
        assert same(model, lm.load_checkpoint(tmp_path))


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    place = written(tmp_path, 1, small_lm.model())
    facts = json.loads((place / "state.json").read_text())
    (place / "state.json").write_text(json.dumps(facts | {"version": 99}))
    with pytest.raises(bytemill.CheckpointError, match="format version 99"):
        lm.load_checkpoint(place)
    (place / "state.json").write_text("{}")
    with pytest.raises(bytemill.CheckpointError, match="not a bytemill checkpoint"):
        lm.load_checkpoint(place)
