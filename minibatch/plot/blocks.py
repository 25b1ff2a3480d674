"""`blocks` and `memory`: who owned which K/V block at every step, and how much of the pool held a token.

Introduced in notebook 06 (and `memory` in 05: it draws contiguous memory as well).
"""

from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from minibatch.plot.bars import OWNED, SHARED, Bar, extent, last_step
from minibatch.plot.block_words import block_numbers, memory_numbers
from minibatch.plot.colours import TAKEN, USED, Traces, named, palette_of
from minibatch.plot.ownership import block_bars, block_colours, num_blocks
from minibatch.plot.page import SWATCH, Panel, Strip, Swatch, draw_page, inner_width, of_kind
from minibatch.plot.strips import Scale, draw_memory, draw_rows
from minibatch.trace import Trace

CLOSE, STRIP, ALONE = 0.08, 0.5, 0.7  # inches: a gap, the memory strip under a map and by itself


def blocks(
    traces: Traces, axis: str = "steps", title: str | None = None, memory: bool = True, width: float = 10.0
) -> Figure:
    """Blocks over time: a bar with its owner's id in its owner's colour, shared ones cross-hatched, free ones white.

    `traces`, `axis` and `width` are as in `slots`; every trace must be of paged memory. `memory` adds the positions
    that are taken, and those that hold a token, below. A shared block has the colour of its oldest owner.
    """
    inner, pairs = inner_width(width, axis), named(traces)
    scale = Scale(axis, extent(traces, axis), inner, last_step(traces), 0, block_colours(traces))
    rows = sum(num_blocks(trace) for _, trace in pairs)
    row = min(0.22, max(4.5 / rows, min(0.11, 9 / rows)))
    all_bars, panels = [block_bars(trace, axis) for _, trace in pairs], []
    for (name, trace), its_bars in zip(pairs, all_bars):
        strips = [_map(trace, its_bars, scale, row), *([_memory(trace, scale, STRIP, CLOSE)] if memory else [])]
        panels.append(Panel(name, block_numbers(trace), strips))
    shared = any(bar.kind == SHARED for its_bars in all_bars for bar in its_bars)
    hatched = [of_kind(SHARED, "shared by several, in the colour of the oldest")] if shared else []
    swatches = [of_kind(OWNED, "one owner"), *hatched, of_kind("empty", "free"), *(_fills() if memory else ())]
    return draw_page(panels, scale, swatches, width, title)


def memory(traces: Traces, axis: str = "steps", title: str | None = None, width: float = 10.0) -> Figure:
    """K/V positions over time, for each trace: those that hold a token and those that are only taken, of the pool.

    The light area is waste. `traces`, `axis` and `width` are as in `slots`; memory may be paged or contiguous.
    """
    inner, pairs = inner_width(width, axis), named(traces)
    scale = Scale(axis, extent(traces, axis), inner, last_step(traces), 0, palette_of(traces))
    panels = [Panel(name, memory_numbers(trace), [_memory(trace, scale, ALONE)]) for name, trace in pairs]
    return draw_page(panels, scale, _fills(), width, title)


def _map(trace: Trace, its_bars: list[Bar], scale: Scale, row: float) -> Strip:
    count = num_blocks(trace)
    draw = partial(draw_rows, scale=scale, trace=trace, its_bars=its_bars, row=row, noun="block", count=count)
    return Strip("blocks", row * count, draw)


def _memory(trace: Trace, scale: Scale, height: float, gap: float = 0.0) -> Strip:
    return Strip("memory", height, partial(draw_memory, scale=scale, trace=trace), gap)


def _fills() -> tuple[Swatch, Swatch]:
    return (
        Swatch("positions that hold a token", partial(_draw_fill, colour=USED)),
        Swatch("taken, still empty", partial(_draw_fill, colour=TAKEN)),
    )


def _draw_fill(axes: Axes, x: float, y: float, colour: str) -> None:
    axes.add_patch(Rectangle((x, y - 0.065), SWATCH, 0.13, facecolor=colour, linewidth=0))
