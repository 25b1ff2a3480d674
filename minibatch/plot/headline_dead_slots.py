"""The picture of headline `dead_slots`: the factor against batch size, a curve a trace."""

from matplotlib.figure import Figure

from minibatch.plot.headline_style import CLAIMED, STYLES, axes_with_title, band, log_ticks


def draw(headline) -> Figure:
    """Curves of the closed form; points, with two standard errors, of answers that were served."""
    figure, axes = axes_with_title(headline.question)
    traces = list(dict.fromkeys(row["trace"] for row in headline.rows))
    band(axes, 10, 20, "article 1: 10 to 20 times")
    for trace, style in zip(traces, STYLES):
        rows = [row for row in headline.rows if row["trace"] == trace]
        axes.plot([row["batch"] for row in rows], [row["factor"] for row in rows], label=trace, **style)
        checked = [row for row in rows if "served" in row]
        axes.errorbar(
            [row["batch"] for row in checked],
            [row["served"] for row in checked],
            [row["error"] for row in checked],
            fmt="none",
            ecolor=style["color"],
            elinewidth=1,
            capsize=3,
        )
    log_ticks(axes.xaxis, [row["batch"] for row in rows])
    log_ticks(axes.yaxis, (1, 2, 4, 8, 16))
    axes.set(xlabel="slots (batch size)", ylabel="steps run / steps needed", xlim=(0.93, 70), ylim=(0.93, 24))
    axes.legend(fontsize=8.5, frameon=False, loc="upper left", bbox_to_anchor=(0, 0.73))
    figure.supxlabel(
        "curves: closed form over the whole trace; bars: served by a static batcher, 2 standard errors", **CLAIMED
    )
    return figure


def alt(headline) -> str:
    """The picture in words."""
    said = ", ".join(f"{finding.what}: {finding.ours:.1f}" for finding in headline.findings)
    return f"Steps run over steps needed against the number of slots, both logarithmic, a curve a trace. {said}."
