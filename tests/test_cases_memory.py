"""Failure cases of other systems, replayed: admission, blocks, prefix cache (cases.md A01 to A10), blocks of 4.

Every engine here is audited after every step, and `FakeKV` notices who reads K and V that are not its own.
"""

import os
import subprocess
import sys

import pytest
from fake_kv import FakeKV, answer
from helpers import assert_drained, engine_on, request

from minibatch import RequestRefused
from minibatch.memory import PagedMemory
from minibatch.schedulers.evict import Evict
from minibatch.schedulers.mix import Chunked

X = tuple(range(100, 108))  # a prompt of two blocks


def run(engine, *requests):
    """Serve some more requests; every one that ends by itself wrote what it writes alone."""
    engine.run(requests)
    for some in requests:
        record = engine.trace.requests[some.request_id]
        assert record.tokens == answer(some), some.request_id
    return [engine.trace.requests[some.request_id] for some in requests]


def test_a01_a_request_that_can_never_fit_is_refused_at_once_and_those_behind_it_run():
    memory = PagedMemory(8, 4)
    engine = engine_on(memory, executor=FakeKV(memory, max_model_len=64))
    with pytest.raises(RequestRefused, match="needs 11 blocks of 4 K/V positions, the whole pool has 8"):
        engine.submit(request("R1", 4, prompt=40))
    run(engine, request("R2", 4, prompt=4))
    assert len(engine.trace.steps) == 4 and engine.trace.requests["R1"].finish_reason == "refused"
    assert_drained(engine.scheduler)


@pytest.mark.parametrize("reserve", ["full", "prompt", "new_token_ratio", "profiled"])
@pytest.mark.parametrize("prompt, output, fits", [(13, 4, True), (14, 4, False), (16, 1, True), (17, 1, False)])
def test_a02_an_exact_fit_fits_to_the_last_token_and_one_more_is_refused(reserve, prompt, output, fits):
    engine = engine_on(PagedMemory(4, 4), reserve=reserve)
    some = request("R", output, prompt=prompt)
    if fits:
        (record,) = run(engine, some)
        assert len(record.tokens) == output and record.finish_reason == "length"
        assert max(step.memory.reserved for step in engine.trace.steps) == 16
    else:
        with pytest.raises(RequestRefused, match="needs 5 blocks"):
            engine.submit(some)
    assert_drained(engine.scheduler)


@pytest.mark.parametrize("prompt, cached", [(3, 0), (4, 0), (5, 4), (7, 4), (8, 4), (9, 8), (12, 8), (13, 12)])
def test_a03_a_whole_prompt_cached_leaves_its_last_token_to_be_computed(prompt, cached):
    engine = engine_on(PagedMemory(8, 4, prefix_cache=True))
    first, second, third = (run(engine, request(f"R{i}", 3, prompt=prompt))[0] for i in range(3))
    assert first.cached_tokens == 0 and second.cached_tokens == cached and third.cached_tokens >= cached
    assert first.tokens == second.tokens == third.tokens
    prefills = [work for step in engine.trace.steps for work in step.live if work.prefill]
    assert [work.count for work in prefills] == [prompt, prompt - cached, prompt - third.cached_tokens]


@pytest.mark.parametrize("cache", [False, True])
def test_a04_no_slow_leak_in_two_thousand_requests(cache):
    memory = PagedMemory(16, 4, prefix_cache=cache)
    engine = engine_on(memory)
    for i in range(2000):
        run(engine, request(f"R{i}", 1 + i % 6, prompt=tuple((i * 7 + j) % 5 for j in range(1 + i % 13))))
        assert memory.pool.num_free == 16 and not memory.pool.owners
    assert_drained(engine.scheduler)


@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
def test_a05_an_abort_in_any_state_returns_everything_and_the_others_write_on(swap):
    """Waiting, between chunks, at its first decode, amid decodes, preempted or swapped out, ended, twice, unknown."""
    common = tuple(range(50, 58))
    requests = {f"R{i}": request(f"R{i}", 12, prompt=(*common, i)) for i in range(8)}
    memory = PagedMemory(14, 4, prefix_cache=True, host_blocks=8)
    engine = engine_on(memory, 5, mix=Chunked(12, 5), evict=Evict(swap=swap))
    states = {}

    def abort(name, state):
        states[state] = name, len(engine.trace.requests[name].tokens)
        assert engine.abort(name) and not engine.abort(name)

    for some in requests.values():
        engine.submit(some)
    abort("R7", "waiting")
    while engine.open:
        engine.step()
        for sequence in list(engine.open.values()):
            missing = sequence.num_tokens - sequence.num_computed_tokens
            away = sequence.preemptions and sequence.slot is None
            if sequence.slot is not None and not sequence.output and missing > 1 and "chunks" not in states:
                abort(sequence.request_id, "chunks")
            elif len(sequence.output) == 1 and sequence.order > 1 and "first decode" not in states:
                abort(sequence.request_id, "first decode")
            elif away and memory.holds(sequence) == swap and "preempted" not in states:
                abort(sequence.request_id, "preempted")
            elif len(sequence.output) == 6 and sequence.order > 1 and "decode" not in states:
                abort(sequence.request_id, "decode")
    assert set(states) == {"waiting", "chunks", "first decode", "decode", "preempted"}
    assert not engine.abort("R0") and not engine.abort("nobody")
    aborted = dict(states.values())
    for name, record in engine.trace.requests.items():
        assert record.finish_reason == ("aborted" if name in aborted else "length")
        assert record.tokens == answer(requests[name])[: aborted.get(name, 12)]
    assert_drained(engine.scheduler)


