"""What the experiments with whole systems share: one run, its load, and where a curve crosses a limit."""

import math
from collections.abc import Sequence

from minibatch.headlines.rates import at_random
from minibatch.schedulers.systems import system
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.scenario import replay
from minibatch.simulate.streaming import StreamingTrace
from minibatch.workload import Planned, bare_requests, rescale

# Host work a step, in seconds, of the vLLM that the papers of 2023 measured. Found, not read: with it the 13B of
# `goodput_both_ways` keeps to DistServe's targets up to the published 1.6 requests/s. Our default is 4 ms.
SLOW_HOST = 13e-3


def arriving(planned: list[Planned], rate: float, seed: int = 0) -> list[Planned]:
    """The same lengths, with Poisson arrivals of `rate` requests a second."""
    return rescale(at_random(planned, seed), rate)


def serve(
    name: str,
    planned: list[Planned],
    cost: Roofline,
    num_positions: int,
    max_model_len: int = 2048,
    whole: bool = False,
    **knobs: object,
) -> StreamingTrace:
    """Run a system of the table with the given memory; `whole` keeps every step (`trace.kept`)."""
    scheduler = system(name).build(num_positions, max_model_len, events=whole, **knobs)
    return replay(bare_requests(planned), scheduler, cost, (0.0, math.inf) if whole else None, max_model_len)


def crossing(curve: Sequence[tuple[float, float]], limit: float) -> float:
    """Where a curve of (x, y), in order of x, first passes the limit, up or down: between two points, by a line.

    Raises ValueError if it never does: there is nothing to read off.
    """
    for (x0, y0), (x1, y1) in zip(curve, curve[1:]):
        if (y0 <= limit) != (y1 <= limit):
            return x0 + (limit - y0) * (x1 - x0) / (y1 - y0)
    raise ValueError(f"limit={limit!r}: the curve from x = {curve[0][0]:g} to {curve[-1][0]:g} never passes it")
