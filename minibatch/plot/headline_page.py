"""What pictures of headlines with several panels share: panels under a question, published numbers as diamonds."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minibatch.plot.colours import EMPTY, INK, PALETTE, QUIET
from minibatch.plot.headline_style import STYLES, plain, question

SIZE = (8.0, 4.0)  # inches
PUBLISHED = {"marker": "D", "color": EMPTY, "markeredgecolor": INK, "ls": "", "ms": 6, "mew": 1.3, "zorder": 5}
LINES = (*STYLES, {"color": PALETTE[8], "marker": "x", "ls": "-", "lw": 1.8, "ms": 5})
DARK, PALE = PALETTE[1], PALETTE[4]  # bars of two kinds


def panels(words: str, titles: Sequence[str], widths: Sequence[float] | None = None) -> tuple[Figure, list[Axes]]:
    """An empty figure of `SIZE` with a panel for each title. To be called, and drawn on, within `own_style()`."""
    figure = Figure(figsize=SIZE, facecolor=EMPTY, layout="constrained")
    question(figure, words)
    axes = list(figure.subplots(1, len(titles), squeeze=False, width_ratios=widths)[0])
    for each, title in zip(axes, titles):
        each.set_title(title, size=9, color=INK, loc="left")
        each.tick_params(labelsize=8, color=QUIET)
        plain(each)
    return figure, axes


def of(rows: Sequence[dict], **wanted: object) -> list[dict]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def curve(axes: Axes, place: int, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """A line in the `place`-th of the styles."""
    axes.plot(x, y, label=label, **LINES[place])


def level(axes: Axes, y: float, words: str, x: float = 0.02) -> None:
    """A horizontal limit, with its name above its left end (x: a share of the width)."""
    axes.axhline(y, color=QUIET, lw=1, ls=(0, (4, 3)))
    axes.annotate(
        words, (x, y), (0, 2), xycoords=("axes fraction", "data"), textcoords="offset points", size=7.5, color=QUIET
    )


def legend(axes: Axes, **where: object) -> None:
    """Small, without a frame, on white."""
    axes.legend(fontsize=7.5, frameon=True, framealpha=0.9, edgecolor="none", **where)


def findings_alt(headline) -> str:
    """The numbers in words: ours, and the published ones where there are."""
    said = []
    for finding in headline.findings:
        known = finding.published is not None
        beside = f" (published {_span(finding.published)})" if known else ""
        said.append(f"{finding.what}: {finding.ours:.3g}{beside}")
    return "; ".join(said) + "."


def _span(published: float | tuple[float, float]) -> str:
    return "{:.3g} to {:.3g}".format(*published) if isinstance(published, tuple) else f"{published:.3g}"
