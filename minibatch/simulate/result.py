"""A simulation in one row of plain numbers. Introduced in notebook 09."""

import math
from dataclasses import dataclass

import numpy as np

from minibatch.simulate.streaming import StreamingTrace


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to. Seconds and rates on the emulated clock, from the first arrival to the end of the last step.

    Tokens a second count the output of requests served to their end, unless named otherwise. Percentiles are
    nearest-rank; those of ITL are off by at most 0.4 % (`Histogram`). None where there is nothing to measure.
    """

    n: int  # requests served to their end
    not_served: int  # refused, aborted, failed
    seconds: float
    steps: int
    prompt_tokens: int
    output_tokens: int
    requests_per_second: float
    tokens_per_second: float
    prompt_and_output_per_second: float  # as Anyscale's benchmark counts
    ttft_p50: float | None
    ttft_p95: float | None
    ttft_p99: float | None
    itl_p50: float | None
    itl_p99: float | None
    itl_max: float | None
    tpot_p50: float | None
    tpot_p99: float | None
    e2e_p50: float | None
    e2e_p95: float | None
    e2e_p99: float | None
    queue_p50: float | None
    queue_p95: float | None
    per_token_p50: float | None  # E2E / output tokens: the "normalized latency" of the Orca and vLLM papers
    per_token_mean: float | None
    mean_running: float  # sequences computed in a step
    peak_running: int
    peak_waiting: int
    kv_use: float | None  # share of the K/V positions that held a token, over the steps in which somebody waited
    kv_taken: float | None  # ... that were taken
    preemptions: int
    preempted_requests: int
    recomputed_tokens: int  # computed more than once, or for nobody: K and V thrown away by a preemption
    cached_tokens: int  # of prompts, found stored at admission
    dead_slot_steps: int
    blocks_swapped: int


def summary(trace: StreamingTrace) -> Result:
    """The numbers of a run that has ended."""
    prompt, output = trace.column("prompt_tokens"), trace.column("output_tokens")
    seconds = max(trace.end - trace.first_arrival, 0.0) if trace.steps else 0.0
    cached, preemptions = trace.column("cached_tokens"), trace.column("preemptions")
    per_token = trace.column("e2e") / output
    used, taken, capacity = trace.kv_while_waiting
    rate = (lambda count: float(count) / seconds) if seconds else (lambda count: math.nan)
    needed = (prompt + output - 1 - cached).sum()
    of = trace.percentile
    return Result(
        n=len(prompt),
        not_served=sum(trace.ended.values()),
        seconds=seconds,
        steps=trace.steps,
        prompt_tokens=int(prompt.sum()),
        output_tokens=int(output.sum()),
        requests_per_second=rate(len(prompt)),
        tokens_per_second=rate(output.sum()),
        prompt_and_output_per_second=rate(prompt.sum() + output.sum()),
        ttft_p50=of("ttft", 50),
        ttft_p95=of("ttft", 95),
        ttft_p99=of("ttft", 99),
        itl_p50=of("itl", 50),
        itl_p99=of("itl", 99),
        itl_max=trace.itl.largest if trace.itl.n else None,
        tpot_p50=of("tpot", 50),
        tpot_p99=of("tpot", 99),
        e2e_p50=of("e2e", 50),
        e2e_p95=of("e2e", 95),
        e2e_p99=of("e2e", 99),
        queue_p50=of("queue", 50),
        queue_p95=of("queue", 95),
        per_token_p50=float(np.sort(per_token)[(len(per_token) - 1) // 2]) if len(per_token) else None,
        per_token_mean=float(per_token.mean()) if len(per_token) else None,
        mean_running=trace.live_slot_steps / trace.steps if trace.steps else 0.0,
        peak_running=trace.peak_running,
        peak_waiting=trace.peak_waiting,
        kv_use=float(used / capacity) if capacity else None,
        kv_taken=float(taken / capacity) if capacity else None,
        preemptions=trace.preemptions,
        preempted_requests=int((preemptions > 0).sum()),
        recomputed_tokens=max(0, int(trace.computed_tokens - needed)),
        cached_tokens=int(cached.sum()),
        dead_slot_steps=trace.dead_slot_steps,
        blocks_swapped=trace.blocks_out + trace.blocks_in,
    )


def attainment(
    trace: StreamingTrace, ttft: float = math.inf, tpot: float = math.inf, e2e: float = math.inf
) -> float | None:
    """Share of all requests served within every target (DistServe). One of a single token has no TPOT to miss."""
    total = len(trace.column("ttft")) + sum(trace.ended.values())
    return _good(trace, ttft, tpot, e2e) / total if total else None


def goodput(trace: StreamingTrace, ttft: float = math.inf, tpot: float = math.inf, e2e: float = math.inf) -> float:
    """Requests a second served within every target, at this load (vLLM, GenAI-Perf): not DistServe's goodput."""
    seconds = trace.end - trace.first_arrival
    return _good(trace, ttft, tpot, e2e) / seconds if seconds > 0 else math.nan


def _good(trace: StreamingTrace, ttft: float, tpot: float, e2e: float) -> int:
    slow = (trace.column("ttft") > ttft) | (trace.column("tpot") > tpot) | (trace.column("e2e") > e2e)  # NaN > x: no
    return int((~slow).sum())
