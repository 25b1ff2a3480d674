"""Orca, TensorRT-LLM, TGI, transformers, llama.cpp: each rule of their schedulers, and their own examples."""

import pytest
from helpers import request
from rows import chunks, run, stepper, steps_of

from minibatch import RequestRefused
from minibatch.schedulers.systems import system


def equal(n, prompt, output):
    """R1 to Rn."""
    return [request(f"R{i}", output, prompt=prompt) for i in range(1, n + 1)]


# ---- Orca ----


@pytest.mark.parametrize("name", ["orca-max", "orca-pow2", "orca-oracle"])
def test_orca_a_small_request_behind_a_big_one_does_not_overtake(name):
    asked = [request("A", 8, prompt=9), request("big", 8, prompt=9), request("small", 1, prompt=1)]
    trace = run(name, 32, asked, longest=32 if name == "orca-max" else 16)
    order = [name for names in steps_of(trace, "admitted").values() for name in names]
    assert order == ["A", "big", "small"] and not steps_of(trace, "preempted")


@pytest.mark.parametrize("name, length", [("orca-max", 2048), ("orca-pow2", 300 + 1024 - 1), ("orca-oracle", 812)])
def test_orca_reserves_for_the_whole_life(name, length):
    """The vLLM paper's pool of 15,728 slots; prompts of 300, answers of 513 (pow2: 1,024)."""
    engine = stepper(name, 15_728, equal(30, 300, 513), 2048, placement="first_fit")
    assert len(engine.scheduler.schedule(0.0).chunks) == 15_728 // length


def test_orca_max_on_a_buddy_allocator_holds_the_seven_of_the_paper():
    engine = stepper("orca-max", 15_728, equal(9, 10, 10), 2048)
    assert len(engine.scheduler.schedule(0.0).chunks) == 7


def test_orca_has_slots_and_computes_whole_prompts_beside_decodes():
    asked = [request("A", 3, prompt=2), request("B", 3, prompt=2), request("C", 2, prompt=7, arrival=0.5)]
    trace = run("orca-oracle", 64, asked, max_num_seqs=3)
    assert chunks(trace)[1] == {"A": 1, "B": 1, "C": 7}
    assert steps_of(run("orca-oracle", 64, asked, max_num_seqs=2), "admitted") == {1: ("A", "B"), 4: ("C",)}


# ---- TensorRT-LLM ----

BOTH = pytest.mark.parametrize("name", ["trtllm-no-evict", "trtllm-max-utilization"])


@BOTH
def test_trtllm_the_example_of_its_document(name):
    """At most 4 requests and 12 tokens a step; five prompts of 5."""
    trace = run(name, 400, equal(5, 5, 4), max_num_seqs=4, token_budget=12, block_size=4)
    assert chunks(trace)[:2] == [{"R1": 5, "R2": 5}, {"R1": 1, "R2": 1, "R3": 5, "R4": 5}]
    assert steps_of(trace, "finished")[4] == ("R1", "R2")
    assert steps_of(trace, "admitted") == {1: ("R1", "R2"), 2: ("R3", "R4"), 5: ("R5",)}


@BOTH
def test_trtllm_without_chunking_the_first_prompt_that_overflows_stops_the_scan(name):
    asked = [request("A", 1, prompt=5), request("B", 1, prompt=5), request("C", 1, prompt=1)]
    assert chunks(run(name, 400, asked, token_budget=8)) == [{"A": 5}, {"B": 5, "C": 1}]


@BOTH
def test_trtllm_first_come_first_served_chunks_take_what_is_left_in_whole_blocks(name):
    asked = [request("A", 1, prompt=6), request("B", 1, prompt=20), request("C", 1, prompt=2)]
    trace = run(name, 400, asked, token_budget=13, block_size=4, chunking="first_come_first_served")
    assert chunks(trace) == [{"A": 6, "B": 4, "C": 2}, {"B": 12}, {"B": 4}], "7 left for B: one block; 3 left for C"


@BOTH
def test_trtllm_equal_progress_deals_one_block_to_each_in_turn(name):
    asked = [request("A", 1, prompt=12), request("B", 1, prompt=20), request("C", 1, prompt=3)]
    trace = run(name, 400, asked, token_budget=20, block_size=4, chunking="equal_progress")
    assert chunks(trace) == [{"A": 8, "B": 8, "C": 3}, {"A": 4, "B": 12}]
    decodes = [request("D", 9, prompt=1), *(one for one in asked[:2])]
    first, second = chunks(run(name, 400, decodes, token_budget=9, block_size=4, chunking="equal_progress"))[:2]
    assert first == {"D": 1, "A": 4, "B": 4} and second == {"D": 1, "A": 4, "B": 4}


