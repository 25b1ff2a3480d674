"""The page every figure over time shares: panels from top to bottom, one time axis for all of them, a legend.

Everything is placed in inches, so the same trace gives the same picture everywhere.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minibatch.plot.bars import AXES, Bar
from minibatch.plot.colours import EMPTY, INK, PALETTE, QUIET
from minibatch.plot.labels import text_width
from minibatch.plot.strips import Scale, draw_time, rectangle

LEFT, RIGHT, TOP, BOTTOM = 0.86, 0.18, 0.08, 0.06  # margins, inches
TITLE, HEADER, SECOND_LINE, TIME, LEGEND, GAP = 0.30, 0.27, 0.17, 0.42, 0.22, 0.12
SWATCH = 0.26
NARROWEST = 5.0


class Strip(NamedTuple):
    """A part of a panel: `draw` is given axes `height` inches high, `gap` inches below the strip before it."""

    label: str
    height: float
    draw: Callable[[Axes], None]
    gap: float = 0.0


class Panel(NamedTuple):
    """One trace: its name, what its heading says of it, its strips."""

    name: str
    numbers: Sequence[str]
    strips: list[Strip]

    @property
    def heading(self) -> str:
        """The numbers, as they stand right of the name or under it."""
        return "   ·   ".join(self.numbers)


class Swatch(NamedTuple):
    """A legend entry: `draw(axes, x, y)` draws it `SWATCH` wide and around height y; inches."""

    text: str
    draw: Callable[[Axes, float, float], None]


def of_kind(kind: str, text: str) -> Swatch:
    """The legend entry of a kind of bar."""

    def draw(axes: Axes, x: float, y: float) -> None:
        axes.add_patch(rectangle(Bar(0, "", kind, 1, 1, x, x + SWATCH), PALETTE[0], y - 0.065, 0.13))

    return Swatch(text, draw)


@contextmanager
def own_style() -> Iterator[None]:
    """matplotlib's defaults, whatever the notebook has set: a picture depends on its trace alone."""
    kept = ("font.", "text.", "axes.", "xtick.", "ytick.", "patch.", "hatch.", "lines.", "figure.", "savefig.", "path.")
    with matplotlib.rc_context({k: v for k, v in matplotlib.rcParamsDefault.items() if k.startswith(kept)}):
        matplotlib.rcParams.update({"hatch.linewidth": 1.1, "text.parse_math": False})  # an id may hold a $
        yield


def inner_width(width: float, axis: str = "steps") -> float:
    """Inches between the margins. Refuses a page too narrow for its words, and an axis that does not exist."""
    if axis not in AXES:
        raise ValueError(f"axis={axis!r}: must be one of {', '.join(map(repr, AXES))}")
    if width < NARROWEST:
        raise ValueError(f"width={width!r}: must be at least {NARROWEST:g} inches, else the words do not fit")
    return width - LEFT - RIGHT


def draw_page(
    panels: list[Panel], scale: Scale, swatches: Sequence[Swatch], width: float, title: str | None = None
) -> Figure:
    """The figure, `width` inches wide; its height follows from the strips'."""
    with own_style():
        return _Page(panels, scale, swatches, width, title).draw()


class _Page:
    """One figure, laid out from top to bottom. Lengths in inches; `down` is how far it has come."""

    def __init__(self, panels: list[Panel], scale: Scale, swatches: Sequence[Swatch], width: float, title: str | None):
        self.panels, self.scale, self.width, self.title = panels, scale, width, title
        self.inner = scale.inches
        self.legend = list(_flow(swatches, self.inner))
        self.two_lines = any(not self._one_line(panel) for panel in panels)
        self.height = self._height()
        self.figure = Figure(figsize=(self.width, self.height), facecolor=EMPTY)
        self.down = TOP

    def _one_line(self, panel: Panel) -> bool:
        return (text_width(panel.name, 10, bold=True) + text_width(panel.heading, 8.5)) / 72 + 0.3 <= self.inner

    def _height(self) -> float:
        panels = sum(map(self._panel_height, self.panels))
        return TOP + TITLE * bool(self.title) + panels - GAP + TIME + LEGEND * len(self.legend) + BOTTOM

    def _panel_height(self, panel: Panel) -> float:
        first, *others = panel.strips
        below = sum(strip.gap + strip.height for strip in others)
        return HEADER + SECOND_LINE * self.two_lines + below + GAP + first.height

    def draw(self) -> Figure:
        """Everything, once."""
        if self.title:
            self._text(0.0, 0.16, self.title, size=12, weight="bold")
            self.down += TITLE
        for panel in self.panels:
            self._heading(panel)
            for strip in panel.strips:
                self.down += strip.gap
                lowest = self._strip(strip)
            self.down += GAP
        draw_time(lowest, self.scale)
        self.down += TIME - GAP
        self._draw_legend()
        return self.figure

    def _heading(self, panel: Panel) -> None:
        self._text(0.0, 0.14, panel.name, size=10, weight="bold")
        x, y, side = (0.0, 0.14 + SECOND_LINE, "left") if self.two_lines else (self.inner, 0.14, "right")
        size = min(8.5, 8.2 * self.inner * 72 / text_width(panel.heading, 8.5))
        self._text(x, y, panel.heading, size=size, color=QUIET, ha=side)
        self.down += HEADER + SECOND_LINE * self.two_lines

    def _strip(self, strip: Strip) -> Axes:
        """New axes at the present place, on the common time axis, drawn."""
        axes = self._axes(strip.label, strip.height)
        axes.set(xlim=self.scale.limits, facecolor="none")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=7, labelcolor=QUIET, pad=3, labelbottom=False)
        self.down += strip.height
        strip.draw(axes)
        return axes

    def _axes(self, label: str, height: float) -> Axes:
        bottom = 1 - (self.down + height) / self.height
        box = (LEFT / self.width, bottom, self.inner / self.width, height / self.height)
        return self.figure.add_axes(box, label=label)

    def _text(self, x: float, y: float, text: str, **style) -> None:
        """Text at x right of the axes' left edge and y below the present place."""
        place = ((LEFT + x) / self.width, 1 - (self.down + y) / self.height)
        self.figure.text(*place, text, **{"va": "center", "color": INK, **style})

    def _draw_legend(self) -> None:
        height = LEGEND * len(self.legend)
        axes = self._axes("legend", height)
        axes.set(xlim=(0, self.inner), ylim=(height, 0))
        axes.axis("off")
        for line, entries in enumerate(self.legend):
            y = LEGEND * (line + 0.5)
            for x, swatch in entries:
                swatch.draw(axes, x, y)
                axes.text(x + SWATCH + 0.06, y, swatch.text, size=8, va="center_baseline", color=QUIET)


def _flow(swatches: Sequence[Swatch], width: float) -> Iterator[list[tuple[float, Swatch]]]:
    """Legend entries in lines no wider than `width`, each with its x."""
    line, x = [], 0.0
    for swatch in swatches:
        length = SWATCH + 0.06 + text_width(swatch.text, 8) / 72
        if line and x + length > width:
            yield line
            line, x = [], 0.0
        line.append((x, swatch))
        x += length + 0.3
    yield line
