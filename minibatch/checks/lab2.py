"""Checks of lab 2: `schedule()`, and a rule for passing. What needs no run is in lab2_plans.py."""

from collections.abc import Callable
from typing import NamedTuple

from minibatch.checks.base import CheckFailed, NotYet, need
from minibatch.checks.serving import requests_of, serve
from minibatch.engine import Engine
from minibatch.memory import ContiguousMemory
from minibatch.request import Sequence
from minibatch.schedulers import IterationScheduler, Scheduler
from minibatch.simulate import ScriptedExecutor
from minibatch.step import Chunk, StepPlan
from minibatch.trace import StepRecord, Trace


class _Case(NamedTuple):
    """Requests A, B, ... on some slots; each needs prompt + length - 1 of the K/V positions."""

    lengths: list[int]
    slots: int
    arrivals: list[int] | None = None  # in order
    prompts: list[int] | int = 1
    positions: int = 10_000

    @property
    def told(self) -> str:
        requests = requests_of(self.lengths, prompts=self.prompts)
        if len(requests) > 6:
            return f"{len(requests)} requests on {self.slots} slots, {self.positions:,} K/V positions"
        write, prompts = ("write", "prompts") if len(requests) > 1 else ("writes", "a prompt")
        text = f"{_listed(each.request_id for each in requests)} {write} {_listed(self.lengths)} tokens"
        if self.prompts != 1:
            text += f" after {prompts} of {_listed(self.prompts)}"
        if self.arrivals:
            text += f", come at {_listed(self.arrivals)} s"
        if self.positions < 10_000:
            needs = [each.kv_need for each in requests]
            as_many = "as many" if needs == self.lengths else _listed(needs)
            text += f", need {as_many} of {self.positions} K/V positions"
        return f"{text}, {self.slots} slot{'s' * (self.slots > 1)}"


def _listed(values: object) -> str:
    return ", ".join(map(str, values))


_ORDER = [
    _Case([2, 4, 2], 2),
    _Case([3, 2], 1),
    _Case([2, 1, 1, 3], 3),
    _Case([2, 2, 1], 2, arrivals=[0, 5, 5]),
    _Case([4, 1, 3, 2], 2, arrivals=[0, 0, 1, 2]),
    _Case([1, 6, 2, 2, 7, 1, 1, 3, 2, 9, 1, 2], 3, arrivals=[0, 0, 0, 0, 4, 4, 5, 5, 6, 20, 20, 40]),
]
_PROMPTS = [
    _Case([2], 1, prompts=[3]),
    _Case([4, 1, 2], 2, prompts=[1, 1, 5]),
    _Case([3, 3, 2, 4], 2, prompts=[2, 6, 1, 4]),
    _Case([5, 2, 2, 3, 1, 4, 2, 2], 3, arrivals=[0, 0, 1, 1, 2, 8, 9, 9], prompts=[4, 9, 1, 2, 7, 3, 8, 5]),
]
_MEMORY = [
    _Case([3, 3], 2, positions=5),
    _Case([4, 5, 2], 3, positions=6),  # C would fit beside A
    _Case([2, 3, 3, 1], 3, prompts=[3, 4, 2, 1], positions=10),
    _Case([4, 8, 2, 2, 6, 1, 3, 5], 4, [0, 0, 0, 1, 2, 2, 3, 9], prompts=[2, 3, 1, 1, 4, 2, 6, 1], positions=12),
]
_FITS = [
    _Case([4, 5, 2], 3, positions=6),
    _Case([4, 5, 2, 1], 4, positions=6),  # not all who fit alone fit together
    _Case([3, 5, 2, 3], 2, positions=8),  # nobody is passed where there is no slot
    _Case([4, 9, 2, 2], 2, positions=10),  # D has memory and no slot
    _Case([3, 2, 5], 4, prompts=[2, 1, 1], positions=6),
]
_BOUND = [
    _Case([8, 5, 1, 1, 1, 1], 6, positions=12),
    _Case([8, 9, 1, 1, 1, 1], 3, arrivals=[0, 0, 0, 1, 2, 3], positions=12),
    _Case([9, 9, 7, 1, 1, 1], 4, arrivals=[0, 0, 0, 0, 3, 4], positions=12),  # two are passed
    _Case([6, 8] + [2] * 30, 8, arrivals=[0, 0, *range(30)], positions=10),  # a stream of small ones
    _Case([5, 9, 1, 8, 1, 2, 1, 1, 3, 1, 1, 2], 5, arrivals=[0, 0, 0, 0, 0, 1, 1, 1, 2, 4, 9, 9], positions=11),
]


