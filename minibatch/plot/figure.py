"""`slots`: who held which slot at every step, as a matplotlib figure.

From top to bottom, for each scheduler: its name and numbers, a row a slot, the queue, the arrivals; then one time axis
for all, and the legend. Everything is placed in inches, so the same trace gives the same picture everywhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minibatch.plot.bars import AXES, DEAD, DECODE, FAILED, PREFILL, Bar, bars, extent, last_step, waiting
from minibatch.plot.colours import EMPTY, FLATLINE, INK, PALETTE, QUIET, Traces, named, palette_of
from minibatch.plot.labels import text_width
from minibatch.plot.strips import Scale, draw_arrivals, draw_queue, draw_slots, draw_time, rectangle
from minibatch.plot.words import numbers
from minibatch.trace import Trace

LEFT, RIGHT, TOP, BOTTOM = 0.86, 0.18, 0.08, 0.06  # margins, inches
TITLE, HEADER, SECOND_LINE, QUEUE, ARRIVALS, TIME, LEGEND = 0.30, 0.27, 0.17, 0.32, 0.17, 0.42, 0.22
CLOSE, GAP = 0.05, 0.12  # between the strips of a panel, between panels
SWATCH = 0.26


@contextmanager
def own_style() -> Iterator[None]:
    """matplotlib's defaults, whatever the notebook has set: a picture depends on its trace alone."""
    kept = ("font.", "text.", "axes.", "xtick.", "ytick.", "patch.", "hatch.", "lines.", "figure.", "savefig.", "path.")
    with matplotlib.rc_context({k: v for k, v in matplotlib.rcParamsDefault.items() if k.startswith(kept)}):
        matplotlib.rcParams.update({"hatch.linewidth": 1.1, "text.parse_math": False})  # an id may hold a $
        yield


def slots(
    traces: Traces, axis: str = "steps", title: str | None = None, queue: bool = True, width: float = 10.0
) -> Figure:
    """Slots over time: a bar per request with its id, prefill hatched, decode plain, dead grey, empty white.

    `traces` is one Trace or several (a list, or a dict that names them) on one common time axis. `axis` is "steps" or
    "seconds" (on the engine's clock). `queue` adds queue length and arrivals below. `width` is in inches, at least 5;
    the height follows from the number of slots.
    """
    if axis not in AXES:
        raise ValueError(f"axis={axis!r}: must be one of {', '.join(map(repr, AXES))}")
    if width < 5:
        raise ValueError(f"width={width!r}: must be at least 5 inches, else the words do not fit")
    with own_style():
        return _Page(traces, axis, title, queue, width).draw()


