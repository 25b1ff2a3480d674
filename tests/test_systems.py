"""The table of systems: its lookups, its knobs, and every row under random load with the books audited."""

import pytest
from fake_kv import FakeKV, answer
from helpers import AuditedEngine, request, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from minibatch import RequestRefused
from minibatch.memory import PagedMemory
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.mix_cut import BlockChunks, DecodesAndMargin, OneCutPrompt
from minibatch.schedulers.mix_whole import PromptsInGroups, PromptsOrDecodes, WholeUnderBudget
from minibatch.schedulers.systems import SYSTEMS, system

POSITIONS, LONGEST = 64, 32  # of the small pools below

# Every row, and every knob that changes its way, small enough that memory, slots and budgets run out.
SMALL = [
    ("static", {}),
    ("triton", {}),
    ("triton", {"preferred_sizes": (2,), "max_queue_delay": 3.0, "max_num_seqs": 2}),
    ("triton", {"priority_levels": 2, "timeout": 9.0, "timeout_action": "delay"}),
    ("orca-max", {}),
    ("orca-pow2", {"placement": "first_fit"}),
    ("orca-oracle", {"max_num_seqs": 3}),
    ("llama-cpp", {"max_num_seqs": 2, "token_budget": 5}),
    ("vllm-v0", {"block_size": 4}),
    ("vllm-v0", {"block_size": 2, "token_budget": 24, "host_blocks": 3}),
    ("vllm-v0", {"block_size": 4, "chunked_prefill": True, "token_budget": 6, "host_blocks": 16}),
    ("vllm-v1", {"block_size": 4, "token_budget": 7, "prefix_cache": True}),
    ("vllm-v1", {"block_size": 2, "token_budget": 9, "chunk_cap": 3, "whole_must_fit": False, "policy": "priority"}),
    ("sglang", {"token_budget": 7}),
    (
        "sglang",
        {"block_size": 2, "token_budget": 6, "mixed_chunk": True, "conservativeness": 0.1, "prefix_cache": True},
    ),
    ("sglang", {"token_budget": None, "max_prefill_tokens": 9, "conservativeness": 0.1, "clip": 1}),
    ("sglang", {"token_budget": 9, "block_size": 2, "join": "longest_prefix", "prefix_cache": True}),
    ("trtllm-no-evict", {"block_size": 4, "token_budget": 20, "max_num_seqs": 4}),
    ("trtllm-no-evict", {"block_size": 2, "token_budget": 6, "chunking": "equal_progress"}),
    ("trtllm-max-utilization", {"block_size": 4, "token_budget": 24}),
    ("trtllm-max-utilization", {"block_size": 2, "token_budget": 7, "chunking": "first_come_first_served"}),
    ("trtllm-max-utilization", {"block_size": 2, "token_budget": 7, "chunking": "equal_progress"}),
    ("tgi", {"block_size": 4, "token_budget": 6, "prefix_cache": True}),
    ("tgi", {"block_size": 4, "token_budget": 20, "chunking": False, "max_waiting_tokens": 3}),
    ("transformers", {"block_size": 4, "token_budget": 6}),
    ("transformers", {"block_size": 2, "token_budget": 9, "safety_margin": 0.0, "prefix_cache": True}),
]

LOADS = st.lists(
    st.tuples(st.integers(1, 16), st.integers(1, 9), st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=9
)  # prompt, output, arrival, priority


@pytest.mark.parametrize("name, knobs", SMALL, ids=[f"{i}-{name}" for i, (name, _) in enumerate(SMALL)])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(load=LOADS)
def test_every_row_serves_any_load_to_its_end_with_the_right_answers(name, knobs, load):
    requests = [request(f"R{i}", out, at, prompt, level) for i, (prompt, out, at, level) in enumerate(load)]
    trace = serve(system(name).build(POSITIONS, LONGEST, **knobs), requests)
    for one in requests:
        record = trace.requests[one.request_id]
        assert record.finish_reason == "length" and record.tokens == answer(one)


def test_every_row_is_tried_above():
    assert {name for name, _ in SMALL} == set(SYSTEMS)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_row_refuses_what_can_never_fit(name):
    scheduler = system(name).build(512, 512)
    engine = AuditedEngine(scheduler, FakeKV(scheduler.memory, max_model_len=10_000))
    with pytest.raises(RequestRefused, match="512|128|blocks of"):
        engine.submit(request("A", 1, prompt=513))
    with pytest.raises(RequestRefused):
        engine.submit(request("A", 500, prompt=14))
    assert not engine.open and not scheduler.waiting


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_row_says_what_it_is_and_where_that_is_written(name):
    row = system(name)
    assert all((row.label, row.join, row.mix, row.reserve, row.evict, row.as_of, row.source))
    names = [knob.name for knob in row.knobs]
    assert len(set(names)) == len(names) and all(knob.theirs for knob in row.knobs)
    scheduler = row.build(16_384, 4096)
    assert scheduler.name == name
    assert scheduler.memory.num_positions <= 16_384


@pytest.mark.parametrize(
    "name, ours, theirs, default",
    [
        ("vllm-v1", "token_budget", "--max-num-batched-tokens", 2048),
        ("sglang", "token_budget", "--chunked-prefill-size", 8192),
        ("trtllm-no-evict", "token_budget", "max_num_tokens", 8192),
        ("tgi", "token_budget", "--max-batch-prefill-tokens", None),
        ("tgi", "max_open", "--max-concurrent-requests", 128),
        ("transformers", "safety_margin", "safety_margin", 0.15),
        ("llama-cpp", "token_budget", "-b (n_batch)", 2048),
        ("vllm-v0", "watermark", "watermark (a constant)", 0.01),
    ],
)
def test_our_knob_is_theirs(name, ours, theirs, default):
    knob = next(knob for knob in system(name).knobs if knob.name == ours)
    assert (knob.theirs, knob.default) == (theirs, default)


def test_every_knob_is_taken_at_its_default_and_changes_nothing():
    for row in SYSTEMS.values():
        plain, said = row.build(8192, 512), row.build(8192, 512, **{knob.name: knob.default for knob in row.knobs})
        assert plain.max_num_seqs == said.max_num_seqs and getattr(plain, "mix", 0) == getattr(said, "mix", 0)


def test_rows_do_not_share_their_state():
    one, other = (system("sglang").build(100, 50) for _ in range(2))
    assert one.mix is not other.mix and one.reserve is not other.reserve and one.memory is not other.memory


def test_blocks_leave_no_events_if_none_are_wanted():
    scheduler = system("vllm-v1").build(64, 32, events=False)
    serve_quietly = AuditedEngine(scheduler, FakeKV(scheduler.memory))
    serve_quietly.submit(request("A", 2, prompt=20))
    scheduler.schedule(0.0)
    assert scheduler.memory.take_events() == () and scheduler.memory.pool.num_free == 2


# ---- bad input ----


@pytest.mark.parametrize("name, near", [("vllm", "vllm-v1"), ("VLLM-V1", "vllm-v1"), ("sglan", "sglang"), ("orca", "")])
def test_an_unknown_system_is_refused_with_all_of_them_and_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"{near}.*Known are static, triton, .*sglang"):
        system(name)