def check_order(answer: type) -> None:
    """A scheduler class: who is in which step, prompts of one token and memory for everybody."""
    for case in _ORDER:
        _compare(answer, case)


def check_prompts(answer: type) -> None:
    """The same with longer prompts: prefill beside decodes, and nothing computed twice."""
    for case in _PROMPTS:
        _compare(answer, case)


def check_memory(answer: type) -> None:
    """The same where K/V positions are short: nobody enters without, and the head of the line blocks."""
    for case in _MEMORY:
        _compare(answer, case)


def check_admitted(answer: type) -> None:
    """The plan names those who entered in this step; whether they should have is another question."""
    for case in (*_ORDER, *_PROMPTS):
        before: set[str] = set()
        trace = _serve(answer, case)
        for step in trace.steps:
            entered, named = sorted(_names(step) - before), sorted(_said(step.admitted))
            if named != entered:
                said = f"{case.told}: in step {step.step} the plan says that {_listed(named) or 'nobody'} entered"
                raise CheckFailed(f"{said}; who got a slot in this very step?", trace=trace)
            before |= _names(step)


def _said(admitted: object) -> list[str]:
    """Request ids, or whatever stands in their place by its type."""
    given = admitted if isinstance(admitted, (tuple, list, set, frozenset)) else [admitted]
    return [each if isinstance(each, str) else f"a {type(each).__name__}" for each in given]


def check_passing(answer: type, max_passes: int = 2, counted: str = "requests") -> None:
    """Whoever fits may pass: mostly cases in which nobody is passed often."""
    for case in _FITS:
        _compare(answer, case, (max_passes, counted))


def check_bound(answer: type, max_passes: int = 2, counted: str = "requests") -> None:
    """Nobody is passed more than `max_passes` times, counted in "requests" that entered or in "steps" with one."""
    for case in _BOUND:
        _compare(answer, case, (max_passes, counted))


def _compare(answer: type, case: _Case, bound: tuple[int, str] | None = None) -> None:
    memory = ContiguousMemory(case.positions, case.positions, "exact")
    right = _Passing(case.slots, memory, *bound) if bound else IterationScheduler(case.slots, memory)
    requests = requests_of(case.lengths, case.arrivals, case.prompts)
    want, got = Engine(right, ScriptedExecutor()).run(requests), _serve(answer, case)
    before, waiting = set(), list(got.requests)
    for mine, step in zip(got.steps, want.steps):
        if why := _difference(mine, step, before, waiting, bound):
            raise CheckFailed(f"{case.told}: {why}", trace=got)
        before = _names(mine) - set(mine.finished)
        waiting = [name for name in waiting if name not in _names(mine)]


