"""The books of a `PagedMemory`, read the slow way: block by block. For tests, and where blocks are half shared."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minibatch.memory.paged import PagedMemory


def tokens_in_tables(memory: PagedMemory) -> int:
    """K/V positions that hold a token of somebody's: of each block, as many as the one of its owners that has most."""
    size, owners = memory.block_size, memory.pool.owners
    filled: dict[int, int] = {}  # of blocks that are not full for all their owners
    partly: Counter[int] = Counter()  # for how many of them they are not
    for sequence in memory._holders:
        computed = max(sequence.num_computed_tokens, memory._forked.get(sequence, 0))
        first = computed // size
        for place, block in enumerate(sequence.block_table[first:], first):
            filled[block] = max(filled.get(block, 0), computed - place * size, 0)
            partly[block] += 1
    missing = sum(size - tokens for block, tokens in filled.items() if partly[block] == owners[block])
    return len(owners) * size - missing


def check(memory: PagedMemory) -> None:
    """Raise AssertionError in words if the books are wrong."""
    memory.pool.check_integrity()
    owners: Counter[int] = Counter()
    for sequence in memory._holders:
        name, table, stored = sequence.request_id, sequence.block_table, sequence.num_computed_tokens
        room = len(table) * memory.block_size
        assert len(set(table)) == len(table), f"{name!r} has a block twice: {table}"
        assert stored <= room, f"{name!r} stored {stored} in {room}"
        owners.update(table)
    assert owners == memory.pool.owners, f"tables say {dict(owners)}, owner counts {memory.pool.owners}"
    entries, counted = owners.total(), memory._entries
    assert entries == counted, f"the tables have {entries} entries, the running count is {counted}"
    strangers = [sequence.request_id for sequence in memory._forked if sequence not in memory._holders]
    assert not strangers, f"{strangers} are noted as forks and hold nothing"
    used, slow = memory.use().used, tokens_in_tables(memory)
    assert used == slow, f"use() says {used} tokens are stored, block by block there are {slow}"
    memory._host.check_integrity(memory.block_size)
    if memory.index is not None:
        memory.index.check_integrity(memory._holders, memory.block_size, memory.pool)
