"""The cost model against published figures and arithmetic done by hand. Nothing here is timed."""

from dataclasses import replace
from math import inf, nan

import pytest
from helpers import request, sequence

from minibatch import Engine, Sequence
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.memory.arithmetic import GB, MODELS
from minibatch.metrics import summarise
from minibatch.schedulers import IterationScheduler, StaticBatcher
from minibatch.simulate import CARDS, Deployment, Roofline, SimulatedExecutor
from minibatch.step import Chunk, Move, StepPlan


def at_peak(card, model, cards=1):
    """Without overhead, everything as fast as the data sheets say."""
    deployment = Deployment(card, model, cards, usable=1.0)
    return Roofline(deployment, overhead=0.0, bandwidth_share=1.0, flops_share=1.0, all_reduce_seconds=0.0)


def decodes(*positions):
    """A step of one token for each sequence, at these positions."""
    return tuple(Chunk(sequence(f"D{slot}", at + 1), slot, at, 1) for slot, at in enumerate(positions))


# Data sheets: A100 1.555 and 2.039 TB/s and 312 TFLOP/s, H100 3.35 and 989, H200 4.8 and 989. Parameters from each
# model's published shape. Weights are two bytes each.
WEIGHTS_MS = {
    "A100-40": {"Llama-2-7B": 8.7, "Llama-3-8B": 10.3, "OPT-13B": 16.5},
    "A100-80": {"Llama-2-7B": 6.6, "Llama-3-8B": 7.9, "OPT-13B": 12.6},
    "H100": {"Llama-2-7B": 4.0, "Llama-3-8B": 4.8, "OPT-13B": 7.7},
    "H200": {"Llama-2-7B": 2.8, "Llama-3-8B": 3.3, "OPT-13B": 5.4},
}


@pytest.mark.parametrize("card", WEIGHTS_MS)
def test_reading_all_weights_takes_what_the_bandwidth_says(card):
    for model, ms in WEIGHTS_MS[card].items():
        cost = at_peak(card, model)
        assert cost.weights_seconds * 1e3 == pytest.approx(ms, abs=0.05), model
        alone = cost.seconds(StepPlan(decodes(0)))  # one position's K and V more
        assert alone == pytest.approx(cost.weights_seconds + MODELS[model].kv_bytes_per_token / CARDS[card].bandwidth)


@pytest.mark.parametrize("card, us", [("A100-40", 51.5), ("A100-80", 51.5), ("H100", 16.2), ("H200", 16.2)])
def test_a_prompt_token_of_an_8b_model_at_the_peak(card, us):
    cost = at_peak(card, "Llama-3-8B")
    assert cost.token_seconds * 1e6 == pytest.approx(us, abs=0.05)  # 2 x 8.03e9 FLOP
    step = cost.seconds(StepPlan((Chunk(sequence(prompt=2000), 0, 0, 2000),)))
    attention = 2000 * 2001 / 2 * 4 * 32 * 32 * 128 / CARDS[card].flops  # 4 FLOP a pair, dimension, head and layer
    assert step == pytest.approx(2000 * cost.token_seconds + attention)


@pytest.mark.parametrize("card, ridge", [("A100-40", 201), ("A100-80", 153), ("H100", 295), ("H200", 206)])
def test_the_ridge_is_the_batch_at_which_products_begin_to_set_the_pace(card, ridge):
    assert CARDS[card].flops / CARDS[card].bandwidth == pytest.approx(ridge, abs=0.5)
    cost = at_peak(card, "Llama-3-8B")
    below, above = cost.computing(ridge - 2, 0, 0), cost.computing(ridge + 2, 0, 0)
    assert below == cost.weights_seconds < above == (ridge + 2) * cost.token_seconds


# Tokens that fit beside the weights on 80 GB; the vLLM paper's OPT-13B has 800 KiB a token.
@pytest.mark.parametrize("model, tokens", [("Llama-2-7B", 126_884), ("Llama-3-8B", 487_823), ("OPT-13B", 66_276)])
def test_positions_that_fit_beside_the_weights(model, tokens):
    assert Deployment("A100-80", model, usable=1.0).kv_tokens == tokens
    assert Deployment("A100-80", model, tensor_parallel=2, usable=0.5).kv_tokens == tokens


