"""Swap against recompute by block size: one victim, and a whole run. See `headlines.swap_or_recompute`."""

from matplotlib.figure import Figure

from minibatch.plot.colours import RULE, tint
from minibatch.plot.headline_page import curve, findings_alt, legend, panels
from minibatch.plot.page import own_style

WAYS = {"recompute": "compute again", "swap": "swap out and in"}


def draw(headline) -> Figure:
    """Two panels over the same block sizes."""
    rows = headline.rows
    sizes = [row["block_size"] for row in rows]
    with own_style():
        titles = [f"one victim of {rows[0]['tokens']} tokens", "end to end, ShareGPT-like, a little overloaded"]
        figure, (left, right) = panels(headline.question, titles)
        for place, (way, words) in enumerate(WAYS.items()):
            curve(left, place, sizes, [1e3 * row[way] for row in rows], words)
            curve(right, place, sizes, [row[f"{way}_per_token"] for row in rows], words)
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set_xlabel("block size, positions", size=8)
            axes.axvspan(16, 64, color=tint(RULE, 0.6), lw=0, zorder=0)
            axes.set_ylim(0, None)
        left.set_ylabel("ms", size=8)
        right.set_ylabel("s a token (E2E / output tokens, mean)", size=8)
        right.annotate("16 to 64", (32, 1), (0, -10), ("data", "axes fraction"), "offset points", ha="center", size=7.5)
        legend(left, loc="upper right")
    return figure


def alt(headline) -> str:
    """The picture in words."""
    return (
        "Two panels over block sizes from 1 to 256: milliseconds to swap a victim's K and V out and in or to compute "
        "them again, and seconds a token of a whole run under either. " + findings_alt(headline)
    )
