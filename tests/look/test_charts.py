"""The axes and curves of the charts in pages."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bytemill.look import charts
from bytemill.look.charts import Scale, Series, lines, thinned

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
LABELS = {"title": "t", "x_label": "x", "y_label": "y"}
LEFT, RIGHT = charts.LEFT, charts.WIDTH - charts.RIGHT
TOP, BOTTOM = charts.TOP, charts.HEIGHT - charts.BOTTOM


def places(drawing: str) -> list[tuple[float, float]]:
    """The points of the first curve, in the picture."""
    curve = ElementTree.fromstring(drawing).find("./g/path[@class='curve']")
    assert curve is not None
    points = (point.split() for point in curve.get("d", "")[1:].split("L"))
    return [(float(x), float(y)) for x, y in points]


def labels(drawing: str, anchor: str) -> list[str]:
    texts = ElementTree.fromstring(drawing).findall("text")
    return [text.text or "" for text in texts if text.get("text-anchor") == anchor]


def test_a_linear_axis_begins_at_zero_and_is_to_scale() -> None:
    drawing = lines([Series("a", [(100, 2.0), (400, 4.0)])], **LABELS, x_scale="from_zero")
    (x1, y1), (x2, y2) = places(drawing)
    assert x2 == RIGHT
    assert x1 == pytest.approx(LEFT + (RIGHT - LEFT) / 4, abs=0.1)
    assert y2 == TOP
    assert y1 == pytest.approx((TOP + BOTTOM) / 2, abs=0.1)
    assert labels(drawing, "middle")[1:4] == ["0", "100", "200"]


def test_a_fitted_axis_does_not_begin_at_zero() -> None:
    curve = Series("a", [(0, 5.2), (9, 5.9)])
    drawing = lines([curve], **LABELS, x_scale="from_zero", y_scale="fitted")
    assert labels(drawing, "end")[0] == "5.2"
    assert places(drawing)[0][1] == BOTTOM
    flat = lines([Series("a", [(0, 5.0), (9, 5.0)])], **LABELS, y_scale="fitted", x_scale="fitted")
    assert len({y for _, y in places(flat)}) == 1


def test_a_logarithmic_axis_has_powers_of_ten() -> None:
    curve = Series("a", [(1, 0.5), (2, 5.0), (3, 500.0)])
    drawing = lines([curve], **LABELS, x_scale="from_zero", y_scale="log10")
    assert labels(drawing, "end")[:5] == ["0.1", "1", "10", "100", "1,000"]
    (_, y1), (_, y2), (_, y3) = places(drawing)
    assert y2 - y3 == pytest.approx(2 * (y1 - y2), abs=0.2)


@given(
    st.lists(st.tuples(st.floats(1e-300, 1e300), NUMBERS), min_size=1, max_size=20),
    st.sampled_from(["log2", "from_zero", "fitted", "log10"]),
    st.sampled_from(["from_zero", "fitted", "log10"]),
)
def test_every_number_is_drawn_within_the_frame(
    points: list[tuple[float, float]], x_scale: Scale, y_scale: Scale
) -> None:
    drawing = lines([Series("a", points)], **LABELS, x_scale=x_scale, y_scale=y_scale)
    for x, y in places(drawing):
        assert LEFT - 0.1 <= x <= RIGHT + 0.1
        assert TOP - 0.1 <= y <= BOTTOM + 0.1
    assert len(labels(drawing, "end")) <= 14


@given(st.lists(NUMBERS, min_size=1, max_size=500), st.integers(4, 60))
@example([0.0] * 6 + [1.0, 0.0], 5)  # what is odd must not lose the last points
def test_thinned_curves_keep_their_ends_and_extremes(values: list[float], most: int) -> None:
    points = list(enumerate(values))
    found = thinned(points, most)
    assert found == sorted(found)
    assert set(found) <= set(points)
    assert len(found) <= most + 4
    assert (found[0], found[-1]) == (points[0], points[-1])
    assert max(y for _, y in found) == max(values)
    assert min(y for _, y in found) == min(values)


def test_dots_have_their_values() -> None:
    curve = Series("<held out>", [(10, 3.25), (20, math.e)], dots=True)
    drawing = ElementTree.fromstring(lines([curve], **LABELS, x_scale="from_zero"))
    dots = drawing.findall("./g/circle/title")
    assert [dot.text for dot in dots] == ["<held out>: 3.250 at 10", "<held out>: 2.718 at 20"]
