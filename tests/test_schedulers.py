"""Exact membership: who is in which step, with scripted tokens and a clock of one second a step."""

import pytest
from fake_kv import FakeKV
from helpers import AuditedEngine, assert_drained, membership, request, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from minibatch import RequestRefused
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.metrics import summarise
from minibatch.schedulers import SCHEDULERS, DynamicBatcher, IterationScheduler, StaticBatcher
from minibatch.simulate import ScriptedExecutor

EVERY = pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS.keys())


def abc():
    """Article 3's example: two positions; A needs 2 steps, B 4, C waits with 2."""
    return [request("A", 2), request("B", 4), request("C", 2)]


def test_static_batch_of_article_3_ends_c_at_step_6():
    trace = serve(StaticBatcher(2), abc())
    assert membership(trace) == [
        ({"A": 0, "B": 1}, {}),
        ({"A": 0, "B": 1}, {}),
        ({"B": 1}, {"A": 0}),
        ({"B": 1}, {"A": 0}),
        ({"C": 0}, {}),
        ({"C": 0}, {}),
    ]
    assert trace.requests["C"].finished_at == 6


def test_iteration_level_of_article_3_ends_c_at_step_4():
    trace = serve(IterationScheduler(2), abc())
    assert membership(trace) == [
        ({"A": 0, "B": 1}, {}),
        ({"A": 0, "B": 1}, {}),
        ({"B": 1, "C": 0}, {}),
        ({"B": 1, "C": 0}, {}),
    ]
    assert trace.requests["C"].finished_at == 4


def test_the_tray_of_article_1_has_880_dead_slot_steps():
    trace = serve(StaticBatcher(2), [request("short", 20), request("long", 900)])
    assert summarise(trace).dead_slot_steps == 880
    assert [step.step for step in trace.steps if step.dead][0] == 21
    assert summarise(serve(IterationScheduler(2), [request("short", 20), request("long", 900)])).dead_slot_steps == 0


def test_the_cashier_of_article_1_serves_eight_at_a_time():
    trace = serve(StaticBatcher(8), [request(f"R{i}", i + 1) for i in range(20)])
    assert [step.admitted for step in trace.steps if step.admitted] == [
        tuple(f"R{i}" for i in range(8)),
        tuple(f"R{i}" for i in range(8, 16)),
        tuple(f"R{i}" for i in range(16, 20)),
    ]


def test_static_waits_for_a_full_batch_while_more_are_coming():
    trace = serve(StaticBatcher(2), [request("A", 1), request("B", 1, arrival=10), request("C", 1, arrival=20)])
    assert [(step.start, step.admitted) for step in trace.steps] == [(10, ("A", "B")), (20, ("C",))]


def test_the_timer_of_the_dynamic_batcher_belongs_to_the_oldest():
    instant = ScriptedExecutor(seconds_per_step=0.001)
    arrivals = [0.0, 0.080, 0.160, 0.240]
    trickle = [request(f"R{i}", 1, arrival) for i, arrival in enumerate(arrivals)]
    trace = serve(DynamicBatcher(4, max_wait=0.1), trickle, instant)
    assert [(round(s.start, 9), s.admitted) for s in trace.steps] == [(0.1, ("R0", "R1")), (0.26, ("R2", "R3"))]

    rush = [request(f"R{i}", 1, 0.010) for i in range(4)] + [request("late", 1, 0.060)]
    trace = serve(DynamicBatcher(4, max_wait=0.1), rush, instant)
    assert [(round(s.start, 9), len(s.admitted)) for s in trace.steps] == [(0.01, 4), (0.16, 1)]


def test_the_dynamic_batcher_closes_at_once_if_the_oldest_waited_through_a_batch():
    trace = serve(DynamicBatcher(2, max_wait=3), [request("A", 10), request("B", 1, arrival=4), request("C", 1, 11)])
    assert [(s.start, s.admitted) for s in trace.steps if s.admitted] == [(3, ("A",)), (13, ("B", "C"))]


def test_a_prompt_is_computed_in_the_step_of_its_admission_beside_the_decodes_of_others():
    trace = serve(IterationScheduler(2), [request("A", 3, prompt=5), request("B", 2, arrival=1, prompt=7)])
    assert [[(w.request_id, w.start, w.count, w.prefill) for w in step.live] for step in trace.steps] == [
        [("A", 0, 5, True)],
        [("A", 5, 1, False), ("B", 0, 7, True)],
        [("A", 6, 1, False), ("B", 7, 1, False)],
    ]


def test_padding_is_counted_as_the_rectangle_minus_what_is_real():
    requests = [request("A", 2, prompt=2), request("B", 2, prompt=7), request("C", 2, prompt=7)]
    assert [step.padding_tokens for step in serve(StaticBatcher(3), requests).steps] == [5, 0]
    assert summarise(serve(IterationScheduler(3), requests)).padding_tokens == 0


def test_rows_of_a_static_batch_end_at_their_own_step_and_nothing_runs_after_the_longest():
    script = {"A": [9, 1], "B": [9, 9, 9, 9, 9, 1], "C": [9, 9, 9, 1]}
    requests = [request(name, 20, prompt=p, stop_token_ids=(1,)) for name, p in [("A", 2), ("B", 7), ("C", 7)]]
    trace = serve(StaticBatcher(3), requests, ScriptedExecutor(script))
    assert {name: record.tokens for name, record in trace.requests.items()} == script
    assert len(trace.steps) == 6


