"""`pressure`: how full the K/V pool is while requests wait, and when somebody is thrown out. Introduced in notebook 07.

The two errors of admission control in one picture: room above a queue, and marks above the room.
"""

from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from minibatch.metrics import idle_while_waiting, recomputed_tokens
from minibatch.plot.bars import extent, last_step, span, waiting
from minibatch.plot.colours import INK, PALETTE, TAKEN, USED, Traces, named, palette_of, tint
from minibatch.plot.page import SWATCH, Panel, Strip, Swatch, draw_page, inner_width
from minibatch.plot.strips import Scale, draw_memory, draw_queue
from minibatch.plot.words import plural
from minibatch.trace import Trace

MARKS, MEMORY, QUEUE, CLOSE = 0.13, 0.8, 0.32, 0.05  # inches
FREE = tint(PALETTE[0], 0.4)  # while somebody waits


def pressure(traces: Traces, axis: str = "steps", title: str | None = None, width: float = 10.0) -> Figure:
    """For each trace: the pool in use at each step, preemptions marked above it, the queue below.

    `traces`, `axis` and `width` (inches) are as in `slots`.
    """
    inner, pairs = inner_width(width, axis), named(traces)
    longest = max((each.count for _, trace in pairs for each in waiting(trace, axis)), default=0)
    scale = Scale(axis, extent(traces, axis), inner, last_step(traces), longest, palette_of(traces))
    panels = [Panel(name, pressure_numbers(trace), _strips(trace, scale)) for name, trace in pairs]
    shades = ((USED, "holds a token"), (TAKEN, "taken, still empty"), (FREE, "free while requests wait"))
    swatches = [Swatch(text, partial(_draw_shade, colour=colour)) for colour, text in shades]
    return draw_page(panels, scale, [*swatches, Swatch("a preemption", _draw_mark)], width, title)


def pressure_numbers(trace: Trace) -> list[str]:
    """What the picture says in numbers: steps, preemptions, tokens computed again, empty memory."""
    idle, preempted = idle_while_waiting(trace), sum(len(step.preempted) for step in trace.steps)
    said = [plural(len(trace.steps), "step"), plural(preempted, "preemption")]
    said += [f"{plural(recomputed_tokens(trace), 'token')} recomputed"] if preempted else []
    return [*said, "nobody waits" if idle is None else f"{idle:.0%} of memory empty while requests wait"]


def pressure_alt(traces: Traces) -> str:
    """The picture in words."""
    opening = "Use of the K/V pool over time, with a mark for each preemption above and the queue length below."
    return " ".join([opening, *(f"{name}: {', '.join(pressure_numbers(trace))}." for name, trace in named(traces))])


def _strips(trace: Trace, scale: Scale) -> list[Strip]:
    return [
        Strip("preempted", MARKS, partial(_draw_marks, scale=scale, trace=trace)),
        Strip("memory", MEMORY, partial(_draw_pool, scale=scale, trace=trace)),
        Strip("queue", QUEUE, partial(draw_queue, scale=scale, trace=trace), gap=CLOSE),
    ]


def _draw_marks(axes: Axes, scale: Scale, trace: Trace) -> None:
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.vlines([span(step, scale.axis)[0] for step in trace.steps if step.preempted], 0, 1, INK, lw=0.8)


def _draw_pool(axes: Axes, scale: Scale, trace: Trace) -> None:
    """The memory strip, and above it what is free in steps in which somebody waits."""
    edges = [edge for step in trace.steps for edge in span(step, scale.axis)]
    uses = [(step.memory, bool(step.waiting)) for step in trace.steps for _ in ("left", "right")]
    taken = [use.reserved for use, _ in uses]
    axes.fill_between(edges, taken, [use.capacity if queue else use.reserved for use, queue in uses], color=FREE, lw=0)
    draw_memory(axes, scale, trace)


def _draw_shade(axes: Axes, x: float, y: float, colour: str) -> None:
    axes.add_patch(Rectangle((x, y - 0.065), SWATCH, 0.13, facecolor=colour, linewidth=0))


def _draw_mark(axes: Axes, x: float, y: float) -> None:
    axes.vlines(x + SWATCH / 2, y - 0.065, y + 0.065, INK, lw=0.8)
