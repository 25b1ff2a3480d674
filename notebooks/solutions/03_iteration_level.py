"""Solutions to the exercises of notebook 03. Try them yourself first: the checks help."""

from collections import deque


def finish_steps(lengths: list[int], arrivals: list[int], num_slots: int) -> list[int]:
    """The loop of section 1 with a clock: exit, admission of those who have come by now, one step."""
    queue, active, step = deque(range(len(lengths))), {}, 0
    ends = [0] * len(lengths)
    while queue or active:
        while queue and arrivals[queue[0]] <= step and len(active) < num_slots:
            request = queue.popleft()
            active[request] = lengths[request]
        step += 1  # also when nobody is there
        for request in list(active):
            active[request] -= 1
            if active[request] == 0:
                ends[request] = step
                del active[request]
    return ends


def mean_live_slots(lengths: list[int], num_slots: int) -> float:
    """A token is one slot live for one step, so the live slot-steps are the tokens."""
    steps = max(finish_steps(lengths, [0] * len(lengths), num_slots))
    return sum(lengths) / steps


def hard_queue(num_slots: int) -> list[int]:
    """One long answer in every batch, alone among short ones: static runs them one after the other.

    Iteration-level scheduling lets the short ones through and has all the long ones running beside each other.
    """
    return ([5000] + [1] * (num_slots - 1)) * 12
