"""What a trace says in numbers: TTFT, ITL, TPOT, E2E, percentiles, goodput, slots.

Definitions (introduced in notebook 00, used from notebook 02 on), all in seconds on the engine's clock:

* queue time: first scheduled - arrival.
* TTFT, time to first token: first token - arrival. It includes the queue.
* ITL, inter-token latency: every gap between consecutive tokens of a request; pooled over requests.
* TPOT, time per output token: (E2E - TTFT) / (n - 1); None for a single token.
* E2E: last token - arrival.
* goodput: requests per second that meet every target, at this load.

Arrival is the planned one. Percentiles are nearest-rank: an actual sample, never an interpolation.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from minibatch.trace import RequestRecord, Trace


def percentile(values: Iterable[float], p: float) -> float | None:
    """Nearest-rank percentile: the smallest sample with at least p % of the samples at or below it.

    >>> percentile([10, 20, 30], 50), percentile([10, 20], 50), percentile([], 50)
    (20, 10, None)
    """
    if not 0 < p <= 100:
        raise ValueError(f"p={p!r}: a percentile lies above 0 and at most at 100")
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(math.ceil(round(p * len(ordered) / 100, 9)), 1) - 1]


def too_few(n: int, p: float) -> bool:
    """True if n samples cannot tell this percentile from the maximum: p99 needs 100, p95 needs 20."""
    return round(n * (100 - p), 9) < 100


@dataclass(frozen=True, slots=True)
class Latency:
    """One finished request's times. `itl` holds n - 1 gaps."""

    queue: float
    ttft: float
    itl: tuple[float, ...]
    tpot: float | None
    e2e: float


def latency(record: RequestRecord) -> Latency:
    """The times of a request that produced at least one token."""
    times = record.token_times
    if not times:
        raise ValueError(f"request {record.request_id!r} produced no token ({record.finish_reason}): it has no latency")
    ttft, e2e = times[0] - record.arrival, times[-1] - record.arrival
    gaps = tuple(later - earlier for earlier, later in pairwise(times))
    tpot = (e2e - ttft) / len(gaps) if gaps else None
    return Latency(record.first_scheduled - record.arrival, ttft, gaps, tpot, e2e)


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one row. Rates count output tokens of requests served to their end ("useful")."""

    scheduler: str
    steps: int
    dead_slot_steps: int  # rows computed for finished sequences
    padding_tokens: int  # tokens computed for no sequence
    mean_live_slots: float
    useful_tokens: int
    seconds: float
    n: int  # requests served to their end
    ttft_p50: float | None
    ttft_p95: float | None
    itl_p50: float | None
    itl_p99: float | None
    e2e_p50: float | None
    e2e_p95: float | None

    @property
    def tokens_per_second(self) -> float:
        """Useful output tokens per second of the whole run."""
        return self.useful_tokens / self.seconds if self.seconds else math.nan


def summarise(trace: Trace) -> Summary:
    """The numbers of a whole run; the clock runs from the first arrival to the end of the last step."""
    steps = trace.steps
    served = trace.finished
    times = [latency(record) for record in served]
    start = min((record.arrival for record in trace.requests.values()), default=0.0)
    gaps = [gap for each in times for gap in each.itl]
    return Summary(
        scheduler=trace.scheduler,
        steps=len(steps),
        dead_slot_steps=sum(len(step.dead) for step in steps),
        padding_tokens=sum(step.padding_tokens for step in steps),
        mean_live_slots=sum(len(step.live) for step in steps if not step.error) / len(steps) if steps else 0.0,
        useful_tokens=sum(len(record.tokens) for record in served),
        seconds=steps[-1].end - start if steps else 0.0,
        n=len(served),
        ttft_p50=percentile([each.ttft for each in times], 50),
        ttft_p95=percentile([each.ttft for each in times], 95),
        itl_p50=percentile(gaps, 50),
        itl_p99=percentile(gaps, 99),
        e2e_p50=percentile([each.e2e for each in times], 50),
        e2e_p95=percentile([each.e2e for each in times], 95),
    )


def goodput(trace: Trace, ttft: float = math.inf, tpot: float = math.inf, e2e: float = math.inf) -> float:
    """Requests per second that meet every target given, as vLLM and GenAI-Perf count it (not DistServe's).

    A request of a single token has no TPOT and so cannot miss that target.
    """
    seconds = summarise(trace).seconds
    times = [latency(record) for record in trace.finished]
    good = sum(each.ttft <= ttft and (each.tpot is None or each.tpot <= tpot) and each.e2e <= e2e for each in times)
    return good / seconds if seconds else math.nan


def kv_use_while_waiting(trace: Trace) -> tuple[float, float] | None:
    """Shares of the K/V pool that held a token, and that were taken: averages over the steps in which somebody waited.

    None if nobody ever did: an empty pool without a queue is no waste.
    """
    uses = [step.memory for step in trace.steps if step.waiting]
    if not uses:
        return None
    used, taken, capacity = (sum(column) for column in zip(*uses))
    return used / capacity, taken / capacity


def idle_while_waiting(trace: Trace) -> float | None:
    """Share of the K/V pool that held no token, on average over the steps in which somebody waited; None if nobody did.

    What an admission that asks for too much costs (article 2: "superestimar deixa a fila desnecessariamente faminta").
    """
    use = kv_use_while_waiting(trace)
    return 1 - use[0] if use else None


def recomputed_tokens(trace: Trace) -> int:
    """Tokens computed again after a preemption: positions of a request that an earlier step had computed already."""
    reached: dict[str, int] = {}  # request id -> the end of what has been computed
    again = 0
    for step in trace.steps:
        for work in () if step.error else step.live:
            end, before = work.start + work.count, reached.get(work.request_id, work.start)
            again += max(0, min(before, end) - work.start)
            reached[work.request_id] = max(before, end)
        for request_id in step.finished:
            reached.pop(request_id, None)  # the id may come again, for another request
    return again


def dead_slot_factor(lengths: Sequence[int], batch_size: int) -> float:
    """E[longest of a batch] / mean length: how many times the steps a static batch needs, against no waste.

    Closed form for `batch_size` lengths drawn independently from `lengths`: the maximum is at most the
    i-th smallest of m values with probability (i / m) ** batch_size. Article 1 calls the waste "slots mortos".

    >>> round(dead_slot_factor(range(1, 129), 8), 2)
    1.77
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r}: must be at least 1")
    ordered = sorted(lengths)
    m = len(ordered)
    if not m:
        raise ValueError("lengths is empty")
    expected = sum(x * ((i / m) ** batch_size - ((i - 1) / m) ** batch_size) for i, x in enumerate(ordered, 1))
    return expected / (sum(ordered) / m)


def tokens_sha256(trace: Trace) -> str:
    """A fingerprint of every output token, request by request in id order: equal if and only if the texts are."""
    digest = hashlib.sha256()
    for request_id in sorted(trace.requests):
        digest.update(f"{request_id}:{','.join(map(str, trace.requests[request_id].tokens))}\n".encode())
    return digest.hexdigest()
