"""Requests preempted, and the tail, against the mean use of the pool. See `headlines.preemption_tail`."""

from matplotlib.figure import Figure

from minibatch.plot.colours import QUIET
from minibatch.plot.headline_page import PUBLISHED, curve, findings_alt, legend, of, panels
from minibatch.plot.page import own_style

USE = 0.62
PANELS = {"preempted": ("requests preempted, %", 100), "tail": ("P99 / P50 of seconds a token", 1)}


def draw(headline) -> Figure:
    """Two panels over the share of the pool that holds tokens on average."""
    published = [finding.published for finding in headline.findings if finding.published is not None]
    with own_style():
        figure, axes = panels(headline.question, [words for words, _ in PANELS.values()])
        for each, theirs, (key, (_, scale)) in zip(axes, published, PANELS.items()):
            for place, lengths in enumerate(dict.fromkeys(row["lengths"] for row in headline.rows)):
                mine = of(headline.rows, lengths=lengths)
                use, found = [100 * row["use"] for row in mine], [scale * row[key] for row in mine]
                curve(each, place, use, found, f"{lengths} lengths")
            each.axvline(100 * USE, color=QUIET, lw=1, ls=(0, (4, 3)))
            each.plot([100 * USE], [scale * theirs], label="published", **PUBLISHED)
            each.set_xlabel("K/V memory that holds tokens, mean, %", size=8)
            each.set_ylim(0, None)
        legend(axes[0], loc="upper left")
    return figure


def alt(headline) -> str:
    """The picture in words."""
    return (
        "Two panels over the mean use of the K/V pool: the share of requests preempted and the ratio of the "
        "ninety-ninth percentile to the median of seconds a token, for two laws of lengths. " + findings_alt(headline)
    )
