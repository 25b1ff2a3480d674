"""Two numbers called goodput, against the load. See `headlines.goodput_both_ways`."""

from matplotlib.figure import Figure

from minibatch.plot.colours import INK, PALETTE, QUIET
from minibatch.plot.headline_page import PUBLISHED, curve, findings_alt, of, panels
from minibatch.plot.page import own_style

ENOUGH = 0.9


def draw(headline) -> Figure:
    """A panel a workload: good requests a second, and above 90 % attainment the ground is shaded."""
    workloads = list(dict.fromkeys(row["workload"] for row in headline.rows))
    published = next(finding.published for finding in headline.findings if finding.published is not None)
    with own_style():
        figure, axes = panels(headline.question, workloads)
        for each, workload in zip(axes, workloads):
            _panel(each, of(headline.rows, workload=workload))
        axes[0].plot([published], [ENOUGH], label=f"published highest load: {published:g}/s", **PUBLISHED)
        axes[0].set_ylabel("share of the requests", size=8)
        handles, words = axes[0].get_legend_handles_labels()
        figure.legend(handles, words, loc="outside lower left", ncols=2, fontsize=7.5, frameon=False)
    return figure


def _panel(axes, rows: list[dict]) -> None:
    """Attainment on the left axis, good requests a second on the right one."""
    rates = [row["rate"] for row in rows]
    curve(axes, 0, rates, [row["attained"] for row in rows], "within both targets, share (left)")
    axes.axhline(ENOUGH, color=QUIET, lw=1, ls=(0, (4, 3)))
    axes.annotate(
        "90 %", (1, ENOUGH), (-2, 3), ("axes fraction", "data"), "offset points", ha="right", size=7.5, color=QUIET
    )
    axes.set(ylim=(0, 1.1), xlim=(0, None))
    axes.set_xlabel("load, requests/s", size=8)
    other = axes.twinx()
    other.plot(rates, [row["goodput"] for row in rows], color=PALETTE[0], ls="--", marker="s", ms=4, lw=1.6)
    other.set_ylim(0, 1.1 * max(row["goodput"] for row in rows))
    other.set_ylabel("good requests/s", size=8, color=INK)
    other.tick_params(labelsize=8, color=QUIET)
    other.spines["top"].set_visible(False)
    axes.plot([], [], color=PALETTE[0], ls="--", marker="s", ms=4, lw=1.6, label="good requests/s at this load (right)")


def alt(headline) -> str:
    """The picture in words."""
    return (
        "Two panels over the load: the share of requests within both targets, which falls, and good requests a second, "
        "which rise and fall. " + findings_alt(headline)
    )
