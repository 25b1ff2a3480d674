"""Checks for the exercises of notebook 07: who gives way, the need of a whole life, a claim that ends the thrashing."""

import numbers
from collections.abc import Callable

from minibatch.checks.base import CheckFailed, call, expect, need
from minibatch.engine import Engine
from minibatch.memory import PagedMemory
from minibatch.request import Request, SamplingParams, Sequence
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.reserve import Claim, Reserve
from minibatch.simulate import ScriptedExecutor
from minibatch.trace import Trace

Running = list[tuple[int, int, int, int]]  # (order, outputs, prompt, blocks)

_CROWDS: list[tuple[Running, int]] = [
    ([(0, 9, 8, 5), (1, 3, 8, 3), (2, 5, 8, 4)], 1),
    ([(0, 1, 8, 3), (1, 5, 8, 4), (2, 5, 40, 12), (3, 5, 8, 4)], 1),
    ([(4, 1, 8, 3), (1, 5, 8, 4), (9, 5, 8, 4), (7, 5, 8, 4)], 5),
    ([(3, 2, 8, 3), (0, 2, 90, 24), (1, 2, 30, 8)], 4),
    ([(5, 4, 4, 2), (6, 3, 4, 2), (2, 0, 4, 1)], 9),
    ([(0, 4, 4, 2), (1, 3, 4, 2)], 0),
    ([(0, 4, 4, 2)], 1),
    ([(0, 7, 4, 3), (1, 2, 4, 2), (2, 1, 4, 2), (3, 1, 9, 3), (4, 6, 4, 3)], 6),
]


def check_victims(function: Callable) -> None:
    """`function(running, missing)`: the orders of those who give way, fewest outputs first, never the oldest."""
    for running, missing in _CROWDS:
        expect(function, running, missing, want=_victims(running, missing), hint=_victims_hint)


def _victims(running: Running, missing: int) -> list[int]:
    oldest, gone, freed = min(running), [], 0
    for one in sorted(running, key=lambda one: (one[1], -one[2], -one[0])):
        if one is not oldest and freed < missing:
            gone.append(one[0])
            freed += one[3]
    return gone


def _victims_hint(got: object, running: Running, missing: int) -> str:
    known = {order: (outputs, prompt, blocks) for order, outputs, prompt, blocks in running}
    if not isinstance(got, (list, tuple)) or not all(isinstance(each, numbers.Integral) for each in got):
        return "return a list with the order of each victim"
    if len(set(got)) < len(got) or not known.keys() >= set(got):
        return "each victim is one of those who run, and goes once"
    if min(known) in got:
        return "the oldest never gives way"
    freed = sum(known[order][2] for order in got)
    if freed < missing and len(got) < len(known) - 1:
        return "blocks are still missing, and there are others who could go"
    if got and freed - known[got[-1]][2] >= missing:
        return "one fewer would do: enough blocks were free by then"
    others = sorted(outputs for order, (outputs, _, _) in known.items() if order != min(known))
    if [known[order][0] for order in got] != others[: len(got)]:
        return "the one that has written least goes first"
    return "fewest outputs go first; what decides among equals?"


_LIVES: list[list[tuple[int, int]]] = [  # (stored, left) of each
    [(10, 5)],
    [(10, 5), (3, 20)],  # 15 + 8 when the first ends, and the other ends with 23
    [(10, 5), (3, 12)],
    [(8, 2), (8, 2), (8, 2)],
    [(20, 1), (1, 30), (1, 30)],
    [(1, 40), (30, 4), (10, 10)],
    [(50, 1), (1, 3), (1, 3)],  # the next step is the fullest
    [(0, 9), (5, 9), (2, 2)],
    [(7, 3), (100, 90), (40, 17), (3, 60), (12, 60), (0, 200)],
]


def check_peak_need(function: Callable) -> None:
    """`function(sequences)`: the most positions that a step to come will need."""
    for sequences in _LIVES:
        expect(function, sequences, want=_peak(sequences), hint=_peak_hint)


def _peak(sequences: list[tuple[int, int]], at_end: int = 0) -> int:
    """In the fullest step; `at_end` 1 leaves out those who write their last token in it."""
    steps = range(1, 1 + max(left for _, left in sequences))
    return max(sum(stored + step for stored, left in sequences if left >= step + at_end) for step in steps)


