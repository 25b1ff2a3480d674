"""Failure cases of other systems, replayed: preemption, swap, copy-on-write, fairness (cases.md A11 to A15).

Every engine here is audited after every step, and `FakeKV` notices who reads K and V that are not its own.
"""

import pytest
from fake_kv import FakeKV, answer
from helpers import AuditedEngine, assert_drained, engine_on, request

from minibatch import Request, SamplingParams
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.evict import VICTIMS, Evict
from minibatch.schedulers.join import ByPriority, SmallOnesPass
from minibatch.schedulers.mix import Chunked

BORDERS = [k * 4 + more for k in (1, 2, 3) for more in (-1, 0, 1)]
EVICTS = [Evict(victim, swap) for victim in VICTIMS for swap in (False, True)]
EVICT = pytest.mark.parametrize(
    "evict", EVICTS, ids=[f"{e.victim}-{'swap' if e.swap else 'recompute'}" for e in EVICTS]
)


@EVICT
@pytest.mark.parametrize("mix", ["whole", "prefill_first", "chunked"])
@pytest.mark.parametrize("reserve", ["prompt", "profiled", "new_token_ratio"])
def test_a11_three_that_fit_only_one_at_a_time_all_end_and_the_oldest_never_gives_way(evict, mix, reserve):
    """The audit holds every victim against who goes on."""
    requests = [request(f"R{i}", 9, prompt=tuple(range(100 * i, 100 * i + 8))) for i in range(3)]
    engine = engine_on(PagedMemory(6, 4, host_blocks=8), 3, evict=evict, mix=mix, reserve=reserve)
    trace = engine.run(requests)
    assert all(trace.requests[some.request_id].tokens == answer(some) for some in requests)
    assert len(trace.steps) <= 60 and trace.requests["R0"].preemptions == 0
    counts = engine.scheduler.counts
    preemptions = sum(record.preemptions for record in trace.requests.values())
    assert preemptions == counts["recomputed"] + counts["swapped"] == sum(len(step.preempted) for step in trace.steps)
    assert preemptions <= 8 and (reserve != "prompt" or preemptions > 0)
    assert_drained(engine.scheduler)


@pytest.mark.parametrize("blocks", [3, 4, 5, 7])
@pytest.mark.parametrize("output", [length - 4 for length in BORDERS if length > 4])
def test_a11_no_livelock_at_any_pool_that_fits_one_request(blocks, output):
    requests = [request(f"R{i}", output, prompt=(i, i, i, i)) for i in range(5)]
    trace = engine_on(PagedMemory(blocks, 4, prefix_cache=True), 5).run(requests)
    assert all(trace.requests[some.request_id].tokens == answer(some) for some in requests)


MEMORIES = {
    "contiguous": lambda: ContiguousMemory(64, 32),
    "paged": lambda: PagedMemory(16, 4),
    "prefix cache": lambda: PagedMemory(16, 4, prefix_cache=True),
    "swap": lambda: PagedMemory(16, 4, host_blocks=8),
    "swap refused": lambda: PagedMemory(16, 4, host_blocks=0),
}
TOTALS = pytest.mark.parametrize("totals", [(8,), (9,), (11,), (8, 9, 11), (5, 6, 7, 8, 12, 13, 15)])


class Breaks(FakeKV):
    """Raises in the first step that moves a block, before it has moved it."""

    broken = False

    def execute(self, plan):
        if plan.moves and not self.broken:
            self.broken = True
            raise ZeroDivisionError("the model broke")
        return super().execute(plan)


def preempted_at(engine, some, totals):
    """Serve one request, preempted whenever prompt and output together are so long; returns the streamed tokens."""
    due, seen = set(totals), []
    for token in engine.stream(some):
        seen.append(token)
        sequence = engine.open.get(some.request_id)
        if sequence and sequence.num_tokens in due:
            due.remove(sequence.num_tokens)
            engine.scheduler.preempt(sequence)
    assert not due
    return seen


