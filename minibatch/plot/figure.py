"""`slots`: who held which slot at every step, as a matplotlib figure.

From top to bottom, for each scheduler: its name and numbers, a row a slot, the queue, the arrivals; then one time axis
for all, and the legend.
"""

from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minibatch.plot.bars import DEAD, DECODE, FAILED, PREFILL, Bar, bars, extent, last_step, preemptions, waiting
from minibatch.plot.colours import FLATLINE, Traces, named, palette_of
from minibatch.plot.page import SWATCH, Panel, Strip, Swatch, draw_page, inner_width, of_kind
from minibatch.plot.strips import PREEMPTED_MARK, Scale, draw_arrivals, draw_queue, draw_slots
from minibatch.plot.words import numbers
from minibatch.trace import Trace

CLOSE, QUEUE, ARRIVALS = 0.05, 0.32, 0.17  # inches


def slots(
    traces: Traces, axis: str = "steps", title: str | None = None, queue: bool = True, width: float = 10.0
) -> Figure:
    """Slots over time: a bar per request with its id, prefill hatched, decode plain, dead grey, empty white.

    `traces` is one Trace or several (a list, or a dict that names them) on one common time axis. `axis` is "steps" or
    "seconds" (on the engine's clock). `queue` adds queue length and arrivals below. `width` is in inches, at least 5;
    the height follows from the number of slots. A cross marks where a request was preempted.
    """
    inner, pairs = inner_width(width, axis), named(traces)
    longest_queue = max((each.count for _, trace in pairs for each in waiting(trace, axis)), default=0)
    scale = Scale(axis, extent(traces, axis), inner, last_step(traces), longest_queue, palette_of(traces))
    all_bars = [bars(trace, axis) for _, trace in pairs]
    rows = sum(trace.num_slots for _, trace in pairs)
    row = max(min(3.4 / rows, 0.36), min(0.11, 8 / rows))
    panels = [
        Panel(name, numbers(trace), [_slots(trace, its_bars, scale, row), *(_queue(trace, scale) if queue else ())])
        for (name, trace), its_bars in zip(pairs, all_bars)
    ]
    kinds = {bar.kind for its_bars in all_bars for bar in its_bars}
    prefills = [bar.right - bar.left for its_bars in all_bars for bar in its_bars if bar.kind == PREFILL]
    wide = max(prefills, default=1) * scale.per_unit >= 4
    preempted = any(preemptions(trace, axis) for _, trace in pairs)
    return draw_page(panels, scale, _legend(kinds, wide, preempted), width, title)


def _slots(trace: Trace, its_bars: list[Bar], scale: Scale, row: float) -> Strip:
    return Strip(
        "slots", row * trace.num_slots, partial(draw_slots, scale=scale, trace=trace, its_bars=its_bars, row=row)
    )


def _queue(trace: Trace, scale: Scale) -> tuple[Strip, Strip]:
    return (
        Strip("queue", QUEUE, partial(draw_queue, scale=scale, trace=trace), gap=CLOSE),
        Strip("arrivals", ARRIVALS, partial(draw_arrivals, scale=scale, trace=trace)),
    )


def _legend(kinds: set[str], wide: bool, preempted: bool) -> list[Swatch]:
    failed = [of_kind(FAILED, "step failed, nothing computed")] if FAILED in kinds else []
    cross = [Swatch("preempted: slot and memory taken back", _draw_cross)] if preempted else []
    return [
        of_kind(PREFILL, "prefill" if wide else "prefill (the thin start of a bar)"),
        of_kind(DECODE, "decode"),
        Swatch("dead: finished, its slot still held", _draw_dead),
        of_kind("empty", "empty slot"),
        *failed,
        *cross,
    ]


def _draw_dead(axes: Axes, x: float, y: float) -> None:
    of_kind(DEAD, "").draw(axes, x, y)
    axes.hlines(y, x, x + SWATCH, FLATLINE, lw=0.7)


def _draw_cross(axes: Axes, x: float, y: float) -> None:
    axes.plot([x + SWATCH / 2], [y], **PREEMPTED_MARK)
