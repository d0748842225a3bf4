"""The report card of a run for the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ... import _numbers, _tables
from ...look.result import token_json
from .expected import Cost

if TYPE_CHECKING:
    from ...look import Statistics
    from .card import RunReport

__all__ = [
    "cost_rows",
    "describe",
    "longest_words",
    "shown",
    "state",
    "to_json",
    "to_text",
]

# Longest tokens to list.
N_WORDS = 12


def to_text(report: RunReport) -> str:
    """The summary."""
    (label, value), *rest = [list(row) for row in facts(report)]
    return _tables.table("ll", [label, value], rest)


def facts(report: RunReport) -> Iterator[tuple[str, str]]:
    """Labels and values of the summary."""
    model, history = report.model, report.history
    yield "run", f"{report.run}: {state(report)}"
    yield "model", ", ".join(describe(report))
    if report.train is not None:
        tokens = report.config["tokens"]
        epochs = "" if report.epochs is None else f", {report.epochs:.3g} epochs"
        yield (
            "tokens",
            f"{report.tokens_seen:,} trained on{epochs}; {tokens['held_out']:,} held out",
        )
    if report.loss is not None:
        yield "training loss", f"{report.loss:.4f} nats per token, smoothed"
    if report.final is not None and report.best is not None:
        final, best = report.final, report.best
        at = "" if best == final else f"; best {best.loss:.4f} at step {best.step:,}"
        yield "held-out loss", f"{final.loss:.4f} at step {final.step:,}{at}"
        yield "perplexity", shown(final.perplexity, "perplexity")
        yield "bits per byte", shown(final.bits_per_byte, "number") or "unknown: no tokenizer"
    elif report.train is not None:
        yield "held-out loss", "no evaluation yet" if report.status == "training" else "none"
    if report.seconds is not None:
        rate = "" if report.tokens_per_s is None else f", {report.tokens_per_s:,.0f} tokens/s"
        yield "time", f"{_numbers.duration(report.seconds)} in {len(history.steps):,} steps{rate}"
    if report.memory is not None:
        yield "peak memory", _numbers.size(report.memory)
    if report.tokenizer is None:
        yield "tokenizer", f"none; the model has {model.vocab_size:,} ids"


def state(report: RunReport) -> str:
    """The status of the run, with its step."""
    if report.train is None:
        return "imported"
    word = "in training" if report.status == "training" else report.status
    return f"{word}, step {report.steps:,} of {report.train.steps:,}"


def describe(report: RunReport) -> Iterator[str]:
    """The model in words."""
    model = report.model
    yield f"{report.n_parameters:,} parameters"
    yield f"{model.num_layers} layer{'s' if model.num_layers > 1 else ''} of {model.d_model}"
    yield f"{model.num_heads} head{'s' if model.num_heads > 1 else ''}"
    yield f"context {model.context_length:,}"
    yield f"{model.vocab_size:,} ids"


def shown(value: float | None, unit: str) -> str:
    """A number with its unit; empty if unknown."""
    if value is None:
        return ""
    if unit == "bytes":
        return _numbers.size(value)
    if unit == "s":
        return f"{value * 1000:,.3g} ms" if value < 0.9995 else _numbers.duration(value)
    if unit == "share":
        return f"{value:.1%}"
    if unit == "tokens":
        return f"{value:,.0f}"
    if unit == "FLOPs":
        return f"{value:.4g}"
    if unit == "perplexity":
        return f"{value:.2f}" if value < 1e6 else f"{value:.3g}"
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.4g}"


def cost_rows(costs: Sequence[Cost]) -> list[list[str]]:
    """The head and the rows of a table of costs; columns without a value are omitted."""
    columns = [["", *(cost.name for cost in costs)]]
    for name, values in (
        ("lm.account", [cost.account for cost in costs]),
        ("expected at the start", [cost.expected for cost in costs]),
        ("measured", [cost.measured for cost in costs]),
    ):
        cells = [shown(value, cost.unit) for value, cost in zip(values, costs)]
        if any(cells):
            columns.append([name, *cells])
    return [list(row) for row in zip(*columns)]


def longest_words(found: Statistics) -> list[tuple[int, bytes]]:
    """Id and bytes of the longest tokens with a letter, the longest first."""
    words = (
        one for one in found.longest if any(map(str.isalpha, one[1].decode("utf-8", "ignore")))
    )
    return list(islice(words, N_WORDS))


# --- JSON ---------------------------------------------------------------------------------------


def to_json(report: RunReport) -> dict[str, Any]:
    """The report as plain data. The curves are in the run's metrics, and not repeated."""
    final, best = report.final, report.best
    return {
        "run": report.run,
        "status": report.status,
        "parameters": report.n_parameters,
        "step": report.steps,
        "steps": None if report.train is None else report.train.steps,
        "tokens": report.tokens_seen,
        "epochs": report.epochs,
        "loss": report.loss,
        "final": None if final is None else final._asdict(),
        "best": None if best is None else best._asdict(),
        "seconds": report.seconds,
        "tokens_per_s": report.tokens_per_s,
        "memory": report.memory,
        "evaluations": [one._asdict() for one in report.history.evaluations],
        "samples": [one._asdict() for one in report.history.samples],
        "costs": [one._asdict() for one in report.costs],
        "tokenizer": None if report.tokenizer is None else _tokenizer(report.tokenizer),
        "bytes_per_token": report.bytes_per_token,
        "config": report.config,
        "commands": [one._asdict() for one in report.commands],
    }


def _tokenizer(found: Statistics) -> dict[str, Any]:
    names = ("vocab_size", "n_merges", "pattern", "special_tokens", "mean_length", "fingerprint")
    return {name: getattr(found, name) for name in names} | {
        "longest": [token_json(*one) for one in longest_words(found)],
        "unreachable": len(found.unreachable),
    }