def test_two_decodes_and_a_chunk_of_opt_13b_by_hand():
    cost = Roofline(Deployment("A100-40", "OPT-13B"))
    plan = StepPlan((*decodes(99, 499), Chunk(sequence("P", 400), 2, 256, 128)))
    # 25.706 GB of weights, and K/V of 100 + 500 + 384 positions of 819,200 bytes, at 80 % of 1.555 TB/s: 21.3 ms.
    reading = (25.706e9 + 984 * 819_200) / (0.8 * 1.555e12)
    # 130 tokens x 2 x 12.853e9, and 100 + 500 + 128 x 256 + 128 x 129 / 2 = 41,624 pairs x 4 x 40 layers x 5,120
    # dimensions, at 55 % of 312 TFLOP/s: 19.7 ms.
    computing = (130 * 2 * 12.853e9 + 41_624 * 4 * 40 * 5120) / (0.55 * 312e12)
    assert (reading, computing) == (pytest.approx(21.31e-3, rel=1e-3), pytest.approx(19.67e-3, rel=1e-3))
    assert cost.seconds(plan) == pytest.approx(4e-3 + reading)
    assert replace(cost, flops_share=0.5).seconds(plan) == pytest.approx(4e-3 + computing * 0.55 / 0.5)


def test_grouped_queries_read_less_and_compute_the_same():
    cost = at_peak("H100", "Llama-3-8B")
    assert cost.position_seconds == 2 * 32 * 8 * 128 * 2 / 3.35e12  # 8 heads of K and V
    assert cost.pair_seconds == 4 * 32 * 32 * 128 / 989e12  # 32 heads of queries


def test_tensor_parallel_shares_the_work_and_pays_for_adding_up():
    one, four = at_peak("A100-80", "OPT-13B"), at_peak("A100-80", "OPT-13B", cards=4)
    assert four.computing(10, 1000, 1000) - four.reducing(10) == pytest.approx(one.computing(10, 1000, 1000) / 4)
    # Twice in each of 80 layers a ring of 4 sends 2 x 3/4 of 100 tokens x 8,192 values x 2 bytes, at 300 GB/s, and
    # each time costs 10 us: 160 x (10 + 8.192) us.
    seventy = replace(at_peak("A100-80", "Llama-2-70B", cards=4), all_reduce_seconds=10e-6)
    assert seventy.reducing(100) == pytest.approx(160 * 18.192e-6)
    assert seventy.computing(100, 0, 0) == pytest.approx(seventy.weights_seconds + 160 * 18.192e-6)
    slow = Roofline(Deployment("L4", "Llama-2-7B", tensor_parallel=2))  # over PCIe: no NVLink
    fast = Roofline(Deployment(replace(CARDS["L4"], peer_link=300e9), "Llama-2-7B", tensor_parallel=2))
    assert slow.reducing(1000) > 2 * fast.reducing(1000)


def test_a_swapped_block_costs_its_transfers_and_its_bytes():
    cost = Roofline(Deployment("A100-40", "OPT-13B"))
    one = 2 * 40 * 10e-6 + 16 * 819_200 / 25e9  # K and V of 40 layers each a transfer; 13.1 MB over the host link
    assert cost.swap_seconds == pytest.approx(one) and one == pytest.approx(1.324e-3, rel=1e-3)
    copied = 2 * 16 * 819_200 / (0.8 * 1.555e12)  # read and written
    plan = StepPlan(decodes(10))
    moves = (Move("out", 1, 0), Move("in", 0, 2), Move("copy", 3, 4))
    assert cost.seconds(replace(plan, moves=moves)) == pytest.approx(cost.seconds(plan) + 2 * one + copied)
    small, large = replace(cost, block_size=1), replace(cost, block_size=256)
    assert small.swap_seconds * 256 > 20 * large.swap_seconds, "the same bytes in small pieces"
    halves = Roofline(Deployment("A100-40", "OPT-13B", tensor_parallel=2))
    assert halves.swap_seconds == pytest.approx(2 * 40 * 10e-6 + 16 * 819_200 / 25e9 / 2)


def test_a_padded_step_costs_its_rectangle():
    cost = Roofline(Deployment("A100-40", "OPT-13B"), overhead=0.0)
    rows = tuple(Chunk(sequence(f"P{n}", n), slot, 0, n) for slot, n in enumerate((20, 500, 2000)))
    longest = tuple(Chunk(sequence(f"L{slot}", 2000), slot, 0, 2000) for slot in range(3))
    padded, packed = cost.seconds(StepPlan(rows, padded=True)), cost.seconds(StepPlan(rows))
    assert padded == cost.seconds(StepPlan(longest)) == pytest.approx(packed * 6000 / 2520, rel=0.05)


