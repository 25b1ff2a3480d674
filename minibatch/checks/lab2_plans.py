"""Checks of lab 2 that need no run: a picture by hand, an audit of plans, what a step costs."""

import numbers
from collections.abc import Callable

from minibatch.checks.base import call, need, same
from minibatch.memory import ContiguousMemory
from minibatch.request import FinishReason, Request, SamplingParams, Sequence
from minibatch.schedulers import Scheduler
from minibatch.step import Chunk, StepPlan

LENGTHS, ARRIVES = {"A": 2, "B": 5, "C": 2, "D": 1, "E": 3}, {"E": 4}


def check_by_hand(
    function: Callable, slots: int = 2, lengths: dict[str, int] = LENGTHS, arrives: dict[str, int] = ARRIVES
) -> None:
    """`function()`: a string for each slot, a letter for each step. Any slot will do, any number of dots at the end."""
    rows = call(function)
    strings = isinstance(rows, (list, tuple)) and all(isinstance(row, str) for row in rows)
    need(strings and len(rows) == slots, f"return a list of {slots} strings, one for each slot")
    taken = {name: [(row, step) for row in range(slots) for step in _steps(rows[row], name)] for name in lengths}
    strange = {mark for row in rows for mark in row} - {*lengths, "."}
    need(not strange, f"{min(strange, default='')!r} is in the picture: letters of requests, and dots where nobody is")
    for name, cells in taken.items():
        need(len(cells) == lengths[name], f"steps of {name}: {len(cells)}, tokens of its answer: {lengths[name]}")
        held = {row for row, _ in cells}
        need(len(held) == 1, f"{name} is in two slots: it keeps the one that it got")
        need(cells[-1][1] - cells[0][1] < len(cells), f"{name} pauses: whoever holds a slot is in every step")
    starts = {name: cells[0][1] for name, cells in taken.items()}
    for name, start in starts.items():
        come = arrives.get(name, 0)
        need(start > come, f"{name} is in step {start}, and it comes when {come} steps have gone by")
    for place, (name, start) in enumerate(starts.items()):
        ahead = [other for other in list(starts)[:place] if starts[other] > start]
        need(not ahead, f"{name} enters before {', '.join(ahead)}: first come, first served")
    for name, start in starts.items():
        for step in range(arrives.get(name, 0) + 1, start):
            full = all(row[step - 1 : step] not in ("", ".") for row in rows)
            need(full, f"in step {step} a slot is empty, and {name} waits")


def _steps(row: str, name: str) -> list[int]:
    return [step for step, mark in enumerate(row, 1) if mark == name]


Row = tuple[str, int, int, int]  # sequence, slot, start, count
_PLANS: list[tuple[list[Row], set[str]]] = [
    ([("A", 0, 5, 1), ("B", 1, 0, 3)], set()),
    ([("A", 0, 5, 1), ("B", 1, 0, 2)], set()),  # a part of a prompt
    ([("B", 1, 0, 3), ("A", 0, 5, 1)], set()),
    ([("A", 0, 5, 1), ("B", 0, 0, 3)], {"slot"}),
    ([("A", 1, 5, 1), ("B", 0, 0, 3)], {"slot"}),  # each in the slot of the other
    ([("A", 0, 5, 1), ("B", 7, 0, 3)], {"slot"}),
    ([("A", 0, 5, 1), ("B", 1, 0, 2), ("B", 1, 0, 2)], {"slot"}),
    ([("A", 0, 0, 6), ("B", 1, 0, 3)], {"start"}),  # all of it again
    ([("A", 0, 4, 1), ("B", 1, 0, 3)], {"start"}),
    ([("A", 0, 5, 1), ("B", 1, 1, 2)], {"start"}),
    ([("A", 0, 5, 2), ("B", 1, 0, 3)], {"count"}),
    ([("A", 0, 5, 1), ("B", 1, 0, 4)], {"count"}),
    ([("A", 0, 5, 1), ("B", 1, 0, 0)], {"count"}),
    ([("A", 0, 5, 1)], {"pause"}),
    ([], {"pause"}),
    ([("A", 0, 5, 1), ("B", 1, 0, 3), ("C", 2, 0, 2)], {"memory"}),
    ([("A", 0, 4, 2), ("B", 1, 0, 9)], {"start", "count"}),
    ([("B", 0, 0, 3), ("C", 2, 0, 2)], {"slot", "pause", "memory"}),
]


