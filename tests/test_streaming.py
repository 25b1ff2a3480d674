"""The bounded record of a long run against the full one, its histogram against exact percentiles, and targets."""

from random import Random

import numpy as np
import pytest
from helpers import request

from minibatch import Engine
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.metrics import goodput as goodput_of_trace
from minibatch.metrics import kv_use_while_waiting, latency, percentile, recomputed_tokens, summarise
from minibatch.schedulers import IterationScheduler, StaticBatcher
from minibatch.schedulers.evict import Evict
from minibatch.simulate import (
    Deployment,
    Roofline,
    SimulatedExecutor,
    StreamingTrace,
    attainment,
    goodput,
    summary,
)
from minibatch.simulate.histogram import BINS, GROWTH, LEAST, Histogram
from minibatch.simulate.slo import SLO, Target
from minibatch.simulate.streaming import MOST_SAMPLES

COST = Roofline(Deployment("A100-40", "OPT-13B"))
FULL = pytest.mark.filterwarnings("ignore:.*refused")


def some_requests(n=60, seed=1, longest=60):
    """Short ones, arriving faster than they are served; the last can never fit."""
    random = Random(seed)
    times = np.cumsum([random.expovariate(20) for _ in range(n)]).tolist()
    lengths = [(random.randint(1, 90), random.randint(1, longest)) for _ in range(n)]
    fine = [request(f"R{i}", out, at, prompt=p) for i, (at, (p, out)) in enumerate(zip(times, lengths))]
    return [*fine, request("huge", 5, times[-1], prompt=10_000)]


SERVERS = {
    "static": lambda: StaticBatcher(6, ContiguousMemory(1200, max_model_len=200)),
    "iteration": lambda: IterationScheduler(6, ContiguousMemory(1200, max_model_len=200)),
    "preempting": lambda: IterationScheduler(16, PagedMemory(30, block_size=16)),
    "swapping": lambda: IterationScheduler(
        16, PagedMemory(30, block_size=16, host_blocks=60), evict=Evict("newest", swap=True)
    ),
    "prefix cache": lambda: IterationScheduler(16, PagedMemory(60, block_size=16, prefix_cache=True)),
}


def both(server, window=None):
    """One run recorded twice: in full, and as it streams by."""
    traces = []
    for streaming in (False, True):
        scheduler = SERVERS[server]()
        trace = StreamingTrace.of(scheduler, window) if streaming else None
        traces.append(Engine(scheduler, SimulatedExecutor(COST), trace=trace).run(some_requests()))
    return traces


