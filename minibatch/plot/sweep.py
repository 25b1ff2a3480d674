"""Pictures of a sweep: what each system carries within the targets, and how latency grows with load. Notebook 09.

Rows are those of `simulate.rows`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minibatch.plot.colours import EMPTY, FAILED_RED, INK, PALETTE, QUIET, RULE
from minibatch.plot.page import own_style

MARKERS = "os^vDP<>Xph*d"
PANELS = {  # column -> label of its axis
    "ttft_p95": "TTFT p95, s",
    "itl_p99": "ITL p99, s",
    "tokens_per_second": "output tokens/s",
}
FAR = 40  # times its target: a latency beyond it is off the picture
BAR, HEAD = 0.3, 1.3  # inches


class Line(NamedTuple):
    """One system: the name to print, the highest load within the targets (0: none), the rows of all loads tried."""

    name: str
    rate: float
    rows: Sequence[dict]


def sweep_curves(lines: Sequence[Line], slo: str, title: str = "", width: float = 12.0) -> Figure:
    """Left, a bar a system: its limit in requests/s. Right, TTFT p95, ITL p99 and tokens/s against load.

    `slo` as in ttft_p95=2,itl_p99=0.2 draws a dashed line where a panel shows what it bounds. A ring marks the limit.
    """
    if not lines:
        raise ValueError("lines is empty: a picture needs at least one system")
    targets = dict(part.split("=") for part in slo.split(","))
    with own_style():
        height = max(4.2, BAR * len(lines) + HEAD)
        figure = Figure(figsize=(width, height), facecolor=EMPTY, layout="constrained")
        bars, *curves = figure.subplots(1, 4, width_ratios=[1.25, 1, 1, 1])
        limit_bars(bars, lines)
        for axes, (column, label) in zip(curves, PANELS.items()):
            _curves(axes, lines, column, label, float(targets.get(column, 0)))
        if title:
            figure.suptitle(title, fontsize=10)
    return figure


def limit_bars(axes: Axes, lines: Sequence[Line]) -> None:
    """The limits, in the given order from top to bottom, each with the mark of its curve."""
    most = max(line.rate for line in lines) or 1.0
    for place, line in enumerate(lines):
        colour, marker, _ = _style(place)
        axes.barh(place, line.rate, 0.72, color=colour)
        axes.plot([-0.045 * most], [place], marker, ms=5, color=colour, mec=INK, mew=0.5)
        text = f"{line.rate:.3g}/s" if line.rate else "no load"
        axes.text(line.rate + 0.02 * most, place, text, va="center", size=8.5, color=INK)
    axes.set_yticks(range(len(lines)), [line.name for line in lines])
    axes.set(xlim=(-0.09 * most, 1.25 * most), ylim=(len(lines) - 0.4, -0.6))
    axes.set_xlabel("highest load within the targets, requests/s")
    axes.tick_params(axis="y", length=0, pad=2)
    axes.spines[["top", "right", "left"]].set_visible(False)


def sweep_alt(lines: Sequence[Line], slo: str) -> str:
    """The picture in words."""
    said = [f"{line.name}: {f'{line.rate:.3g} requests/s' if line.rate else 'no load'}" for line in lines]
    return f"The highest load within {slo} of each system: {'; '.join(said)}. Latency and tokens/s against load."


def _style(place: int) -> tuple[str, str, str]:
    return PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)], "-" if place < len(PALETTE) else "--"


def _curves(axes: Axes, lines: Sequence[Line], column: str, label: str, target: float) -> None:
    for place, line in enumerate(lines):
        colour, marker, dashes = _style(place)
        points = [(row["rate"], row[column]) for row in line.rows if row[column]]
        axes.plot(*zip(*points), marker + dashes, color=colour, ms=3.5, lw=1.1) if points else None
        ring = [point for point in points if point[0] == line.rate]
        axes.plot(*zip(*ring), "o", ms=9, mfc="none", mec=INK, mew=1) if ring else None
    if target:
        axes.axhline(target, color=FAILED_RED, lw=1, ls="--")
        label += " (dashed: the target)"
    axes.set(xscale="log", xlabel="load, requests/s", ylabel=label, xlim=_loads(lines))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    if column != "tokens_per_second":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter("")
        if target:
            axes.set_ylim(top=min(axes.get_ylim()[1], FAR * target))
    axes.xaxis.set_minor_formatter("")
    axes.grid(color=RULE, lw=0.6)
    axes.tick_params(colors=QUIET, labelcolor=INK)


def _loads(lines: Sequence[Line]) -> tuple[float, float]:
    """Around the limits; a system without one was tried at loads that would make the others a dot."""
    limits = [line.rate for line in lines if line.rate]
    rates = [row["rate"] for line in lines if line.rate or not limits for row in line.rows]
    return min([*rates, *limits]) / 1.3, max(rates) * 1.3
