"""Charts as inline SVG: nothing but text, colored by the style sheet of the page around them.

Pages must open without a network, so a charting library that loads scripts cannot be used, and one
that draws SVG would be a dependency of the base package for bars and curves alone. Charts in files
(`bytemill plot`) are drawn by matplotlib, an extra.

The nth series has the class `s<n>`, so that light and dark pages can give it different colors;
from the ninth on they repeat, with dashed lines.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

__all__ = ["COLORS", "STYLE", "Scale", "Series", "bars", "legend", "lines", "thinned"]

# Distinct to most eyes, also without red or green; the second of each is for dark pages.
COLORS = (
    ("#0072b2", "#58b4ec"),
    ("#d55e00", "#ff9a4d"),
    ("#00805e", "#3fd6a5"),
    ("#b8528c", "#f0a3cc"),
    ("#a87400", "#f0c14d"),
    ("#6b4fbb", "#b8a1f5"),
    ("#3f7d20", "#a3d977"),
    ("#5f6b76", "#b5bfc9"),
)

_LIGHT = " ".join(f"--s{i}: {light};" for i, (light, _) in enumerate(COLORS))
_DARK = " ".join(f"--s{i}: {dark};" for i, (_, dark) in enumerate(COLORS))
_SERIES = "\n".join(f".s{i} {{ --color: var(--s{i}); }}" for i in range(len(COLORS)))
STYLE = f"""
:root {{ {_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
{_SERIES}
svg {{ display: block; width: 100%; max-width: 44rem; height: auto;
  font: 12px system-ui, sans-serif; }}
svg text {{ fill: var(--dim); }}
svg .grid {{ stroke: var(--line); }}
svg .axis {{ stroke: var(--dim); }}
svg .bar {{ fill: var(--color); }}
svg .curve {{ fill: none; stroke: var(--color); stroke-width: 2; }}
svg .end {{ fill: var(--color); }}
.legend {{ display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; list-style: none; padding: 0;
  margin: 0.3rem 0; color: var(--dim); font-size: 0.9rem; overflow-wrap: anywhere; }}
.legend i {{ display: inline-block; width: 0.8rem; height: 0.8rem; border-radius: 0.15rem;
  margin-right: 0.4rem; background: var(--color); vertical-align: -0.05rem; }}
"""

WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 12, 44
DASHES = ("", "7 3", "2 3")
# Larger values are drawn at the edge; sums of two are finite.
FARTHEST = 1e150

# An axis of doublings, of whole numbers from 0, of the values alone, or of powers of ten.
Scale = Literal["log2", "from_zero", "fitted", "log10"]


class Series(NamedTuple):
    """A name and its points, from left to right; `dots` marks each of them."""

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False


class Axis(NamedTuple):
    """Where values are between the ends of an axis, and which of them are labeled."""

    low: float
    high: float
    ticks: list[float]
    is_log: bool = False

    def share(self, value: float) -> float:
        """0 at the lower end, 1 at the upper end."""
        if self.is_log:
            value = math.log(value) if value > 0 else self.low
        return min(max((value - self.low) / ((self.high - self.low) or 1.0), 0.0), 1.0)


def legend(names: Sequence[str]) -> str:
    """The legend."""
    items = (
        f'<li class="{_color(i)}"><i></i>{html.escape(name)}</li>' for i, name in enumerate(names)
    )
    return f'<ul class="legend">{"".join(items)}</ul>\n'


def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_scale: Scale = "log2",
    y_scale: Scale = "from_zero",
) -> str:
    """Curves.

    Args:
        series: at least one point in all.
        title: the title for screen readers.
        x_label: label of the x axis.
        y_label: label of the y axis.
        x_scale: logarithmic ones are for x above 0.
        y_scale: the same for y.
    """
    across = _axis(x_scale, [x for one in series for x, _ in one.points], whole=False)
    up = _axis(y_scale, [y for one in series for _, y in one.points], whole=True)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        return LEFT + across.share(x) * (WIDTH - LEFT - RIGHT), _up(y, up)

    def parts() -> Iterator[str]:
        yield from _frame(up, x_label, y_label)
        for tick in across.ticks:
            x = LEFT + across.share(tick) * (WIDTH - LEFT - RIGHT)
            # The last label would leave the picture if it were centered.
            anchor = "middle" if x < WIDTH - 3 * RIGHT else "end"
            yield _text(x if anchor == "middle" else WIDTH - 2, HEIGHT - BOTTOM + 16,
                        _number(tick), anchor)  # fmt: skip
            yield f'<path class="grid" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        for number, one in enumerate(series):
            if one.points:
                yield _curve(number, one, [place(point) for point in one.points])

    return _svg(title, parts())


def _curve(number: int, series: Series, places: Sequence[tuple[float, float]]) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dash = DASHES[number // len(COLORS) % len(DASHES)]
    broken = f' stroke-dasharray="{dash}"' if dash else ""
    marked = range(len(places)) if series.dots else [len(places) - 1]
    dots = "".join(
        f'<circle class="end" cx="{places[i][0]:.1f}" cy="{places[i][1]:.1f}" r="4">'
        f"<title>{_hint(series, i)}</title></circle>"
        for i in marked
    )
    return (
        f'<g class="{_color(number)}"><title>{_hint(series, -1)}</title>'
        f'<path class="curve"{broken} d="M{path}"/>{dots}</g>'
    )


def _hint(series: Series, which: int) -> str:
    x, y = series.points[which]
    value = f"{y:.3f}" if 0.01 <= abs(y) < 1e6 else _number(y)
    return html.escape(f"{series.name}: {value} at {x:,.0f}")


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """About `most` of the points: the lowest and highest of equal parts, and both ends.

    >>> thinned([(x, 9.0 if x == 7 else 1.0) for x in range(20)], 6)
    [(0, 1.0), (6, 1.0), (7, 9.0), (13, 1.0), (19, 1.0)]
    """
    if len(points) <= most:
        return list(points)
    chosen = {0, len(points) - 1}
    n_parts = max(most // 2, 1)
    for number in range(n_parts):
        part = range(number * len(points) // n_parts, (number + 1) * len(points) // n_parts)
        if part:
            chosen.add(min(part, key=lambda i: points[i][1]))
            chosen.add(max(part, key=lambda i: points[i][1]))
    return [points[i] for i in sorted(chosen)]


def bars(
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
) -> str:
    """Bars side by side: for each group one of each series, which has a value for every group."""
    up = _axis("from_zero", [value for _, values in series for value in values], whole=True)
    room = (WIDTH - LEFT - RIGHT) / max(len(groups), 1)
    thick = room * 0.8 / max(len(series), 1)

    def parts() -> Iterator[str]:
        yield from _frame(up, x_label, y_label)
        for place, group in enumerate(groups):
            start = LEFT + place * room
            fits = max(int(room / 7), 1)
            shown = group if len(group) <= fits else group[: fits - 1] + "…"
            yield _text(start + room / 2, HEIGHT - BOTTOM + 16, shown, "middle")
            for number, (name, values) in enumerate(series):
                x, y = start + room * 0.1 + number * thick, _up(values[place], up)
                hint = html.escape(f"{name}, {group}: {_number(values[place])}")
                yield (
                    f'<rect class="bar {_color(number)}" x="{x:.1f}" y="{y:.1f}" '
                    f'width="{thick * 0.94:.1f}" height="{HEIGHT - BOTTOM - y:.1f}">'
                    f"<title>{hint}</title></rect>"
                )

    return _svg(title, parts())


def _color(number: int) -> str:
    return f"s{number % len(COLORS)}"


def _svg(title: str, parts: Iterator[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _frame(up: Axis, x_label: str, y_label: str) -> Iterator[str]:
    """Axes, labels, and a line at each tick of the vertical axis."""
    for tick in up.ticks:
        y = _up(tick, up)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield _text(LEFT - 6, y + 4, _short(tick), "end")
    yield f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<g transform="rotate(-90 12 {middle:.1f})">{_text(12, middle, y_label, "middle")}</g>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _up(value: float, up: Axis) -> float:
    return HEIGHT - BOTTOM - up.share(value) * (HEIGHT - BOTTOM - TOP)


# --- axes -------------------------------------------------------------------------------------


def _axis(scale: Scale, values: Sequence[float], *, whole: bool) -> Axis:
    """An axis for these values; with `whole`, a linear one ends at ticks."""
    shown = [min(max(value, -FARTHEST), FARTHEST) for value in values]
    if scale in ("log2", "log10"):
        return _log_axis(2 if scale == "log2" else 10, shown, whole)
    low, high = min(shown), max(shown)
    if scale == "from_zero":
        low, high = 0.0, high if high > 0 else 1.0
    ticks = _ticks(low, high)
    if whole:
        return Axis(ticks[0], ticks[-1], ticks)
    return Axis(low, high, [tick for tick in ticks if low <= tick <= high])


def _log_axis(base: int, values: Sequence[float], whole: bool) -> Axis:
    above = [value for value in values if value > 0] or [1.0]
    low, high = math.log(min(above), base), math.log(max(above), base)
    # log(1000, 10) is a little below 3.
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    if whole:
        first, last = math.floor(low + 1e-9), max(math.ceil(high - 1e-9), math.floor(low) + 1)
        low, high = first, last
    powers = range(first, last + 1)
    # Room for about ten labels.
    shown = powers[:: max(1, math.ceil(len(powers) / 10))]
    unit = math.log(base)
    return Axis(low * unit, high * unit, [float(base) ** power for power in shown], is_log=True)


def _ticks(low: float, high: float) -> list[float]:
    """From `low` or a little below to `high` or a little above, in steps of 1, 2 or 5 times a
    power of ten.

    >>> _ticks(0, 4.3), _ticks(2.2, 4.3)
    ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 2.5, 3.0, 3.5, 4.0, 4.5])
    >>> _ticks(0, 0.13)
    [0.0, 0.05, 0.1, 0.15]
    """
    # Values that differ by less than what the labels show are drawn as equal.
    span = max(high - low, 1e-6 * max(abs(low), abs(high)), 1e-200)
    power = math.floor(math.log10(span / 5))
    step = next(n for n in (1, 2, 5, 10) if span / (n * 10.0**power) <= 5.0001)
    if step == 10:
        step, power = 1, power + 1
    unit = step * 10.0**power
    # Integer multiples, so that a tick is 0.15 and not 0.15000000000000002.
    counts = range(math.floor(low / unit + 1e-9), math.ceil(high / unit - 1e-9) + 1)
    if len(counts) < 2:
        counts = range(counts.start, counts.start + 2)
    return [float(i * step * 10**power if power >= 0 else i * step / 10**-power) for i in counts]


def _number(value: float) -> str:
    """
    >>> _number(12000.0), _number(0.5), _number(3), _number(0.00025)
    ('12,000', '0.5', '3', '2.5e-4')
    """
    if value and (abs(value) < 1e-3 or abs(value) >= 1e15):
        mantissa, _, power = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.6g}"


def _short(value: float) -> str:
    """A number in at most six characters or so, for the narrow room beside the vertical axis.

    >>> _short(50_000), _short(250_000), _short(1_500_000), _short(2e9), _short(0.0001)
    ('50,000', '250k', '1.5M', '2G', '1e-4')
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 1e5 <= abs(value) < 1e12 and abs(value) >= unit:
            return f"{value / unit:.6g}{letter}"
    return _number(value)