def test_a06_no_stale_entry_after_a_block_is_reused():
    memory = PagedMemory(3, 4, prefix_cache=True)
    engine = engine_on(memory)
    run(engine, request("R1", 1, prompt=X), request("R2", 1, prompt=tuple(range(200, 212)), arrival=5))
    (third,) = run(engine, request("R3", 1, prompt=X))
    assert third.cached_tokens == 0 and len(memory.index) <= 3


def test_a07_the_same_block_after_another_beginning_is_another_block():
    """(a), a hash that is always the same, is in test_paged_memory.py."""
    engine = engine_on(PagedMemory(16, 4, prefix_cache=True))
    run(engine, request("first", 2, prompt=(1, 2, 3, 4, 9, 9, 9, 9)))
    (second,) = run(engine, request("second", 2, prompt=(5, 6, 7, 8, 9, 9, 9, 9)))
    assert second.cached_tokens == 0


HITS = """
from minibatch import Engine, Request
from minibatch.memory import PagedMemory
from minibatch.schedulers import IterationScheduler
from minibatch.simulate import ScriptedExecutor
memory = PagedMemory(6, 4, prefix_cache=True)
requests = [Request(f"R{i}", tuple(j % (2 + i % 3) for j in range(5 + i % 9)), arrival=i / 2) for i in range(40)]
trace = Engine(IterationScheduler(2, memory), ScriptedExecutor()).run(
    Request(r.request_id, r.prompt, r.sampling.__class__(3), r.arrival) for r in requests)
print(memory.hit_tokens, [r.cached_tokens for r in trace.requests.values()])
"""


def test_a07_hits_do_not_depend_on_pythons_hash_seed():
    def hits(seed):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        return subprocess.run([sys.executable, "-c", HITS], env=environment, capture_output=True, text=True, check=True)

    one, other = hits("1").stdout, hits("2").stdout
    assert one == other and int(one.split()[0]) > 0


def test_a08_a_hit_is_not_handed_out_as_a_new_block_by_the_same_admission():
    """The books alone, with the failed attempt compared field by field, are in test_paged_memory.py."""
    memory = PagedMemory(6, 4, prefix_cache=True)
    engine = engine_on(memory)
    keeper = request("R0", 4, prompt=1)
    engine.submit(keeper)
    engine.submit(request("R1", 1, prompt=X))
    engine.step()
    late = request("R2", 1, prompt=(*X, *range(200, 216)))
    engine.submit(late)
    assert memory.pool.num_free == 5 and memory.pool.free_order()[-2:] == [2, 1]
    engine.step()
    assert engine.trace.requests["R2"].first_scheduled is None and memory.pool.free_order()[-2:] == [2, 1]
    engine.run([])
    record = engine.trace.requests["R2"]
    assert record.first_scheduled == 4 and record.cached_tokens == 8 and record.tokens == answer(late)


def test_a09_no_token_from_a_middle_chunk_and_each_position_once():
    engine = engine_on(PagedMemory(8, 4), mix=Chunked(4))
    run(engine, request("R", 3, prompt=10))
    steps = [(work.start, work.count) for step in engine.trace.steps for work in step.live]
    assert steps == [(0, 4), (4, 4), (8, 2), (10, 1), (11, 1)]
    assert engine.trace.requests["R"].token_times == [3, 4, 5]


def test_a09_decodes_go_on_beside_a_chunked_prefill_and_the_budget_holds():
    engine = engine_on(PagedMemory(16, 4), mix=Chunked(4))
    run(engine, *(request(f"D{i}", 12, prompt=1) for i in range(2)), request("P", 2, prompt=10, arrival=1.5))
    counts = [{work.request_id: work.count for work in step.live} for step in engine.trace.steps]
    assert counts[2:7] == [{"D0": 1, "D1": 1, "P": 2}] * 5
    assert all(step["D0"] == step["D1"] == 1 for step in counts[:12])


@pytest.mark.parametrize("budget, cached", [(32, 0), (5, 4)])
def test_a10_nothing_is_shared_before_it_is_computed(budget, cached):
    """Two equal prompts at once; with a budget of 5 the first is amid its prefill when the second is admitted."""
    engine = engine_on(PagedMemory(16, 4, prefix_cache=True), mix=Chunked(budget, 4 if budget == 5 else None))
    first, second = run(engine, request("A", 4, prompt=13), request("B", 4, prompt=13))
    assert first.cached_tokens == 0 and second.cached_tokens <= cached
    assert first.tokens == second.tokens


def test_publishing_at_allocation_would_be_noticed(monkeypatch):
    """The bug of A10 itself, to show that these tests can fail."""
    take = PagedMemory._take

    def too_early(self, sequence, count):
        take(self, sequence, count)
        held, size = self._holders[sequence], self.block_size
        for place in range(held.published, sequence.num_tokens // size):
            held.node = self.index.publish(held.node, sequence.tokens(place * size, size), sequence.block_table[place])
            held.published += 1

    monkeypatch.setattr(PagedMemory, "_take", too_early)
    monkeypatch.setattr(PagedMemory, "check_integrity", lambda self: None)
    engine = engine_on(PagedMemory(16, 4, prefix_cache=True))
    with pytest.raises(AssertionError, match="'A' writes into a block of 2 owners"):
        engine.run([request("A", 4, prompt=13), request("B", 4, prompt=13)])
