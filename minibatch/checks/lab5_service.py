"""A chat service on a simulated card with little memory, and what it has promised. For lab 5.

An H100 that carries another model too: Llama-2-7B has 12,800 K/V positions left. The load is a stretch of Azure's
conversations of November 2023 (Splitwise, ISCA 2024), stretched in time to `RATE` requests a second. No client says
how long its answer will be: all allow `LIMIT` tokens. Up to 14 of a stretch are longer than that model's 4,096
positions, as in notebook 09; a cost model does not mind.
"""

import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from minibatch.checks.base import need
from minibatch.checks.lab5_door import END, ask
from minibatch.engine import Engine
from minibatch.memory import PagedMemory
from minibatch.request import Request, SamplingParams
from minibatch.schedulers import Scheduler
from minibatch.simulate import Deployment, Roofline, ScriptedExecutor
from minibatch.trace import StepRecord, Trace
from minibatch.workload import azure_trace, rescale

BLOCKS, BLOCK_SIZE, SLOTS = 800, 16, 64
COUNT, RATE, LIMIT = 120, 3.0, 1024  # requests, requests a second, tokens
TTFT, GAP, GOAL = 5.0, 0.2, 0.96  # seconds, seconds, share of all requests
MOST_STEPS = 30_000  # about 4,200 are needed
LONGEST = 20.0  # seconds: nobody may wait longer for a first token
STRETCHES = (18500, 6500, 1000)  # the first request of each


class Kept(NamedTuple):
    """How a promise was kept: shares of all requests."""

    share: float  # of those with their first token within TTFT and no gap above GAP
    late: float  # first token too late
    paused: float  # some gap too long


@lru_cache(maxsize=len(STRETCHES))
def stretch(first: int) -> tuple[list[Request], ScriptedExecutor]:
    """The requests of a stretch of the trace, and an executor that knows what they will write."""
    planned = rescale(azure_trace("conv")[first : first + COUNT], RATE)
    sampling, begin = SamplingParams(LIMIT, stop_token_ids=(END,)), planned[0].arrival
    named = {f"R{i}": one for i, one in enumerate(planned)}
    requests = [Request(name, (5,) * one.prompt_tokens, sampling, one.arrival - begin) for name, one in named.items()]
    answers = {name: [7] * (one.output_tokens - 1) + [END] for name, one in named.items()}
    cost = Roofline(Deployment("H100", "Llama-2-7B"), block_size=BLOCK_SIZE)
    return requests, ScriptedExecutor(answers, cost.seconds)


def run(compose: Callable[[PagedMemory], Scheduler], first: int) -> Trace:
    """A stretch under the scheduler that `compose(memory)` returns."""
    requests, executor = stretch(first)
    scheduler = _composed(compose, PagedMemory(BLOCKS, BLOCK_SIZE, events=False))

    def count(record: StepRecord) -> None:
        need(record.step < MOST_STEPS, f"{told}: not done after {MOST_STEPS:,} steps")

    told = f"from request {first} on, your scheduler"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of requests refused: said below
        trace = ask(lambda: Engine(scheduler, executor).run(requests, count), told)
    lost = len(requests) - len(trace.finished)
    need(not lost, f"{told} did not serve {lost} of {COUNT} requests; what was promised was promised to all")
    return trace


def kept(trace: Trace) -> Kept:
    """How the promise was kept."""
    records = list(trace.requests.values())
    late = {one.request_id for one in records if one.token_times[0] - one.arrival > TTFT}
    paused = {one.request_id for one in records if any(b - a > GAP for a, b in pairwise(one.token_times))}
    n = len(records)
    return Kept(1 - len(late | paused) / n, len(late) / n, len(paused) / n)


def check_promise(compose: Callable[[PagedMemory], Scheduler], first: int = STRETCHES[0]) -> None:
    """`compose(memory)`: a scheduler that keeps the promise on the stretch that begins at request `first`."""
    trace = run(compose, first)
    share, late, paused = kept(trace)
    good, least = round(COUNT * share), math.ceil(COUNT * GOAL)
    told = f"from request {first} on, {good} of {COUNT} requests had what was promised; {least} should"
    said = f"{late:.0%} waited over {TTFT:g} s for a first token, {paused:.0%} paused over {GAP:g} s"
    why = "who waits, and what for?" if late > paused else "who pauses, and what for?"
    need(good >= least, f"{told}. {said}: {why}")
    longest = max(trace.requests.values(), key=lambda one: one.token_times[0] - one.arrival)
    waited = longest.token_times[0] - longest.arrival
    told = f"from request {first} on, {longest.request_id} (prompt {longest.prompt_tokens}) waited {waited:.0f} s"
    need(waited <= LONGEST, f"{told} for a first token; nobody may wait more than {LONGEST:g} s, rare as it may be")


def check_other_days(compose: Callable[[PagedMemory], Scheduler], first: int = STRETCHES[0]) -> None:
    """The same promise on stretches that the reader has not seen."""
    for other in STRETCHES:
        if other != first:
            check_promise(compose, other)


def _composed(compose: Callable[[PagedMemory], Scheduler], memory: PagedMemory) -> Scheduler:
    """The reader's scheduler, fresh and on this memory."""
    got = ask(lambda: compose(memory), "compose(memory)")
    need(isinstance(got, Scheduler), f"compose(memory) returned {str(got)[:40]!r}: return a scheduler")
    need(got.memory is memory, "compose(memory): its scheduler has another memory than the one that it was given")
    need(got.max_num_seqs <= SLOTS, f"compose(memory): {got.max_num_seqs} slots; the card has activations for {SLOTS}")
    need(not got.running and not got.waiting, "compose(memory): this scheduler has been used before; make a new one")
    return got
