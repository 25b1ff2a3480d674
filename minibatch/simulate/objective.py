"""What a run is held to: an `SLO`, or DistServe's share of requests within limits. Introduced in notebook 09."""

import math
from dataclasses import dataclass
from typing import Protocol

from minibatch.simulate.result import attainment
from minibatch.simulate.slo import SLO
from minibatch.simulate.streaming import StreamingTrace


class Objective(Protocol):
    """What a run is held to; `str()` of it names it. An `SLO`, or an `Attainment`."""

    def missed(self, trace: StreamingTrace) -> list[str]:
        """In words, each part of it that a run missed."""


def objective_of(slo: str | Objective) -> Objective:
    """Targets from text, as `SLO.parse` reads it, or as they are."""
    return SLO.parse(slo) if isinstance(slo, str) else slo


@dataclass(frozen=True, slots=True)
class Attainment:
    """DistServe's objective (Zhong et al., OSDI 2024): a `share` of all requests within both limits, in seconds."""

    share: float = 0.9
    ttft: float = math.inf
    tpot: float = math.inf

    def __post_init__(self):
        if not 0 < self.share <= 1:
            raise ValueError(f"share={self.share!r}: a share of the requests, above 0 and at most 1")
        for field in ("ttft", "tpot"):
            if not getattr(self, field) > 0:
                raise ValueError(f"{field}={getattr(self, field)!r}: must be seconds above 0")

    def missed(self, trace: StreamingTrace) -> list[str]:
        """The share that was reached, if it is too small."""
        reached = attainment(trace, self.ttft, self.tpot) or 0.0
        within = f"TTFT {self.ttft:g} s and TPOT {self.tpot:g} s"
        return (
            []
            if reached >= self.share
            else [f"{reached:.1%} of the requests are within {within}, not {self.share:.0%}"]
        )

    def __str__(self) -> str:
        return f"attainment={self.share:g},ttft={self.ttft:g},tpot={self.tpot:g}"
