"""Solutions to the exercises of notebook 02. Try them yourself first: the checks help."""


def dead_slot_steps(lengths: list[int], num_slots: int) -> int:
    """Each batch is paid for at the length of its longest answer; what no answer used was dead."""
    batches = [lengths[i : i + num_slots] for i in range(0, len(lengths), num_slots)]
    return sum(max(batch) - length for batch in batches for length in batch)


def closings(arrivals: list[float], max_batch: int, max_wait: float) -> list[tuple[float, int]]:
    """The oldest request of a batch decides when it closes at the latest; whoever comes by then, and fits, is in it."""
    closed, first = [], 0
    while first < len(arrivals):
        deadline = arrivals[first] + max_wait
        batch = [time for time in arrivals[first : first + max_batch] if time <= deadline]
        closed.append((batch[-1] if len(batch) == max_batch else deadline, len(batch)))
        first += len(batch)
    return closed


def expected_longest(lengths: list[int], num_slots: int) -> float:
    """The longest is at most the i-th smallest of m lengths with probability (i / m) ** num_slots."""
    total, before = 0.0, 0.0
    for i, length in enumerate(sorted(lengths), 1):
        at_most = (i / len(lengths)) ** num_slots
        total += length * (at_most - before)
        before = at_most
    return total
