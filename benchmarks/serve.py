"""The server under load: tokens per second of several concurrent clients, and of one client.

    python benchmarks/serve.py --json benchmarks/serve.json
    python benchmarks/serve.py --shape laptop --clients 1 2 4 8 16

A server runs in a process of its own, over a run with random weights. The clients are threads of
another process; each asks /v1/completions for NEW tokens that continue PROMPT tokens, whole or as a
stream, and asks again when it has them. One client and many take turns, round after round; best and
median are told. All numbers of tokens are those that the server reports.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

import bytemill
from bytemill import lm
from bytemill.lm.run.checkpoint import weights_of, write_step
from bytemill.lm.run.config_file import write_config
from lm import NEW, PROMPT, SHAPES, processor, say, show

SERVER = """
import sys
import torch
from bytemill.serve import serve

torch.set_num_threads(int(sys.argv[2]))
serve([sys.argv[1]], port=0, device="cpu", on_start=lambda address: print(address, flush=True))
"""


def make_run(place: Path, shape: dict[str, int]) -> None:
    """A run with random weights and a tokenizer of Python's own source."""
    sources = sorted(Path(statistics.__file__).parent.glob("*.py"))
    tokenizer = bytemill.train_tokenizer(sources, vocab_size=shape["vocab_size"])
    torch.manual_seed(0)
    model = lm.TransformerLM(
        lm.ModelConfig(
            **shape | {"vocab_size": tokenizer.max_id + 1, "context_length": PROMPT + NEW}
        )
    )
    fields = {"model": model.config.to_json()}
    place.mkdir()
    write_config(place, fields)
    tokenizer.save(place / "tokenizer.json")
    facts = fields | {"tokenizer": tokenizer.fingerprint}
    write_step(place, 1, weights_of(model), None, facts)


def ask(port: int, number: int, stream: bool) -> int:
    """One request; returns the number of new tokens."""
    body: dict[str, Any] = {
        "model": "run", "prompt": [(number + i) % 200 + 1 for i in range(PROMPT)],
        "max_tokens": NEW, "seed": number, "temperature": 0.8, "stream": stream,
    }  # fmt: skip
    if stream:
        body["stream_options"] = {"include_usage": True}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/completions", json.dumps(body))
    response = connection.getresponse()
    data = response.read()
    connection.close()
    if response.status != 200:
        raise SystemExit(f"the server answered {response.status}: {data[:300]!r}")
    if stream:
        data = data.split(b"\n\n")[-3].removeprefix(b"data: ")
    return int(json.loads(data)["usage"]["completion_tokens"])


def rate(port: int, n_clients: int, stream: bool, n_requests: int) -> float:
    """Tokens per second of this number of clients, each with `n_requests` requests in a row."""
    counts = [0] * n_clients

    def client(number: int) -> None:
        for again in range(n_requests):
            counts[number] += ask(port, 100 * again + number, stream)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(n_clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def measure(port: int, clients: list[int], rounds: int, n_requests: int) -> list[dict[str, Any]]:
    found: dict[tuple[bool, int], list[float]] = {}
    for stream in (False, True):
        rate(port, max(clients), stream, 1)
    for number in range(rounds):
        say(f"  round {number + 1} of {rounds}")
        for stream in (False, True):
            for n in clients:
                found.setdefault((stream, n), []).append(rate(port, n, stream, n_requests))
    rows = []
    for (stream, n), rates in sorted(found.items()):
        alone = found[stream, min(clients)]
        rows.append(
            {
                "name": f"{n} client{'s' * (n > 1)}, {'streams' if stream else 'whole answers'}",
                "best tokens/s": round(max(rates)),
                "median tokens/s": round(statistics.median(rates)),
                "times_one": round(max(rates) / max(alone), 2),
                "median_times_one": round(statistics.median(rates) / statistics.median(alone), 2),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="ts")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=3, help="of each client, per round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the results, which are added to it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        make_run(place, SHAPES[arguments.shape])
        command = [sys.executable, "-c", SERVER, str(place), str(arguments.threads)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                port = int(server.stdout.readline().rstrip("/\n").rpartition(":")[2])
                rows = measure(port, arguments.clients, arguments.rounds, arguments.requests)
            finally:
                server.terminate()
    show(f"server, {arguments.shape}, {arguments.threads} threads", rows)
    for way in ("whole answers", "streams"):
        best = [row for row in rows if way in row["name"]][-1]
        print(f"\n{best['name']}: {best['times_one']} × the tokens per second of one")
    if arguments.json:
        machine = {
            "processor": processor(),
            "torch": torch.__version__.partition("+")[0],
            "threads": arguments.threads,
            "date": time.strftime("%Y-%m-%d"),
        }
        kept = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
        kept[f"serve, {arguments.shape}"] = {"machine": machine, "rows": rows}
        arguments.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
