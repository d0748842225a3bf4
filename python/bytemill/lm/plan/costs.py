"""The cost of a model by formula: parameters, FLOPs, memory. No torch.

A multiply-add of a matrix product counts as two FLOPs; everything else is negligible and not
counted. Attention is counted in full, although half of it is masked. Activations are counted as
autograd keeps them on a CPU, tensor by tensor. Tests compare every formula with what torch itself
counts and keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config import ModelConfig

__all__ = [
    "Memory",
    "activations",
    "can_fuse",
    "chunk_rows",
    "flops_of",
    "forward_flops",
    "head_rows",
    "kv_cache",
    "n_parameters",
    "parameters_of",
    "training_flops",
    "training_memory",
    "update_flops_of",
]

WIDTHS = {"float32": 4, "bfloat16": 2}
# d_model from which bfloat16 pays on a CPU that has it: for smaller matmuls, the casts cost more,
# and the fused sublayers are for float32 only.
BFLOAT16_PAYS_FROM = 512
# Size of temporary results between two matmuls: they stay in the L2 or L3 cache.
CHUNK_BYTES = 4 << 20


# --- parameters and FLOPs ------------------------------------------------------------------------


def parameters_of(config: ModelConfig) -> dict[str, int]:
    """Number of parameters by component; a tied head has none."""
    d, layers = config.d_model, config.num_layers
    norms = 0
    if config.norm != "none":
        norms += layers * 2 * d
    if config.norm == "pre":
        norms += d
    if config.qk_norm:
        norms += layers * 2 * config.d_head
    return {
        "embeddings": config.vocab_size * d,
        "attention projections": layers * (2 * d * d + 2 * d * _kv_width(config)),
        "feed-forward": layers * _n_matrices(config) * d * config.width,
        "norms": norms,
        "output head": 0 if config.tie_embeddings else config.vocab_size * d,
    }


def n_parameters(config: ModelConfig) -> int:
    return sum(parameters_of(config).values())


def flops_of(config: ModelConfig, n_tokens: int) -> dict[str, int]:
    """FLOPs of the forward pass on one sequence of `n_tokens`, by component."""
    d, t, layers = config.d_model, n_tokens, config.num_layers
    return {
        # A lookup, without a product.
        "embeddings": 0,
        "attention projections": layers * 2 * t * (2 * d * d + 2 * d * _kv_width(config)),
        "attention scores": layers * 4 * t * t * d,
        "feed-forward": layers * 2 * t * _n_matrices(config) * d * config.width,
        "output head": 2 * t * d * config.vocab_size,
    }


def forward_flops(config: ModelConfig, n_tokens: int) -> int:
    """FLOPs of the forward pass on one sequence of `n_tokens`.

    >>> gpt2_xl = ModelConfig(
    ...     vocab_size=50257,
    ...     context_length=1024,
    ...     d_model=1600,
    ...     num_layers=48,
    ...     num_heads=25,
    ...     d_ff=6400,
    ... )
    >>> n_parameters(gpt2_xl), forward_flops(gpt2_xl, 1024)
    (2127057600, 4513336524800)
    """
    return sum(flops_of(config, n_tokens).values())


def training_flops(config: ModelConfig, n_sequences: int, *, recompute: bool = False) -> int:
    """FLOPs of an update on `n_sequences`: backward takes twice as many as forward.

    With `recompute`, the forward pass of the blocks runs twice.
    """
    return sum(update_flops_of(config, n_sequences, recompute=recompute).values())


def update_flops_of(
    config: ModelConfig, n_sequences: int, *, recompute: bool = False
) -> dict[str, int]:
    """`training_flops` by component."""
    return {
        name: n_sequences * n * (4 if recompute and name != "output head" else 3)
        for name, n in flops_of(config, config.context_length).items()
    }


def _kv_width(config: ModelConfig) -> int:
    return config.d_head * config.n_kv


def _n_matrices(config: ModelConfig) -> int:
    return 3 if config.feed_forward == "swiglu" else 2


# --- memory --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Memory of training, in bytes.

    Attributes:
        weights: the parameters, in float32.
        gradients: the same size.
        moments: optimizer state.
        activations: what forward keeps for backward.
        working: temporary memory of a block, the head or the optimizer.
        peak: peak memory. Less than the sum: when the gradients are complete, the activations are
            freed.
    """

    weights: int
    gradients: int
    moments: int
    activations: int
    working: int
    peak: int

    @property
    def total(self) -> int:
        """The sum of all, as if they existed at the same time."""
        return self.weights + self.gradients + self.moments + self.activations + self.working


