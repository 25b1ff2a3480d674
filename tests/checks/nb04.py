"""Right and wrong answers to the exercises of notebook 04. Read by tests/test_checks.py, which says the format."""

import math

from minibatch import Engine, Request, SamplingParams
from minibatch.checks.nb04 import check_budget_for, check_largest_gap, check_split_budget
from minibatch.memory import ContiguousMemory
from minibatch.plot.gaps import gaps_of
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.mix import Chunked
from minibatch.simulate import ScriptedExecutor

NOTEBOOK = "04_chunked_prefill"


def engine(mix, seconds=1.0):
    memory = ContiguousMemory(40 * 4000, 4000)
    return Engine(IterationScheduler(40, memory, mix=mix), ScriptedExecutor(seconds_per_step=seconds))


def split_by_the_package(running, waiting, free_slots, budget, cap):
    """A step of the package's own scheduler, made to stand where the question stands."""
    here = engine(Chunked(budget, cap))
    scheduler = here.scheduler
    for i, missing in enumerate([*running, *waiting]):
        here.submit(Request(f"{i}", (1,) * missing))
    for _ in running:
        scheduler.seat(scheduler.waiting[0], 0.0)
        scheduler.memory.admit(scheduler.waiting.popleft())
    del scheduler._free_slots[free_slots:]
    return [work.count for work in here.step().live]


def split_in_one_line(running, waiting, free_slots, budget, cap, prompts_first=False, share=False):
    """Right with the defaults."""
    line = [*running, *waiting[:free_slots]]
    counts = []
    for missing in reversed(line) if prompts_first else line:
        fair = math.ceil(budget / len(line)) if share else budget
        counts.append(min(missing, cap, budget - sum(counts), fair))
    counts = counts[::-1] if prompts_first else counts
    return [count for count in counts if count]


def gap_in_the_trace(mix, running, prompt, budget, constant, per_token):
    """The package's own schedulers under this rule are a right answer too."""
    here = engine(Chunked(budget) if mix == "chunked" else mix, lambda p: constant + per_token * p.num_tokens)
    for i in range(running):
        here.submit(Request(f"{i}", (1,), SamplingParams(400)))
    here.step()  # all prompts of one token
    here.step()
    here.submit(Request("new", (1,) * prompt, SamplingParams(2)))
    for _ in range(200):
        here.step()
    return max(gap.seconds for gap in gaps_of(here.trace) if gap.request_id != "new")


def gap(mix, running, prompt, budget, constant, per_token):
    if mix == "prefill_first":
        return sum(constant + per_token * tokens for tokens in (prompt, running + 1))
    return constant + per_token * min(running + prompt, budget if mix == "chunked" else math.inf)


def but(mix, wrong):
    """`gap`, wrong under one mix."""
    return lambda *args: wrong(*args[1:]) if args[0] == mix else gap(*args)


def by_search(target, running, constant, per_token):
    budget = 0
    while constant + per_token * (budget + 1) <= target:
        budget += 1
    return budget if budget > running else 0


TABLE = {
    "split_budget": {
        "check": check_split_budget,
        "right": [split_by_the_package, split_in_one_line],
        "wrong": [
            (lambda *args: split_in_one_line(*args, prompts_first=True), "holds a slot"),
            (lambda *args: split_in_one_line(*args, share=True), "each as much"),
            (lambda r, w, slots, b, cap: split_in_one_line(r, w, slots, b, 10**9), "cap"),
            (lambda r, w, slots, b, cap: split_in_one_line(r, w, 10**9, b, cap), "free slots"),
            (lambda r, w, slots, b, cap: split_in_one_line(r, w, slots, b + len(r), cap), "budget"),
            (lambda r, w, slots, b, cap: split_in_one_line(r, w, min(slots, 1), b, cap), "one more"),
            (lambda r, w, slots, b, cap: [min(n, cap) for n in r + w[:slots]], "more than the budget"),
            (lambda r, w, slots, b, cap: [*split_in_one_line(r, w, slots, b, cap), 0], "free slots"),
            (lambda r, w, slots, b, cap: split_in_one_line(r, [], slots, b, cap), "one more"),
            (lambda r, w, slots, b, cap: [b] * (len(r) + 1) if r else [b], "budget"),
            (lambda *args: split_in_one_line(*args)[::-1], "lacks"),
            (lambda *args: sum(split_in_one_line(*args)), "a list"),
            (lambda *args: [1, 1, 2], "free slots"),  # the first case
        ],
    },
    "largest_gap": {
        "check": check_largest_gap,
        "right": [gap_in_the_trace, gap],
        "wrong": [
            (lambda mix, running, prompt, budget, c, t: c + t * (running + prompt), "not in the same step"),
            (but("prefill_first", lambda running, prompt, budget, c, t: c + t * prompt), "no token yet"),
            (but("prefill_first", lambda running, prompt, budget, c, t: 2 * c + t * (prompt + running)), "writes on"),
            (but("whole", lambda running, prompt, budget, c, t: c + t * prompt), "whole prompt"),
            (but("chunked", lambda running, prompt, budget, c, t: c + t * budget), "not always used up"),
            (but("chunked", lambda running, prompt, budget, c, t: c + t * (budget + running)), "on top"),
            (but("chunked", lambda running, prompt, budget, c, t: c + t * (prompt + running)), "than the budget"),
            (lambda mix, running, prompt, budget, c, t: c + t * running, "without the newcomer"),
            (lambda *args: [gap(*args)], "one number"),
        ],
    },
    "budget_for": {
        "check": check_budget_for,
        "right": [by_search, lambda target, n, c, t: (b := math.floor((target - c) / t)) * (b > n)],
        "wrong": [
            (lambda target, running, c, t: round((target - c) / t), "longer than the target"),
            (lambda target, running, c, t: math.floor((target - c) / t), "no prompt"),
            (lambda target, running, c, t: math.floor(target / t), "longer than the target"),
            (lambda target, running, c, t: max(by_search(target, running, c, t) - running, 0), "part of the budget"),
            (lambda target, running, c, t: by_search(target, running + 1, c, t), "leaves something"),
            (lambda target, running, c, t: by_search(target, 0, c, t), "no prompt"),
            (lambda target, running, c, t: (target - c) / t, "whole number"),
            (lambda target, running, c, t: 0, "leaves something"),
            (lambda target, running, c, t: 269, "longer than the target"),  # the first case
            (lambda target, running, c, t: [by_search(target, running, c, t)], "one number"),
        ],
    },
}
