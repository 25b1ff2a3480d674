"""Headlines on memory, chunks, swapping, goodput and preemption: small runs whose shape is the published one."""

import math
from dataclasses import replace

import pytest

from minibatch.headlines import HEADLINES
from minibatch.headlines.base import Finding, Headline
from minibatch.headlines.chunked import MISTRAL, MIXES, YI, Alternating, _run, ablation, openchat_like, overhead
from minibatch.headlines.curves import SLOW_HOST, arriving, crossing, serve
from minibatch.headlines.goodput_both_ways import FIGURE_1, DecodesAlone, _row, figure_1, limit
from minibatch.headlines.memory_policies import ALPACA, POSITIONS, SHAREGPT, batched_requests, card, kv_use
from minibatch.headlines.preemption_tail import A10, LONGEST, _numbers, heavy, power_law
from minibatch.headlines.swap_or_recompute import BLOCK_SIZES, _recompute, _swap, swap_or_recompute
from minibatch.memory import PagedMemory
from minibatch.schedulers import IterationScheduler
from minibatch.simulate.cards import Deployment
from minibatch.simulate.result import summary
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.scenario import replay
from minibatch.workload import bare_requests, equal, sharegpt_like, synthetic


def test_a_curve_is_read_where_it_first_passes_the_limit():
    assert crossing([(0, 0.0), (1, 1.0), (2, 3.0), (3, 0.0)], 2.0) == 1.5
    assert crossing([(1, 1.0), (2, 0.8), (3, 0.4)], 0.6) == pytest.approx(2.5)
    with pytest.raises(ValueError, match="never passes"):
        crossing([(0, 0.0), (1, 1.0)], 2.0)


@pytest.fixture(scope="module")
def batched():
    rows, findings = batched_requests(requests=50)
    return rows, findings


def test_blocks_let_more_requests_run_than_any_region(batched):
    rows, _ = batched
    for workload in (SHAREGPT, ALPACA):
        found = {
            row["system"]: row["batched"] for row in rows if row["workload"] == workload and row["host"] == SLOW_HOST
        }
        most = POSITIONS // 2048
        assert 0.85 * most < found["orca-max"] <= most
        assert found["orca-max"] < found["orca-pow2"] < found["orca-oracle"] < found["vllm-v0"]


def test_at_saturation_blocks_carry_the_highest_rate_and_a_static_batch_the_lowest():
    planned = arriving(sharegpt_like(80), 4.0)
    waits = [
        summary(serve(name, planned, card(), POSITIONS)).per_token_mean for name in ("triton", "orca-max", "vllm-v0")
    ]
    assert waits[0] > 1.5 * waits[1] > 3 * waits[2]


def test_what_a_pool_holds_is_the_published_split_in_shape():
    headline = kv_use(requests=90, rate=8.0, skip=100)
    used = [row["used"] for row in headline.rows]
    assert used == sorted(used) and used[0] < 0.3 and used[-1] > 0.9
    for row in headline.rows:
        assert row["used"] + row["reserved"] + row["internal"] + row["external"] == pytest.approx(1)
    internal = {row["system"]: row["internal"] for row in headline.rows}
    assert internal["orca-oracle"] == 0 < internal["orca-pow2"] < internal["orca-max"]


def test_a_whole_prompt_stalls_others_for_longer_than_a_chunk():
    cost = Roofline(Deployment("A100-80", MISTRAL))
    found = {name: _run(cost, mix(), 60, 2.0, 0) for name, mix in MIXES.items()}
    fine = found["chunked, 512"].itl_max
    assert fine < cost.computing(512, 512 * 130, 512 * 8192) and fine < 0.1
    assert fine < found["chunked, 2,048"].itl_p99 < found["whole, mixed"].itl_max < found["prompts first"].itl_max


def test_chunks_and_mixing_each_do_half_of_it():
    parts = ablation(40, seeds=(0,))
    assert parts["both"]["itl_p99"] < parts["chunks only"]["itl_p99"] < parts["mixing only"]["itl_p99"] / 2
    assert parts["mixing only"]["ttft_p50"] < parts["both"]["ttft_p50"] < parts["chunks only"]["ttft_p50"]


