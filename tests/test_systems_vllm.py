"""vLLM V0 and V1: each rule of their schedulers, and the examples of their documents, on its row."""

import pytest
from fake_kv import FakeKV
from helpers import AuditedEngine, admitted, request
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import chunks, run, stepper, steps_of

from minibatch import RequestRefused
from minibatch.memory import PagedMemory
from minibatch.request import Sequence
from minibatch.schedulers.reserve import Claim, NextChunk
from minibatch.schedulers.systems import system

# ---- vLLM V0 ----


def test_v0_prompts_go_first_and_alone():
    trace = run("vllm-v0", 160, [request("A", 6, prompt=2), request("C", 2, prompt=10, arrival=1.5)])
    assert chunks(trace)[:4] == [{"A": 2}, {"A": 1}, {"C": 10}, {"A": 1, "C": 1}]


def test_v0_a_prompt_over_what_is_left_of_the_budget_waits_whole_and_blocks_those_behind_it():
    asked = [request("A", 3, prompt=5), request("B", 3, prompt=5), request("C", 3, prompt=1)]
    trace = run("vllm-v0", 160, asked, token_budget=8)
    assert chunks(trace)[:3] == [{"A": 5}, {"B": 5, "C": 1}, {"A": 1, "B": 1, "C": 1}]


def test_v0_a_prompt_over_the_limit_is_refused():
    engine = stepper("vllm-v0", 160, token_budget=8)
    with pytest.raises(RequestRefused, match="9 tokens"):
        engine.submit(request("A", 1, prompt=9))
    assert system("vllm-v0").build(10_000, 5000).mix.token_budget == 5000, "max_model_len, at least 2048"
    assert system("vllm-v0").build(10_000, 500).mix.token_budget == 2048


@pytest.mark.parametrize("prompt, enters", [(98, True), (99, False)])
def test_v0_a_watermark_of_one_percent_stays_free_at_admission(prompt, enters):
    """200 blocks of 1: two stay free beside A's 100 and B's prompt."""
    trace = run("vllm-v0", 200, [request("A", 1, prompt=100), request("B", 1, prompt=prompt)], block_size=1)
    assert trace.steps[0].admitted == (("A", "B") if enters else ("A",))


def test_v0_slots_count_those_who_run():
    trace = run("vllm-v0", 160, [request(name, 4) for name in "ABC"], max_num_seqs=2)
    assert steps_of(trace, "admitted") == {1: ("A", "B"), 5: ("C",)}


def test_v0_a_decode_asks_for_a_free_block_each_though_none_is_needed():
    """Four blocks of 4, all held: nobody needs a fifth, and still B, the newest, gives way."""
    asked = [request("A", 2, prompt=5), request("B", 3, prompt=5), request("C", 1, prompt=1)]
    trace = run("vllm-v0", 16, asked, block_size=4)
    assert steps_of(trace, "preempted") == {2: ("B",)}
    assert chunks(trace)[2] == {"B": 6, "C": 1}, "its token is folded into the prompt, and it stands before C"
    lazy = run("vllm-v1", 16, asked, block_size=4)
    assert not steps_of(lazy, "preempted"), "V1 asks for what is needed"


def test_v0_the_newest_gives_way_first():
    engine = stepper("vllm-v0", 32, [request(name, 20, prompt=4) for name in "ABCD"], block_size=4, watermark=0)
    gone = []
    while engine.open:
        before = [one.request_id for one in engine.scheduler.running]
        for name in engine.step().preempted:
            assert name == max(before)
            before.remove(name)
            gone.append(name)
    assert set(gone) == set("BCD")


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 9)), min_size=3, max_size=9))
def test_v0_swapped_ones_block_new_prompts_and_come_back_in_a_step_without_preemption(load):
    requests = [request(f"R{i}", out, at, prompt) for i, (prompt, out, at) in enumerate(load)]
    scheduler = system("vllm-v0").build(24, 24, block_size=4, host_blocks=20)
    engine, away = AuditedEngine(scheduler, FakeKV(scheduler.memory)), []

    def look(record):
        prompts = [work for work in record.live if work.prefill]
        assert not (away and prompts), f"{away} swapped out, prompts {prompts}"
        assert not (record.preempted and record.blocks_in)
        away[:] = [one.request_id for one in scheduler.waiting if scheduler.memory.holds(one)]

    engine.run(requests, on_step=look)
    assert not engine.open


def test_v0_swaps_and_computes_nothing_twice_where_the_host_has_room():
    engine = stepper("vllm-v0", 16, block_size=4, host_blocks=8)
    trace = engine.run([request(n, 5, prompt=5) for n in "AB"])
    assert engine.scheduler.counts == {"swapped": 2, "swap_refused": 0}
    assert sum(sum(step.values()) for step in chunks(trace)) == 2 * 9


def test_v0_chunked_puts_decodes_first_with_a_budget_of_512():
    assert system("vllm-v0").build(10_000, 5000, chunked_prefill=True).mix.token_budget == 512
    asked = [request("A", 6, prompt=2), request("C", 2, prompt=10, arrival=1.5)]
    trace = run("vllm-v0", 160, asked, chunked_prefill=True, token_budget=4)
    assert chunks(trace)[2:4] == [{"A": 1, "C": 3}, {"A": 1, "C": 3}]


# ---- vLLM V1 ----


def test_v1_those_who_run_go_first_and_a_prompt_gets_what_is_left_of_the_budget():
    trace = run("vllm-v1", 160, [request("A", 6, prompt=2), request("C", 2, prompt=6, arrival=0.5)], token_budget=4)
    assert chunks(trace)[:4] == [{"A": 2}, {"A": 1, "C": 3}, {"A": 1, "C": 3}, {"A": 1, "C": 1}]


