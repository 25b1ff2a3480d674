"""Pictures of the cost model beside measured steps: `simulate.calibration.compare` makes the rows. Notebook 09."""

from collections.abc import Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from minibatch.plot.colours import EMPTY, INK, PALETTE, QUIET, RULE
from minibatch.plot.page import own_style

KINDS = {"decode": ("o", PALETTE[1]), "prefill": ("^", PALETTE[0]), "mixed": ("s", PALETTE[3])}
TITLE = "Does the cost model know how long a step takes?"
BAND = 0.25  # either side of the identity, shaded
NAMES = {
    "roofline": "the longer of reading and computing",
    "by kernel": "the longer of them in products, then in attention",
    "in turn": "reading, then computing",
}


def calibration(rows: Sequence[dict], where_and_when: str, ways: Sequence[str] = ("roofline", "in turn")) -> Figure:
    """Predicted against measured milliseconds, both logarithmic: a row of panels a way, a column a dtype.

    Hollow marks are steps that the fit saw, full ones those it did not.
    """
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    with own_style():
        figure = Figure(figsize=(8.0, 0.9 + 3.3 * len(ways)), facecolor=EMPTY, layout="constrained")
        panels = figure.subplots(len(ways), len(dtypes), squeeze=False, sharex=True, sharey=True)
        times = [row[field] for row in rows for field in ("measured_ms", "predicted_ms")]
        limits = min(times) / 1.3, max(times) * 1.3
        for way, line in zip(ways, panels):
            for dtype, axes in zip(dtypes, line):
                _panel(axes, [row for row in rows if (row["way"], row["dtype"]) == (way, dtype)], limits)
                axes.set_title(f"{dtype}: {NAMES.get(way, way)}", fontsize=9.5)
            line[0].set_ylabel("predicted ms a step")
        for axes in panels[-1]:
            axes.set_xlabel("measured ms a step")
        legend = figure.legend(
            handles=_legend(), loc="outside upper center", ncols=6, fontsize=8, frameon=False, title=TITLE
        )
        legend.get_title().set(fontsize=11, fontweight="bold")
        figure.supxlabel(where_and_when, fontsize=7.5, color=QUIET)
    return figure


def _panel(axes: Axes, rows: Sequence[dict], limits: tuple[float, float]) -> None:
    low, high = ([edge * (1 + side) for edge in limits] for side in (-BAND, BAND))
    axes.fill_between(limits, low, high, color=RULE, lw=0, zorder=1)
    axes.plot(limits, limits, color=INK, lw=1, zorder=2)
    for kind, (marker, colour) in KINDS.items():
        for fitted in (True, False):
            chosen = [row for row in rows if row["kind"] == kind and row["fitted"] == fitted]
            x, y = [row["measured_ms"] for row in chosen], [row["predicted_ms"] for row in chosen]
            face = EMPTY if fitted else colour
            axes.plot(x, y, marker, mfc=face, mec=colour, ms=4.5, mew=1, zorder=3)
    unseen = [abs(row["error"]) for row in rows if not row["fitted"]]
    words = f"{len(unseen)} steps not seen by the fit: median\nerror {median(unseen):.0%}, worst {max(unseen):.0%}"
    axes.text(0.97, 0.03, words, transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=INK)
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(color=RULE, lw=0.6)
    axes.set_axisbelow(True)


def _legend() -> list[Line2D | Patch]:
    kinds = [Line2D([], [], ls="", marker=m, color=colour, ms=5, label=kind) for kind, (m, colour) in KINDS.items()]
    hollow = Line2D([], [], ls="", marker="o", mfc=EMPTY, mec=QUIET, ms=5, label="hollow: fitted")
    line = Line2D([], [], color=INK, lw=1, label="as measured")
    return [*kinds, hollow, line, Patch(color=RULE, label=f"± {BAND:.0%}")]


def calibration_alt(errors: Sequence[dict], where_and_when: str) -> str:
    """The picture in words, from what `simulate.calibration.errors` found."""
    said = [
        f"{row['dtype']}, {NAMES.get(row['way'], row['way'])}, {row['kind']} ({row['n']} steps): "
        f"median error {row['median']:.0%}, worst {row['worst']:.0%}."
        for row in errors
    ]
    return f"Predicted against measured milliseconds of steps that no fit saw, on {where_and_when}. {' '.join(said)}"
