"""The strips a slot figure is made of: slots, queue, arrivals, time axis. Each draws on matplotlib axes it is given."""

from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from minibatch.plot.bars import (
    DEAD,
    DECODE,
    FAILED,
    OWNED,
    PREFILL,
    SHARED,
    Bar,
    arrivals,
    preemptions,
    span,
    step_ticks,
    waiting,
)
from minibatch.plot.colours import (
    DEAD_GREY,
    EMPTY,
    FAILED_RED,
    FLATLINE,
    INK,
    QUIET,
    RULE,
    TAKEN,
    USED,
    ink,
    tint,
)
from minibatch.plot.labels import Label, labels, text_width
from minibatch.trace import Trace

BAR_TOP, BAR_HEIGHT = 0.07, 0.86  # of a row
SINGLE_STEPS = 40  # up to this many, every step is ruled off
PREEMPTED_MARK = {"marker": "X", "ms": 6.5, "color": INK, "mec": EMPTY, "mew": 0.8, "ls": "none"}


class Scale(NamedTuple):
    """What all strips of a figure share."""

    axis: str  # "steps" or "seconds"
    limits: tuple[float, float]  # of the time axis
    inches: float  # its length
    steps: int  # of the longest trace
    longest_queue: int
    colours: dict[str, str]

    @property
    def per_unit(self) -> float:
        """Points a unit of the time axis."""
        return 72 * self.inches / (self.limits[1] - self.limits[0])


def rectangle(bar: Bar, colour: str, top: float, height: float = BAR_HEIGHT) -> Rectangle:
    """A bar as a patch. Kind "empty" is for the legend: an empty slot is drawn by drawing nothing."""
    looks = {
        PREFILL: {"facecolor": tint(colour), "edgecolor": colour, "hatch": "//////", "linewidth": 0},
        DECODE: {"facecolor": colour, "linewidth": 0},
        OWNED: {"facecolor": colour, "linewidth": 0},
        SHARED: {"facecolor": tint(colour), "edgecolor": colour, "hatch": "xxxx", "linewidth": 0},
        DEAD: {"facecolor": DEAD_GREY, "linewidth": 0},
        FAILED: {"facecolor": EMPTY, "edgecolor": FAILED_RED, "hatch": "xxxx", "linewidth": 0},
        "empty": {"facecolor": EMPTY, "edgecolor": "#9AA0A6", "linewidth": 0.6},
    }
    return Rectangle((bar.left, top), bar.right - bar.left, height, **looks[bar.kind])


def draw_slots(axes: Axes, scale: Scale, trace: Trace, its_bars: list[Bar], row: float) -> None:
    """A row a slot, `row` inches high, slot 0 on top; a cross where a request lost its slot."""
    draw_rows(axes, scale, trace, its_bars, row, "slot", trace.num_slots)
    lost = preemptions(trace, scale.axis)
    size = min(PREEMPTED_MARK["ms"], 60 * row)
    axes.plot([one.at for one in lost], [one.slot + 0.5 for one in lost], **PREEMPTED_MARK | {"ms": size}, zorder=4)


def draw_rows(axes: Axes, scale: Scale, trace: Trace, its_bars: list[Bar], row: float, noun: str, count: int) -> None:
    """`count` rows of bars, each `row` inches high and called "`noun` 0", "`noun` 1" and so on."""
    every = max(1, round(0.13 / row))
    axes.set_ylim(count, 0)
    axes.set_yticks([slot + 0.5 for slot in range(0, count, every)], [f"{noun} {s}" for s in range(0, count, every)])
    axes.tick_params(axis="y", labelsize=min(8.0, max(5.5, 60 * row)))
    _frame(axes, scale, trace, count)
    for bar in its_bars:  # as an artist: the limits are set, so none need be computed
        axes.add_artist(rectangle(bar, scale.colours[bar.request_id], bar.slot + BAR_TOP))
    dead = [bar for bar in its_bars if bar.kind == DEAD]  # a line as well as a colour: it survives grey print
    axes.hlines([b.slot + 0.5 for b in dead], [b.left for b in dead], [b.right for b in dead], FLATLINE, lw=0.7)
    starts = [bar for before, bar in pairwise(its_bars) if _new_stay(before, bar)]
    tops = [bar.slot + BAR_TOP for bar in starts]
    axes.vlines([bar.left for bar in starts], tops, [top + BAR_HEIGHT for top in tops], EMPTY, lw=0.8)
    for label in labels(its_bars, scale.per_unit, 72 * row):
        _write(axes, label, scale.colours[label.text])


def _new_stay(before: Bar, bar: Bar) -> bool:
    return before.slot == bar.slot and before.request_id != bar.request_id


def _write(axes: Axes, label: Label, colour: str) -> None:
    grounds = {PREFILL: tint(colour), SHARED: tint(colour), DEAD: DEAD_GREY, FAILED: EMPTY}
    ground = grounds.get(label.kind, colour if label.over else None)
    patch = {"facecolor": ground, "edgecolor": "none", "boxstyle": "square,pad=0.12"} if ground else None
    turned = {"rotation": 90, "va": "center"} if label.upright else {"va": "center_baseline"}
    style = {"size": label.size, "ha": "center", "clip_on": True, "bbox": patch, **turned}
    axes.text(label.x, label.y, label.text, color=ink(ground or colour), **style)


