"""Simulations as tidy rows: one flat dict of plain values each, the same bytes wherever it was computed. Notebook 09.

A row has the fields of its `Scenario` (`knobs` as text), the targets, the fields of its `Result`, and in words what
it `missed` of the targets, what `strain` it showed and what `error` ended it; each of the three is "" if there is none.
"""

import csv
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from itertools import groupby
from pathlib import Path

from minibatch.simulate.objective import Objective
from minibatch.simulate.result import Result, summary
from minibatch.simulate.scenario import Scenario, simulate
from minibatch.simulate.streaming import StreamingTrace

MOST_RECOMPUTED = 0.1  # of all computed tokens: above it, article 3's "recálculos repetidos"
ENOUGH = 20  # samples of the queue in a third of the run, to say that it grows

OF_SCENARIO = tuple(field.name for field in fields(Scenario))
OF_RESULT = tuple(field.name for field in fields(Result))
COLUMNS = (*OF_SCENARIO, "slo", *OF_RESULT, "missed", "strain", "error")


def measure(scenario: Scenario, slo: Objective) -> dict:
    """Simulate, and say what came of it as a row. A simulation that raises is a row too, with its error."""
    row = dict.fromkeys(COLUMNS, "") | dict.fromkeys(OF_RESULT) | labels(scenario, slo)
    try:
        trace = simulate(scenario)
        return row | _numbers(trace) | {"missed": "; ".join(slo.missed(trace)), "strain": "; ".join(strain(trace))}
    except Exception as raised:  # whatever it is: the other simulations go on
        return row | {"error": f"{type(raised).__name__}: {raised}"}


def labels(scenario: Scenario, slo: Objective) -> dict:
    """What tells a row from others."""
    knobs = ", ".join(f"{name}={value!r}" for name, value in scenario.knobs)
    return asdict(replace(scenario, knobs=())) | {"knobs": knobs, "slo": str(slo)}


def key(row: dict) -> tuple:
    """The same as values to look it up by."""
    return tuple(row[name] for name in (*OF_SCENARIO, "slo"))


def meets(row: dict) -> bool:
    """True if the run met all targets, without strain."""
    return not (row["missed"] or row["strain"] or row["error"])


def why_not(row: dict) -> str:
    """All that speaks against this load."""
    return "; ".join(filter(None, (row["error"], row["missed"], row["strain"])))


def strain(trace: StreamingTrace) -> list[str]:
    """Signs that a load cannot be borne for long, though a run that ends may not have missed a target yet.

    The queue grows: over the last third of the time in which requests arrived it never emptied, and at its shortest
    was longer than on average in the third before. Or memory pressure makes the server compute much of its work again.
    """
    signs = []
    before, least = _queue(trace)
    if least > before:
        signs.append(f"the queue grows: {before:.0f} on average, then never fewer than {least}")
    again = summary(trace).recomputed_tokens / max(trace.computed_tokens, 1)
    if again > MOST_RECOMPUTED:
        signs.append(f"{again:.0%} of the tokens are computed again after {trace.preemptions} preemptions")
    return signs


def _queue(trace: StreamingTrace) -> tuple[float, int]:
    """Mean length in the middle third of the arrivals' time, least in the last; (0, 0) if too little is known."""
    arrivals = trace.column("arrival")
    span = float(arrivals.max()) - trace.first_arrival if len(arrivals) else 0.0
    if not span:
        return 0.0, 0
    thirds: dict[int, list[int]] = {1: [], 2: []}
    for third, samples in groupby(trace.samples, lambda one: int(3 * (one.time - trace.first_arrival) / span)):
        if third in thirds:
            thirds[third] = [one.waiting for one in samples]
    if min(map(len, thirds.values())) < ENOUGH:
        return 0.0, 0
    return sum(thirds[1]) / len(thirds[1]), min(thirds[2])


def _numbers(trace: StreamingTrace) -> dict:
    found = asdict(summary(trace))
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in found.items()}


def write_json(rows: Iterable[dict], path: str | Path) -> None:
    """A list of objects."""
    Path(path).write_text(json.dumps(list(rows), indent=1) + "\n", encoding="utf-8")


def write_csv(rows: Iterable[dict], path: str | Path) -> None:
    """A head and a line a row; None is an empty cell."""
    rows = list(rows)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def to_frame(rows: Iterable[dict]):
    """A pandas.DataFrame. Raises ImportError where pandas is not installed: the course does without it."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "pandas is not installed: python -m pip install pandas, or use the rows as they are"
        ) from error
    return pandas.DataFrame(list(rows))
