"""The batch that never closes: iteration-level scheduling (Orca, OSDI 2022; article 1's second C# listing).

Introduced in notebook 03.
"""

from minibatch.schedulers.base import Scheduler, next_chunk
from minibatch.step import StepPlan


class IterationScheduler(Scheduler):
    """Decide anew between any two steps: who has finished has left, who waits enters while there is a slot and memory.

    A new sequence computes its whole prompt in the step in which it enters, beside the decodes of the
    others: Orca's selective batching makes one step of both.
    """

    name = "iteration"

    def schedule(self, now: float) -> StepPlan:
        """One step for every sequence that holds a slot.

        There is no prefill or decode phase here. Each sequence has num_computed_tokens chasing num_tokens,
        and a step computes what is missing: a whole prompt at first, then one token at a time. Whoever
        finished gave up its slot in `leave()`, as soon as its last token was known.
        """
        admitted = self.admit(now)
        return StepPlan(
            chunks=tuple(next_chunk(sequence) for sequence in self.running),
            admitted=tuple(sequence.request_id for sequence in admitted),
        )
