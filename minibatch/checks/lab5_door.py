"""Whom to let in: the third question of lab 5. A policy is judged by the runs it makes, and nothing else."""

import numbers
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from minibatch.checks.base import CheckFailed, NotYet, need
from minibatch.checks.serving import serve
from minibatch.memory import PagedMemory
from minibatch.request import Request, SamplingParams, Sequence
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.reserve import Claim, Reserve
from minibatch.simulate import ScriptedExecutor
from minibatch.trace import Trace

END = 1  # the scripts' last token


class _Case(NamedTuple):
    """A workload on a pool. `lives`: (arrival, prompt, limit, written); `hint`: what those forget who fail it."""

    told: str
    lives: list[tuple[float, int, int, int]]
    blocks: int
    expected: int
    hint: str
    block_size: int = 4

    @property
    def text(self) -> str:
        """The whole case in words."""
        pool = f"{self.blocks} blocks of {self.block_size}, {self.expected} expected"
        return f"{len(self.lives)} requests, {self.told}; {pool}"


_NINES = [(0.0, 8, 9, 9)] * 4  # each ends with 16 positions: 4 blocks of 4
_EVERY_TWO = [(2.0 * i, 4, 13, 13) for i in range(5)]
_EVERY_THREE = [(3.0 * i, 8, 13, 13) for i in range(6)]
_OVERDUE = [(0.0, 4, 60, 33)] + [(30.0, 8, 9, 9)] * 4
_OVERDUE_HINT = "R0 has written more than expected, and gives nothing back before it ends"
_LONG = [(0.0, 4, 9, 9)] * 2 + [(1.0, 24, 9, 9)] + [(1.0, 4, 9, 9)] * 4
_LIMITED = [(0.0, 20, 12, 12), (0.0, 4, 4, 4)]

_KEPT = [
    _Case("prompts of 8, answers of 9", _NINES, 8, 9, "whoever enters has an answer to write, beside those who run"),
    _Case("prompts of 8, answers of 9", _NINES, 7, 9, "whoever enters has an answer to write, beside those who run"),
    _Case("one every 2 s, prompts of 4, answers of 13", _EVERY_TWO, 8, 13, "those who run have yet to write, too"),
    _Case("prompts of 4, answers of 2", [(0.0, 4, 2, 2)] * 4, 4, 2, "one position more may take a block of its own"),
    _Case("R0 writes 33, the others come at its end", _OVERDUE, 17, 9, _OVERDUE_HINT),
]
_USED = [
    _Case("prompts of 8, answers of 9", _NINES[:2], 100, 9, "nearly all of the pool is free"),
    _Case("prompts of 8, limits of 50", [(0.0, 8, 50, 9)] * 2, 20, 9, "a limit is not what will be written"),
    _Case("prompts and answers of 16", [(0.0, 16, 16, 16)] * 2, 8, 16, "room is kept in blocks, not in tokens", 16),
    _Case("prompts and answers of 8", [(0.0, 8, 8, 8)] * 2, 8, 8, "what is taken already need not be kept as well"),
    _Case("prompts of 8, answers of 9", _NINES, 8, 9, "two lives fill the pool to the last block, and fit"),
    _Case("one every 3 s, prompts of 8, answers of 13", _EVERY_THREE, 11, 13, "what somebody has taken counts once"),
    _Case("prompts of 4, limits of 5", [(0.0, 4, 5, 5)] * 8, 16, 40, "nobody writes more than its own limit"),
    _Case("R2 with a prompt of 24, the others of 4", _LONG, 15, 9, "a long prompt needs its room and no more"),
    _Case("R0 with a prompt of 20 and a limit of 12", _LIMITED, 8, 40, "nobody writes more than its own limit"),
]


def check_room_kept(policy: type) -> None:
    """Where answers are as long as expected, nobody is preempted."""
    for case in _KEPT:
        trace = _run(policy, case)
        gone = next((step for step in trace.steps if step.preempted), None)
        if gone:
            told = f"{case.text}: step {gone.step} throws out {', '.join(gone.preempted)}"
            raise CheckFailed(f"{told}; {case.hint}", trace=trace)


def check_room_used(policy: type) -> None:
    """And nobody waits for room that is not needed."""
    for case in _USED:
        trace, fewest = _run(policy, case), len(_run(_AtOnce, case).steps)
        if len(trace.steps) > fewest:
            told = f"{case.text}: {len(trace.steps)} steps, and it can be done in fewer, without a preemption"
            raise CheckFailed(f"{told}; {case.hint}", trace=trace)


