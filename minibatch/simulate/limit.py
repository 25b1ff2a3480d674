"""The load that an endpoint can carry within its targets: article 3's four steps as a function. Notebook 09.

1. Define the experience: an `SLO`. 2. Replay a representative set: a `Scenario`, its arrivals stretched to a load.
3. Record throughput together with queue and latency: a row (`rows.measure`). 4. Keep the highest load that still
meets the targets: bisection, with the reason why not more.
"""

import math
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from minibatch.simulate.objective import Attainment, Objective, objective_of
from minibatch.simulate.rows import measure, meets, why_not
from minibatch.simulate.scenario import Scenario
from minibatch.simulate.sweep import Job, check, drive

UP, DOWN = 2.0, 4.0  # factors between loads while the limit is not bracketed
BURST = 0.05  # arrivals within this share of the run: a higher load would hardly be another
ALONE = 1.05  # sequences in a step, on average: below, and with hardly a wait, a lower load changes nothing
WAIT = 0.05  # of TTFT p95
STEADY = 5  # times as long as the median request takes: arrivals shorter than that end before the server is full
LEAST = 1e-3  # of the first load: no search goes lower


@dataclass(frozen=True, slots=True)
class Limit:
    """`rate` is the highest load found to meet the targets, in requests/s; 0 if none does. `reason` says why not more.

    `bounded` is False if no load that was tried failed: then the limit lies higher. `rows` are all loads tried.
    """

    scenario: Scenario
    slo: str
    rate: float
    reason: str
    bounded: bool
    rows: tuple[dict, ...]  # by load

    @property
    def at(self) -> dict | None:
        """The row of the limit itself: what throughput and latency it comes with. None if no load meets the targets."""
        return next((row for row in self.rows if row["rate"] == self.rate), None)

    @property
    def is_short(self) -> bool:
        """True if too few requests were replayed to fill the server at this load: with more, the limit may be lower."""
        return self.rate > 0 and self.at["n"] / self.rate < STEADY * self.at["e2e_p50"]


def operating_limit(
    scenario: Scenario,
    slo: str | Objective,
    low: float | None = None,
    high: float | None = None,
    precision: float = 0.05,
    on_point: Callable[[dict], None] | None = None,
) -> Limit:
    """The highest load that a system carries within its targets, to within a share `precision`. Deterministic.

    The search starts at `low` requests/s (by default at the trace's own rate), doubles until a load fails or `high` is
    reached, or goes down until one passes, then bisects. A load fails if it misses a target, does not serve a request,
    lets the queue grow or computes a tenth of its work again (`rows.strain`). Once a load has passed, it is taken for
    granted that above one that fails all fail. Where `low` is given, nothing below it is tried. `on_point` is shown
    each row.

    Raises ValueError for what is wrong at first sight, SimulationFailed for a simulation that raised.
    """
    slo = objective_of(slo)
    search, row = limit_search(scenario, slo, low, high, precision), None
    while True:
        try:
            wanted = search.send(row)
        except StopIteration as end:
            return end.value
        row = measure(wanted, slo)
        if row["error"]:
            raise SimulationFailed(f"{wanted}: {row['error']}")
        if on_point:
            on_point(row)


def highest_rate_with(
    scenario: Scenario, share: float = 0.9, ttft: float = math.inf, tpot: float = math.inf, **options
) -> Limit:
    """DistServe's goodput: the highest rate at which `share` of the requests meet both targets (seconds).

    Not what vLLM's and GenAI-Perf's benchmarks call goodput (`result.goodput`), which is of one load. `options` are
    those of `operating_limit`.
    """
    return operating_limit(scenario, Attainment(share, ttft, tpot), **options)


def operating_limits(
    scenarios: Iterable[Scenario],
    slo: str | Objective,
    executor: Executor | None = None,
    progress: bool = True,
    resume: str | Path | None = None,
    precision: float = 0.05,
) -> list[Limit]:
    """`operating_limit` of each, side by side; executor, progress and resume as for `sweep.sweep`.

    One that fails has a limit of 0 with the error as its reason; the others go on.
    """
    slo = objective_of(slo)
    searches = [limit_search(scenario, slo, precision=precision) for scenario in scenarios]
    return drive(searches, slo, executor, progress, resume, unit="system")


def limit_search(
    scenario: Scenario, slo: Objective, low: float | None = None, high: float | None = None, precision: float = 0.05
) -> Job[Limit]:
    """The search alone: yields the scenario it wants to know about, is sent its row, returns the `Limit`."""
    check(scenario)
    if not 0.001 <= precision <= 1:
        raise ValueError(f"precision={precision!r}: a share of the limit, 0.001 to 1")
    for name, rate in (("low", low), ("high", high)):
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError(f"{name}={rate!r}: must be a finite number of requests per second above 0")
    if low and high and low > high:
        raise ValueError(f"low={low!r}, high={high!r}: low must not be above high")
    return _Search(scenario, low, high, precision).run(str(slo))


