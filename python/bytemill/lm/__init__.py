"""The language model: tokens → model → text.

Names are imported when they are first used: configs, presets and costs do not need torch.

>>> from bytemill.lm import ModelConfig
>>> ModelConfig(vocab_size=1000, context_length=64, d_model=64, num_layers=2, num_heads=2).d_ff
192
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import require

if TYPE_CHECKING:
    from ..progress import StepReport
    from .config import ModelConfig, TrainConfig
    from .data import Windows, get_batch
    from .evaluation import Evaluation, Scores, evaluate
    from .exchange.exporting import Export, export_run
    from .exchange.importing import Import, import_run
    from .fast import attach
    from .fast.batching import BatchSample, DecodeBatch
    from .fast.head import linear_cross_entropy
    from .generate import (
        DecodeStep,
        GeneratedText,
        Sampling,
        TextStream,
        generate_ids,
        generate_text,
        stream_text,
    )
    from .model import (
        CausalSelfAttention,
        Embedding,
        Linear,
        RMSNorm,
        RotaryEmbedding,
        SiLUFeedForward,
        SwiGLU,
        TransformerBlock,
        TransformerLM,
    )
    from .naive import (
        SGD,
        AdamW,
        cross_entropy,
        perplexity,
        scaled_dot_product_attention,
        silu,
        softmax,
    )
    from .optim import (
        Muon,
        clip_gradients,
        constant_schedule,
        cosine_schedule,
        wsd_schedule,
    )
    from .plan.accounting import Account, Hardware, account
    from .plan.measuring import Measured, measured_step, this_machine
    from .plan.plot import plot_runs
    from .plan.rate_test import RateTest, find_lr
    from .plan.results import Sweep, Trial, read_sweep
    from .plan.space import Range
    from .plan.sweeping import sweep
    from .presets import PRESETS
    from .report.card import RunReport, report_run
    from .run.checkpoint import load_checkpoint, save_checkpoint
    from .run.config_file import read_config
    from .run.directory import load
    from .run.metrics import MetricsLog
    from .run.sources import open_tokens
    from .run.state import RunState, run_state
    from .training import TrainResult, train

__all__ = [  # noqa: RUF022
    # A run: train, use, evaluate, exchange.
    "train",
    "TrainResult",
    "StepReport",
    "PRESETS",
    "load",
    "read_config",
    "run_state",
    "RunState",
    "MetricsLog",
    "generate_text",
    "stream_text",
    "GeneratedText",
    "Sampling",
    "evaluate",
    "Evaluation",
    "Scores",
    "report_run",
    "RunReport",
    "plot_runs",
    "export_run",
    "Export",
    "import_run",
    "Import",
    # Planning: costs, settings.
    "account",
    "Account",
    "Hardware",
    "this_machine",
    "measured_step",
    "Measured",
    "sweep",
    "Sweep",
    "Trial",
    "read_sweep",
    "Range",
    "find_lr",
    "RateTest",
    # The model and its layers.
    "ModelConfig",
    "TrainConfig",
    "TransformerLM",
    "TransformerBlock",
    "CausalSelfAttention",
    "RotaryEmbedding",
    "SwiGLU",
    "SiLUFeedForward",
    "RMSNorm",
    "Linear",
    "Embedding",
    # Formulas.
    "softmax",
    "silu",
    "scaled_dot_product_attention",
    "cross_entropy",
    "perplexity",
    # Your own training loop.
    "open_tokens",
    "Windows",
    "get_batch",
    "AdamW",
    "SGD",
    "Muon",
    "clip_gradients",
    "cosine_schedule",
    "wsd_schedule",
    "constant_schedule",
    "save_checkpoint",
    "load_checkpoint",
    "generate_ids",
    "DecodeStep",
    "DecodeBatch",
    "BatchSample",
    "TextStream",
    "attach",
    "linear_cross_entropy",
]

_HOMES = {
    ".progress": ("StepReport",),
    "config": ("ModelConfig", "TrainConfig"),
    "data": ("Windows", "get_batch"),
    "evaluation": ("Evaluation", "Scores", "evaluate"),
    "exchange.exporting": ("Export", "export_run"),
    "exchange.importing": ("Import", "import_run"),
    "fast": ("attach",),
    "fast.batching": ("BatchSample", "DecodeBatch"),
    "fast.head": ("linear_cross_entropy",),
    "generate": (
        "DecodeStep",
        "GeneratedText",
        "Sampling",
        "TextStream",
        "generate_ids",
        "generate_text",
        "stream_text",
    ),
    "model": (
        "CausalSelfAttention",
        "Embedding",
        "Linear",
        "RMSNorm",
        "RotaryEmbedding",
        "SiLUFeedForward",
        "SwiGLU",
        "TransformerBlock",
        "TransformerLM",
    ),
    "naive": (
        "AdamW",
        "SGD",
        "cross_entropy",
        "perplexity",
        "scaled_dot_product_attention",
        "silu",
        "softmax",
    ),
    "optim": ("Muon", "clip_gradients", "constant_schedule", "cosine_schedule", "wsd_schedule"),
    "plan.accounting": ("Account", "Hardware", "account"),
    "plan.measuring": ("Measured", "measured_step", "this_machine"),
    "plan.plot": ("plot_runs",),
    "plan.rate_test": ("RateTest", "find_lr"),
    "plan.results": ("Sweep", "Trial", "read_sweep"),
    "plan.space": ("Range",),
    "plan.sweeping": ("sweep",),
    "presets": ("PRESETS",),
    "report.card": ("RunReport", "report_run"),
    "run.checkpoint": ("load_checkpoint", "save_checkpoint"),
    "run.config_file": ("read_config",),
    "run.directory": ("load",),
    "run.metrics": ("MetricsLog",),
    "run.sources": ("open_tokens",),
    "run.state": ("RunState", "run_state"),
    "training": ("TrainResult", "train"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        missing = error.name
    return require(missing, "the language model", extra="lm")  # raises


def __dir__() -> list[str]:
    return sorted(__all__)
