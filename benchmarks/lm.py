"""The language model against others: training steps, generation, memory.

    python benchmarks/lm.py --shape laptop --what train
    python benchmarks/lm.py --shape ts --what compiled generate memory --json benchmarks/lm.json
    python benchmarks/lm.py --what --json benchmarks/lm.json --docs docs/benchmarks.md

All contenders run in one process and take turns, round after round, so that other load on the
machine affects all of them; best and median are reported. Only for memory, each contender has a
process of its own. A step is forward, loss, backward, clipping to 1.0, AdamW.

Contenders: transformers' Llama; litgpt, if it is installed; and, instead of nanoGPT, which no
package index has, a GPT-2 with the same arithmetic written here (LayerNorm, GELU, learned
positions, tied embeddings, no biases). Equal work is checked before anything is timed:
Llama, litgpt and ours have the same number of parameters and count the same products.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import jobs
from bytemill import lm
from bytemill.lm import optim
from lm_figures import write_docs

SHAPES = {
    "laptop": {"vocab_size": 4096, "context_length": 128, "d_model": 192, "d_ff": 512,
               "num_layers": 4, "num_heads": 6},
    "ts": {"vocab_size": 10000, "context_length": 256, "d_model": 512, "d_ff": 1344,
           "num_layers": 4, "num_heads": 16},
}  # fmt: skip
BATCH = 32
PROMPT, NEW = 32, 200
LR = 1e-3


# --- training ----------------------------------------------------------------------------------


class Ours:
    """Our model; `kernels` and `compiled` are options of `bytemill train`."""

    def __init__(self, shape: dict[str, int], kernels: str, compiled: bool = False) -> None:
        torch.manual_seed(0)
        self.model = lm.attach(
            lm.TransformerLM(lm.ModelConfig(**shape)), blocks=kernels == "fused" and not compiled
        )
        if compiled:
            for block in self.model.layers:
                block.compile(dynamic=False)
        self.optimizers = optim.make_optimizers(self.model, lm.TrainConfig(lr=LR))

    def step(self, ids: Tensor, targets: Tensor) -> float:
        loss = self.model.loss(ids, targets)
        loss.backward()
        lm.clip_gradients(self.model.parameters(), 1.0)
        self.optimizers.step()
        self.optimizers.zero_grad()
        return float(loss.detach())


class Other:
    """Any module that returns logits, with the usual loss, clipping and optimizer."""

    def __init__(self, model: nn.Module, logits: Callable[[Any], Tensor], compiled: bool) -> None:
        self.model, self.logits = model, logits
        self.run = torch.compile(self._loss, dynamic=False) if compiled else self._loss
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), fused=True)

    def _loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        logits = self.logits(self.model(ids))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def step(self, ids: Tensor, targets: Tensor) -> float:
        loss = self.run(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())


def llama(shape: dict[str, int]) -> nn.Module:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=shape["vocab_size"],
        hidden_size=shape["d_model"],
        intermediate_size=shape["d_ff"],
        num_hidden_layers=shape["num_layers"],
        num_attention_heads=shape["num_heads"],
        max_position_embeddings=shape["context_length"] + PROMPT + NEW,
        tie_word_embeddings=False,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)  # type: ignore[no-any-return]


def litgpt_model(shape: dict[str, int]) -> nn.Module:
    import litgpt

    torch.manual_seed(0)
    config = litgpt.Config(
        name="bench",
        block_size=max(shape["context_length"], PROMPT + NEW),
        vocab_size=shape["vocab_size"],
        padded_vocab_size=shape["vocab_size"],
        n_layer=shape["num_layers"],
        n_head=shape["num_heads"],
        n_embd=shape["d_model"],
        intermediate_size=shape["d_ff"],
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
    )
    return litgpt.GPT(config)  # type: ignore[no-any-return]


class GPT2(nn.Module):
    """nanoGPT's arithmetic: LayerNorm and GELU, no rotary positions, tied embeddings."""

    def __init__(self, shape: dict[str, int]) -> None:
        super().__init__()
        d = shape["d_model"]
        self.n_heads = shape["num_heads"]
        self.tokens = nn.Embedding(shape["vocab_size"], d)
        self.places = nn.Embedding(max(shape["context_length"], PROMPT + NEW), d)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(d, bias=False),
                    "qkv": nn.Linear(d, 3 * d, bias=False),
                    "out": nn.Linear(d, d, bias=False),
                    "norm2": nn.LayerNorm(d, bias=False),
                    "up": nn.Linear(d, 4 * d, bias=False),
                    "down": nn.Linear(4 * d, d, bias=False),
                }
            )
            for _ in range(shape["num_layers"])
        )
        self.norm = nn.LayerNorm(d, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        b, t = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(t))
        for layer in self.layers:
            parts = layer["qkv"](layer["norm1"](x)).view(b, t, 3, self.n_heads, -1)
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + layer["out"](mixed.transpose(1, 2).reshape(b, t, -1))
            x = x + layer["down"](F.gelu(layer["up"](layer["norm2"](x))))
        return F.linear(self.norm(x), self.tokens.weight)


