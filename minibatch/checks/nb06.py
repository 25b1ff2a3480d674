"""Checks for the exercises of notebook 06: slot mapping, copy-on-write, the table of a newcomer."""

from collections.abc import Callable

from minibatch.checks.base import expect

_MAPPINGS = [  # block table, start, count, block size
    ([7, 2, 9], 0, 3, 4),
    ([7, 2, 9], 3, 2, 4),
    ([7, 2, 9], 4, 8, 4),
    ([0, 1, 2], 0, 12, 4),
    ([5, 3], 17, 1, 16),
    ([6, 0, 4, 1], 1, 3, 1),
    ([11, 4, 8], 10, 17, 10),
    ([3], 2, 0, 4),
]


def check_slot_mapping(function: Callable) -> None:
    """`function(block_table, start, count, block_size)`: slots of the positions [start, start + count)."""
    for table, start, count, size in _MAPPINGS:
        want = [table[p // size] * size + p % size for p in range(start, start + count)]
        expect(function, table, start, count, size, want=want, hint=_mapping_hint)


def _mapping_hint(got: object, table: list[int], start: int, count: int, size: int) -> str:
    if not isinstance(got, (list, tuple)) or any(isinstance(one, bool) or not isinstance(one, int) for one in got):
        return "return a list of slots, each a whole number"
    if len(got) != count:
        return "one slot for each of the `count` positions is wanted"
    positions = range(start, start + count)
    if list(got) == [table[p // size] for p in positions]:
        return "these are the blocks; where in its block does a position lie?"
    if list(got) == [table[start // size] * size + start % size + i for i in range(count)]:
        return "the next position may lie in another block, and that one can be anywhere"
    if list(got) == list(positions):
        return "these are positions; the block table says where they lie"
    if list(got) == [table[p // size] * size + p % size for p in range(count)]:
        return "the first position is `start`"
    return "a block begins at its number times the block size; position p is in the table's entry p // block_size"


_WRITES = [  # block table, owners, position, block size
    ([0, 1], {0: 2, 1: 2}, 5, 4),
    ([0, 1], {0: 2, 1: 1}, 5, 4),
    ([0, 1], {0: 1, 1: 1}, 7, 4),
    ([0, 1], {0: 1, 1: 1}, 8, 4),
    ([0, 1], {0: 2, 1: 2}, 8, 4),
    ([], {}, 0, 16),
    ([9, 4, 2], {9: 1, 4: 3, 2: 1}, 40, 16),
    ([9, 4, 2], {9: 1, 4: 1, 2: 3}, 40, 16),
    ([9, 4, 2], {9: 3, 4: 3, 2: 1}, 47, 16),
    ([9, 4, 2], {9: 1, 4: 1, 2: 1}, 48, 16),
    ([5, 0, 3], {5: 1, 0: 2, 3: 1}, 1, 1),
    ([1, 2], {0: 5, 1: 1, 2: 1}, 0, 4),
    ([3, 0], {0: 1, 3: 2, 1: 7}, 4, 4),
]


def check_where_to_write(function: Callable) -> None:
    """`function(block_table, owners, position, block_size)`: "take", "copy" or "write"."""
    for table, owners, position, size in _WRITES:
        want = _where(table, owners, position, size)
        expect(function, table, owners, position, size, want=want, hint=_write_hint)


def _where(table: list[int], owners: dict[int, int], position: int, size: int) -> str:
    place = position // size
    return "take" if place == len(table) else "copy" if owners[table[place]] > 1 else "write"


def _write_hint(got: object, table: list[int], owners: dict[int, int], position: int, size: int) -> str:
    if got not in ("take", "copy", "write"):
        return "return one of the three words"
    place = position // size
    if place == len(table):
        return f"the table has {len(table)} blocks of {size}: is position {position} in one of them?"
    if got == "take":
        return f"position {position} lies in a block that is in the table"
    if got == "copy":
        return f"look at the owners of the block in which position {position} lies, not at those of others"
    return f"who else would see what is written at position {position}?"


_NEWCOMERS = [  # free queue, hits, blocks needed
    ([7, 8, 9, 4, 3, 2, 6, 5, 1, 0], [0, 1, 2], 8),  # the example of vLLM's documentation
    ([7, 8, 9], [], 2),
    ([7, 8, 9], [], 3),
    ([7, 8, 9], [], 4),
    ([7, 8, 9], [0, 1], 5),
    ([7, 8, 9], [0, 1], 6),
    ([7, 8, 9], [8], 3),
    ([8, 7, 9], [8, 7], 4),
    ([7, 8, 9], [7, 0], 4),
    ([5, 1, 0], [0, 1], 2),
    ([], [3, 4], 2),
    ([], [3], 2),
    ([6], [6], 2),
]


def check_newcomers_table(function: Callable) -> None:
    """`function(free, hits, num_blocks)`: hits, then the front of what is left of the queue; [] if it does not fit."""
    for free, hits, count in _NEWCOMERS:
        expect(function, free, hits, count, want=_table(free, hits, count), hint=_table_hint)


def _table(free: list[int], hits: list[int], count: int) -> list[int]:
    table = [*hits, *(block for block in free if block not in hits)][:count]
    return table if len(table) == count else []


def _table_hint(got: object, free: list[int], hits: list[int], count: int) -> str:
    if not isinstance(got, (list, tuple)):
        return "return a list of blocks"
    got, want = list(got), _table(free, hits, count)
    if got and not want:
        return "it does not fit: a free block that is a hit cannot be taken a second time"
    if not got:
        return "it does fit: hits need not be taken"
    if any(got.count(block) > 1 for block in got):
        return "a block stands in the table twice"
    if len(got) != count:
        return "the table has one entry for each of the `num_blocks` blocks"
    if got[: len(hits)] != hits:
        return "the hits hold the first tokens, so they come first, in their order"
    return "blocks are taken from the front of the queue"
