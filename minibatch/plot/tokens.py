"""`step_tokens`: how many tokens each step computes, and whose. Introduced in notebook 04."""

from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minibatch.plot.bars import DECODE, PREFILL, Bar, extent, last_step
from minibatch.plot.colours import FAILED_RED, RULE, Traces, ink, named, palette_of, tint
from minibatch.plot.labels import text_width
from minibatch.plot.page import SWATCH, Panel, Strip, Swatch, draw_page, inner_width, of_kind
from minibatch.plot.strips import Scale, rectangle
from minibatch.plot.words import plural
from minibatch.trace import StepRecord, Trace, Work

HEIGHT = 0.95  # of a panel's strip, inches
AIR = 0.06  # of a step, free at either side of its bar
FONT = 7  # points


def step_tokens(
    traces: Traces, budgets: dict[str, int] | None = None, title: str | None = None, width: float = 10.0
) -> Figure:
    """A bar a step, as high as the tokens it computes: decodes below, prompts hatched above, in the requests' colours.

    `budgets` maps a trace's name to its token budget, drawn as a dashed line. `traces` and `width` (inches) are as in
    `slots`; the axis is in steps.
    """
    inner, pairs, budgets = inner_width(width), named(traces), budgets or {}
    if unknown := sorted(budgets.keys() - {name for name, _ in pairs}):
        raise ValueError(f"budgets names {unknown}: the traces are {[name for name, _ in pairs]}")
    scale = Scale("steps", extent(traces), inner, last_step(traces), 0, palette_of(traces))
    most = max([sum(tokens(step)) for _, trace in pairs for step in trace.steps] + list(budgets.values()) + [1])
    panels = []
    for name, trace in pairs:
        draw = partial(_draw, scale=scale, trace=trace, most=most, budget=budgets.get(name))
        panels.append(Panel(name, tokens_numbers(trace), [Strip("tokens", HEIGHT, draw)]))
    line = [Swatch("token budget", _draw_budget)] if budgets else []
    return draw_page(panels, scale, [of_kind(DECODE, "decode"), of_kind(PREFILL, "prefill"), *line], width, title)


def tokens(record: StepRecord) -> tuple[int, int]:
    """Tokens that a step computed: of decodes, of prompts. One that failed computed none."""
    prompts = sum(work.count for work in record.live if work.prefill)
    return (0, 0) if record.error else (sum(work.count for work in record.live) - prompts, prompts)


def tokens_numbers(trace: Trace) -> list[str]:
    """What the picture says in numbers: steps, how many of them mix, the largest."""
    each = [tokens(step) for step in trace.steps]
    mixed = sum(decodes > 0 and prompts > 0 for decodes, prompts in each)
    largest = max((sum(pair) for pair in each), default=0)
    return [plural(len(each), "step"), f"{mixed} mixed", f"at most {plural(largest, 'token')} a step"]


def step_tokens_alt(traces: Traces, budgets: dict[str, int] | None = None) -> str:
    """The picture in words."""
    said = []
    for name, trace in named(traces):
        budget = f", budget {budgets[name]:,}" if name in (budgets or {}) else ""
        said.append(f"{name}: {', '.join(tokens_numbers(trace))}{budget}.")
    return "Tokens computed in each step, decodes below and prompts hatched above. " + " ".join(said)


def _draw(axes: Axes, scale: Scale, trace: Trace, most: int, budget: int | None) -> None:
    axes.set_ylim(0, 1.1 * most)
    axes.set_yticks([0, most], ["0 tokens", f"{most:,}"])
    axes.hlines([0, most], *scale.limits, RULE, lw=0.6, zorder=0.5)
    for record in trace.steps:
        for work, floor in _stacked(record):
            colour = scale.colours[work.request_id]
            bar = Bar(work.slot, work.request_id, PREFILL if work.prefill else DECODE, 0, 0, *_sides(record))
            axes.add_artist(rectangle(bar, colour, floor, work.count))
            high, wide = 72 * HEIGHT * work.count / (1.1 * most), (1 - 2 * AIR) * scale.per_unit
            if high > FONT + 1 and wide > 1.3 * text_width(work.request_id, FONT):
                _write(axes, work, (record.step - 0.5, floor + work.count / 2), colour)
    if budget is not None:
        axes.hlines(budget, *scale.limits, FAILED_RED, lw=1, ls="--")


def _stacked(record: StepRecord) -> list[tuple[Work, int]]:
    """Each work of a step with the number of tokens below it: decodes at the bottom."""
    found, floor = [], 0
    for work in sorted(() if record.error else record.live, key=lambda work: work.prefill):
        found.append((work, floor))
        floor += work.count
    return found


def _sides(record: StepRecord) -> tuple[float, float]:
    return record.step - 1 + AIR, record.step - AIR


def _write(axes: Axes, work: Work, place: tuple[float, float], colour: str) -> None:
    ground = tint(colour) if work.prefill else colour
    patch = {"facecolor": ground, "edgecolor": "none", "boxstyle": "square,pad=0.1"} if work.prefill else None
    axes.text(*place, work.request_id, size=FONT, ha="center", va="center_baseline", color=ink(ground), bbox=patch)


def _draw_budget(axes: Axes, x: float, y: float) -> None:
    axes.hlines(y, x, x + SWATCH, FAILED_RED, lw=1, ls="--")
