"""Which id goes on which bar, and how large: written where it fits, and at least once a request if that can be."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from minibatch.plot.bars import Bar, holdings

SMALLEST = 5.0  # points
AIR = 1.3  # a label wants this many times its own length


class Label(NamedTuple):
    """An id at (x, y) of the slot axes; `kind` is that of the bar below it."""

    text: str
    x: float
    y: float
    size: float  # points
    upright: bool
    kind: str
    over: bool = False  # wider than that bar, so it wants a ground of its own


@cache
def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width of a text in points, as matplotlib's own DejaVu Sans draws it."""
    if not text.strip():
        return 0.0
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return float(TextPath((0, 0), text, size=size, prop=font).get_extents().width)


def labels(all_bars: list[Bar], per_unit: float, row: float) -> Iterator[Label]:
    """Labels for bars that are `per_unit` points wide a unit of the axis and `row` points high."""
    size = min(9.0, 0.68 * row)
    if size < SMALLEST:
        return
    written = set()
    for bar in all_bars:
        if text_width(bar.request_id, size) * AIR <= (bar.right - bar.left) * per_unit:
            written.add(bar.request_id)
            yield _at(bar, bar.left, bar.right, size, False)
    for group in holdings(all_bars):
        if group[0].request_id not in written and (found := _squeezed(group, per_unit, row, size)):
            written.add(group[0].request_id)
            yield found


def _squeezed(group: list[Bar], per_unit: float, row: float, size: float) -> Label | None:
    """One label over a whole stay in a slot: smaller, else standing up, else none."""
    left, right, widest = group[0].left, group[-1].right, max(group, key=lambda bar: bar.right - bar.left)
    room, length = (right - left) * per_unit, text_width(group[0].request_id, 1.0)
    flat = min(size, room / (length * 1.1))
    if flat >= SMALLEST:
        over = flat * length > (widest.right - widest.left) * per_unit
        return _at(widest, left, right, flat, False)._replace(over=over)
    standing = min(size, 0.9 * row / length, room)
    return _at(widest, left, right, standing, True) if standing >= SMALLEST else None


def _at(bar: Bar, left: float, right: float, size: float, upright: bool) -> Label:
    return Label(bar.request_id, (left + right) / 2, bar.slot + 0.5, size, upright, bar.kind)
