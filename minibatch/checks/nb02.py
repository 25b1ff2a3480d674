"""Checks for the exercises of notebook 02: dead slot-steps, when a dynamic batch closes, the longest of a batch."""

from collections.abc import Callable, Sequence

from minibatch.checks.base import expect


def check_dead_slot_steps(function: Callable) -> None:
    """`function(lengths, num_slots)`: dead slot-steps of a static batcher, everybody there at the start."""
    cases = [([20, 900], 2), ([3, 1, 9, 2, 2, 6], 3), ([2, 4, 2], 2), ([5, 5, 5], 3), ([1, 8, 8, 1], 2), ([7], 4)]
    cases += [([6, 2, 4, 1, 3], 1), ([9, 1, 1, 1, 5, 5, 2, 10, 3, 4], 4)]
    for lengths, slots in cases:
        want = sum(max(tray) * len(tray) - sum(tray) for tray in _trays(lengths, slots))
        expect(function, lengths, slots, want=want, hint=_dead_hint)


def _trays(lengths: Sequence[int], slots: int) -> list[Sequence[int]]:
    return [lengths[i : i + slots] for i in range(0, len(lengths), slots)]


def _dead_hint(got: object, lengths: list[int], slots: int) -> str:
    trays = _trays(lengths, slots)
    if got == sum(max(tray) * slots - sum(tray) for tray in trays):
        return "that counts empty slots of the last batch as well; nobody holds them"
    if got == sum(max(tray) * len(tray) for tray in trays):
        return "that is every slot-step of the batches; the live ones are not dead"
    if got == max(lengths) * len(lengths) - sum(lengths):
        return "each batch has its own longest answer"
    ordered = sorted(lengths)
    if got in [sum(max(t) * len(t) - sum(t) for t in _trays(each, slots)) for each in (ordered, ordered[::-1])]:
        return "the batches are filled in order of arrival, not by length"
    return "in each batch, an answer is dead from the step after its own end to the end of the longest"


# Arrivals in milliseconds, largest batch, longest wait. No arrival falls on the end of a window.
_WINDOWS = [
    ([0, 80, 160, 240], 4, 100),
    ([10, 10, 10, 10, 60], 4, 100),
    ([5], 8, 50),
    ([0, 10, 20, 30, 40, 50, 60], 3, 100),
    ([0, 90, 180, 270, 360, 450], 8, 200),
    ([7, 7, 7, 7, 7], 2, 30),
    ([0, 400, 410, 1000], 2, 100),
    ([0, 1, 2], 1, 100),
]


def check_closings(function: Callable) -> None:
    """`function(arrivals, max_batch, max_wait)`: when batches close, as (time, size); running takes no time."""
    for arrivals, size, wait in _WINDOWS:
        expect(function, arrivals, size, wait, want=_closings(arrivals, size, wait), hint=_closings_hint)


def _closings(arrivals: list[float], size: int, wait: float) -> list[tuple[float, int]]:
    closed, waiting = [], []
    for time in arrivals:
        if waiting and waiting[0] + wait < time:
            closed.append((waiting[0] + wait, len(waiting)))
            waiting = []
        waiting.append(time)
        if len(waiting) == size:
            closed.append((time, size))
            waiting = []
    return closed + ([(waiting[0] + wait, len(waiting))] if waiting else [])


def _closings_hint(got: object, arrivals: list[float], size: int, wait: float) -> str:
    if not isinstance(got, (list, tuple)) or not all(isinstance(one, (list, tuple)) and len(one) == 2 for one in got):
        return "return a list of pairs (time of closing, requests in the batch)"
    if sum(count for _, count in got) != len(arrivals):
        return "every request belongs to exactly one batch, the last ones too"
    if any(count > size for _, count in got):
        return "a batch is full at max_batch"
    first = 0
    for time, count in got:
        members, first = arrivals[first : first + count], first + count
        if not members:
            return "a batch has at least one request in it"
        if time < members[-1]:
            return "a batch closes before its last request has come"
        if time > members[0] + wait:
            return "the oldest request of a batch waits longer than max_wait"
        if count == size and time > members[-1]:
            return "a full batch closes at once"
        if count < size and time < members[0] + wait:
            return "a batch closes though it is not full and its oldest has not waited max_wait"
    return "a request that comes before the window ends, while there is room, joins the batch"


def check_expected_longest(function: Callable) -> None:
    """`function(lengths, num_slots)`: mean of the longest of independent draws from `lengths`."""
    cases = [([1, 3], 1), ([1, 3], 2), ([4, 4, 4], 5), ([9, 1, 5], 3), ([2, 2, 2, 10], 2), (list(range(1, 129)), 8)]
    cases += [([20, 900], 1), ([7, 1, 1, 30, 2, 2, 400], 32)]
    for lengths, slots in cases:
        expect(function, lengths, slots, want=_longest(lengths, slots), hint=_longest_hint)


def _longest(lengths: list[int], slots: int) -> float:
    """Sum over k of P(longest >= k), which is another way than the solution's."""
    m = len(lengths)
    return float(sum(1 - (sum(x < k for x in lengths) / m) ** slots for k in range(1, max(lengths) + 1)))


def _telescoped(lengths: list[int], slots: int) -> float:
    """The closed form, right if `lengths` are sorted and all of them are there."""
    m = len(lengths)
    return sum(x * ((i / m) ** slots - ((i - 1) / m) ** slots) for i, x in enumerate(lengths, 1))


def _longest_hint(got: object, lengths: list[int], slots: int) -> str:
    if not isinstance(got, (int, float)):
        return "return one number"
    want, mean = _longest(lengths, slots), sum(lengths) / len(lengths)
    close = 1e-9 * want
    if abs(got * mean - want) < close:
        return "that is the dead-slot factor; here the mean of the longest itself is wanted, in tokens"
    if abs(got - max(lengths)) < close:
        return "the longest of the list is not drawn every time"
    if abs(got - mean) < close:
        return "that is the mean of one draw"
    if abs(got - _telescoped(lengths, slots)) < close:
        return "the order of the list must not change the answer"
    if abs(got - _telescoped(sorted(set(lengths)), slots)) < close:
        return "a value that stands in the list twice is drawn twice as often"
    if got > max(lengths) or got < mean - close:
        return "it lies between the mean and the longest of the list"
    if abs(got - want) < 0.05 * want:
        return "close, but an exact answer is wanted"
    return "P(longest <= x) is P(one <= x) to the power of num_slots; weigh each x by how much that grows there"