def _difference(
    mine: StepRecord, want: StepRecord, before: set[str], waiting: list[str], bound: tuple[int, str] | None
) -> str:
    """What is wrong with a step, the first that is; "" if nothing is. `before`: who held a slot and had not ended."""
    live, right, where = _names(mine), _names(want), f"in step {mine.step}"
    if paused := sorted(before - live):
        return f"{where} {_listed(paused)} holds a slot and gets no token: prefills and decodes go in one step"
    if mine.start > want.start:
        return f"step {mine.step} begins at {mine.start:g} s and could at {want.start:g} s: why wait for company?"
    extra = [name for name in waiting if name in live - right]
    missing = [name for name in waiting if name in right - live]
    if extra and missing and waiting.index(missing[0]) < waiting.index(extra[0]):
        return f"{where} {extra[0]} enters before {missing[0]}, which came first and could"
    if extra:
        head = next(name for name in waiting if name == extra[0] or name not in right)
        if head == extra[0]:
            return f"{where} {head} enters, and there is no memory for it"
        why = f"how often has {head} been passed by now?" if bound else "the head of the line blocks"
        return f"{where} {extra[0]} enters, and {head}, which came before it, still waits: {why}"
    if missing:
        unless = f", and nobody before it has been passed {bound[0]} times (in {bound[1]})" if bound else ""
        return f"{where} {missing[0]} waits, although there is a slot and memory for it{unless}"
    for work, other in zip(sorted(mine.live), sorted(want.live)):
        if work.count < other.count:
            return f"{where} {work.request_id} computes {work.count} of the {other.count} tokens that it lacks"
    return ""


def _names(step: StepRecord) -> set[str]:
    return {work.request_id for work in step.live}


class _Books(ContiguousMemory):
    """Says in words what would otherwise be an error somewhere else."""

    def admit(self, sequence: Sequence) -> bool:
        again = f"memory.admit() is asked again for {sequence.request_id}, which has its memory: a True took it"
        need(not self.holds(sequence), again)
        return super().admit(sequence)

    def release(self, sequence: Sequence) -> None:
        need(self.holds(sequence), f"{sequence.request_id} ran, and memory.admit() was never asked for it")
        super().release(sequence)


def _serve(answer: type, case: _Case) -> Trace:
    """The trace of a run under the answer's scheduler."""
    failed, scheduler = None, None
    try:
        scheduler = answer(case.slots, _Books(case.positions, case.positions, "exact"))
    except NotImplementedError:
        failed = NotYet("raise NotImplementedError is still there")
    except Exception as error:
        failed = CheckFailed(f"the scheduler cannot be made: {type(error).__name__}: {str(error)[:120]}")
    if failed:
        raise failed
    if isinstance(scheduler, Scheduler):
        scheduler.seat = _guarded(scheduler)
    return serve(scheduler, requests_of(case.lengths, case.arrivals, case.prompts), told=case.told)


def _guarded(scheduler: Scheduler) -> Callable:
    seat = scheduler.seat

    def guarded(sequence: Sequence, now: float) -> None:
        need(sequence.slot is None, f"seat() is called for {sequence.request_id}, which holds a slot already")
        need(len(scheduler.running) < scheduler.max_num_seqs, f"seat({sequence.request_id}): no slot is free")
        seat(sequence, now)

    return guarded


class _Passing(Scheduler):
    """Whoever fits enters in order of arrival, until one that does not has been passed often enough."""

    def __init__(self, max_num_seqs: int, memory: ContiguousMemory, max_passes: int, counted: str):
        super().__init__(max_num_seqs, memory)
        self.max_passes, self.counted = max_passes, counted

    def schedule(self, now: float) -> StepPlan:
        ahead: list[Sequence] = []  # who was looked at, and waits on
        passed: list[Sequence] = []
        for sequence in list(self.waiting):
            if not self._free_slots or any(one.times_passed >= self.max_passes for one in ahead):
                break
            if not self.memory.admit(sequence):
                ahead.append(sequence)
                continue
            self.waiting.remove(sequence)
            self.seat(sequence, now)
            passed = list(ahead)
            if self.counted == "requests":
                _count(passed)
        if self.counted == "steps":
            _count(passed)
        return StepPlan(tuple(Chunk(s, s.slot, (n := s.num_computed_tokens), s.num_tokens - n) for s in self.running))


def _count(passed: list[Sequence]) -> None:
    for sequence in passed:
        sequence.times_passed += 1
