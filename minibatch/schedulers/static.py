"""The batch as a baking tray (article 1, "a fornada"; the first C# listing). Introduced in notebook 02."""

from minibatch.request import Sequence
from minibatch.schedulers.base import Scheduler, next_chunk
from minibatch.step import Chunk, StepPlan


class StaticBatcher(Scheduler):
    """Fill the tray, close the door, open it when ALL are done.

    The batch closes when it is full or when no more requests are coming, and then runs until its longest
    answer ends. Who finishes earlier keeps slot and memory: a dead slot, still computed at every step.
    """

    name = "static"
    padded = True

    def schedule(self, now: float) -> StepPlan:
        """Open a new batch if the last one has ended; then one step for everything on the tray."""
        admitted = self.admit(now) if not self.running and self.batch_is_ready(now) else []
        live = [sequence for sequence in self.running if not sequence.is_finished]
        dead = [sequence for sequence in self.running if sequence.is_finished]
        return StepPlan(
            chunks=tuple(next_chunk(sequence) for sequence in live),
            dead=tuple(Chunk(s, s.slot, s.num_computed_tokens - 1, 1) for s in dead),  # the last token, over again
            admitted=tuple(sequence.request_id for sequence in admitted),
            padded=True,
        )

    def batch_is_ready(self, now: float) -> bool:
        """Close the door? Full, or nobody else will come."""
        return len(self.waiting) >= self.max_num_seqs or not self.more_coming

    def leave(self, done: list[Sequence]) -> None:
        """Nobody leaves before the last one: the short answer waits for the long one."""
        if all(sequence.is_finished for sequence in self.running):
            super().leave(list(self.running))
