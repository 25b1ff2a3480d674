"""The model: packed, padded and one by one give the same numbers; sampling belongs to the request."""

import collections
import json
import random

import numpy as np
import pytest
import torch
from helpers import AuditedEngine, serve

from minibatch import build_engine
from minibatch.memory import ContiguousMemory
from minibatch.model import TorchExecutor
from minibatch.model.kv_cache import attention
from minibatch.model.linear import Linear, can_pack
from minibatch.model.tiny_llama import TINY
from minibatch.model.tiny_tasks import accuracy, all_prompts
from minibatch.request import Request, SamplingParams, Sequence
from minibatch.schedulers import SCHEDULERS, IterationScheduler, StaticBatcher
from minibatch.step import Chunk, StepPlan
from minibatch.workload import chat_prompts

PROMPTS = {"A": (5, 9, 4), "B": (7, 3, 8, 6, 5, 4, 9, 11), "C": (12,), "D": (6, 0, 6, 2, 8)}


def sequences(memory, prompts=PROMPTS, outputs=()):
    """Admitted sequences that hold their regions."""
    found = []
    for slot, (name, prompt) in enumerate(prompts.items()):
        sequence = Sequence(Request(name, prompt, SamplingParams(max_new_tokens=8)), slot=slot)
        assert memory.admit(sequence)
        sequence.output.extend(outputs)
        found.append(sequence)
    return found


class Probe(TorchExecutor):
    """Keeps the scores of the last step, by request."""

    def execute(self, plan):
        order, kept = [], self.llama.logits
        rows = sorted(plan.rows, key=lambda row: row.sequence.region.start)
        order = [row.sequence.request_id for row in rows if row.yields_token or row in plan.dead]
        try:
            self.llama.logits = lambda hidden: self.scores.update(zip(order, kept(hidden))) or kept(hidden)
            self.scores = {}
            return super().execute(plan)
        finally:
            self.llama.logits = kept


def reference(llama, tokens):
    """Scores after the last of `tokens`, by the textbook: one sequence, the whole of it, no cache."""

    def attend(layer, q, k, v):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        group = q.shape[0] // k.shape[0]
        k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5) + torch.full((len(tokens),) * 2, -torch.inf).triu(1)
        return (weights.softmax(-1) @ v).transpose(0, 1).flatten(1)

    with torch.inference_mode():
        hidden = llama.forward(torch.tensor(tokens), torch.arange(len(tokens)), attend)
        return llama.logits(hidden[-1:])[0]


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "one by one"])
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "packed"])
@pytest.mark.parametrize("reserve", ["max", "exact"])
def test_scores_equal_the_textbook_in_prefill_and_decode(tiny, batched, padded, reserve):
    memory = ContiguousMemory(4 * 32, 32, reserve)
    executor = Probe(tiny.llama, memory.num_positions, 32, batched)
    # Whoever reads what nobody wrote is far off, or not a number. (A view over regions reads behind its mask.)
    executor.cache.k[:] = executor.cache.v[:] = 3e4 if batched and reserve == "max" else torch.nan
    served = sequences(memory)
    for _ in range(3):
        chunks = tuple(Chunk(s, s.slot, s.num_computed_tokens, s.num_tokens - s.num_computed_tokens) for s in served)
        result = executor.execute(StepPlan(chunks, padded=padded))
        for sequence, token in zip(served, result.tokens):
            expected = reference(tiny.llama, sequence.tokens(0, sequence.num_tokens))
            torch.testing.assert_close(executor.scores[sequence.request_id], expected, atol=1e-4, rtol=0)
            sequence.num_computed_tokens = sequence.num_tokens
            sequence.output.append(token)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_a_prompt_in_chunks_gives_the_scores_of_the_whole(tiny, chunk):
    memory = ContiguousMemory(32, 32)
    executor = Probe(tiny.llama, 32, 32)
    (sequence,) = sequences(memory, {"B": PROMPTS["B"]})
    for start in range(0, 8, chunk):
        count = min(chunk, 8 - start)
        result = executor.execute(StepPlan((Chunk(sequence, 0, start, count),)))
        assert (result.tokens[0] is not None) == (start + count == 8), "a token only when the last one is computed"
    expected = reference(tiny.llama, PROMPTS["B"])
    torch.testing.assert_close(executor.scores["B"], expected, atol=1e-4, rtol=0)


