"""Right and wrong answers to the exercises of notebook 02. Read by tests/test_checks.py, which says the format."""

from itertools import product
from random import Random

from minibatch.checks.nb02 import check_closings, check_dead_slot_steps, check_expected_longest
from minibatch.metrics import dead_slot_factor

NOTEBOOK = "02_static_batching"


def dead_step_by_step(lengths, slots):
    queue, dead = list(lengths), 0
    while queue:
        tray, queue = queue[:slots], queue[slots:]
        for step in range(1, max(tray) + 1):
            dead += sum(length < step for length in tray)
    return dead


def dead_by(trays):
    """An answer from a rule that cuts the lengths into batches."""
    return lambda lengths, slots: sum(max(tray) - x for tray in trays(lengths, slots) for x in tray)


def cut(lengths, slots):
    return [lengths[i : i + slots] for i in range(0, len(lengths), slots)]


def closings_by_clock(arrivals, size, wait):
    """Tick by tick, as a server would see it."""
    closed, waiting, coming = [], [], list(arrivals)
    for now in range(int(max(arrivals) + wait) + 1):
        while coming and coming[0] <= now:
            waiting.append(coming.pop(0))
            if len(waiting) == size:
                closed.append([now, size])
                waiting = []
        if waiting and now >= waiting[0] + wait:
            closed.append([now, len(waiting)])
            waiting = []
    return closed


def windows(restart=False, at_start=None, full=True, last=True):
    """Wrong batchers: the timer re-armed by each arrival, a fixed grid of windows, never full, the rest forgotten."""

    def closings(arrivals, size, wait):
        closed, batch, deadline = [], [], None
        for time in arrivals:
            if batch and time > deadline:
                closed.append((deadline, len(batch)))
                batch = []
            if not batch or restart:
                deadline = time + wait if at_start is None else (time // wait + 1) * wait
            batch.append(time)
            if full and len(batch) == size:
                closed.append((time, len(batch)))
                batch = []
        return closed + ([(deadline, len(batch))] if batch and last else [])

    return closings


def old_timer(arrivals, size, wait):
    """The window of a batch that closed early is left running and closes the next one."""
    closed, batch, timers = [], [], []
    for time in [*arrivals, max(arrivals) + 10 * wait]:
        for timer in [t for t in timers if t < time]:
            if batch:
                closed.append((timer, len(batch)))
                batch = []
            timers.remove(timer)
        if time > max(arrivals):
            break
        if not batch:
            timers.append(time + wait)
        batch.append(time)
        if len(batch) == size:
            closed.append((time, size))
            batch = []
    return closed


def longest_enumerated(lengths, slots):
    """All draws, one by one, for small cases; by thresholds for the large ones."""
    if len(lengths) ** slots <= 1000:
        draws = list(product(lengths, repeat=slots))
        return sum(map(max, draws)) / len(draws)
    return sum(1 - (sum(x <= k for x in lengths) / len(lengths)) ** slots for k in range(max(lengths)))


def longest_simulated(lengths, slots):
    rng = Random(0)
    return sum(max(rng.choices(lengths, k=slots)) for _ in range(4000)) / 4000


def mean(lengths):
    return sum(lengths) / len(lengths)


def longest_unsorted(lengths, slots):
    m = len(lengths)
    return sum(x * ((i / m) ** slots - ((i - 1) / m) ** slots) for i, x in enumerate(lengths, 1))


def longest_of_a_set(lengths, slots):
    return longest_unsorted(sorted(set(lengths)), slots)


def longest_without_replacement(lengths, slots):
    ordered, m, left, total = sorted(lengths, reverse=True), len(lengths), 1.0, 0.0
    for i, x in enumerate(ordered):
        chance = min(slots / (m - i), 1.0)
        total, left = total + left * chance * x, left * (1 - chance)
    return total


TABLE = {
    "dead_slot_steps": {
        "check": check_dead_slot_steps,
        "right": [dead_step_by_step, dead_by(cut), lambda lengths, slots: float(dead_step_by_step(lengths, slots))],
        "wrong": [
            (lambda lengths, slots: sum(max(t) * slots - sum(t) for t in cut(lengths, slots)), "empty"),
            (lambda lengths, slots: sum(max(t) * len(t) for t in cut(lengths, slots)), "live ones"),
            (lambda lengths, slots: max(lengths) * len(lengths) - sum(lengths), "its own longest"),
            (dead_by(lambda lengths, slots: cut(sorted(lengths), slots)), "order of arrival"),
            (dead_by(lambda lengths, slots: cut(sorted(lengths, reverse=True), slots)), "order of arrival"),
            (dead_by(lambda lengths, slots: [t for t in cut(lengths, slots) if len(t) == slots]), "step after"),
            (lambda lengths, slots: 880, "step after"),  # the visible example
            (lambda lengths, slots: dead_step_by_step(lengths, slots) - len(lengths), "step after"),
        ],
    },
    "closings": {
        "check": check_closings,
        "right": [
            closings_by_clock,
            windows(),
            lambda *args: [(time + 1e-10, size) for time, size in closings_by_clock(*args)],
        ],
        "wrong": [
            (windows(restart=True), "oldest"),
            (windows(full=False), "full"),
            (windows(last=False), "exactly one"),
            (windows(at_start="grid"), "max_wait"),
            (old_timer, "not full"),
            (lambda arrivals, size, wait: [(a[0] + wait, len(a)) for a in cut(arrivals, size)], "last request"),
            (lambda arrivals, size, wait: [(time + wait, 1) for time in arrivals], "joins"),
            (lambda *args: [time for time, _ in closings_by_clock(*args)], "pairs"),
            (lambda *args: [(time / 1000, size) for time, size in closings_by_clock(*args)], "before"),
            (lambda arrivals, size, wait: [(100, 2), (260, 2)], "exactly one"),  # the visible example
        ],
    },
    "expected_longest": {
        "check": check_expected_longest,
        "right": [
            longest_enumerated,
            lambda lengths, slots: dead_slot_factor(lengths, slots) * mean(lengths),
            lambda lengths, slots: longest_unsorted(sorted(lengths), slots) + 1e-9,
        ],
        "wrong": [
            (dead_slot_factor, "the dead-slot factor"),
            (lambda lengths, slots: max(lengths), "not drawn"),
            (lambda lengths, slots: mean(lengths), "one draw"),
            (longest_unsorted, "order of the list"),
            (longest_of_a_set, "twice"),
            (longest_simulated, "exact"),
            (longest_without_replacement, "not drawn"),
            (lambda lengths, slots: mean(lengths) * slots, "between"),
            (lambda lengths, slots: longest_enumerated(lengths, slots + 1), "P(longest"),
        ],
    },
}
