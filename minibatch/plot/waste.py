"""`waste`: where a K/V pool goes, a stacked bar a memory, as in the vLLM paper's figure 2. See notebook 05."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from minibatch.memory.waste import Split
from minibatch.plot.colours import DEAD_GREY, EMPTY, INK, PALE, PALETTE, QUIET, ink
from minibatch.plot.page import own_style

KINDS = {  # of Split -> colour, what it means
    "used": (PALETTE[1], "holds a token"),
    "reserved": (PALE, "reserved, filled later"),
    "internal": (DEAD_GREY, "internal: never used"),
    "external": (EMPTY, "external: in no region"),
}
ROW, GAP, SMALLEST_LABEL = 0.3, 0.35, 0.035  # inches, rows, share of the pool


def waste(shares: Mapping[str, Split], together: int = 1, width: float = 9.0, title: str | None = None) -> Figure:
    """A bar for each entry, its four shares of the pool in percent; `together` neighbours stand close to each other.

    Under a `title` the legend stands below.

    Shares as `memory.waste.mean_split` gives them: they add up to 1, or to a little less where they were rounded.
    """
    if not shares:
        raise ValueError("shares is empty: a picture needs at least one Split")
    if together < 1:
        raise ValueError(f"together={together!r}: must be at least 1")
    places = [index + GAP * (index // together) for index in range(len(shares))]
    with own_style():
        figure = Figure(
            figsize=(width, ROW * (places[-1] + 1) + 0.85 + 0.3 * bool(title)), facecolor=EMPTY, layout="constrained"
        )
        axes = figure.subplots()
        for place, split in zip(places, shares.values()):
            _bar(axes, place, split)
        axes.set_yticks(places, list(shares))
        axes.set(xlim=(0, 100.3), ylim=(places[-1] + 0.55, -0.55), xlabel="% of the pool")
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        handles = [axes.barh(0, 0, color=colour, edgecolor=QUIET, lw=0.6) for colour, _ in KINDS.values()]
        words = [words for _, words in KINDS.values()]
        where = "outside lower center" if title else "outside upper center"
        figure.legend(handles, words, loc=where, ncols=len(words), frameon=False, fontsize=8.5)
        if title:
            figure.suptitle(title, x=0.01, ha="left", size=11, weight="bold", color=INK)
    return figure


def waste_alt(shares: Mapping[str, Split]) -> str:
    """The picture in words."""
    said = [
        f"{name}: " + ", ".join(f"{100 * share:.1f} % {kind}" for kind, share in split._asdict().items())
        for name, split in shares.items()
    ]
    return "Stacked bars of a K/V pool by what its positions hold. " + "; ".join(said) + "."


def _bar(axes, place: float, split: Split) -> None:
    left = 0.0
    for share, (colour, _) in zip(split, KINDS.values()):
        axes.barh(place, 100 * share, 0.86, left, color=colour, edgecolor=QUIET, lw=0.6)
        if share >= SMALLEST_LABEL:
            label = {"ha": "center", "va": "center_baseline", "size": 8.5, "color": ink(colour)}
            axes.text(left + 50 * share, place, f"{100 * share:.1f}", **label)
        left += 100 * share