def test_neighbours_leave_no_trace_in_a_row(tiny):
    """Same shapes, other content beside it: the scores of a row are bitwise the same (cases.md A22)."""
    seen = []
    for neighbour in [(4, 4, 4, 4, 4), (30, 8, 21, 3, 17)]:
        memory = ContiguousMemory(64, 32)
        executor = Probe(tiny.llama, 64, 32)
        served = sequences(memory, {"A": PROMPTS["A"], "N": neighbour}, outputs=(5,))
        for start, count in [(0, None), (None, 1)]:
            rows = [
                Chunk(s, s.slot, start if start == 0 else s.num_tokens - 1, count or s.num_tokens - 1) for s in served
            ]
            executor.execute(StepPlan(tuple(rows)))
        seen.append(executor.scores["A"])
    assert torch.equal(seen[0], seen[1])


def test_a_dead_row_is_computed_and_disturbs_nobody(tiny):
    """The model sees the dead row (that is its price), and the live ones score as without it."""
    rows_seen = []
    forward = tiny.llama.forward

    def watch(tokens, positions, attend):
        rows_seen.append(len(tokens))
        return forward(tokens, positions, attend)

    requests = [
        Request(name, prompt, SamplingParams(max_new_tokens=n))
        for (name, prompt), n in zip(PROMPTS.items(), [2, 6, 3, 4])
    ]
    alone = {r.request_id: serve(IterationScheduler(1), [r], TorchExecutor(tiny.llama, 2048, 2048)) for r in requests}
    executor = TorchExecutor(tiny.llama, 4 * 64, 64)
    executor.llama.forward = watch
    try:
        trace = serve(StaticBatcher(4, ContiguousMemory(4 * 64, 64)), requests, executor)
    finally:
        executor.llama.forward = forward
    assert rows_seen == [4 * 8] + [4] * 5, "a rectangle of 4 x 8 first, then four rows a step to the end"
    for name, record in trace.requests.items():
        assert record.tokens == alone[name].requests[name].tokens


def test_packing_takes_a_rectangle_only_for_a_padded_plan(tiny):
    memory = ContiguousMemory(4 * 32, 32)
    executor, seen = TorchExecutor(tiny.llama, 128, 32), []
    forward = tiny.llama.forward
    executor.llama.forward = lambda tokens, *rest: seen.append(len(tokens)) or forward(tokens, *rest)
    try:
        served = sequences(memory)
        executor.execute(StepPlan(tuple(Chunk(s, s.slot, 0, s.num_tokens) for s in served)))
    finally:
        executor.llama.forward = forward
    assert seen == [3 + 8 + 1 + 5]


def test_a_step_that_is_not_finite_fails_and_leaves_no_poison_behind(tiny):
    engine = AuditedEngine(IterationScheduler(2, ContiguousMemory(64, 32)), TorchExecutor(tiny.llama, 64, 32))
    pair = [Request("short", PROMPTS["A"], SamplingParams(max_new_tokens=2))]
    pair.append(Request("long", PROMPTS["B"], SamplingParams(max_new_tokens=2)))
    before = {name: record.tokens for name, record in engine.run(pair).requests.items()}
    engine.submit(Request("bad", PROMPTS["B"], SamplingParams(max_new_tokens=4)))
    engine.step()
    engine.executor.cache.v[:, 6] = torch.nan
    record = engine.step()  # writes position 8 of the region that "short" gets next, behind its own tokens
    engine.executor.cache.v[:, 6] = 0  # what the test broke; what the step wrote is for the executor to clean
    assert "not finite" in record.error and engine.trace.requests["bad"].finish_reason == "failed"
    trace = engine.run(pair)
    assert {name: trace.requests[name].tokens for name in before} == before


