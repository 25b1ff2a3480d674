"""The record of a run that is too long to keep: sums and one row a request; whole steps in a window only.

Introduced in notebook 09. An hour of Azure's conversations is 19,366 requests, 4 million tokens and a hundred
thousand steps. What `trace.Trace` keeps of each step is what a picture needs, and nobody draws a hundred thousand.
"""

import math
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from minibatch.request import FinishReason, Sequence
from minibatch.simulate.histogram import Histogram
from minibatch.step import StepPlan
from minibatch.trace import MemoryUse, Trace

SERVED = (FinishReason.STOP, FinishReason.LENGTH)
COLUMNS = "arrival prompt_tokens output_tokens queue ttft tpot e2e preemptions cached_tokens".split()
MOST_SAMPLES = 2048


class StepDone(NamedTuple):
    """What a step leaves behind."""

    step: int
    end: float


class Sample(NamedTuple):
    """The server at the start of one step in every so many."""

    time: float
    waiting: int
    running: int
    kv_used: float  # share of the K/V positions that hold a token
    tokens: int  # computed in this step


class StreamingTrace:
    """Takes the place of a `Trace`: `Engine(scheduler, executor, trace=StreamingTrace.of(scheduler))`.

    `kept` is a `Trace` of the steps that ended within `window` (seconds), for pictures; its steps count from 1 again.
    `columns` has one number a request served to its end, in the order in which they ended. A request of one token
    has a TPOT of NaN. Everything else is a sum, so memory does not grow with steps or tokens.
    """

    def __init__(
        self, scheduler: str, num_slots: int, block_size: int | None, window: tuple[float, float] | None = None
    ):
        self.scheduler, self.window = scheduler, window or (math.inf, math.inf)
        self.kept = Trace(scheduler, num_slots, block_size)
        self.columns = {name: array("d") for name in COLUMNS}
        self.itl = Histogram()
        self.samples: list[Sample] = []
        self.every = 1  # a sample in so many steps
        self.ended: dict[str, int] = {}  # requests not served to their end, by reason
        self.steps = self.computed_tokens = self.dead_slot_steps = self.padding_tokens = 0
        self.live_slot_steps = self.peak_running = self.peak_waiting = self.preemptions = 0
        self.blocks_out = self.blocks_in = self.blocks_copied = 0
        self.queued_steps, self.kv_while_waiting = 0, np.zeros(3)  # used, reserved, capacity
        self.kv_always = np.zeros(3)
        self.first_arrival, self.end = math.inf, 0.0

    @classmethod
    def of(cls, scheduler, window: tuple[float, float] | None = None) -> "StreamingTrace":
        """One that fits a scheduler."""
        return cls(scheduler.name, scheduler.max_num_seqs, getattr(scheduler.memory, "block_size", None), window)

    def record_request(self, sequence: Sequence) -> None:
        """Note a request at submit, and again when it ends."""
        if sequence.request_id in self.kept.requests:
            self.kept.record_request(sequence)
        self.first_arrival = min(self.first_arrival, sequence.request.arrival)
        if not sequence.is_finished:
            return
        if sequence.finish_reason in SERVED:
            self._served(sequence)
        else:
            reason = sequence.finish_reason.value
            self.ended[reason] = self.ended.get(reason, 0) + 1

    def _served(self, sequence: Sequence) -> None:
        times, arrival = sequence.token_times, sequence.request.arrival
        n, ttft, e2e = len(times), times[0] - arrival, times[-1] - arrival
        row = (
            arrival,
            len(sequence.request.prompt),
            n,
            sequence.first_scheduled - arrival,
            ttft,
            (e2e - ttft) / (n - 1) if n > 1 else math.nan,
            e2e,
            sequence.preemptions,
            sequence.cached_tokens,
        )
        for column, value in zip(self.columns.values(), row):
            column.append(value)
        self.itl.add(np.diff(times))

    def record(
        self,
        plan: StepPlan,
        start: float,
        end: float,
        finished: Iterable[Sequence],
        waiting: int,
        memory: MemoryUse,
        error: BaseException | None = None,
        memory_events: tuple = (),
    ) -> StepDone:
        """Add up what one step did; inside the window, keep all of it."""
        running, tokens = len(plan.chunks), plan.num_tokens
        self.steps += 1
        self.end = end
        self.computed_tokens += tokens
        self.live_slot_steps += running
        self.dead_slot_steps += len(plan.dead)
        self.padding_tokens += plan.num_padding_tokens
        self.preemptions += len(plan.preempted)
        self.peak_running, self.peak_waiting = max(self.peak_running, running), max(self.peak_waiting, waiting)
        for move in plan.moves:
            self.blocks_out += move.kind == "out"
            self.blocks_in += move.kind == "in"
            self.blocks_copied += move.kind == "copy"
        self.kv_always += memory
        if waiting:
            self.queued_steps += 1
            self.kv_while_waiting += memory
        if self.steps % self.every == 0:
            self._sample(Sample(start, waiting, running, memory.used / memory.capacity, tokens))
        if self.window[0] <= end <= self.window[1]:
            for chunk in plan.rows:
                self.kept.record_request(chunk.sequence)
            self.kept.record(plan, start, end, finished, waiting, memory, error, memory_events)
        return StepDone(self.steps, end)

    def _sample(self, sample: Sample) -> None:
        self.samples.append(sample)
        if len(self.samples) == MOST_SAMPLES:
            self.samples = self.samples[1::2]
            self.every *= 2

    def column(self, name: str) -> np.ndarray:
        """One number for each request served to its end, float64[n]."""
        return np.array(self.columns[name])  # a copy: a view would forbid the array to grow

    def percentile(self, metric: str, p: float) -> float | None:
        """Nearest-rank, of "queue", "ttft", "tpot", "e2e" over requests or "itl" over all gaps; None of nothing."""
        if metric == "itl":
            return self.itl.percentile(p)
        if metric not in ("queue", "ttft", "tpot", "e2e"):
            raise ValueError(f"metric={metric!r}: choose one of queue, ttft, itl, tpot, e2e")
        if not 0 < p <= 100:
            raise ValueError(f"p={p!r}: a percentile lies above 0 and at most at 100")
        values = self.column(metric)
        ordered = np.sort(values[~np.isnan(values)])
        if not len(ordered):
            return None
        return float(ordered[max(math.ceil(round(p * len(ordered) / 100, 9)), 1) - 1])