def check_audit(function: Callable) -> None:
    """`function(plan, scheduler)`: the names of the rules that a plan breaks, empty for a sound one."""
    for rows, broken in _PLANS:
        names = {name for name, *_ in rows}
        scheduler, known = _scene("C" in names)
        plan = StepPlan(tuple(Chunk(known[name], *numbers) for name, *numbers in rows))
        got = _audited(function, plan, scheduler)
        said = f"plan [{', '.join(map(_words, plan.chunks))}]: audit() names {', '.join(sorted(got)) or 'no rule'}"
        facts = f"({_FACTS}{'; C has slot 2 and no memory' * ('C' in names)})"
        extra = sorted(got - broken)
        need(not extra, f"{said}, and the plan does not break {', '.join(extra)} {facts}")
        need(got == broken, f"{said}, and the plan breaks one that is not named {facts}")


def _scene(with_c: bool) -> tuple[Scheduler, dict[str, Sequence]]:
    """A is decoding in slot 0, B has just got slot 1; C holds slot 2 without memory; F has ended and not yet left."""
    scheduler = Scheduler(4, ContiguousMemory(256, 64))
    known = {name: Sequence(Request(name, (1,) * prompt, SamplingParams(9))) for name, prompt in _PROMPT.items()}
    for name in "ABCF":
        if name == "C" and not with_c:
            scheduler._free_slots.remove(2)  # the others keep their numbers
            continue
        if name != "C":
            scheduler.memory.admit(known[name])
        scheduler.seat(known[name], now=0.0)
    known["A"].output, known["A"].num_computed_tokens = [7, 7], 5
    known["F"].finish(FinishReason.LENGTH, 0.0)
    return scheduler, known


_PROMPT = {"A": 4, "B": 3, "C": 2, "F": 1}  # tokens
_FACTS = "A is in slot 0 with 5 of its 6 tokens stored, B in slot 1 with 0 of 3"


def _audited(function: Callable, plan: StepPlan, scheduler: Scheduler) -> set[str]:
    def audit() -> object:  # without arguments, for theirs are long to read
        return function(plan, scheduler)

    got = call(audit)
    names = isinstance(got, (set, frozenset, list, tuple)) and all(isinstance(name, str) for name in got)
    need(names, f"audit() returned {str(got)[:60]!r}; a set with the names of the broken rules is wanted")
    return set(got)


def _words(chunk: Chunk) -> str:
    return f"{chunk.sequence.request_id} computes [{chunk.start}, {chunk.start + chunk.count}) in slot {chunk.slot}"


_STEPS: list[list[tuple[int, int]]] = [  # (start, count) of each chunk
    [(0, 3), (5, 1)],
    [(7, 1)],
    [(0, 4)],
    [(3, 1), (9, 1), (0, 37), (4, 1)],
    [(16, 16), (0, 5)],  # the second chunk of a prompt
    [(12, 1)] * 6,
    [],
]


def check_rows(function: Callable) -> None:
    """`function(work)`: the first two of (packed, padded, scores), in rows."""
    for work in _STEPS:
        (packed, padded, _), said = _cost(function, work)
        counts = [count for _, count in work]
        need(same(packed, sum(counts)), f"{said}: packed: the tokens of all lie end to end in one matrix")
        wide = len(counts) * max(counts, default=0)
        need(same(padded, wide), f"{said}: padded: everybody takes as many rows as the longest of the step")


def check_scores(function: Callable) -> None:
    """`function(work)`: the last of (packed, padded, scores): pairs of a token and one that it looks at."""
    for work in _STEPS:
        (_, _, scores), said = _cost(function, work)
        want = sum(start + place for start, count in work for place in range(1, count + 1))
        likely = {
            sum(count * (count + 1) // 2 for _, count in work): "what is stored already is looked at as well",
            sum(count * (start + count) for start, count in work): "no token looks at those that come after it",
            want - sum(count for _, count in work): "a token looks at itself too",
            sum(count for _, count in work) * sum(map(sum, work)): "nobody looks at the tokens of another",
        }
        why = likely.get(scores, "how many does each token look at, from the first of its sequence to itself?")
        need(same(scores, want), f"{said}: scores: {why}")


def _cost(function: Callable, work: list[tuple[int, int]]) -> tuple[list[object], str]:
    got = call(function, work)
    said = f"step_cost({work}) returned {str(got)[:60]}"
    three = isinstance(got, (list, tuple)) and len(got) == 3 and all(isinstance(each, numbers.Real) for each in got)
    need(three, f"{said}: return three numbers, (packed, padded, scores)")
    return list(got), said