def training_memory(
    config: ModelConfig,
    n_sequences: int,
    *,
    kernels: str,
    dtype: str = "float32",
    optimizer: str = "adamw",
    recompute: bool = False,
    accumulate: bool = False,
    device: str | None = None,
) -> Memory:
    """The memory of training on micro-batches of `n_sequences`.

    Args:
        config: the model.
        n_sequences: sequences per micro-batch.
        kernels: `"plain"` keeps all attention scores and all logits, `"torch"` neither (fused
            attention), `"fused"` also recomputes norms and activations.
        dtype: matmul dtype; weights are always float32.
        optimizer: `"adamw"`, `"muon"` or `"sgd"`.
        recompute: keep only the input of each block, and recompute the block in backward.
        accumulate: gradients accumulate over micro-batches, so they exist all the time.
        device: `"cpu"` or another; None for a CPU in float32, a GPU in bfloat16.
    """
    device = device or ("cpu" if dtype == "float32" else "cuda")
    weights, moments = 4 * n_parameters(config), _moments(config, optimizer)
    kept = activations(config, n_sequences, kernels=kernels, dtype=dtype, recompute=recompute)
    way = _way(config, kernels, dtype)
    block = _block(config, n_sequences, way, dtype)
    back = _back_through_block(config, n_sequences, way, dtype)
    head = _head(config, n_sequences, kernels, dtype, device)
    # In backward, activations are freed as gradients are created, block by block: the peak is at
    # one end. The gradient of the embedding comes last; if tied, it adds to that of the head.
    matrix = 4 * config.vocab_size * config.d_model
    before = kept - _tail(config, n_sequences, kernels, dtype) - block + matrix + back
    there = weights if accumulate else 0
    tied = matrix if config.tie_embeddings else 0
    within = weights + tied - matrix - _block_weights(config) + back
    end = weights + tied + _stream(config, n_sequences)
    update = _update(config, optimizer, device)
    peak = weights + moments + max(there + max(kept + head, before), within, end, weights + update)
    return Memory(weights, weights, moments, kept, max(head, back - block, update), peak)


def _way(config: ModelConfig, kernels: str, dtype: str) -> str:
    """The kernels of a block: not every model and dtype can be fused."""
    fits = dtype == "float32" and can_fuse(config)
    return "torch" if kernels == "fused" and not fits else kernels


def _head(config: ModelConfig, n_sequences: int, kernels: str, dtype: str, device: str) -> int:
    """Temporary bytes of the head."""
    n_tokens, ids = n_sequences * config.context_length, config.vocab_size
    if kernels == "plain":
        # The gradient of the logits, and a mask of the maximum.
        return 5 * n_tokens * ids
    stream = _stream(config, n_sequences)
    if dtype == "float32":
        # Logits of a chunk, and their input.
        return 4 * head_rows(ids, n_tokens, device) * ids + stream
    # Also their softmax in float32, while that of the previous chunk still exists.
    rows = head_rows(ids, n_tokens, device)
    work = (8 if n_tokens <= rows else 10) * rows * ids + stream
    if device == "cpu":
        # The CPU library copies the operands and the result of the weight gradient.
        work += WIDTHS[dtype] * (rows * ids + (ids + n_tokens) * config.d_model)
    return work