@pytest.mark.parametrize(
    "knob, hint",
    [
        ("token_budgets", "'token_budget'"),
        ("max_num_batched_tokens", "'token_budget'"),
        ("--long-prefill-token-threshold", "'chunk_cap'"),
        ("zzz", "Its knobs: token_budget, max_num_seqs"),
    ],
)
def test_an_unknown_knob_is_refused_with_those_of_the_row(knob, hint):
    with pytest.raises(ValueError, match=f"no knob of 'vllm-v1'.*{hint}"):
        system("vllm-v1").build(100, 50, **{knob: 1})


@pytest.mark.parametrize(
    "words, build",
    [
        ("num_positions=0", lambda: system("vllm-v1").build(0, 1)),
        ("max_model_len=-1", lambda: system("vllm-v1").build(10, -1)),
        ("num_positions=10: not even one block of 16", lambda: system("vllm-v1").build(10, 10)),
        ("num_positions=10: not even one request of max_model_len=20", lambda: system("static").build(10, 20)),
        ("max_num_seqs=0", lambda: system("static").build(10, 5, max_num_seqs=0)),
        ("max_num_seqs=0", lambda: system("tgi").build(16, 5, max_num_seqs=0)),
        ("max_num_seqs=0", lambda: system("llama-cpp").build(10, 5, max_num_seqs=0)),
        ("token_budget=0", lambda: system("vllm-v0").build(16, 5, token_budget=0)),
        ("max_num_seqs=11: 10 positions", lambda: system("llama-cpp").build(10, 20, max_num_seqs=11)),
        ("policy='lifo'", lambda: system("vllm-v1").build(64, 8, policy="lifo")),
        ("token_budget=0", lambda: system("vllm-v1").build(64, 8, token_budget=0)),
        ("watermark=1", lambda: system("vllm-v0").build(64, 8, watermark=1)),
        ("conservativeness=0", lambda: system("sglang").build(64, 8, conservativeness=0)),
        ("join='lifo'", lambda: system("sglang").build(64, 8, join="lifo")),
        ("token_budget=7.*unit of 8", lambda: system("sglang").build(64, 8, block_size=8, token_budget=7)),
        ("max_prefill_tokens=0", lambda: system("sglang").build(64, 8, max_prefill_tokens=0)),
        ("chunking='some'", lambda: system("trtllm-no-evict").build(64, 8, chunking="some")),
        ("waiting_served_ratio=-1", lambda: system("tgi").build(64, 8, chunking=False, waiting_served_ratio=-1)),
        ("max_waiting_tokens=0", lambda: system("tgi").build(64, 8, chunking=False, max_waiting_tokens=0)),
        ("max_open=0", lambda: system("tgi").build(64, 8, max_open=0, max_num_seqs=1)),
        ("safety_margin=1", lambda: system("transformers").build(512, 8, safety_margin=1)),
        ("placement='heap'", lambda: system("orca-max").build(64, 8, placement="heap")),
        ("mix=DecodesAndMargin.*needs a PagedMemory", lambda: IterationScheduler(mix=DecodesAndMargin())),
        ("mix=PromptsOrDecodes.*needs a PagedMemory", lambda: IterationScheduler(mix=PromptsOrDecodes())),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(words, build):
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize("mix", [WholeUnderBudget, PromptsOrDecodes, PromptsInGroups, BlockChunks, OneCutPrompt])
@pytest.mark.parametrize("budget", [0, -1, 2.5, True])
def test_a_mix_refuses_a_bad_budget(mix, budget):
    with pytest.raises(ValueError, match="token_budget=.*at least 1"):
        mix(budget)


@pytest.mark.parametrize("full, longest", [("full", 8), ("prompt", 5)])
def test_a_prompt_that_no_step_can_hold_is_refused_and_so_is_one_that_could_not_come_back(full, longest):
    scheduler = IterationScheduler(2, PagedMemory(9, 4), mix=WholeUnderBudget(8), reserve=full)
    engine = AuditedEngine(scheduler, FakeKV(scheduler.memory))
    engine.submit(request("A", 4, prompt=longest))
    with pytest.raises(RequestRefused, match=f"prompt='{longest + 1} tokens'.* in one step.*8 tokens at most"):
        engine.submit(request("B", 4, prompt=longest + 1))