def test_trtllm_no_evict_lets_in_who_can_end_and_stops_at_the_first_who_cannot():
    """Ten blocks of 4: A needs 5 to its end, B 6, C 1."""
    asked = [request("A", 13, prompt=8), request("B", 13, prompt=12), request("C", 1, prompt=4)]
    trace = run("trtllm-no-evict", 40, asked, block_size=4)
    assert steps_of(trace, "admitted") == {1: ("A",), 14: ("B", "C")} and not steps_of(trace, "preempted")
    trace = run("trtllm-max-utilization", 40, asked, block_size=4)
    assert trace.steps[0].admitted == ("A", "B", "C"), "which fit for the next step"


def test_trtllm_max_utilization_pauses_the_last_started_and_computes_it_again():
    engine = stepper("trtllm-max-utilization", 24, equal(3, 7, 9), block_size=4)
    record = engine.step()
    while not record.preempted:
        record = engine.step()
    assert record.preempted == ("R3",) and engine.scheduler.waiting[0].num_computed_tokens == 0
    while "R3" not in record.admitted:
        record = engine.step()
    again = [work for work in record.live if work.request_id == "R3"]
    assert [(work.start, work.count > 7) for work in again] == [(0, True)], "its tokens became a part of the prompt"


# ---- TGI ----


@pytest.mark.parametrize("output, enters", [(9, True), (10, False)])
def test_tgi_takes_blocks_for_prompt_and_limit_less_one_at_entry(output, enters):
    """Eight blocks of 4. A takes 4 (8 + 9 - 1 = 16 positions), B 4 or, one token more, 5."""
    trace = run("tgi", 32, [request("A", 9, prompt=8), request("B", output, prompt=8)], block_size=4)
    assert trace.steps[0].admitted == (("A", "B") if enters else ("A",))
    assert trace.steps[0].memory.reserved == (32 if enters else 16) and not steps_of(trace, "preempted")


def test_tgi_who_finds_no_blocks_is_put_back_and_nobody_passes():
    asked = [request("A", 5, prompt=8), request("B", 20, prompt=8), request("C", 1, prompt=1)]
    assert steps_of(run("tgi", 32, asked, block_size=4), "admitted") == {1: ("A",), 6: ("B", "C")}


def test_tgi_with_chunking_the_budget_less_the_decodes_is_for_prompts():
    assert system("tgi").build(1000, 500).mix.token_budget == 550, "the longest input, and 50"
    asked = [request("A", 6, prompt=2), request("C", 2, prompt=10, arrival=1.5)]
    assert chunks(run("tgi", 160, asked, token_budget=6))[2:4] == [{"A": 1, "C": 5}, {"A": 1, "C": 5}]


def test_tgi_refuses_the_next_one_at_once_when_so_many_are_open():
    engine = stepper("tgi", 1000, equal(2, 5, 1), max_open=2)
    with pytest.raises(RequestRefused, match="max_open=2.*later"):
        engine.submit(request("C", 1))
    engine.step()
    engine.submit(request("D", 1))
    assert system("tgi").build(1000, 500).max_open == 128


def group_steps(late, positions=2000, **knobs):
    """Ten run, and `late` more arrive after the first step; in which steps do they enter?"""
    asked = [*equal(10, 2, 40), *(request(f"L{i}", 1, 0.5, 2) for i in range(late))]
    trace = run("tgi", positions, asked, chunking=False, **knobs)
    mixed = [step for step in trace.steps if len({work.prefill for work in step.live}) > 1]
    assert not mixed, "a group is computed alone"
    return list(steps_of(trace, "admitted"))[1:]


def test_tgi_without_chunking_a_group_waits_until_it_is_large_enough():
    assert group_steps(3) == [3], "floor(10 x 0.3); one decode of all in between"
    assert group_steps(2) == [21], "too few: after max_waiting_tokens those who run have written 20 tokens each"
    assert group_steps(2, max_waiting_tokens=5) == [6]
    assert group_steps(2, waiting_served_ratio=0.2) == [3]
    assert group_steps(12, waiting_served_ratio=1.2) == [3]
    assert group_steps(11, waiting_served_ratio=1.2) == [21]


@pytest.mark.parametrize(
    "knobs", [{"max_num_seqs": 12}, {"token_budget": 20}, {"positions": 41 * 16}], ids=["slots", "budget", "memory"]
)
def test_tgi_a_group_that_is_too_small_for_want_of_room_does_not_start(knobs):
    """Twelve wait and are asked for; two slots, ten prompts of two tokens, or 11 blocks beside 30, are not enough."""
    assert group_steps(12, waiting_served_ratio=1.2, **knobs)[0] == 21


def test_tgi_without_chunking_a_prompt_over_the_budget_waits_for_the_next_group():
    trace = run("tgi", 400, equal(3, 5, 2), chunking=False, token_budget=11)
    assert chunks(trace)[:3] == [{"R1": 5, "R2": 5}, {"R1": 1, "R2": 1}, {"R3": 5}]


# ---- transformers ----


