"""The picture of headline `decomposition`: the gain of four workloads, each as a product of three."""

from matplotlib.figure import Figure

from minibatch.plot.headline_style import axes_with_title, band, log_ticks
from minibatch.plot.headline_waterfall import waterfall

FACTORS = {"slots_refilled": "slots refilled", "memory_freed": "memory freed", "latency_bound": "latency bound"}
EACH = len(FACTORS) + 1.6  # rows a workload


def draw(headline) -> Figure:
    """A cascade a workload: from 1 by slots refilled, memory freed and the latency bound to the total."""
    figure, axes = axes_with_title(headline.question, height=5.6)
    band(axes, 10, 20, "article 1:\n10 to 20 times", vertical=True)
    ticks = {}
    for place, row in enumerate(headline.rows):
        top = place * EACH + 0.4
        waterfall(axes, top, row, FACTORS)
        axes.text(
            0.78, top - 0.78, f"{row['workload']}: {row['model']}, {row['card']}", size=8.5, weight="bold", va="center"
        )
        ticks |= {top + i: words for i, words in enumerate([*FACTORS.values(), "total"])}
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    log_ticks(axes.xaxis, (1, 2, 5, 10, 20))
    bottom = len(headline.rows) * EACH - 0.3
    axes.set(
        xlim=(0.75, 32), ylim=(bottom, -1.5), xlabel="requests/s, times those of a static batch on the same memory"
    )
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    return figure


def alt(headline) -> str:
    """The picture in words."""
    said = []
    for row in headline.rows:
        parts = ", ".join(f"{words} {row[key]:.2f}" for key, words in FACTORS.items())
        said.append(f"{row['workload']}: {parts}, total {row['total']:.1f}")
    return "The gain over a static batch as a product of three factors, on a logarithmic axis. " + "; ".join(said) + "."
