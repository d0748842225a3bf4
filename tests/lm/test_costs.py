"""Formulas for parameters, matrix products and memory, against torch's own measurements."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import CheckpointFunction

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm import devices, fast, naive, presets
from bytemill.lm.data import Windows
from bytemill.lm.parallel import World
from bytemill.lm.plan import accounting, costs, measuring
from bytemill.lm.trainer import Trainer
from command_line import ok, run

SHAPES: list[dict[str, Any]] = [
    {}, {"norm": "post"}, {"norm": "none"}, {"feed_forward": "silu"}, {"qk_norm": True},
    {"tie_embeddings": True}, {"num_kv_heads": 2}, {"num_kv_heads": 1, "qk_norm": True},
    {"positions": "none"}, {"positions": "none", "qk_norm": True, "norm": "post"},
    {"num_layers": 3, "d_ff": 100, "num_heads": 2}, {"d_model": 64, "context_length": 20},
]  # fmt: skip


def gpt2(size: str, **changes: Any) -> lm.ModelConfig:
    keys = {k: v for k, v in lm.PRESETS[f"gpt2-{size}"].items() if k in presets.MODEL_KEYS}
    return lm.ModelConfig(**{"vocab_size": 50257} | keys | changes)


# --- published figures ---------------------------------------------------------------------------


def test_gpt2_xl() -> None:
    found = lm.account(gpt2("xl"), dtype="float32")
    assert found.n_parameters == 2_127_057_600
    assert found.n_parameters - found.parameters["norms"] == 2_126_902_400
    assert f"{next(iter(found.memory.values())).weights / 2**30:.2f}" == "7.92"
    assert found.forward_flops == 4_513_336_524_800
    assert found.forward["feed-forward"] == 3_019_898_880_000
    assert f"{found.shares()['feed-forward']:.2%}" == "66.91%"
    assert f"{found.forward_flops - found.forward['output head']:.3e}" == "4.349e+12"
    long = lm.account(gpt2("xl", context_length=16384))
    assert long.forward_flops == 149_522_795_724_800
    assert round(long.forward_flops / found.forward_flops) == 33
    assert round(100 * long.shares()["attention scores"]) == 55


@pytest.mark.parametrize(
    ("size", "flops", "percents"),
    [("small", "2.706e+11", "64.29 14.29 21.43"), ("medium", "9.277e+11", "66.67 11.11 22.22"),
     ("large", "2.126e+12", "68.18 9.09 22.73"), ("xl", "4.349e+12", "69.44 7.41 23.15")],
)  # fmt: skip
def test_shares_of_gpt2_without_its_head(size: str, flops: str, percents: str) -> None:
    found = lm.account(gpt2(size))
    assert f"{found.forward_flops - found.forward['output head']:.3e}" == flops
    parts = found.shares(head=False)
    names = ("feed-forward", "attention scores", "attention projections")
    assert " ".join(f"{100 * parts[name]:.2f}" for name in names) == percents
    assert sum(parts.values()) == pytest.approx(1)


def test_an_update_by_component() -> None:
    found = lm.account(gpt2("xl"), batch_size=4)
    assert found.update == {name: 4 * 3 * n for name, n in found.forward.items()}
    assert found.training == sum(found.update.values()) == 12 * 4_513_336_524_800
    assert found.to_json()["update"]["feed-forward"] == 12 * 3_019_898_880_000
    again = costs.update_flops_of(gpt2("xl"), 4, recompute=True)
    assert sum(again.values()) == found.recomputed
    assert again["output head"] == found.update["output head"]


# --- what torch counts ---------------------------------------------------------------------------


@pytest.mark.parametrize("changes", SHAPES)
def test_parameters_and_products(changes: dict[str, Any]) -> None:
    config = small_lm.config(**changes)
    assert measuring.counted_flops(config, 3) == costs.training_flops(config, 3)
    with torch.device("meta"):
        model = lm.TransformerLM(config)
    counted = dict.fromkeys(costs.parameters_of(config), 0)
    for name, parameter in model.named_parameters():
        part = "norms" if "norm" in name else "feed-forward" if "feed_forward" in name else None
        part = part or {"embedding": "embeddings", "head": "output head"}.get(name.split(".")[0])
        counted[part or "attention projections"] += parameter.numel()
    assert counted == costs.parameters_of(config)
    cache = model.new_cache(2)
    assert costs.kv_cache(config, 2) == cache.memory.numel() * 4


# torch 2.6 keeps other tensors than 2.15 for grouped heads and without positions. The formulas are
# those of 2.15; for older versions, they are estimates.
IS_OLD_TORCH = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15)


def is_kept(found: int, kept: int) -> bool:
    return abs(found - kept) <= 0.25 * kept if IS_OLD_TORCH else found == kept


def kept_by_autograd(
    config: lm.ModelConfig, kernels: str, dtype: Any = None, recompute: bool = False
) -> int:
    """Bytes of all tensors except ids and weights that forward keeps; shared memory counts once."""
    model = small_lm.with_kernels(lm.TransformerLM(config), kernels)
    if kernels == "torch":
        fast.attach(model, blocks=False)  # as a run does: the head in chunks
    batch = small_lm.ids(3, config.context_length, below=config.vocab_size)
    model(batch)  # tables of rotation are made at first use, and stay
    tables = naive.rotary_tables(
        config.rope_theta, config.d_head, config.context_length, torch.device("cpu")
    )
    own = [*model.parameters(), *model.buffers(), *tables]
    mine = {tensor.untyped_storage().data_ptr() for tensor in own}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        place = tensor.untyped_storage()
        if place.data_ptr() not in mine and tensor.dtype != torch.int64:
            kept[place.data_ptr()] = tensor  # held, so that its memory is not used again
        return tensor

    if recompute:
        for block in model.layers:
            # (`checkpoint` itself would first import all of torch's compiler.)
            again = partial(CheckpointFunction.apply, block.forward, False)
            block.forward = again  # type: ignore[method-assign]
    cast = contextlib.nullcontext() if dtype is None else torch.autocast("cpu", dtype)
    with saved_tensors_hooks(keep, lambda tensor: tensor), cast:
        loss = model(batch, batch)
    assert loss.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("kernels", ["plain", "torch", "fused"])
@pytest.mark.parametrize("changes", SHAPES)
def test_activations_are_what_autograd_keeps(changes: dict[str, Any], kernels: str) -> None:
    config = small_lm.config(**changes)
    found = costs.activations(config, 3, kernels=kernels)
    assert is_kept(found, kept_by_autograd(config, kernels))


@pytest.mark.parametrize("kernels", ["plain", "torch"])
@pytest.mark.parametrize("changes", SHAPES)
def test_activations_in_bfloat16(changes: dict[str, Any], kernels: str) -> None:
    config = small_lm.config(**changes)
    found = costs.activations(config, 3, kernels=kernels, dtype="bfloat16")
    assert is_kept(found, kept_by_autograd(config, kernels, torch.bfloat16))


def test_recomputed_blocks_keep_their_input() -> None:
    config = small_lm.config(num_layers=4)
    kept = kept_by_autograd(config, "torch", recompute=True)
    one = costs.activations(small_lm.config(num_layers=1), 3, kernels="torch")
    stream = 4 * 3 * 32 * 48
    # In the backward pass, one block at a time has all the tensors that it would otherwise keep.
    tail = kept - 4 * stream
    assert costs.activations(config, 3, kernels="torch", recompute=True) == kept + (
        one - tail - stream
    )
    blocks = costs.forward_flops(config, 32) - costs.flops_of(config, 32)["output head"]
    again = costs.training_flops(config, 2, recompute=True) - costs.training_flops(config, 2)
    assert again == 2 * blocks


@pytest.mark.parametrize(
    "changes",
    [{}, {"kernels": "torch"}, {"kernels": "plain"}, {"micro_batch_size": 2},
     {"batch_size": 1, "num_layers": 6}, {"optimizer": "muon", "num_kv_heads": 2},
     {"kernels": "plain", "context_length": 256, "batch_size": 2}, {"optimizer": "sgd"},
     # With few ids and large blocks, the peak is not at the head.
     {"vocab_size": 300, "d_ff": 512}, {"vocab_size": 300, "d_ff": 512, "kernels": "torch"},
     {"vocab_size": 300, "num_layers": 1, "d_ff": 512, "batch_size": 16},
     {"vocab_size": 300, "d_ff": 64, "batch_size": 32}, {"batch_size": 1, "tie_embeddings": True},
     {"vocab_size": 300, "norm": "post"}, {"batch_size": 1, "num_layers": 6, "optimizer": "muon"},
     {"batch_size": 1, "optimizer": "muon", "num_heads": 4, "num_kv_heads": 1, "d_ff": 32},
     {"vocab_size": 300, "context_length": 256, "batch_size": 2, "kernels": "plain"},
     {"dtype": "bfloat16"}, {"dtype": "bfloat16", "vocab_size": 10000, "batch_size": 2},
     {"dtype": "bfloat16", "vocab_size": 10000, "d_model": 128, "batch_size": 16},
     {"dtype": "bfloat16", "kernels": "plain"}],
)  # fmt: skip
def test_the_peak_is_that_of_the_allocator(changes: dict[str, Any]) -> None:
    # (In float32: processors that have bfloat16 would take that.)
    keys = {"context_length": 64, "batch_size": 8, "compile": "off", "dtype": "float32"} | changes
    config, train = presets.to_configs({"vocab_size": 2000} | presets.merged("tiny", None, keys), 1)
    plan = devices.choose(config, train)
    if train.dtype == "bfloat16" and not devices.has_bfloat16(torch.device("cpu"))[0]:
        pytest.skip("the processor has no bfloat16: other code computes it")
    ids = np.random.default_rng(0).integers(0, config.vocab_size, 9000).astype(np.uint16)
    windows = Windows(ids, config.context_length)
    trainer = Trainer(config, train, windows, plan, World(0, 1, plan.device))
    measuring.timed_step(trainer, 0)
    found = measuring.held_bytes(trainer) + measuring.profiled_peak(
        lambda: measuring.timed_step(trainer, 1)
    )
    micro = train.micro_batch_size or train.batch_size
    memory = costs.training_memory(
        config, micro, kernels=plan.kernels, dtype=train.dtype, optimizer=train.optimizer,
        accumulate=micro < train.batch_size, device="cpu",
    )  # fmt: skip
    assert memory.peak == pytest.approx(found, rel=0.02)
    assert memory.peak <= memory.total


# --- accounts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets.PRESETS)
def test_a_preset_is_accounted_for_by_name(name: str) -> None:
    found = lm.account(name)
    keys = presets.PRESETS[name]
    assert found.config.d_model == keys["d_model"]
    assert found.config.vocab_size == (50257 if name.startswith("gpt2") else 10000)
    with pytest.raises(bytemill.ConfigError, match="did you mean"):
        lm.account(name + "x")


def test_time_and_memory() -> None:
    found = lm.account(gpt2("xl"), hardware="a100", tokens=10**11, mfu=0.5)
    assert found.dtype == "bfloat16"
    assert found.total_flops == 10**11 * 3 * 4_513_336_524_800 // 1024
    assert found.seconds == pytest.approx(found.total_flops / (0.5 * 312e12))
    assert found.optimal_tokens == 20 * 2_127_057_600
    for way, most in found.largest_batch.items():
        kernels, recompute = accounting.WAYS[way]
        peaks = [
            costs.training_memory(
                found.config, n, kernels=kernels, dtype="bfloat16", recompute=recompute
            ).peak
            for n in (most, most + 1)
        ]
        assert peaks[0] <= 80_000_000_000 < peaks[1]
    names = ("plain attention", "fused attention", "plain, recomputed", "fused, recomputed")
    order = [found.largest_batch[name] for name in names]
    assert order == sorted(order)
    assert order[0] > 0
    none = lm.account(gpt2("xl"), memory=10**9)
    assert set(none.largest_batch.values()) == {0}


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mfu": 0.0}, "share of the peak"), ({"hardware": "abacus"}, "a100, h100 or this"),
     ({"batch_size": 0}, "must be ≥ 1"), ({"tokens": 0}, "must be ≥ 1"),
     ({"optimizer": "adam"}, "adamw, muon"), ({"dtype": "float16"}, "float32 or bfloat16"),
     ({"dtype": "bfloat16", "hardware": lm.Hardware("old", {"float32": 1e9}, 1)}, "is unknown")],
)  # fmt: skip
def test_impossible_accounts(options: dict[str, Any], message: str) -> None:
    with pytest.raises(bytemill.ConfigError, match=message):
        lm.account(small_lm.config(), **options)


# --- the command line ----------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    text = ok("account", "--preset", "gpt2-xl", "--hardware", "a100").text
    for part in ("2,127,057,600", "4,513,336,524,800", "66.91%", "69.44%", "7.92 GiB",
                 "largest batch in 80.0 GB", "days on NVIDIA A100"):  # fmt: skip
        assert part in text, part
    found = ok("account", "--preset", "gpt2-xl", "--context", 16384, "--json").json
    assert found["forward_flops"] == 149_522_795_724_800
    assert found["config"]["context_length"] == 16384
    assert "1.354e+13" in text  # an update
    assert ok("account", "gpt2-xl", "--hardware", "a100").text == text
    small_lm.run(tmp_path / "run")
    beside = ok("account", "tiny", tmp_path / "run").text
    assert "tiny" in beside
    assert str(tmp_path / "run") in beside
    several = ok("account", "--preset", "gpt2-small", "--preset", "gpt2-large",
                 "--hardware", "h100").text  # fmt: skip
    for part in ("64.29%", "68.18%", "KV cache", "largest batch in 80.0 GB", "time to train"):
        assert part in several, part
    config = tmp_path / "c.toml"
    config.write_text('preset = "gpt2-small"\n[model]\nnum_kv_heads = 4\n')
    assert ok("account", "--config", config, "--json").json["config"]["num_kv_heads"] == 4
    days = ok("account", "--preset", "gpt2-xl", "--hardware", "h100", "--tokens", "1e12",
              "--memory", "1TB", "--json").json  # fmt: skip
    assert days["tokens"] == 10**12
    assert days["limit"] == 10**12
    for arguments, message in (
        (["--preset", "gpt3"], "gpt3: no such run or preset"),
        (["--tokens", "many"], "is not a whole number"),
        (["--memory", "lots"], "is not a size"),
        (["tiny", "--config", "c.toml"], "MODEL or --config"),
        (["nowhere"], "nowhere: no such run or preset"),
        (["gpt2-lx"], "did you mean gpt2-xl?"),
        (["tiny", "laptop", "--measure"], "one MODEL"),
        (["--num-heads", "7"], "must be a multiple"),
    ):
        failed = run("account", *arguments)
        assert failed.code in (1, 2)
        assert message in failed.said


def test_the_chart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ok("account", "--preset", "gpt2-xl", "--plot", tmp_path / "shares.svg")
    assert b"<svg" in (tmp_path / "shares.svg").read_bytes()
    assert "--overwrite" in run("account", "--plot", tmp_path / "shares.svg").said
    # Reported before anything is measured.
    late = run("account", "--plot", tmp_path / "shares.txt", "--measure").said
    assert ".png" in late
    assert "measuring a few" not in late


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_real_step() -> None:
    given = {"vocab_size": 2000, "batch_size": 8, "threads": 1, "dtype": "float32"}
    keys = presets.merged("tiny", None, given)
    found = lm.measured_step(*presets.to_configs(keys, 1))
    assert found.flops == found.predicted_flops
    assert found.allocated == pytest.approx(found.predicted_memory, rel=0.02)
    # The allocator has free memory left over from before, whose size varies.
    assert found.resident > 0.5 * found.predicted_memory
    assert found.mfu > 0


def test_the_rate_of_the_machine_is_measured_however_busy_it_is() -> None:
    """If the first product took longer than the time for all, utilization was 10^11 percent."""
    assert devices.matmul_rate(torch.device("cpu"), torch.float32, seconds=0) > 1e6
