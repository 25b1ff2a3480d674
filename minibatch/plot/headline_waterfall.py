"""A gain as a product of factors: on a logarithmic axis each bar begins where the one above it ended."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from minibatch.plot.colours import INK, PALETTE, QUIET

FACTOR_COLOURS = (PALETTE[1], PALETTE[4], PALETTE[0])


def waterfall(axes: Axes, top: float, gains: Mapping[str, float], factors: Mapping[str, str]) -> None:
    """One row down for each factor from `top`, then the total. A factor below 1 goes back, hatched."""
    done = 1.0
    for row, (factor, colour) in enumerate(zip(factors, FACTOR_COLOURS)):
        value = gains[factor]
        low, high = sorted((done, done * value))
        hatch = {"hatch": "////"} if value < 1 else {}
        axes.barh(top + row, high - low, 0.72, low, color=colour, edgecolor=INK, lw=0.6, **hatch)
        axes.text(high * 1.05, top + row, f"× {value:.2f}", ha="left", va="center", size=8.5)
        done *= value
        axes.vlines(done, top + row - 0.36, top + row + 1.36, QUIET, lw=0.8, ls=":")
    axes.barh(top + len(factors), done - 1, 0.72, 1, color=QUIET, edgecolor=INK, lw=0.6)
    axes.text(done * 1.05, top + len(factors), f"{done:.1f} times", ha="left", va="center", size=9, weight="bold")
