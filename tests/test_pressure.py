"""Preemption and admission by hand: A11 step by step, who gives way, what each reserve policy asks for.

The failure cases of other systems are in test_cases_pressure.py, impossible configurations in test_bad_policies.py.
"""

import math

import pytest
from fake_kv import answer
from helpers import assert_drained, engine_on, request
from hypothesis import given, settings
from hypothesis import strategies as st

from minibatch.memory import PagedMemory
from minibatch.metrics import idle_while_waiting, recomputed_tokens
from minibatch.plot.pressure import pressure, pressure_alt, pressure_numbers
from minibatch.request import Sequence
from minibatch.schedulers.evict import VICTIMS, Evict
from minibatch.schedulers.mix import MIXES, Chunked
from minibatch.schedulers.reserve import (
    RESERVES,
    Claim,
    FullNeed,
    NewTokenRatio,
    Profiled,
    PromptOnly,
    Reserve,
)
from minibatch.simulate import ScriptedExecutor


def three(**policies):
    """A11: 6 blocks of 4, prompts of 8, answers of 9; any one fits, no two do. Returns trace and counts."""
    engine = engine_on(PagedMemory(6, 4, host_blocks=policies.pop("host_blocks", None)), 3, **policies)
    return engine.run([request(name, 9, prompt=8) for name in "ABC"]), engine.scheduler.counts


def sequence(order=0, prompt=8, output=0, limit=100, priority=0, blocks=0):
    """A sequence in the middle of its life."""
    some = request(f"R{order}", limit, prompt=prompt, priority=priority)
    return Sequence(some, output=[7] * output, order=order, block_table=list(range(blocks)))


# ---- preemption ----


def test_a11_step_by_step():
    trace, counts = three()
    assert len(trace.steps) == 21 and counts == {"recomputed": 2, "swap_refused": 0}
    assert {step.step: step.preempted for step in trace.steps if step.preempted} == {2: ("C",), 6: ("B",)}
    assert {step.step: step.admitted for step in trace.steps if step.admitted} == {
        1: ("A", "B", "C"),
        10: ("B",),
        14: ("C",),
    }
    works = [(step.step, w.request_id, w.start, w.count) for step in trace.steps for w in step.live if w.count > 1]
    assert works[3:] == [(10, "B", 0, 13), (14, "C", 0, 9)], "prompt and what was written, as one prefill"
    assert recomputed_tokens(trace) == 12 + 8, "B had stored 12 positions, C 8"
    assert [record.finished_at for record in trace.requests.values()] == [9, 13, 21]


def test_a11_by_swap_takes_the_same_steps_and_computes_nothing_twice():
    trace, counts = three(evict=Evict(swap=True), host_blocks=6)
    assert len(trace.steps) == 21 and counts == {"swapped": 2, "swap_refused": 0}
    moved = [(step.step, step.blocks_out, step.blocks_in) for step in trace.steps if step.blocks_out or step.blocks_in]
    assert moved == [(2, 2, 0), (6, 3, 0), (10, 0, 3), (14, 0, 2)]
    assert recomputed_tokens(trace) == 0
    assert all(work.count == 1 for step in trace.steps[1:] for work in step.live)


@pytest.mark.parametrize("host_blocks, counts", [(0, (0, 2, 2)), (2, (1, 1, 1)), (3, (1, 1, 1)), (5, (2, 0, 0))])
def test_who_does_not_fit_the_host_pool_is_recomputed_and_counted(host_blocks, counts):
    """C swaps two blocks in step 2, B three in step 6, while C's are still there."""
    trace, seen = three(evict=Evict(swap=True), host_blocks=host_blocks)
    assert (seen["swapped"], seen["swap_refused"], seen["recomputed"]) == counts and len(trace.steps) == 21


@pytest.mark.parametrize(
    "victim, order",
    [("newest", [5, 4, 3, 2, 1]), ("fewest_outputs", [3, 5, 4, 1, 2]), ("lowest_priority", [4, 2, 5, 3, 1])],
)
def test_who_gives_way_before_whom(victim, order):
    running = [
        sequence(0, prompt=90, output=0, priority=9),  # the oldest: last under every rule
        sequence(1, prompt=8, output=6),
        sequence(2, prompt=8, output=9, priority=2),
        sequence(3, prompt=40, output=2, priority=1),
        sequence(4, prompt=8, output=2, priority=2),
        sequence(5, prompt=8, output=2, priority=1),
    ]
    gone = []
    while running:
        gone.append(Evict(victim).choose(running))
        running.remove(gone[-1])
    assert [one.order for one in gone] == [*order, 0]


