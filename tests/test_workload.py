"""Workloads: the same for a seed, with the law they claim, and the public traces whole."""

import gzip
import hashlib
import math
import random
from importlib.resources import files
from itertools import pairwise
from statistics import fmean, median, pstdev

import pytest

from minibatch.workload import (
    AZURE_TRACES,
    CHAT_PROMPTS,
    Planned,
    azure_trace,
    bimodal,
    burst,
    chat_prompts,
    equal,
    exponential,
    gamma,
    lognormal,
    poisson,
    read_azure,
    synthetic,
    to_requests,
    uniform,
)

NAN, INF = math.nan, math.inf


def outputs(law, n: int = 20_000, seed: int = 3) -> list[int]:
    return [one.output_tokens for one in synthetic(n, seed, output=law)]


def gaps(planned: list[Planned]) -> list[float]:
    times = [0.0] + [one.arrival for one in planned]
    return [later - earlier for earlier, later in pairwise(times)]


def variation(values: list[float]) -> float:
    return pstdev(values) / fmean(values)


@pytest.mark.parametrize("law", [uniform(1, 128), exponential(64, 256), lognormal(60, 0.8, 400), bimodal(8, 200, 0.3)])
@pytest.mark.parametrize("arrivals", [burst(), poisson(2.0), gamma(2.0, 0.3)])
def test_a_seed_gives_the_same_workload(law, arrivals):
    once, twice = (synthetic(50, 7, prompt=uniform(4, 40), output=law, arrivals=arrivals) for _ in range(2))
    assert once == twice
    assert once != synthetic(50, 8, prompt=uniform(4, 40), output=law, arrivals=arrivals)


def test_a_workload_is_the_same_on_every_machine():
    planned = synthetic(3, seed=0, prompt=uniform(8, 64), output=exponential(mean=64, cap=256), arrivals=poisson(2.0))
    assert [(one.prompt_tokens, one.output_tokens) for one in planned] == [(37, 118), (46, 10), (56, 84)]
    assert [one.arrival for one in planned] == pytest.approx([0.3680105718420814, 0.8879742206576837, 1.5])


def test_prompts_outputs_and_arrivals_draw_from_generators_of_their_own():
    one = synthetic(40, 1, prompt=uniform(1, 99), output=uniform(1, 99), arrivals=poisson(1.0))
    other = synthetic(40, 1, prompt=uniform(1, 99), output=exponential(30, 90), arrivals=poisson(1.0))
    assert [(each.arrival, each.prompt_tokens) for each in one] == [
        (each.arrival, each.prompt_tokens) for each in other
    ]
    assert [each.prompt_tokens for each in one] != [each.output_tokens for each in one]


def test_the_global_random_state_is_left_alone():
    random.seed(5)
    before = random.getstate()
    to_requests(synthetic(20, output=lognormal(60, 0.8, 400), arrivals=gamma(2.0, 0.5)), vocab_size=100)
    assert random.getstate() == before


def test_no_requests_is_a_workload_too():
    assert synthetic(0, arrivals=poisson(2.0)) == []


def test_equal_lengths():
    assert set(outputs(equal(17), 100)) == {17}


def test_uniform_lengths_reach_both_ends_and_keep_the_mean():
    drawn = outputs(uniform(1, 128))
    assert (min(drawn), max(drawn)) == (1, 128)
    assert fmean(drawn) == pytest.approx(64.5, rel=0.02)
    assert pstdev(drawn) == pytest.approx(math.sqrt((128**2 - 1) / 12), rel=0.02)


def test_exponential_lengths_have_their_mean_and_no_memory():
    drawn = outputs(exponential(mean=64, cap=10_000))  # a cap that nothing reaches
    assert min(drawn) == 1
    assert fmean(drawn) == pytest.approx(64, rel=0.03)
    assert pstdev(drawn) == pytest.approx(math.sqrt(64 * 63), rel=0.03)
    assert drawn.count(1) / len(drawn) == pytest.approx(1 / 64, rel=0.15)  # ends at once with probability 1 / mean
    assert fmean(x - 100 for x in drawn if x > 100) == pytest.approx(64, rel=0.05)  # what is left does not age