class _Page:
    """One figure, laid out from top to bottom. Lengths in inches; `down` is how far it has come."""

    def __init__(self, traces: Traces, axis: str, title: str | None, queue: bool, width: float):
        self.pairs, self.title, self.queue, self.width = named(traces), title, queue, width
        self.inner = width - LEFT - RIGHT
        longest_queue = max((each.count for _, trace in self.pairs for each in waiting(trace, axis)), default=0)
        limits = extent(traces, axis)
        self.scale = Scale(axis, limits, self.inner, last_step(traces), longest_queue, palette_of(traces))
        self.bars = [bars(trace, axis) for _, trace in self.pairs]
        rows = sum(trace.num_slots for _, trace in self.pairs)
        self.row = max(min(3.4 / rows, 0.36), min(0.11, 8 / rows))
        self.legend = list(_flow(self._legend_items(), self.inner))
        self.two_lines = any(not self._one_line(name, trace) for name, trace in self.pairs)
        self.height = self._height()
        self.figure = Figure(figsize=(width, self.height), facecolor=EMPTY)
        self.down = TOP

    def _one_line(self, name: str, trace: Trace) -> bool:
        return (text_width(name, 10, bold=True) + text_width(_numbers(trace), 8.5)) / 72 + 0.3 <= self.inner

    def _height(self) -> float:
        panel = HEADER + SECOND_LINE * self.two_lines + (CLOSE + QUEUE + ARRIVALS) * self.queue + GAP
        panels = sum(panel + self.row * trace.num_slots for _, trace in self.pairs)
        return TOP + TITLE * bool(self.title) + panels - GAP + TIME + LEGEND * len(self.legend) + BOTTOM

    def draw(self) -> Figure:
        """Everything, once."""
        if self.title:
            self._text(0.0, 0.16, self.title, size=12, weight="bold")
            self.down += TITLE
        for (name, trace), its_bars in zip(self.pairs, self.bars):
            lowest = self._panel(name, trace, its_bars)
        draw_time(lowest, self.scale)
        self.down += TIME - GAP
        self._draw_legend()
        return self.figure

    def _panel(self, name: str, trace: Trace, its_bars: list[Bar]) -> Axes:
        self._heading(name, trace)
        lowest = self._strip("slots", self.row * trace.num_slots)
        draw_slots(lowest, self.scale, trace, its_bars, self.row)
        if self.queue:
            self.down += CLOSE
            draw_queue(self._strip("queue", QUEUE), self.scale, trace)
            lowest = self._strip("arrivals", ARRIVALS)
            draw_arrivals(lowest, self.scale, trace)
        self.down += GAP
        return lowest

    def _heading(self, name: str, trace: Trace) -> None:
        self._text(0.0, 0.14, name, size=10, weight="bold")
        x, y, side = (0.0, 0.14 + SECOND_LINE, "left") if self.two_lines else (self.inner, 0.14, "right")
        size = min(8.5, 8.2 * self.inner * 72 / text_width(_numbers(trace), 8.5))
        self._text(x, y, _numbers(trace), size=size, color=QUIET, ha=side)
        self.down += HEADER + SECOND_LINE * self.two_lines

    def _strip(self, label: str, height: float) -> Axes:
        """New axes of this height at the present place, on the common time axis."""
        axes = self._axes(label, height)
        axes.set(xlim=self.scale.limits, facecolor="none")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=7, labelcolor=QUIET, pad=3, labelbottom=False)
        self.down += height
        return axes

    def _axes(self, label: str, height: float) -> Axes:
        bottom = 1 - (self.down + height) / self.height
        box = (LEFT / self.width, bottom, self.inner / self.width, height / self.height)
        return self.figure.add_axes(box, label=label)

    def _text(self, x: float, y: float, text: str, **style) -> None:
        """Text at x right of the axes' left edge and y below the present place."""
        place = ((LEFT + x) / self.width, 1 - (self.down + y) / self.height)
        self.figure.text(*place, text, **{"va": "center", "color": INK, **style})

    def _legend_items(self) -> list[tuple[str, str]]:
        drawn = [bar for its_bars in self.bars for bar in its_bars]
        widest = max((bar.right - bar.left for bar in drawn if bar.kind == PREFILL), default=1) * self.scale.per_unit
        failed = [(FAILED, "step failed, nothing computed")] if any(bar.kind == FAILED for bar in drawn) else []
        return [
            (PREFILL, "prefill" if widest >= 4 else "prefill (the thin start of a bar)"),
            (DECODE, "decode"),
            (DEAD, "dead: finished, its slot still held"),
            ("empty", "empty slot"),
            *failed,
        ]

    def _draw_legend(self) -> None:
        height = LEGEND * len(self.legend)
        axes = self._axes("legend", height)
        axes.set(xlim=(0, self.inner), ylim=(height, 0))
        axes.axis("off")
        for line, items in enumerate(self.legend):
            y = LEGEND * (line + 0.5)
            for x, kind, text in items:
                axes.add_patch(rectangle(Bar(0, "", kind, 1, 1, x, x + SWATCH), PALETTE[0], y - 0.065, 0.13))
                if kind == DEAD:
                    axes.hlines(y, x, x + SWATCH, FLATLINE, lw=0.7)
                axes.text(x + SWATCH + 0.06, y, text, size=8, va="center_baseline", color=QUIET)


def _numbers(trace: Trace) -> str:
    return "   ·   ".join(numbers(trace))


def _flow(items: list[tuple[str, str]], width: float) -> Iterator[list[tuple[float, str, str]]]:
    """Legend entries in lines no wider than `width`, each as (x, kind, text)."""
    line, x = [], 0.0
    for kind, text in items:
        length = SWATCH + 0.06 + text_width(text, 8) / 72
        if line and x + length > width:
            yield line
            line, x = [], 0.0
        line.append((x, kind, text))
        x += length + 0.3
    yield line
