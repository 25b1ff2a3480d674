"""The picture of headline 11: each system on Azure's two traces, at the recorded load and at its limit. Notebook 09."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from minibatch.plot.colours import EMPTY, INK, PALETTE, QUIET, RULE
from minibatch.plot.page import own_style

TTFT, ITL, LIMIT = PALETTE[1], PALETTE[0], PALETTE[3]
MARKS = {"ttft_p50": "|", "ttft_p95": "o", "ttft_p99": ">"}


def draw(headline, width: float = 12.0) -> Figure:
    """A half for each trace, a line for each system: TTFT p50, p95, p99, ITL p99, and the highest load it carries."""
    traces = list(dict.fromkeys(row["trace"] for row in headline.rows))
    most = max(sum(row["trace"] == trace for row in headline.rows) for trace in traces)
    with own_style():
        figure = Figure(figsize=(width, 0.27 * most + 1.9), facecolor=EMPTY, layout="constrained")
        figure.suptitle(headline.question, fontsize=11.5, fontweight="bold", color=INK)
        halves = figure.subplots(1, 3 * len(traces), sharey=True, squeeze=False)[0]
        for place, trace in enumerate(traces):
            rows = [row for row in headline.rows if row["trace"] == trace]
            _half(halves[3 * place : 3 * place + 3], rows)
        halves[0].set_yticks(range(most), [row["label"] for row in headline.rows][:most])
        halves[0].set_ylim(most - 0.4, -0.6)
        handles = [halves[0].plot([], [], mark, color=TTFT, ms=6, mew=1.5)[0] for mark in MARKS.values()]
        words = [f"{name[5:]} of TTFT" for name in MARKS]
        targets = Line2D([], [], color=QUIET, ls="--", lw=1)
        figure.legend([*handles, targets], [*words, "target"], loc="outside lower center", ncols=4, frameon=False)
    return figure


def alt(headline) -> str:
    """The picture in words."""
    said = [
        f"{row['trace']}, {row['label']}: TTFT p95 {row['ttft_p95']:.3g} s, ITL p99 {row['itl_p99']:.3g} s, "
        f"limit {row['limit']:.3g} requests/s"
        for row in headline.rows
    ]
    return f"{headline.question} {'; '.join(said)}."


def _half(axes: list[Axes], rows: list[dict]) -> None:
    ttft, itl, limit = axes
    targets = dict(part.split("=") for part in rows[0]["targets"].split(","))
    for place, row in enumerate(rows):
        ttft.hlines(place, row["ttft_p50"], row["ttft_p99"], TTFT, lw=1)
        for name, mark in MARKS.items():
            ttft.plot(row[name], place, mark, color=TTFT, ms=6, mew=1.5)
        itl.plot(row["itl_p99"], place, "D", color=ITL, ms=5)
        limit.barh(place, row["limit"], 0.7, color=LIMIT)
        text = f" {row['limit']:.3g}" if row["limit"] else " none"
        limit.text(row["limit"], place, text, va="center", size=8.5, color=INK)
    for one, column, label in ((ttft, "ttft_p95", "TTFT, s"), (itl, "itl_p99", "ITL p99, s")):
        one.set(xscale="log", xlabel=label)
        one.axvline(float(targets[column]), color=QUIET, ls="--", lw=1)
        low, high = one.get_xlim()
        one.xaxis.set_major_locator(LogLocator(subs=(1, 3) if high < 30 * low else (1,), numticks=5))
        one.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        one.xaxis.set_minor_formatter("")
    limit.set(xlim=(0, 1.3 * max(row["limit"] for row in rows) or 1), xlabel="limit, requests/s")
    itl.set_title(f"{rows[0]['trace']}, as recorded; and the highest load within the targets", fontsize=9.5)
    for one in axes:
        one.grid(axis="y", color=RULE, lw=0.6)
        one.set_axisbelow(True)
        one.tick_params(axis="y", length=0)
        one.spines[["top", "right"]].set_visible(False)
