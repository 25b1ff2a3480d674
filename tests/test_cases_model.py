"""The cases that are about K and V, on the real model with a poisoned pool (cases.md, oracle 6; A03, A06, A09 to A14).

Blocks of 4, float32. Whoever reads what nobody wrote, or what has been given away, reads NaN, and the step fails.
"""

import pytest
import torch
from helpers import assert_drained, engine_on

from minibatch import Request, SamplingParams, build_engine
from minibatch.memory import PagedMemory
from minibatch.model.executor import TorchExecutor
from minibatch.schedulers.evict import Evict
from minibatch.schedulers.mix import Chunked

BORDERS = [k * 4 + more for k in (1, 2, 3) for more in (-1, 0, 1)]


class Poisoned(TorchExecutor):
    """Before each step, NaN wherever nothing is stored for anybody; keeps the scores of the last token drawn."""

    def __init__(self, model, memory):
        pool = (model.llama, memory.num_positions, memory.max_model_len)
        super().__init__(*pool, block_size=memory.block_size, host_blocks=memory.host_blocks or 0)
        self.memory = memory
        self.cache.k[:], self.cache.v[:], self.cache.host_k[:], self.cache.host_v[:] = [torch.nan] * 4

    def execute(self, plan):
        moved = {move.source for move in plan.moves if move.kind != "in"}
        for block in self.memory.pool.free_order():
            stored = self.memory.index is not None and block in self.memory.index
            if not stored and block not in moved:
                self.poison(block, 0)
        for row in plan.rows:
            for place, block in enumerate(row.sequence.block_table):
                if self.memory.pool.owners[block] == 1 and block not in moved:
                    self.poison(block, max(0, row.sequence.num_computed_tokens - place * self.memory.block_size))
        return super().execute(plan)

    def poison(self, block, start):
        """From one offset of a block on."""
        self.cache.k_blocks[:, block, start:] = torch.nan
        self.cache.v_blocks[:, block, start:] = torch.nan

    def stored(self, sequence, count):
        """K and V of a sequence's first tokens."""
        places = [sequence.block_table[p // 4] * 4 + p % 4 for p in range(count)]
        return torch.stack([self.cache.k[:, places], self.cache.v[:, places]])


@pytest.fixture
def serving(tiny):
    """An engine over a poisoned pool of paged memory: (memory, slots, policies) -> engine."""

    def build(memory, slots=8, **policies):
        return engine_on(memory, slots, Poisoned(tiny, memory), **policies)

    return build


@pytest.fixture(scope="module")
def alone(tiny):
    """What a request writes with a contiguous engine to itself."""
    return lambda some: list(build_engine(tiny, "iteration", 1, max_model_len=64).stream(some))


def asks(name, length, output=6, text="count from three to nine please", fork_of=None, **sampling):
    """A request whose prompt is the first `length` bytes of a text."""
    return Request(name, tuple(text.encode()[:length]), SamplingParams(output, **sampling), fork_of=fork_of)


def assert_right(engine, alone, *requests):
    """Everyone ended by length with what it writes alone, and nothing is left behind."""
    for some in requests:
        record = engine.trace.requests[some.request_id]
        assert record.finish_reason == "length", [step.error for step in engine.trace.steps if step.error]
        assert record.tokens == alone(some), some.request_id
    assert_drained(engine.scheduler)


@pytest.mark.parametrize("length", BORDERS)
def test_a03_a_cached_prompt_gives_the_same_text(serving, alone, length):
    engine = serving(PagedMemory(12, 4, prefix_cache=True))
    requests = [asks(f"R{i}", length) for i in range(3)]
    for some in requests:
        engine.run([some])
    assert_right(engine, alone, *requests)
    assert [engine.trace.requests[r.request_id].cached_tokens for r in requests[:2]] == [0, (length - 1) // 4 * 4]


def test_a06_a_block_with_new_content_is_not_found_by_its_old(serving, alone):
    engine = serving(PagedMemory(3, 4, prefix_cache=True))
    requests = [asks("R1", 8, 1), asks("R2", 12, 1, text="say hello to"), asks("R3", 8, 1)]
    for some in requests:
        engine.run([some])
    assert_right(engine, alone, *requests)
    assert engine.trace.requests["R3"].cached_tokens == 0


@pytest.mark.parametrize("budget", [3, 4, 5, 7])
@pytest.mark.parametrize("length", BORDERS)
def test_a09_chunks_give_the_text_of_the_whole_prompt(serving, alone, length, budget):
    engine = serving(PagedMemory(24, 4), mix=Chunked(budget))
    requests = [asks("A", 2, 12), asks("B", length), asks("C", length + 1, text="say the word yes twice")]
    engine.run(requests)
    assert_right(engine, alone, *requests)


@pytest.mark.parametrize("mix", [Chunked(32), Chunked(5), Chunked(8, 4), "whole", "prefill_first"], ids=str)
def test_a10_two_equal_prompts_at_once(serving, alone, mix):
    engine = serving(PagedMemory(16, 4, prefix_cache=True), mix=mix)
    requests = [asks("A", 13), asks("B", 13)]
    engine.run(requests)
    assert_right(engine, alone, *requests)


@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
@pytest.mark.parametrize("cache", [False, True], ids=["", "cache"])
@pytest.mark.parametrize("length", BORDERS)
def test_a11_three_that_do_not_fit_together_write_what_they_write_alone(serving, alone, length, cache, swap):
    blocks = max(-(-(length + 8) // 4), 2 * -(-length // 4))  # one to its end, two at their beginning
    engine = serving(PagedMemory(blocks, 4, cache, host_blocks=2 * blocks), 3, evict=Evict(swap=swap))
    requests = [asks(f"R{i}", length, 9, text=f"{i} is what I say to you") for i in range(3)]
    engine.run(requests)
    assert_right(engine, alone, *requests)
    assert engine.scheduler.counts["swapped" if swap else "recomputed"] > 0


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 42}], ids=["greedy", "seeded"])
@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
def test_a12_a_preempted_request_writes_on(serving, alone, swap, sampling):
    engine = serving(PagedMemory(8, 4, host_blocks=8), evict=Evict(swap=swap), mix=Chunked(3))
    some, due, stored = asks("R", 4, 12, **sampling), {8, 9, 11}, None
    sequence = engine.submit(some)
    while engine.step():
        if stored is not None and sequence.num_computed_tokens > stored.shape[2] and sequence.slot is not None:
            again = engine.executor.stored(sequence, stored.shape[2])
            assert torch.equal(again, stored) if swap else torch.allclose(again, stored, atol=1e-4)
            stored = None
        if sequence.num_tokens in due and sequence.slot is not None and not sequence.is_finished:
            due.remove(sequence.num_tokens)
            stored = engine.executor.stored(sequence, sequence.num_computed_tokens)
            engine.scheduler.preempt(sequence)
    assert not due and engine.trace.requests["R"].preemptions == 3
    assert_right(engine, alone, some)


@pytest.mark.parametrize("length", [6, *BORDERS])
def test_a14_forks_copy_the_block_they_write_into_and_no_other(serving, alone, length):
    memory = PagedMemory(16, 4)
    engine = serving(memory)
    options = {"temperature": 1.5, "text": "tell a long story"}
    requests = [asks("F1", length, 5, seed=1, **options), asks("F2", length, 7, seed=2, fork_of="F1", **options)]
    first, second = (engine.submit(some) for some in requests)
    engine.step(), engine.step()
    assert first.block_table[: (length - 1) // 4] == second.block_table[: (length - 1) // 4]
    assert first.block_table[(length - 1) // 4] != second.block_table[(length - 1) // 4]
    copied = [engine.executor.stored(one, length - 1) for one in (first, second)]
    assert torch.equal(*copied), "the copy is the original, byte by byte"
    engine.run([])
    assert sum(step.blocks_copied for step in engine.trace.steps) == 1
    assert_right(engine, alone, *requests)


def test_the_poison_is_noticed(serving, monkeypatch):
    """A block that is found before it is computed: the second prompt enters while the first is in its first chunk."""
    monkeypatch.setattr(PagedMemory, "_find", lambda self, one: (sorted(self.pool.owners)[:2], 0))
    engine = serving(PagedMemory(16, 4, prefix_cache=True), mix=Chunked(5, 4))
    engine.submit(asks("A", 13)), engine.submit(asks("B", 13))
    assert "not finite" in engine.step().error
