"""One simulation, said in words: which system serves which trace on which card. Introduced in notebook 09."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from minibatch.engine import Engine
from minibatch.memory.placement import next_power_of_two
from minibatch.request import Request
from minibatch.schedulers import Scheduler
from minibatch.schedulers.systems import system
from minibatch.simulate.cards import Deployment, known
from minibatch.simulate.executor import SimulatedExecutor
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.streaming import StreamingTrace
from minibatch.workload import (
    Planned,
    alpaca_like,
    azure_trace,
    bare_requests,
    mooncake_requests,
    mooncake_trace,
    poisson,
    rescale,
    sharegpt_like,
)


def _arriving(lengths: Callable[[int, int], list[Planned]]) -> Callable[[int, int], list[Planned]]:
    """Lengths alone, with Poisson arrivals of one request a second."""

    def planned(n: int, seed: int) -> list[Planned]:
        ones = lengths(n, seed)
        return [one._replace(arrival=time) for one, time in zip(ones, poisson(1.0)(Random(f"{seed} arrivals"), n))]

    return planned


TRACES: dict[str, Callable[[int | None, int], list[Planned]]] = {
    "azure-conv": lambda n, seed: azure_trace("conv")[:n],
    "azure-code": lambda n, seed: azure_trace("code")[:n],
    "mooncake": lambda n, seed: mooncake_trace()[:n],
    "sharegpt": lambda n, seed: _arriving(sharegpt_like)(1000 if n is None else n, seed),
    "alpaca": lambda n, seed: _arriving(alpaca_like)(1000 if n is None else n, seed),
}


@dataclass(frozen=True)
class Scenario:
    """A simulation that can be sent to another process, and that gives the same numbers there.

    `rate` stretches the trace's arrivals to so many requests a second on average, their pattern unchanged; None is as
    recorded. `requests` takes the first so many. `knobs` are those of the system, by our names. `kv_tokens` and
    `max_model_len` (positions a request may have) follow from the card and the trace unless they are given.
    """

    system: str = "vllm-v1"
    card: str = "A100-80"
    model: str = "Llama-3-8B"
    tensor_parallel: int = 1
    trace: str = "azure-conv"
    rate: float | None = None
    requests: int | None = None
    seed: int = 0
    knobs: tuple[tuple[str, object], ...] = ()
    kv_tokens: int | None = None
    max_model_len: int | None = None

    def at(self, rate: float) -> "Scenario":
        """The same at another load."""
        return replace(self, rate=rate)

    def planned(self) -> list[Planned]:
        """Its requests, by their lengths. Raises ValueError for a trace that nobody knows."""
        known("trace", self.trace, TRACES)
        return _planned(self.trace, self.rate, self.requests, self.seed)


@lru_cache(maxsize=4)
def _planned(trace: str, rate: float | None, requests: int | None, seed: int) -> list[Planned]:
    planned = _recorded(trace, requests, seed)
    return planned if rate is None else rescale(planned, rate)


@lru_cache(maxsize=4)
def _recorded(trace: str, requests: int | None, seed: int) -> list[Planned]:
    """Read once, for the many loads of a sweep."""
    return TRACES[trace](requests, seed)


def simulate(scenario: Scenario, window: tuple[float, float] | None = None) -> StreamingTrace:
    """Run it. Steps that end within `window`, in seconds, are kept whole. Raises ValueError for what nobody knows."""
    row = system(scenario.system)
    deployment = Deployment(scenario.card, scenario.model, scenario.tensor_parallel)
    planned = scenario.planned()
    positions = scenario.kv_tokens or deployment.kv_tokens
    longest = max((one.prompt_tokens + one.output_tokens for one in planned), default=1)
    max_model_len = scenario.max_model_len or min(next_power_of_two(longest), positions)
    scheduler = row.build(positions, max_model_len, events=window is not None, **dict(scenario.knobs))
    cost = Roofline(deployment, block_size=getattr(scheduler.memory, "block_size", 16))
    shares_prefixes = scenario.trace == "mooncake" and getattr(scheduler.memory, "prefix_cache", False)
    requests = mooncake_requests(planned) if shares_prefixes else bare_requests(planned)
    return replay(requests, scheduler, cost, window, max_model_len)


def replay(
    requests: Iterable[Request],
    scheduler: Scheduler,
    cost: Roofline,
    window: tuple[float, float] | None = None,
    max_model_len: int | None = None,
) -> StreamingTrace:
    """Serve requests by a scheduler, each step as long as `cost` says. Who is turned away is counted in the trace."""
    trace = StreamingTrace.of(scheduler, window)
    engine = Engine(scheduler, SimulatedExecutor(cost, max_model_len), trace=trace)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*request\(s\) refused")  # counted
        engine.run(requests)
    return trace
