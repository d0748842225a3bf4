"""The language model: tokens → model → text.

Each name is imported when it is first used, so that looking at options and configs needs no torch.

>>> from bytemill.lm import ModelConfig
>>> ModelConfig(vocab_size=1000, context_length=64, d_model=64, num_layers=2, num_heads=2).d_ff
192
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import MissingPackageError

if TYPE_CHECKING:
    from ..progress import StepReport
    from .config import ModelConfig, TrainConfig
    from .data import Windows, get_batch
    from .evaluation import Evaluation, Scores, evaluate
    from .exchange.exporting import Export, export_run
    from .exchange.importing import Import, import_run
    from .fast import attach
    from .fast.head import linear_cross_entropy
    from .generate import (
        DecodeStep,
        GeneratedText,
        Sampling,
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
    from .naive import cross_entropy, perplexity, scaled_dot_product_attention, silu, softmax
    from .optim import (
        Muon,
        clip_gradients,
        constant_schedule,
        cosine_schedule,
        wsd_schedule,
    )
    from .plan.accounting import Account, Hardware, account
    from .plan.measuring import Measured, measured_step, this_machine
    from .plan.rate_test import RateTest, find_lr
    from .plan.space import Range
    from .plan.sweeping import Sweep, Trial, sweep
    from .presets import PRESETS
    from .run.checkpoint import load_checkpoint, save_checkpoint
    from .run.directory import load, read_config
    from .run.sources import open_tokens
    from .training import TrainResult, train

_HOMES = {
    "plan.accounting": ("Account", "Hardware", "account"),
    "run.checkpoint": ("load_checkpoint", "save_checkpoint"),
    "config": ("ModelConfig", "TrainConfig"),
    "data": ("Windows", "get_batch"),
    "run.sources": ("open_tokens",),
    "fast": ("attach",),
    "evaluation": ("Evaluation", "Scores", "evaluate"),
    "exchange.exporting": ("Export", "export_run"),
    "naive": (
        "SGD",
        "AdamW",
        "cross_entropy",
        "perplexity",
        "scaled_dot_product_attention",
        "silu",
        "softmax",
    ),
    "generate": (
        "DecodeStep",
        "GeneratedText",
        "Sampling",
        "generate_ids",
        "generate_text",
        "stream_text",
    ),
    "fast.head": ("linear_cross_entropy",),
    "exchange.importing": ("Import", "import_run"),
    "plan.measuring": ("Measured", "measured_step", "this_machine"),
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
    "optim": (
        "Muon",
        "clip_gradients",
        "constant_schedule",
        "cosine_schedule",
        "wsd_schedule",
    ),
    "plan.rate_test": ("RateTest", "find_lr"),
    ".progress": ("StepReport",),
    "run.directory": ("load", "read_config"),
    "plan.sweeping": ("Sweep", "Trial", "sweep"),
    "presets": ("PRESETS",),
    "plan.space": ("Range",),
    "training": ("TrainResult", "train"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "PRESETS",
    "SGD",
    "Account",
    "AdamW",
    "CausalSelfAttention",
    "DecodeStep",
    "Embedding",
    "Evaluation",
    "Export",
    "GeneratedText",
    "Hardware",
    "Import",
    "Linear",
    "Measured",
    "ModelConfig",
    "Muon",
    "RMSNorm",
    "Range",
    "RateTest",
    "RotaryEmbedding",
    "Sampling",
    "Scores",
    "SiLUFeedForward",
    "StepReport",
    "Sweep",
    "SwiGLU",
    "TrainConfig",
    "TrainResult",
    "TransformerBlock",
    "TransformerLM",
    "Trial",
    "Windows",
    "account",
    "attach",
    "clip_gradients",
    "constant_schedule",
    "cosine_schedule",
    "cross_entropy",
    "evaluate",
    "export_run",
    "find_lr",
    "generate_ids",
    "generate_text",
    "get_batch",
    "import_run",
    "linear_cross_entropy",
    "load",
    "load_checkpoint",
    "measured_step",
    "open_tokens",
    "perplexity",
    "read_config",
    "save_checkpoint",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "stream_text",
    "sweep",
    "this_machine",
    "train",
    "wsd_schedule",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f".{_HOME_OF[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise MissingPackageError(
            f"the language model needs {error.name}, which is not installed",
            "pip install 'bytemill[lm]'",
        ) from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