@EVERY
def test_first_come_first_served_even_where_a_small_one_would_fit(scheduler):
    memory = ContiguousMemory(12, max_model_len=12, reserve="exact")
    requests = [request("A", 4, prompt=4), request("big", 4, prompt=6), request("small", 1, prompt=1)]
    trace = serve(scheduler(3, memory), requests)
    admitted = [name for step in trace.steps for name in step.admitted]
    assert admitted == ["A", "big", "small"]
    first = {name: step.step for step in trace.steps for name in step.admitted}
    assert first["small"] >= first["big"] > first["A"]


@EVERY
def test_the_lowest_free_slot_is_taken(scheduler):
    trace = serve(scheduler(4), [request(f"R{i}", 2) for i in range(3)])
    assert membership(trace)[0][0] == {"R0": 0, "R1": 1, "R2": 2}


@EVERY
def test_no_slots_and_no_memory_are_refused_at_construction(scheduler):
    with pytest.raises(ValueError, match="max_num_seqs=0"):
        scheduler(0)
    with pytest.raises(ValueError, match="num_positions=0"):
        ContiguousMemory(0, 8)
    with pytest.raises(ValueError, match="reserve='half'.*max, pow2, exact"):
        ContiguousMemory(8, 8, "half")
    with pytest.raises(ValueError, match="max_wait=-1"):
        DynamicBatcher(max_wait=-1)


@EVERY
def test_what_can_never_fit_is_refused_at_submit_and_the_next_one_runs(scheduler):
    engine = AuditedEngine(scheduler(2, ContiguousMemory(32, max_model_len=64, reserve="exact")), ScriptedExecutor())
    with pytest.raises(RequestRefused, match="needs 43 K/V positions.*the whole pool has 32"):
        engine.submit(request("R1", 4, prompt=40))
    trace = engine.run([request("R2", 4, prompt=4)])
    assert trace.requests["R1"].finish_reason == "refused" and trace.requests["R2"].finish_reason == "length"
    assert len(trace.steps) == 4


@pytest.mark.parametrize("prompt, output, fits", [(13, 4, True), (14, 4, False), (16, 1, True), (17, 1, False)])
def test_an_exact_fit_fits(prompt, output, fits):
    """P + N - 1 positions: the last token is never fed back (cases.md A02)."""
    engine = AuditedEngine(IterationScheduler(1, ContiguousMemory(16, 16, "exact")), ScriptedExecutor())
    if fits:
        trace = engine.run([request("R", output, prompt=prompt)])
        assert len(trace.requests["R"].tokens) == output
        assert max(step.memory.used for step in trace.steps) <= 16
    else:
        with pytest.raises(RequestRefused):
            engine.submit(request("R", output, prompt=prompt))


@pytest.mark.parametrize("reserve, taken", [("max", 64), ("pow2", 12), ("exact", 9)])
def test_reserves_take_what_they_say(reserve, taken):
    memory = ContiguousMemory(64, 64, reserve)
    trace = serve(IterationScheduler(1, memory), [request("R", 5, prompt=5)])
    assert [step.memory.reserved for step in trace.steps] == [taken] * 5
    assert [step.memory.used for step in trace.steps] == [5, 6, 7, 8, 9], "while the step ran, at its end"


@pytest.mark.parametrize("output, taken", [(1, 5), (2, 6), (3, 8), (4, 8), (5, 12), (8, 12), (33, 60), (56, 60)])
def test_the_next_power_of_two_of_the_answer_is_never_less_than_the_need_nor_more_than_the_model(output, taken):
    assert ContiguousMemory(64, 60, "pow2").region_length(request("R", output, prompt=5)) == taken


def test_memory_bounds_admission_where_slots_do_not():
    trace = serve(
        IterationScheduler(8, ContiguousMemory(24, 16, "exact")), [request(f"R{i}", 5, prompt=4) for i in range(6)]
    )
    assert max(len(step.live) for step in trace.steps) == 3


def test_the_audit_can_fail():
    memory = ContiguousMemory(16, 8)
    engine = AuditedEngine(IterationScheduler(2, memory), ScriptedExecutor())
    sequence = engine.submit(request("A", 4, prompt=4))
    engine.step()
    sequence.region = range(12, 20)
    with pytest.raises(AssertionError, match="positions 0 to 7 are neither held nor free"):
        memory.check_integrity()
    sequence.region, sequence.num_computed_tokens = range(0, 3), 4
    with pytest.raises(AssertionError, match="'A' has stored 4 tokens in a region of 3"):
        memory.check_integrity()


LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(0, 30)), min_size=1, max_size=25)


@EVERY
@settings(max_examples=60, deadline=None)
@given(
    lengths=LENGTHS,
    slots=st.integers(1, 5),
    reserve=st.sampled_from(["max", "pow2", "exact", "paged"]),
    pool=st.integers(20, 70),
    aborts=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 24)), max_size=4),
)
def test_any_schedule_ends_well(scheduler, lengths, slots, reserve, pool, aborts):
    """Random arrivals, lengths, pools and aborts: audited after every step, everyone ends, the tokens are right."""
    script = {f"R{i}": [100 + i] * n for i, (_, n, _) in enumerate(lengths)}
    requests = [request(f"R{i}", n, float(arrival), prompt=p) for i, (p, n, arrival) in enumerate(lengths)]
    memory = PagedMemory(-(-pool // 4), 4) if reserve == "paged" else ContiguousMemory(pool, 20, reserve)
    engine = AuditedEngine(scheduler(slots, memory), FakeKV(memory, script))
    due = dict(aborts)

    def abort(record):
        if record.step in due:
            engine.abort(f"R{due[record.step]}")

    trace = engine.run(requests, on_step=abort)
    assert not engine.open
    assert_drained(engine.scheduler)
    for name, record in trace.requests.items():
        assert record.finish_reason in ("length", "aborted")
        assert record.tokens == script[name][: len(record.tokens)]
        assert record.finish_reason == "aborted" or record.tokens == script[name]