@TOTALS
@pytest.mark.parametrize("seed", [None, 42])
@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES.keys())
def test_a12_a_preempted_request_goes_on_exactly_where_it_was(memory, seed, totals):
    memory = memory()
    evict = Evict(swap=getattr(memory, "host_blocks", None) is not None)
    engine = engine_on(memory, evict=evict, mix=Chunked(3))
    some = request("R", 12, prompt=4, seed=seed)
    assert preempted_at(engine, some, totals) == answer(some)
    record = engine.trace.requests["R"]
    assert len(record.tokens) == len(record.token_times) == 12 and record.finish_reason == "length"
    assert record.prompt_tokens == 4 and record.preemptions == len(totals)
    assert_drained(engine.scheduler)


@TOTALS
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a12_the_real_model_writes_on_as_if_nothing_had_been(tiny, temperature, totals):
    def engine():
        memory = ContiguousMemory(64, 32)
        return AuditedEngine(IterationScheduler(2, memory), tiny.executor(memory))

    some = Request("R", tuple(tiny.tokenizer.encode("abcd")), SamplingParams(12, temperature, seed=42))
    assert preempted_at(engine(), some, totals) == list(engine().stream(some))


@pytest.mark.parametrize("host_blocks, swapped", [(0, False), (1, False), (8, True)])
def test_a13_without_room_in_host_memory_a_swap_is_a_recompute_and_is_counted(host_blocks, swapped):
    requests = [request(f"R{i}", 9, prompt=tuple(range(100 * i, 100 * i + 8))) for i in range(3)]
    engine = engine_on(PagedMemory(6, 4, host_blocks=host_blocks), 3, evict=Evict(swap=True))
    trace = engine.run(requests)
    counts = engine.scheduler.counts
    assert all(trace.requests[some.request_id].tokens == answer(some) for some in requests)
    assert (counts["swapped"] > 0) == swapped and (counts["swap_refused"] > 0) != swapped
    assert counts["swap_refused"] == counts["recomputed"]
    moved = sum(step.blocks_out for step in trace.steps)
    assert moved == sum(step.blocks_in for step in trace.steps) and (moved > 0) == swapped
    assert_drained(engine.scheduler)


