"""Targets: what a client is to feel, as a percentile and a limit. Article 3: "defina a experiência". Notebook 09."""

from dataclasses import dataclass

from minibatch.simulate.streaming import StreamingTrace

METRICS = ("ttft", "itl", "tpot", "e2e", "queue")


@dataclass(frozen=True, slots=True)
class Target:
    """The p-th percentile of a metric must not be above so many seconds."""

    metric: str
    p: float
    seconds: float

    def __post_init__(self):
        if self.metric not in METRICS:
            raise ValueError(f"metric={self.metric!r}: choose one of {', '.join(METRICS)}")
        if not 0 < self.p <= 100:
            raise ValueError(f"p={self.p!r}: a percentile lies above 0 and at most at 100")
        if not self.seconds > 0:
            raise ValueError(f"seconds={self.seconds!r}: must be above 0")

    @property
    def name(self) -> str:
        """As `SLO.parse` reads it and a table's head shows it: ttft_p95."""
        return f"{self.metric}_p{self.p:g}"


@dataclass(frozen=True, slots=True)
class SLO:
    """Service-level objectives: all of these targets at once.

    >>> SLO.parse("ttft_p95=2,itl_p99=0.2").targets[1]
    Target(metric='itl', p=99.0, seconds=0.2)
    """

    targets: tuple[Target, ...]

    def __post_init__(self):
        if not self.targets:
            raise ValueError("slo: give at least one target, as in ttft_p95=2,itl_p99=0.2")

    @classmethod
    def parse(cls, text: str) -> "SLO":
        """Targets as metric_pNN=seconds, separated by commas. Raises ValueError that shows the form."""
        try:
            pairs = [part.strip().split("=") for part in text.split(",")]
            split = [(*name.strip().split("_p"), float(seconds)) for name, seconds in pairs]
            targets = [(metric, float(p), seconds) for metric, p, seconds in split]
        except ValueError as error:
            raise ValueError(f"slo={text!r}: write it as in ttft_p95=2,itl_p99=0.2 (seconds)") from error
        return cls(tuple(Target(*target) for target in targets))

    def missed(self, trace: StreamingTrace) -> list[str]:
        """In words, each target that a run missed; or that requests were not served, which no percentile tells."""
        lost = sum(trace.ended.values())
        if lost or not len(trace.column("ttft")):
            return [f"{lost} requests not served"]
        values = {target: trace.percentile(target.metric, target.p) for target in self.targets}
        return [
            f"{target.name} is {value:.3g} s, above {target.seconds:g} s"
            for target, value in values.items()
            if value is not None and value > target.seconds
        ]

    def __str__(self) -> str:
        return ",".join(f"{target.name}={target.seconds:g}" for target in self.targets)