def _back_through_block(config: ModelConfig, n_sequences: int, kernels: str, dtype: str) -> int:
    """Peak bytes of a block in backward: activations, gradients, temporary memory."""
    n_tokens, d, f = n_sequences * config.context_length, config.d_model, config.width
    width, kv, kept = WIDTHS[dtype], _kv_width(config), _block(config, n_sequences, kernels, dtype)
    feed_forward = 4 * _n_matrices(config) * d * f
    if kernels == "fused":
        # Gradients of output and input; per chunk: gate, up, their product, the norm.
        chunk = 4 * chunk_rows(f, n_tokens) * (3 * f + d)
        first = kept + feed_forward + 2 * _stream(config, n_sequences) + chunk
        # Then, without the activations of the feed-forward layer: gradients of the output, of
        # attention's output, of queries, keys and values; the norm.
        rest = kept - 4 * n_tokens * (d + 1 + 2 * f)
        return max(first, rest + _block_weights(config) + 4 * n_tokens * (4 * d + 2 * kv))
    # Gradients of the inner width, of the residual stream, and of a matrix.
    inner = n_tokens * (2 * f + 2 * d) * width + 4 * d * f
    if config.norm == "post":
        # The activations of the norm after the layer are freed by then.
        inner -= 4 * n_tokens * (2 * d + 1)
    if kernels == "plain":
        # Four times the scores, after the activations of the feed-forward layer are freed.
        scores = n_tokens * config.num_heads * config.context_length * width
        inner = max(inner, 4 * scores - n_tokens * (5 * f + 3 * d) * width)
    return max(kept + inner, kept // 2 + _block_weights(config))


def _block_weights(config: ModelConfig) -> int:
    """Bytes of the weights of a block."""
    parts = parameters_of(config)
    inner = parts["attention projections"] + parts["feed-forward"]
    return 4 * inner // config.num_layers


def head_rows(n_ids: int, n_rows: int, device: str = "cpu") -> int:
    """Rows of logits per chunk of the head.

    On a CPU 1024, or what fits into 64 MB, but at least 512: with 256, the head took at least an
    eighth longer, with 2048 up to a tenth.
    """
    if device != "cpu":
        return chunk_rows(n_ids, n_rows, 2048)
    return min(n_rows, 1024, max(512, (64 << 20) // (4 * n_ids) // 64 * 64))


def chunk_rows(width: int, n_rows: int, least: int = 128) -> int:
    """Rows per chunk, out of `n_rows`: a multiple of 64, or all of them."""
    return min(n_rows, max(least, CHUNK_BYTES // (4 * width) // 64 * 64))


def _stream(config: ModelConfig, n_sequences: int) -> int:
    """Bytes of the residual stream, which is always float32."""
    return 4 * n_sequences * config.context_length * config.d_model


def activations(
    config: ModelConfig,
    n_sequences: int,
    *,
    kernels: str,
    dtype: str = "float32",
    recompute: bool = False,
) -> int:
    """Bytes that forward keeps for backward; takes the arguments of `training_memory`."""
    block = _block(config, n_sequences, _way(config, kernels, dtype), dtype)
    tail = _tail(config, n_sequences, kernels, dtype)
    if not recompute:
        return config.num_layers * block + tail
    # One block at a time also has its other activations.
    stream = _stream(config, n_sequences)
    return config.num_layers * stream + max(block - stream, 0) + tail


def _block(config: ModelConfig, n_sequences: int, kernels: str, dtype: str) -> int:
    """Bytes that one block keeps."""
    d, f, heads, t = config.d_model, config.width, config.num_heads, config.context_length
    width = WIDTHS[dtype]
    gated = config.feed_forward == "swiglu"
    if kernels == "fused":
        # Input and scale of both norms; queries, keys, values, output and log-sums of attention;
        # gate and up.
        per_token = 4 * (2 * (d + 1) + 2 * d + 2 * _kv_width(config) + heads + 2 * f)
        return n_sequences * t * per_token
    # Both norms: input, scale, normalized input.
    stream = {"pre": 2 * (2 * d + 1), "post": 2 * (2 * d + 1), "none": 0}[config.norm]
    per_token = 4 * stream
    # Inputs of the matmuls: one tensor, or with a cast one for each matmul.
    n_products = (3 if gated else 2) + 2 if dtype != "float32" else 2
    per_token += width * (n_products * d)
    # Queries, keys, values and the output of attention; the plain kernels copy shared keys and
    # values for each query head.
    per_token += width * (2 * d + 2 * (d if kernels == "plain" else _kv_width(config)))
    if config.qk_norm:
        per_token += 4 * (2 * (d + _kv_width(config)) + heads + config.n_kv)
    constant = 0
    if kernels == "plain":
        # Scores, their exponentials and shares; the maximum and sum of each row.
        per_token += width * (3 * heads * t + 2 * heads)
        per_token += width * (5 if gated else 3) * f
        constant = t * t + t  # the masks
    else:
        per_token += 4 * heads
        # The kernel's output has the memory order of its queries. Rotated queries are stored head
        # by head, so the output is kept twice: as it is, and in the order of the stream.
        if config.positions == "rope" or config.qk_norm:
            per_token += width * d
        per_token += width * (4 if gated else 2) * f
    if dtype != "float32":
        # Copies of the weights.
        constant += width * (2 * d * d + 2 * d * _kv_width(config) + _n_matrices(config) * d * f)
    return n_sequences * t * per_token + constant


def _tail(config: ModelConfig, n_sequences: int, kernels: str, dtype: str) -> int:
    """Bytes of activations after the blocks: final norm, head and loss."""
    n_tokens, d, width = n_sequences * config.context_length, config.d_model, WIDTHS[dtype]
    # Input and scale; the fused norm keeps nothing else.
    fused = kernels == "fused" and dtype == "float32"
    norm = 4 * ((1 if fused else 2) * d + 1) if config.norm == "pre" else 0
    if kernels == "plain":
        # Logits, logits less their maximum, exponentials; and a cast of the weights.
        cast = 0 if dtype == "float32" else width * config.vocab_size * d
        return n_tokens * (norm + width * d + 4 * (3 * config.vocab_size + 2)) + cast
    # Forward already computes the gradients of the head's input and weights.
    return n_tokens * (norm + width * d) + width * config.vocab_size * d


def bfloat16_pays_on_cpu(config: ModelConfig) -> bool:
    """Whether bfloat16 matmuls are worth their casts, on a CPU that has them."""
    return config.d_model >= BFLOAT16_PAYS_FROM


def can_fuse(config: ModelConfig) -> bool:
    """Whether the fused sublayers support this model; the ablations use torch's kernels."""
    return config.norm == "pre" and config.feed_forward == "swiglu" and not config.qk_norm


def _moments(config: ModelConfig, optimizer: str) -> int:
    if optimizer == "sgd":
        return 0
    parts = parameters_of(config)
    hidden = parts["attention projections"] + parts["feed-forward"]
    # Muon keeps one number per weight of the hidden matrices; AdamW keeps two for the rest.
    return 4 * (2 * sum(parts.values()) - (hidden if optimizer == "muon" else 0))


def _update(config: ModelConfig, optimizer: str, device: str) -> int:
    """Temporary bytes of the optimizer."""
    if optimizer != "muon":
        return 0
    # Muon iterates over all matrices of one shape together.
    d, f, kv = config.d_model, config.width, _kv_width(config)
    numbers: dict[tuple[int, int], int] = {}
    for shape, n in (((d, d), 2), ((kv, d), 2), ((f, d), _n_matrices(config) - 1), ((d, f), 1)):
        numbers[shape] = numbers.get(shape, 0) + n * config.num_layers
    # Directions, and their stack; input, output and two terms of an iteration; a square. A GPU
    # iterates in bfloat16.
    width = WIDTHS["float32" if device == "cpu" else "bfloat16"]
    return max(
        n * ((2 * 4 + 4 * width) * rows * columns + width * min(rows, columns) ** 2)
        for (rows, columns), n in numbers.items()
    )


def kv_cache(config: ModelConfig, n_sequences: int = 1, dtype: str = "float32") -> int:
    """Bytes of the keys and values of `n_sequences` at full context."""
    n_tokens = n_sequences * config.context_length
    return 2 * config.num_layers * n_tokens * _kv_width(config) * WIDTHS[dtype]