def _peak_hint(got: object, sequences: list[tuple[int, int]]) -> str:
    if not isinstance(got, numbers.Real) or isinstance(got, bool):
        return "return one number"
    wrong = {
        sum(stored for stored, _ in sequences): "that is what they hold now",
        sum(stored + 1 for stored, _ in sequences): "that is the next step; a later one may need more",
        max(stored + left for stored, left in sequences): "the others are there as well",
        sum(stored + left for stored, left in sequences): "not all needs come at once: by then some have ended",
        _peak(sequences, at_end=1): "who ends in a step still holds its positions in that step",
    }
    return wrong.get(got, "in each step: who still runs, and what does each of them hold by then?")


class _Watched(PagedMemory):
    """Notes when a chunk of a prompt finds no room."""

    def __init__(self, num_blocks: int):
        super().__init__(num_blocks, block_size=4)
        self.stuck = 0

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """As PagedMemory."""
        room = super().grow(sequence, num_tokens)
        self.stuck += not room and sequence.num_tokens - sequence.num_computed_tokens > 1
        return room


class _ByReader(Reserve):
    """Asks the reader's function, which gets copies."""

    def __init__(self, function: Callable):
        self.function = function

    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        """What the function says, if it is two whole numbers."""
        try:
            got = call(self.function, sequence, running, memory)
        except CheckFailed as failed:  # the arguments are long to read
            raise type(failed)(str(failed).replace(failed.call, _CALL)) from None
        pair = isinstance(got, (list, tuple)) and len(got) == 2
        whole = pair and all(isinstance(each, numbers.Integral) and each >= 0 for each in got)
        need(whole, f"{_CALL} returned {str(got)[:60]!r}: return a Claim(tokens, keep_free), two whole numbers")
        need(got[0] >= 1, "a claim of no tokens: a sequence cannot enter on nothing")
        return Claim(*map(int, got))


_CALL = "claim(sequence, running, memory)"
_END = 1  # the scripts' last token


def check_claim(function: Callable) -> None:
    """`function(sequence, running, memory)`: a claim under which no chunk is without room, and no room without use."""
    long_ones = [_request(f"R{i}", 28, 12) for i in (1, 2, 3)]
    _, stuck = _serve(function, long_ones, 12)
    need(not stuck, f"a chunk of a prompt found no room {stuck} times; what comes after its first chunk?")
    _, stuck = _serve(function, long_ones, 12, cap=4)
    why = "those who entered before still need blocks for their prompts"
    need(not stuck, f"with a chunk cap of 4 tokens, a chunk of a prompt found no room {stuck} times; {why}")
    _, stuck = _serve(function, [_request("R1", 8, 30), _request("R2", 8, 30), _request("R3", 4, 30)], 13)
    why = "what it has written is part of its context"
    need(not stuck, f"a sequence came back after a preemption, and a chunk of it found no room {stuck} times; {why}")
    eight = [_request(f"R{i}", 13, 40, writes=4) for i in range(8)]  # four blocks each, and never more
    trace, _ = _serve(function, eight, 32, budget=200)
    most = max(len(step.live) for step in trace.steps)
    need(
        most == 8,
        f"eight sequences fit the pool to the last block, {most} ran together: the claim is too large",
    )


def _request(name: str, prompt: int, limit: int, writes: int | None = None) -> Request:
    return Request(name, (writes or limit,) * prompt, SamplingParams(limit, stop_token_ids=(_END,)))


def _serve(
    function: Callable, requests: list[Request], blocks: int, cap: int | None = None, budget: int = 8
) -> tuple[Trace, int]:
    """A run under the reader's claim, and how often a chunk of a prompt was without room."""
    memory = _Watched(blocks)
    scheduler = IterationScheduler(8, memory, mix=Chunked(budget, cap), reserve=_ByReader(function))
    script = {one.request_id: [7] * (one.prompt[0] - 1) + [_END] for one in requests}
    return Engine(scheduler, ScriptedExecutor(script)).run(requests), memory.stuck
