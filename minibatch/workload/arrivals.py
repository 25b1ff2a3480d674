"""When: each function returns a sampler that draws n arrivals; `rescale` brings given ones to another rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from minibatch.workload.check import check, is_finite

if TYPE_CHECKING:
    from minibatch.workload.planned import Planned

Arrivals = Callable[[Random, int], list[float]]  # draws n planned arrivals in seconds, in order


def burst() -> Arrivals:
    """Everybody at second 0."""
    return lambda rng, n: [0.0] * n


def poisson(rate: float) -> Arrivals:
    """Independent clients, `rate` requests per second together: gamma(rate, burstiness=1)."""
    return gamma(rate, burstiness=1.0)


def gamma(rate: float, burstiness: float) -> Arrivals:
    """Gamma-distributed gaps, with vLLM's `--burstiness` as shape: 1 is Poisson, below 1 comes in bursts.

    As in vLLM the gaps are rescaled so that the last of n requests comes at n / `rate` seconds: the mean rate
    holds exactly, whatever the seed. Before that the gaps' coefficient of variation is 1 / sqrt(burstiness).
    """
    check(is_finite(rate) and rate > 0, "rate", rate, "must be a finite number of requests per second above 0")
    check(is_finite(burstiness) and burstiness > 0, "burstiness", burstiness, "must be a finite number above 0")

    def draw(rng: Random, n: int) -> list[float]:
        gaps = [rng.gammavariate(burstiness, 1.0) for _ in range(n)]
        total, seconds, times = sum(gaps), n / rate, []
        check(n == 0 or total > 0, "burstiness", burstiness, f"too small: all {n} gaps came out as 0")
        elapsed = 0.0
        for gap in gaps:
            elapsed += gap
            times.append(min(elapsed / total, 1.0) * seconds)
        return times

    return draw


def rescale(planned: Iterable[Planned], rate: float) -> list[Planned]:
    """The same requests at another load: all gaps stretched alike, so that `rate` requests come in a second on average.

    The mean rate is that between the first and the last arrival: n - 1 gaps. Bursts stay bursts. Raises ValueError
    where all come at once, for no stretching gives these a rate.
    """
    check(is_finite(rate) and rate > 0, "rate", rate, "must be a finite number of requests per second above 0")
    planned = list(planned)
    times = [one.arrival for one in planned]
    span = max(times, default=0.0) - min(times, default=0.0)
    check(span > 0, "rate", rate, f"cannot be reached: the {len(planned)} requests all arrive at once; draw arrivals")
    factor = (len(planned) - 1) / rate / span
    return [one._replace(arrival=one.arrival * factor) for one in planned]
