"""The test that holds the house up: in float32, greedy, the tokens are those of one request at a time.

Whatever the scheduler, the memory, how much of it there is, who was preempted and how, and what was shared.
"""

from dataclasses import replace

import pytest
from helpers import serve

from minibatch import build_engine
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.schedulers import DynamicBatcher, IterationScheduler, StaticBatcher
from minibatch.schedulers.evict import Evict
from minibatch.schedulers.mix import Chunked, PrefillFirst
from minibatch.workload import chat_prompts

SCHEDULERS = {
    "static": StaticBatcher,
    "dynamic": DynamicBatcher,
    "iteration": IterationScheduler,
    "chunked": lambda *given, **options: IterationScheduler(*given, mix=Chunked(12), **options),
    "capped": lambda *given, **options: IterationScheduler(*given, mix=Chunked(16, chunk_cap=5), **options),
    "prefill_first": lambda *given, **options: IterationScheduler(*given, mix="prefill_first", **options),
    "prefill_first in chunks": lambda *given, **options: IterationScheduler(*given, mix=PrefillFirst(10), **options),
}
AT_EVERY_STEP = [name for name in SCHEDULERS if name not in ("static", "dynamic")]
LONGEST = 68  # positions of the longest request here


def ask(model, new_tokens, count, **sampling):
    """`count` of the chat prompts; the first three each with a twin that forks it; at the end the same three again."""
    options = {"max_new_tokens": new_tokens} | sampling
    prompts = chat_prompts(model.name)[5 : 5 + count]
    asked = [model.request(name, text, **options) for name, text in prompts]
    again = [model.request(f"{name} again", text, **options) for name, text in prompts[:3]]
    twins = [replace(one, request_id=f"{one.request_id}'s twin", fork_of=one.request_id) for one in asked[:3]]
    return [one for pair in zip(asked, twins) for one in pair] + asked[3:] + again


def one_at_a_time(model, requests):
    """The tokens of each, served alone on contiguous memory (once for those that ask the same)."""
    engine, written = build_engine(model, "iteration", 1), {}
    for one in requests:
        if (one.prompt, one.sampling) not in written:
            written[one.prompt, one.sampling] = list(engine.stream(one))
    return {one.request_id: written[one.prompt, one.sampling] for one in requests}


@pytest.fixture(scope="module")
def alone(tiny):
    """The requests, and what each writes with the engine to itself."""
    requests = ask(tiny, 28, 10)
    assert max(one.kv_need for one in requests) <= LONGEST
    written = one_at_a_time(tiny, requests)
    assert len({len(tokens) for tokens in written.values()}) > 5, "answers of many lengths"
    return requests, written


def assert_same(model, alone, scheduler, slots, memory, **policies):
    """All of them at once through an audited engine; returns the trace."""
    requests, expected = alone
    trace = serve(SCHEDULERS[scheduler](slots, memory, **policies), requests, model.executor(memory))
    assert {name: record.tokens for name, record in trace.requests.items()} == expected
    return trace


@pytest.mark.parametrize("reserve, slots", [("max", 3), ("max", 8), ("pow2", 5), ("exact", 8)])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_contiguous(tiny, alone, scheduler, reserve, slots):
    assert_same(tiny, alone, scheduler, slots, ContiguousMemory(slots * LONGEST, LONGEST, reserve))


