"""Metrics by hand: the definitions, few samples, planned arrivals, goodput, and the trace they are read from."""

import math
from itertools import product

import pytest

from minibatch.metrics import dead_slot_factor, goodput, latency, percentile, summarise, tokens_sha256, too_few
from minibatch.trace import MemoryUse, RequestRecord, StepRecord, Trace, Work
from minibatch.workload import azure_trace, exponential, synthetic

PREEMPTED = RequestRecord("P", 0.0, 4, first_scheduled=3.0, tokens=[7, 8, 9, 10, 11], token_times=[5, 6, 7, 12, 13])


def serial_server(durations_ms: list[int], every_ms: int) -> Trace:
    """One request at a time, one token each, planned every `every_ms`; the server's lateness is its own."""
    trace, free_at = Trace("serial", num_slots=1), 0.0
    for i, duration in enumerate(durations_ms):
        name, planned = f"R{i + 1}", float(i * every_ms)
        start, end = max(free_at, planned), max(free_at, planned) + duration
        trace.requests[name] = RequestRecord(name, planned, 4, start, [i], [end], end, "length")
        work, memory = (Work(name, 0, 0, 4, True),), MemoryUse(4, 4, 8)
        trace.steps.append(StepRecord(i + 1, start, end, work, (), (name,), (name,), 0, 0, memory))
        free_at = end
    return trace


def two_slots() -> Trace:
    """A writes 2 tokens, B 4, in a static batch of two: A's slot is dead for two steps. A step takes a second."""
    trace = Trace("static", num_slots=2)
    for step in range(1, 5):
        rows = [Work(name, slot, step - 1, 1, step == 1) for slot, name in enumerate("AB")]
        alive = rows if step <= 2 else rows[1:]
        dead = () if step <= 2 else (Work("A", 0, 2, 1, False),)
        joined, ended = ("A", "B") if step == 1 else (), {2: ("A",), 4: ("B",)}.get(step, ())
        padding, use = (3 if step == 1 else 0), MemoryUse(2 * step, 8, 8)
        trace.steps.append(StepRecord(step, step, step + 1, tuple(alive), dead, joined, ended, 0, padding, use))
    trace.requests["A"] = RequestRecord("A", 0.0, 1, 1.0, [5, 6], [2.0, 3.0], 3.0, "length")
    trace.requests["B"] = RequestRecord("B", 0.5, 1, 1.0, [5, 6, 7, 8], [2.0, 3.0, 4.0, 5.0], 5.0, "stop")
    trace.requests["C"] = RequestRecord("C", 0.7, 1, finished_at=0.7, finish_reason="refused")
    return trace


def test_times_of_a_preempted_request_count_from_arrival():
    times = latency(PREEMPTED)
    assert times.queue == 3
    assert times.ttft == 5  # from arrival; the 2 s from being scheduled have no such name
    assert times.itl == (1, 1, 5, 1)  # one gap fewer than tokens; the preemption is one of them
    assert times.tpot == 2
    assert times.e2e == 13


def test_one_token_has_a_ttft_but_no_gap_and_no_tpot():
    times = latency(RequestRecord("S", 0.0, 4, first_scheduled=1.0, tokens=[7], token_times=[4.0]))
    assert (times.ttft, times.itl, times.tpot, times.e2e) == (4, (), None, 4)


def test_the_queue_ends_when_a_request_is_first_scheduled():
    assert [latency(record).queue for record in two_slots().finished] == [1.0, 0.5]


def test_no_token_means_no_latency():
    with pytest.raises(ValueError, match="'N' produced no token"):
        latency(RequestRecord("N", 0.0, 4, finish_reason="aborted"))


@pytest.mark.parametrize("record", [PREEMPTED, *(record for record in two_slots().finished)])
def test_e2e_is_ttft_plus_the_gaps(record: RequestRecord):
    times = latency(record)
    assert times.e2e == pytest.approx(times.ttft + (len(record.tokens) - 1) * times.tpot)
    assert sum(times.itl) == pytest.approx(times.e2e - times.ttft)


