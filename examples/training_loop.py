"""A training loop of your own, from the parts of `bytemill.lm`.

    python examples/training_loop.py TOKENS [STEPS]

TOKENS is a directory that `bytemill encode -o` wrote. `lm.train` adds to this loop: evaluation,
checkpoints, resuming, progress, mixed precision and several processes.
"""

from __future__ import annotations

import sys

import torch

import bytemill
from bytemill import lm


def train(tokens: str, steps: int, *, batch_size: int = 16, lr: float = 1e-2) -> list[float]:
    """The loss at each step."""
    opened = bytemill.Tokens(tokens)
    tokenizer = opened.tokenizer
    assert tokenizer is not None, "bytemill encode puts it there"
    torch.manual_seed(0)
    model = lm.TransformerLM(
        lm.ModelConfig(
            vocab_size=tokenizer.vocab_size,
            context_length=64,
            d_model=64,
            num_layers=2,
            num_heads=4,
        )
    )
    # The order of the windows follows from the seed.
    windows = lm.Windows(opened, model.config.context_length, seed=0)
    optimizer = lm.AdamW(model.parameters(), lr=lr, weight_decay=0.1)
    losses = []
    for step in range(steps):
        rate = lm.cosine_schedule(step, lr, lr / 10, warmup=steps // 10, total=steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        inputs, targets = windows.batch(step, batch_size)
        loss = model.loss(inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        lm.clip_gradients(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0 or step == steps - 1:
            print(f"step {step:4}  loss {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100)
