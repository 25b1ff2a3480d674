"""Right and wrong answers to the exercises of notebook 06. Read by tests/test_checks.py, which says the format."""

from minibatch.checks.nb06 import check_newcomers_table, check_slot_mapping, check_where_to_write

NOTEBOOK = "06_paged_kv_cache"


def mapping_by_loop(table, start, count, size):
    slots = []
    for position in range(start, start + count):
        block, offset = divmod(position, size)
        slots.append(size * table[block] + offset)
    return tuple(slots)


def mapping_by_tables(table, start, count, size):
    """All slots of the sequence, then a slice."""
    return [block * size + offset for block in table for offset in range(size)][start : start + count]


def write_by_place(table, owners, position, size):
    block = dict(enumerate(table)).get(position // size)
    return "take" if block is None else ("write", "copy")[owners[block] > 1]


def write_plainly(table, owners, position, size):
    if position >= len(table) * size:
        return "take"
    return {1: "write"}.get(owners[table[position // size]], "copy")


def newcomer_by_queue(free, hits, count):
    queue, table = [block for block in free if block not in hits], list(hits)
    while len(table) < count:
        if not queue:
            return []
        table.append(queue.pop(0))
    return table


def newcomer_comprehended(free, hits, count):
    found = (hits + [block for block in free if block not in hits])[:count]
    return found * (len(found) == count)


def counts_then_shares(free, hits, count):
    missing = count - len(hits)
    return hits + free[:missing] if missing <= len(free) else []


def promises_too_much(free, hits, count):
    left = [block for block in free if block not in hits]
    return hits + left[: count - len(hits)] if count - len(hits) <= len(free) else []


TABLE = {
    "slot_mapping": {
        "check": check_slot_mapping,
        "right": [mapping_by_loop, mapping_by_tables],
        "wrong": [
            (lambda table, start, count, size: [table[p // size] for p in range(start, start + count)], "the blocks"),
            (lambda table, start, count, size: list(range(start, start + count)), "positions"),
            (lambda t, start, count, size: [t[p // size] * size + p % size for p in range(count)], "first position"),
            (
                lambda t, start, count, size: [t[start // size] * size + start % size + i for i in range(count)],
                "another block",
            ),
            (lambda t, start, count, size: [t[p // size] + p % size for p in range(start, start + count)], "begins at"),
            (lambda t, start, count, size: mapping_by_tables(t, start, count - 1, size) if count else [], "one slot"),
            (lambda t, start, count, size: mapping_by_tables(t, start, count, size)[::-1], "begins at"),
            (lambda t, start, count, size: [float(s) + 0.5 for s in range(count)], "whole number"),
            (lambda t, start, count, size: t[start // size] * size, "a list"),
            (lambda *args: [28, 29, 30], "one slot"),  # the first case
        ],
    },
    "where_to_write": {
        "check": check_where_to_write,
        "right": [write_by_place, write_plainly],
        "wrong": [
            (lambda *args: "write", "who else"),
            (lambda *args: "copy", "not at those of others"),
            (lambda *args: "take", "is in the table"),
            (
                lambda table, owners, position, size: (
                    "take" if position % size == 0 else write_plainly(table, owners, position, size)
                ),
                "is in the table",
            ),
            (
                lambda table, owners, position, size: (
                    "take"
                    if position > len(table) * size
                    else write_plainly(table + [0], owners | {0: 1}, position, size)
                ),
                "one of them",
            ),
            (
                lambda table, owners, position, size: (
                    "take"
                    if position >= len(table) * size
                    else "copy"
                    if any(owners[block] > 1 for block in table)
                    else "write"
                ),
                "not at those of others",
            ),
            (
                lambda table, owners, position, size: (
                    "take" if position >= len(table) * size else "copy" if owners[table[-1]] > 1 else "write"
                ),
                "who else",
            ),
            (
                lambda table, owners, position, size: (
                    "take"
                    if position >= len(table) * size
                    else "copy"
                    if owners.get(position // size, 1) > 1
                    else "write"
                ),
                "who else",
            ),
            (lambda *args: True, "three words"),
        ],
    },
    "newcomers_table": {
        "check": check_newcomers_table,
        "right": [newcomer_by_queue, newcomer_comprehended],
        "wrong": [
            (counts_then_shares, "twice"),
            (promises_too_much, "does not fit"),
            (lambda free, hits, count: free[:count] if count <= len(free) else [], "come first"),
            (lambda free, hits, count: newcomer_by_queue(free[::-1], hits, count), "front"),
            (lambda free, hits, count: sorted(newcomer_by_queue(free, hits, count)), "front"),
            (lambda free, hits, count: newcomer_by_queue(free, hits, count + 1)[:-1], "it does fit"),
            (
                lambda free, hits, count: newcomer_by_queue(free, hits, count) if len(free) >= count else [],
                "it does fit",
            ),
            (lambda free, hits, count: newcomer_by_queue(free, hits, count)[len(hits) :], "one entry"),
            (lambda free, hits, count: count, "a list"),
            (lambda *args: [0, 1, 2, 7, 8, 9, 4, 3], "one entry"),  # the first case
        ],
    },
}