def test_lengths_above_the_cap_are_drawn_again_not_cut():
    """Cut to the cap instead, 78 % of them would be 32: (1 - 1/128)^32 is the share that lies above it."""
    drawn = outputs(exponential(mean=128, cap=32))
    assert max(drawn) == 32
    assert drawn.count(32) / len(drawn) == pytest.approx(1 / 32, abs=0.01)
    chance = [(1 - 1 / 128) ** (x - 1) for x in range(1, 33)]
    mean = sum(x * weight for x, weight in enumerate(chance, 1)) / sum(chance)
    assert fmean(drawn) == pytest.approx(mean, rel=0.02)


def test_lognormal_lengths():
    drawn = outputs(lognormal(median=150, sigma=0.86, cap=100_000))
    assert median(drawn) == pytest.approx(150, rel=0.03)
    assert fmean(drawn) == pytest.approx(150 * math.exp(0.86**2 / 2), rel=0.03)
    assert pstdev([math.log(x) for x in drawn]) == pytest.approx(0.86, rel=0.03)
    capped = outputs(lognormal(median=150, sigma=0.86, cap=150))
    assert max(capped) == 150 and capped.count(150) / len(capped) < 0.02
    assert set(outputs(lognormal(median=1.6, sigma=0, cap=2), 10)) == {2}  # rounded


def test_bimodal_lengths():
    drawn = outputs(bimodal(short=20, long=900, share=0.1))
    assert set(drawn) == {20, 900}
    assert drawn.count(900) / len(drawn) == pytest.approx(0.1, rel=0.06)
    assert set(outputs(bimodal(20, 900, 0), 100)) == {20} and set(outputs(bimodal(20, 900, 1), 100)) == {900}


def test_a_burst_arrives_at_once():
    assert {one.arrival for one in synthetic(10, arrivals=burst())} == {0.0}


@pytest.mark.parametrize("arrivals", [poisson(4.0), gamma(4.0, 0.25), gamma(4.0, 5.0)])
@pytest.mark.parametrize("n", [1, 7, 500])
def test_the_mean_rate_holds_exactly(arrivals, n):
    times = [one.arrival for one in synthetic(n, 11, arrivals=arrivals)]
    assert times == sorted(times) and times[0] > 0
    assert times[-1] == n / 4.0


