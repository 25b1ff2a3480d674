"""Solutions to the exercises of notebook 07. Try them yourself first: the checks help."""

from minibatch.memory import PagedMemory
from minibatch.request import Sequence
from minibatch.schedulers.reserve import Claim


def victims(running: list[tuple[int, int, int, int]], missing: int) -> list[int]:
    """In the order of the rule, until enough is free; the oldest is not even in the list."""
    oldest, gone = min(running), []
    for order, _, _, blocks in sorted(running, key=lambda one: (one[1], -one[2], -one[0])):
        if missing > 0 and order != oldest[0]:
            gone.append(order)
            missing -= blocks
    return gone


def peak_need(sequences: list[tuple[int, int]]) -> int:
    """Between two ends need only grows, so it is enough to look at the steps in which somebody ends."""
    return max(sum(stored + step for stored, left in sequences if left >= step) for _, step in sequences)


def claim(sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
    """Take the blocks of the whole context at once, prompt and what was written before a preemption.

    It promises more than keeping them free at the door, as `claim_at_the_door` does: those who decode may take
    blocks that are only free, and none that are taken.
    """
    return Claim(sequence.num_tokens)


def claim_at_the_door(sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
    """The other way: one block to begin with, if the rest of it and the rest of all others is free."""
    first = min(sequence.num_tokens, memory.block_size)
    rest = sum(memory.blocks_for(one.num_tokens) - len(one.block_table) for one in running)
    return Claim(first, max(rest, 0) + memory.blocks_for(sequence.num_tokens) - 1)
