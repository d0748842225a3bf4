"""The report card of a run as a page of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ... import _numbers
from ...corpus.names import redacted
from ...look import charts
from ...look.charts import Scale, Series
from ...look.result import html_table, page, readable, visible
from ..run.history import Column, EvaluatedStep, Sample, smoothed
from .views import cost_rows, describe, longest_words, shown, state

if TYPE_CHECKING:
    from .card import RunReport

__all__ = ["run_page"]

Item = TypeVar("Item")

# Maximum points of a curve; more would not be visible.
POINTS = 400
# Evaluations and samples shown outside the lists that the reader opens.
MAX_ROWS = 12
# Characters of a sample.
SAMPLE_WIDTH = 2000
# Bytes of a token.
TOKEN_WIDTH = 60
# If the peak of a positive quantity is this many times its median, its axis is logarithmic.
WIDE = 50.0


def run_page(report: RunReport, title: str) -> str:
    """The page of a report card. Pointing at a curve or a dot shows its value."""
    return page(readable(title), _parts(report))


def _parts(report: RunReport) -> Iterator[str]:
    yield from _summary(report)
    if len(report.history.steps):
        yield from _curves(report)
    yield from _evaluations(report)
    yield from _samples(report)
    yield from _costs(report)
    yield from _tokenizer(report)
    yield from _config(report)
    yield from _commands(report)


# --- summary ------------------------------------------------------------------------------------


def _summary(report: RunReport) -> Iterator[str]:
    what = ", ".join(describe(report))
    version = report.config.get("bytemill")
    made = f", by bytemill {version}" if isinstance(version, str) else ""
    yield (
        f"<p><code>{_text(report.run)}</code>: {escape(state(report))}{_text(made)}. "
        f"A Llama-style Transformer: {escape(what)}.</p>\n"
    )
    yield '<dl class="figures">\n'
    for label, value, note in _figures(report):
        small = f'<dd class="note">{escape(note)}</dd>' if note else ""
        yield f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd>{small}</div>\n"
    yield "</dl>\n"


def _figures(report: RunReport) -> Iterator[tuple[str, str, str]]:
    """Label, value and note of the main figures."""
    final, best = report.final, report.best
    yield "parameters", _short(report.n_parameters), f"{report.n_parameters:,}"
    if report.train is not None:
        epochs = "" if report.epochs is None else f"{report.epochs:.3g} epochs"
        yield "tokens seen", _short(report.tokens_seen), epochs
    if final is not None and best is not None:
        yield "held-out loss", f"{final.loss:.4f}", f"step {final.step:,}"
        yield "best held-out loss", f"{best.loss:.4f}", f"step {best.step:,}"
        yield "perplexity", shown(final.perplexity, "perplexity") or "–", f"step {final.step:,}"
        bits = shown(final.bits_per_byte, "number")
        yield "bits per byte", bits or "–", f"step {final.step:,}" if bits else "no tokenizer"
    if report.loss is not None:
        yield "training loss", f"{report.loss:.4f}", "smoothed"
    if report.seconds is not None:
        yield "duration", _numbers.duration(report.seconds), "of the steps alone"
    if report.tokens_per_s is not None:
        yield "tokens per second", f"{report.tokens_per_s:,.0f}", "mean"
    if report.memory is not None:
        yield "peak memory", _numbers.size(report.memory), ""


def _short(n: int) -> str:
    for unit, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if n >= unit:
            return f"{n / unit:.3g}{letter}" if n < 1000 * unit else f"{n / unit:,.0f}{letter}"
    return str(n)


# --- curves -------------------------------------------------------------------------------------


def _curves(report: RunReport) -> Iterator[str]:
    history = report.history
    steps = history.steps.tolist()
    training = list(zip(steps, smoothed(history.column("loss"))))
    held_out = [(one.step, one.loss) for one in history.evaluations]
    curves = [Series("training, smoothed", charts.thinned(training, POINTS))]
    if held_out:
        dots = len(held_out) <= 60
        curves.append(Series("held out", charts.thinned(held_out, POINTS), dots=dots))
    yield "<h2>Loss</h2>\n"
    yield charts.legend([one.name for one in curves])
    yield _chart(curves, "loss by step", "loss (nats per token)", "fitted")
    yield '<div class="side">\n'
    for heading, name, label, unit in (
        ("Learning rate", "lr", "learning rate", 1.0),
        ("Norm of the gradients", "grad_norm", "norm, before clipping", 1.0),
        ("Speed", "tokens_per_s", "tokens per second", 1.0),
        ("Memory", "memory", "peak memory (MB)", 1e6),
    ):
        points = _points(steps, history.column(name) / unit)
        if points:
            curve = Series(label, charts.thinned(points, POINTS))
            yield f"<div><h2>{heading}</h2>\n"
            yield _chart([curve], f"{heading.lower()} by step", label, "from_zero") + "</div>\n"
    yield "</div>\n"


def _chart(curves: Sequence[Series], title: str, label: str, scale: Scale) -> str:
    values = [y for one in curves for _, y in one.points]
    # Peaks far above the rest would flatten it.
    if min(values) > 0 and max(values) > WIDE * float(np.median(values)):
        scale = "log10"
    return charts.lines(
        curves, title=title, x_label="step", y_label=label, x_scale="from_zero", y_scale=scale
    )


def _points(steps: Sequence[int], values: Column) -> list[tuple[float, float]]:
    return [(step, y) for step, y in zip(steps, values.tolist()) if np.isfinite(y)]


# --- evaluations and samples --------------------------------------------------------------------


def _evaluations(report: RunReport) -> Iterator[str]:
    rows, best = report.history.evaluations, report.best
    if report.train is None:
        return
    yield "<h2>Evaluation</h2>\n"
    if not rows:
        yield "<p>None yet, or no held-out tokens.</p>\n"
        return
    held_out = report.config["tokens"]["held_out"]
    windows = report.train.eval_windows
    yield (
        f"<p>On up to {windows:,} windows of {report.model.context_length:,} tokens, evenly spaced "
        f"in {held_out:,} held-out tokens.</p>\n"
    )

    def evaluation_rows(part: Sequence[EvaluatedStep]) -> str:
        cells = [_evaluated(one, one == best) for one in part]
        head = ("step", "seconds", "loss", "perplexity", "bits per byte")
        return html_table("rrrrr", head, cells)

    chosen = _some(rows, also=best)
    yield evaluation_rows(chosen)
    if len(chosen) < len(rows):
        yield f"<details><summary>All {len(rows):,} evaluations</summary>\n"
        yield evaluation_rows(rows) + "</details>\n"


def _evaluated(one: EvaluatedStep, is_best: bool) -> Sequence[str]:
    loss = f'<span class="best">{one.loss:.4f}</span>' if is_best else f"{one.loss:.4f}"
    perplexity = shown(one.perplexity, "perplexity") or "–"
    bits = shown(one.bits_per_byte, "number") or "–"
    return f"{one.step:,}", f"{one.seconds:,.1f}", loss, perplexity, bits


def _samples(report: RunReport) -> Iterator[str]:
    samples = report.history.samples
    if not samples:
        return
    prompt = "" if report.train is None else redacted(report.train.sample_prompt)
    yield "<h2>Samples</h2>\n"
    if prompt:
        yield f"<p>What the model wrote after <code>{_text(prompt)}</code>.</p>\n"
    chosen = _some(samples)
    yield from _texts(chosen)
    if len(chosen) < len(samples):
        yield f"<details><summary>All {len(samples):,} samples</summary>\n"
        yield from _texts(samples)
        yield "</details>\n"


def _texts(samples: Sequence[Sample]) -> Iterator[str]:
    yield '<div class="side">\n'
    for step, text in samples:
        shortened = text if len(text) <= SAMPLE_WIDTH else text[: SAMPLE_WIDTH - 1] + "…"
        yield f"<div><h3>Step {step:,}</h3>\n<pre>{_text(shortened)}</pre></div>\n"
    yield "</div>\n"


def _some(items: Sequence[Item], also: Item | None = None) -> list[Item]:
    """Evenly spaced items with the first, the last and one more."""
    if len(items) <= MAX_ROWS:
        return list(items)
    chosen = set(np.linspace(0, len(items) - 1, MAX_ROWS).round().astype(int).tolist())
    return [one for n, one in enumerate(items) if n in chosen or one == also]


# --- costs --------------------------------------------------------------------------------------


def _costs(report: RunReport) -> Iterator[str]:
    if not report.costs:
        return
    yield "<h2>Costs</h2>\n"
    head, *rows = cost_rows(report.costs)
    yield html_table("lrrr", head, [[*map(escape, row)] for row in rows])
    yield (
        "<p>lm.account: by formula, at 40% utilization of the machine’s matmul rate. Its tokens "
        "are the compute-optimal number, and its memory is that of training alone. "
    )
    if any(cost.expected is not None for cost in report.costs):
        yield "Expected at the start: from a micro-batch on the machine. "
    yield (
        "Measured: the median and the sum of the steps, without evaluations and checkpoints. On a "
        "CPU, measured memory includes Python and torch.</p>\n"
    )


# --- tokenizer, config, commands ----------------------------------------------------------------


def _tokenizer(report: RunReport) -> Iterator[str]:
    found = report.tokenizer
    yield "<h2>Tokenizer</h2>\n"
    if found is None:
        yield "<p>The run has none.</p>\n"
        return
    rows = [
        ("vocabulary", f"{found.vocab_size:,} ids, {found.n_merges:,} merges"),
        ("pattern", ", ".join(found.pattern)),
        ("special tokens", ", ".join(f"{t} = {id}" for t, id in found.special_tokens.items())),
        ("mean length", f"{found.mean_length:.2f} bytes"),
        ("fingerprint", found.fingerprint),
    ]
    if report.bytes_per_token is not None:
        rows.insert(4, ("on its tokens", f"{report.bytes_per_token:.3f} bytes per token"))
    if found.unreachable:
        rows.append(("unreachable", f"{len(found.unreachable):,} tokens"))
    yield html_table("ll", (), [tuple(map(_text, row)) for row in rows])
    if found.lengths:
        shares = charts.bars(
            [str(length) for length in _lengths(found.lengths)],
            [("tokens", list(_lengths(found.lengths).values()))],
            title="tokens by length",
            x_label="length in bytes",
            y_label="tokens",
        )
        longest = "<br>".join(_token(token) for _, token in longest_words(found))
        yield f'<div class="side"><div><h3>Lengths</h3>\n{shares}</div>\n'
        yield f"<div><h3>Longest tokens with letters</h3>\n<p>{longest}</p></div></div>\n"


def _token(token: bytes) -> str:
    return f"<code><span>{escape(visible(token[:TOKEN_WIDTH]))}</span></code>"


def _lengths(lengths: dict[int, int]) -> dict[str, int]:
    """Number of tokens by length; the last includes all longer ones."""
    most = 16
    found = {str(n): lengths.get(n, 0) for n in range(1, min(max(lengths), most - 1) + 1)}
    if max(lengths) >= most:
        found[f"{most}+"] = sum(n for length, n in lengths.items() if length >= most)
    return found


# In two columns; training has about as many fields as all the others.
TABLES = (
    (("model", "Model"), ("tokens", "Tokens"), ("plan", "Computed with"), ("imported", "Imported")),
    (("train", "Training"),),
)


def _config(report: RunReport) -> Iterator[str]:
    yield '<h2>Configuration</h2>\n<div class="side">\n'
    for number, column in enumerate(TABLES):
        yield "<div>\n"
        for name, heading in column:
            fields = report.config.get(name)
            if isinstance(fields, dict):
                yield _fields(heading, fields)
        if number == 0:
            fields = report.config
            rest = {
                key: value
                for key, value in fields.items()
                if key != "kind" and not isinstance(value, (dict, list))
            }
            yield _fields("Versions and origin", rest)
        yield "</div>\n"
    yield "</div>\n"


def _fields(heading: str, fields: dict[str, Any]) -> str:
    rows = [(_text(key), _text(_value(value))) for key, value in fields.items()]
    return f"<h3>{heading}</h3>\n{html_table('ll', (), rows)}"


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _commands(report: RunReport) -> Iterator[str]:
    yield "<h2>Commands</h2>\n<p>From the config and the manifest of the tokens.</p>\n"
    for remark, line in report.commands:
        yield f"<pre><i># {_text(remark)}</i>\n{_text(line)}</pre>\n"


def _text(text: str) -> str:
    return escape(readable(text))
