"""Who gets how many tokens of a step, judged on the trace of a run: one line, one budget. For the check of lab 3.

Before each step the line is made up anew from what the steps before have done, so the mistake that is named is the
first one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import NamedTuple

from minibatch.checks.base import CheckFailed, call
from minibatch.checks.serving import requests_of, serve
from minibatch.schedulers import Scheduler
from minibatch.trace import StepRecord, Trace


class Case(NamedTuple):
    """One run: prompts and answers in tokens, arrivals in steps, slots, budget and cap in tokens."""

    prompts: list[int]
    lengths: list[int]
    arrivals: list[float]
    slots: int
    budget: int
    cap: int | None = None

    def __str__(self) -> str:
        when = f" arriving after {self.arrivals} steps" if any(self.arrivals) else ""
        cap = f", cap {self.cap}" if self.cap else ""
        slots = f"{self.slots} slot{'s' * (self.slots > 1)}"
        return f"prompts {self.prompts}{when}, {slots}, budget {self.budget}{cap}"


def mixed(seed: int, caps: tuple[int | None, ...]) -> list[Case]:
    """Runs that nobody chose, the same ones each time."""
    random, cases = Random(seed), []
    for _ in range(12):
        n = random.randint(3, 8)
        prompts, lengths = random.choices((1, 2, 5, 8, 13, 30), k=n), random.choices(range(1, 12), k=n)
        arrivals = sorted(random.choices((0, 0, 1, 2, 3, 5, 8), k=n))
        slots, budget = random.randint(1, 5), random.choice((4, 6, 8, 16, 25))
        cases.append(Case(prompts, lengths, arrivals, slots, budget, random.choice(caps)))
    return cases


def cut(missing: int, most: int, unit: int) -> int:
    """What somebody gets who lacks `missing` tokens and may have `most`: all, or a multiple of `unit`."""
    return missing if missing <= most else most - most % unit


def judge(scheduler: Callable[..., Scheduler], cases: list[Case], unit: int | None) -> None:
    """Serve each case and look at every step. With `unit` None: is the budget kept, and do those who write go on?"""
    for case in cases:
        made = call(scheduler, case.slots, case.budget, case.cap)
        trace = serve(made, requests_of(case.lengths, case.arrivals, case.prompts), told=str(case), most_steps=500)
        for step, line in _lines(trace):
            wrong = _over_budget(step, line, case)
            if unit and not wrong:
                wrong = _out_of_line(step, line, case, unit) or _not_named(step, line)
            if wrong:
                so_far = replace(trace, steps=trace.steps[: step.step])
                raise CheckFailed(f"{case}: step {step.step} {wrong}", trace=so_far)


class _InLine(NamedTuple):
    name: str
    state: str  # "writes", "begun" or "waits"
    lacks: int  # tokens

    def __str__(self) -> str:
        """Name and state, for a sentence."""
        return self.name + {"begun": " (its prompt has begun)", "waits": " (in the queue)"}.get(self.state, "")


def _lines(trace: Trace) -> Iterator[tuple[StepRecord, list[_InLine]]]:
    """Each step and the line before it: who writes, whose prompt has begun, and the queue as far as slots are free."""
    prompt = {name: record.prompt_tokens for name, record in trace.requests.items()}
    computed: dict[str, int] = {}  # of those who run, in the order in which they entered
    gone: set[str] = set()
    for step in trace.steps:
        writing = [_InLine(name, "writes", 1) for name, done in computed.items() if done >= prompt[name]]
        begun = [_InLine(name, "begun", prompt[name] - done) for name, done in computed.items() if done < prompt[name]]
        known = gone | computed.keys()
        came = [name for name, one in trace.requests.items() if one.arrival <= step.start and name not in known]
        free = trace.num_slots - len(computed)
        yield step, writing + begun + [_InLine(name, "waits", prompt[name]) for name in came[:free]]
        computed |= {work.request_id: work.start + work.count for work in step.live}
        for name in step.finished:
            gone.add(name)
            del computed[name]


def _over_budget(step: StepRecord, line: list[_InLine], case: Case) -> str:
    """What is wrong with the sum, or with those who write; "" if nothing is."""
    got = {work.request_id: work.count for work in step.live}
    writers = [one.name for one in line if one.state == "writes"]
    total, prompts = sum(got.values()), sum(count for name, count in got.items() if name not in writers)
    if total > case.budget:
        why = "the budget is one of the whole step, and a prompt that does not fit is cut"
        if prompts <= case.budget:
            why = "those who write are part of the budget, not on top of it"
        said = ", ".join(f"{name} {count}" for name, count in got.items())
        return f"computes {total} tokens ({said}): {why}"
    left_out = [name for name in writers if name not in got]
    return f"has no token for {left_out[0]}, who is writing: whoever writes comes first in line" if left_out else ""


def _out_of_line(step: StepRecord, line: list[_InLine], case: Case, unit: int) -> str:
    """What is wrong with the first in line who did not get what was its due; "" if all did."""
    got = {work.request_id: work.count for work in step.live}
    left, end = case.budget, ""  # end: who could get nothing, so that the line ends there
    for place, one in enumerate(line):
        count, most = got.get(one.name, 0), min(case.cap or left, left)
        if end and count:
            return f"has {count} tokens for {one}, and none for {end} before it: the line ended there"
        if not end and count != cut(one.lacks, most, unit):
            behind = [other.name for other in line[place + 1 :] if other.name in got]
            return _not_its_due(one, count, case.cap, unit, behind)
        end = end or ("" if count else one.name)
        left -= count
    return ""


def _not_named(step: StepRecord, line: list[_InLine]) -> str:
    """Whether `admitted` names those who enter; "" if it does."""
    new = {one.name for one in line if one.state == "waits"} & {work.request_id for work in step.live}
    if idle := sorted(set(step.admitted) - new):
        return f"lets in {idle[0]} without a chunk: from then on it would hold a slot and memory for nothing"
    unnamed = sorted(new - set(step.admitted))
    return f"is the one in which {unnamed[0]} enters, and `admitted` does not name it" if unnamed else ""


def _not_its_due(one: _InLine, count: int, cap: int | None, unit: int, behind: list[str]) -> str:
    if cap and count > cap:
        return f"has {count} tokens for {one.name}, more than the cap"
    if count < one.lacks and count % unit:
        return f"has a chunk of {count} for {one.name}, not its last and no whole number of blocks of {unit}"
    if count:
        some = f"has {count} of the {one.lacks} tokens that {one} lacks"
    else:
        some = f"leaves out {one}"
    if behind:
        return f"{some}, and serves {behind[0]} behind it in line"
    slot = " a slot is free, and" if one.state == "waits" else ""
    return f"{some}:{slot} more of the budget could be spent on it"
