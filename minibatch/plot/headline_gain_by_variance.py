"""The picture of headline `gain_by_variance`: gain in steps and in time against the spread of the answers."""

from matplotlib.figure import Figure

from minibatch.plot.colours import EMPTY, PALETTE, QUIET
from minibatch.plot.headline_style import axes_with_title, band, log_ticks

STEPS, TIME = PALETTE[0], PALETTE[1]


def draw(headline) -> Figure:
    """A pair of points a workload, joined: gain in steps, hollow; gain in time, full."""
    figure, axes = axes_with_title(headline.question)
    rows = headline.rows
    places = range(len(rows))
    band(axes, 10, 20, "article 1: 10 to 20 times")
    steps, time = [row["gain_in_steps"] for row in rows], [row["gain_in_time"] for row in rows]
    axes.vlines(places, steps, time, QUIET, lw=1)
    axes.plot(places, steps, "s", color=STEPS, mfc=EMPTY, mew=1.8, ms=8, label="steps: dead slots alone (closed form)")
    axes.plot(places, time, "o", color=TIME, ms=8, label="time: dead slots, padding, and the prompts both compute")
    for place, row in zip(places, rows):
        for key, other in (("gain_in_steps", "gain_in_time"), ("gain_in_time", "gain_in_steps")):
            down = row[key] < row[other]
            axes.annotate(
                f"{row[key]:.1f}",
                (place, row[key]),
                (0, -9 if down else 9),
                textcoords="offset points",
                ha="center",
                va="top" if down else "bottom",
                size=8,
            )
    axes.set_xticks(places, [_label(row) for row in rows], fontsize=7.5)
    log_ticks(axes.yaxis, (1, 2, 4, 8, 16))
    axes.set(ylabel="iteration-level / static, saturated", ylim=(0.72, 24), xlim=(-0.5, len(rows) - 0.5))
    axes.legend(fontsize=8.5, frameon=False, loc="upper left", bbox_to_anchor=(0, 0.73))
    axes.set_xlabel(
        "answers and their coefficient of variation (32 slots, Llama-3-8B on an A100 of 80 GB)", fontsize=8.5
    )
    return figure


def _label(row: dict) -> str:
    words = row["answers"].replace(", ", "\n") if "," in row["answers"] else row["answers"].replace(" ", "\n")
    return f"{words}\n{row['variation']:.2f}"


def alt(headline) -> str:
    """The picture in words."""
    said = [
        f"{row['answers']} (coefficient of variation {row['variation']:.2f}): {row['gain_in_steps']:.1f} in steps, "
        f"{row['gain_in_time']:.1f} in time"
        for row in headline.rows
    ]
    return "Gain of iteration-level over static batching, saturated. " + "; ".join(said) + "."
