"""What the explorer computes: points of a curve, a limit, a window of a run. No widgets here."""

import math
from ast import literal_eval
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache
from statistics import mean

from matplotlib.figure import Figure

from minibatch.plot import memory, memory_alt
from minibatch.plot.pool import pool, pool_alt
from minibatch.plot.window import cut
from minibatch.simulate import Deployment, Roofline, StreamingTrace, summary
from minibatch.simulate.rows import labels, meets, strain, why_not
from minibatch.simulate.scenario import Scenario, simulate
from minibatch.simulate.slo import SLO
from minibatch.trace import Trace

SHARES = (0.12, 0.25, 0.45, 0.75, 1.1)  # of `ceiling`: the loads that are tried, until two in a row are too much
SLICE = {"mooncake": 20}  # requests of each trace: these prompts are ten times as long
REQUESTS = 100
WIDTH = 9.0  # inches


def ceiling(scenario: Scenario) -> float:
    """Requests a second that the card could end if its memory were always full: arithmetic, no run.

    So many sequences live that their K and V fill the pool, each halfway through its answer; in each step every one of
    them writes a token, and as many prompts enter as answers end.
    """
    deployment, planned = Deployment(scenario.card, scenario.model, scenario.tensor_parallel), scenario.planned()
    prompt, output = mean(one.prompt_tokens for one in planned), mean(one.output_tokens for one in planned)
    live = max(1.0, min((scenario.kv_tokens or deployment.kv_tokens) / (prompt + output / 2), len(planned)))
    entering = live / output
    held, tokens = live * (prompt + output / 2), live + entering * prompt
    pairs = held + entering * prompt**2 / 2
    return entering / Roofline(deployment).computing(tokens, held + entering * prompt, pairs)


@lru_cache(maxsize=256)
def run(scenario: Scenario) -> StreamingTrace:
    """One simulation, kept: about 40 KB each."""
    return simulate(scenario)


@lru_cache(maxsize=2)
def whole_run(scenario: Scenario) -> Trace:
    """The same with every step in it, to look into."""
    return simulate(scenario, window=(0.0, math.inf)).kept


def point(scenario: Scenario, slo: SLO) -> dict:
    """A row, as a sweep has them."""
    trace = run(scenario)
    against = {"missed": "; ".join(slo.missed(trace)), "strain": "; ".join(strain(trace)), "error": ""}
    return labels(scenario, slo) | asdict(summary(trace)) | against


def sliced(scenario: Scenario) -> Scenario:
    """The same with as many requests of its trace as can be simulated while somebody waits."""
    return replace(scenario, requests=SLICE.get(scenario.trace, REQUESTS))


def explore(scenario: Scenario, slo: SLO, tell: Callable[[str], None] = lambda words: None) -> list[dict]:
    """Rows from a low load upwards, until two in a row miss the targets. `tell` hears which load is being simulated."""
    top, rows = ceiling(scenario), []
    for share in SHARES:
        rate = float(f"{share * top:.2g}")
        tell(f"Simulating {rate:g} requests/s…")
        rows.append(point(scenario.at(rate), slo))
        if len(rows) > 2 and not any(map(meets, rows[-2:])):
            break
    return rows


def limit_of(rows: list[dict]) -> float | None:
    """The highest load below all that miss their targets; None if the lowest does."""
    good = next((place for place, row in enumerate(rows) if not meets(row)), len(rows))
    return rows[good - 1]["rate"] if good else None


def verdict(rows: list[dict], slo: SLO) -> str:
    """The limit, and what stops the next load, in a sentence."""
    limit, bad = limit_of(rows), next((row for row in rows if not meets(row)), None)
    if bad is None:
        return f"All these loads meet {slo}; the highest is {limit:g} requests/s."
    stop = f"at {bad['rate']:g} requests/s {why_not(bad)}"
    return f"No load meets {slo}: {stop}." if limit is None else f"{limit:g} requests/s meet {slo}; {stop}."


def window(scenario: Scenario, where: float, steps: int) -> Trace:
    """So many steps of a run, from `where` on (a share of what can be its beginning)."""
    trace = whole_run(scenario)
    first = 1 + round(where * max(len(trace.steps) - steps, 0))
    return cut(trace, first, min(first + steps - 1, len(trace.steps)))


def memory_map(trace: Trace) -> tuple[Figure, str]:
    """Who holds the memory, and the picture in words: a block map, or how full it is where there are no blocks."""
    if trace.block_size:
        return pool(trace, width=WIDTH), pool_alt(trace)
    return memory(trace, width=WIDTH), memory_alt(trace)


def knob_value(text: str, default: object) -> object:
    """What was typed, as Python reads it, or as a word. Raises ValueError where a number is wanted and is none."""
    try:
        value = literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if isinstance(default, (int, float)) and not isinstance(value, (int, float)):
        raise ValueError(f"{text!r}: this knob takes a number, or True or False; its default is {default!r}")
    return value