@pytest.mark.parametrize("size, slots", [(1, 8), (4, 3), (16, 8)])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_paged_with_room_for_all(tiny, alone, scheduler, size, slots):
    trace = assert_same(tiny, alone, scheduler, slots, PagedMemory(-(-slots * LONGEST // size), size))
    assert not any(step.preempted for step in trace.steps)


@pytest.mark.parametrize("swap", [None, False, True], ids=["roomy", "recompute", "swap"])
@pytest.mark.parametrize("cache", [False, True], ids=["", "prefix cache"])
@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("scheduler", AT_EVERY_STEP)
def test_paged_with_sharing_and_preemption(tiny, alone, scheduler, size, cache, swap):
    """Forks always; hits where there is a prefix cache; preemption where memory is short. None shows in a text."""
    positions = 14 * LONGEST if swap is None else 2 * LONGEST
    memory = PagedMemory(positions // size, size, cache, host_blocks=3 * LONGEST // size)
    trace = assert_same(tiny, alone, scheduler, 14, memory, evict=Evict(swap=bool(swap)))
    assert any(step.preempted for step in trace.steps) == (swap is not None)
    assert any(step.blocks_in for step in trace.steps) == bool(swap)
    assert any(step.blocks_copied for step in trace.steps), "a fork wrote into a shared block"
    if cache and size == 4:
        assert any(record.cached_tokens for name, record in trace.requests.items() if "again" in name)


@pytest.mark.parametrize("reserve", ["full", "prompt", "new_token_ratio", "profiled"])
@pytest.mark.parametrize("join", ["fcfs", "small_ones_pass", "priority"])
@pytest.mark.parametrize("victim", ["newest", "fewest_outputs", "lowest_priority"])
def test_who_enters_and_who_gives_way_does_not_show_either(tiny, alone, join, reserve, victim):
    requests, expected = alone
    ranked = [replace(one, priority=index % 3) for index, one in enumerate(requests)]
    policies = {"join": join, "reserve": reserve, "evict": victim}
    assert_same(tiny, (ranked, expected), "chunked", 12, PagedMemory(40, 4, True), **policies)


@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
@pytest.mark.parametrize("scheduler", AT_EVERY_STEP)
def test_seeded_sampling_goes_on_as_if_nothing_had_been(tiny, scheduler, swap):
    requests = ask(tiny, 10, 6, temperature=4.0, top_k=50, stop_token_ids=())
    requests = [replace(one, sampling=replace(one.sampling, seed=i)) for i, one in enumerate(requests)]
    alone = requests, one_at_a_time(tiny, requests)
    assert len({tuple(tokens) for tokens in alone[1].values()}) == len(requests), "twins draw for themselves"
    memory = PagedMemory(20, 4, host_blocks=20)
    trace = assert_same(tiny, alone, scheduler, 12, memory, evict=Evict(swap=swap))
    assert sum(record.preemptions for record in trace.requests.values()) > 3


def test_bfloat16_comes_back_from_host_memory_as_it_was(tiny):
    """Its rounding differs with the batch, so nothing is asked of it but this: alone, swapped out and in, the same."""
    from minibatch import load_model

    half = load_model("tiny", dtype="bfloat16")
    one = half.request("R", "count to 9", max_new_tokens=20)
    engine = build_engine(half, memory="paged", num_positions=48, max_model_len=48, block_size=4, host_blocks=12)
    sequence = engine.submit(one)
    while engine.step():
        if len(sequence.output) in (3, 8) and not sequence.is_finished:
            engine.scheduler.preempt(sequence)
    assert sequence.output == one_at_a_time(half, [one])["R"] and engine.scheduler.counts["swapped"] == 2


# ---- the real model ----


@pytest.fixture(scope="module")
def real(smollm2):
    """Four prompts of the real model, three of them again, three twins; at most 12 new tokens."""
    requests = ask(smollm2, 12, 4)
    return requests, one_at_a_time(smollm2, requests)


@pytest.mark.parametrize(
    "scheduler, memory, policies",
    [
        ("static", ContiguousMemory(4 * 64, 64), {}),
        ("dynamic", PagedMemory(16, 16), {}),
        ("chunked", PagedMemory(160, 4), {}),
        ("iteration", PagedMemory(13, 16, True), {}),
        ("capped", PagedMemory(10, 16, True, host_blocks=20), {"evict": Evict(swap=True)}),
        (
            "prefill_first in chunks",
            PagedMemory(36, 4, True),
            {"reserve": "new_token_ratio", "evict": "fewest_outputs"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_real_model(smollm2, real, scheduler, memory, policies):
    trace = assert_same(smollm2, real, scheduler, 10, memory, **policies)
    scarce = isinstance(memory, PagedMemory) and memory.prefix_cache
    assert any(step.preempted for step in trace.steps) == scarce
    assert any(record.cached_tokens for name, record in trace.requests.items() if "twin" not in name) == scarce
