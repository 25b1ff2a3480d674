"""`gaps`: each request's tokens as its client sees them come, and how long the wait for each was. Notebook 04."""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minibatch.metrics import percentile
from minibatch.plot.bars import extent, last_step
from minibatch.plot.colours import FAILED_RED, INK, QUIET, RULE, Traces, named, palette_of
from minibatch.plot.labels import text_width
from minibatch.plot.page import SWATCH, Panel, Strip, Swatch, draw_page, inner_width
from minibatch.plot.strips import Scale
from minibatch.plot.words import plural
from minibatch.trace import Trace

ROW, LOWEST_ROW, ALL_ROWS, NEEDLES, CLOSE = 0.15, 0.03, 1.8, 0.75, 0.08  # inches


class Gap(NamedTuple):
    """Two consecutive tokens of a request: the second came at `at`, `seconds` after the first."""

    request_id: str
    at: float
    seconds: float


def gaps_of(trace: Trace) -> list[Gap]:
    """All inter-token gaps (ITL) of a run, in the order in which they ended."""
    found = [
        Gap(record.request_id, later, later - earlier)
        for record in trace.requests.values()
        for earlier, later in pairwise(record.token_times)
    ]
    return sorted(found, key=lambda gap: gap.at)


def gaps(
    traces: Traces, bounds: dict[str, float] | None = None, title: str | None = None, width: float = 10.0
) -> Figure:
    """For each trace: a row a request, a tick where a token comes; below, the longest gap that ends at that moment.

    The gaps are in seconds, on a logarithmic axis, the same for all. `bounds` maps a trace's name to a length that no
    gap of it should pass, drawn as a dashed line. `traces` and `width` (inches) are as in `slots`.
    """
    inner, pairs, bounds = inner_width(width, "seconds"), named(traces), bounds or {}
    if unknown := sorted(bounds.keys() - {name for name, _ in pairs}):
        raise ValueError(f"bounds names {unknown}: the traces are {[name for name, _ in pairs]}")
    lengths = [gap.seconds for _, trace in pairs for gap in gaps_of(trace)] + list(bounds.values())
    if not lengths:
        raise ValueError("traces: no request has a second token, so there is no gap to draw")
    heights = (min(lengths) / 1.8, max(lengths) * 1.6)
    scale = Scale("seconds", extent(traces, "seconds"), inner, last_step(traces), 0, palette_of(traces))
    panels = [
        Panel(name, gaps_numbers(trace), _strips(trace, scale, heights, bounds.get(name))) for name, trace in pairs
    ]
    bound = [Swatch("bound: the longest gap that the token budget allows", _draw_bound)] if bounds else []
    ticks = [Swatch("the request arrives", _draw_arrival), Swatch("a token comes", _draw_tick)]
    swatches = [*ticks, Swatch("the longest gap that ends here", _draw_needle), *bound]
    return draw_page(panels, scale, swatches, width, title)


def gaps_numbers(trace: Trace) -> list[str]:
    """What the picture says in numbers: gaps, their median, the longest."""
    lengths = [gap.seconds for gap in gaps_of(trace)]
    if not lengths:
        return ["no gaps"]
    return [plural(len(lengths), "gap"), f"median {percentile(lengths, 50):.2f} s", f"longest {max(lengths):.2f} s"]


def gaps_alt(traces: Traces, bounds: dict[str, float] | None = None) -> str:
    """The picture in words."""
    said = []
    for name, trace in named(traces):
        bound = f", bound {bounds[name]:.2f} s" if name in (bounds or {}) else ""
        said.append(f"{name}: {', '.join(gaps_numbers(trace))}{bound}.")
    opening = "Over time, a row a request with a tick for each token, and the length of the gaps on a logarithmic axis."
    return " ".join([opening, *said])


def _strips(trace: Trace, scale: Scale, heights: tuple[float, float], bound: float | None) -> list[Strip]:
    row = max(min(ROW, ALL_ROWS / max(len(trace.requests), 1)), LOWEST_ROW)
    return [
        Strip("tokens", row * len(trace.requests), partial(_draw_tokens, scale=scale, trace=trace, row=row)),
        Strip("gaps", NEEDLES, partial(_draw_gaps, trace=trace, heights=heights, bound=bound), gap=CLOSE),
    ]


def _draw_tokens(axes: Axes, scale: Scale, trace: Trace, row: float) -> None:
    count = len(trace.requests)
    axes.set_ylim(count, 0)
    axes.set_yticks([])
    if 72 * row >= 7:
        axes.set_yticks([place + 0.5 for place in range(count)], list(trace.requests))
        axes.tick_params(axis="y", pad=7)  # clear of an arrival at the very start
    axes.hlines([place + 0.5 for place in range(count)], *scale.limits, RULE, lw=0.5, zorder=0.5)
    for place, record in enumerate(trace.requests.values()):
        colour = scale.colours[record.request_id]
        axes.vlines(record.token_times, place + 0.1, place + 0.9, colour, lw=1.1)
        axes.plot([record.arrival], [place + 0.5], ">", ms=min(5, 50 * row), color=colour, clip_on=False)


def _draw_gaps(axes: Axes, trace: Trace, heights: tuple[float, float], bound: float | None) -> None:
    longest: dict[float, float] = {}
    for gap in gaps_of(trace):
        longest[gap.at] = max(gap.seconds, longest.get(gap.at, 0.0))
    axes.set(yscale="log", ylim=heights)
    axes.tick_params(which="both", length=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter("")
    axes.grid(axis="y", color=RULE, lw=0.6)
    axes.vlines(list(longest), heights[0], list(longest.values()), INK, lw=0.6)
    axes.plot(list(longest), list(longest.values()), "o", ms=2.6, color=INK, clip_on=False)
    place = {"xytext": (-text_width("0.001", 7) - 8, 0), "textcoords": "offset points", "xycoords": "axes fraction"}
    axes.annotate("gap, s", (0, 0.5), **place, size=7, ha="right", va="center", color=QUIET)
    if bound is not None:
        axes.axhline(bound, color=FAILED_RED, lw=1, ls="--")


def _draw_arrival(axes: Axes, x: float, y: float) -> None:
    axes.plot([x + SWATCH / 2], [y], ">", ms=5, color=INK)


def _draw_tick(axes: Axes, x: float, y: float) -> None:
    axes.vlines(x + SWATCH / 2, y - 0.06, y + 0.06, INK, lw=1.1)


def _draw_needle(axes: Axes, x: float, y: float) -> None:
    axes.vlines(x + SWATCH / 2, y - 0.05, y + 0.07, INK, lw=0.6)
    axes.plot([x + SWATCH / 2], [y - 0.05], "o", ms=2.6, color=INK)


def _draw_bound(axes: Axes, x: float, y: float) -> None:
    axes.hlines(y, x, x + SWATCH, FAILED_RED, lw=1, ls="--")
