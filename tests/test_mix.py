"""Axis 2, mix: what is in which step, token by token, with scripted tokens and a clock of one second a step."""

import pytest
from helpers import engine_on, request, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.metrics import tokens_sha256
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.mix import Chunked, PrefillFirst, WholePrefills


def chunks(trace):
    """For each step, request -> tokens computed, in the order of the plan."""
    return [{work.request_id: work.count for work in step.live} for step in trace.steps]


def run(mix, requests, slots=8):
    return serve(IterationScheduler(slots, mix=mix), requests)


def newcomer():
    """A09 (b): A and B are decoding when C arrives with ten prompt tokens."""
    return [request("A", 8, prompt=2), request("B", 8, prompt=2), request("C", 2, prompt=10, arrival=1.5)]


# Exact membership


def test_whole_prefill_beside_decodes():
    trace = run("whole", newcomer())
    assert chunks(trace) == [
        {"A": 2, "B": 2},
        {"A": 1, "B": 1},
        {"A": 1, "B": 1, "C": 10},
        *[{"A": 1, "B": 1, "C": 1}],
        *[{"A": 1, "B": 1}] * 4,
    ]
    assert trace.requests["C"].token_times == [3, 4]


def test_prefill_first_never_mixes():
    trace = run("prefill_first", newcomer())
    assert chunks(trace) == [
        {"A": 2, "B": 2},
        {"A": 1, "B": 1},
        {"C": 10},
        {"A": 1, "B": 1, "C": 1},
        *[{"A": 1, "B": 1}] * 5,
    ]
    assert trace.requests["A"].token_times[:3] == [1, 2, 4], "A waits while C's prompt is computed"


def test_prefill_first_with_a_budget_takes_several_steps_in_a_row():
    trace = run(PrefillFirst(token_budget=4), [*newcomer(), request("D", 1, prompt=3, arrival=1.5)])
    assert chunks(trace)[2:7] == [{"C": 4}, {"C": 4}, {"C": 2, "D": 2}, {"D": 1}, {"A": 1, "B": 1, "C": 1}]


@pytest.mark.parametrize("budget", [3, 9])
def test_the_last_token_of_a_prompt_is_prefill_even_alone_in_its_chunk(budget):
    trace = run(PrefillFirst(budget), newcomer())
    assert {"C": 1} in chunks(trace)
    assert all(len({work.prefill for work in step.live}) == 1 for step in trace.steps)


def test_prefill_first_bounds_prompt_tokens_not_decodes():
    trace = run(PrefillFirst(token_budget=2), [request(name, 3) for name in "ABCD"])
    assert chunks(trace) == [{"A": 1, "B": 1}, {"C": 1, "D": 1}, *[dict.fromkeys("ABCD", 1)] * 2]


def test_a09a_chunks_of_a_lone_prompt():
    trace = run(Chunked(4), [request("A", 3, prompt=10)])
    assert [step.live[0][2:4] for step in trace.steps] == [(0, 4), (4, 4), (8, 2), (10, 1), (11, 1)]
    assert [len(step.live) for step in trace.steps] == [1] * 5
    assert trace.requests["A"].token_times == [3, 4, 5], "nothing comes out of a chunk in the middle"


def test_a09b_decodes_advance_in_every_step_and_the_prompt_gets_the_rest():
    trace = run(Chunked(4), newcomer())
    assert chunks(trace) == [
        {"A": 2, "B": 2},
        {"A": 1, "B": 1},
        *[{"A": 1, "B": 1, "C": 2}] * 5,
        {"A": 1, "B": 1, "C": 1},
    ]
    assert trace.requests["A"].token_times == list(range(1, 9))
    assert trace.requests["C"].token_times == [7, 8]


def test_budget_left_by_the_end_of_one_prompt_goes_to_the_next():
    trace = run(Chunked(4), [request("A", 2, prompt=6), request("B", 1, prompt=5)])
    assert chunks(trace) == [{"A": 4}, {"A": 2, "B": 2}, {"A": 1, "B": 3}]


def test_a_budget_smaller_than_the_slots_bounds_who_enters():
    trace = run(Chunked(2), [request(name, 2) for name in "ABC"])
    assert chunks(trace) == [{"A": 1, "B": 1}, {"A": 1, "B": 1}, {"C": 1}, {"C": 1}]


def test_chunk_cap_lets_a_short_prompt_enter_beside_a_long_one():
    asked = [request("long", 1, prompt=10), request("short", 1, prompt=3)]
    assert chunks(run(Chunked(6), asked)) == [{"long": 6}, {"long": 4, "short": 2}, {"short": 1}]
    assert chunks(run(Chunked(6, chunk_cap=3), asked)) == [
        {"long": 3, "short": 3},
        {"long": 3},
        {"long": 3},
        {"long": 1},
    ]