def test_burstiness_is_the_shape_of_the_gaps():
    assert variation(gaps(synthetic(20_000, 2, arrivals=poisson(3.0)))) == pytest.approx(1, rel=0.03)
    assert variation(gaps(synthetic(20_000, 2, arrivals=gamma(3.0, 0.25)))) == pytest.approx(2, rel=0.05)
    assert variation(gaps(synthetic(20_000, 2, arrivals=gamma(3.0, 4.0)))) == pytest.approx(0.5, rel=0.03)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: equal(0), "tokens=0"),
        (lambda: equal(2.5), "tokens=2.5"),
        (lambda: equal(True), "tokens=True"),
        (lambda: uniform(0, 5), "lo=0"),
        (lambda: uniform(9, 5), "hi=5"),
        (lambda: exponential(1, 5), "mean=1"),
        (lambda: exponential(NAN, 5), "mean=nan"),
        (lambda: exponential(64, 0), "cap=0"),
        (lambda: lognormal(0, 1, 5), "median=0"),
        (lambda: lognormal(50, -1, 500), "sigma=-1"),
        (lambda: lognormal(50, 1, 49), "cap=49"),
        (lambda: bimodal(5, 4, 0.5), "long=4"),
        (lambda: bimodal(4, 5, 1.5), "share=1.5"),
        (lambda: poisson(0), "rate=0"),
        (lambda: poisson(INF), "rate=inf"),
        (lambda: gamma(1.0, 0), "burstiness=0"),
        (lambda: gamma(1.0, -2.0), "burstiness=-2.0"),
        (lambda: synthetic(5, arrivals=gamma(1.0, 1e-9)), "burstiness=1e-09"),
        (lambda: synthetic(-1), "n=-1"),
        (lambda: synthetic(2.0), "n=2.0"),
        (lambda: synthetic(2, seed="x"), "seed='x'"),
        (lambda: synthetic(2, output=exponential(1e9, 1)), "cap=1"),
        (lambda: to_requests([], vocab_size=3), "vocab_size=3"),
        (lambda: to_requests([], vocab_size=9, seed=None), "seed=None"),
        (lambda: azure_trace("chat"), "'chat'.*'conv', 'code'"),
        (lambda: chat_prompts("llama"), "'llama'.*'smollm2', 'tiny'"),
    ],
)
def test_bad_parameters_are_refused_with_field_and_value(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize(
    ("name", "rows", "rate", "gap_variation", "mean_in", "mean_out", "largest_out"),
    [("conv", 19_366, 5.53, 1.09, 1154.7, 211.1, 1000), ("code", 8_819, 2.57, 13.2, 2047.8, 27.9, 1899)],
)
def test_azure_traces_are_whole(name, rows, rate, gap_variation, mean_in, mean_out, largest_out):
    planned = azure_trace(name)
    assert len(planned) == rows
    assert planned[0].arrival == 0.0
    assert round((len(planned) - 1) / planned[-1].arrival, 2) == rate
    assert variation(gaps(planned)[1:]) == pytest.approx(gap_variation, rel=0.005)
    assert round(fmean(one.prompt_tokens for one in planned), 1) == mean_in
    assert round(fmean(one.output_tokens for one in planned), 1) == mean_out
    assert max(one.output_tokens for one in planned) == largest_out


def test_azure_times_keep_their_microseconds():
    first, second, *_ = azure_trace("conv")  # 18:15:46.6805900, then 18:15:50.9951690
    assert first == Planned(0.0, 374, 44)
    assert second == Planned(pytest.approx(4.314579, abs=1e-9), 396, 109)


@pytest.mark.parametrize(
    ("name", "sha256"),
    [
        ("conv", "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8"),
        ("code", "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6"),
    ],
)
def test_azure_files_hold_the_published_bytes(name, sha256):
    packed = files("minibatch").joinpath("data", AZURE_TRACES[name]).read_bytes()
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == sha256
    assert packed[4:8] == bytes(4)  # no time stamp, so that packing them again gives the same file


HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
GOOD = "2023-11-16 18:15:46.6805900,374,44\r\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("TIMESTAMP,Tokens\r\n" + GOOD, 1),
        (HEADER + GOOD + "2023-11-16 18:15:50.9951690,396", 3),
        (HEADER + GOOD + "2023-11-16 18:15:50.9951690,396,109,1", 3),
        (HEADER + GOOD + "yesterday,396,109", 3),
        (HEADER + "2023-11-16 18:15:50.9951690,396,many", 2),
        (HEADER + GOOD + "2023-11-16 18:15:50.9951690,396,0", 3),
        (HEADER + GOOD + "2023-11-16 18:15:50.9951690,-1,5", 3),
        (HEADER + GOOD + "2023-11-16 18:15:46.0000000,396,109", 3),  # earlier than the row above
        (HEADER + GOOD + "\r\n" + GOOD, 3),
    ],
)
def test_a_malformed_row_is_refused_with_file_and_line(tmp_path, text, line):
    path = tmp_path / "trace.csv"
    path.write_bytes(text.encode())
    with pytest.raises(ValueError, match=rf"^trace\.csv, line {line}:"):
        read_azure(path)


def test_requests_are_numbered_in_order_of_arrival():
    requests = to_requests([Planned(2.0, 5, 7), Planned(0.5, 3, 9), Planned(2.0, 4, 8)], vocab_size=10)
    assert [request.request_id for request in requests] == ["R1", "R2", "R3"]
    assert [request.arrival for request in requests] == [0.5, 2.0, 2.0]
    assert [len(request.prompt) for request in requests] == [3, 5, 4]  # equal arrivals stay in the order planned
    assert [request.sampling.max_new_tokens for request in requests] == [9, 7, 8]
    assert all(request.sampling.stop_token_ids == () for request in requests)


def test_prompt_ids_lie_in_the_vocabulary_and_are_no_special_tokens():
    ids = {i for request in to_requests(synthetic(50), vocab_size=10) for i in request.prompt}
    assert ids == set(range(3, 10))


def test_prompts_repeat_with_a_seed_and_differ_between_requests():
    planned = synthetic(4, prompt=equal(16))
    prompts = [request.prompt for request in to_requests(planned, vocab_size=1000)]
    assert prompts == [request.prompt for request in to_requests(planned, vocab_size=1000)]
    assert prompts != [request.prompt for request in to_requests(planned, vocab_size=1000, seed=1)]
    assert len(set(prompts)) == 4


@pytest.mark.parametrize("name", list(CHAT_PROMPTS))
def test_chat_prompts_are_numbered_and_distinct(name):
    prompts = chat_prompts(name)
    assert [request_id for request_id, _ in prompts] == [f"R{i}" for i in range(1, len(prompts) + 1)]
    assert len({text for _, text in prompts}) == len(prompts) >= 8
    assert all(text and text == text.strip() for _, text in prompts)
