"""The page `figures/player.html`: the same twelve requests, served five ways, played on one axis.

Time is simulated, so any machine writes the same page. A step lasts as in a roofline in miniature: one second, for the
weights have to be read however little there is to compute, and longer only where it computes more than 16 tokens.
"""

from math import ceil

from minibatch.engine import Engine
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.metrics import latency, summarise
from minibatch.plot import player_page
from minibatch.request import Request, SamplingParams
from minibatch.schedulers import DynamicBatcher, IterationScheduler, Scheduler, StaticBatcher
from minibatch.schedulers.mix import Chunked
from minibatch.simulate.scripted import ScriptedExecutor
from minibatch.step import StepPlan
from minibatch.trace import Trace

SLOTS, LONGEST, BLOCK = 4, 80, 4  # K/V positions: a region's, a block's
TOKENS_A_SECOND, WINDOW = 16, 2
LENGTHS = {  # prompt and output in tokens, arrival in seconds
    "A": (6, 12, 0),
    "B": (8, 5, 0),
    "C": (4, 20, 1),
    "D": (5, 7, 5),
    "E": (64, 8, 6),
    "F": (7, 16, 7),
    "G": (6, 3, 8),
    "H": (4, 12, 9),
    "I": (5, 9, 10),
    "J": (48, 6, 13),
    "K": (8, 14, 14),
    "L": (6, 5, 15),
}
INTRO = (
    f"{len(LENGTHS)} requests on {SLOTS} slots with {LONGEST} K/V positions each; paged: {2 * SLOTS} slots on as many "
    f"positions. E and J bring long prompts ({LENGTHS['E'][0]} and {LENGTHS['J'][0]} tokens). Simulated: a step lasts "
    f"a second, and longer only if it computes more than {TOKENS_A_SECOND} tokens, padding included."
)
SENTENCES = {
    "static": "The batch waits until it is full, pads each prompt to the longest, and opens again once all have ended:",
    "dynamic": f"{WINDOW} s after its first request the batch closes, full or not; A, B and C start earlier:",
    "iteration-level": "Whoever ends leaves, the next enters at once; but all wait while E's prompt is computed:",
    "chunked": f"The same with at most {TOKENS_A_SECOND} tokens a step: E's prompt comes in chunks, the others go on:",
    "paged": f"The same with memory taken as it is needed, in blocks of {BLOCK} positions, so that more run at once:",
}


def five_ways() -> str:
    """The page as HTML."""
    traces = served()
    said = [f"{words} {_numbers(traces[name])}" for name, words in SENTENCES.items()]
    return player_page(traces, "The same requests, served five ways", "seconds", said, INTRO)


def served() -> dict[str, Trace]:
    """The five runs."""
    chunked = Chunked(TOKENS_A_SECOND)
    paged = PagedMemory(SLOTS * LONGEST // BLOCK, BLOCK)
    return {
        "static": _run(StaticBatcher(SLOTS, _regions())),
        "dynamic": _run(DynamicBatcher(SLOTS, _regions(), max_wait=WINDOW)),
        "iteration-level": _run(IterationScheduler(SLOTS, _regions())),
        "chunked": _run(IterationScheduler(SLOTS, _regions(), mix=chunked)),
        "paged": _run(IterationScheduler(2 * SLOTS, paged, mix=chunked)),
    }


def _run(scheduler: Scheduler) -> Trace:
    requests = [
        Request(name, (1,) * prompt, SamplingParams(output), arrival)
        for name, (prompt, output, arrival) in LENGTHS.items()
    ]
    return Engine(scheduler, ScriptedExecutor(seconds_per_step=_seconds)).run(requests)


def _regions() -> ContiguousMemory:
    return ContiguousMemory(SLOTS * LONGEST, LONGEST)


def _seconds(plan: StepPlan) -> int:
    tokens = sum(row.count for row in plan.rows) + plan.num_padding_tokens
    return max(1, ceil(tokens / TOKENS_A_SECOND))


def _numbers(trace: Trace) -> str:
    """What there is to see, counted."""
    summary, times = summarise(trace), {record.request_id: latency(record) for record in trace.finished}
    last = max(times, key=lambda name: times[name].ttft)
    gap = max(gap for each in times.values() for gap in each.itl)
    used, taken, _ = (sum(column) for column in zip(*(record.memory for record in trace.steps)))
    wait = f"{times[last].ttft:g}\u00a0s ({last})"
    return (
        f"{summary.dead_slot_steps} dead slot-steps, {summary.steps} steps in {summary.seconds:g}\u00a0s; longest gap "
        f"{gap:g}\u00a0s, longest wait for a first token {wait}; {used / taken:.0%} of the K/V taken is used."
    )
