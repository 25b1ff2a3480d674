"""Block tables: growing, sharing, copying, swapping, and what a failed attempt leaves behind (nothing)."""

import pytest
from helpers import admitted, request, sequence

from minibatch.memory import PagedMemory
from minibatch.request import Sequence
from minibatch.step import MemoryEvent, Move

BORDERS = [k * 4 + more for k in (1, 2, 3) for more in (-1, 0, 1)]  # in blocks of 4


def snapshot(memory):
    """All that a failed attempt must leave as it was."""
    index = dict(memory.index._children) if memory.index else None
    return (
        dict(memory.pool.owners),
        memory.pool.free_order(),
        index,
        sorted(memory._host.free),
        list(memory.moves),
        list(memory.events),
        {id(one): (list(one.block_table), one.num_computed_tokens) for one in [*memory._holders, *memory._host.places]},
        (memory.hit_tokens, memory.asked_tokens),
    )


# ---- block tables ----


@pytest.mark.parametrize("length", BORDERS)
def test_a_table_grows_exactly_at_a_block_border(length):
    memory = PagedMemory(8, 4)
    one = sequence(prompt=length, output=9)
    assert memory.admit(one, length) and len(one.block_table) == memory.blocks_for(length) == (length + 3) // 4
    one.num_computed_tokens = length
    held = len(one.block_table)
    assert memory.grow(one, length) and len(one.block_table) == held
    assert memory.grow(one, length + 1) and len(one.block_table) == held + (length % 4 == 0)
    assert memory.use() == (length, len(one.block_table) * 4, 32)
    memory.check_integrity()
    memory.release(one)
    assert one.block_table == [] and memory.pool.num_free == 8 and not memory.holds(one)


@pytest.mark.parametrize("cache", [False, True])
def test_attempts_that_fail_change_nothing(cache):
    memory = PagedMemory(6, 4, prefix_cache=cache, host_blocks=1)
    done = admitted(memory, "done", 8)
    memory.release(done)
    holder = admitted(memory, "holder", tuple(range(50, 58)), output=30)
    before = snapshot(memory)
    assert not memory.admit(sequence("more", prompt=20), 20), "with the stored prefix, five blocks and four are free"
    assert not memory.admit(sequence("some", prompt=8), 8, keep_free=3), "the watermark"
    assert not memory.grow(holder, 40) and not memory.swap_out(holder)
    assert snapshot(memory) == before
    memory.check_integrity()


def test_a_hit_that_is_free_is_not_counted_as_free_a_second_time():
    """cases.md A08, in the books: two stored blocks and three others; six are needed."""
    memory = PagedMemory(6, 4, prefix_cache=True)
    keeper = admitted(memory, "keeper", 4)
    stored = admitted(memory, "stored", tuple(range(10, 18)))
    memory.release(stored)
    before = snapshot(memory)
    late = sequence("late", (*range(10, 18), *range(30, 46)))
    assert memory.pool.num_free == 5 and not memory.admit(late, 24)
    assert snapshot(memory) == before
    memory.release(keeper)
    assert memory.admit(late, 24) and late.num_computed_tokens == 8
    assert len(set(late.block_table)) == 6 and memory.pool.num_free == 0


def test_the_free_queue_of_vllms_documentation():
    """systems.md 1.4: free 7-8-9-4-3-2-6-5-1-0; a hit of 0, 1, 2 and five more blocks take 7, 8, 9, 4, 3."""
    memory = PagedMemory(10, 4, prefix_cache=True)
    old = admitted(memory, "0", tuple(range(16)))  # blocks 0, 1, 2 and 3, whole
    memory.release(old)
    memory.pool._returned.clear()
    memory.pool._returned.update(dict.fromkeys([7, 8, 9, 4, 3, 2, 6, 5, 1, 0]))
    memory.pool._untouched = 10
    new = sequence("1", (*range(12), *range(100, 120)))
    assert memory.admit(new, 32) and new.block_table == [0, 1, 2, 7, 8, 9, 4, 3]
    assert memory.pool.free_order() == [6, 5]


def test_the_tail_of_a_chain_is_reused_first():
    memory = PagedMemory(4, 4, prefix_cache=True)
    memory.release(admitted(memory, "A", 12))
    assert memory.pool.free_order() == [3, 2, 1, 0]
    admitted(memory, "B", (90, 91, 92, 93, 94, 95, 96, 97))
    again = sequence("A2", prompt=12)
    assert memory.admit(again, 12) is False, "one block of three is still stored, and no other is free"
    assert memory._find(again)[0] == [0, 1]


@pytest.mark.parametrize("length", BORDERS)
def test_a_prefix_is_found_in_whole_blocks_and_never_to_the_last_token(length):
    """cases.md A03, in the books."""
    memory = PagedMemory(12, 4, prefix_cache=True)
    admitted(memory, "A", length)
    again = sequence("B", length)
    assert memory.admit(again, length) and again.num_computed_tokens == (length - 1) // 4 * 4
    assert (memory.hit_tokens, memory.asked_tokens) == (again.num_computed_tokens, 2 * length)


def test_a_block_is_published_when_its_last_token_is_computed_and_not_before():
    memory = PagedMemory(12, 4, prefix_cache=True)
    one = sequence("A", 13)
    assert memory.admit(one, 13)
    for computed, published in [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (12, 3), (13, 3)]:
        one.num_computed_tokens = computed
        memory.commit(one)
        assert len(memory.index) == published
        memory.check_integrity()


