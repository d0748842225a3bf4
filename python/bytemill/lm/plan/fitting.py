"""The memory of a run: predicted and checked before the model is allocated.

On a CPU, the prediction is the resident memory of the whole process: what Python and torch hold
before there is a model (measured), plus what training adds (by the formulas of `costs`, with the C
library's overhead). On a GPU, it is what torch's allocator hands out there. Progress reports the
same quantity, `devices.peak_memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..._numbers import size
from ..._system import available_memory, resident_memory
from ...errors import ConfigError
from ..config import ModelConfig, TrainConfig
from ..devices import ComputePlan, free_memory
from ..parallel import local_size
from . import costs
from .accounting import largest_that
from .costs import Memory

__all__ = ["Prediction", "check_memory", "predict_memory"]

# Overhead of the C library's allocator on a CPU, as a share of what torch requests: it fragments
# with blocks of many sizes. Measured with glibc; docs/planning.md has the figures.
ALLOCATOR_OVERHEAD = {"fused": 0.2, "torch": 0.4, "plain": 0.5}
# Compiled blocks allocate fewer sizes, but the compiler itself stays in memory.
COMPILED_OVERHEAD = 0.05
COMPILER_BYTES = 125_000_000


@dataclass(frozen=True)
class Prediction:
    """Memory of a rank, in bytes.

    Attributes:
        base: memory of the process before there is a model; 0 on a GPU.
        training: memory that training adds, by formula.
        peak: peak memory of the process or, on a GPU, of torch's allocator.
        micro: sequences per micro-batch.
    """

    base: int
    training: Memory
    peak: int
    micro: int

    def parts(self) -> str:
        """The components of the peak, as text."""
        found = self.training
        named = {
            "Python and torch": self.base,
            "weights": found.weights,
            "gradients": found.gradients,
            "optimizer state": found.moments,
            "activations": found.activations,
        }
        return ", ".join(f"{name} {size(n)}" for name, n in named.items() if n)


def predict_memory(
    model: ModelConfig,
    config: TrainConfig,
    plan: ComputePlan,
    *,
    base: int,
    n_ranks: int = 1,
    micro: int | None = None,
) -> Prediction:
    """The memory of a rank of a run.

    Args:
        model: the shape of the model.
        config: how it is trained.
        plan: device, dtype and kernels.
        base: bytes of the process without the model.
        n_ranks: number of ranks that share each batch.
        micro: sequences per micro-batch; None for that of the config.
    """
    rows = max(1, config.batch_size // n_ranks)
    micro = min(micro or config.micro_batch_size or rows, rows)
    compiled = plan.compile != "off"
    kernels = "torch" if compiled else plan.kernels
    memory = costs.training_memory(
        model,
        micro,
        kernels=kernels,
        dtype=str(plan.dtype).removeprefix("torch."),
        optimizer=config.optimizer,
        accumulate=micro < rows,
        device=plan.device.type,
    )
    peak = memory.peak
    if config.parallel == "fsdp" and n_ranks > 1:
        # Each rank holds its share of these three.
        held = memory.weights + memory.gradients + memory.moments
        peak -= held - held // n_ranks
    if plan.device.type != "cpu":
        return Prediction(0, memory, peak, micro)
    # Ids and targets are views of one array of 64-bit numbers.
    peak += 8 * micro * (model.context_length + 1)
    if compiled:
        return Prediction(
            base, memory, base + COMPILER_BYTES + int((1 + COMPILED_OVERHEAD) * peak), micro
        )
    return Prediction(base, memory, base + int((1 + ALLOCATOR_OVERHEAD[kernels]) * peak), micro)


def check_memory(
    model: ModelConfig,
    config: TrainConfig,
    plan: ComputePlan,
    *,
    base: int | None = None,
    n_ranks: int = 1,
    force: bool = False,
) -> Prediction:
    """Raises a `ConfigError` if training would not fit; its hint names the micro-batch that would.

    Args:
        model: as for `predict_memory`; so are `config`, `plan` and `n_ranks`.
        base: None for the memory that the process has now.
        force: only predict.
    """
    if base is None:
        base = resident_memory()

    def predicted(micro: int | None = None) -> Prediction:
        return predict_memory(model, config, plan, base=base, n_ranks=n_ranks, micro=micro)

    found = predicted()
    cpu = plan.device.type == "cpu"
    available = available_memory(local_size()) if cpu else free_memory(plan.device)
    if force or found.peak <= available:
        return found
    most = largest_that(lambda n: predicted(n).peak <= available, found.micro)
    if most:
        remedy = f"micro_batch_size={most} fits and does not change the batch size"
    else:
        held = found.base + found.training.weights + found.training.gradients
        alone = held + found.training.moments > available
        remedy = (
            ("the model alone does not fit" if alone else "not even one sequence at a time fits")
            + ": use a smaller one (d_model=, num_layers=)"
            + ("" if alone else " or a shorter context_length=")
        )
    sequences = f"{found.micro:,} sequence{'s' if found.micro > 1 else ''}"
    where = "" if cpu else f" on {plan.device}"
    raise ConfigError(
        f"training on {sequences} of {model.context_length:,} tokens at a time needs about "
        f"{size(found.peak)} of memory, but {size(available)} are available{where} "
        f"({found.parts()})",
        f"{remedy}; force=True trains anyway",
    )
