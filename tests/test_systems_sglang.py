"""SGLang: each rule of its scheduler on its row."""

import pytest
from helpers import request
from rows import chunks, run, stepper, steps_of

from minibatch.request import Sequence
from minibatch.schedulers.reserve import FutureTokens
from minibatch.schedulers.systems import system


def test_sglang_prompts_go_first_and_alone_unless_mixed():
    asked = [request("A", 5, prompt=2), request("C", 2, prompt=10, arrival=1.5)]
    assert chunks(run("sglang", 160, asked))[:4] == [{"A": 2}, {"A": 1}, {"C": 10}, {"A": 1, "C": 1}]
    mixed = chunks(run("sglang", 160, asked, mixed_chunk=True, token_budget=6))
    assert mixed[:5] == [{"A": 2}, {"A": 1}, {"A": 1, "C": 5}, {"A": 1, "C": 5}, {"A": 1, "C": 1}]


def test_sglang_one_prompt_is_cut_at_a_time_and_at_a_page():
    asked = [request("A", 1, prompt=7), request("B", 1, prompt=9), request("C", 1, prompt=20)]
    trace = run("sglang", 160, asked, token_budget=12, block_size=4)
    assert chunks(trace) == [{"A": 7, "B": 4}, {"B": 5, "C": 4}, {"C": 12}, {"C": 4}]
    trace = run("sglang", 160, asked[:2], token_budget=10, block_size=4)
    assert chunks(trace) == [{"A": 7}, {"B": 9}], "three tokens are left: not a page"
    trace = run("sglang", 160, [asked[2], request("D", 1, prompt=2)], token_budget=10, block_size=4)
    assert chunks(trace) == [{"C": 8}, {"C": 8}, {"C": 4, "D": 2}]


def test_sglang_nobody_decodes_while_a_prompt_is_computed_chunk_after_chunk():
    asked = [request("A", 3, prompt=2), request("B", 1, prompt=12, arrival=0.5)]
    trace = run("sglang", 160, asked, token_budget=4)
    assert chunks(trace) == [{"A": 2}, {"B": 4}, {"B": 4}, {"B": 4}, {"A": 1}, {"A": 1}]


def test_sglang_max_prefill_tokens_bounds_a_step_but_not_its_first_prompt():
    asked = [
        request("A", 1, prompt=12),
        request("B", 1, prompt=6),
        request("C", 1, prompt=4),
        request("D", 1, prompt=3),
    ]
    trace = run("sglang", 160, asked, max_prefill_tokens=10)
    assert chunks(trace) == [{"A": 12}, {"B": 6}, {"C": 4, "D": 3}], "4 is not below 10 - 6, 3 is below 10 - 4"


@pytest.mark.parametrize("limit, enters", [(28, True), (29, False)])
def test_sglang_newcomers_of_one_step_count_with_their_whole_limit(limit, enters):
    """90 of 100 are free beside A's prompt: 10 for B's, its limit, a page, and A's 50 must stay below."""
    trace = run("sglang", 100, [request("A", 50, prompt=10), request("B", limit, prompt=10)])
    assert trace.steps[0].admitted == (("A", "B") if enters else ("A",))


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("conservativeness", [0.3, 1.0, 2.0])
def test_sglang_those_who_decode_count_by_the_ratio(page, conservativeness):
    memory = system("sglang").build(400, 400, block_size=page).memory
    initial = min(1.0, 0.7 * conservativeness)
    policy = FutureTokens(initial, 0.14 * initial)
    decoding, newcomer = (Sequence(request(n, 50, prompt=10)) for n in "AB")
    decoding.num_computed_tokens, decoding.output = 13, [7] * 4
    waiting = Sequence(request("C", 9000, prompt=20))
    need = 4096 + page + 46 * initial + 50  # beside the prompt: its clipped limit, a page, A by the ratio, B in full
    claim = policy.claim(waiting, [decoding, newcomer], memory)
    assert claim.tokens == 20 and claim.keep_free * page > need >= (claim.keep_free - 1) * page


def test_sglang_the_ratio_falls_in_decode_steps_to_its_floor_and_idleness_resets_it():
    engine = stepper("sglang", 400, [request("A", 9, prompt=6)], token_budget=3, decay_steps=4)
    reserve, seen = engine.scheduler.reserve, []
    for _ in range(8):
        engine.step()
        seen.append(reserve.ratio)
    fall = (0.7 - 0.098) / 4
    assert seen == pytest.approx([0.7, 0.7, *(0.7 - n * fall for n in range(1, 5)), 0.098, 0.098])
    while engine.open:
        engine.step()
    assert reserve.ratio == pytest.approx(0.098)
    engine.step()
    assert reserve.ratio == 0.7


@pytest.mark.parametrize("conservativeness, initial", [(0.3, 0.21), (1.0, 0.7), (1.3, 0.91), (2.0, 1.0)])
def test_sglang_conservativeness_sets_the_first_ratio_and_its_floor(conservativeness, initial):
    reserve = system("sglang").build(400, 400, conservativeness=conservativeness).reserve
    assert (reserve.initial, reserve.floor, reserve.decay_steps) == pytest.approx((initial, 0.14 * initial, 600))


def test_sglang_after_a_refusal_nobody_is_asked_until_one_leaves():
    """C does not fit beside A's and B's limits. Soon the ratio has fallen and it would, but it waits for B's end."""
    asked = [request("A", 40, prompt=5), request("B", 8, prompt=5), request("C", 20, prompt=5, arrival=1)]
    trace = run("sglang", 80, asked, decay_steps=1, conservativeness=10)
    assert steps_of(trace, "admitted") == {1: ("A", "B"), 9: ("C",)}
    assert 5 + 20 + 1 + (39 + 7) >= 80 - 2 * 5, "in step 2, at a ratio of 1"
    assert 5 + 20 + 1 + 0.14 * (38 + 6) < 80 - 2 * 6, "in step 3, at its floor"


def test_sglang_retracts_the_fewest_outputs_then_the_longest_prompt_until_the_rest_fits():
    """A and B have written more than C and D, and C has the longer prompt of those two."""
    asked = [request("A", 20, prompt=4), request("B", 20, prompt=4)]
    engine = stepper("sglang", 50, asked, conservativeness=0.01)
    for _ in range(3):
        engine.step()
    for name, prompt in (("C", 6), ("D", 4)):
        engine.submit(request(name, 10, prompt=prompt))
    assert engine.step().admitted == ("C", "D")
    record = engine.step()
    while not record.preempted:
        assert len(record.live) == 4
        record = engine.step()
    assert record.preempted == ("C",) and {work.request_id for work in record.live} == set("ABD")
    assert engine.scheduler.reserve.ratio == 1.0, "20 tokens ahead each are more than their limits"


def test_sglang_the_ratio_after_a_retraction_is_what_has_been_shown():
    policy = FutureTokens()
    running = [
        Sequence(request(n, limit, prompt=3), output=[7] * out) for n, limit, out in [("A", 300, 5), ("B", 100, 9)]
    ]
    for one in running:
        one.num_computed_tokens = one.num_tokens - 1
    policy.step_done(running, preempted=True)
    assert policy.ratio == pytest.approx((5 + 9 + 2 * 20) / 400)


def test_sglang_a_lone_request_enters_whatever_its_limit():
    trace = run("sglang", 40, [request("A", 35, prompt=5)])
    assert len(trace.steps) == 35
