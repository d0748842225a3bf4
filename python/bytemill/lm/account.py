"""What a model costs, by formula: parameters, products, memory.

Multiplications and additions of matrix products count, as two operations each; what is between
them is little. Attention is counted in full, though half of it is masked.
"""

from __future__ import annotations

from dataclasses import dataclass

from .config import ModelConfig

__all__ = ["Memory", "forward_flops", "n_parameters", "training_flops", "training_memory"]


def n_parameters(config: ModelConfig) -> int:
    """How many numbers are learnt."""
    d, heads = config.d_model, config.d_head * config.n_kv
    n_matrices = 3 if config.feed_forward == "swiglu" else 2
    block = 2 * d * d + 2 * d * heads + n_matrices * d * config.width
    if config.norm != "none":
        block += 2 * d
    if config.qk_norm:
        block += 2 * config.d_head
    total = config.num_layers * block + config.vocab_size * d
    if not config.tie_embeddings:
        total += config.vocab_size * d
    return total + (d if config.norm == "pre" else 0)


def forward_flops(config: ModelConfig, n_tokens: int) -> int:
    """Operations of reading one sequence of `n_tokens` forward.

    >>> gpt2_xl = ModelConfig(50257, 1024, 1600, 48, 25, d_ff=6400)
    >>> n_parameters(gpt2_xl), forward_flops(gpt2_xl, 1024)
    (2127057600, 4513336524800)
    """
    d, t = config.d_model, n_tokens
    n_matrices = 3 if config.feed_forward == "swiglu" else 2
    projections = 2 * t * (2 * d * d + 2 * d * config.d_head * config.n_kv)
    attention = 4 * t * t * d
    feed_forward = 2 * t * n_matrices * d * config.width
    head = 2 * t * d * config.vocab_size
    return config.num_layers * (projections + attention + feed_forward) + head


def training_flops(config: ModelConfig, n_sequences: int) -> int:
    """Operations of an update on so many sequences: backward is twice forward."""
    return 3 * n_sequences * forward_flops(config, config.context_length)


@dataclass(frozen=True)
class Memory:
    """Bytes that training takes.

    Attributes:
        weights: the parameters.
        gradients: as many again.
        moments: what the optimizer remembers.
        activations: what forward keeps for backward.
    """

    weights: int
    gradients: int
    moments: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.moments + self.activations


def training_memory(
    config: ModelConfig, n_sequences: int, *, fused: bool, moments: int = 2, width: int = 4
) -> Memory:
    """What training on so many sequences at a time takes.

    Args:
        config: the model.
        n_sequences: at a time.
        fused: whether the fused sublayers are used, which keep less.
        moments: numbers that the optimizer keeps per parameter.
        width: bytes of an activation.
    """
    weights = 4 * n_parameters(config)
    d, inner, kv = config.d_model, config.width, config.d_head * config.n_kv
    # Per token and layer. Fused: both inputs, queries, what attention gives, keys and values,
    # gate and up. Else: both norms' and the turned ones, the output of the product as well.
    kept = (4 * d + 2 * kv + 2 * inner) if fused else (9 * d + 3 * kv + 4 * inner)
    n_tokens = n_sequences * config.context_length
    per_layer = n_tokens * kept * width
    # Behind the blocks, and the gradient of the head's weights until backward takes it.
    behind = 4 * n_tokens * d * width + 4 * config.vocab_size * d
    return Memory(weights, weights, moments * weights, config.num_layers * per_layer + behind)
