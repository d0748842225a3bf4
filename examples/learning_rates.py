"""The learning-rate exercise: SGD whose rate falls as lr/√(t+1), on the mean square of a matrix.

    python examples/learning_rates.py [PICTURE]

Ten steps with each of three rates. With 1e1 the loss falls slowly, with 1e2 fast; with 1e3 it
diverges. The gradient of the mean square of a 10 × 10 matrix W is W/50, so a step multiplies W by
1 - lr/(50√(t+1)). These factors are 0.8, 0.86, … toward 1 with the first rate; -1, -0.41, -0.15
and then 0 with the second, which reaches the minimum in four steps; -19, … with the third.
"""

from __future__ import annotations

import sys

import torch

from bytemill.lm import SGD

RATES = (1e1, 1e2, 1e3)
STEPS = 10


def losses(lr: float) -> list[float]:
    """The mean square before each step."""
    torch.manual_seed(0)
    weights = torch.nn.Parameter(5 * torch.randn(10, 10))
    optimizer = SGD([weights], lr=lr)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (weights**2).mean()
        found.append(loss.item())
        loss.backward()
        optimizer.step()
    return found


def main() -> None:
    found = {lr: losses(lr) for lr in RATES}
    print("step" + "".join(f"{f'lr {lr:g}':>12}" for lr in RATES))
    for step in range(STEPS):
        print(f"{step:4}" + "".join(f"{found[lr][step]:12.4g}" for lr in RATES))
    if len(sys.argv) > 1:
        from matplotlib.figure import Figure

        picture = Figure(layout="constrained")
        axes = picture.add_subplot()
        for lr in RATES:
            axes.plot(range(STEPS), found[lr], marker="o", label=f"lr = {lr:g}")
        axes.set_yscale("symlog", linthresh=1e-6)
        axes.set_xlabel("step")
        axes.set_ylabel("mean square (log scale above 1e-6)")
        axes.grid(alpha=0.3)
        axes.legend()
        picture.savefig(sys.argv[1])


if __name__ == "__main__":
    main()
