"""Real training steps on this machine, compared with the formulas: memory, time, FLOPs.

Memory is measured in a separate process: in this one, earlier models and the allocator's overhead
would be included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from ..._system import allowed_memory, cpu_name, resident_memory
from ...errors import ConfigError, TrainingError
from .. import devices, naive
from ..config import ModelConfig, TrainConfig
from ..model import TransformerLM
from ..trainer import Trainer, prepare
from . import costs
from .accounting import Hardware

__all__ = [
    "Measured",
    "counted_flops",
    "held_bytes",
    "measured_step",
    "profiled_peak",
    "this_machine",
    "timed_step",
]

STEPS = 3
SMALLER = "a smaller batch_size="


@dataclass(frozen=True)
class Measured:
    """Formulas compared with measurements.

    Attributes:
        predicted_memory: peak memory by formula.
        allocated: peak memory according to torch's profiler.
        resident: growth of the process, including the allocator's overhead.
        predicted_flops: FLOPs of a step by formula.
        flops: FLOPs of a step as torch counts them on the meta device.
        seconds: duration of a step.
        rate: FLOP/s of a large matrix product.
        kernels: the kernels that were used.
    """

    predicted_memory: int
    allocated: int
    resident: int
    predicted_flops: int
    flops: int
    seconds: float
    rate: float
    kernels: str

    @property
    def mfu(self) -> float:
        """Utilization: the share of the machine's matmul rate."""
        return self.predicted_flops / self.seconds / self.rate


def this_machine() -> Hardware:
    """This machine: its measured matmul rate and its memory."""
    if torch.cuda.is_available():
        device, facts = torch.device("cuda"), torch.cuda.get_device_properties(0)
        name, memory = facts.name, facts.total_memory
    else:
        device, name, memory = torch.device("cpu"), _processor(), allowed_memory()
    kinds = [torch.float32]
    if devices.has_bfloat16(device)[0]:
        kinds.append(torch.bfloat16)
    rates = {
        str(kind).removeprefix("torch."): devices.matmul_rate(device, kind, 1.0) for kind in kinds
    }
    return Hardware(name, rates, memory, device.type)


def _processor() -> str:
    n = torch.get_num_threads()
    threads = f"{n} thread{'s' if n > 1 else ''}"
    return f"{cpu_name()}, {threads}"


def counted_flops(config: ModelConfig, n_sequences: int) -> int:
    """FLOPs of a step as torch counts them on the meta device, where nothing is computed.

    With the plain kernels: torch's counter does not count CPU attention and `addmm_`.
    """
    with torch.device("meta"):
        model = naive.attach(TransformerLM(config))
        ids = torch.zeros(n_sequences, config.context_length, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            loss = model(ids, ids)
            torch.autograd.backward(loss)
    return int(counter.get_total_flops())


def measured_step(config: ModelConfig, train: TrainConfig) -> Measured:
    """Trains a few steps on random tokens in another process, and compares with the formulas."""
    try:
        setup = prepare(config, train, warm=False)
    except ConfigError as error:
        raise ConfigError(error.message, f"measure {SMALLER}") from None
    kernels = setup.plan.kernels
    order = {"model": config.to_json(), "train": train.to_json() | {"kernels": kernels}}
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(order)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        # The last line of the traceback gives the reason; a killed process prints nothing.
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise TrainingError(f"the step could not be measured: {reason}", f"try {SMALLER}")
    found = json.loads(done.stdout)
    return Measured(
        setup.memory.training.peak,
        found["allocated"],
        found["resident"],
        costs.training_flops(config, train.batch_size),
        counted_flops(config, train.batch_size),
        found["seconds"],
        found["rate"],
        kernels,
    )


# --- the other process ---------------------------------------------------------------------------


def _train(order: Mapping[str, Any]) -> dict[str, float]:
    config = ModelConfig.from_json(order["model"])
    train = TrainConfig.from_json(order["train"])
    setup = prepare(config, train, force=True)
    plan = setup.plan
    rate = devices.matmul_rate(plan.device, plan.dtype)
    before = _resident(plan.device)
    n_tokens = (STEPS + 1) * train.batch_size * config.context_length + 2
    ids = np.random.default_rng(0).integers(0, config.vocab_size, n_tokens, dtype=np.uint32)
    trainer = setup.trainer(ids)
    seconds = min(timed_step(trainer, step) for step in range(STEPS))
    resident = devices.peak_memory(plan.device) - before
    allocated = resident
    if plan.device.type == "cpu":
        allocated = held_bytes(trainer) + profiled_peak(lambda: timed_step(trainer, STEPS))
    return {"allocated": allocated, "resident": resident, "seconds": seconds, "rate": rate}


def timed_step(trainer: Trainer, step: int) -> float:
    """Seconds of a step."""
    began = time.perf_counter()
    trainer.forward_backward(step)
    trainer.update(trainer.config.lr)
    devices.synchronize(trainer.plan.device)
    return time.perf_counter() - began


def held_bytes(trainer: Trainer) -> int:
    """Bytes of weights and optimizer state."""
    moments = (s for state in trainer.optimizers.state.values() for s in state.values())
    tensors = [*trainer.model.parameters(), *(s for s in moments if isinstance(s, Tensor))]
    return sum(tensor.nbytes for tensor in tensors)


def profiled_peak(work: Callable[[], object]) -> int:
    """Peak bytes that torch's CPU allocator handed out during `work`, net."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory(prefix="bytemill-") as folder:
        trace = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = [(e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]"]
    return max(accumulate(n for _, n in sorted(changes, key=lambda change: change[0])), default=0)


def _resident(device: torch.device) -> int:
    """Bytes in use now, on the device or by this process."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return resident_memory() if device.type == "cpu" else devices.peak_memory(device)


if __name__ == "__main__":
    print(json.dumps(_train(json.loads(sys.argv[1]))))
