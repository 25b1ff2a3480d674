"""Gaps between tokens against the rate for four mixes, and the ablation. See `headlines.chunked`."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minibatch.plot.headline_page import DARK, PALE, PUBLISHED, curve, findings_alt, legend, level, of, panels
from minibatch.plot.page import own_style

LIMITS = {0.1: "0.1 s", 0.5: "0.5 s"}
PARTS = {"ttft_p50": ("median TTFT", DARK), "itl_p99": ("P99 of TBT", PALE)}
WIDTH = 0.38


def draw(headline) -> Figure:
    """Curves left; bars of the three policies of the ablation right, the published numbers on them."""
    rows = of(headline.rows, part="curve")
    with own_style():
        titles = ["Mistral-7B on an A100, chats with long prompts", "Yi-34B on two, 1 request/s"]
        figure, (left, right) = panels(headline.question, titles, [1.5, 1])
        for place, mix in enumerate(dict.fromkeys(row["mix"] for row in rows)):
            mine = of(rows, mix=mix)
            curve(left, place, [row["rate"] for row in mine], [row["itl_p99"] for row in mine], mix)
        for limit, words in LIMITS.items():
            level(left, limit, words)
        left.set_yscale("log")
        left.set_yticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0], ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"])
        left.set_yticks([], minor=True)
        left.set_xlabel("requests/s", size=8)
        left.set_ylabel("P99 of the gaps between tokens, s", size=8)
        left.set_xlim(0, None)
        legend(left, loc="lower right")
        _parts(right, headline)
    return figure


def _parts(axes: Axes, headline) -> None:
    rows = of(headline.rows, part="ablation")
    published = {finding.what: finding.published for finding in headline.findings}
    for offset, (key, (words, colour)) in zip((-WIDTH / 2, WIDTH / 2), PARTS.items()):
        places = [index + offset for index in range(len(rows))]
        axes.bar(places, [row[key] for row in rows], WIDTH, color=colour, label=f"{words}, here")
        theirs = [published[f"{row['mix']}: {words}, s"] for row in rows]
        axes.plot(places, theirs, label="published" if offset > 0 else None, **PUBLISHED)
    axes.set_xticks(range(len(rows)), [row["mix"] for row in rows])
    axes.set_ylabel("s", size=8)
    axes.set_ylim(0, 1.45 * max(max(row["ttft_p50"], row["itl_p99"]) for row in rows))
    axes.grid(visible=False, axis="x")
    legend(axes, loc="upper right")


def alt(headline) -> str:
    """The picture in words."""
    return (
        "Curves of the ninety-ninth percentile of the gaps between tokens against the request rate for four ways to "
        "mix prompts and decodes, and bars of an ablation. " + findings_alt(headline)
    )
