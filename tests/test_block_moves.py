"""Blocks on the move: swapped out and in, copied before a write, wiped after a broken step; compared byte by byte."""

import pytest
import torch

from minibatch.memory import PagedMemory
from minibatch.model import ModelConfig
from minibatch.model.paged_kv import PagedKVCache
from minibatch.request import Request, SamplingParams, Sequence
from minibatch.step import Chunk, Move, StepPlan

CONFIG = ModelConfig(32, 64, 32, 2, 4, 2, 16, 256)
PROMPT = (7, 3, 8, 6, 5, 4, 9, 11)


def marked(num_blocks=4, host_blocks=2, dtype=torch.float32):
    """A cache of 2 positions a block, whose blocks hold noise."""
    cache = PagedKVCache(CONFIG, num_blocks * 2, dtype, torch.device("cpu"), 2, host_blocks)
    for tensor in (cache.k, cache.v, cache.host_k, cache.host_v):
        tensor.copy_(torch.randn(tensor.shape))
    return cache


def contents(cache):
    """Block -> its bytes, of K and V and all layers: here by number, in host memory by ("host", number)."""
    both = torch.stack([cache.k_blocks, cache.v_blocks], dim=-1).clone()
    host = torch.stack([cache.host_k, cache.host_v], dim=-1).clone()
    found = {block: both[:, block] for block in range(both.shape[1])}
    return found | {("host", block): host[:, block] for block in range(host.shape[1])}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "moves, becomes",
    [
        ([("copy", 0, 2)], {2: 0}),
        ([("out", 3, 1)], {("host", 1): 3}),
        ([("in", 1, 3)], {3: ("host", 1)}),
        ([("out", 1, 0), ("copy", 2, 1)], {("host", 0): 1, 1: 2}),  # given away in the same step
        ([("out", 1, 0), ("in", 0, 3)], {("host", 0): 1, 3: 1}),  # out and in again
        ([("in", 0, 1), ("out", 2, 0)], {1: ("host", 0), ("host", 0): 2}),  # the host block changes hands
        ([("copy", 0, 1), ("copy", 1, 2)], {1: 0, 2: 0}),
    ],
)
def test_moves_copy_whole_blocks_in_their_order_and_touch_no_other(moves, becomes, dtype):
    cache = marked(dtype=dtype)
    before = contents(cache)
    cache.apply([Move(*move) for move in moves])
    for block, held in contents(cache).items():
        assert torch.equal(held, before[becomes.get(block, block)]), block


@pytest.fixture
def pair(tiny):
    """Memory of 4 blocks of 4, its executor, and two sequences "A", "B" (8 and 7 tokens) that have computed them."""
    memory = PagedMemory(4, 4, host_blocks=2)
    executor = tiny.executor(memory)
    served = [Sequence(Request(name, PROMPT[:n], SamplingParams(5)), slot=n) for name, n in [("A", 8), ("B", 7)]]
    for sequence in served:
        assert memory.admit(sequence, sequence.num_tokens)
    executor.execute(StepPlan(tuple(Chunk(s, s.slot, 0, s.num_tokens) for s in served)))
    for sequence in served:
        sequence.num_computed_tokens = sequence.num_tokens
    return memory, executor, *served


def stored(executor, sequence, count=None):
    """K and V of the first positions of a sequence, of all layers."""
    places = [sequence.block_table[p // 4] * 4 + p % 4 for p in range(count or sequence.num_computed_tokens)]
    return torch.stack([executor.cache.k[:, places], executor.cache.v[:, places]])


def test_a13_what_is_swapped_out_survives_its_blocks_being_written_in_the_same_step(pair):
    memory, executor, first, second = pair
    before, was = stored(executor, second), list(second.block_table)
    assert memory.swap_out(second)
    first.output.append(3)
    assert memory.grow(first, 9) and first.block_table[-1] in was, "A goes on in a block that was B's"
    executor.execute(StepPlan((Chunk(first, 8, 8, 1),), moves=memory.take_moves()))
    memory.release(first)
    assert memory.admit(second, 7)
    other = Sequence(Request("C", (3,)), slot=0)
    assert memory.admit(other, 1)
    executor.execute(StepPlan((Chunk(other, 0, 0, 1),), moves=memory.take_moves()))
    assert torch.equal(stored(executor, second), before), "byte by byte"


def test_a14_the_first_to_write_into_a_shared_block_writes_into_a_copy(tiny):
    memory = PagedMemory(6, 4)
    executor = tiny.executor(memory)
    parent, child = (Sequence(Request(name, PROMPT[:6], SamplingParams(5)), slot=i) for i, name in enumerate("PC"))
    memory.admit(parent, 6)
    executor.execute(StepPlan((Chunk(parent, 0, 0, 6),)))
    parent.num_computed_tokens = 6
    before = executor.cache.k.clone(), executor.cache.v.clone()
    shared = list(parent.block_table)
    memory.fork(parent, child)
    parent.output.append(3)
    assert memory.grow(child, 6) and memory.grow(parent, 7)
    moves = memory.take_moves()
    assert [move.kind for move in moves] == ["copy"] and moves[0].source == shared[1]
    executor.execute(StepPlan((Chunk(child, 1, 5, 1), Chunk(parent, 0, 6, 1)), moves=moves))
    assert child.block_table[0] == parent.block_table[0] == shared[0] and child.block_table[1] != parent.block_table[1]
    for now, then in zip((executor.cache.k, executor.cache.v), before):
        for sequence in (parent, child):
            for block, old, count in zip(sequence.block_table, shared, (4, 1)):  # position 5 is the child's own
                assert torch.equal(now[:, block * 4 : block * 4 + count], then[:, old * 4 : old * 4 + count])
    torch.testing.assert_close(stored(executor, child, 6), stored(executor, parent, 6), atol=1e-5, rtol=0)


def test_a_step_that_is_not_finite_wipes_what_it_wrote_and_leaves_a_shared_block_intact(pair):
    """The two share their first block, and the second one's own tokens are broken."""
    memory, executor, first, second = pair
    second.block_table[0] = first.block_table[0]
    before = executor.cache.k.clone(), executor.cache.v.clone()
    own = second.block_table[1] * 4
    executor.cache.v[:, own] = torch.nan
    second.output.append(3)
    with pytest.raises(FloatingPointError, match="not finite"):
        executor.execute(StepPlan((Chunk(second, 7, 7, 1),)))
    executor.cache.v[:, own] = before[1][:, own]  # what the test broke
    for now, then in zip((executor.cache.k, executor.cache.v), before):
        then[:, own + 3] = 0
        assert torch.equal(now, then)
