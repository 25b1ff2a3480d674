"""Checks for the exercises of notebook 04: a step's budget split, the longest gap, a budget for a target."""

import math
import numbers
from collections.abc import Callable

from minibatch.checks.base import expect, same

_STEPS = [  # running, waiting, free slots, budget, cap
    ([1, 1], [10], 1, 4, 100),
    ([], [10], 1, 4, 100),
    ([1, 1, 8], [3], 1, 4, 100),
    ([1, 1, 2], [10, 5], 3, 8, 100),
    ([1], [3, 2, 9], 3, 20, 100),
    ([1, 1], [3, 3, 3], 2, 100, 100),
    ([1, 1, 1, 1], [5], 2, 4, 100),
    ([1], [2, 2, 2], 3, 5, 100),
    ([1, 9], [7, 2], 2, 12, 4),
    ([], [20, 3, 20], 3, 16, 6),
    ([1, 1], [], 2, 8, 100),
    ([1, 5], [4], 0, 50, 100),
]


def check_split_budget(function: Callable) -> None:
    """`function(running, waiting, free_slots, budget, cap)`: tokens of everyone in the step, running first."""
    for case in _STEPS:
        expect(function, *case, want=_split(*case), hint=_split_hint)


def _split(running: list[int], waiting: list[int], free_slots: int, budget: int, cap: int) -> list[int]:
    counts: list[int] = []
    for missing in running + waiting[:free_slots]:
        counts.append(min(missing, cap, budget - sum(counts)))
    return counts[: len(running)] + [count for count in counts[len(running) :] if count > 0]


def _split_hint(got: object, running: list[int], waiting: list[int], free_slots: int, budget: int, cap: int) -> str:
    if not isinstance(got, (list, tuple)) or not all(_whole(count) for count in got):
        return "return a list of whole numbers of tokens"
    if len(got) < len(running):
        return "everyone who holds a slot is in the list"
    if len(got) > len(running) + free_slots:
        return "more enter than there are free slots"
    if any(count < 1 for count in got):
        return "who gets no token is not in the step, and does not enter"
    if sum(got) > budget:
        return "together that is more than the budget"
    if max(got, default=0) > cap:
        return "somebody gets more than the cap"
    asked = running + waiting
    if any(count > missing for count, missing in zip(got, asked)):
        return "somebody gets more tokens than it lacks"
    want = _split(running, waiting, free_slots, budget, cap)
    if list(got[: len(running)]) != want[: len(running)]:
        return "those who run are served first, each as much as it lacks while there is budget"
    if len(got) < len(want):
        return "one more can enter: there is a slot, and budget is left"
    return "the queue enters in order, and each newcomer takes as much as it can"


_GAPS = [  # running, prompt, budget
    (3, 2000, 256),
    (8, 500, 64),
    (1, 10, 4),
    (4, 20, 256),
    (16, 300, 300),
    (2, 1, 8),
]


def check_largest_gap(function: Callable) -> None:
    """`function(mix, running, prompt, budget, constant, per_token)`: the longest gap of one who was decoding."""
    for running, prompt, budget in _GAPS:
        for constant, per_token in ((50, 3), (8, 0.5)):
            for mix in ("whole", "prefill_first", "chunked"):
                args = (mix, running, prompt, budget, constant, per_token)
                expect(function, *args, want=_gap(*args), hint=_gap_hint)


def _gap(mix: str, running: int, prompt: int, budget: int, constant: float, per_token: float) -> float:
    if mix == "prefill_first":
        return 2 * constant + per_token * (prompt + running + 1)
    tokens = running + prompt
    return constant + per_token * (min(tokens, budget) if mix == "chunked" else tokens)


def _gap_hint(got: object, mix: str, running: int, prompt: int, budget: int, constant: float, per_token: float) -> str:
    if not _number(got):
        return "return one number"
    if same(got, constant + per_token * running):
        return "that is a step without the newcomer"
    if mix == "prefill_first":
        if same(got, constant + per_token * prompt):
            return "after the prompt's step those who decode have no token yet; when does it come?"
        if same(got, constant + per_token * (running + prompt)):
            return "prompt and decodes are not in the same step"
        return "count the steps between two of their tokens, and who is in each (the newcomer writes on too)"
    if mix == "whole":
        return "one step holds the whole prompt and a token of everyone who decodes"
    if same(got, constant + per_token * (running + prompt)):
        return "no step computes more than the budget"
    if same(got, constant + per_token * (running + budget)):
        return "the decodes are within the budget, not on top of it"
    if running + prompt < budget and same(got, constant + per_token * budget):
        return "a budget is not always used up; how many tokens are there to compute?"
    return "everyone who decodes is in every step, so a gap is one step: how many tokens has the largest?"


_TARGETS = [  # target, running, constant, per token
    (1000, 3, 57, 3.5),
    (100, 8, 40, 0.5),
    (300, 16, 60, 6.5),
    (100, 7, 60, 5),
    (100, 8, 60, 5),
    (100, 4, 60, 5),
    (50, 2, 60, 3),
    (60, 1, 60, 3),
    (20, 32, 8, 0.0625),
]


def check_budget_for(function: Callable) -> None:
    """`function(target, running, constant, per_token)`: the largest budget within the target; 0 if there is none."""
    for case in _TARGETS:
        expect(function, *case, want=_budget(*case), hint=_budget_hint)


def _budget(target: float, running: int, constant: float, per_token: float) -> int:
    most = int((target - constant) // per_token)
    return most if most > running else 0


def _budget_hint(got: object, target: float, running: int, constant: float, per_token: float) -> str:
    if not _number(got):
        return "return one number"
    if not math.isfinite(got) or got != int(got):
        return "a budget is a whole number of tokens"
    if got < 0:
        return "a budget is never negative; what if even an empty step is too long?"
    if got and got <= running:
        return "the decodes take all of it, and no prompt gets on"
    if got and constant + per_token * got > target:
        return "a step of so many tokens takes longer than the target"
    if not got:
        return "there is a budget that keeps the target and leaves something for prompts"
    return "a larger one keeps the target too; are the decodes not part of the budget?"


def _whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
