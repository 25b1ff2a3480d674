"""`player_page`: one HTML file that plays a run, or several on one axis, in any browser: no kernel, network or library.

The page is `data/player.html`, whose script draws what `slots_svg` draws; here the runs become the numbers it needs.
"""

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import groupby

from minibatch.plot.bars import (
    DEAD,
    DECODE,
    FAILED,
    PREFILL,
    Bar,
    arrivals,
    bars,
    cells,
    extent,
    last_step,
    preemptions,
    span,
    waiting,
)
from minibatch.plot.colours import (
    DEAD_GREY,
    EMPTY,
    FAILED_RED,
    FLATLINE,
    INK,
    PALETTE,
    QUIET,
    RULE,
    TAKEN,
    USED,
    Traces,
    ink,
    named,
    palette_of,
    tint,
)
from minibatch.plot.svg import BESIDE_CURSOR, FUTURE
from minibatch.plot.words import alt, listing, numbers
from minibatch.trace import Trace

KINDS = (PREFILL, DECODE, DEAD, FAILED)
COLOURS = {
    "colours": PALETTE,
    "tints": [tint(colour) for colour in PALETTE],
    "inks": [ink(colour) for colour in PALETTE],
    "dead": DEAD_GREY,
    "flatline": FLATLINE,
    "empty": EMPTY,
    "future": FUTURE,
    "ink": INK,
    "quiet": QUIET,
    "rule": RULE,
    "failed": FAILED_RED,
    "used": USED,
    "taken": TAKEN,
}


def player_page(
    traces: Traces,
    title: str | None = None,
    axis: str = "steps",
    sentences: Sequence[str] | None = None,
    intro: str = "",
) -> str:
    """The HTML of a player: play and pause, a slider, arrow keys, speed, for a projector or beside an article.

    `traces` is one Trace or several (a list, or a dict that names them), one below the other on one axis, "steps" or
    "seconds" (on the engine's clock). A sentence stands under each: its numbers, unless `sentences` says otherwise.
    `intro` is a paragraph under the title. It opens on the last step; with "#12" behind its address, on step 12. Raises
    ValueError for runs of no step.
    """
    pairs = named(traces)
    if not last_step(traces):
        raise ValueError("traces: no step has run, so there is nothing to play")
    said = [", ".join(numbers(trace)) + "." for _, trace in pairs] if sentences is None else list(sentences)
    if len(said) != len(pairs):
        raise ValueError(f"sentences: {len(said)} for {len(pairs)} traces; give one each")
    title = f"{listing([name for name, _ in pairs])}, step by step" if title is None else title
    page = (files("minibatch") / "data" / "player.html").read_text(encoding="utf-8")
    data = json.dumps(_data(traces, axis, said), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    parts = {
        "title": escape(title),
        "intro": f"<p>{escape(intro)}</p>" if intro else "",
        "noscript": f"<p>{escape(alt(traces))}</p>",
        "data": data.replace("<", "\\u003c"),  # nothing in it can end the script element
    }
    before, *pieces = page.split("{{")
    for piece in pieces:  # in one pass, so that a title may hold {{data}}
        name, _, after = piece.partition("}}")
        before += parts[name] + after
    return before


def _data(traces: Traces, axis: str, sentences: Sequence[str]) -> dict:
    pairs, colours = named(traces), palette_of(traces)
    ids = list(colours)
    kinds = {bar.kind for _, trace in pairs for bar in bars(trace)}
    lost = any(record.preempted for _, trace in pairs for record in trace.steps)
    legend = [kind for kind in KINDS if kind in kinds] + ["empty"] + ["preempted"] * lost
    legend += ["K/V used", "K/V taken"] * any(_takes_memory(trace) for _, trace in pairs)
    ends = sorted({_short(span(record, axis)[1]) for _, trace in pairs for record in trace.steps})
    return {
        "axis": axis,
        "at": ends,
        "extent": [_short(end) for end in extent(traces, axis)],
        "digits": 0 if all(end == int(end) for end in ends) else 2,
        "ids": ids,
        "colour": [PALETTE.index(colour) for colour in colours.values()],  # of each id
        "palette": COLOURS,
        "legend": legend,
        "most": max((part.count for _, trace in pairs for part in waiting(trace, axis)), default=0),
        "widest": _widest(traces),
        "traces": [_of(name, trace, axis, ids, words) for (name, trace), words in zip(pairs, sentences)],
    }


def _of(name: str, trace: Trace, axis: str, ids: list[str], sentence: str) -> dict:
    """One run. Places on the axis begin each entry of `queue` and `memory`, which hold until the next."""
    number = {request_id: place for place, request_id in enumerate(ids)}
    spans = [[_short(end) for end in span(record, axis)] for record in trace.steps] if axis == "seconds" else None
    queue = [(_short(part.left), part.count) for part in waiting(trace, axis)]
    memory = [(_short(span(record, axis)[0]), *_shares(record.memory)) for record in trace.steps]
    return {
        "name": name,
        "slots": trace.num_slots,
        "steps": len(trace.steps),
        "spans": spans,
        "bars": [_bar(bar, number) for bar in bars(trace, axis)],
        "queue": _changes(queue),
        "memory": _changes(memory) if _takes_memory(trace) else [],
        "arrivals": [(number[request_id], _short(at)) for request_id, at in arrivals(trace, axis).items()],
        "crosses": [(one.slot, _short(one.at)) for one in preemptions(trace, axis)],
        "lost": {record.step: record.preempted for record in trace.steps if record.preempted},
        "sentence": sentence,
    }


def _takes_memory(trace: Trace) -> bool:
    return any(record.memory.reserved for record in trace.steps)


def _bar(bar: Bar, number: dict[str, int]) -> tuple[int, int, int, int, int]:
    return bar.slot, number[bar.request_id], KINDS.index(bar.kind), bar.first, bar.last


def _shares(memory: Sequence[int]) -> tuple[int, int]:
    """K/V positions that hold a token, and that are taken, in percent of all."""
    used, taken, capacity = memory
    return (round(100 * used / capacity), round(100 * taken / capacity)) if capacity else (0, 0)


def _changes(entries: list[tuple]) -> list[tuple]:
    """Only the entries that differ from the one before in more than their place."""
    return [next(group) for _, group in groupby(entries, key=lambda entry: entry[1:])]


def _widest(traces: Traces) -> int:
    """Characters of the longest text right of the cursor."""
    beside = {
        BESIDE_CURSOR[kind].format(request_id)
        for _, trace in named(traces)
        for record in trace.steps
        for request_id, kind in cells(record).values()
    }
    return max(map(len, beside), default=0)


def _short(value: float) -> float:
    """A tenth of a millisecond is exact enough; a whole number is written as one."""
    rounded = round(value, 4)
    return int(rounded) if rounded == int(rounded) else rounded
