"""Charts as inline SVG: nothing but text, coloured by the style sheet of the page around them.

Pages must open without a network, so a charting library that loads scripts cannot be used, and one
that draws SVG would be a dependency of the base package for bars and curves alone. Charts in files
(`bytemill plot`) are drawn by matplotlib, an extra.

The nth series has the class `s<n>`, so that light and dark pages can give it different colours;
from the ninth on they repeat, with dashed lines.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["COLORS", "STYLE", "Series", "bars", "legend", "lines"]

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
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
{_SERIES}
svg {{ width: 100%; max-width: 44rem; height: auto; font: 12px system-ui, sans-serif; }}
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
LEFT, RIGHT, TOP, BOTTOM = 48, 14, 12, 44
DASHES = ("", "7 3", "2 3")


class Series(NamedTuple):
    """A name and its points, from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


def legend(names: Sequence[str]) -> str:
    """The legend."""
    items = (
        f'<li class="{_color(i)}"><i></i>{html.escape(name)}</li>' for i, name in enumerate(names)
    )
    return f'<ul class="legend">{"".join(items)}</ul>\n'


def lines(series: Sequence[Series], *, title: str, x_label: str, y_label: str) -> str:
    """Curves over an axis that doubles from tick to tick; all x must be above 0."""
    xs = [x for one in series for x, _ in one.points]
    low, high = math.log2(min(xs)), math.log2(max(xs))
    span = (high - low) or 1.0
    ticks = _ticks(max(y for one in series for _, y in one.points))

    def across(x: float) -> float:
        return LEFT + (math.log2(x) - low) / span * (WIDTH - LEFT - RIGHT)

    def parts() -> Iterator[str]:
        yield from _frame(ticks, x_label, y_label)
        powers = range(math.ceil(low), math.floor(high) + 1)
        # Room for about ten labels.
        for power in powers[:: max(1, math.ceil(len(powers) / 10))]:
            x = across(2**power)
            yield _text(x, HEIGHT - BOTTOM + 16, f"{2**power:,}", "middle")
            yield f'<path class="grid" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        for number, one in enumerate(series):
            points = [(across(x), _up(y, ticks)) for x, y in one.points]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            dash = DASHES[number // len(COLORS) % len(DASHES)]
            broken = f' stroke-dasharray="{dash}"' if dash else ""
            x, y = one.points[-1]
            hint = html.escape(f"{one.name}: {y:.3f} at {x:,.0f}")
            yield (
                f'<g class="{_color(number)}"><title>{hint}</title>'
                f'<path class="curve"{broken} d="M{path}"/>'
                f'<circle class="end" cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="4"/></g>'
            )

    return _svg(title, parts())


def bars(
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
) -> str:
    """Bars side by side: for each group one of each series, which has a value for every group."""
    ticks = _ticks(max(value for _, values in series for value in values))
    room = (WIDTH - LEFT - RIGHT) / max(len(groups), 1)
    thick = room * 0.8 / max(len(series), 1)

    def parts() -> Iterator[str]:
        yield from _frame(ticks, x_label, y_label)
        for place, group in enumerate(groups):
            start = LEFT + place * room
            fits = max(int(room / 7), 1)
            shown = group if len(group) <= fits else group[: fits - 1] + "…"
            yield _text(start + room / 2, HEIGHT - BOTTOM + 16, shown, "middle")
            for number, (name, values) in enumerate(series):
                x, y = start + room * 0.1 + number * thick, _up(values[place], ticks)
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


def _frame(ticks: Sequence[float], x_label: str, y_label: str) -> Iterator[str]:
    """Axes, labels, and a line at each tick of the vertical axis."""
    for tick in ticks:
        y = _up(tick, ticks)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield _text(LEFT - 6, y + 4, _number(tick), "end")
    yield f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<g transform="rotate(-90 12 {middle:.1f})">{_text(12, middle, y_label, "middle")}</g>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _up(value: float, ticks: Sequence[float]) -> float:
    return HEIGHT - BOTTOM - value / ticks[-1] * (HEIGHT - BOTTOM - TOP)


def _ticks(most: float) -> list[float]:
    """From 0 to `most` or a little above, in steps of 1, 2 or 5 times a power of ten.

    >>> _ticks(4.3)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    >>> _ticks(0.13)
    [0.0, 0.05, 0.1, 0.15]
    """
    if most <= 0:
        return [0.0, 1.0]
    power = math.floor(math.log10(most / 5))
    step = next(n for n in (1, 2, 5, 10) if most / (n * 10.0**power) <= 5.0001)
    count = math.ceil(most / (step * 10.0**power) - 1e-9)
    # Integer multiples, so that a tick is 0.15 and not 0.15000000000000002.
    return [i * step * 10**power if power >= 0 else i * step / 10**-power for i in range(count + 1)]


def _number(value: float) -> str:
    """
    >>> _number(12000.0), _number(0.5), _number(3)
    ('12,000', '0.5', '3')
    """
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"
