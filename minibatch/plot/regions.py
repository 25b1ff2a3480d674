"""`regions`: who holds which part of a contiguous K/V pool over time, and how much of it is filled.

Introduced in notebook 05. Positions run down, time to the right. A region is a box as long as its request stays; its
filled part grows token by token, and below that lie what will be filled and what never will.
"""

from functools import partial
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from minibatch.memory.waste import mean_split
from minibatch.plot.bars import extent, last_step, span, waiting
from minibatch.plot.colours import DEAD_GREY, EMPTY, PALETTE, RULE, Traces, ink, named, palette_of, tint
from minibatch.plot.labels import text_width
from minibatch.plot.page import SWATCH, Panel, Strip, Swatch, draw_page, inner_width
from minibatch.plot.strips import Scale, draw_queue
from minibatch.plot.words import plural
from minibatch.trace import StepRecord, Trace

CLOSE, QUEUE = 0.10, 0.32  # inches
SMALLEST, LARGEST = 5.0, 9.0  # points


class Stay(NamedTuple):
    """One request in one region: what it had stored at the end of each step, from the first step it was there."""

    request_id: str
    start: int
    length: int
    steps: list[StepRecord]
    stored: list[int]


def stays(trace: Trace) -> list[Stay]:
    """Every region of a run, in the order taken. Raises ValueError for paged memory, which has none."""
    if trace.block_size is not None:
        raise ValueError(f"block_size={trace.block_size}: memory is paged; this is a picture of contiguous regions")
    found, here = [], {}
    for record in trace.steps:
        for event in record.memory_events:
            if event.kind == "give":
                del here[event.request_id]
            else:
                here[event.request_id] = Stay(event.request_id, event.start, event.length, [], [])
                found.append(here[event.request_id])
        computed = {} if record.error else {work.request_id: work.start + work.count for work in record.live}
        for request_id, stay in here.items():
            before = stay.stored[-1] if stay.stored else 0
            stay.stored.append(computed.get(request_id, before))
            stay.steps.append(record)
    return [stay for stay in found if stay.steps]


def regions(
    traces: Traces, axis: str = "steps", title: str | None = None, height: float = 2.2, width: float = 10.0
) -> Figure:
    """The pool over time: filled in the request's colour, still to be filled pale, never filled grey, nobody's white.

    `traces`, `axis` and `width` (inches) are as in `slots`; `height` is that of each pool, in inches.
    """
    inner, pairs = inner_width(width, axis), named(traces)
    longest = max((each.count for _, trace in pairs for each in waiting(trace, axis)), default=0)
    scale = Scale(axis, extent(traces, axis), inner, last_step(traces), longest, palette_of(traces))
    panels = [Panel(name, region_numbers(trace), _strips(trace, scale, height)) for name, trace in pairs]
    shades = [
        (PALETTE[0], "holds a token"),
        (tint(PALETTE[0]), "reserved: will hold one before its request ends"),
        (DEAD_GREY, "internal: never used"),
        (EMPTY, "external: in no region"),
    ]
    swatches = [Swatch(text, partial(_draw_shade, colour=colour)) for colour, text in shades]
    return draw_page(panels, scale, swatches, width, title)


def region_numbers(trace: Trace) -> list[str]:
    """What the picture says in numbers: steps, most sequences at once, share of the pool that holds tokens."""
    most = max((len(record.live) + len(record.dead) for record in trace.steps), default=0)
    said = [plural(len(trace.steps), "step"), f"at most {plural(most, 'sequence')} at once"]
    if any(record.waiting for record in trace.steps):
        said.append(f"{mean_split(trace).used:.0%} of the pool holds tokens while requests wait")
    return said


def regions_alt(traces: Traces) -> str:
    """The picture in words."""
    opening = "K/V positions over time: a box for each request's region, its filled part growing token by token; below "
    opening += "that, pale, what will be filled, and grey, what never will. White is nobody's."
    return " ".join([opening, *(f"{name}: {', '.join(region_numbers(trace))}." for name, trace in named(traces))])


def _strips(trace: Trace, scale: Scale, height: float) -> list[Strip]:
    return [
        Strip("pool", height, partial(_draw_pool, scale=scale, trace=trace, height=72 * height)),
        Strip("queue", QUEUE, partial(draw_queue, scale=scale, trace=trace), gap=CLOSE),
    ]


def _draw_pool(axes: Axes, scale: Scale, trace: Trace, height: float) -> None:
    """Regions, `height` points for the whole pool, position 0 on top."""
    capacity = trace.steps[0].memory.capacity if trace.steps else 1
    axes.set_ylim(capacity, 0)
    axes.set_yticks([0, capacity / 2, capacity], ["0", "K/V\npositions", f"{capacity:,}"])
    right = span(trace.steps[-1], scale.axis)[1] if trace.steps else scale.limits[0]
    axes.add_artist(Rectangle((scale.limits[0], 0), right - scale.limits[0], capacity, fill=False, edgecolor=RULE))
    for stay in stays(trace):
        _draw_stay(axes, stay, scale, height / capacity)


def _draw_stay(axes: Axes, stay: Stay, scale: Scale, per_position: float) -> None:
    colour, top, end = scale.colours[stay.request_id], stay.start, stay.start + stay.length
    edges = [edge for record in stay.steps for edge in span(record, scale.axis)]
    filled = [top + stored for stored in stay.stored for _ in ("left", "right")]
    axes.fill_between(edges, top, filled, color=colour, lw=0)
    axes.fill_between(edges, filled, filled[-1], color=tint(colour), lw=0)
    axes.fill_between(edges, filled[-1], end, color=DEAD_GREY, lw=0)
    left, right = edges[0], edges[-1]
    axes.add_artist(Rectangle((left, top), right - left, stay.length, fill=False, edgecolor=EMPTY, lw=0.9))
    _write(axes, stay, colour, (right - left) * scale.per_unit, stay.length * per_position, (left + right) / 2)


def _write(axes: Axes, stay: Stay, colour: str, wide: float, high: float, x: float) -> None:
    """The id in a box of `wide` x `high` points, flat or standing up, on a patch of its colour; none if it is small."""
    long, tall = text_width(stay.request_id, 1.0) + 0.5, 1.5  # points a point of size, with the patch around it
    flat, upright = min(LARGEST, 0.95 * wide / long, high / tall), min(LARGEST, 0.95 * high / long, wide / tall)
    if max(flat, upright) < SMALLEST:
        return
    turned = {"rotation": 90, "va": "center"} if upright > flat else {"va": "center_baseline"}
    patch = {"facecolor": colour, "edgecolor": "none", "boxstyle": "square,pad=0.15"}
    style = {"size": max(flat, upright), "ha": "center", "clip_on": True, "bbox": patch, **turned}
    axes.text(x, stay.start + stay.length / 2, stay.request_id, color=ink(colour), **style)


def _draw_shade(axes: Axes, x: float, y: float, colour: str) -> None:
    edge = {"edgecolor": "#9AA0A6", "linewidth": 0.6} if colour == EMPTY else {"linewidth": 0}
    axes.add_patch(Rectangle((x, y - 0.065), SWATCH, 0.13, facecolor=colour, **edge))