def test_the_rule_decides_who_goes_in_a_run():
    some = [("A", 8, 1), ("B", 12, 0), ("C", 4, 1), ("D", 4, 0)]
    for victim, first in [("newest", "D"), ("fewest_outputs", "B"), ("lowest_priority", "C")]:
        engine = engine_on(PagedMemory(10, 4), 4, evict=victim)
        trace = engine.run([request(name, 9, prompt=p, priority=level) for name, p, level in some])
        assert trace.steps[1].preempted[0] == first and trace.requests["A"].preemptions == 0


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=8),
    spare=st.integers(0, 6),
    victim=st.sampled_from(sorted(VICTIMS)),
    host_blocks=st.sampled_from([None, 0, 2, 20]),
    mix=st.sampled_from([*MIXES, "small chunks"]),
    reserve=st.sampled_from(sorted(RESERVES)),
    prefix_cache=st.booleans(),
)
def test_everybody_ends_in_any_pool_that_fits_one(lengths, spare, victim, host_blocks, mix, reserve, prefix_cache):
    requests = [request(f"R{i}", output, prompt=prompt) for i, (prompt, output) in enumerate(lengths)]
    memory = PagedMemory(max(-(-some.kv_need // 4) for some in requests) + spare, 4, prefix_cache, host_blocks)
    policies = {"mix": Chunked(3) if mix == "small chunks" else mix, "reserve": reserve}
    engine = engine_on(memory, 4, evict=Evict(victim, swap=host_blocks is not None), **policies)
    trace = engine.run(requests)
    assert all(trace.requests[some.request_id].tokens == answer(some) for some in requests)
    assert trace.requests["R0"].preemptions == 0, "first come, first served: it is the oldest from its first step on"
    assert reserve != "full" or not any(step.preempted for step in trace.steps)
    assert_drained(engine.scheduler)


# ---- reserve policies: one claim each, worked out by hand ----

POOL = PagedMemory(100, block_size=4)


def test_full_need_claims_prompt_and_limit():
    assert FullNeed().claim(sequence(prompt=8, output=3, limit=100), [], POOL) == Claim(107)


@pytest.mark.parametrize("watermark, blocks", [(0, 0), (0.009, 0), (0.01, 1), (0.055, 5), (0.999, 99)])
def test_prompt_only_claims_what_is_known_and_a_watermark_in_whole_blocks(watermark, blocks):
    assert PromptOnly(watermark).claim(sequence(prompt=8, output=3), [], POOL) == Claim(11, blocks)


def test_the_watermark_holds_back_a_second_request_and_never_the_only_one():
    engine = engine_on(PagedMemory(10, 4), reserve=PromptOnly(0.5))
    first, second = (engine.submit(request(name, 2, prompt=prompt)) for name, prompt in [("A", 22), ("B", 1)])
    engine.step()
    assert first.slot is not None, "six of ten blocks, though five are to stay free: nobody else runs"
    assert second.slot is None
    assert engine.run([]).requests["B"].first_scheduled == 2


def test_new_token_ratio_claims_its_own_limit_and_a_share_of_what_others_may_write():
    policy = NewTokenRatio(initial=0.5, floor=0.1)
    others = [sequence(1, output=20, limit=100), sequence(2, output=0, limit=7)]
    # 0.5 * (80 + 7) for the others, 60 - 3 for itself: 100.5 tokens, 26 blocks
    assert policy.claim(sequence(3, prompt=8, output=3, limit=60), others, POOL) == Claim(11, 26)
    assert NewTokenRatio(0.5, 0.1, clip=50).claim(sequence(3, limit=60), others, POOL).keep_free == math.ceil(78.5 / 4)


def test_the_ratio_sinks_to_its_floor_jumps_after_a_preemption_and_starts_again_when_idle():
    policy, running = (
        NewTokenRatio(initial=0.7, floor=0.1, decay_steps=6),
        [sequence(0, output=30), sequence(1, output=10)],
    )
    seen = []
    for _ in range(8):
        policy.step_done(running, preempted=False)
        seen.append(round(policy.ratio, 9))
    assert seen == [0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1]
    policy.step_done(running, preempted=True)
    assert policy.ratio == (30 + 10 + 2 * 20) / 200
    policy.step_done([sequence(0, output=95)], preempted=True)
    assert policy.ratio == 1.0
    policy.step_done([], preempted=False)
    assert policy.ratio == 0.7


def test_profiled_claims_room_up_to_the_quantile_for_everyone():
    policy = Profiled(quantile=0.5, window=10, least=4)
    for length in (99, 99, 4, 8, 10, 16, 20, 40):
        policy.finished(sequence(output=length))
    for length in (4, 8, 10, 16):  # the window holds ten: the two 99 are forgotten
        policy.finished(sequence(output=length))
    assert list(policy.lengths) == [4, 8, 10, 16, 20, 40, 4, 8, 10, 16]
    # The median is 10. Prompts of 8 end at 8 + 10 - 1 = 17 positions, 5 blocks.
    assert policy.claim(sequence(9), [], POOL) == Claim(8, 5 - 2)
    growing = sequence(1, output=3, blocks=3)  # 2 blocks to go
    beyond = sequence(2, output=12, blocks=5)  # has passed the estimate
    limited = sequence(3, output=1, limit=5, blocks=3)  # 8 + 5 - 1 positions: 3 blocks, which it has
    assert policy.claim(sequence(9), [growing, beyond, limited], POOL) == Claim(8, 3 + 2)
    assert policy.claim(sequence(9, output=5), [growing], POOL) == Claim(13, 5 - 4 + 2)


def test_without_enough_lengths_the_profile_is_the_limit():
    policy = Profiled(quantile=0.5, least=2)
    policy.finished(sequence(output=4))
    assert policy.claim(sequence(limit=100), [], POOL) == Claim(8, 27 - 2)  # 107 positions are 27 blocks
    policy.finished(sequence(output=4))
    assert policy.claim(sequence(limit=100), [], POOL) == Claim(8, 3 - 2)


def test_a_run_teaches_the_profile_and_moves_the_ratio():
    profile, ratio = Profiled(quantile=1), NewTokenRatio()
    requests = [request(f"R{i}", i + 1, prompt=4) for i in range(8)]
    engine_on(PagedMemory(40, 4), reserve=profile).run(requests)
    assert sorted(profile.lengths) == list(range(1, 9))
    engine = engine_on(PagedMemory(40, 4), reserve=ratio)
    for some in requests:
        engine.submit(some)
    for _ in range(8):
        engine.step()
    assert ratio.ratio == pytest.approx(0.7 - 8 * (0.7 - 0.098) / 600)
    assert engine.step() is None and ratio.ratio == 0.7, "nobody is there: it starts again"


# ---- thrashing ----


class FirstChunk(Reserve):
    """The bug of vLLM issue 21809."""

    def claim(self, sequence, running, memory):
        return Claim(min(sequence.num_tokens, 8))


def test_chunks_admitted_without_room_for_the_context_are_computed_over_and_over():
    def run(reserve):
        requests = [request(f"R{i}", 12, prompt=28) for i in (1, 2, 3)]
        trace = engine_on(PagedMemory(12, 4), 3, mix=Chunked(8), reserve=reserve).run(requests)
        return len(trace.steps), sum(len(step.preempted) for step in trace.steps), recomputed_tokens(trace)

    assert run(FirstChunk()) == (45, 10, 92)
    assert run(PromptOnly()) == (45, 0, 0)


# ---- what the trace says of it ----


def test_idle_memory_counts_only_while_somebody_waits():
    trace, _ = three()
    waited = [step.memory.used for step in trace.steps if step.waiting]
    assert [step.step for step in trace.steps if step.waiting] == list(range(2, 14))
    assert idle_while_waiting(trace) == pytest.approx(1 - sum(waited) / (24 * 12))
    assert idle_while_waiting(engine_on(PagedMemory(9, 4)).run([request("A", 3)])) is None


def test_a_failed_step_computes_nothing_and_an_id_used_again_is_another_request():
    class FailsInStep10(ScriptedExecutor):
        def execute(self, plan):
            if plan.admitted == ("B",):
                raise RuntimeError("boom")
            return super().execute(plan)

    engine = engine_on(PagedMemory(6, 4), 3, FailsInStep10())
    trace = engine.run([request(name, 9, prompt=8) for name in "ABC"])
    assert trace.requests["B"].finish_reason == "failed"
    assert recomputed_tokens(trace) == 8, "C's; B was to compute 12 again when the step failed"
    assert recomputed_tokens(engine.run([request("A", 9, prompt=8)])) == 8


@pytest.mark.parametrize("axis", ["steps", "seconds"])
def test_the_picture_marks_every_preemption_and_says_its_numbers(axis):
    trace, _ = three()
    figure = pressure({"six": trace}, axis)
    marks, pool, _ = figure.axes[:3]
    segments = marks.collections[0].get_segments()
    assert [segment[0][0] for segment in segments] == [1, 5]  # at the beginning of steps 2 and 6
    assert pool.get_ylim()[1] >= 24
    said = pressure_numbers(trace)
    assert said[:3] == ["21 steps", "2 preemptions", "20 tokens recomputed"]
    assert all(words in pressure_alt({"six": trace}) for words in ["six: ", *said])
    assert pressure_numbers(engine_on(PagedMemory(9, 4)).run([request("A", 3)]))[-1] == "nobody waits"