def test_events_and_moves_are_told_once():
    memory = PagedMemory(4, 4, host_blocks=4)
    one = admitted(memory, "A", 5)
    assert memory.take_events() == (MemoryEvent("take", "A", 0), MemoryEvent("take", "A", 1))
    assert memory.swap_out(one) and memory.take_moves() == (Move("out", 0, 3), Move("out", 1, 2))
    assert memory.take_events() == (MemoryEvent("give", "A", 1), MemoryEvent("give", "A", 0))
    assert memory.take_moves() == () and memory.take_events() == ()


# ---- forks and swaps ----


@pytest.mark.parametrize("prompt", BORDERS)
def test_whoever_writes_first_into_a_shared_block_gets_a_copy_and_the_other_writes_in_place(prompt):
    memory = PagedMemory(10, 4)
    parent, child = admitted(memory, "P", prompt, output=9), sequence("C", prompt, output=9)
    memory.fork(parent, child)
    shared = list(parent.block_table)
    assert child.block_table == shared and child.num_computed_tokens == prompt - 1
    assert memory.pool.owners == dict.fromkeys(shared, 2)
    assert memory.grow(child, prompt) and child.block_table[:-1] == shared[:-1]
    assert memory.take_moves() == (Move("copy", shared[-1], child.block_table[-1]),)
    assert memory.grow(parent, prompt + 1) and parent.block_table[: len(shared)] == shared
    assert memory.take_moves() == ()
    copied = child.num_computed_tokens - (len(shared) - 1) * 4  # of the child's own last block
    assert memory.use().used == prompt + copied
    memory.release(parent)
    memory.check_integrity()
    assert set(memory.pool.owners) == set(child.block_table) and set(memory.pool.owners.values()) == {1}


def test_a_copy_needs_a_block_and_without_one_nothing_changes():
    memory = PagedMemory(2, 4)
    parent, child = admitted(memory, "P", 6, output=9), sequence("C", 6, output=9)
    memory.fork(parent, child)
    before = snapshot(memory)
    assert not memory.grow(child, 6) and not memory.grow(parent, 7)
    assert snapshot(memory) == before
    memory.release(parent)
    assert memory.grow(child, 6) and memory.moves == [], "the last owner writes in place"


def test_nothing_is_forked_that_is_not_computed():
    memory = PagedMemory(4, 4)
    with pytest.raises(ValueError, match="'P' has not computed its whole prompt yet"):
        memory.fork(admitted(memory, "P", 6, computed=5), sequence("C", 6))


@pytest.mark.parametrize("length", BORDERS)
def test_what_is_swapped_out_comes_back_to_where_it_stopped(length):
    memory = PagedMemory(5, 4, host_blocks=4)
    one = admitted(memory, "A", length, output=9)
    used = len(one.block_table)
    assert memory.swap_out(one) and one.block_table == [] and memory.holds(one)
    assert memory.pool.num_free == 5 and len(memory._host.free) == 4 - used
    memory.check_integrity()
    assert memory.admit(one, length + 1) and one.num_computed_tokens == length
    assert [move.kind for move in memory.take_moves()] == ["out"] * used + ["in"] * used
    assert len(memory._host.free) == 4
    memory.check_integrity()


def test_a_swapped_one_that_is_released_leaves_the_host_pool():
    memory = PagedMemory(4, 4, host_blocks=2)
    one = admitted(memory, "A", 8)
    assert memory.swap_out(one)
    memory.release(one)
    assert not memory.holds(one) and sorted(memory._host.free) == [0, 1]


@pytest.mark.parametrize("host_blocks", [None, 0, 1])
def test_no_room_in_host_memory_is_said_and_changes_nothing(host_blocks):
    memory = PagedMemory(4, 4, host_blocks=host_blocks)
    one = admitted(memory, "A", 8)
    before = snapshot(memory)
    assert not memory.swap_out(one) and snapshot(memory) == before


# ---- sharing by content ----


def test_all_hashes_alike_change_no_hit(monkeypatch):
    """cases.md A07 (a): the dictionary may hash as it likes, the tokens themselves are compared."""

    class Same(tuple):
        def __hash__(self):
            return 7

    memory = PagedMemory(8, 4, prefix_cache=True)
    monkeypatch.setattr(Sequence, "tokens", lambda self, start, count: Same(self.request.prompt[start : start + count]))
    admitted(memory, "A", (1, 2, 3, 4, 5, 6, 7, 8, 9))
    other, same = sequence("B", (8, 7, 6, 5, 4, 3, 2, 1, 9)), sequence("C", (1, 2, 3, 4, 5, 6, 7, 8, 1))
    assert memory.admit(other, 4) and other.num_computed_tokens == 0
    assert memory.admit(same, 9) and same.num_computed_tokens == 8


# ---- errors in words ----


def test_impossible_calls_are_refused_by_name():
    memory = PagedMemory(4, 4)
    one = admitted(memory, "A", 8)
    with pytest.raises(ValueError, match="request 'A' holds blocks already"):
        memory.admit(one, 8)
    memory.release(one)
    with pytest.raises(ValueError, match="request 'A' holds no blocks to release"):
        memory.release(one)
    assert memory.refusal(request("R", 4, prompt=40)) == "needs 11 blocks of 4 K/V positions, the whole pool has 4"
    assert memory.refusal(request("R", 1, prompt=16)) is None
