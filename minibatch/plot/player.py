"""`Player`: step through a run with a play button and a slider.

The picture is `slots_svg` in an HTML widget: about 30 ms a step in JupyterLab, where a matplotlib figure takes over
100. The output also carries a still PNG and its alt text, which is what a viewer without a kernel shows.
"""

from functools import cache, cached_property

from minibatch.plot.colours import Traces
from minibatch.plot.figure import slots
from minibatch.plot.output import picture, png
from minibatch.plot.svg import SlotsSvg
from minibatch.plot.words import alt

MISSING = (
    "ipywidgets is not installed, so there is no slider here, only the still picture. "
    "To step through the run: pip install ipywidgets, then restart the kernel."
)
WIDGET = "application/vnd.jupyter.widget-view+json"


class Player:
    """Show it as the last value of a cell. `view` is the widget (None where ipywidgets is missing).

    `start` is the first step shown (None: step 1), `interval` the milliseconds a step while playing. `cell` and `row`
    are those of `slots_svg`; `row=44` serves a projector. Arrow keys move the slider.
    """

    def __init__(
        self,
        traces: Traces,
        start: int | None = None,
        interval: int = 150,
        cell: float | None = None,
        row: int = 26,
    ):
        self.traces, self.drawing = traces, SlotsSvg(traces, cell, row)
        first, last = min(1, self.drawing.steps), self.drawing.steps
        start = first if start is None else start
        svg = self.drawing.at(start)  # refuses a step that is not there
        try:
            import ipywidgets
        except ImportError:
            self.view = None
            say_missing()
            return
        self.play = ipywidgets.Play(min=first, max=last, value=start, interval=interval)
        self.slider = ipywidgets.IntSlider(min=first, max=last, value=start, description="step")
        self.slider.layout.width = "32em"
        self.picture = ipywidgets.HTML(value=fitted(svg))
        ipywidgets.link((self.play, "value"), (self.slider, "value"))
        self.slider.observe(self._draw, "value")
        self.view = ipywidgets.VBox([ipywidgets.HBox([self.play, self.slider]), self.picture])

    def _draw(self, change: dict) -> None:
        self.picture.value = fitted(self.drawing.at(change["new"]))

    @cached_property
    def still(self) -> bytes:
        """The whole run as a PNG."""
        return png(slots(self.traces))

    def __repr__(self) -> str:
        return alt(self.traces)

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        data, metadata = picture(self.still, repr(self))
        if self.view is not None:
            data[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": self.view.model_id}
        return data, metadata


def fitted(svg: str) -> str:
    """Shrinks to a narrow window, where the names at its right edge would be cut off."""
    return svg.replace("<svg ", '<svg style="max-width: 100%; height: auto" ', 1)


@cache
def say_missing() -> None:
    """Once a process, that a widget would stand here."""
    print(MISSING)