def test_a_dead_row_costs_as_much_as_a_live_one():
    cost = Roofline(Deployment("A100-40", "OPT-13B"))
    rows = decodes(99, 1999)
    both, one = cost.seconds(StepPlan(rows, padded=True)), cost.seconds(StepPlan(rows[:1], padded=True))
    assert cost.seconds(StepPlan(rows[:1], dead=rows[1:], padded=True)) == both
    assert both - one == pytest.approx(2000 * 819_200 / (0.8 * 1.555e12))


def run(scheduler, requests):
    cost = Roofline(Deployment("A100-40", "OPT-13B"))
    executor = SimulatedExecutor(cost)
    return Engine(scheduler, executor).run(requests), executor


def test_a_static_batch_pays_for_its_dead_slots():
    """Article 1's batch of {20, 900}: 880 dead slot-steps, each of them a decode at position 29."""
    requests = [request("short", 20, prompt=10), request("long", 900, prompt=10)]
    memory = ContiguousMemory(2048, max_model_len=1024)
    static, _ = run(StaticBatcher(2, memory), requests)
    fluid, _ = run(IterationScheduler(2, memory), requests)
    assert summarise(static).dead_slot_steps == 880
    extra = summarise(static).seconds - summarise(fluid).seconds
    assert extra == pytest.approx(880 * 29 * 819_200 / (0.8 * 1.555e12))


def test_the_engine_serves_a_simulation_as_it_serves_a_model():
    requests = [request(name, n, arrival, prompt=p) for name, n, arrival, p in (("A", 3, 0.0, 40), ("B", 1, 0.01, 900))]
    trace, executor = run(IterationScheduler(2, PagedMemory(128)), requests)
    assert {name: len(record.tokens) for name, record in trace.requests.items()} == {"A": 3, "B": 1}
    assert executor.max_model_len == executor.cost.deployment.kv_tokens
    a = Sequence(requests[0])
    first = executor.cost.seconds(StepPlan((Chunk(a, 0, 0, 40),)))
    assert trace.requests["A"].token_times[0] == first, "the clock is the sum of the steps"
    second = executor.cost.seconds(StepPlan((Chunk(a, 0, 40, 1), Chunk(Sequence(requests[1]), 1, 0, 900))))
    assert trace.requests["B"].token_times == [first + second]


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"card": "A100_80"}, "card='A100_80'.*A100-40, A100-80.*Did you mean 'A100-80'"),
        ({"card": "B"}, "card='B'.*laptop-cpu"),
        ({"model": "Llama-3-8b-Instruct"}, "model='Llama-3-8b-Instruct'.*OPT-13B.*Did you mean 'Llama-3-8B'"),
        ({"tensor_parallel": 0}, "tensor_parallel=0"),
        ({"tensor_parallel": 1.5}, "tensor_parallel=1.5"),
        ({"tensor_parallel": 3}, "tensor_parallel=3: must divide the model's 40 heads"),
        ({"usable": 0.0}, "usable=0.0"),
        ({"usable": 1.1}, "usable=1.1"),
    ],
)
def test_a_deployment_that_makes_no_sense_is_refused(bad, words):
    with pytest.raises(ValueError, match=words):
        Deployment(**{"card": "A100-40", "model": "OPT-13B"} | bad)


def test_a_model_that_does_not_fit_is_refused_with_the_arithmetic():
    with pytest.raises(ValueError) as refused:
        Deployment("A100-80", "Llama-2-70B")
    said = str(refused.value)
    assert "138.0 GB" in said and "1 x 80 GB x 0.9 = 72.0 GB" in said and "it takes 2 of these cards" in said
    two = Deployment("A100-80", "Llama-2-70B", tensor_parallel=2)
    assert two.kv_tokens == int((144 * GB - 137.96 * GB) / (320 * 1024))


@pytest.mark.parametrize(
    "bad",
    [
        {"bandwidth_share": 0.0},
        {"bandwidth_share": nan},
        {"flops_share": 1.01},
        {"overhead": -1e-3},
        {"overhead": nan},
        {"transfer_seconds": inf},
        {"all_reduce_seconds": -1.0},
        {"block_size": 0},
    ],
)
def test_a_cost_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
        Roofline(Deployment("A100-40", "OPT-13B"), **bad)


def test_every_card_names_its_source_and_the_laptop_its_machine():
    assert all(card.source for card in CARDS.values())
    laptop = CARDS["laptop-cpu"]
    assert "bench model" in laptop.source and laptop.host_link == laptop.bandwidth / 2
    assert Deployment("laptop-cpu", "SmolLM2-135M").kv_tokens > 100_000