def test_grouped_query_heads_read_their_own_kv_head():
    """V of KV head h is the constant h, so query head i must give i // group (cases.md A32)."""
    for heads, kv_heads in [(4, 4), (8, 2), (6, 2), (12, 3), (8, 1)]:
        q, k = torch.randn(3, heads, 16), torch.randn(5, kv_heads, 16)
        v = torch.arange(kv_heads, dtype=torch.float32)[None, :, None].expand(5, kv_heads, 16)
        out = attention(q, k, v)
        expected = (torch.arange(heads) // (heads // kv_heads)).float()[None, :, None].expand_as(out)
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 8, 40])
def test_the_packed_product_is_the_plain_one(dtype, rows):
    weight, x, residual = (
        torch.randn(48, 32).to(dtype),
        torch.randn(rows, 32).to(dtype),
        torch.randn(rows, 48).to(dtype),
    )
    linear = Linear(weight)
    assert linear.packed == can_pack(dtype, weight.device)
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    expected = x.double() @ weight.double().T
    torch.testing.assert_close(linear(x).double(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(linear(x, residual).double(), expected + residual, atol=tolerance, rtol=tolerance)


def sampled(model, others=(), slots=3, **sampling):
    """The tokens of one sampled request, with others beside it."""
    mine = model.request("mine", "tell a story", max_new_tokens=16, **sampling)
    trace = build_engine(model, max_num_seqs=slots, max_model_len=128).run([*others, mine])
    return trace.requests["mine"].tokens


def test_a_seeded_request_writes_the_same_whoever_is_beside_it(tiny):
    settings = {"temperature": 1.5, "seed": 42, "stop_token_ids": ()}
    alone = sampled(tiny, **settings)
    short = tiny.request("x", "say yes", max_new_tokens=2, temperature=1.0)
    long = tiny.request("y", "count to 9", max_new_tokens=16, temperature=0.7, seed=42)
    greedy = tiny.request("z", "count to 7", max_new_tokens=9)
    for others in [(short,), (long,), (greedy, short), (short, long, greedy)]:
        assert sampled(tiny, others, **settings) == alone
    assert sampled(tiny, slots=1, others=(short, long), **settings) == alone
    assert len(set(alone)) > 1
    assert sampled(tiny, **(settings | {"seed": 43})) != alone


def test_an_unseeded_request_repeats_and_is_its_own(tiny):
    settings = {"temperature": 1.5, "stop_token_ids": ()}
    assert sampled(tiny, **settings) == sampled(tiny, **settings)
    twin = tiny.request("twin", "tell a story", max_new_tokens=16, **settings)
    assert build_engine(tiny).run([twin]).requests["twin"].tokens != sampled(tiny, **settings)


def draws(logits, n=600, **sampling):
    """How often each token is drawn from fixed scores."""
    from minibatch.model.sampling import sample

    counts = collections.Counter()
    for i in range(n):
        sequence = Sequence(Request(f"R{i}", (1,), SamplingParams(**sampling)))
        counts[sample(torch.tensor([logits]), [sequence])[0]] += 1
    return counts


def test_sampling_follows_the_scores_and_its_limits():
    logits = [3.0, 2.0, 1.0, 0.0]
    probabilities = torch.tensor(logits).softmax(0).tolist()
    counts = draws(logits, temperature=1.0)
    for token, p in enumerate(probabilities):
        assert abs(counts[token] / 600 - p) < 5 * (p * (1 - p) / 600) ** 0.5
    assert set(draws(logits, temperature=0.0)) == {0}
    assert set(draws(logits, temperature=5.0, top_k=2)) == {0, 1}
    assert set(draws(logits, temperature=1.0, top_p=0.6)) == {0}
    assert set(draws(logits, temperature=1.0, top_p=0.7)) == {0, 1}
    assert set(draws(logits, temperature=0.01)) == {0}


def test_each_token_of_a_request_is_drawn_anew():
    """Flat scores over 1,000 tokens: a generator made anew from the seed alone would draw the same one for ever."""
    from minibatch.model.sampling import sample

    sequence = Sequence(Request("R", (1,), SamplingParams(temperature=1.0, seed=42)))
    for _ in range(16):
        sequence.output += sample(torch.zeros(1, 1000), [sequence])
    assert len(set(sequence.output)) > 10


def test_nobodys_random_state_moves(tiny):
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    sampled(tiny, temperature=1.0, seed=1)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states


@pytest.fixture(scope="module")
def alone(tiny):
    """The 24 requests, and what each writes with the engine to itself."""
    requests = [tiny.request(name, text, max_new_tokens=48) for name, text in chat_prompts("tiny")]
    engine = build_engine(tiny, "iteration", 1)
    return requests, {one.request_id: list(engine.stream(one)) for one in requests}


@pytest.mark.parametrize("slots", [3, 8])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_same_text_whatever_the_batch(tiny, alone, scheduler, slots):
    requests, expected = alone
    trace = build_engine(tiny, scheduler, slots).run(requests)
    assert {name: record.tokens for name, record in trace.requests.items()} == expected


def test_the_embedded_model_answers_as_it_was_trained_to(tiny):
    """Its accuracy through the engine is the one on record: every prompt of its grammar, exactly."""
    prompts = all_prompts()
    requests = [tiny.request(prompt, prompt, max_new_tokens=300) for prompt in prompts]
    trace = build_engine(tiny, max_num_seqs=32).run(requests)
    answers = {name: tiny.tokenizer.decode(record.tokens) for name, record in trace.requests.items()}
    recorded = json.loads((TINY / "train.json").read_text())["accuracy"]
    assert accuracy(answers.get, prompts) == {task: tuple(score) for task, score in recorded.items()}
    assert {record.finish_reason for record in trace.requests.values()} == {"stop"}
