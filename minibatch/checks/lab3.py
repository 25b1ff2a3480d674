"""Checks for lab 3: the chunks of a prompt, a scheduler under a token budget, the bill, a budget for a target."""

import math
import numbers
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from minibatch.checks.base import CheckFailed, call, expect, need, same
from minibatch.checks.lab3_line import Case, cut, judge, mixed
from minibatch.checks.serving import requests_of
from minibatch.engine import Engine
from minibatch.metrics import latency, percentile
from minibatch.schedulers import IterationScheduler, Scheduler
from minibatch.schedulers.mix import Chunked
from minibatch.simulate import ScriptedExecutor
from minibatch.trace import Trace

CHUNKS = {"any length": 1, "whole blocks": 4}  # what a chunk that is not the last is a multiple of, in tokens

_PROMPTS = [  # prompt, budget, decodes
    (14, 8, 2),
    (10, 4, 2),
    (4, 4, 0),
    (3, 8, 1),
    (8, 6, 1),
    (9, 5, 1),
    (12, 10, 2),
    (20, 9, 0),
    (1, 5, 4),
    (7, 3, 3),
    (7, 3, 5),
    (2000, 256, 3),
]


def check_sizes(function: Callable, chunks: str = "any length") -> None:
    """`function(prompt, budget, decodes)`: the chunks of one prompt, in tokens."""
    unit = CHUNKS[chunks]
    for case in _PROMPTS:
        want = _sizes(*case, unit)
        expect(function, *case, want=want, hint=lambda got, *case, want=want: _sizes_hint(got, want, *case, unit))


def _sizes(prompt: int, budget: int, decodes: int, unit: int) -> list[int]:
    most = max(budget - decodes, 0)
    sizes = []
    while prompt and (size := cut(prompt, most, unit)):
        sizes.append(size)
        prompt -= size
    return sizes


def _sizes_hint(got: object, want: list[int], prompt: int, budget: int, decodes: int, unit: int) -> str:
    if not isinstance(got, (list, tuple)) or not all(_whole(size) for size in got):
        return "return a list of whole numbers of tokens"
    if unit > 1 and any(size % unit for size in got[:-1]):
        return f"a chunk that is not the last is a whole number of blocks of {unit}"
    if not want:
        return "what is left of this budget beside those who write? Return an empty list if no chunk can begin"
    if any(size < 1 for size in got):
        return "a chunk has at least one token"
    if sum(got) != prompt:
        return f"together that is {sum(got)} tokens, and the prompt has {prompt}"
    if max(got) > budget:
        return "no step computes more than its budget"
    if max(got) + decodes > budget:
        return "those who write take their tokens out of the same budget"
    if len(got) == len(want) + 1 and got[-1] == 1:
        return "the last token of a prompt needs no step of its own: its chunk is where the first new token comes from"
    return "each chunk takes as much as is left of the budget, and as the prompt still lacks"


_PLAIN = [
    Case([4], [3], [0], 1, 4),
    Case([3, 3], [3, 2], [0, 0], 2, 4),
    Case([1, 10], [8, 2], [0, 1], 2, 4),
    Case([1, 1, 9], [9, 8, 3], [0, 0, 2], 3, 8),
    Case([3, 2, 2, 9], [2, 4, 3, 2], [0] * 4, 4, 20),
    Case([1, 9], [6, 3], [0, 1], 2, 5),
    Case([10, 3], [3, 3], [0, 1], 2, 8),
    Case([1, 10, 2], [9, 3, 3], [0, 1, 1], 3, 7),
    Case([3, 3, 3], [4, 2, 3], [0] * 3, 2, 100),
    Case([1, 1, 1, 1, 5], [6, 5, 8, 7, 2], [0, 0, 0, 0, 1], 6, 4),
    Case([30, 3, 20], [4, 6, 2], [0, 0, 0], 3, 16),
]
_CAPPED = [
    Case([12, 2], [3, 3], [0, 0], 2, 16, 4),
    Case([1, 20, 3], [9, 2, 3], [0, 1, 1], 3, 9, 4),
    Case([20, 20, 3], [3, 3, 3], [0, 0, 0], 3, 8, 4),
    Case([30, 1, 9, 2], [2, 8, 4, 3], [0, 0, 1, 2], 4, 12, 8),
    Case([9, 6], [3, 4], [0, 0], 2, 6, 40),
]