@pytest.mark.parametrize(
    ("samples", "p", "expected"),
    [
        ([10, 20, 30], 99, 30),
        ([10, 20, 30], 50, 20),
        ([10, 20], 50, 10),
        (range(20), 95, 18),
        (range(1, 101), 50, 50),
        (range(1, 101), 95, 95),
        (range(1, 101), 99, 99),
        (range(1, 101), 100, 100),
        ([42], 1, 42),
        ([42], 50, 42),
        ([42], 99, 42),
        ([], 50, None),
        ([30, 10, 20], 50, 20),  # the order of the samples does not matter
        (range(1, 1001), 99.9, 999),
    ],
)
def test_percentiles_are_nearest_rank(samples, p, expected):
    assert percentile(samples, p) == expected


@pytest.mark.parametrize("p", [0, -1, 100.1, math.nan])
def test_a_percentile_outside_its_range_is_refused(p):
    with pytest.raises(ValueError, match="p="):
        percentile([1, 2], p)


def test_few_samples_cannot_tell_a_high_percentile_from_the_maximum():
    assert too_few(99, 99) and not too_few(100, 99)
    assert too_few(19, 95) and not too_few(20, 95)
    assert too_few(999, 99.9) and not too_few(1000, 99.9)
    assert too_few(1, 50) and not too_few(2, 50)


def test_latency_counts_from_the_planned_arrival():
    """A stall of one second delays those behind it; a client that waits for the server would not see that."""
    trace = serial_server([10, 10, 10, 1000, 10, 10, 10, 10, 10, 10], every_ms=100)
    waits = [latency(record).e2e for record in trace.finished]
    assert waits == [10, 10, 10, 1000, 910, 820, 730, 640, 550, 460]
    assert (percentile(waits, 50), percentile(waits, 90)) == (550, 910)
    assert percentile([step.end - step.start for step in trace.steps], 50) == 10  # what a closed loop would say
    assert (summarise(trace).e2e_p50, summarise(trace).ttft_p50) == (550, 550)


def test_summary_of_a_run_by_hand():
    row = summarise(two_slots())
    assert (row.scheduler, row.steps, row.n) == ("static", 4, 2)  # the refused request is not among the n
    assert row.dead_slot_steps == 2
    assert row.padding_tokens == 3
    assert row.mean_live_slots == 6 / 4
    assert row.useful_tokens == 6
    assert row.seconds == 5.0  # from the first arrival at 0 to the end of the last step
    assert row.tokens_per_second == 6 / 5
    assert (row.ttft_p50, row.ttft_p95) == (1.5, 2.0)
    assert (row.itl_p50, row.itl_p99) == (1.0, 1.0)
    assert (row.e2e_p50, row.e2e_p95) == (3.0, 4.5)


def test_summary_of_nothing():
    row = summarise(Trace("static", num_slots=2))
    assert (row.steps, row.n, row.mean_live_slots, row.ttft_p50, row.itl_p99) == (0, 0, 0.0, None, None)
    assert math.isnan(row.tokens_per_second)


def test_goodput_counts_requests_that_meet_every_target():
    trace = two_slots()  # ttft: A 2.0, B 1.5; tpot: 1 and 1; e2e: A 3.0, B 4.5; 5 seconds
    assert goodput(trace) == 2 / 5
    assert goodput(trace, ttft=2.0) == 2 / 5  # a target met exactly is met
    assert goodput(trace, ttft=1.9) == 1 / 5
    assert goodput(trace, e2e=3.0) == 1 / 5
    assert goodput(trace, ttft=1.9, e2e=3.0) == 0
    assert goodput(trace, tpot=0.9) == 0
    assert math.isnan(goodput(Trace("static", num_slots=2)))


def test_a_single_token_cannot_miss_the_tpot_target():
    assert goodput(serial_server([10, 10], every_ms=100), tpot=0.001) == pytest.approx(2 / 110)


def test_mean_gap_weighs_tokens_and_mean_tpot_weighs_requests():
    """Two servers' "average time per token" differ by definition: pooled gaps count a long answer more often."""
    slow = RequestRecord("S", 0.0, 1, 0.0, [1, 2], [1.0, 5.0])
    fast = RequestRecord("F", 0.0, 1, 0.0, [1, 2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0, 5.0])
    times = [latency(slow), latency(fast)]
    gaps = [gap for each in times for gap in each.itl]
    assert sum(gaps) / len(gaps) == pytest.approx(8 / 5)
    assert sum(each.tpot for each in times) / 2 == pytest.approx(5 / 2)


