"""Failure cases of other systems, replayed: state of requests, seeds (cases.md A20, A21).

A16 (bad requests), A17 (ids used twice) and A18 (ending at the first token) are in test_engine.py, A19 (stop texts) in
test_stop_text.py.
"""

import itertools
import random

import numpy as np
import pytest
import torch
from helpers import AuditedEngine, engine_on, request

from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.model.sampling import sample
from minibatch.schedulers import IterationScheduler, StaticBatcher
from minibatch.simulate import ScriptedExecutor

FORBIDDEN, FORCED = 5, 6


class Scores(ScriptedExecutor):
    """Scripted scores, and the package's own sampling: `scores` maps a request to [vocab] of float32."""

    def __init__(self, scores=None):
        super().__init__()
        self.scores = scores or {}

    def execute(self, plan):
        due = [chunk.sequence for chunk in plan.chunks if chunk.yields_token]
        flat = torch.zeros(self.vocab_size)
        logits = torch.stack([self.scores.get(one.request_id[:2], flat) for one in due]) if due else None
        chosen = dict(zip(due, sample(logits, due))) if due else {}
        result = super().execute(plan)
        return result.__class__(tuple(chosen.get(chunk.sequence) for chunk in plan.chunks), result.seconds)


def constrained():
    """R2 may not write one token, R3 writes nothing but another, which nobody else may write."""
    few = torch.zeros(1000)
    few[20:] = -torch.inf
    few[FORCED] = -torch.inf
    scores = {f"R{i}": few + torch.arange(1000) / 500 * (i + 1) for i in range(3)}
    scores["R2"] = scores["R2"].clone()
    scores["R2"][FORBIDDEN] = -torch.inf
    scores["R3"] = torch.full((1000,), -torch.inf)
    scores["R3"][FORCED] = 0.0
    return Scores(scores)


MIXED = [
    request("R0", 2),
    request("R1", 10, temperature=0.8, seed=5),
    request("R2", 10, temperature=1.3, seed=6, top_k=8),
    request("R3", 10, temperature=1.0),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("scheduler", [IterationScheduler, StaticBatcher])
def test_a20_each_row_keeps_its_own_sampling_when_the_batch_shrinks(scheduler, order):
    def served(requests, slots):
        memory = ContiguousMemory(512, 32)
        trace = AuditedEngine(scheduler(slots, memory), constrained()).run(requests)
        return {name: record.tokens for name, record in trace.requests.items()}

    together = served([*(MIXED[i] for i in order), MIXED[3]], 3)
    for some in MIXED:
        assert together[some.request_id] == served([some], 1)[some.request_id]
    assert FORBIDDEN not in together["R2"] and set(together["R3"]) == {FORCED}
    assert all(FORCED not in together[name] for name in ("R0", "R1", "R2"))
    assert len(set(together["R1"])) > 1 and set(together["R0"]) == {19}


def drawn(*requests, preempt_at=None, slots=3):
    """What request R draws from flat scores over 1,000 tokens, beside others."""
    engine = engine_on(PagedMemory(32, 4), slots, executor=Scores())
    for some in requests:
        engine.submit(some)
    while engine.step():
        sequence = engine.open.get("R")
        if sequence and len(sequence.output) == preempt_at:
            engine.scheduler.preempt(sequence)
            preempt_at = None
    return engine.trace.requests["R"].tokens


def test_a21_a_seeded_request_draws_the_same_in_any_company():
    mine = request("R", 16, temperature=1.0, seed=42)
    unseeded, short = request("N", 16, temperature=1.0), request("S", 3, temperature=1.0)
    alone = drawn(mine)
    assert len(alone) == 16 and len(set(alone)) > 10, "not the same number over and over"
    assert drawn(mine, unseeded) == drawn(unseeded, mine) == alone, "a neighbour, before it or after it"
    assert drawn(short, mine, unseeded) == alone, "a neighbour that ends"
    assert all(drawn(unseeded, mine, preempt_at=count) == alone for count in (1, 8, 15)), "after a preemption"
    assert drawn(unseeded, short, mine, slots=1) == alone, "after a wait"


def test_a21_one_seed_for_two_requests_makes_them_alike_as_documented():
    """SamplingParams: "two requests with one seed and one prompt write one text"."""
    engine = engine_on(PagedMemory(32, 4), executor=Scores())
    trace = engine.run([request(name, 8, temperature=1.0, seed=7) for name in ("A", "B")])
    assert trace.requests["A"].tokens == trace.requests["B"].tokens
    trace = engine_on(PagedMemory(32, 4), executor=Scores()).run([request(n, 8, temperature=1.0) for n in ("A", "B")])
    assert trace.requests["A"].tokens != trace.requests["B"].tokens, "without a seed, the id stands for one"


def test_a21_nobodys_random_state_moves(tiny):
    def states():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    memory = PagedMemory(32, 4, prefix_cache=True, host_blocks=4)
    engine = engine_on(memory, executor=tiny.executor(memory))
    engine.run([tiny.request("R", "tell a story", max_new_tokens=8, temperature=1.0)])
    assert states() == before
