"""`load_curves`: what a client feels, and what is served, as the load grows; where the targets are. Notebook 09.

Rows are those of `simulate.rows`, by load. `sweep_curves` compares many systems; this is a close look at one or two.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from minibatch.plot.colours import EMPTY, FAILED_RED, INK, PALETTE, QUIET, RULE
from minibatch.plot.page import own_style

Rows = Sequence[dict]
PANELS = (  # columns of one panel, its title, its unit
    (("ttft_p95", "ttft_p50"), "TTFT, p95 and (thin) median", "seconds"),
    (("itl_p99",), "ITL, p99", "seconds"),
    (("tokens_per_second",), "throughput", "output tokens/s"),
)
STYLES = ((PALETTE[1], "o", "-"), (PALETTE[0], "s", "--"), (PALETTE[3], "^", "-."))
HEIGHT = 2.9  # inches


def load_curves(
    lines: Mapping[str, Rows], limits: Mapping[str, float | None], slo: str, title: str = "", width: float = 9.0
) -> Figure:
    """TTFT, ITL and tokens/s against requests/s, up to three named lines. A ring marks each limit (None: no ring).

    `slo` as in ttft_p95=2,itl_p99=0.2 draws a dashed line in the panel that shows what it bounds.
    """
    if not 1 <= len(lines) <= len(STYLES):
        raise ValueError(f"lines: {len(lines)} of them; this picture holds one to {len(STYLES)}")
    targets = dict(part.split("=") for part in slo.split(","))
    with own_style():
        figure = Figure(figsize=(width, HEIGHT + 0.3 * bool(title)), facecolor=EMPTY, layout="constrained")
        for axes, (columns, heading, unit) in zip(figure.subplots(1, len(PANELS)), PANELS):
            for (name, rows), style in zip(lines.items(), STYLES):
                _line(axes, name, rows, limits.get(name), columns, style)
            _finish(axes, heading, unit, float(targets.get(columns[0], 0)))
        if len(lines) > 1:
            axes.legend(frameon=False, fontsize=8, loc="lower right")
        if title:
            figure.suptitle(title, fontsize=10, color=INK)
    return figure


def load_alt(lines: Mapping[str, Rows], limits: Mapping[str, float | None], slo: str) -> str:
    """The picture in words: each line's limit, and its first and last point."""
    return f"TTFT, ITL and output tokens/s against load, targets {slo} dashed. " + " ".join(
        _said(name, rows, limits.get(name)) for name, rows in lines.items()
    )


def _said(name: str, rows: Rows, limit: float | None) -> str:
    ends = [rows[0], rows[-1]] if len(rows) > 1 else list(rows)
    points = [
        f"at {row['rate']:.3g} requests/s TTFT p95 {row['ttft_p95']:.3g} s, ITL p99 {row['itl_p99']:.3g} s, "
        f"{row['tokens_per_second']:.0f} tokens/s"
        for row in ends
        if row["ttft_p95"] is not None and row["itl_p99"] is not None
    ]
    within = f"{limit:.3g} requests/s" if limit else "no load tried"
    return f"{name}: within the targets {within}; {'; '.join(points)}."


def _line(axes: Axes, name: str, rows: Rows, limit: float | None, columns: tuple[str, ...], style: tuple) -> None:
    colour, marker, dashes = style
    for column, thin in zip(columns, (False, True)):
        points = [(row["rate"], row[column]) for row in rows if row[column]]
        if not points:
            continue
        looks = {"lw": 0.9, "ms": 2.5, "ls": ":"} if thin else {"lw": 1.5, "ms": 4.5, "ls": dashes}
        axes.plot(*zip(*points), marker=marker, color=colour, label=None if thin else name, **looks)
        ring = [point for point in points if point[0] == limit and not thin]
        if ring:
            axes.plot(*zip(*ring), "o", ms=11, mfc="none", mec=INK, mew=1.2)


def _finish(axes: Axes, heading: str, unit: str, target: float) -> None:
    if unit == "seconds":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if target:
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, target / 2), max(high, target * 2))
        axes.axhline(target, color=FAILED_RED, lw=1.2, ls=(0, (5, 3)), zorder=1)
        axes.annotate(
            f"target {target:g}",
            (0.02, target),
            (0, 2),
            ("axes fraction", "data"),
            "offset points",
            size=7.5,
            color=FAILED_RED,
        )
    elif unit != "seconds":
        axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_title(heading, fontsize=9, color=INK)
    axes.set_xlabel("load, requests/s", fontsize=8.5, color=QUIET)
    axes.set_ylabel(unit, fontsize=8.5, color=QUIET)
    axes.tick_params(labelsize=8, colors=QUIET, labelcolor=INK)
    axes.grid(color=RULE, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
