"""A step being put together: what a mix policy fills. Introduced in notebook 04."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibatch.request import Sequence
from minibatch.step import Chunk

if TYPE_CHECKING:
    from minibatch.schedulers.iteration import IterationScheduler


class Draft:
    """Chunks chosen so far, who entered, who had to give way, and what is left of the token budget."""

    def __init__(self, scheduler: IterationScheduler, now: float):
        self.scheduler, self.now = scheduler, now
        self.chunks: dict[Sequence, Chunk] = {}
        self.admitted: list[str] = []
        self.preempted: list[str] = []
        self.budget = scheduler.mix.token_budget or 1 << 62  # tokens; no budget is a very large one
        self.cap = scheduler.mix.chunk_cap or 1 << 62
        self.running = list(scheduler.running)  # as the step began: the scheduler's own list changes meanwhile
        self._grow = scheduler.memory.grow

    def compute(self, sequence: Sequence) -> None:
        """The next chunk of a sequence that holds a slot, if it still does and there is budget.

        Where memory has run out, others give way until there is room, or the sequence itself does.
        """
        start = sequence.num_computed_tokens
        count = sequence.num_tokens - start
        if count > 1:
            count = min(count, self.budget, self.cap)
        if not count or not self.budget or sequence.slot is None:
            return
        while not self._grow(sequence, start + count):
            victim = self.scheduler.choose_victim()
            self._withdraw(victim)
            if victim is sequence:
                return
        self.chunks[sequence] = Chunk(sequence, sequence.slot, start, count)
        self.budget -= count

    def admit(self) -> bool:
        """Let in the next of the queue with its first chunk; False if nobody can enter."""
        sequence = self.scheduler.admit_one(self.now) if self.budget else None
        if sequence is None:
            return False
        self.admitted.append(sequence.request_id)
        self.compute(sequence)
        return True

    def _withdraw(self, victim: Sequence) -> None:
        """Take it out of this step, and its slot and memory with it."""
        chunk = self.chunks.pop(victim, None)
        self.budget += chunk.count if chunk else 0
        self.preempted.append(victim.request_id)
        self.scheduler.preempt(victim)