def test_small_chunks_take_longer():
    assert 0 < overhead(2048) < overhead(512) < overhead(128)
    assert overhead(4096) == pytest.approx(0)


def test_alternating_never_mixes_and_lets_decodes_go_on():
    requests = synthetic(6, prompt=equal(1200), output=equal(8))
    scheduler = IterationScheduler(8, PagedMemory(2000, 16), mix=Alternating(512))
    trace = replay(bare_requests(requests), scheduler, Roofline(Deployment("A100-80", YI, 2)), (0.0, math.inf))
    kinds = [{work.prefill for work in step.live} for step in trace.kept.steps]
    assert all(len(kind) == 1 for kind in kinds)
    assert all(sum(work.count for work in step.live) <= 512 for step in trace.kept.steps)
    first_token = next(place for place, kind in enumerate(kinds) if kind == {False})
    last_prompt = max(place for place, kind in enumerate(kinds) if kind == {True})
    turns = kinds[first_token : last_prompt + 1]
    assert len(turns) > 6 and all(turn != after for turn, after in zip(turns, turns[1:]))


def test_openchat_like_lengths():
    lengths = openchat_like(2000)
    prompts = sorted(one.prompt_tokens for one in lengths)
    assert 1500 < prompts[1000] < 1900 and 4300 < prompts[1800] < 5800
    assert max(one.prompt_tokens + one.output_tokens for one in lengths) <= 8192


def test_swapping_gets_cheaper_with_the_block_size_and_recomputing_does_not():
    swaps = [_swap(size, 256) for size in BLOCK_SIZES]
    assert swaps == sorted(swaps, reverse=True) and swaps[0] > 5 * _recompute(256) > 5 * swaps[-1]
    assert _swap(16, 17) == _swap(16, 32) == 2 * _swap(16, 16)  # whole blocks
    assert _swap(16, 256, link=1e9) > _swap(16, 256)


def test_both_ways_end_to_end():
    small, medium, large = swap_or_recompute(requests=120, rate=8.0, sizes=(1, 16, 256)).rows
    assert small["swap_preemptions"] and small["recompute_preemptions"]
    assert small["swap_per_token"] > 1.3 * small["recompute_per_token"]
    assert medium["swap_per_token"] == pytest.approx(medium["recompute_per_token"], rel=0.25)
    assert large["swap_per_token"] < large["recompute_per_token"]


def test_two_numbers_called_goodput():
    cost = Roofline(Deployment("A100-80", "OPT-13B"))
    low, high = (_row(FIGURE_1, rate, arriving(figure_1(150), rate), cost) for rate in (3.0, 6.0))
    assert low["attained"] > 0.9 > 0.6 > high["attained"]
    assert high["goodput"] > 0.3 * low["goodput"]


def test_sharing_a_card_carries_less_than_prompts_or_decodes_alone():
    deployment = Deployment("A100-80", "OPT-13B")
    shared = limit(Roofline(deployment), figure_1(60))
    prompts = limit(Roofline(deployment), figure_1(60, output=1))
    decodes = limit(DecodesAlone(deployment), figure_1(60))
    assert 1.3 * shared < prompts < decodes
    assert limit(Roofline(deployment, overhead=SLOW_HOST), figure_1(60)) < 0.7 * shared
    assert limit(Roofline(deployment, overhead=1.0), figure_1(20)) == 0


def test_a_prompt_costs_nothing_where_decodes_are_alone():
    cost = DecodesAlone(Deployment("A100-80", "OPT-13B"))
    assert serve("vllm-v0", figure_1(3, output=1), cost, cost.deployment.kv_tokens).end == 0
    assert serve("vllm-v0", figure_1(3, output=2), cost, cost.deployment.kv_tokens).end > cost.weights_seconds