def _frame(axes: Axes, scale: Scale, trace: Trace, rows: int) -> None:
    """The white ground of a run, ruled by row, and a word where it ends well before the axis does."""
    if not trace.steps:
        return
    left, right = scale.limits[0], trace.steps[-1].end if scale.axis == "seconds" else len(trace.steps)
    axes.hlines(range(rows + 1), left, right, RULE, lw=0.5, zorder=0.5, clip_on=False)
    axes.vlines([left, right], 0, rows, RULE, lw=0.8, zorder=0.5, clip_on=False)
    if scale.axis == "steps" and scale.steps <= SINGLE_STEPS:
        axes.vlines(range(len(trace.steps)), 0, rows, RULE, lw=0.5, zorder=0.5)
    note = f"ends after step {right:,}" if scale.axis == "steps" else f"ends after {right:.3g} s"
    if (scale.limits[1] - right) * scale.per_unit > text_width(note, 8) + 16:
        place = {"xytext": (7, 0), "textcoords": "offset points"}
        axes.annotate(note, (right, rows / 2), **place, size=8, va="center", color=QUIET)


def draw_queue(axes: Axes, scale: Scale, trace: Trace) -> None:
    """Queue length while each step ran; one height for all traces of a figure."""
    top = max(scale.longest_queue, 1)
    axes.set_ylim(0, top * 1.08)
    axes.set_yticks([0, top], ["0", f"{top:,}"])
    for label, edge in zip(axes.get_yticklabels(), ("bottom", "top")):
        label.set_va(edge)
    left_of_ticks = {"xytext": (-text_width(f"{top:,}", 7) - 8, 0), "textcoords": "offset points"}
    style = {"size": 7, "ha": "right", "va": "center", "color": QUIET}
    axes.annotate("waiting", (0, 0.5), xycoords="axes fraction", **left_of_ticks, **style)
    line = waiting(trace, scale.axis)
    xs = [x for each in line for x in (each.left, each.right)]
    ys = [each.count for each in line for _ in ("left", "right")]
    axes.fill_between(xs, ys, color="#AEB6C1", lw=0)
    axes.plot(xs, ys, color="#4A5563", lw=0.9, clip_on=False)
    axes.hlines(0, *scale.limits, RULE, lw=0.8, zorder=0.5)


def draw_memory(axes: Axes, scale: Scale, trace: Trace) -> None:
    """K/V positions at each step: those that hold a token, dark; those taken and empty, light; up to the capacity."""
    capacity = trace.steps[0].memory.capacity if trace.steps else 1
    axes.set_ylim(0, capacity * 1.08)
    axes.set_yticks([0, capacity / 2, capacity], ["0", "memory", f"{capacity:,}"])
    for label, edge in zip(axes.get_yticklabels(), ("bottom", "center", "top")):
        label.set_va(edge)
    xs = [x for record in trace.steps for x in span(record, scale.axis)]
    used, taken = ([getattr(r.memory, field) for r in trace.steps for _ in "ab"] for field in ("used", "reserved"))
    axes.fill_between(xs, used, taken, color=TAKEN, lw=0, antialiased=False)
    axes.fill_between(xs, used, color=USED, lw=0, antialiased=False)
    right = xs[-1] if xs else scale.limits[1]
    axes.hlines([0, capacity], scale.limits[0], right, RULE, lw=0.8, zorder=0.5)


def draw_arrivals(axes: Axes, scale: Scale, trace: Trace) -> None:
    """A triangle an arrival, in the request's colour; arrivals too close to tell apart share a dark one."""
    axes.set_ylim(0, 1)
    axes.set_yticks([0.4], ["arrivals"])
    axes.tick_params(axis="y", pad=7)
    groups = _gathered(arrivals(trace, scale.axis), 3 / scale.per_unit)
    following = [at for at, _ in groups[1:]] + [scale.limits[1] + 7 / scale.per_unit]
    for (at, ids), end in zip(groups, following):
        colour = scale.colours[ids[0]] if len(ids) == 1 else INK
        axes.plot([at], [0.45], marker="^", ms=5.5, color=colour, mec=EMPTY, mew=0.4, clip_on=False)
        room = (end - at) * scale.per_unit - 12
        text = next((text for text in _group_names(ids) if text_width(text, 6.5) <= room), "")
        place = {"xytext": (5, 0), "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(text, (at, 0.4), **place, size=6.5, va="center", color=QUIET)


def _gathered(places: dict[str, float], closer_than: float) -> list[tuple[float, list[str]]]:
    groups: list[tuple[float, list[str]]] = []
    for request_id, at in sorted(places.items(), key=lambda item: item[1]):
        if groups and at - groups[-1][0] < closer_than:
            groups[-1][1].append(request_id)
        else:
            groups.append((at, [request_id]))
    return groups


def _group_names(ids: list[str]) -> list[str]:
    """Texts to try, longest first. A long list of ids would seem to stretch along the axis."""
    listed = [" ".join(ids)] if len(ids) <= 4 else []
    return listed + ([f"{len(ids)} requests", f"×{len(ids)}"] if len(ids) > 1 else [])


def draw_time(axes: Axes, scale: Scale) -> None:
    """The common time axis, under the last strip."""
    axes.tick_params(axis="x", labelbottom=True, labelsize=8)
    if scale.axis == "steps":
        ticks = step_ticks(scale.steps, int(scale.inches / 0.42))
        axes.set_xticks([step - 0.5 for step in ticks], [f"{step:,}" for step in ticks])
    axes.set_xlabel("step" if scale.axis == "steps" else "seconds", size=8.5, color=QUIET, labelpad=1)