@FULL
@pytest.mark.parametrize("server", SERVERS)
def test_the_streaming_record_says_what_the_full_one_says(server):
    full, streamed = both(server)
    expected, found = summarise(full), summary(streamed)
    assert (found.n, found.not_served, found.steps) == (expected.n, 1, expected.steps) and found.n == 60
    assert found.output_tokens == expected.useful_tokens
    assert (found.seconds, found.tokens_per_second) == (expected.seconds, expected.tokens_per_second)
    assert found.requests_per_second == 60 / expected.seconds
    assert found.dead_slot_steps == expected.dead_slot_steps and (server == "static") == (found.dead_slot_steps > 0)
    assert streamed.padding_tokens == expected.padding_tokens
    assert found.mean_running == expected.mean_live_slots
    for name in ("ttft_p50", "ttft_p95", "e2e_p50", "e2e_p95"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("itl_p50", "itl_p99"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=5e-3), name
    assert (found.kv_use, found.kv_taken) == pytest.approx(kv_use_while_waiting(full))
    assert found.preemptions == sum(len(step.preempted) for step in full.steps)
    assert found.preempted_requests == sum(record.preemptions > 0 for record in full.requests.values())
    assert found.blocks_swapped == sum(step.blocks_out + step.blocks_in for step in full.steps)
    assert found.cached_tokens == sum(record.cached_tokens for record in full.requests.values())
    assert found.recomputed_tokens == recomputed_tokens(full)


@FULL
@pytest.mark.parametrize("server, field", [("preempting", "recomputed_tokens"), ("swapping", "blocks_swapped")])
def test_the_runs_compared_do_have_preemptions(server, field):
    found = summary(both(server)[1])
    assert found.preemptions > 0 and getattr(found, field) > 0


@FULL
def test_every_request_has_its_row():
    full, streamed = both("preempting")
    times = {record.arrival: (record, latency(record)) for record in full.finished}
    rows = [dict(zip(streamed.columns, row)) for row in zip(*streamed.columns.values())]
    assert len(rows) == len(times) == 60
    for row in rows:
        record, each = times[row["arrival"]]
        assert (row["ttft"], row["e2e"], row["queue"]) == (each.ttft, each.e2e, each.queue)
        assert (row["prompt_tokens"], row["output_tokens"]) == (record.prompt_tokens, len(record.tokens))
        assert np.isnan(row["tpot"]) if each.tpot is None else row["tpot"] == each.tpot
    found, pooled = summary(streamed), [gap for _, each in times.values() for gap in each.itl]
    assert found.itl_max == pytest.approx(max(pooled)) and streamed.itl.n == len(pooled)
    assert streamed.itl.mean == pytest.approx(sum(pooled) / len(pooled))
    assert found.tpot_p99 == percentile([each.tpot for _, each in times.values() if each.tpot is not None], 99)
    assert found.queue_p95 == percentile([each.queue for _, each in times.values()], 95)
    per_token = [each.e2e / len(record.tokens) for record, each in times.values()]
    assert found.per_token_p50 == percentile(per_token, 50)
    assert found.per_token_mean == pytest.approx(sum(per_token) / 60)


@FULL
def test_goodput_both_ways():
    full, streamed = both("iteration")
    targets = {"ttft": 1.5, "tpot": 0.03}
    assert goodput(streamed, **targets) == pytest.approx(goodput_of_trace(full, **targets))
    met = attainment(streamed, **targets)
    assert 0 < met < 1 and met == pytest.approx(goodput(streamed, **targets) * summary(streamed).seconds / 61)
    assert attainment(streamed) == 60 / 61, "who was refused was not served in time"


@FULL
def test_steps_of_a_window_are_kept_whole():
    full, streamed = both("preempting", window=(0.5, 1.0))
    inside = [step for step in full.steps if 0.5 <= step.end <= 1.0]
    kept = streamed.kept
    assert 5 < len(inside) < len(full.steps)
    assert [(s.start, s.end, s.live, s.waiting, s.memory) for s in kept.steps] == [
        (s.start, s.end, s.live, s.waiting, s.memory) for s in inside
    ]
    assert [step.step for step in kept.steps] == list(range(1, len(inside) + 1))
    seen = {work.request_id for step in inside for work in step.live}
    assert kept.requests == {name: full.requests[name] for name in kept.requests} and set(kept.requests) == seen


def test_without_a_window_no_step_is_kept_and_samples_stay_few():
    scheduler = IterationScheduler(1, ContiguousMemory(10_000, max_model_len=10_000))
    trace = StreamingTrace.of(scheduler)
    Engine(scheduler, SimulatedExecutor(COST), trace=trace).run([request("A", 3 * MOST_SAMPLES, prompt=4)])
    assert not trace.kept.steps and trace.steps == 3 * MOST_SAMPLES
    assert MOST_SAMPLES / 2 <= len(trace.samples) < MOST_SAMPLES
    gaps = np.diff([sample.time for sample in trace.samples])
    assert gaps.max() < 1.5 * gaps.min(), "evenly over the whole run"


def test_columns_can_be_looked_at_while_the_run_goes_on():
    scheduler = SERVERS["iteration"]()
    trace = StreamingTrace.of(scheduler)
    engine, seen = Engine(scheduler, SimulatedExecutor(COST), trace=trace), []
    engine.run(some_requests()[:-1], on_step=lambda _: seen.append(trace.column("ttft")))
    assert len(seen[-1]) == 60 and len(seen[0]) == 0


def test_of_nothing_there_is_nothing():
    trace = StreamingTrace("nobody", 1, None)
    found = summary(trace)
    assert (found.n, found.seconds, found.ttft_p50, found.itl_p99, found.itl_max, found.kv_use) == (0, 0, *[None] * 4)
    assert attainment(trace) is None and SLO.parse("ttft_p95=2").missed(trace) == ["0 requests not served"]


@pytest.mark.parametrize("metric, p", [("latency", 50), ("ttft", 0), ("ttft", 101), ("itl", 0)])
def test_a_percentile_that_makes_no_sense_is_refused(metric, p):
    with pytest.raises(ValueError, match="metric='latency'" if metric == "latency" else f"p={p}"):
        StreamingTrace("nobody", 1, None).percentile(metric, p)


@pytest.mark.parametrize("seed, median, spread", [(1, 0.03, 0.4), (2, 1e-4, 2.0), (3, 20.0, 1.0)])
def test_the_histogram_is_within_half_a_percent(seed, median, spread):
    values = np.random.default_rng(seed).lognormal(np.log(median), spread, 5003)  # no rank on the edge of another
    values = np.clip(values, LEAST, LEAST * GROWTH ** (BINS - 1))
    histogram = Histogram()
    for piece in np.array_split(values, 50):
        histogram.add(piece)
    for p in (0.1, 1, 25, 50, 90, 95, 99, 99.9, 100):
        exact = np.percentile(values, p, method="inverted_cdf")
        assert histogram.percentile(p) == pytest.approx(exact, rel=5e-3), p
        assert exact == percentile(values.tolist(), p)
    assert (histogram.n, histogram.largest) == (5003, values.max())
    assert histogram.mean == pytest.approx(values.mean())


def test_what_lies_outside_the_bins_is_counted_at_their_ends():
    histogram = Histogram()
    histogram.add(np.array([0.0, 0.0, 0.0, 5000.0]))
    assert histogram.percentile(75) == pytest.approx(LEAST, rel=5e-3)
    assert histogram.percentile(100) == 5000.0, "not the sixteen minutes at which the bins end"
    empty = Histogram()
    empty.add(np.zeros(0))
    assert empty.percentile(50) is None and empty.mean is None


def test_targets_are_read_and_written_in_one_form():
    slo = SLO.parse(" ttft_p95=2, itl_p99.9=0.2 ")
    assert slo.targets == (Target("ttft", 95, 2.0), Target("itl", 99.9, 0.2))
    assert str(slo) == "ttft_p95=2,itl_p99.9=0.2" and SLO.parse(str(slo)) == slo


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=2", "ttft_p95", "ttft_p95=fast", "ttft_px=2", "ttft_p95=2,", "a=b=c"]
)
def test_targets_in_another_form_are_refused_with_the_form(text):
    with pytest.raises(ValueError, match=r"slo='.*ttft_p95=2,itl_p99=0.2"):
        SLO.parse(text)