def test_dead_slot_factor_by_hand():
    assert dead_slot_factor([1, 3], 1) == 1.0
    assert dead_slot_factor([1, 3], 2) == pytest.approx((1 * 1 / 4 + 3 * 3 / 4) / 2)
    assert dead_slot_factor([5, 5, 5], 64) == pytest.approx(1.0)  # equal lengths waste nothing
    lengths = [2, 9, 4, 4, 30]
    batches = list(product(lengths, repeat=3))  # every batch of three there can be
    longest = sum(max(batch) for batch in batches) / len(batches)
    assert dead_slot_factor(lengths, 3) == pytest.approx(longest / (sum(lengths) / len(lengths)))


@pytest.mark.parametrize(("batch_size", "published"), [(8, 1.77), (32, 1.93)])
def test_dead_slot_factor_of_orcas_uniform_outputs(batch_size, published):
    assert round(dead_slot_factor(range(1, 129), batch_size), 2) == published


@pytest.mark.parametrize(("batch_size", "published"), [(8, 2.7), (32, 4.0)])
def test_dead_slot_factor_of_anyscales_exponential_outputs(batch_size, published):
    drawn = synthetic(50_000, seed=1, output=exponential(mean=128, cap=1536))
    assert dead_slot_factor([one.output_tokens for one in drawn], batch_size) == pytest.approx(published, abs=0.06)


@pytest.mark.parametrize(
    ("name", "batch_size", "exact", "published"),
    [
        ("conv", 8, 2.16, 2.1),
        ("conv", 32, 2.66, 2.7),
        ("conv", 64, 2.98, 3.0),
        ("code", 8, 3.77, 3.6),
        ("code", 32, 8.29, 8.3),
        ("code", 64, 11.81, 11.4),
    ],
)
def test_dead_slot_factor_of_the_azure_outputs(name, batch_size, exact, published):
    """The closed form, and beside it an earlier measurement by simulation, good to about 5 %."""
    outputs = [one.output_tokens for one in azure_trace(name)]
    factor = dead_slot_factor(outputs, batch_size)
    assert factor == pytest.approx(exact, abs=0.006)
    assert factor == pytest.approx(published, rel=0.05)


def test_dead_slot_factor_refuses_nonsense():
    with pytest.raises(ValueError, match="batch_size=0"):
        dead_slot_factor([1, 2], 0)
    with pytest.raises(ValueError, match="lengths is empty"):
        dead_slot_factor([], 8)


def test_a_trace_survives_json(tmp_path):
    trace = two_slots()
    again = Trace.from_json(trace.to_json())
    assert again == trace
    assert summarise(again) == summarise(trace)
    assert isinstance(again.steps[0].live[0], Work) and isinstance(again.steps[0].memory, MemoryUse)
    assert again.to_json() == trace.to_json()
    trace.save(tmp_path / "trace.json")
    assert Trace.from_json((tmp_path / "trace.json").read_text(encoding="utf-8")) == trace


def test_the_fingerprint_changes_with_any_token():
    before = tokens_sha256(two_slots())
    assert tokens_sha256(two_slots()) == before
    changed = two_slots()
    changed.requests["B"].tokens[2] += 1
    assert tokens_sha256(changed) != before
    moved = two_slots()  # the same tokens, one of them given to the other request
    moved.requests["A"].tokens.append(moved.requests["B"].tokens.pop(0))
    assert tokens_sha256(moved) != before


def test_the_fingerprint_ignores_the_order_of_submission_and_the_clock():
    trace = two_slots()
    trace.requests = dict(reversed(trace.requests.items()))
    trace.requests["A"].token_times = [20.0, 30.0]
    assert tokens_sha256(trace) == tokens_sha256(two_slots())


def test_arrival_steps():
    """An arrival belongs to the step that runs at that time, one at a border to the step that begins there."""
    trace = two_slots()  # steps 1 to 4 run from second 1 to 5
    arrivals = {"A": 0.0, "B": 2.0, "C": 2.5}
    for name, arrival in arrivals.items():
        trace.requests[name].arrival = arrival
    assert trace.arrival_steps() == {"A": 1, "B": 2, "C": 2}
