"""Batched requests, and latency against the rate, by how K/V memory is reserved. See `headlines.memory_policies`."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minibatch.plot.headline_page import DARK, PALE, PUBLISHED, curve, findings_alt, legend, level, of, panels
from minibatch.plot.page import own_style

HEIGHT = 0.38  # of a bar
BOUND = 0.1  # seconds a token


def draw(headline) -> Figure:
    """Bars for two workloads, and a curve for each system."""
    batched, rates = of(headline.rows, part="batched"), of(headline.rows, part="rates")
    workloads = list(dict.fromkeys(row["workload"] for row in batched))
    with own_style():
        figure, (first, second, third) = panels(headline.question, [*workloads, "ShareGPT-like"], [1, 1, 1.25])
        for axes, workload in zip((first, second), workloads):
            _bars(axes, of(batched, workload=workload))
        second.set_yticklabels([])
        first.set_xlabel("requests in a step that decodes, mean", size=8)
        second.set_xlabel(" ", size=8)
        handles, words = first.get_legend_handles_labels()
        figure.legend(handles, words, loc="outside lower left", ncols=3, fontsize=7.5, frameon=False)
        for place, label in enumerate(dict.fromkeys(row["label"] for row in rates)):
            points = of(rates, label=label)
            curve(third, place, [row["rate"] for row in points], [row["per_token"] for row in points], label)
        level(third, BOUND, f"{BOUND:g} s", x=0.92)
        third.set(xlabel="requests/s", ylabel="s a token (E2E / output tokens, mean)", ylim=(0, 0.4), xlim=(0, 6.6))
        third.yaxis.label.set_size(8)
        third.xaxis.label.set_size(8)
        legend(third, loc="center right")
    return figure


def _bars(axes: Axes, rows: list[dict]) -> None:
    """Two bars a system, by host work a step, and the published number on them."""
    labels = list(dict.fromkeys(row["label"] for row in rows))
    hosts = sorted({row["host"] for row in rows})
    for offset, host, colour in zip((-HEIGHT / 2, HEIGHT / 2), hosts, (DARK, PALE)):
        mine = of(rows, host=host)
        places = [labels.index(row["label"]) + offset for row in mine]
        words = f"here, {1e3 * host:.0f} ms of host work a step"
        axes.barh(places, [row["batched"] for row in mine], HEIGHT, color=colour, label=words)
    published = {row["label"]: row["published"] for row in rows}
    axes.plot(list(published.values()), [labels.index(label) for label in published], label="published", **PUBLISHED)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlim(0, 1.15 * max(max(row["batched"] for row in rows), *published.values()))
    axes.invert_yaxis()


def alt(headline) -> str:
    """The picture in words."""
    return (
        "Bars of how many requests run at once under four ways to reserve K/V memory, for two workloads, beside the "
        "published numbers; and curves of seconds a token against the request rate. " + findings_alt(headline)
    )