@pytest.mark.parametrize("length", BORDERS)
def test_a13_what_is_swapped_out_while_its_blocks_are_given_away_comes_back_unchanged(length):
    memory = PagedMemory(2 * -(-length // 4), 4, host_blocks=8)
    engine = engine_on(memory, 2, evict=Evict(swap=True))
    first, second = (request(f"R{i}", 9, prompt=tuple(range(50 * i, 50 * i + length))) for i in (1, 2))
    if first.kv_need > memory.num_positions:  # one request fits, two do not
        most = memory.num_positions - length + 1
        first, second = (request(some.request_id, most, prompt=some.prompt) for some in (first, second))
    older, younger = engine.submit(first), engine.submit(second)
    stored, taken, out = None, None, None
    while not younger.is_finished:
        if younger.slot is not None and out is None:
            stored, taken = engine.executor.stored(younger), set(younger.block_table)
        step = engine.step()
        if step.blocks_out:
            out = step
            assert taken & set(older.block_table), "in the same step, one of its blocks went to the other"
        if step.blocks_in:
            assert younger.is_finished or engine.executor.stored(younger)[: len(stored)] == stored
    assert out is not None and out.preempted == ("R2",)
    assert younger.output == answer(second) and older.output == answer(first)
    assert_drained(engine.scheduler)


def test_a13_what_was_to_be_swapped_out_in_a_step_that_failed_is_computed_again():
    """Its blocks may never have been read; nobody may take the host blocks for a copy of them."""
    memory = PagedMemory(6, 4, host_blocks=8)
    engine = engine_on(memory, 3, Breaks(memory), evict=Evict(swap=True))
    requests = [request(f"R{i}", 9, prompt=tuple(range(100 * i, 100 * i + 8))) for i in range(3)]
    trace = engine.run(requests)
    failed = next(step for step in trace.steps if step.error)
    assert failed.blocks_out > 0 and set(failed.finished).isdisjoint(failed.preempted)
    for some in requests:
        record = trace.requests[some.request_id]
        assert record.finish_reason == ("failed" if some.request_id in failed.finished else "length")
        assert record.finish_reason == "failed" or record.tokens == answer(some)
    assert len(failed.finished) < 3
    assert_drained(engine.scheduler)


@pytest.mark.parametrize("prompt", [6, *BORDERS])
def test_a14_a_shared_block_is_copied_once_and_the_last_owner_writes_in_place(prompt):
    memory = PagedMemory(16, 4)
    engine = engine_on(memory)
    requests = [request("F1", 5, prompt=prompt, seed=1), request("F2", 7, prompt=prompt, seed=2, fork_of="F1")]
    first, second = (engine.submit(some) for some in requests)
    whole = (prompt - 1) // 4  # blocks that both only read
    engine.step()
    before = list(first.block_table)
    engine.step()  # the fork computes the prompt's last token, in its own copy of the last block
    assert second.block_table[:whole] == first.block_table[:whole] == before[:whole]
    assert [memory.pool.owners[block] for block in before[:whole]] == [2] * whole
    assert first.block_table[whole] == before[whole] != second.block_table[whole]
    while not first.is_finished:
        assert engine.executor.stored(second)[:prompt] == engine.executor.stored(first)[:prompt]
        engine.step()
    assert set(memory.pool.owners.values()) == {1}, "the end of one fork leaves the other alone"
    engine.run([])
    assert len(engine.executor.copies) == 1 == sum(step.blocks_copied for step in engine.trace.steps)
    assert [first.output, second.output] == [answer(some) for some in requests] and first.output[0] != second.output[0]
    assert second.cached_tokens == prompt - 1
    assert_drained(engine.scheduler)


@pytest.mark.parametrize("samples", [2, 3, 5])
@pytest.mark.parametrize("prompt", BORDERS)
def test_a14_n_samples_of_one_prompt_share_its_blocks(samples, prompt):
    def run(fork):
        names = [f"S{i}" for i in range(samples)]
        requests = [
            request(name, 5, prompt=prompt, seed=i, fork_of="S0" if fork and i else None)
            for i, name in enumerate(names)
        ]
        engine = engine_on(PagedMemory(40, 4))
        trace = engine.run(requests)
        assert all(trace.requests[some.request_id].tokens == answer(some) for some in requests)
        taken = sum(event.kind == "take" for step in trace.steps for event in step.memory_events)
        return taken, sum(step.blocks_copied for step in trace.steps)

    (taken, copied), (alone, _) = run(True), run(False)
    assert alone - taken == (samples - 1) * ((prompt - 1) // 4) and copied == samples - 1


def fairness(join, **options):
    """R0 holds 6 of 10 blocks for 20 steps, BIG waits for 8, and small ones come in every step for 400 steps."""
    some = [request("R0", 20, prompt=11), request("BIG", 3, prompt=38, **options)]
    small = [request(f"s{i}", 5, float(i)) for i in range(400)]
    engine = engine_on(PagedMemory(10, 5), 20, join=join, reserve="full")
    return engine.run([*some, *small]).requests["BIG"]


def test_a15_first_come_first_served_starts_the_big_one_when_it_fits():
    assert fairness("fcfs").first_scheduled == 20


@pytest.mark.parametrize("max_passes", [0, 4, 16, 64])
def test_a15_small_ones_may_pass_a_big_one_so_many_times_and_no_more(max_passes):
    """The audit checks the bound; then the small ones that run end, five steps later at most."""
    start = fairness(SmallOnesPass(max_passes)).first_scheduled
    assert 20 <= start <= max(20, max_passes) + 5


def test_a15_without_a_bound_the_big_one_starves():
    assert fairness(SmallOnesPass(max_passes=10**9)).first_scheduled >= 400


@pytest.mark.parametrize("max_passes", [0, 16])
def test_a15_important_ones_may_pass_so_many_times_and_no_more(max_passes):
    assert 20 <= fairness(ByPriority(max_passes), priority=1).first_scheduled <= max(20, max_passes) + 5


def test_a15_a_lower_priority_number_goes_first_and_equals_keep_their_order():
    requests = [request(name, 1, priority=p) for name, p in [("c", 2), ("a", 0), ("d", 2), ("b", 1)]]
    trace = engine_on(PagedMemory(10, 4), 1, join="priority").run(requests)
    assert [name for step in trace.steps for name in step.admitted] == ["a", "b", "c", "d"]
