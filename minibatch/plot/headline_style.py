"""What pictures of headlines with one pair of axes share: a page, its question, a band for a published range."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from minibatch.plot.colours import EMPTY, INK, PALETTE, QUIET, RULE
from minibatch.plot.page import own_style

STYLES = tuple(
    {"color": PALETTE[place], "marker": marker, "ls": line, "lw": 1.8, "ms": 5}
    for place, marker, line in ((1, "o", "-"), (0, "s", "--"), (3, "^", "-."), (5, "v", ":"))
)
CLAIMED = {"fontsize": 8, "color": QUIET}


def axes_with_title(title: str, width: float = 8.0, height: float = 4.2) -> tuple[Figure, Axes]:
    """One empty pair of axes under a title, with a light grid."""
    with own_style():
        figure = Figure(figsize=(width, height), facecolor=EMPTY, layout="constrained")
        question(figure, title)
        axes = figure.subplots()
    plain(axes)
    return figure, axes


def question(figure: Figure, words: str) -> None:
    """What the picture answers, on top of it."""
    figure.suptitle(words, x=0.01, ha="left", size=11, weight="bold", color=INK)


def plain(axes: Axes) -> None:
    """Two spines, a light grid behind."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=RULE, lw=0.6)
    axes.set_axisbelow(True)


def band(axes: Axes, low: float, high: float, words: str, vertical: bool = False) -> None:
    """A range that somebody published: hatched, with its name at its end."""
    span = axes.axvspan if vertical else axes.axhspan
    span(low, high, facecolor="none", edgecolor=RULE, hatch="///", lw=0, zorder=0)
    where = {"transform": axes.get_xaxis_transform() if vertical else axes.get_yaxis_transform()}
    middle = (low * high) ** 0.5
    place = (middle, 0.985) if vertical else (0.01, middle)
    align = {"ha": "center", "va": "top"} if vertical else {"ha": "left", "va": "center"}
    box = {"facecolor": EMPTY, "edgecolor": "none", "pad": 1.5}
    axes.text(*place, words, size=8, color=QUIET, bbox=box, **align, **where)


def log_ticks(axis: Axis, values: Sequence[float]) -> None:
    """A logarithmic axis with these numbers on it and no others."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_ticks(list(values), [f"{value:,g}" for value in values])
    axis.set_ticks([], minor=True)