def check_estimates(policy: type) -> None:
    """40 answers whose lengths are known on average only: between the open door and full need."""
    rng = Random(5)
    draw = [(i // 2, rng.randint(4, 24), max(1, min(120, int(rng.expovariate(1 / 24))))) for i in range(40)]
    lives = [(float(arrival), prompt, 120, written) for arrival, prompt, written in draw]
    case = _Case("limits of 120, answers of 24 on average", lives, 48, 30, "")
    mine, open_door, full = (_run(each, case) for each in (policy, _OpenDoor, _AllLimits))
    lost, most = (sum(len(step.preempted) for step in trace.steps) for trace in (mine, open_door))
    told = f"{case.text}: {lost} preemptions, {len(mine.steps)} steps"
    need(2 * lost <= most, f"{told}; with no room kept there are {most}, and half of them are allowed")
    fair = 2 * len(mine.steps) <= len(full.steps)
    need(fair, f"{told}; with room for every limit it takes {len(full.steps)}, and half of that is allowed")


class _AtOnce(Reserve):
    """A right answer, for the steps that it takes."""

    def __init__(self, expected: int):
        self.expected = expected

    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        """All at the door."""
        written = max(min(self.expected, sequence.request.sampling.max_new_tokens), len(sequence.output))
        return Claim(len(sequence.request.prompt) + written - 1)


class _OpenDoor(_AtOnce):
    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        return Claim(sequence.num_tokens)


class _AllLimits(_AtOnce):
    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        return Claim(sequence.request.kv_need)


class _AskedAtTheDoor(Reserve):
    """Asks the reader's policy, and looks at what it says."""

    def __init__(self, policy: type, expected: int):
        self.policy = made(policy, expected)

    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        """As the reader's, if it is two whole numbers that let somebody in."""
        got = ask(lambda: self.policy.claim(sequence, list(running), memory), "claim()")
        told = f"claim() returned {str(got)[:60]}"
        need(pair(got), f"{told}: return Claim(tokens, keep_free), two whole numbers")
        need(got[1] >= 0, f"{told}: fewer than no blocks are to stay free; nobody gives anything back before it ends")
        need(got[0] >= 1, f"{told}: nobody can enter on no tokens")
        fits = memory.blocks_for(got[0]) <= memory.num_blocks
        why = f"that is more than the whole pool of {memory.num_positions} positions"
        need(fits, f"{told} for {sequence.request_id}: {why}, so it will wait for ever, and it would fit")
        return Claim(*map(int, got))

    def step_done(self, running: list[Sequence], preempted: bool) -> None:
        """Told on."""
        self.policy.step_done(running, preempted)

    def finished(self, sequence: Sequence) -> None:
        """Told on."""
        self.policy.finished(sequence)


def _run(policy: type, case: _Case) -> Trace:
    requests, script = workload(case.lives)
    memory = PagedMemory(case.blocks, case.block_size)
    scheduler = IterationScheduler(16, memory, reserve=_AskedAtTheDoor(policy, case.expected))
    return serve(scheduler, requests, ScriptedExecutor(script), case.text, most_steps=4000)


def workload(lives: list[tuple[float, int, int, int]]) -> tuple[list[Request], dict[str, list[int]]]:
    """Requests R0, R1, ..., and what they will write."""
    sampled = [(SamplingParams(limit, stop_token_ids=(END,)), at, prompt) for at, prompt, limit, _ in lives]
    requests = [Request(f"R{i}", (5,) * prompt, sampling, at) for i, (sampling, at, prompt) in enumerate(sampled)]
    return requests, {f"R{i}": [7] * (written - 1) + [END] for i, (*_, written) in enumerate(lives)}


def made(kind: type, *args: object) -> object:
    """An object of the reader's class."""
    return ask(lambda: kind(*args), f"{getattr(kind, '__name__', 'your class')}()")


def ask(question: Callable[[], object], told: str) -> object:
    """What the reader's code answers; NotYet for nothing, one line for an exception."""
    failed = None
    try:
        got = question()
    except CheckFailed:
        raise
    except NotImplementedError:
        failed = NotYet(f"{told} raised NotImplementedError")
    except Exception as error:
        text = " ".join(str(error).split())[:120]
        failed = CheckFailed(f"{told} raised {type(error).__name__}: {text}")
    if failed:
        raise failed
    if got is None:
        raise NotYet(f"{told} returned None")
    return got


def pair(got: object) -> bool:
    """Two whole numbers."""
    pair = isinstance(got, (list, tuple)) and len(got) == 2
    return pair and all(isinstance(each, numbers.Integral) and not isinstance(each, bool) for each in got)
