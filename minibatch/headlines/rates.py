"""How many requests a second: with a queue that never empties, and with a bound on what a client waits."""

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

import numpy as np

from minibatch.memory import ContiguousMemory
from minibatch.schedulers import IterationScheduler, Scheduler
from minibatch.simulate.result import summary
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.scenario import replay
from minibatch.simulate.streaming import StreamingTrace
from minibatch.workload import Planned, bare_requests, poisson, rescale

Build = Callable[[], Scheduler]
CLOSE = 0.02  # a rate is searched to this share of itself


class Rates(NamedTuple):
    """Requests a second."""

    saturated: float  # with a queue that never empties
    within: float  # the most at which the median of E2E / output tokens keeps to the bound

    @property
    def usable(self) -> float:
        """Share of the saturated rate that keeps to the bound."""
        return self.within / self.saturated


def rates(planned: list[Planned], build: Build, cost: Roofline, bound: float) -> Rates:
    """Both, of a scheduler that is built anew for each run; `bound` is in seconds a token."""
    most = saturated(planned, build, cost)
    return Rates(most, rate_within(bound, planned, build, cost, most))


def burst(planned: Iterable[Planned]) -> list[Planned]:
    """The same, all at second 0."""
    return [one._replace(arrival=0.0) for one in planned]


def at_random(planned: list[Planned], seed: int = 0) -> list[Planned]:
    """The same lengths in the same order, with Poisson arrivals."""
    return [one._replace(arrival=time) for one, time in zip(planned, poisson(1.0)(Random(seed), len(planned)))]


def saturated(planned: list[Planned], build: Build, cost: Roofline) -> float:
    """Requests a second if all wait from the start, between the first tenth served and the seventh.

    Neither the filling of the slots counts nor the end, where the last long answers run alone.
    """
    ends = np.sort(replay(bare_requests(burst(planned)), build(), cost).column("e2e"))
    first, last = len(ends) // 10, 7 * len(ends) // 10
    return float((last - first) / (ends[last] - ends[first]))


def unloaded(planned: list[Planned], cost: Roofline) -> float:
    """Seconds a token, the median of E2E / output tokens, of requests that each have the machine to themselves."""
    longest = max(one.prompt_tokens + one.output_tokens for one in planned)
    alone = [one._replace(arrival=1e4 * place) for place, one in enumerate(planned)]
    return per_token(replay(bare_requests(alone), IterationScheduler(1, ContiguousMemory(longest, longest)), cost))


def per_token(trace: StreamingTrace) -> float:
    """Median of E2E / output tokens, in seconds: the "normalized latency" of the Orca and vLLM papers."""
    return summary(trace).per_token_p50


def rate_within(bound: float, planned: list[Planned], build: Build, cost: Roofline, most: float) -> float:
    """The highest rate, by bisection up to 1.25 x `most`, at which the median request keeps to the bound.

    That may be a little more than is served for ever: in a finite run the queue has no time to grow. 0 where not even
    a hundredth of `most` does.
    """
    low, high = 0.0, 1.25 * most
    while high - low > CLOSE * high and high > most / 100:
        rate = (low + high) / 2
        if per_token(replay(bare_requests(rescale(planned, rate)), build(), cost)) <= bound:
            low = rate
        else:
            high = rate
    return low