def trainers(shape: dict[str, int], compiled: bool) -> dict[str, Callable[[], Any]]:
    """Name → constructor."""
    mark = ", compiled" if compiled else ""
    found: dict[str, Callable[[], Any]] = {}
    found["bytemill, fused"] = lambda: Ours(shape, "fused")
    found[f"bytemill, torch kernels{mark}"] = lambda: Ours(shape, "torch", compiled)
    found[f"HF Llama{mark}"] = lambda: Other(llama(shape), lambda out: out.logits, compiled)
    found[f"GPT-2 as nanoGPT's{mark}"] = lambda: Other(GPT2(shape), lambda out: out, compiled)
    if has("litgpt"):
        found[f"litgpt{mark}"] = lambda: Other(litgpt_model(shape), lambda out: out, compiled)
    return found


def has(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def batches(shape: dict[str, int]) -> list[tuple[Tensor, Tensor]]:
    tokens = np.random.default_rng(0).integers(0, shape["vocab_size"], 10**6).astype(np.uint16)
    windows = lm.Windows(tokens, shape["context_length"])
    return [windows.batch(step, BATCH) for step in range(8)]


def train_bench(shape: dict[str, int], rounds: int, compiled: bool) -> list[dict[str, Any]]:
    data = batches(shape)
    made = {}
    for name, make in trainers(shape, compiled).items():
        began = time.perf_counter()
        made[name] = make()
        for ids, targets in data[:2]:
            made[name].step(ids, targets)
        say(f"  {name}: made and warm in {time.perf_counter() - began:.1f} s")
    check_shapes(made)
    times = turns(
        {name: lambda c=c, n=[0]: one_step(c, data, n) for name, c in made.items()}, rounds
    )
    n_tokens = BATCH * shape["context_length"]
    return table(times, lambda seconds: n_tokens / seconds, "tokens/s")


def one_step(contender: Any, data: list[tuple[Tensor, Tensor]], n: list[int]) -> None:
    n[0] += 1
    contender.step(*data[n[0] % len(data)])


def check_shapes(made: dict[str, Any]) -> None:
    sizes = {
        name: sum(p.numel() for p in contender.model.parameters())
        for name, contender in made.items()
        if "GPT-2" not in name
    }
    if len(set(sizes.values())) != 1:
        raise SystemExit(f"the contenders differ in size: {sizes}")


# --- generation --------------------------------------------------------------------------------


def generate_bench(shape: dict[str, int], rounds: int) -> list[dict[str, Any]]:
    room = shape | {"context_length": PROMPT + NEW}
    prompt = list(range(1, PROMPT + 1))
    torch.manual_seed(0)
    ours = lm.TransformerLM(lm.ModelConfig(**room)).eval()
    options = {"temperature": 0.8, "top_p": 0.9, "seed": 1}
    runs: dict[str, Callable[[], Any]] = {
        "bytemill": lambda: ours.generate(prompt, max_tokens=NEW, **options),
        "bytemill, no cache": lambda: ours.generate(
            prompt, max_tokens=NEW, use_cache=False, **options
        ),
    }
    other = llama(room).eval()
    ids = torch.tensor([prompt])

    def theirs(static: bool) -> None:
        with torch.inference_mode():
            other.generate(  # type: ignore[operator]
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, min_new_tokens=NEW,
                do_sample=True, temperature=0.8, top_p=0.9, top_k=0, pad_token_id=0, use_cache=True,
                cache_implementation="static" if static else None,
            )  # fmt: skip

    runs["HF Llama, cache"] = lambda: theirs(False)
    if has("litgpt"):
        from litgpt.generate.base import generate as litgpt_generate

        gpt = litgpt_model(room).eval()
        with torch.device("cpu"):
            gpt.set_kv_cache(batch_size=1)

        def lit() -> None:
            with torch.inference_mode():
                litgpt_generate(gpt, ids[0], PROMPT + NEW, temperature=0.8, top_p=0.9)

        runs["litgpt, cache"] = lit
    for run in runs.values():
        run()
    return table(turns(runs, rounds), lambda seconds: NEW / seconds, "tokens/s")


# --- data --------------------------------------------------------------------------------------


def data_bench(shape: dict[str, int], rounds: int) -> list[dict[str, Any]]:
    """The time of a step, and of reading its batch from a file of ids."""
    model = Ours(shape, "fused")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids.npy"
        ids = np.random.default_rng(0).integers(0, shape["vocab_size"], 50_000_000)
        np.save(path, ids.astype(np.uint16))
        windows = lm.Windows(np.load(path, mmap_mode="r"), shape["context_length"])
        steps = iter(range(10**9))
        batch = windows.batch(next(steps), BATCH)
        times = turns(
            {
                "step": lambda: model.step(*batch),
                "batch": lambda: windows.batch(next(steps), BATCH),
            },
            rounds,
        )
    best = {name: min(found) for name, found in times.items()}
    return [
        {
            "name": name,
            "best_ms": round(1e3 * seconds, 3),
            "share": round(seconds / best["step"], 5),
        }
        for name, seconds in best.items()
    ]


# --- memory ------------------------------------------------------------------------------------


def memory_bench(shape_name: str) -> list[dict[str, Any]]:
    rows = []
    for name in trainers(SHAPES[shape_name], False):
        command = [sys.executable, __file__, "--shape", shape_name, "--peak-of", name]
        peak = int(subprocess.run(command, check=True, capture_output=True).stdout)
        rows.append({"name": name, "peak_mb": round(peak / 1e6)})
    return rows


def peak_of(shape: dict[str, int], name: str) -> int:
    contender = trainers(shape, False)[name]()
    for ids, targets in batches(shape)[:3]:
        contender.step(ids, targets)
    return jobs.peak_memory()


# --- turns and tables --------------------------------------------------------------------------


def turns(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    return times


def table(
    times: dict[str, list[float]], rate: Callable[[float], float], unit: str
) -> list[dict[str, Any]]:
    first = min(next(iter(times.values())))
    return [
        {
            "name": name,
            "best_ms": round(1000 * min(found), 2),
            "median_ms": round(1000 * statistics.median(found), 2),
            unit: round(rate(min(found))),
            "times_ours": round(min(found) / first, 3),
        }
        for name, found in times.items()
    ]


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n")
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "|".join("---" if n == "name" else "--:" for n in names) + "|")
    for row in rows:
        print("| " + " | ".join(f"{row[n]:,}" if n != "name" else row[n] for n in names) + " |")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="laptop")
    parser.add_argument("--what", nargs="*", default=["train", "generate"],
                        choices=["train", "compiled", "generate", "data", "memory"])  # fmt: skip
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the results, which are added to it")
    parser.add_argument("--docs", type=Path, help="page to put the results of --json into")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(arguments.threads)
    shape = SHAPES[arguments.shape]
    if arguments.peak_of:
        print(peak_of(shape, arguments.peak_of))
        return
    machine = {
        "processor": processor(),
        "torch": torch.__version__.partition("+")[0],
        "threads": arguments.threads,
        "date": time.strftime("%Y-%m-%d"),
    }
    for what in arguments.what:
        say(f"{what}, {arguments.shape}")
        if what in ("train", "compiled"):
            rows = train_bench(shape, arguments.rounds, what == "compiled")
        elif what == "generate":
            rows = generate_bench(shape, arguments.rounds)
        elif what == "data":
            rows = data_bench(shape, arguments.rounds)
        else:
            rows = memory_bench(arguments.shape)
        show(f"{what}, {arguments.shape}, {arguments.threads} threads", rows)
        if arguments.json:
            kept = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
            kept[f"{what}, {arguments.shape}"] = {"machine": machine, "rows": rows}
            arguments.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    if arguments.docs:
        write_docs(arguments.docs, json.loads(arguments.json.read_text()))


def processor() -> str:
    """The name of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
