"""Axis 4, evict: memory has run out while answers grow; who gives way, and how? Introduced in notebook 07.

A victim rule orders those who run: the last in its order gives way first. The oldest of them is never among the
victims while anybody else runs, so it gets on in every step, ends, and the next one is the oldest: at any pool
size that fits one request, everybody ends.
"""

from collections.abc import Callable
from dataclasses import dataclass

from minibatch.request import Sequence


def newest(sequence: Sequence) -> tuple[int, ...]:
    """Last come, first preempted (vLLM): it has lost least."""
    return (sequence.order,)


def fewest_outputs(sequence: Sequence) -> tuple[int, ...]:
    """Who has written least; among equals, the longest prompt (SGLang): frees much, repeats little of the answer."""
    return (-len(sequence.output), len(sequence.request.prompt), sequence.order)


def lowest_priority(sequence: Sequence) -> tuple[int, ...]:
    """The highest number, then the newest (vLLM with its priority policy)."""
    return (sequence.request.priority, sequence.order)


VICTIMS: dict[str, Callable[[Sequence], tuple[int, ...]]] = {
    "newest": newest,
    "fewest_outputs": fewest_outputs,
    "lowest_priority": lowest_priority,
}


@dataclass(frozen=True)
class Evict:
    """The victim rule, and what becomes of the victim's K and V: moved to host memory (`swap`) or computed again."""

    victim: str = "newest"
    swap: bool = False

    def __post_init__(self):
        if self.victim not in VICTIMS:
            raise ValueError(f"victim={self.victim!r}: choose one of {', '.join(VICTIMS)}")

    def choose(self, running: list[Sequence]) -> Sequence:
        """Who gives way."""
        oldest = min(running, key=newest)
        others = [sequence for sequence in running if sequence is not oldest]
        return max(others or running, key=VICTIMS[self.victim])
