"""The picture of headline `orca_latency_bound`: rates saturated and within the bound; the gain as a product."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from minibatch.plot.colours import EMPTY, PALETTE, QUIET
from minibatch.plot.headline_page import PUBLISHED
from minibatch.plot.headline_style import log_ticks, plain, question
from minibatch.plot.headline_waterfall import waterfall
from minibatch.plot.page import own_style
from minibatch.plot.words import plural

COLOURS = {"static": PALETTE[4], "iteration": PALETTE[1]}
FACTORS = {"slots_refilled": "slots refilled", "more_slots": "more slots", "latency_bound": "latency bound"}


def draw(headline) -> Figure:
    """Left: a bar a scheduler, full up to what clients can be given, hollow up to saturation. Right: the product."""
    with own_style():
        figure = Figure(figsize=(9, 3.8), facecolor=EMPTY, layout="constrained")
        question(figure, headline.question)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        plain(left)
        _rates(left, [row for row in headline.rows if row["scheduler"] != "gain" and row["lengths"] != "all alike"])
        _product(right, headline)
    return figure


def _rates(axes: Axes, rows: list[dict]) -> None:
    for place, row in enumerate(rows):
        colour = COLOURS[row["scheduler"]]
        axes.bar(place, row["saturated"], 0.7, facecolor=EMPTY, edgecolor=colour, lw=1.4, ls="--")
        axes.bar(place, row["within"], 0.7, facecolor=colour, edgecolor=colour, lw=1.4)
        top = max(row["within"], row["saturated"])
        axes.text(place, top + 0.15, f"{row['within']:.2f}", ha="center", va="bottom", size=8.5)
    axes.set_xticks(range(len(rows)), [f"{row['scheduler']}\n{row['slots']}" for row in rows], fontsize=8)
    axes.set(xlabel="scheduler, slots", ylabel="requests/s", ylim=(0, 1.12 * max(row["saturated"] for row in rows)))
    axes.grid(axis="x", visible=False)
    full = Patch(facecolor=QUIET, label="median within twice the time alone (number)")
    hollow = Patch(facecolor=EMPTY, edgecolor=QUIET, ls="--", label="saturated: nobody asks about waiting")
    axes.legend(handles=[full, hollow], fontsize=8, frameon=False, loc="upper left")


def _product(axes: Axes, headline) -> None:
    gain = next(row for row in headline.rows if row["scheduler"] == "gain")
    published = headline.findings[0].published
    plain(axes)
    waterfall(axes, 0, gain, FACTORS)
    axes.plot([published], [len(FACTORS)], **PUBLISHED)
    axes.text(published, len(FACTORS) - 0.35, f"Orca: {published:g}", ha="center", va="bottom", size=8.5)
    log_ticks(axes.xaxis, (1, 2, 5, 10, 20, 50))
    axes.set(xlim=(0.9, 60), ylim=(len(FACTORS) + 0.6, -0.6), xlabel="times the best static batch, at the bound")
    axes.set_yticks(range(len(FACTORS) + 1), [*FACTORS.values(), "total"])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def alt(headline) -> str:
    """The picture in words."""
    rows = [row for row in headline.rows if row["scheduler"] != "gain" and row["lengths"] != "all alike"]
    said = [
        f"{row['scheduler']} with {plural(row['slots'], 'slot')} {row['within']:.2f} at the bound, "
        f"{row['saturated']:.2f} saturated"
        for row in rows
    ]
    return f"Requests per second: {'; '.join(said)}. {headline.sentence}"
