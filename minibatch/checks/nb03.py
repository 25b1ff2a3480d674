"""Checks for the exercises of notebook 03: when answers end, live slots, a queue that static batching hates."""

import heapq
import math
import numbers
from collections.abc import Callable

from minibatch.checks.base import call, expect, need

_RUNS = [  # lengths, arrivals, slots
    ([2, 4, 2], [0, 0, 0], 2),
    ([9, 1, 5, 1], [0, 0, 0, 0], 2),
    ([3, 3, 3], [0, 1, 2], 1),
    ([5, 2], [0, 1], 2),
    ([4, 4, 1], [0, 3, 10], 8),
    ([1, 6, 2, 2, 7, 1], [0, 0, 0, 4, 4, 5], 3),
    ([20, 3, 3, 3], [2, 2, 2, 2], 2),
    ([1, 1, 1, 8, 1, 5, 2, 2], [0, 0, 1, 1, 1, 1, 30, 30], 2),
    ([4, 4, 9, 1], [0, 0, 1, 1], 2),
]


def check_finish_steps(function: Callable) -> None:
    """`function(lengths, arrivals, num_slots)`: the step in which each answer ends, iteration-level, FCFS."""
    for lengths, arrivals, slots in _RUNS:
        expect(function, lengths, arrivals, slots, want=_finish(lengths, arrivals, slots), hint=_finish_hint)


def _finish(lengths: list[int], arrivals: list[int], slots: int) -> list[int]:
    """Who comes first takes the slot that is free first."""
    free, ends = [0] * slots, []
    for length, arrival in zip(lengths, arrivals):
        ends.append(max(heapq.heappop(free), arrival) + length)
        heapq.heappush(free, ends[-1])
    return ends


def _finish_hint(got: object, lengths: list[int], arrivals: list[int], slots: int) -> str:
    if not isinstance(got, (list, tuple)) or not all(isinstance(end, numbers.Real) for end in got):
        return "return a list of steps, one for each request, in order of arrival"
    if len(got) != len(lengths):
        return "one step for each request is wanted, in order of arrival"
    want = _finish(lengths, arrivals, slots)
    if sorted(got) == sorted(want):
        return "these are the right steps, but they belong to the requests in order of arrival"
    for end, length, arrival in zip(got, lengths, arrivals):
        if end < arrival + length:
            return "an answer ends too early: it needs a step for each token, the first of them after its arrival"
    if any(sum(end - length < step <= end for end, length in zip(got, lengths)) > slots for step in range(1, 60)):
        return "more sequences than slots take part in one step"
    if [end - length for end, length in zip(got, lengths)] != sorted(end - length for end, length in zip(got, lengths)):
        return "a later request starts before an earlier one; the queue is first come, first served"
    late = next(index for index, pair in enumerate(zip(got, want)) if pair[0] != pair[1])
    return f"request {late} (counting from 0) starts late: a slot is free again in the step after its answer ended"


def check_mean_live_slots(function: Callable) -> None:
    """`function(lengths, num_slots)`: live slots on average over all steps, everybody there at the start."""
    cases = [
        ([2, 4, 2], 2),
        ([9, 1, 1, 1], 2),
        ([5, 5, 5, 5], 2),
        ([7], 4),
        ([10, 1, 1, 3, 1, 1, 1], 3),
        ([2, 2, 2], 2),
    ]
    cases += [([3, 8, 1, 1, 1, 6, 2, 2, 9], 4), (list(range(1, 40)), 8)]
    for lengths, slots in cases:
        steps = max(_finish(lengths, [0] * len(lengths), slots))
        expect(function, lengths, slots, want=sum(lengths) / steps, hint=_live_hint)


def _live_hint(got: object, lengths: list[int], slots: int) -> str:
    if not isinstance(got, numbers.Real):
        return "return one number"
    total, n = sum(lengths), len(lengths)

    def equals(value: float) -> bool:
        return math.isclose(got, value, rel_tol=1e-9)

    if got > slots:
        return "more live slots than there are"
    if equals(total / _static(lengths, slots)):
        return "that is the static batcher; here a slot goes to the next as soon as its answer ends"
    if equals(total / (slots * max(_finish(lengths, [0] * n, slots)))):
        return "that is a share; the number of slots is wanted"
    if equals(slots) or equals(min(slots, n)) or equals(total / math.ceil(total / slots)):
        return "at the end the queue is empty, and slots stay empty while the last answers run"
    return "each token of an answer is one slot live in one step; over how many steps?"


def check_hard_queue(function: Callable) -> None:
    """`function(num_slots)`: lengths on which static batching needs at least ten times the steps."""
    for slots in (12, 16, 40, 64):
        got = call(function, slots)
        got = got.tolist() if hasattr(got, "tolist") else got
        where = f"with {slots} slots"
        need(isinstance(got, (list, tuple)), f"{where}: return a list of lengths")
        whole = all(isinstance(x, numbers.Integral) and not isinstance(x, bool) for x in got)
        need(whole, f"{where}: every length is a whole number of tokens")
        need(0 < len(got) <= 5000, f"{where}: the queue has {len(got)} answers; from 1 to 5,000 are allowed")
        need(min(got) >= 1 and max(got) <= 5000, f"{where}: an answer has from 1 to 5,000 tokens")
        static, iteration = _static(got, slots), max(_finish(got, [0] * len(got), slots))
        said = f"{where}: static {static} steps, iteration-level {iteration}: {static / iteration:.1f} times"
        need(static >= 10 * iteration, f"{said}. How many batches should a long answer be in, and beside whom?")


def _static(lengths: list[int], slots: int) -> int:
    return sum(max(lengths[i : i + slots]) for i in range(0, len(lengths), slots))