def test_v1_the_threshold_cuts_a_long_prompt_so_that_a_short_one_enters_beside_it():
    asked = [request("long", 1, prompt=9), request("short", 1, prompt=2)]
    trace = run("vllm-v1", 160, asked, token_budget=6, chunk_cap=4)
    assert chunks(trace)[0] == {"long": 4, "short": 2}


@pytest.mark.parametrize("prompt, whole, enters", [(12, True, True), (13, True, False), (13, False, True)])
def test_v1_the_whole_prompt_must_fit_though_only_its_first_chunk_takes_blocks(prompt, whole, enters):
    """Four blocks of 4, one of them A's: three are free. B's first chunk is 4 tokens."""
    asked = [request("A", 1, prompt=4), request("B", 1, prompt=prompt)]
    engine = stepper("vllm-v1", 16, asked, block_size=4, token_budget=8, whole_must_fit=whole)
    record = engine.step()
    assert record.admitted == (("A", "B") if enters else ("A",))
    assert record.memory.reserved == (8 if enters else 4), "blocks for this step's tokens"


def test_v1_a_refused_head_is_passed_by_nobody():
    asked = [request("A", 3, prompt=4), request("B", 1, prompt=13), request("C", 1, prompt=1)]
    trace = run("vllm-v1", 16, asked, block_size=4)
    assert steps_of(trace, "admitted") == {1: ("A",), 4: ("B",), 5: ("C",)}, "C would have fitted from the start"


@pytest.mark.parametrize("watermark, enters", [(0.25, True), (0.5, False)])
def test_v1_the_watermark_counts_only_beside_those_who_run(watermark, enters):
    """Four blocks of 4: A alone may leave none of the watermark, B beside it must leave all of it."""
    asked = [request("A", 1, prompt=8), request("B", 1, prompt=4)]
    trace = run("vllm-v1", 16, asked, block_size=4, watermark=watermark)
    assert ("B" in trace.steps[0].admitted) == enters
    assert run("vllm-v1", 16, [request("A", 1, prompt=16)], block_size=4, watermark=watermark).steps


def test_v1_the_last_that_runs_gives_way_and_stands_before_all_newcomers():
    asked = [*(request(name, 9, prompt=8) for name in "AB"), request("C", 1, prompt=1, arrival=0.5)]
    engine = stepper("vllm-v1", 24, block_size=4, max_num_seqs=2)
    trace = engine.run(asked)
    assert list(steps_of(trace, "preempted").values()) == [("B",)] and engine.scheduler.counts["recomputed"] == 1
    assert all(not step.admitted for step in trace.steps if step.preempted), "nobody enters in that step"
    assert list(steps_of(trace, "admitted").values()) == [("A", "B"), ("B", "C")]


def test_v1_priority_orders_the_queue_and_picks_the_victim():
    asked = [request(name, 9, prompt=4, priority=level) for name, level in zip("ABCD", (0, 2, 1, 1))]
    trace = run("vllm-v1", 32, asked, block_size=4, policy="priority")
    gone = [name for names in steps_of(trace, "preempted").values() for name in names]
    assert gone[0] == "B", "the highest number"
    late = [request("A", 4), request("B", 1, arrival=1, priority=2), request("C", 1, arrival=2, priority=1)]
    trace = run("vllm-v1", 32, late, max_num_seqs=1, policy="priority")
    assert steps_of(trace, "admitted") == {1: ("A",), 5: ("C",), 6: ("B",)}


def test_v1_the_example_of_the_prefix_caching_document():
    """Free queue 7-8-9-4-3-2-6-5-1-0 after two requests; a third finds 0, 1, 2 and takes 7, 8, 9, 4, 3."""
    memory = system("vllm-v1").build(40, 40, block_size=4, prefix_cache=True).memory
    zero, one, two = (
        Sequence(request(str(i), 9, prompt=prompt))
        for i, prompt in enumerate([range(15), [*range(10), *range(80, 84)], [*range(12), *range(50, 67)]])
    )
    for sequence, grown in [(zero, 17), (one, 14)]:
        assert memory.admit(sequence, len(sequence.request.prompt))
        sequence.output += [900 + i for i in range(grown - sequence.num_tokens)]
        assert memory.grow(sequence, grown)
        sequence.num_computed_tokens = grown
        memory.commit(sequence)
    assert (zero.block_table, one.block_table) == ([0, 1, 2, 3, 4], [0, 1, 5, 6])
    memory.release(zero)
    memory.release(one)
    assert memory.pool.free_order() == [7, 8, 9, 4, 3, 2, 6, 5, 1, 0]
    assert memory.admit(two, 29) and two.block_table == [0, 1, 2, 7, 8, 9, 4, 3]
    assert two.num_computed_tokens == 12 and memory.pool.free_order() == [6, 5]


def test_next_chunk_claims_what_the_step_can_give():
    memory, one = PagedMemory(100, 4), Sequence(request("A", 9, prompt=30))
    policy = NextChunk(watermark=0.05)
    policy.first_chunk = 10
    assert policy.claim(one, [], memory) == Claim(10, 5 + 8 - 3)
    policy.whole_must_fit = False
    assert policy.claim(one, [], memory) == Claim(10, 5)
    policy.first_chunk = 1000
    assert policy.claim(one, [], memory) == Claim(30, 5)


def test_next_chunk_begins_behind_what_is_stored():
    memory, policy = PagedMemory(100, 4, prefix_cache=True), NextChunk(whole_must_fit=False)
    admitted(memory, "A", prompt=9)
    policy.first_chunk = 5
    assert policy.claim(Sequence(request("B", 1, prompt=30)), [], memory) == Claim(8 + 5, 0)
