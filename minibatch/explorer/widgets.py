"""`Explorer`: the controls, and the pictures they change."""

import html
import io
from base64 import b64encode
from dataclasses import replace
from functools import cached_property

from matplotlib.figure import Figure
from PIL import Image

from minibatch.engine import EngineError
from minibatch.explorer.points import WIDTH, explore, knob_value, limit_of, memory_map, sliced, verdict, window
from minibatch.memory.arithmetic import MODELS
from minibatch.plot import alt, png, slots, slots_svg
from minibatch.plot.load import load_alt, load_curves
from minibatch.plot.output import picture
from minibatch.plot.player import WIDGET, fitted, say_missing
from minibatch.schedulers.systems import SYSTEMS, Knob, system
from minibatch.simulate import CARDS
from minibatch.simulate.rows import meets
from minibatch.simulate.scenario import TRACES, Scenario
from minibatch.simulate.slo import SLO, Target

LOOKED_AT, FEWEST, MOST = 120, 20, 400  # steps in the window
STILL_DPI = 75  # the still is stored in a notebook


class Explorer:
    """Show it as the last value of a cell. `view` is the widget (None where ipywidgets is missing).

    It begins with `scenario` and the targets `slo`, both changed by its controls. By keyboard: Tab reaches each, Space
    opens a list, arrow keys choose and slide. Beside the curves of a choice stand those of the one before it: change
    one thing at a time. Without a kernel a reader sees the still: its three pictures as they were made, one above the
    other.
    """

    def __init__(self, scenario: Scenario | None = None, slo: str = "ttft_p95=2,itl_p99=0.2"):
        self.scenario = sliced(scenario or Scenario(card="A100-40", model="OPT-13B"))
        self.slo = SLO.parse(slo)
        self.rows = explore(self.scenario, self.slo)
        self.before: list[dict] = []  # rows of the choice before this one
        self.view = None
        try:
            import ipywidgets
        except ImportError:
            say_missing()
            return
        self._make(ipywidgets)
        self._offer_knobs()
        self._show()

    def _make(self, kit) -> None:
        """All widgets, and what happens when they change."""
        small = {"style": {"description_width": "7em"}, "layout": kit.Layout(width="22em")}
        systems = [(row.label, name) for name, row in SYSTEMS.items()]
        lists = {"system": systems, "card": list(CARDS), "model": list(MODELS), "trace": list(TRACES)}
        self.choices = {
            field: kit.Dropdown(options=options, value=getattr(self.scenario, field), description=field, **small)
            for field, options in lists.items()
        }
        self.knob = kit.Dropdown(description="knob", **small)
        self.value = kit.Text(description="its value", continuous_update=False, **small)
        self.targets = [
            kit.BoundedFloatText(one.seconds, min=0.001, max=3600, step=0.05, description=f"{one.name}, s", **small)
            for one in self.slo.targets
        ]
        self.load = kit.Dropdown(description="load, req/s", **small)
        self.where = kit.FloatSlider(0.5, min=0, max=1, step=0.02, description="where", readout_format=".0%", **small)
        self.steps = kit.IntSlider(LOOKED_AT, min=FEWEST, max=MOST, step=FEWEST, description="steps", **small)
        self.about, self.said = kit.HTML(), kit.HTML()
        self.pictures = {name: kit.HTML() for name in ("curves", "slots", "memory")}
        self.tabs = kit.Tab(list(self.pictures.values()), titles=list(self.pictures))
        self._watch()
        rows = (self.choices.values(), (self.knob, self.value, *self.targets), (self.load, self.where, self.steps))
        what, how, which = (kit.HBox(list(row), layout=kit.Layout(flex_flow="row wrap")) for row in rows)
        self.view = kit.VBox([what, how, self.about, self.said, which, self.tabs])

    def _watch(self) -> None:
        self._busy = False  # True while the controls are set by the program
        self.choices["system"].observe(self._offer_knobs, "value")
        self.knob.observe(self._describe_knob, "value")
        for each in (*self.choices.values(), self.value, *self.targets):
            each.observe(self._changed, "value")
        for each in (self.load, self.where, self.steps):
            each.observe(self._draw, "value")
        self.tabs.observe(self._draw, "selected_index")

    def _offer_knobs(self, change: dict | None = None) -> None:
        """Those of the chosen system."""
        names = [knob.name for knob in system(self.choices["system"].value).knobs]
        self._busy = True
        self.knob.options, self.knob.value = names, names[0]
        self._busy = False
        self._describe_knob()

    def _describe_knob(self, change: dict | None = None) -> None:
        """Another knob begins at its default."""
        if self._busy:
            return
        knob = self._knob()
        note = f" ({knob.note})" if knob.note else ""
        self.about.value = html.escape(f"{knob.name} is {knob.theirs} there; default {knob.default!r}{note}")
        self.value.placeholder, self.value.value = repr(knob.default), ""

    def _knob(self) -> Knob:
        return next(one for one in system(self.choices["system"].value).knobs if one.name == self.knob.value)

    def _changed(self, change: dict | None = None) -> None:
        """Simulate what the controls say now. What cannot be is said in a sentence, and the pictures go."""
        if self._busy:
            return
        try:
            pairs = zip(self.slo.targets, self.targets)
            self.slo = SLO(tuple(Target(one.metric, one.p, box.value) for one, box in pairs))
            text, name = self.value.value.strip(), self.knob.value
            knobs = ((name, knob_value(text, self._knob().default)),) if text else ()
            chosen = {field: each.value for field, each in self.choices.items()}
            self.scenario = sliced(replace(self.scenario, knobs=knobs, **chosen))
            before, self.rows = self.rows, explore(self.scenario, self.slo, self._say)
            self.before = before or self.before
        except (ValueError, TypeError, EngineError) as wrong:
            self.before, self.rows = self.rows or self.before, []
            self._say(str(wrong))
        self._show()

    def _say(self, words: str) -> None:
        self.said.value = f'<p role="status">{html.escape(words)}</p>'

    def _show(self) -> None:
        """The verdict, the loads to choose from, and the picture of the tab that is open."""
        if self.rows:
            self._say(verdict(self.rows, self.slo))
            self._busy = True
            self.load.options = [(f"{row['rate']:g}", row["rate"]) for row in self.rows]
            self.load.value = self._first_too_much()
            self._busy = False
        self._draw()

    def _first_too_much(self) -> float:
        """The load to look into: the lowest that misses a target, or the highest of all."""
        return next((row["rate"] for row in self.rows if not meets(row)), self.rows[-1]["rate"])

    def _draw(self, change: dict | None = None) -> None:
        if self._busy:
            return
        name = list(self.pictures)[self.tabs.selected_index or 0]
        self.pictures[name].value = self._picture(name) if self.rows else ""

    def _picture(self, name: str) -> str:
        """One of the three as HTML, with its alt text."""
        if name == "curves":
            return _img(*self._curves())
        part = window(self.scenario.at(self.load.value), self.where.value, self.steps.value)
        if name == "slots":
            return fitted(slots_svg(part, row=max(12, min(26, 640 // part.num_slots))))
        return _img(*memory_map(part))

    def _curves(self) -> tuple[Figure, str]:
        """This choice, and the one before it to compare with."""
        lines = {"this choice": self.rows} | ({"the one before": self.before} if self.before else {})
        limits = {name: limit_of(rows) for name, rows in lines.items()}
        return load_curves(lines, limits, str(self.slo)), load_alt(lines, limits, str(self.slo))

    @cached_property
    def still(self) -> bytes:
        """The three pictures as a PNG, as they are when it is first asked for."""
        return self._still[0]

    @cached_property
    def _still(self) -> tuple[bytes, str]:
        part = window(self.scenario.at(self._first_too_much()), 0.5, LOOKED_AT)
        figures = [self._curves(), (slots(part, width=WIDTH, queue=False), alt(part)), memory_map(part)]
        words = " ".join([verdict(self.rows, self.slo), *(words for _, words in figures)])
        return _stacked([png(figure, STILL_DPI) for figure, _ in figures]), words

    def __repr__(self) -> str:
        return self._still[1]

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        data, metadata = picture(self.still, repr(self))
        if self.view is not None:
            data[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": self.view.model_id}
        return data, metadata


def _img(figure: Figure, words: str) -> str:
    source = b64encode(png(figure)).decode()
    shape = "max-width: 100%; height: auto"  # or a narrow window cuts its right edge off
    return f'<img style="{shape}" alt="{html.escape(words)}" src="data:image/png;base64,{source}">'


def _stacked(pictures: list[bytes]) -> bytes:
    """One above the other on white, in at most 64 colours."""
    images = [Image.open(io.BytesIO(each)).convert("RGB") for each in pictures]
    page = Image.new("RGB", (max(one.width for one in images), sum(one.height for one in images)), "white")
    down = 0
    for one in images:
        page.paste(one, (0, down))
        down += one.height
    small = io.BytesIO()
    page.quantize(64, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()