def limit_among(scenario: Scenario, slo: str | Objective, rows: Iterable[dict]) -> Limit:
    """The same of loads that were simulated already (`sweep.sweep`): the highest of them that meets the targets."""
    found = {row["rate"]: row for row in rows}
    search = _Search(scenario, None, max(found), 1.0)
    search.rows = found
    good = max((rate for rate, row in found.items() if meets(row)), default=0.0)
    return search.limit(str(objective_of(slo)), good, min((rate for rate in found if rate > good), default=None))


class SimulationFailed(RuntimeError):
    """A simulation of a search raised; the text says at which load, and what."""


class _Search:
    """Where a search stands. `rows` by load."""

    def __init__(self, scenario: Scenario, low: float | None, high: float | None, precision: float):
        self.scenario, self.low, self.high, self.precision = scenario, low, high, precision
        self.rows: dict[float, dict] = {}

    def run(self, slo: str) -> Job[Limit]:
        """Bracket, then bisect."""
        try:
            good, bad = yield from self._bracket()
            while good and bad and bad / good > 1 + self.precision:
                middle = math.sqrt(good * bad)
                if (yield from self._meets(middle)):
                    good = middle
                else:
                    bad = middle
        except SimulationFailed as failed:
            return Limit(self.scenario, slo, 0.0, str(failed), True, self._sorted())
        return self.limit(slo, good, bad)

    def limit(self, slo: str, good: float, bad: float | None) -> Limit:
        """The answer: `good` is the highest load that passed, `bad` the least above it that failed."""
        found = Limit(self.scenario, slo, good, self._reason(good, bad), bad is not None, self._sorted())
        if not (found.is_short and found.bounded):
            return found
        n, takes = found.at["n"], found.at["e2e_p50"]
        short = f"{n} requests within {n / good:.3g} s, when one takes {takes:.2g} s, hardly fill the server: take more"
        return replace(found, reason=f"{found.reason}; {short}")

    def _sorted(self) -> tuple[dict, ...]:
        return tuple(self.rows[rate] for rate in sorted(self.rows))

    def _meets(self, rate: float) -> Generator[Scenario, dict, bool]:
        row = self.rows[rate] = yield self.scenario.at(rate)
        if row["error"]:
            raise SimulationFailed(f"failed at {rate:.3g}/s: {row['error']}")
        return meets(row)

    def _bracket(self) -> Generator[Scenario, dict, tuple[float, float | None]]:
        """A load that passes (0: none does) and a higher one that fails (None: none does)."""
        start = self.low or min(_recorded_rate(self.scenario), self.high or math.inf)
        if (yield from self._meets(start)):
            return (yield from self._climb(start))
        lower = start
        while not self.low and not self._is_alone(lower) and lower > LEAST * start:
            lower /= DOWN
            if (yield from self._meets(lower)):
                return lower, lower * DOWN
        higher = start
        while higher != self.high and self._may_pass_above(higher):
            higher = min(UP * higher, self.high or math.inf)
            if (yield from self._meets(higher)):
                return (yield from self._climb(higher))
        return 0.0, start

    def _climb(self, good: float) -> Generator[Scenario, dict, tuple[float, float | None]]:
        while good != self.high and not self._is_a_burst(good):
            rate = min(UP * good, self.high or math.inf)
            if not (yield from self._meets(rate)):
                return good, rate
            good = rate
        return good, None

    def _is_a_burst(self, rate: float) -> bool:
        row = self.rows[rate]
        return row["n"] / rate < BURST * row["seconds"]

    def _is_alone(self, rate: float) -> bool:
        """Requests hardly meet. Or nothing was served at all, which a lower load does not change either."""
        row = self.rows[rate]
        if not row["n"]:
            return True
        return row["mean_running"] <= ALONE and row["queue_p95"] <= WAIT * row["ttft_p95"]

    def _may_pass_above(self, rate: float) -> bool:
        """A batch that waits until it is full is slowest where little comes: perhaps more requests help."""
        least, row = self.rows[min(self.rows)], self.rows[rate]
        if row["strain"] or not (row["n"] and least["n"]) or self._is_a_burst(rate):
            return False
        return least["ttft_p95"] > row["ttft_p95"]

    def _reason(self, good: float, bad: float | None) -> str:
        if bad is None:
            n = self.rows[good]["n"]
            if good == self.high:
                return f"none found: {good:.3g}/s, the highest load asked for, meets the targets"
            return f"none found: {n} requests are too few to load it, even within {n / good:.3g} s; take more"
        if good:
            return f"at {bad:.3g}/s {why_not(self.rows[bad])}"
        least, most = min(self.rows), max(self.rows)
        tried = f"{least:.3g}/s" if least == most else f"{least:.3g} to {most:.3g}/s"
        return f"none of {tried} meets the targets: at {least:.3g}/s {why_not(self.rows[least])}"


def _recorded_rate(scenario: Scenario) -> float:
    """Requests a second of the trace as it is; 1 where all come at once."""
    planned = scenario.planned()
    span = planned[-1].arrival - planned[0].arrival
    return (len(planned) - 1) / span if span > 0 else 1.0
