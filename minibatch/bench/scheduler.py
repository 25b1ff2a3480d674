"""What a scheduling step costs: decode-only steps of many sequences over paged memory, without a model.

The cost should follow what changes. Nearly nothing does in a decode step, so what is left is one look at each running
sequence; the size of the pool must not matter at all.
"""

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from minibatch.memory import PagedMemory
from minibatch.request import Request, SamplingParams
from minibatch.request import Sequence as Served
from minibatch.schedulers import IterationScheduler
from minibatch.step import StepResult

RUNNING = (16, 256, 1024, 4096)
BLOCKS = (1_000, 100_000, 1_000_000)
BLOCK_SIZE = 16
STEPS = 30  # in which each sequence fills a block or two
MOST_BLOCKS = -(-(BLOCK_SIZE + STEPS) // BLOCK_SIZE)  # a sequence holds at the end


@dataclass(frozen=True, slots=True)
class SchedulerRow:
    """Microseconds of one decode step: deciding it (`schedule`), and entering what came of it (`update`); medians."""

    running: int
    blocks: int
    prefix_cache: bool
    us_schedule: float
    us_update: float
    us_per_step: float  # both


def bench_scheduler(running: Sequence[int] = RUNNING, blocks: Sequence[int] = BLOCKS) -> Iterator[SchedulerRow]:
    """A row for each number of sequences, size of pool, and prefix cache off and on; as they are measured.

    A pool in which so many sequences do not fit has no row.
    """
    if min(*running, *blocks) < 1:
        raise ValueError(f"running={running!r}, blocks={blocks!r}: each must be at least 1")
    for count in running:
        for size in blocks:
            if count * MOST_BLOCKS <= size:
                yield measure_scheduler(count, size, prefix_cache=False)
                yield measure_scheduler(count, size, prefix_cache=True)


def measure_scheduler(running: int, blocks: int, prefix_cache: bool) -> SchedulerRow:
    """Time decode steps of `running` sequences, whose prompts of 1 to 16 tokens let them fill a block in turn."""
    memory = PagedMemory(blocks, BLOCK_SIZE, prefix_cache)
    scheduler = IterationScheduler(running, memory)
    for index in range(running):
        prompt = tuple(range(index, index + 1 + index % BLOCK_SIZE))
        scheduler.submit(Served(Request(str(index), prompt, SamplingParams(max_new_tokens=2 * STEPS))))
    times = []
    gc.collect()
    gc.disable()  # a collection in the middle of a step would be counted as the step's
    try:
        for _ in range(STEPS):
            times.append(_step(scheduler))
    finally:
        gc.enable()
    schedule, update = (1e6 * median(column) for column in zip(*times[1:]))  # the first step is all prefills
    both = schedule + update
    return SchedulerRow(running, blocks, prefix_cache, round(schedule, 1), round(update, 1), round(both, 1))


def _step(scheduler: IterationScheduler) -> tuple[float, float]:
    started = time.perf_counter()
    plan = scheduler.schedule(now=0.0)
    decided = time.perf_counter()
    scheduler.memory.take_events()
    result = StepResult((0,) * len(plan.chunks), seconds=1.0)
    computed = time.perf_counter()
    scheduler.update(plan, result, now=0.0)
    return decided - started, time.perf_counter() - computed


def format_scheduler_table(rows: Sequence[SchedulerRow]) -> str:
    """The rows as text."""
    head = f"{'running':>8} {'blocks':>10} {'prefix cache':>13} {'schedule':>9} {'update':>9} {'step':>9}"
    head += f" {'a sequence':>11}"
    lines = ["microseconds of a decode step: to decide it, to enter its result, both, and both for each sequence", head]
    for row in rows:
        cache, each = "on" if row.prefix_cache else "off", row.us_per_step / row.running
        times = f"{row.us_schedule:9,.0f} {row.us_update:9,.0f} {row.us_per_step:9,.0f} {each:11.2f}"
        lines.append(f"{row.running:8,} {row.blocks:10,} {cache:>13} {times}")
    return "\n".join(lines)
