"""Pictures of a measured model: tokens/s under its roofline, and where a step's time goes. Shown in notebook 01."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from minibatch.bench import Report, Row
from minibatch.plot.colours import EMPTY, FLATLINE, INK, PALE, PALETTE, QUIET, RULE
from minibatch.plot.page import own_style

MEASURED, ROOF = PALETTE[1], PALETTE[0]
PARTS = (
    ("products with the weights", "linear_share", PALETTE[1]),
    ("attention", "attention_share", PALETTE[2]),
    ("everything else", "rest_share", PALE),
)
FINE = 64  # points of a roof, evenly on the logarithmic axis


def throughput(report: Report, width: float = 10.0) -> Figure:
    """Tokens/s against batch size, a panel for each dtype: measured, and the roof of bandwidth and arithmetic."""
    dtypes = list(dict.fromkeys(row.dtype for row in report.rows))
    with own_style():
        figure = Figure(figsize=(width, 4.0), facecolor=EMPTY, layout="constrained")
        panels = figure.subplots(1, len(dtypes), squeeze=False, sharey=True)[0]
        for axes, dtype in zip(panels, dtypes):
            _roof(axes, report, dtype)
            rows = report.of(dtype)
            axes.plot([row.batch for row in rows], [row.tokens_per_s for row in rows], "o-", color=MEASURED, lw=2)
            axes.set_title(f"{report.model}, {dtype}", fontsize=10)
            _batch_axis(axes, rows)
        points = [at for row in report.rows for at in (row.tokens_per_s, report.ceiling(row.dtype, row.batch))]
        panels[0].set_ylim(min(points) / 1.6, max(points) * 1.6)
        panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panels[0].set_ylabel("tokens/s")
        figure.legend(*_legend(), loc="outside upper center", ncols=4, fontsize=8.5, frameon=False)
        figure.supxlabel(report.where_and_when, fontsize=7.5, color=QUIET)
    return figure


def _roof(axes: Axes, report: Report, dtype: str) -> None:
    rows = report.of(dtype)
    low, high = rows[0].batch, rows[-1].batch
    batches = [low * (high / low) ** (i / FINE) for i in range(FINE + 1)]
    row = rows[0]
    memory = [batch * report.bandwidth / row.weight_bytes for batch in batches]
    arithmetic = report.arithmetic[dtype] / (row.flops / row.batch)
    axes.plot(batches, memory, "--", color=FLATLINE, lw=1.2)
    axes.plot(batches, [arithmetic] * len(batches), ":", color=INK, lw=1.2)
    axes.plot(batches, [report.ceiling(dtype, batch) for batch in batches], color=ROOF, lw=1.6)
    axes.set(xscale="log", yscale="log")
    axes.grid(color=RULE, lw=0.6)


def _batch_axis(axes: Axes, rows: list[Row]) -> None:
    batches = [row.batch for row in rows]
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("batch: sequences in one step")


def _legend() -> tuple[list, list[str]]:
    entries = {
        "measured": Line2D([], [], color=MEASURED, marker="o", lw=2),
        "roof: weights and K/V, or arithmetic": Line2D([], [], color=ROOF, lw=1.6),
        "bandwidth / weights": Line2D([], [], color=FLATLINE, ls="--"),
        "arithmetic": Line2D([], [], color=INK, ls=":"),
    }
    return list(entries.values()), list(entries)


def step_parts(report: Report, width: float = 10.0) -> Figure:
    """Milliseconds of a step against batch size, stacked: products with the weights, attention, everything else."""
    dtypes = list(dict.fromkeys(row.dtype for row in report.rows))
    with own_style():
        figure = Figure(figsize=(width, 3.5), facecolor=EMPTY, layout="constrained")
        panels = figure.subplots(1, len(dtypes), squeeze=False)[0]
        for axes, dtype in zip(panels, dtypes):
            rows = report.of(dtype)
            places, floor = range(len(rows)), [0.0] * len(rows)
            for label, field, colour in PARTS:
                part = [getattr(row, field) * row.step_ms for row in rows]
                axes.bar(places, part, bottom=floor, color=colour, width=0.7, label=label)
                floor = [below + more for below, more in zip(floor, part)]
            axes.set_ylim(0, max(floor) * 1.05)
            axes.set_xticks(places, [str(row.batch) for row in rows])
            axes.set_xlabel("batch: sequences in one step")
            axes.set_title(f"{report.model}, {dtype}", fontsize=10)
        panels[0].set_ylabel("ms a step")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8.5, frameon=False
        )
        figure.supxlabel(report.where_and_when, fontsize=7.5, color=QUIET)
    return figure


def throughput_alt(report: Report) -> str:
    """The first picture in words."""
    said = []
    for dtype in dict.fromkeys(row.dtype for row in report.rows):
        rows = report.of(dtype)
        measured = ", ".join(f"{row.tokens_per_s:.0f} at batch {row.batch}" for row in rows)
        said.append(f"{dtype}: {measured}; the roof is {_roofs(report, rows)}.")
    return f"Tokens per second against batch size, both logarithmic, on {report.where_and_when}. {' '.join(said)}"


def _roofs(report: Report, rows: list[Row]) -> str:
    ends = (rows[0], rows[-1])
    return " and ".join(f"{report.ceiling(row.dtype, row.batch):.0f} at batch {row.batch}" for row in ends)


def parts_alt(report: Report) -> str:
    """The second picture in words."""
    said = []
    for dtype in dict.fromkeys(row.dtype for row in report.rows):
        for row in (report.of(dtype)[0], report.of(dtype)[-1]):
            shares = f"{row.linear_share:.0%} products, {row.attention_share:.0%} attention, {row.rest_share:.0%} rest"
            said.append(f"{dtype}, batch {row.batch}: {row.step_ms:.1f} ms, {shares}.")
    return f"Milliseconds of a decode step, stacked, on {report.where_and_when}. {' '.join(said)}"