def test_a_heavy_tail_makes_a_tail_of_waits():
    cost = Roofline(Deployment(A10, "Llama-2-7B"))
    found = {}
    for name, drawn, rate in (("heavy", heavy(300), 1.2), ("sharegpt", sharegpt_like(300), 1.6)):
        trace = serve("vllm-v0", arriving(drawn, rate), cost, cost.deployment.kv_tokens, LONGEST)
        found[name] = _numbers(trace)
    assert found["heavy"]["tail"] > 1.3 * found["sharegpt"]["tail"] > 1.3
    assert found["heavy"]["preempted"] > 0 and found["heavy"]["use"] < 0.9


def test_power_law_lengths():
    with pytest.raises(ValueError, match=r"exponent=1\.0: must be above 1"):
        power_law(100, 1.0, cap=1000)
    drawn = [one.output_tokens for one in heavy(4000)]
    assert min(drawn) >= 1 and max(drawn) <= 6144
    assert 200 < sum(drawn) / len(drawn) < 320
    assert sorted(drawn)[3960] > 10 * sorted(drawn)[2000]  # the hundredth longest of ten thousand


def _small_headline(name: str) -> Headline:
    """A headline of that name with rows of the right kind, for its picture."""
    if name == "chunked":
        times = {"ttft_p50": 0.5, "itl_p50": 0.02, "itl_p99": 0.1, "queue_p50": 0.0}
        rows = [{"part": "curve", "mix": mix, "rate": rate, **times} for mix in MIXES for rate in (1.0, 2.0)]
        parts = ("mixing only", "chunks only", "both")
        rows += [{"part": "ablation", "mix": mix, "ttft_p50": 0.6, "itl_p99": 0.2} for mix in parts]
        what = [f"{part}: {words}, s" for part in parts for words in ("median TTFT", "P99 of TBT")]
        return Headline(name, "How?", tuple(rows), tuple(Finding(each, 0.5, 0.5, "a paper") for each in what), "So.")
    if name == "goodput_both_ways":
        rows = [
            {"workload": workload, "rate": rate, "attained": 1 / rate, "goodput": 1.0}
            for workload in ("a", "b")
            for rate in (1.0, 2.0)
        ]
    else:
        rows = [
            {"lengths": law, "use": use, "preempted": use / 10, "tail": 2.0} for law in ("a", "b") for use in (0.4, 0.7)
        ]
    return Headline(
        name, "How?", tuple(rows), (Finding("x", 1.0, 1.0, "a paper"), Finding("y", 1.0, 1.0, "one")), "So."
    )


@pytest.mark.parametrize("name", ["chunked", "goodput_both_ways", "preemption_tail"])
def test_a_picture_has_its_question_and_the_published_numbers(name):
    figure = HEADLINES[name][1](_small_headline(name))
    assert figure.get_suptitle() == "How?"
    diamonds = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "D"]
    assert diamonds


def test_bars_of_batched_requests_carry_the_published_numbers(batched):
    rows, findings = batched
    rates = [
        {"part": "rates", "label": label, "rate": rate, "per_token": rate / 10} for label in "ab" for rate in (1.0, 2.0)
    ]
    figure = HEADLINES["memory_policies"][1](
        Headline("memory_policies", "How?", (*rows, *rates), tuple(findings), "So.")
    )
    shown = sorted(
        x for axes in figure.axes for line in axes.lines if line.get_marker() == "D" for x in line.get_xdata()
    )
    assert shown == [7.0, 7.0, 9.81, 13.62, 30.42, 43.24, 72.75, 132.44]


def test_steps_as_long_as_theirs_bring_the_batch_to_theirs(batched):
    rows, findings = batched
    quick, slow = (
        next(r for r in rows if r["system"] == "vllm-v0" and r["host"] == host) for host in (4e-3, SLOW_HOST)
    )
    assert slow["batched"] > quick["batched"]
    assert all(finding.why for finding in findings if abs(finding.off) > 0.25)


def test_host_work_is_all_that_the_slow_machine_changes():
    assert card(SLOW_HOST) == replace(card(), overhead=SLOW_HOST)