def test_transformers_decodes_first_then_prompts_begun_then_newcomers_under_one_budget():
    asked = [request("A", 9, prompt=2), request("B", 1, prompt=9, arrival=0.5), request("C", 1, prompt=3, arrival=1.5)]
    trace = run("transformers", 400, asked, block_size=4, token_budget=6)
    assert chunks(trace)[:4] == [{"A": 2}, {"A": 1, "B": 5}, {"A": 1, "B": 4, "C": 1}, {"A": 1, "C": 2}]


@pytest.mark.parametrize("margin, enters", [(0.25, True), (0.26, False)])
def test_transformers_admits_while_the_margin_is_free_unless_the_step_is_empty(margin, enters):
    """Eight blocks of 4. The first prompt may take six whatever the margin; the second enters if two are enough."""
    trace = run("transformers", 32, [request("A", 2, prompt=24), request("B", 1, prompt=4)], 32, block_size=4)
    assert trace.steps[0].admitted == ("A", "B"), "0.15 of 8 blocks"
    asked = [request("A", 2, prompt=24), request("B", 1, prompt=4)]
    trace = run("transformers", 32, asked, block_size=4, safety_margin=margin)
    assert trace.steps[0].admitted == (("A", "B") if enters else ("A",))


def test_transformers_the_margin_stops_prompts_already_begun_too():
    """Ten blocks of 4, half to stay free: B's second chunk waits while A decodes and fewer than five are free."""
    asked = [request("A", 4, prompt=4), request("B", 1, prompt=28)]
    trace = run("transformers", 40, asked, block_size=4, token_budget=24, safety_margin=0.5)
    assert chunks(trace) == [{"A": 4, "B": 20}, {"A": 1}, {"A": 1}, {"A": 1}, {"B": 8}]


def test_transformers_a_chunk_without_blocks_is_left_out_and_keeps_its_place():
    """Seven blocks of 4: B's last chunk needs its sixth while A holds two. Nobody gives way for a prompt."""
    asked = [request("A", 4, prompt=4), request("B", 1, prompt=24)]
    trace = run("transformers", 28, asked, block_size=4, token_budget=8, safety_margin=0.0)
    assert chunks(trace) == [{"A": 4, "B": 4}, {"A": 1, "B": 7}, {"A": 1, "B": 7}, {"A": 1}, {"B": 6}]


def test_transformers_one_that_does_not_fit_is_passed():
    """Six blocks of 4, two of them A's: B's first chunk would take five, C's takes one."""
    asked = [request("A", 6, prompt=8), request("B", 1, prompt=20), request("C", 1, prompt=4)]
    trace = run("transformers", 24, asked, block_size=4, safety_margin=0.0)
    assert trace.steps[0].admitted == ("A", "C") and steps_of(trace, "admitted")[7] == ("B",)


def test_transformers_the_newest_gives_way_never_the_last_and_nobody_passes_it():
    """Six blocks of 4. B is reset while A grows; C would fit in its place, but waits."""
    asked = [*equal(2, 8, 12), request("C", 1, prompt=1, arrival=1.5)]
    trace = run("transformers", 24, asked, block_size=4, safety_margin=0.0, max_num_seqs=2)
    assert set(name for names in steps_of(trace, "preempted").values() for name in names) == {"R2"}
    first = trace.requests["R1"]
    assert first.preemptions == 0 and trace.requests["R2"].finished_at > first.finished_at
    assert trace.requests["C"].token_times[0] > first.finished_at


# ---- llama.cpp ----


def test_llama_cpp_decodes_then_prompt_tokens_until_the_batch_is_full():
    asked = [request("A", 6, prompt=2), request("B", 2, prompt=6, arrival=0.5), request("C", 1, prompt=6, arrival=0.5)]
    trace = run("llama-cpp", 64, asked, max_num_seqs=3, token_budget=8)
    assert chunks(trace)[:3] == [{"A": 2}, {"A": 1, "B": 6, "C": 1}, {"A": 1, "B": 1, "C": 5}]


def test_llama_cpp_a_slot_has_its_share_of_the_context_and_a_longer_request_is_refused():
    engine = stepper("llama-cpp", 400)
    scheduler = engine.scheduler
    assert (scheduler.max_num_seqs, scheduler.memory.max_model_len) == (4, 100)
    engine.submit(request("A", 10, prompt=91))
    with pytest.raises(RequestRefused, match="101 K/V positions, max_model_len is 100"):
        engine.submit(request("B", 11, prompt=91))
    assert system("llama-cpp").build(400, 50).memory.max_model_len == 50


def test_llama_cpp_the_next_one_waits_for_a_slot_as_ollama_has_it():
    trace = run("llama-cpp", 64, equal(3, 2, 3), max_num_seqs=1)
    assert steps_of(trace, "admitted") == {1: ("R1",), 4: ("R2",), 7: ("R3",)}
    engine = stepper("llama-cpp", 64, equal(2, 2, 3), max_num_seqs=1, max_open=2)
    with pytest.raises(RequestRefused, match="max_open=2"):
        engine.submit(request("C", 1))