def check_budget(scheduler: Callable[..., Scheduler]) -> None:
    """No step computes more than the budget, and whoever writes is in every step."""
    judge(scheduler, _PLAIN + mixed(1, caps=(None,)), unit=None)


def check_order(scheduler: Callable[..., Scheduler], chunks: str = "any length") -> None:
    """Each step goes down the line and gives what there is."""
    judge(scheduler, _PLAIN + mixed(1, caps=(None,)), CHUNKS[chunks])


def check_cap(scheduler: Callable[..., Scheduler], chunks: str = "any length") -> None:
    """The same where no sequence may have more than a cap of a step."""
    judge(scheduler, _CAPPED + mixed(2, caps=(4, 8)), CHUNKS[chunks])


class Rule(NamedTuple):
    """Seconds of a step by the tokens that it computes, in whole tiles of so many."""

    fixed: float
    per_token: float
    tile: int = 1

    def __call__(self, tokens: int) -> float:
        return self.fixed + self.per_token * self.tile * -(-tokens // self.tile)

    def __repr__(self) -> str:
        tokens = f"ceil(n / {self.tile})" if self.tile > 1 else "n"
        return f"lambda n: {self.fixed:g} + {self.per_token * self.tile:g} * {tokens}"


_BILLS = [  # chunks, decodes, seconds
    ([4], 2, Rule(1, 0.5)),
    ([2, 2, 1], 2, Rule(1, 0.5)),
    ([253] * 7 + [229], 3, Rule(0.008, 0.0001)),
    ([8, 8, 4], 8, Rule(2, 0.25, tile=8)),
    ([1], 1, Rule(0.5, 3)),
    ([], 4, Rule(1, 0.5)),
]


def check_gap(function: Callable) -> None:
    """`function(chunks, decodes, seconds)[0]`: the longest gap of those who write."""
    for chunks, decodes, seconds in _BILLS:
        want = seconds(decodes + max(chunks, default=0))
        _check_part(function, 0, want, _gap_hint, chunks, decodes, seconds)


def check_ttft(function: Callable, arrives: str = "just after a step has begun") -> None:
    """`function(chunks, decodes, seconds)[1]`: the newcomer's time to first token."""
    for chunks, decodes, seconds in _BILLS:
        wait = seconds(decodes) if arrives == "just after a step has begun" else 0.0
        want = wait + sum(seconds(decodes + size) for size in chunks) if chunks else math.inf
        _check_part(function, 1, want, _ttft_hint, chunks, decodes, seconds)


def _check_part(function: Callable, part: int, want: float, hint: Callable[..., str], *case: object) -> None:
    """One of the two numbers; a wrong one costs the points of its own check alone."""
    got, text = call(function, *case), f"bill({', '.join(map(repr, case))})"
    pair = isinstance(got, (list, tuple)) and len(got) == 2 and all(_number(value) for value in got)
    need(pair, f"{text} returned {got!r:.80}: return two numbers, the longest gap and the time to first token")
    if not same(got[part], want):
        name = ("longest gap", "time to first token")[part]
        raise CheckFailed(f"{text}: {got[part]:g} s is not the {name}: {hint(got[part], *case)}", text, want)


def _gap_hint(got: float, chunks: list[int], decodes: int, seconds: Rule) -> str:
    steps = [seconds(decodes + size) for size in chunks]
    if not chunks:
        return "nobody comes in, and those who write have their steps to themselves"
    if same(got, sum(steps)):
        return "whoever writes is in every step, so a token comes in each of them"
    if same(got, sum(steps) / len(steps)):
        return "that is the mean, and the longest is asked for"
    if same(got, seconds(max(chunks))):
        return "those who write are in the step too, with a token each"
    if same(got, seconds(decodes)):
        return "that is a step without the newcomer"
    return "which step is the longest, and how many tokens does it compute?"


def _ttft_hint(got: float, chunks: list[int], decodes: int, seconds: Rule) -> str:
    steps = [seconds(decodes + size) for size in chunks]
    if not chunks:
        return "without a chunk there is never a token (math.inf)"
    if any(same(got, sum(steps) + wait + seconds(decodes + 1)) for wait in (0, seconds(decodes))):
        return "the last chunk computes the prompt's last token, and the first new one comes out of that step"
    if len(chunks) > 1 and any(same(got, steps[0] + wait) for wait in (0, seconds(decodes))):
        return "only the last chunk yields a token"
    if any(same(got, sum(map(seconds, chunks)) + wait) for wait in (0, seconds(decodes))):
        return "those who write make each step longer"
    if same(got, sum(steps)) or same(got, sum(steps) + seconds(decodes)):
        return "when does it arrive, and what is going on at that moment?"
    return "from its arrival to the end of which step?"


class Traffic(NamedTuple):
    """What `run` serves: `run(budget)` is the trace of it."""

    prompts: tuple[int, ...]
    lengths: tuple[int, ...]
    arrivals: tuple[float, ...]

    def __call__(self, budget: int) -> Trace:
        kept = _served(self, budget)
        return replace(kept, steps=list(kept.steps), requests=deepcopy(kept.requests))  # to do with as one likes

    def __repr__(self) -> str:
        return "run"


@cache
def _served(traffic: Traffic, budget: int) -> Trace:
    """Under the package's own scheduler; binary fractions, so that a gap can be exactly as long as the target."""
    executor = ScriptedExecutor(seconds_per_step=lambda plan: 0.5 + 0.125 * plan.num_tokens)
    requests = requests_of(traffic.lengths, traffic.arrivals, traffic.prompts)
    return Engine(IterationScheduler(8, mix=Chunked(budget)), executor).run(requests)


_TWO = Traffic((1, 40), (30, 6), (0.0, 3.0))
_BEFORE = Traffic((60, 1), (5, 9), (0.0, 0.0))  # the largest step has nobody who writes in it
_THIRD = Traffic((1, 1, 40), (2, 20, 3), (0.0, 0.0, 5.0))  # the first one does not see it
_QUEUE = Traffic((1, 30, 30, 30, 30), (60, 4, 1, 4, 1), (0.0, 2.0, 2.0, 2.0, 2.0))
_LONG = Traffic((2, 2, 40), (130, 130, 2), (0.0, 0.0, 5.0))  # more than 100 gaps
_TARGETS = [  # target, budgets, run
    (1.5, [4, 8, 16, 32], _TWO),
    (2.5, [4, 8, 16, 32], _TWO),
    (3.0, [16, 4, 32, 8], _TWO),
    (0.5, [4, 8, 16], _TWO),
    (1.5, [4, 16, 8], _THIRD),
    (1.0, [8, 64, 16], _BEFORE),
    (2.5, [64, 4, 16, 8], _QUEUE),
    (1.5, [6, 12, 64], _LONG),
    (9.0, [6, 64, 12], _LONG),
]


def check_largest_budget(function: Callable, target_on: str = "longest gap") -> None:
    """`function(target, budgets, run)`: the largest of the budgets under which the gaps keep the target; 0 if none."""
    for target, budgets, run in _TARGETS:
        kept = [budget for budget in budgets if _measured(run(budget), target_on) <= target]
        want = max(kept, default=0)
        expect(function, target, budgets, run, want=want, hint=lambda *case: _budget_hint(*case, target_on))


def _measured(trace: Trace, target_on: str) -> float:
    gaps = [gap for record in trace.finished for gap in latency(record).itl]
    return max(gaps) if target_on == "longest gap" else percentile(gaps, 99)


def _budget_hint(got: object, target: float, budgets: list[int], run: Traffic, target_on: str) -> str:
    if not _number(got):
        return "return one number, a budget"
    if got and got not in budgets:
        return "that is none of the budgets"
    if got and _measured(run(got), target_on) > target:
        return f"under this budget the {target_on} is {_measured(run(got), target_on):g} s"
    if not got:
        return "one of the budgets keeps the target; a gap lies between two tokens of one request"
    larger = [budget for budget in budgets if budget > got and _measured(run(budget), target_on) <= target]
    if all(_measured(run(budget), target_on) == target for budget in larger):
        return f"a larger one keeps the target too: a {target_on} of just the target is still good"
    if budgets.index(got) > max(map(budgets.index, larger)):
        return "a larger one keeps the target too; the list is in any order, and this one came last"
    return "a larger one keeps the target too; a gap lies between two tokens of one request, whatever else is slow"


def _whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