@pytest.mark.parametrize(
    "text, words",
    [
        ("speed_p95=2", "metric='speed'.*ttft, itl, tpot, e2e, queue"),
        ("ttft_p0=2", "p=0"),
        ("ttft_p101=2", "p=101"),
        ("ttft_p95=0", "seconds=0"),
        ("ttft_p95=-1", "seconds=-1"),
        ("ttft_p95=nan", "seconds=nan"),
    ],
)
def test_targets_that_make_no_sense_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        SLO.parse(text)


def test_no_target_at_all_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        SLO(())


def test_a_run_says_which_targets_it_missed():
    scheduler = SERVERS["iteration"]()
    trace = StreamingTrace.of(scheduler)
    Engine(scheduler, SimulatedExecutor(COST), trace=trace).run(some_requests()[:-1])
    slowest = trace.percentile("ttft", 95)
    assert SLO.parse(f"ttft_p95={slowest!r},e2e_p99=1e9").missed(trace) == []
    (missed,) = SLO.parse(f"ttft_p95={slowest * 0.9!r},e2e_p99=1e9").missed(trace)
    assert missed == f"ttft_p95 is {slowest:.3g} s, above {slowest * 0.9:g} s"


@FULL
def test_who_was_refused_is_a_target_missed():
    assert SLO.parse("e2e_p99=1e9").missed(both("iteration")[1]) == ["1 requests not served"]
