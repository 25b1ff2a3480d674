"""The oracles of cases.md, computed anew from what is visible, not from the room's own counters."""

from collections import Counter

from minibatch.memory import PagedMemory
from minibatch.request import Status
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.mix import PrefillFirst
from minibatch.schedulers.mix_cut import OneCutPrompt
from minibatch.schedulers.mix_whole import PromptsInGroups, PromptsOrDecodes


def check_books(engine):
    """Between two steps: who holds what adds up."""
    scheduler, memory = engine.scheduler, engine.scheduler.memory
    memory.check_integrity()
    slots = [sequence.slot for sequence in scheduler.running]
    assert sorted(slots + scheduler._free_slots) == list(range(scheduler.max_num_seqs)), f"slots: {slots}"
    assert all(sequence.status is not Status.WAITING for sequence in scheduler.running)
    for sequence in scheduler.waiting:
        _check_waiting(sequence, memory)
    if isinstance(memory, PagedMemory):
        _check_blocks(scheduler, memory)
    else:
        assert memory.use().reserved == sum(len(sequence.region) for sequence in scheduler.running)
    if isinstance(scheduler, IterationScheduler):
        ranks = [scheduler.join.rank(sequence) for sequence in scheduler.waiting]
        assert ranks == sorted(ranks), "the queue is in the order of the join policy"
        bound = getattr(scheduler.join, "max_passes", 0)
        assert all(sequence.times_passed <= bound for sequence in scheduler.waiting), "passed too often"
    for name, sequence in engine.open.items():
        assert engine.trace.requests[name].finish_reason is None and not sequence.is_finished, f"{name!r} has ended"


def _check_waiting(sequence, memory):
    name, away = sequence.request_id, sequence.status is Status.PREEMPTED
    assert sequence.slot is None and sequence.region is None and not sequence.block_table, f"{name!r} waits and holds"
    assert away or sequence.status is Status.WAITING
    assert away == (sequence.preemptions > 0), f"{name!r} is {sequence.status} after {sequence.preemptions} preemptions"
    swapped = memory.holds(sequence)
    assert swapped == (sequence.num_computed_tokens > 0), f"{name!r} waits with stored tokens, but not in host memory"
    assert not swapped or away, f"{name!r} is in host memory and was never preempted"


def _check_blocks(scheduler, memory):
    """Free or held, each once; owners are the tables it stands in; use is what the tables say."""
    pool, size = memory.pool, memory.block_size
    tables = Counter(block for sequence in scheduler.running for block in sequence.block_table)
    assert tables == pool.owners, f"tables {tables}, owners {pool.owners}"
    assert sorted([*pool.free_order(), *tables]) == list(range(memory.num_blocks)), "free + held == total"
    assert pool.num_free == len(pool.free_order())
    filled = dict.fromkeys(tables, 0)
    for sequence in scheduler.running:
        for place, block in enumerate(sequence.block_table):
            filled[block] = max(filled[block], min(sequence.num_computed_tokens - place * size, size))
    assert memory.use() == (sum(filled.values()), len(tables) * size, memory.num_blocks * size)
    swapped = sum(memory.blocks_for(sequence.num_computed_tokens) for sequence in scheduler.waiting)
    assert len(memory._host.free) + swapped == (memory.host_blocks or 0), "free + swapped == host blocks"


def check_step(engine, record, before):
    """One step: progress, budgets, tokens and preemptions. `before`: each open request's (output, order)."""
    scheduler = engine.scheduler
    if record is None:
        idle = not scheduler.running and not scheduler.waiting
        assert idle or not isinstance(scheduler, IterationScheduler), "an empty step while there is work"
        return
    assert "AssertionError" not in (record.error or ""), record.error  # of `FakeKV`; the engine caught it
    assert record.live, "a step computes something"
    _check_tokens(engine, record, before)
    if isinstance(scheduler.memory, PagedMemory):
        _check_events(engine, record)
    used, reserved, capacity = record.memory
    assert sum(work.count for work in record.live) * (not record.error) <= used <= reserved <= capacity
    if isinstance(scheduler, IterationScheduler):
        _check_budget(scheduler.mix, record)
        _check_preempted(scheduler, record, before)
    for work in record.dead:
        entry = engine.trace.requests[work.request_id]
        last = entry.prompt_tokens + len(entry.tokens) - 2  # the last position stored: P + N - 1 of them
        assert (work.start, work.count) == (last, 1), "a dead row computes its last stored token over again"


def _check_tokens(engine, record, before):
    """A chunk that reaches the last known token yields one token, and nothing else does."""
    live = {work.request_id: work for work in record.live}
    assert len(live) == len(record.live), "one chunk a request"
    for name, (output, _) in before.items():
        entry, work = engine.trace.requests[name], live.get(name)
        ends_at = work.start + work.count if work and not record.error else None
        grown = ends_at == entry.prompt_tokens + len(output)
        assert entry.tokens[: len(output)] == output and len(entry.tokens) == len(output) + grown, f"tokens of {name!r}"
        ended = name in record.finished or (work is None and entry.finish_reason == "aborted")  # it waited too long
        assert ended == (name not in engine.open) == bool(entry.finish_reason), "one terminal event"
        assert len(entry.token_times) == len(entry.tokens), f"times of {name!r}"


def _check_budget(mix, record):
    """Where prompts and decodes are apart, the budget is one of prompts: a decode of everyone may pass it."""
    counts = [work.count for work in record.live]
    prefills = [work for work in record.live if work.count > 1 or work.prefill]
    decodes = [work for work in record.live if work not in prefills and work.request_id not in record.admitted]
    apart = isinstance(mix, PrefillFirst | PromptsOrDecodes | PromptsInGroups | OneCutPrompt)
    if mix.token_budget is not None and (prefills or not apart):
        assert sum(counts) <= mix.token_budget, f"{sum(counts)} tokens in a step, budget {mix.token_budget}"
    mixed = not apart or getattr(mix, "mixed", False)
    assert mixed or not (prefills and decodes), f"prompts and decodes in one step: {record.live}"
    if mix.chunk_cap is not None:
        assert max(counts) <= mix.chunk_cap, f"a chunk of {max(counts)}, cap {mix.chunk_cap}"


def _check_preempted(scheduler, record, before):
    """The oldest is never the victim of a younger; who gave way computes nothing and waits."""
    computing = {work.request_id for work in record.live}
    waiting = {sequence.request_id for sequence in scheduler.waiting}
    for name in record.preempted:
        assert name not in computing and name in waiting, f"{name!r} was preempted and goes on"
        assert any(before[other][1] < before[name][1] for other in computing), f"the oldest, {name!r}, gave way"


def _check_events(engine, record):
    """All that the trace says of blocks, added up, is who owns which."""
    for event in record.memory_events:
        _apply(engine.owners, event)
    now = {block: set(names) for block, names in engine.owners.items()}
    for event in engine.scheduler.memory.events:  # of those who left at the end of this step
        _apply(now, event)
    counts = {block: len(names) for block, names in now.items() if names}
    assert counts == engine.scheduler.memory.pool.owners, "the events of the trace add up to the owner counts"


def _apply(owners, event):
    kind, name, block = event
    names = owners.setdefault(block, set())
    assert (name in names) == (kind == "give"), f"{event}, owned by {names}"
    assert kind != "take" or not names, f"{event}, owned by {names}"
    names.symmetric_difference_update({name})
