"""The forward passes agree for every kind of model: compiled, sharded, after a checkpoint."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import textwrap
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import small_lm
from bytemill import lm

KERNELS = ("plain", "torch", "fused")


def close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(
            found[name], grad, rtol=1e-3, atol=1e-6,
            msg=lambda text, name=name: f"{name}: {text}",
        )  # fmt: skip


@pytest.mark.slow
@small_lm.ablations
def test_compiled_blocks_agree(changes: dict[str, Any]) -> None:
    model = small_lm.with_kernels(small_lm.model(**changes), "plain")
    ids, targets = small_lm.ids(2, 20), small_lm.ids(2, 20, seed=1)
    expected = small_lm.gradients(model, model.loss(ids, targets))
    lm.attach(model, blocks=False)
    torch._dynamo.reset()
    for block in model.layers:
        # Traces and differentiates like torch's compiler, without the time for C++.
        block.compile(dynamic=False, backend="aot_eager", fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        loss = model.loss(ids, targets)
    close(small_lm.gradients(model, loss), expected)


@small_lm.ablations
def test_a_checkpoint_continues_with_other_kernels(changes: dict[str, Any]) -> None:
    ids, targets = small_lm.ids(3, 20), small_lm.ids(3, 20, seed=1)

    def trained(model: lm.TransformerLM, optimizer: Any, n_steps: int) -> Any:
        for _ in range(n_steps):
            loss = model.loss(ids, targets)
            model.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach()

    for before in KERNELS:
        model = small_lm.with_kernels(small_lm.model(**changes), before)
        optimizer = lm.AdamW(model.parameters(), lr=1e-2)
        trained(model, optimizer, 3)
        saved = io.BytesIO()
        lm.save_checkpoint(model, optimizer, 3, saved)
        expected = trained(model, optimizer, 3)
        for after in KERNELS:
            saved.seek(0)
            other = small_lm.with_kernels(small_lm.model(seed=9, **changes), after)
            its_own = lm.AdamW(other.parameters(), lr=1e-2)
            assert lm.load_checkpoint(saved, other, its_own) == 3
            found = trained(other, its_own, 3)
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
            if before == after:
                assert torch.equal(found, expected)


SHARDED = """
    import sys
    import torch
    import small_lm
    from bytemill.lm.parallel import joined

    # In a function: a wrapped model that outlives the group of ranks may abort the process.
    def compare(world):
        for changes in small_lm.ABLATIONS:
            whole = small_lm.with_kernels(small_lm.model(**changes), "plain")
            ids, targets = small_lm.ids(4, 20), small_lm.ids(4, 20, seed=1)
            expected = small_lm.gradients(whole, whole.loss(ids, targets))
            mine = slice(2 * world.rank, 2 * world.rank + 2)
            for kernels in ("plain", "torch", "fused"):
                model = small_lm.with_kernels(small_lm.model(**changes), kernels)
                shared = world.shared(model, sys.argv[1])
                shared(ids[mine], targets[mine]).backward()
                n_sharded = 0
                for name, p in model.named_parameters():
                    grad = p.grad
                    if hasattr(grad, "full_tensor"):
                        grad, n_sharded = grad.full_tensor(), n_sharded + 1
                    torch.testing.assert_close(
                        grad, expected[name], rtol=1e-3, atol=1e-6,
                        msg=lambda text: f"{changes} {kernels} {name}: {text}",
                    )
                assert (n_sharded > 0) == (sys.argv[1] == "fsdp")

    with joined(torch.device("cpu")) as world:
        compare(world)
    print("done")
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(sys.platform == "win32", reason="gloo needs a network that CI lacks there")
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_compute_the_same_gradients(parallel: str) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    path = os.pathsep.join(filter(None, [os.path.dirname(small_lm.__file__),
                                         os.environ.get("PYTHONPATH")]))  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SHARDED), parallel],
            env=os.environ | common | {"RANK": rank, "LOCAL_RANK": rank, "PYTHONPATH": path,
                                       "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for rank in ("0", "1")
    ]  # fmt: skip
    printed = [process.communicate(timeout=200) for process in processes]
    for process, (out, errors) in zip(processes, printed):
        assert process.returncode == 0, errors
        assert out == "done\n"
