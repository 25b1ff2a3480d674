"""Right and wrong answers to the exercises of notebook 03. Read by tests/test_checks.py, which says the format."""

import heapq
import math

from minibatch import Engine, Request, SamplingParams
from minibatch.checks.nb03 import check_finish_steps, check_hard_queue, check_mean_live_slots
from minibatch.metrics import summarise
from minibatch.schedulers import IterationScheduler, StaticBatcher
from minibatch.simulate import ScriptedExecutor

NOTEBOOK = "03_iteration_level"


def run(scheduler, lengths, arrivals, slots):
    some = [Request(f"{i}", (1,), SamplingParams(n), at) for i, (n, at) in enumerate(zip(lengths, arrivals))]
    return Engine(scheduler(slots), ScriptedExecutor()).run(some)


def finish_by_the_package(lengths, arrivals, slots):
    """The package's own scheduler, a second a step, is a right answer too."""
    requests = run(IterationScheduler, lengths, arrivals, slots).requests
    return [requests[f"{i}"].finished_at for i in range(len(lengths))]


def finish_by_static(lengths, arrivals, slots):
    requests = run(StaticBatcher, lengths, arrivals, slots).requests
    return [int(requests[f"{i}"].finished_at) for i in range(len(lengths))]


def finish_with_heap(lengths, arrivals, slots, gap=0, order=None, shift=0):
    """Right with the defaults. `gap`: steps until a slot can be used again; `order`: who comes first."""
    free, ends = [0] * slots, {}
    for i in sorted(range(len(lengths)), key=order and (lambda i: order(lengths, i))):
        start = heapq.heappop(free)
        ends[i] = max(start, arrivals[i] + shift) + lengths[i]
        heapq.heappush(free, ends[i] + gap)
    return [ends[i] for i in range(len(lengths))]


def busy_slots_only(lengths, arrivals, slots):
    """Each request keeps to slot i mod num_slots, free or not."""
    free, ends = [0] * slots, []
    for i, (length, arrival) in enumerate(zip(lengths, arrivals)):
        free[i % slots] = max(free[i % slots], arrival) + length
        ends.append(free[i % slots])
    return ends


def steps_of(lengths, slots):
    return max(finish_with_heap(lengths, [0] * len(lengths), slots))


def live_in_the_trace(lengths, slots):
    return summarise(run(IterationScheduler, lengths, [0] * len(lengths), slots)).mean_live_slots


TABLE = {
    "finish_steps": {
        "check": check_finish_steps,
        "right": [finish_by_the_package, finish_with_heap],
        "wrong": [
            (finish_by_static, "starts late"),
            (lambda lengths, arrivals, slots: finish_with_heap(lengths, [0] * len(lengths), slots), "too early"),
            (lambda lengths, arrivals, slots: [a + n for n, a in zip(lengths, arrivals)], "more sequences"),
            (lambda *args: finish_with_heap(*args, gap=1), "starts late"),
            (lambda *args: finish_with_heap(*args, shift=1), "starts late"),
            (lambda *args: finish_with_heap(*args, order=lambda lengths, i: lengths[i]), "first come"),
            (lambda *args: finish_with_heap(*args, order=lambda lengths, i: -i), "order of arrival"),
            (lambda *args: sorted(finish_with_heap(*args)), "order of arrival"),
            (lambda *args: [end - 1 for end in finish_with_heap(*args)], "too early"),
            (busy_slots_only, "first come"),
            (lambda *args: max(finish_with_heap(*args)), "a list"),
            (lambda *args: dict(enumerate(finish_with_heap(*args))), "a list"),
            (lambda *args: [2, 4, 4], "one step for each"),  # the visible example
        ],
    },
    "mean_live_slots": {
        "check": check_mean_live_slots,
        "right": [live_in_the_trace, lambda lengths, slots: sum(lengths) / steps_of(lengths, slots)],
        "wrong": [
            (lambda lengths, slots: float(slots), "stay empty"),
            (lambda lengths, slots: min(slots, len(lengths)), "stay empty"),
            (lambda lengths, slots: sum(lengths) / math.ceil(sum(lengths) / slots), "stay empty"),
            (
                lambda lengths, slots: (
                    summarise(run(StaticBatcher, lengths, [0] * len(lengths), slots)).mean_live_slots
                ),
                "static",
            ),
            (lambda lengths, slots: live_in_the_trace(lengths, slots) / slots, "share"),
            (lambda lengths, slots: sum(lengths) / len(lengths), "more live"),
            (lambda lengths, slots: steps_of(lengths, slots) / sum(lengths), "how many steps"),
            (lambda lengths, slots: [slots], "one number"),
        ],
    },
    "hard_queue": {
        "check": check_hard_queue,
        "right": [
            lambda slots: [1 + 3999 * (i % slots == 0) for i in range(12 * slots)],
            lambda slots: ([2] * (slots - 1) + [4000]) * (slots if slots < 40 else 30),
        ],
        "wrong": [
            (lambda slots: [64] * 100, "1.0 times"),
            (lambda slots: [20, 900] * 500, "times"),
            (lambda slots: [5000] + [1] * 1000, "How many batches"),
            (lambda slots: [5000] * slots + [1] * 2000, "beside whom"),
            (lambda slots: sorted(([5000] + [1] * (slots - 1)) * 12), "beside whom"),
            (lambda slots: ([5000] + [1] * 11) * 12, "16 slots"),  # made for 12 slots alone
            (lambda slots: ([100_000] + [1] * (slots - 1)) * 12, "from 1 to 5,000 tokens"),
            (lambda slots: ([5000] + [0] * (slots - 1)) * 12, "from 1 to 5,000 tokens"),
            (lambda slots: ([5000] + [1] * (slots - 1)) * 500, "are allowed"),
            (lambda slots: ([5000.5] + [1] * (slots - 1)) * 12, "whole number"),
            (lambda slots: [], "are allowed"),
            (lambda slots: 5000, "a list"),
        ],
    },
}