def test_an_ample_budget_is_whole():
    assert chunks(run(Chunked(1000), newcomer())) == chunks(run(WholePrefills(), newcomer()))


def test_after_a_preemption_nobody_enters_in_that_step():
    """Four blocks of 4. A needs its third in step 6 and B gives way; its place would be large enough for C."""
    memory = PagedMemory(4, block_size=4)
    asked = [request("A", 8, prompt=4), request("B", 8, prompt=4), request("C", 1, prompt=1, arrival=2, priority=-1)]
    trace = engine_on(memory, 4, mix=Chunked(8), join="priority", reserve="prompt").run(asked)
    first = next(step for step in trace.steps if step.preempted)
    assert (first.preempted, first.admitted, first.waiting) == (("B",), (), 2)
    assert trace.steps[first.step].admitted == ("C",)


# Any load


LOADS = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(0, 8)), min_size=1, max_size=8
)  # prompt, output, arrival
SIZES = st.integers(1, 9)
MIXES = st.one_of(
    st.just(WholePrefills()),
    st.builds(PrefillFirst, st.none() | SIZES),
    st.builds(Chunked, SIZES, st.none() | SIZES),
)


def of(load):
    return [request(f"R{i}", out, arrival, prompt) for i, (prompt, out, arrival) in enumerate(load)]


@settings(max_examples=150, deadline=None)
@given(LOADS, MIXES, st.integers(1, 4))
def test_same_tokens_and_each_position_computed_once(load, mix, slots):
    """And, in the audited engine: the budget, the cap, one token a request that gets to its end, no empty step."""
    requests = of(load)
    trace = serve(IterationScheduler(slots, mix=mix), requests)
    assert tokens_sha256(trace) == tokens_sha256(serve(IterationScheduler(1), requests))
    for asked in requests:
        spans = [w[2:4] for step in trace.steps for w in step.live if w.request_id == asked.request_id]
        assert [start for start, _ in spans] == [sum(n for _, n in spans[:i]) for i in range(len(spans))]
        assert sum(count for _, count in spans) == asked.kv_need


@settings(max_examples=150, deadline=None)
@given(LOADS, SIZES, st.none() | SIZES, st.integers(1, 4), st.integers(5, 12))
def test_under_a_budget_nobody_who_runs_is_left_out(load, budget, cap, slots, blocks):
    """Not even around a preemption: from its entry on, a request is in every step until it ends or gives way."""
    memory = PagedMemory(blocks, block_size=4)
    engine = engine_on(memory, slots, mix=Chunked(budget, cap))
    trace = engine.run(of(load))
    inside = set()
    for step in trace.steps:
        assert not (step.preempted and step.admitted), "memory taken from one who runs is for one who runs"
        inside = (inside | set(step.admitted)) - set(step.preempted)
        assert inside == {work.request_id for work in step.live}
        assert sum(work.count for work in step.live) <= budget
        assert max(work.count for work in step.live) <= (cap or budget)
        inside -= set(step.finished)


@settings(max_examples=150, deadline=None)
@given(LOADS, st.none() | SIZES, st.integers(1, 4), st.integers(5, 12))
def test_prefill_first_computes_prompts_or_decodes(load, budget, slots, blocks):
    """With preemption too: what is computed again is one prompt, output and all."""
    trace = engine_on(PagedMemory(blocks, block_size=4), slots, mix=PrefillFirst(budget)).run(of(load))
    for step in trace.steps:
        prompts = [work.count for work in step.live if work.prefill or work.count > 1]
        assert len(prompts) in (0, len(step.live))
        assert not prompts or sum(prompts) <= (budget or sum(prompts))


# Bad input


@pytest.mark.parametrize("policy", [Chunked, PrefillFirst])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, "64"])
def test_a_bad_budget_is_refused_by_name(policy, value):
    with pytest.raises(ValueError, match="token_budget=.*whole number of tokens, at least 1"):
        policy(token_budget=value)


@pytest.mark.parametrize("value", [0, -3, 1.0, False])
def test_a_bad_cap_is_refused_by_name(value):
    with pytest.raises(ValueError, match="chunk_cap=.*at least 1"):
        Chunked(64, chunk_cap=value)


def test_chunked_needs_a_budget():
    with pytest.raises(ValueError, match="token_budget=None"):
        Chunked(None)


def test_an_unknown_mix_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="mix='fast'.*whole, prefill_first, chunked"):
        IterationScheduler(mix="fast", memory=ContiguousMemory(8, 8))
